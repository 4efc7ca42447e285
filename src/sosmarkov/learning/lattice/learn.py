"""A lattice from data: the way to say one step, the nodes, the rows, and how far counts may change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

from sosmarkov.lattice.broad import Broad
from sosmarkov.lattice.counts import Seen, learn_rows
from sosmarkov.lattice.rows import compile_rows
from sosmarkov.lattice.transition import LatticeTransition
from sosmarkov.learning.held_out import Fold, forecast_scores
from sosmarkov.learning.lattice.place import place, spacing_for
from sosmarkov.learning.lattice.surrogate import Ground, Rows, Surrogate, Way, best_way
from sosmarkov.learning.lattice.view import View

# Pairs that the choice among ways looks at, and those it is judged by.
_LOOK, _HELD_OUT = 5000, 3000
# What counts may weigh against: rows of data behind each row of the chain; None leaves the rows as compiled.
STRENGTHS = (None, 160.0, 40.0, 10.0, 3.0, 1.0)
# Spacings that are tried, in the widest that leaves a normal noise to its rows, by the number of coordinates: noise
# that is not normal may be sharper than its deviation says. Finer lattices of more entries than that are not tried, and
# those that gain less than so many nats a step are not taken.
FINE = ((1.0, 0.4, 0.15), (1.0, 0.5), (1.0,))
_ENTRIES, _WORTH = 3_000_000, 0.005
# Rows of data that a row which counts did not better stands for, beside those its gate saw.
STANDING = 640.0
# Entries of rows below this share of the largest are cut: what lies out there is the broad part's and the counts'.
_CUT = (1e-6, 1e-5, 1e-4)
# Share of the broad part in every row, and its width in deviations of the states.
_BROAD, _WIDE = 1e-3, 3.0


class Recipe(NamedTuple):
    """What is chosen by held-out steps.

    Attributes:
        way: How one step is said.
        strength: What counts weigh against; None where there are none.
        fineness: The spacing, in the widest that leaves a normal noise to the rows.
    """

    way: Way
    strength: float | None = None
    fineness: float = 1.0

    def behind(self, dim: int) -> float | None:
        """Rows of data behind each row of the chain: as many in all, however close the nodes are."""
        return None if self.strength is None else self.strength * self.fineness**dim

    def __str__(self) -> str:
        """A few words."""
        counts = "no counts" if self.strength is None else f"counts against {self.strength:g}"
        return f"{self.way}; {counts}" + (f"; {self.fineness:g} of the spacing" if self.fineness < 1.0 else "")


class Judged(NamedTuple):
    """What one fold says.

    Attributes:
        way: The best way to say one step.
        table: Mean log-density of held-out steps for each spacing and each of `STRENGTHS`, shape (f, s); -inf where one
            was not tried.
        scores: Log-densities of held-out forecasts of the best of these, shape (origins, numbers of steps).
    """

    way: Way
    table: Float[np.ndarray, "f s"]
    scores: Float[np.ndarray, "o k"]


def choose(rows: Rows, folds: Sequence[Fold], view: View) -> tuple[Recipe, Float[np.ndarray, "o k"]]:
    """The recipe with the best held-out steps, and the scores of its forecasts, all folds' below each other."""
    found = [_judged(rows, fold, view) for fold in folds]
    fine, strength = _best(np.mean([one.table for one in found], axis=0))
    names = [one.way for one in found]
    way = max(dict.fromkeys(names), key=names.count)
    recipe = Recipe(way, STRENGTHS[strength], FINE[view.dim - 1][fine])
    return recipe, np.concatenate([one.scores for one in found])


def _best(table: np.ndarray) -> tuple[int, int]:
    """The best spacing and strength; a finer one has to be worth its cost."""
    fine = 0
    for other in range(1, len(table)):
        if np.max(table[other]) > np.max(table[fine]) + _WORTH:
            fine = other
    return fine, int(np.argmax(table[fine]))


def learned(rows: Rows, recipe: Recipe, view: View) -> LatticeTransition:
    """The lattice of a recipe from all rows."""
    transition = compiled(Surrogate(Ground(rows.usual(), view), recipe.way), rows, recipe.fineness)
    if recipe.strength is not None:
        return _Counts(transition, rows).learned(recipe.behind(view.dim))
    # Rows stand for the pairs that each gate saw, and for what smooths between them.
    chain = transition.chain
    return _with(
        transition, chain.matrices, [STANDING + chain.visits(at.x, at.weight) for at in _phased(rows, chain.phases)]
    )


def compiled(surrogate: Surrogate, rows: Rows, fineness: float = 1.0) -> LatticeTransition:
    """The lattice of a surrogate, without counts: one matrix for each time of a period.

    Nodes are made where the surrogate's own states are; the broad part, for all that the rows have.
    """
    usual = surrogate.ground.rows
    states, share = usual.states, 1.0 - len(usual.x) / len(rows.x)
    background = max(_BROAD, share)
    period = surrogate.ground.view.period
    acting = [None] if period is None else [np.array([float(phase)]) for phase in range(period)]
    spacing = fineness * spacing_for(surrogate, usual.x, acting)
    nodes = place(surrogate, states, spacing, acting)
    broad = Broad(nodes.axes, np.mean(states, axis=0), _WIDE * np.std(rows.states, axis=0))
    last = (np.full(len(nodes), background), (np.arange(len(nodes)), np.full(len(nodes), len(nodes))))
    at, gates = nodes.gates(states)
    # How often the data look through each gate: what is wrong with a row that nobody comes by does no harm.
    passed = np.bincount(at.ravel(), gates.ravel(), len(nodes)) / len(states)
    matrices, narrow, left = [], 0.0, 0.0
    for u in acting:
        step = surrogate.steps(nodes.points, u)
        found = compile_rows(nodes, step.mean, step.slope, step.noise, _CUT[nodes.dim - 1])
        matrices.append(sp.csr_array((1.0 - background) * found.matrix + sp.coo_array(last, found.matrix.shape)))
        narrow, left = max(narrow, float(passed @ found.narrow)), max(left, float(passed @ found.left))
    return LatticeTransition(nodes, matrices, broad, report={"narrow": narrow, "left": left})


def _judged(rows: Rows, fold: Fold, view: View) -> Judged:
    """The choices of one fold, and how good its forecasts are."""
    training, held_out = rows.at(fold.training), rows.at(fold.held_out).some(_HELD_OUT)
    way, _ = best_way(Ground(training.some(_LOOK).usual(), view), held_out.usual())
    surrogate, table, tried = Surrogate(Ground(training.usual(), view), way), [], []
    # Rows of every time of a period are dear to make: the widest spacing alone.
    for fineness in FINE[view.dim - 1][: None if view.period is None else 1]:
        # Twice as fine are four times the entries in one coordinate, and sixteen in two.
        if tried and len(tried[0][0].shares) * fineness ** (-2.0 * view.dim) > _ENTRIES:
            table.append(np.full(len(STRENGTHS), -np.inf))
            continue
        transition = compiled(surrogate, training, fineness)
        seen, unseen = _Counts(transition, training), _Counts(transition, held_out)
        tried.append([seen.learned(Recipe(way, strength, fineness).behind(view.dim)) for strength in STRENGTHS])
        table.append(np.array([unseen.score(one) for one in tried[-1]]))
    fine, strength = _best(np.stack(table))
    return Judged(way, np.stack(table), forecast_scores(tried[fine][strength], rows, fold))


def _phased(rows: Rows, phases: int) -> list[Rows]:
    """Those of each phase."""
    times = np.zeros(len(rows.x)) if rows.u is None else rows.u[:, 0]
    phase = np.rint(times).astype(int) % phases
    return [rows.at(np.flatnonzero(phase == one)) for one in range(phases)]


def _with(old: LatticeTransition, matrices: list[sp.csr_array], behind: list[np.ndarray]) -> LatticeTransition:
    """With other rows, and what they stand for."""
    return LatticeTransition(old.nodes, matrices, old.broad, report=old.report, behind=np.concatenate(behind))


class _Counts:
    """Pairs as the rows of a lattice see them, those of each phase by themselves."""

    def __init__(self, transition: LatticeTransition, rows: Rows):
        self.transition, chain = transition, transition.chain
        self.parts = [
            (Seen(chain.nodes, chain.broad, matrix, at.x, at.x_next), at.weight)
            for matrix, at in zip(chain.matrices, _phased(rows, chain.phases), strict=True)
        ]

    def learned(self, strength: float | None) -> LatticeTransition:
        """The transition after counting, shrunk to what it was."""
        if strength is None:
            return self.transition
        found = [learn_rows(seen, weight, strength) for seen, weight in self.parts]
        return _with(self.transition, [one.rows for one in found], [one.behind for one in found])

    def score(self, transition: LatticeTransition) -> float:
        """The mean log-density of the pairs under rows with entries in the same places."""
        found = [
            np.log(seen.likelihood(matrix.data))
            for (seen, _), matrix in zip(self.parts, transition.chain.matrices, strict=True)
        ]
        weights = np.concatenate([weight for _, weight in self.parts])
        return float(np.average(np.concatenate(found), weights=weights))
