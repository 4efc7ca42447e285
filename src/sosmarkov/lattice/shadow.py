"""One coordinate of lattice densities: distribution functions that are piecewise cubic, and their quantiles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from sosmarkov.lattice.axis import Axis
from sosmarkov.lattice.broad import Broad

_MOST_ROUNDS = 200
_EPS = np.finfo(float).eps


class Shadow(NamedTuple):
    """K densities of one coordinate on the same axis.

    Attributes:
        axis: Its nodes.
        broad: The broad part, over this coordinate alone.
        c: Shares of the nodes, shape (k, n).
        e: Shares of the broad part, shape (k,).
    """

    axis: Axis
    broad: Broad
    c: Float[np.ndarray, "k n"]
    e: Float[np.ndarray, " k"]

    def edges(self) -> Float[np.ndarray, " m"]:
        """Ends of the cells on which densities are one polynomial each."""
        cells = self.axis.cells()
        return self.axis.origin + self.axis.spacing * (np.append(cells, cells[-1] + 1) - 0.5)

    def cdf(self, x: Float[np.ndarray, " t"]) -> Float[np.ndarray, "k t"]:
        """P(x_c <= x)."""
        open_end = np.full_like(x, -np.inf)
        return self.c @ self.axis.shares(open_end, x).T + self.e[:, None] * self.broad.share(0, open_end, x)

    def quantiles(self, shares: Float[np.ndarray, " s"]) -> Float[np.ndarray, "k s"]:
        """The x with cdf(x) = share: the cell by search, the rest by Newton's steps between ends that hold the root."""
        edges = self.edges()
        v = self.axis.around(self.c)
        masses = v @ np.array([1.0, 4.0, 1.0]) / 6.0
        open_end = np.full_like(edges, -np.inf)
        below = np.concatenate([np.zeros((len(self.c), 1)), np.cumsum(masses, axis=1)], axis=1)
        below = below + self.e[:, None] * self.broad.share(0, open_end, edges)
        found = np.empty((len(self.c), len(shares)))
        for k, (F, e) in enumerate(zip(below, self.e, strict=True)):
            cell = np.clip(np.searchsorted(F, shares, side="right") - 1, 0, len(F) - 2)
            found[k] = self._solved(v[k][cell], edges[cell], shares - F[cell], float(e))
            for side, beyond in ((0, shares < F[0]), (1, shares > F[-1])):
                if np.any(beyond):
                    found[k, beyond] = self._beyond(shares[beyond], float(e), edges[-side], side)
        return found

    def _beyond(self, shares: np.ndarray, e: float, edge: float, side: int) -> np.ndarray:
        """Where no spline reaches: by the broad part alone; the edge where only rounding leads there."""
        if e <= 0 or not np.isinf((self.axis.lower, self.axis.upper)[side]):
            return np.full(len(shares), edge)
        left = shares if side == 0 else 1.0 - shares
        found = self.broad.tail(0, left / e, upper=side == 1)
        return np.minimum(found, edge) if side == 0 else np.maximum(found, edge)

    def _solved(self, v: Float[np.ndarray, "s 3"], left: np.ndarray, wanted: np.ndarray, e: float) -> np.ndarray:
        """The place in each cell, u from 0 to 1, up to which there is so much."""
        h, v = self.axis.spacing, v.T
        low, high, u = np.zeros(len(left)), np.ones(len(left)), np.full(len(left), 0.5)
        for _ in range(_MOST_ROUNDS):
            w = 1.0 - u
            mass = v[1] * u + (v[0] - v[1]) * (1.0 - w**3) / 6.0 + (v[2] - v[1]) * u**3 / 6.0
            slope = v[1] + 0.5 * (v[0] - v[1]) * w**2 + 0.5 * (v[2] - v[1]) * u**2
            if e > 0:
                x = left + h * u
                mass = mass + e * self.broad.share(0, left, x)
                slope = slope + e * h * np.exp(self.broad.log_line(0, x))
            gap = mass - wanted
            low, high = np.where(gap < 0, u, low), np.where(gap < 0, high, u)
            with np.errstate(divide="ignore", invalid="ignore"):
                newton = u - gap / slope
            fast = (newton >= low) & (newton <= high)
            moved = np.where(gap == 0, u, np.where(fast, newton, 0.5 * (low + high)))
            step, u = np.abs(moved - u), moved
            if np.all(step <= 2.0 * _EPS):
                break
        return left + h * u
