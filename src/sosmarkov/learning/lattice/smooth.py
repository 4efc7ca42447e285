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
    """

    centres: Float[np.ndarray, "m q"]
    lengths: Float[np.ndarray, " q"]
    amounts: Float[np.ndarray, "m d"]
    parameters: float

    def values(self, z: Float[np.ndarray, "n q"]) -> Float[np.ndarray, "n d"]:
        """At some places."""
        return _kernels(z / self.lengths, self.centres) @ self.amounts

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
) -> Smooth:
    """What a linear step leaves over, as the mean of a Gaussian process with its variance, on a subset of kernels."""
    scaled = z / lengths
    centres = _thinned(scaled)
    K = _kernels(scaled, centres)
    weighed = (K * weight[:, None]).T
    gram, right, own = weighed @ K, weighed @ left, _kernels(centres, centres)
    variances = np.average(left**2, axis=0, weights=weight)
    amounts, free = np.empty((len(centres), left.shape[1])), 0.0
    for c, variance in enumerate(variances):
        system = gram + (noise[c, c] / variance if variance > 0 else 1.0) * own
        # Kernels that nearly repeat each other: what rounding leaves of their difference must not decide.
        system[np.diag_indices(len(system))] += 1e-9 * np.trace(system) / len(system)
        factor = scipy.linalg.cho_factor(system)
        amounts[:, c] = scipy.linalg.cho_solve(factor, right[:, c])
        free = max(free, float(np.trace(scipy.linalg.cho_solve(factor, gram))))
    return Smooth(centres, lengths, amounts, free)


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
    squares = np.sum(scaled**2, axis=1)[:, None] + np.sum(centres**2, axis=1) - 2.0 * scaled @ centres.T
    return np.exp(-0.5 * np.maximum(squares, 0.0))
