"""Nodes made only where beliefs go: steps from where a process starts, until no new place takes a share that counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.known import KnownState
from sosmarkov.lattice import splines
from sosmarkov.lattice.axis import Axis
from sosmarkov.lattice.nodes import Nodes, covering
from sosmarkov.lattice.rows import Entries

# Places with less than this share of the largest are not gone on from.
THRESHOLD = 1e-9
# Places of the box that are looked through at once, and in all.
_BLOCK, MOST_PLACES = 500_000, 2**26
# Steps after which beliefs count as being where they stay: so many without a new place, and in all.
_QUIET, _STEPS, _STILL = 25, 2000, 1e-12


class Reach(NamedTuple):
    """Where beliefs go.

    Attributes:
        nodes: The places.
        parts: Rows from all of them, for each part of the noise.
    """

    nodes: Nodes
    parts: list[Entries]


class _Held(NamedTuple):
    """Shares of some places of the box."""

    cells: Int[np.ndarray, " k"]
    shares: Float[np.ndarray, " k"]

    def above(self) -> _Held:
        """Those that count."""
        kept = self.shares > THRESHOLD * np.max(self.shares)
        return _Held(self.cells[kept], self.shares[kept])


def reached(
    axes: Sequence[Axis],
    start: Belief,
    rows: Callable[[Nodes], tuple[list[Entries], Sequence[float]]],
    most: int,
) -> Reach | None:
    """The places that beliefs of a process go through, and their rows; None where they are more than `most`.

    Args:
        axes: Of the box.
        start: Where the process starts.
        rows: Of some nodes: their entries for each part of the noise, and its weights.
        most: Places at most.
    """
    found = _Found(axes)
    now, quiet = _gated(axes, _started(axes, start)).above(), 0
    for step in range(_STEPS):
        new = now.cells[found.index[now.cells] < 0]
        quiet = 0 if len(new) else quiet + 1
        if found.count + len(new) > most:
            return None
        if quiet > max(_QUIET, step // 4):
            break
        if len(new):
            found.add(new, rows)
        last, now = now, _gated(axes, found.carried(now)).above()
        same = len(last.cells) == len(now.cells) and np.array_equal(last.cells, now.cells)
        if same and np.max(np.abs(last.shares - now.shares)) < _STILL:
            break
    return found.all()


class _Found:
    """Places that were found, in the order they were, and rows from them."""

    def __init__(self, axes: Sequence[Axis]):
        self.axes, self.count = tuple(axes), 0
        self.index = np.full(int(np.prod([axis.count for axis in axes])), -1, dtype=np.int32)
        self.cells: list[np.ndarray] = []
        self.parts: list[list[Entries]] = []
        self.forward: list[tuple[np.ndarray, sp.csr_array]] = []

    def add(self, new: Int[np.ndarray, " k"], rows: Callable[[Nodes], tuple[list[Entries], Sequence[float]]]) -> None:
        """Places, which are sorted, and their rows."""
        entries, weights = rows(Nodes(self.axes, new))
        self.index[new] = self.count + np.arange(len(new))
        self.count += len(new)
        self.cells.append(new)
        self.parts.append(entries)
        at = np.concatenate([one.rows for one in entries])
        to = np.concatenate([one.cells for one in entries])
        shares = np.concatenate([weight * one.shares for weight, one in zip(weights, entries, strict=True)])
        inside = to >= 0
        targets, columns = np.unique(to[inside], return_inverse=True)
        matrix = sp.coo_array((shares[inside], (columns, at[inside])), (len(targets), len(new))).tocsr()
        self.forward.append((targets, matrix))

    def carried(self, held: _Held) -> _Held:
        """One step of the chain."""
        shares = np.zeros(self.count)
        shares[self.index[held.cells]] = held.shares
        begin, cells, values = 0, [], []
        for own, (targets, matrix) in zip(self.cells, self.forward, strict=True):
            part = shares[begin : begin + len(own)]
            begin += len(own)
            if np.any(part):
                cells.append(targets)
                values.append(matrix @ part)
        return _summed(np.concatenate(cells), np.concatenate(values))

    def all(self) -> Reach:
        """In the order of their places."""
        nodes = Nodes(self.axes, np.concatenate(self.cells))
        parts = []
        for k in range(len(self.parts[0])):
            each = [entries[k] for entries in self.parts]
            # Rows go by where each place came to stand.
            own = [nodes.member[cells] for cells in self.cells]
            rows = np.concatenate([to[one.rows] for to, one in zip(own, each, strict=True)])
            narrow = np.zeros(len(nodes), dtype=bool)
            for to, one in zip(own, each, strict=True):
                narrow[to] = one.narrow
            cells, shares = (np.concatenate([getattr(one, name) for one in each]) for name in ("cells", "shares"))
            parts.append(Entries(rows, cells, shares, narrow))
        return Reach(nodes, parts)


def _summed(cells: np.ndarray, shares: np.ndarray) -> _Held:
    own, index = np.unique(cells, return_inverse=True)
    return _Held(own, np.bincount(index.reshape(-1), shares, len(own)))


def _gated(axes: Sequence[Axis], held: _Held) -> _Held:
    """What the gates of places see: int B_i D_j, five taps a coordinate; beyond an open end the outermost."""
    shape = tuple(axis.count for axis in axes)
    for c, axis in enumerate(axes):
        at = list(np.unravel_index(held.cells, shape))
        to = np.clip(axis.fold(at[c] + np.arange(-2, 3)[:, None]), 0, axis.count - 1)
        places = [np.broadcast_to(a, to.shape) for a in at]
        places[c] = to
        held = _summed(
            np.ravel_multi_index(places, shape).reshape(-1), (splines.TAPS[:, None] * held.shares).reshape(-1)
        )
    return held


def _started(axes: Sequence[Axis], start: Belief) -> _Held:
    """Places around known states, and those where other beliefs have a density."""
    found = []
    for log_weight, part in start.parts():
        if isinstance(part, KnownState):
            cells = covering(axes, np.asarray(part.mean())[None], 1).cells
            shares = np.full(len(cells), 1.0 / len(cells))
        else:
            cells, shares = _dense(axes, part)
        found.append(_Held(cells, np.exp(float(log_weight)) * shares))
    return _summed(np.concatenate([one.cells for one in found]), np.concatenate([one.shares for one in found]))


def _dense(axes: Sequence[Axis], belief: Belief) -> _Held:
    """Shares by the density at all places of the box."""
    shape = tuple(axis.count for axis in axes)
    # However narrow it is, the place its mean falls on is one of them.
    middle = covering(axes, np.asarray(belief.mean())[None], 1).cells
    turns = list(product(*[np.array([0, -1, 1] if a.ends == "wrapped" else [0]) * a.count * a.spacing for a in axes]))
    cells, logs = [middle], [np.full(len(middle), -np.inf)]
    for begin in range(0, int(np.prod(shape)), _BLOCK):
        flat = np.arange(begin, min(begin + _BLOCK, int(np.prod(shape))))
        at = np.unravel_index(flat, shape)
        x = np.stack([a.nodes[i] for a, i in zip(axes, at, strict=True)], axis=-1)
        found = np.max([np.asarray(belief.log_prob(x + turn)) for turn in turns], axis=0)
        kept = found > max(np.max(found), max(map(np.max, logs))) + np.log(THRESHOLD)
        cells.append(flat[kept])
        logs.append(found[kept])
    whole, log = np.concatenate(cells), np.concatenate(logs)
    top = np.max(log)
    shares = np.exp(log - top) if np.isfinite(top) else np.zeros(len(log))
    shares[: len(middle)] = np.maximum(shares[: len(middle)], THRESHOLD * 10.0) if np.isfinite(top) else 1.0
    return _Held(whole, shares / np.sum(shares))
