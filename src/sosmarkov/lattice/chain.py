"""The chain under a lattice transition: its sparse rows, what gates see of its densities, pairs of states."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from sosmarkov.lattice.beliefs import placed
from sosmarkov.lattice.broad import Broad
from sosmarkov.lattice.nodes import Nodes

# Numbers of rows from states that are held at once.
_BLOCK = 8_000_000


class Period(NamedTuple):
    """Inputs that are times of a period."""

    dim: int
    period: int


class Chain:
    """Rows A_ij on nodes, and the broad density past them, one matrix a phase.

    Args:
        nodes: Where gates and splines sit.
        broad: The last of the densities.
        shares: Entries of all rows, one phase after the other, shape (k,).
        columns: Of each entry.
        starts: Where each row begins, and the end.
    """

    def __init__(
        self,
        nodes: Nodes,
        broad: Broad,
        shares: Float[np.ndarray, " k"],
        columns: Int[np.ndarray, " k"],
        starts: Int[np.ndarray, " r"],
    ):
        self.nodes, self.broad = nodes, broad
        self.shares, self.columns, self.starts = shares, columns, starts

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

    def phase(self, u: Any) -> int:
        """The phase of one time; zero where steps are all alike."""
        if self.phases == 1:
            return 0
        if u is None:
            raise ValueError("Expected the time of a step in a period, got none.")
        return int(np.rint(np.asarray(u).reshape(-1)[0])) % self.phases

    @cached_property
    def normalisation(self) -> float:
        """By how much a row may miss the sum one."""
        return max(float(np.max(np.abs(one - 1.0))) for one in self.sums)

    @cached_property
    def sums(self) -> list[Float[np.ndarray, " n"]]:
        """Of the rows of each phase."""
        return [np.asarray(matrix.sum(axis=1)).ravel() for matrix in self.matrices]

    # --- steps ------------------------------------------------------------------------------------

    def banded(self, held: np.ndarray) -> np.ndarray:
        """int w_i D_j times shares of nodes."""
        for band in self.bands:
            held = band @ held
        return held

    def seen(self, C: np.ndarray) -> np.ndarray:
        """What gates see of beliefs with these shares, one or many as columns."""
        return self.banded(C[:-1]) + (C[-1] * self.met if C.ndim == 1 else self.met[:, None] * C[-1])

    def carry(self, P: np.ndarray, u: Any = None) -> np.ndarray:
        """A^T P: the next shares of one message, or of many as columns."""
        return self._turned[self.phase(u)] @ P

    # --- known states ------------------------------------------------------------------------------

    def numbers_from(self, x: Float[np.ndarray, "n d"], u: Any = None) -> sp.csr_array:
        """Shares of the belief one step after each of many known states, shape (n, n + 1), sparse."""
        return self.gates(x) @ self.matrices[self.phase(u)]

    def gates(self, x: Float[np.ndarray, "n d"]) -> sp.csr_array:
        """w_i of many states, sparse."""
        at, values = self.nodes.gates(x)
        starts = np.arange(len(x) + 1) * at.shape[1]
        found = sp.csr_array((values.reshape(-1), at.reshape(-1), starts), (len(x), len(self.nodes)))
        found.sum_duplicates()
        return found

    def mean_gates(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " m"]:
        """The mean over states of what gates see of each."""
        at, values = self.nodes.gates(x)
        return np.bincount(at.reshape(-1), values.reshape(-1), len(self.nodes)) / len(x)

    def visits(self, x: Float[np.ndarray, "n d"], weight: Float[np.ndarray, " n"]) -> Float[np.ndarray, " m"]:
        """How much of some weighted states each gate sees."""
        at, values = self.nodes.gates(x)
        return np.bincount(at.reshape(-1), (values * weight[:, None]).reshape(-1), len(self.nodes))

    def inside(self, x: np.ndarray) -> np.ndarray:
        """Whether states lie within all bounds."""
        return np.all([axis.allowed(x[..., c]) for c, axis in enumerate(self.nodes.axes)], axis=0)

    def log_pairs(self, x_next: np.ndarray, x: np.ndarray, index: np.ndarray, phase: int) -> np.ndarray:
        """log p(x_next | x_index) of pairs."""
        matrix, found = self.matrices[phase], np.full(len(x_next), -np.inf)
        inside = self.inside(x)
        wide = max(1, int(_BLOCK * len(self.nodes) / (3**self.nodes.dim * matrix.nnz)))
        order = np.argsort(index, kind="stable")
        order = order[inside[index[order]]]
        for i in range(0, len(order), wide):
            pairs = order[i : i + wide]
            own, row = np.unique(index[pairs], return_inverse=True)
            rows: Any = self.gates(x[own]) @ matrix
            at, values = self.nodes.densities(x_next[pairs])
            held = np.asarray(rows[np.repeat(row, at.shape[1]), at.reshape(-1)]).reshape(at.shape)
            broad = np.asarray(rows[:, [len(self.nodes)]].toarray()).reshape(-1)[row]
            with np.errstate(divide="ignore"):
                near = np.log(np.einsum("nk,nk->n", held, values))
                found[pairs] = np.logaddexp(near, np.log(broad) + self.broad.log_prob(x_next[pairs]))
        return found

    def log_later(
        self, x_next: Float[np.ndarray, "n d"], x: Float[np.ndarray, "n d"], gap: int, phase: int
    ) -> Float[np.ndarray, " n"]:
        """log p(x_(k + gap) | x_k) of pairs, many at once, from one phase on."""
        if gap == 1:
            return self.log_pairs(x_next, x, np.arange(len(x)), phase)
        found, wide = np.empty(len(x)), max(1, _BLOCK // len(self.nodes))
        for part in (slice(i, i + wide) for i in range(0, len(x), wide)):
            C = self.numbers_from(x[part], [phase]).toarray().T
            for k in range(1, gap):
                C = self.carry(self.seen(C), [phase + k])
            found[part] = self._log_each(x_next[part], C)
        return found

    def _log_each(self, x: Float[np.ndarray, "n d"], C: Float[np.ndarray, "q n"]) -> Float[np.ndarray, " n"]:
        """log-density of each state under a belief of its own."""
        at, values = self.nodes.densities(x)
        with np.errstate(divide="ignore"):
            near = np.log(np.sum(C[at, np.arange(len(x))[:, None]] * values, axis=1))
            return np.logaddexp(near, np.log(C[-1]) + self.broad.log_prob(x))

    def draw(
        self, generator: np.random.Generator, x: Float[np.ndarray, "n d"], phases: Int[np.ndarray, " n"]
    ) -> Float[np.ndarray, "n d"]:
        """One draw of x' for each state: a gate, an entry of its row, a place under its spline."""
        at, values = self.nodes.gates(x)
        below = np.cumsum(values, axis=1)
        which = np.sum(generator.random((len(x), 1)) * below[:, -1:] > below, axis=1)
        row = phases * len(self.nodes) + at[np.arange(len(x)), np.minimum(which, at.shape[1] - 1)]
        # Rows one after the other: the entry up to which a row holds a share.
        begin = np.where(self.starts[row] > 0, self._below[self.starts[row] - 1], 0.0)
        end = self._below[self.starts[row + 1] - 1]
        entry = np.searchsorted(self._below, begin + generator.random(len(x)) * (end - begin), side="right")
        entry = np.clip(entry, self.starts[row], self.starts[row + 1] - 1)
        return placed(generator, self.nodes, self.broad, self.columns[entry])

    @cached_property
    def _below(self) -> Float[np.ndarray, " k"]:
        return np.cumsum(self.shares)
