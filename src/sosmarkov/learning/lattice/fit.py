"""A lattice process from a `Dataset`: its transition, and where it starts."""

from __future__ import annotations

import warnings

from sosmarkov.data.dataset import Dataset
from sosmarkov.lattice.transition import LatticeTransition
from sosmarkov.learning.lattice.initial import learn_initial
from sosmarkov.learning.lattice.learn import Recipe, learned
from sosmarkov.learning.lattice.surrogate import Rows
from sosmarkov.learning.lattice.view import View
from sosmarkov.process.process import MarkovProcess

# The share of steps with rows wider than their noise that is worth a warning.
_NARROW = 0.1


class LatticeWarning(UserWarning):
    """A lattice is coarser than the noise asks for; the text says by how much and what would do."""


def rows_of(data: Dataset) -> Rows:
    """The pairs of a data set."""
    return Rows(data.pairs.x, data.pairs.x_next, data.pairs.weight, data.pairs.u)


def lattice_process(data: Dataset, transition: LatticeTransition) -> MarkovProcess:
    """A process on a learned lattice, with p(x0) learned from the initial states."""
    initial = learn_initial(transition.nodes, transition.broad, data.starts.x, data.starts.weight)
    return MarkovProcess(transition, initial)


def learn_lattice(data: Dataset, recipe: Recipe, view: View) -> MarkovProcess:
    """A process by a recipe, from all of the data."""
    transition = learned(rows_of(data), recipe, view)
    if transition.report["narrow"] > _NARROW:
        warnings.warn(
            f"{transition.report['narrow']:.0%} of the steps in the data go through rows that are wider than the noise:"
            " the lattice's nodes are too far apart for it. Fewer coordinates would let them be closer.",
            LatticeWarning,
            stacklevel=2,
        )
    return lattice_process(data, transition)
