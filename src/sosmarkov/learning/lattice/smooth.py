"""A smooth correction of the linear step: ridge regression on kernels at some states, which fades where data end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float

# Kernels at most; states that are looked through for where they sit.
_MOST, _CANDIDATES = 400, 8000


class Smooth(NamedTuple):
    """sum_m k(z, z_m) a_m with k(z, z') = exp(-|(z - z') / length|^2 / 2).

    Attributes:
        centres: z_m, in units of the lengths, shape (m, q).
        lengths: Shape (q,).
        amounts: a_m, shape (m, d).
        parameters: How many numbers were free, in effect.
        roots: For each coordinate R with noise |R k(z)|^2 the variance of what is said at z, shape (d, m, m).
        prior: Root of the kernels' own table's inverse, shape (m, m), and what the linear step leaves over, shape (d,).
    """

    centres: Float[np.ndarray, "m q"]
    lengths: Float[np.ndarray, " q"]
    amounts: Float[np.ndarray, "m d"]
    parameters: float
    roots: Float[np.ndarray, "d m m"]
    prior: tuple[Float[np.ndarray, "m m"], Float[np.ndarray, " d"]]

    def values(self, z: Float[np.ndarray, "n q"]) -> Float[np.ndarray, "n d"]:
        """At some places."""
        return _kernels(z / self.lengths, self.centres) @ self.amounts

    def doubts(self, z: Float[np.ndarray, "n q"]) -> Float[np.ndarray, "n d"]:
        """Variances of the values: what data leave open where they are few; far off all that the linear step leaves."""
        values = _kernels(z / self.lengths, self.centres)
        root, variances = self.prior
        # One minus what the kernels explain; rounding may leave less than nothing of it.
        unexplained = np.maximum(1.0 - np.sum((values @ root.T) ** 2, axis=1), 0.0)
        open_ = np.stack([np.sum((values @ one.T) ** 2, axis=1) for one in self.roots], axis=1)
        return open_ + unexplained[:, None] * variances

    def slopes(self, z: Float[np.ndarray, "n q"]) -> Float[np.ndarray, "n d q"]:
        """Its derivatives there."""
        scaled = z / self.lengths
        values = _kernels(scaled, self.centres)
        found = np.empty((len(z), self.amounts.shape[1], z.shape[1]))
        for c in range(z.shape[1]):
            away = (self.centres[:, c] - scaled[:, [c]]) / self.lengths[c]
            found[:, :, c] = (values * away) @ self.amounts
        return found


def smooth(
    z: Float[np.ndarray, "n q"],
    left: Float[np.ndarray, "n d"],
    weight: Float[np.ndarray, " n"],
    noise: Float[np.ndarray, "d d"],
    lengths: Float[np.ndarray, " q"],
    amplitude: float = 1.0,
) -> Smooth:
    """What a linear step leaves over: a Gaussian process of `amplitude` times its variance, on a subset of kernels."""
    scaled = z / lengths
    centres = _thinned(scaled)
    K = _kernels(scaled, centres)
    weighed = (K * weight[:, None]).T
    gram, right, own = weighed @ K, weighed @ left, _kernels(centres, centres)
    variances = np.average(left**2, axis=0, weights=weight) * amplitude
    amounts, free, roots = np.empty((len(centres), left.shape[1])), 0.0, []
    for c, variance in enumerate(variances):
        system = gram + (noise[c, c] / variance if variance > 0 else 1.0) * own
        root = _inverse_root(system)
        amounts[:, c] = root.T @ (root @ right[:, c])
        free = max(free, float(np.sum((root @ gram) * root)))
        roots.append(np.sqrt(noise[c, c]) * root)
    return Smooth(centres, lengths, amounts, free, np.array(roots), (_inverse_root(own), variances / amplitude))


def _inverse_root(table: np.ndarray) -> np.ndarray:
    """R with R^T R the inverse of a table of kernels.

    Kernels that nearly repeat each other: what rounding leaves of their difference must not decide.
    """
    table = table + 1e-9 * np.trace(table) / len(table) * np.eye(len(table))
    return scipy.linalg.solve_triangular(np.linalg.cholesky(table), np.eye(len(table)), lower=True)


def _thinned(scaled: np.ndarray) -> np.ndarray:
    """States some part of a length apart, and not too many of them."""
    some = scaled[:: max(1, len(scaled) // _CANDIDATES)]
    for apart in (0.5, 0.6, 0.75, 0.9, 1.1, 1.4, 1.8, 2.5, 4.0):
        # One for each cell of a grid, which is quick and spreads them evenly.
        _, first = np.unique(np.floor(some / apart).astype(np.int64), axis=0, return_index=True)
        if len(first) <= _MOST:
            break
    return some[np.sort(first)[:_MOST]]


def _kernels(scaled: np.ndarray, centres: np.ndarray) -> np.ndarray:
    # From their middle, so that far from zero no digits of differences are lost.
    middle = np.mean(centres, axis=0)
    scaled, centres = scaled - middle, centres - middle
    squares = np.sum(scaled**2, axis=1)[:, None] + np.sum(centres**2, axis=1) - 2.0 * scaled @ centres.T
    return np.exp(-0.5 * np.maximum(squares, 0.0))
