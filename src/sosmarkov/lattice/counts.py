"""Rows from counts: penalised expectation-maximisation, whose objective is concave in the rows.

sum_n v_n log p(x'_n | x_n) + alpha sum_i sum_j A0_ij log A_ij, with p(x' | x) = sum_i w_i(x) sum_j A_ij E_j(x'): each
pass adds the expected counts of what data do to alpha times the rows they are shrunk towards. Counts add up over data.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from sosmarkov.data.dataset import Pairs
from sosmarkov.lattice.broad import Broad
from sosmarkov.lattice.chain import Chain
from sosmarkov.lattice.nodes import Nodes

# Of expectation-maximisation.
PASSES = 8
# Entries of pairs that are added up at once.
_BLOCK = 2_000_000


class Seen:
    """Pairs as a chain sees them: which entries of its rows each could have taken, and how likely that makes it.

    Args:
        nodes: Of the chain.
        broad: Its broad part.
        rows: Whose entries there may be; the others stay zero.
        x: States, shape (N, d).
        x_next: Their successors.
    """

    def __init__(self, nodes: Nodes, broad: Broad, rows: sp.csr_array, x: np.ndarray, x_next: np.ndarray):
        self.rows = rows
        i, gates = nodes.gates(x)
        j, densities = nodes.densities(x_next)
        self.entries, values = _places(rows, i, j)
        self.values = (values * gates[:, :, None] * densities[:, None, :]).reshape(len(x), -1).T.copy()
        self.entries = self.entries.reshape(len(x), -1).T.copy()
        # The last entry of each row is the broad part's, where there is one.
        last, there = _places(rows, i, np.full((len(x), 1), len(nodes)))
        far = there[..., 0] * gates * np.exp(broad.log_prob(x_next))[:, None]
        self.entries = np.concatenate([self.entries, last[..., 0].T])
        self.values = np.concatenate([self.values, far.T])

    def likelihood(self, data: Float[np.ndarray, " e"]) -> Float[np.ndarray, " n"]:
        """p(x' | x) of each pair, of rows with these entries."""
        found = np.zeros(self.values.shape[1])
        for entries, values in self._blocks():
            found += np.sum(values * data[entries], axis=0)
        return found

    def counts(self, data: Float[np.ndarray, " e"], weight: Float[np.ndarray, " n"]) -> Float[np.ndarray, " e"]:
        """How often each entry was taken, expected; pairs that the rows make impossible say nothing."""
        p = self.likelihood(data)
        share = np.divide(weight, p, out=np.zeros_like(p), where=p > 0)
        found = np.zeros(len(data))
        for entries, values in self._blocks():
            found += np.bincount(entries.ravel(), (share * values).ravel(), len(data))
        return found * data

    def _blocks(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Some columns at a time: one sum over all rows for each block, and memory for no more than that."""
        size = max(1, _BLOCK // max(1, self.values.shape[1]))
        return [(self.entries[i : i + size], self.values[i : i + size]) for i in range(0, len(self.values), size)]


def _places(
    rows: sp.csr_array, i: Int[np.ndarray, "n a"], j: Int[np.ndarray, "n b"]
) -> tuple[Int[np.ndarray, "n a b"], Float[np.ndarray, "n a b"]]:
    """Where the entries (i, j) stand among those of the rows, and one where they are there, else zero."""
    count = len(rows.indptr) - 1
    # A row of the chain has an entry for each node, and one for the broad part.
    width = count + 1
    keys = np.repeat(np.arange(count, dtype=np.int64), np.diff(rows.indptr)) * width + rows.indices
    asked = i[:, :, None].astype(np.int64) * width + j[:, None, :]
    found = np.minimum(np.searchsorted(keys, asked.reshape(-1)), len(keys) - 1).reshape(asked.shape)
    return found.astype(np.int32), (keys[found] == asked).astype(float)


class Counted(NamedTuple):
    """Rows after counting.

    Attributes:
        rows: A, with entries where they were.
        behind: What each row was divided by: alpha and the counts in it, shape (n,); more data count against it.
    """

    rows: sp.csr_array
    behind: Float[np.ndarray, " n"]


def learn_rows(
    seen: Seen, weight: Float[np.ndarray, " n"], strength: float | Float[np.ndarray, " m"], passes: int = PASSES
) -> Counted:
    """The rows after some passes, from those they are shrunk towards, with `strength` alpha in counts, of each row."""
    rows, count = seen.rows, len(seen.rows.indptr) - 1
    row = np.repeat(np.arange(count), np.diff(rows.indptr))
    prior = np.broadcast_to(strength, count)[row] * rows.data
    data, behind = rows.data.copy(), np.zeros(count)
    for _ in range(passes):
        data = seen.counts(data, weight) + prior
        behind = np.bincount(row, data, count)
        data /= behind[row]
    return Counted(sp.csr_array((data, rows.indices, rows.indptr), rows.shape), behind)


def learn_phases(
    chain: Chain, pairs: Pairs, phase: Int[np.ndarray, " n"], behind: Float[np.ndarray, " b"], passes: int = PASSES
) -> list[Counted]:
    """The rows of each phase after counting its pairs against what they stand for, all phases' below each other."""
    found, each = [], behind.reshape(chain.phases, -1)
    for one, matrix in enumerate(chain.matrices):
        at = phase == one
        seen = Seen(chain.nodes, chain.broad, matrix, pairs.x[at], pairs.x_next[at])
        found.append(learn_rows(seen, pairs.weight[at], each[one], passes))
    return found
