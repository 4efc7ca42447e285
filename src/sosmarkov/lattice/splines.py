"""The cardinal quadratic B-spline b, the density of a sum of three uniforms: all that lattices ask of it.

Arguments are in units of the spacing, counted from the spline's own node; its support is [-3/2, 3/2].
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

# int b(t) b(t - s) dt for s = -2, ..., 2.
TAPS = np.array([1.0, 26.0, 66.0, 26.0, 1.0]) / 120.0
# E[t^k] of the density b, k = 0, ..., 4.
MOMENTS = np.array([1.0, 0.0, 0.25, 0.0, 13.0 / 80.0])


def near(t: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n 3"]:
    """b of a place seen from the node before the nearest, the nearest and the one after: t from the nearest one.

    The three add up to one.
    """
    return np.stack([0.5 * (0.5 - t) ** 2, 0.75 - t**2, 0.5 * (0.5 + t) ** 2], axis=-1)


def near_slopes(t: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n 3"]:
    """Their derivatives by t."""
    return np.stack([t - 0.5, -2.0 * t, t + 0.5], axis=-1)


def spline(t: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
    """b(t)."""
    far = np.abs(t)
    return np.where(far < 0.5, 0.75 - far**2, np.where(far < 1.5, 0.5 * (1.5 - far) ** 2, 0.0))


def cumulative(t: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
    """int_(-inf)^t b; small values keep their digits."""
    # By the smaller of the two tails, which is a cube where there is one.
    far = np.minimum(np.abs(t), 1.5)
    tail = np.where(far < 0.5, 0.5 - 0.75 * far + far**3 / 3.0, (1.5 - far) ** 3 / 6.0)
    return np.where(t < 0, tail, 1.0 - tail)


def between(lower: Float[np.ndarray, "*n"], upper: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
    """int_lower^upper b: differences of the nearer tails, so that nothing cancels far out; zero where upper < lower."""
    flip = lower > -upper
    low, high = np.where(flip, -upper, lower), np.where(flip, -lower, upper)
    return np.where(upper > lower, cumulative(high) - cumulative(low), 0.0)


def cell_rule(order: int) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
    """Gauss-Legendre places and weights on a cell [-1/2, 1/2]: between half nodes every spline is one polynomial."""
    places, weights = np.polynomial.legendre.leggauss(order)
    return 0.5 * places, 0.5 * weights
