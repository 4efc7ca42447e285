"""The lattice transition p(x' | x) = sum_i w_i(x) sum_j A_ij E_j(x'): a chain whose states emit splines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.check import CheckReport
from sosmarkov.contracts.known import KnownState
from sosmarkov.contracts.mixture import MixtureBelief
from sosmarkov.contracts.transition import AbstractTransition
from sosmarkov.core import checks, draws
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import require, stored
from sosmarkov.lattice.beliefs import LatticeBelief, placed
from sosmarkov.lattice.broad import Broad
from sosmarkov.lattice.nodes import Nodes
from sosmarkov.spaces.transforms import Identity, Transform

# Pairs of states, or entries of blocks, that are worked on at once.
_PAIRS, _ENTRIES = 4096, 8_000_000


class Met(NamedTuple):
    """A message: what the gates see of a belief, times exp(log_scale).

    Attributes:
        P: int w_i p, shape (n,).
        log_scale: A logarithm.
    """

    P: Float[np.ndarray, " n"]
    log_scale: Any


class Period(NamedTuple):
    """Inputs that are times of a period."""

    dim: int
    period: int


def _sound(transition: LatticeTransition) -> None:
    LatticeTransition(transition.nodes, transition.matrices, transition.broad, report=transition.report)


@stored("nodes", "broad", "shares", "columns", "starts", "report", check=_sound)
class LatticeTransition(AbstractTransition):
    """p(x' | x) = sum_i w_i(x) (sum_(j <= n) A_ij D_j(x') + A_i(n+1) t(x')), normalised for every x.

    Args:
        nodes: Where gates and splines sit, in data space.
        matrix: A, shape (n, n + 1), rows non-negative with sums of one; a list of such, one a phase, for a period: its
            input is the time, and phase 0 moves states at times 0, period, 2 period, ....
        broad: t.
        report: What is worth knowing of how the rows were made, such as the share of rows too narrow for the spacing.
    """

    nodes: Nodes
    broad: Broad
    shares: Float[np.ndarray, " k"]
    columns: Int[np.ndarray, " k"]
    starts: Int[np.ndarray, " r"]
    report: dict[str, float]
    transform: Transform

    def __init__(
        self,
        nodes: Nodes,
        matrix: Any,
        broad: Broad,
        *,
        report: dict[str, float] | None = None,
    ):
        given = list(matrix) if isinstance(matrix, (list, tuple)) else [matrix]
        rows = sp.vstack([sp.csr_array(one) for one in given], format="csr")
        rows.sum_duplicates()
        n = len(nodes)
        require(len(given) > 0 and rows.shape == (len(given) * n, n + 1), f"rows of shape ({n}, {n + 1})")
        sums = np.asarray(rows.sum(axis=1)).ravel()
        sound = np.all(rows.data >= 0) and np.max(np.abs(sums - 1.0)) < 1e-9
        require(sound, "rows that are not negative and add up to one")
        require(nodes.axes == broad.axes, "a broad part on the axes of the nodes")
        self.nodes, self.broad, self.report = nodes, broad, dict(report or {})
        self.shares, self.columns, self.starts = rows.data.astype(float), rows.indices, rows.indptr
        self.transform = Identity(nodes.dim)

    # --- what it is made of -----------------------------------------------------------------------

    @property
    def phases(self) -> int:
        """How many steps differ."""
        return (len(self.starts) - 1) // len(self.nodes)

    @cached_property
    def matrices(self) -> list[sp.csr_array]:
        """A of each phase."""
        n, found = len(self.nodes), []
        for phase in range(self.phases):
            starts = self.starts[phase * n : (phase + 1) * n + 1]
            part = slice(starts[0], starts[-1])
            found.append(sp.csr_array((self.shares[part], self.columns[part], starts - starts[0]), (n, n + 1)))
        return found

    @cached_property
    def _turned(self) -> list[sp.csr_array]:
        """A^T of each phase, by rows as well: a step runs through memory once, in order."""
        return [matrix.T.tocsr() for matrix in self.matrices]

    @cached_property
    def bands(self) -> list[sp.csr_array]:
        """int w_i D_j, as bands to be applied in turn."""
        return self.nodes.meet()

    @cached_property
    def met(self) -> Float[np.ndarray, " n"]:
        """int w_i t."""
        return self.broad.met(self.nodes)

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return self.nodes.dim
