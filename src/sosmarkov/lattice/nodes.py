"""The nodes of a lattice: which of Z^d there are, what a state sees of them, and how splines meet gates.

Node i of the list has the gate w_i, the sum of the splines B_j of all places j of Z^d given to it: itself, and those
places that are no nodes and lie nearest to it. Gates are non-negative and add up to one everywhere. Its density is
D_i = B_i over the volume of a cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int
from scipy.ndimage import distance_transform_edt

from sosmarkov.core.stored import require, stored
from sosmarkov.lattice import splines
from sosmarkov.lattice.axis import Axis

# Places of the box around all nodes, for which a table says whose they are.
MOST_PLACES = 2**28


class Level(NamedTuple):
    """What one axis does to coefficients.

    Attributes:
        at: The place of each coefficient on the axis, shape (k,).
        to: Where it goes by each of the five taps, shape (5, k).
        size: How many there are then.
    """

    at: Int[np.ndarray, " k"]
    to: Int[np.ndarray, "5 k"]
    size: int


@stored("axes", "cells", make=lambda fields: Nodes(**fields))
class Nodes:
    """Some of the places of Z^d.

    Args:
        axes: One a coordinate.
        cells: Places of the nodes in the box of all axes, flat, row by row, shape (n,); sorted on the way in.

    Attributes:
        places: Their indices on each axis, shape (n, d).
        points: Where they are, shape (n, d).
    """

    axes: tuple[Axis, ...]
    cells: Int[np.ndarray, " n"]

    def __init__(self, axes: Sequence[Axis], cells: np.ndarray):
        self.axes, self.cells = tuple(axes), np.unique(np.asarray(cells, dtype=np.int64))
        self.shape = tuple(axis.count for axis in self.axes)
        size = int(np.prod(self.shape, dtype=float))
        require(0 < size <= MOST_PLACES, f"a box of at most {MOST_PLACES:,} places around the nodes, got {size:,}")
        require(len(self.cells) > 0 and 0 <= self.cells[0] and self.cells[-1] < size, "nodes within their box")
        self.places = np.stack(np.unravel_index(self.cells, self.shape), axis=-1)
        self.points = np.stack([axis.nodes[at] for axis, at in zip(self.axes, self.places.T, strict=True)], axis=-1)

    def __len__(self) -> int:
        """How many."""
        return len(self.cells)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same places."""
        if self is other or not isinstance(other, Nodes):
            return self is other
        return self.axes == other.axes and np.array_equal(self.cells, other.cells)

    def __hash__(self) -> int:
        """By its axes and how many there are."""
        return hash((self.axes, len(self.cells)))

    @property
    def dim(self) -> int:
        """Coordinates."""
        return len(self.axes)

    @property
    def spacing(self) -> Float[np.ndarray, " d"]:
        """Of each axis."""
        return np.array([axis.spacing for axis in self.axes])

    @property
    def volume(self) -> float:
        """Of a cell."""
        return float(np.prod(self.spacing))

    @cached_property
    def member(self) -> Int[np.ndarray, " box"]:
        """Of each place in the box, which node it is; -1 where it is none."""
        found = np.full(int(np.prod(self.shape)), -1, dtype=np.int32)
        found[self.cells] = np.arange(len(self.cells))
        return found

    @cached_property
    def owner(self) -> Int[np.ndarray, " box"]:
        """Of each place in the box, the nearest node, in spacings."""
        if len(self.cells) == len(self.member):
            return self.member
        there = (self.member >= 0).reshape(self.shape)
        # Once round to either side, so that the nearest one may lie across the cut of a circle.
        turns = [(axis.count, axis.count) if axis.ends == "wrapped" else (0, 0) for axis in self.axes]
        found: Any = distance_transform_edt(~np.pad(there, turns, mode="wrap"), return_indices=True)
        nearest = found[1]
        window = tuple(slice(turn, turn + count) for (turn, _), count in zip(turns, self.shape, strict=True))
        at = [
            (index[window] - turn) % count for index, (turn, _), count in zip(nearest, turns, self.shape, strict=True)
        ]
        return self.member[np.ravel_multi_index(at, self.shape).reshape(-1)]

    # --- what a state sees ------------------------------------------------------------------------

    def gates(self, x: Float[np.ndarray, "n d"]) -> tuple[Int[np.ndarray, "n k"], Float[np.ndarray, "n k"]]:
        """The gates that are not zero at states: nodes and values, which add up to one in each row."""
        places, values = self._seen(x)
        # Beyond an open end the outermost places stand for all further ones.
        places = [np.clip(at, 0, axis.count - 1) for at, axis in zip(places, self.axes, strict=True)]
        return self.owner[self._flat(places)], values

    def densities(
        self, x: Float[np.ndarray, "n d"], slope: int | None = None
    ) -> tuple[Int[np.ndarray, "n k"], Float[np.ndarray, "n k"]]:
        """The D_i that are not zero at states: nodes and values; zero, at node 0, for places that are no nodes.

        With `slope`, their derivatives by that coordinate in the place of their values.
        """
        places, values = self._seen(x, slope)
        inside = np.ones(values.shape, dtype=bool)
        for at, axis in zip(places, self.axes, strict=True):
            inside &= (at >= 0) & (at < axis.count)
        flat = self._flat([np.clip(at, 0, axis.count - 1) for at, axis in zip(places, self.axes, strict=True)])
        found = self.member[flat]
        inside &= found >= 0
        allowed = np.all([axis.allowed(x[:, c]) for c, axis in enumerate(self.axes)], axis=0)
        inside &= allowed[:, None]
        return np.where(inside, found, 0), np.where(inside, values / self.volume, 0.0)

    def _seen(self, x: np.ndarray, slope: int | None = None) -> tuple[list[np.ndarray], np.ndarray]:
        """Places on each axis and values of the products of splines at states, shape (n, 3^d) each."""
        count, dim = len(x), self.dim
        places, values = [], np.ones((count, *[1] * dim))
        for c, axis in enumerate(self.axes):
            at, value = axis.seen(x[:, c], slopes=c == slope)
            shape = (count, *[3 if c == m else 1 for m in range(dim)])
            places.append(np.broadcast_to(at.reshape(shape), (count, *[3] * dim)).reshape(count, 3**dim))
            values = values * value.reshape(shape)
        return places, values.reshape(count, 3**dim)

    def _flat(self, places: Sequence[np.ndarray]) -> np.ndarray:
        return np.ravel_multi_index(list(places), self.shape)

    # --- how splines meet gates -------------------------------------------------------------------

    @cached_property
    def levels(self) -> list[Level]:
        """Where the coefficients go, one axis after the other: from node j to the places j - 2, ..., j + 2.

        The last axis gives places that are no nodes to their owners.
        """
        found, now = [], self.cells
        for c, axis in enumerate(self.axes):
            at = list(np.unravel_index(now, self.shape))
            to = np.clip(axis.fold(at[c] + np.arange(-2, 3)[:, None]), 0, axis.count - 1)
            places = self._flat([*(np.broadcast_to(a, to.shape) for a in at[:c]), to,
                                 *(np.broadcast_to(a, to.shape) for a in at[c + 1 :])])  # fmt: skip
            if c + 1 < self.dim:
                now, index = np.unique(places, return_inverse=True)
                found.append(Level(at[c], index.reshape(places.shape), len(now)))
            else:
                found.append(Level(at[c], self.owner[places], len(self)))
        return found

    def meet(self, tables: Sequence[Float[np.ndarray, "_ 5"]] | None = None) -> list[sp.csr_array]:
        """int w_i D_j, or int w_i D_j l for a product l of functions of one coordinate each, as a product of bands.

        The matrices are applied in turn, the first one first.

        Args:
            tables: For each coordinate, int B_(j + s) D_j l of its nodes j and s = -2, ..., 2; None where l is one.
        """
        found = []
        for level, table in zip(self.levels, self._tables(tables), strict=True):
            columns = np.tile(np.arange(len(level.at)), 5)
            values = table[level.at].T.reshape(-1)
            shape = (level.size, len(level.at))
            found.append(sp.coo_array((values, (level.to.reshape(-1), columns)), shape).tocsr())
        return found

    def met(self, held: Float[np.ndarray, " n"], tables: Sequence[Float[np.ndarray, "_ 5"]]) -> Float[np.ndarray, " n"]:
        """The same times the shares of nodes, without the matrices: for tables that serve once."""
        for level, table in zip(self.levels, tables, strict=True):
            held = np.bincount(level.to.reshape(-1), (table[level.at].T * held).reshape(-1), level.size)
        return held

    def met_back(
        self, worth: Float[np.ndarray, " n"], tables: Sequence[Float[np.ndarray, "_ 5"]]
    ) -> Float[np.ndarray, " n"]:
        """The adjoint: int D_j l sum_i w_i worth_i."""
        for level, table in zip(self.levels[::-1], tables[::-1], strict=True):
            worth = np.einsum("sk,ks->k", worth[level.to], table[level.at])
        return worth

    def gathered(self, tables: Sequence[Float[np.ndarray, " _"]]) -> Float[np.ndarray, " n"]:
        """What gates see of a product, from what the splines of each axis see of its factors."""
        product = tables[0]
        for table in tables[1:]:
            product = np.multiply.outer(product, table)
        return np.bincount(self.owner, product.reshape(-1), len(self))

    def _tables(self, tables: Sequence[np.ndarray] | None) -> Sequence[np.ndarray]:
        return [np.tile(splines.TAPS, (axis.count, 1)) for axis in self.axes] if tables is None else tables

    # --- other lattices ---------------------------------------------------------------------------

    def onto(self, kept: Sequence[int]) -> tuple[Nodes, Int[np.ndarray, " n"]]:
        """The nodes' shadows on some coordinates, in the order given, and which of them each node falls on."""
        axes = [self.axes[c] for c in kept]
        flat = np.ravel_multi_index([self.places[:, c] for c in kept], [axis.count for axis in axes])
        cells, index = np.unique(flat, return_inverse=True)
        return Nodes(axes, cells), index

    def widened(self, rings: int = 1) -> Nodes:
        """With all neighbours of nodes as well, as far as the box goes."""
        cells = self.cells
        for _ in range(rings):
            at = np.stack(np.unravel_index(cells, self.shape), axis=-1)
            found = [cells]
            for step in product((-1, 0, 1), repeat=self.dim):
                moved = [axis.fold(at[:, c] + step[c]) for c, axis in enumerate(self.axes)]
                inside = np.all([(m >= 0) & (m < axis.count) for m, axis in zip(moved, self.axes, strict=True)], axis=0)
                found.append(self._flat([m[inside] for m in moved]))
            cells = np.unique(np.concatenate(found))
        return Nodes(self.axes, cells)


def covering(axes: Sequence[Axis], points: Float[np.ndarray, "n d"], rings: int) -> Nodes:
    """The nodes nearest to some points, and so many rings of neighbours around them."""
    shape = [axis.count for axis in axes]
    at = []
    for c, axis in enumerate(axes):
        u = np.rint((axis.inside(points[:, c]) - axis.origin) / axis.spacing).astype(np.int64)
        at.append(np.clip(axis.fold(u), 0, axis.count - 1))
    return Nodes(axes, np.asarray(np.ravel_multi_index(at, shape))).widened(rings)
