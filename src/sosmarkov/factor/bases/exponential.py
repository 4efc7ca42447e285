"""Exponentials with a linear argument on a box: f(y) = exp(sum_c rate_c y_c)."""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.special import log_sinhc
from sosmarkov.core.stored import stored
from sosmarkov.factor.bases.family import Family, inner, levels
from sosmarkov.factor.bases.interval import IntervalBasis, interval_ends, sound_ends
from sosmarkov.factor.bases.product import log_and_sign, positive, shifted_moment


@stored("rate", "ends", check=sound_ends)
class ExponentialBasis(IntervalBasis):
    """Exponential functions on an interval per coordinate.

    Args:
        rate: Shape (n, d), any real numbers.
        lower: Lower end of the domain, one number or one per coordinate.
        upper: Upper end, above lower.
    """

    family: ClassVar[str] = "exponential"

    rate: Float[Array, "n d"]
    ends: tuple[tuple[float, ...], tuple[float, ...]] = eqx.field(static=True)

    def __init__(self, rate: ArrayLike, lower: ArrayLike, upper: ArrayLike):
        self.rate = checks.parameter(rate, "rate", (None, None))
        self.ends = interval_ends(lower, upper, self.rate.shape[1])

    def natural(self) -> Array:
        """The rates."""
        return self.rate

    def multiply(self, left: Array, right: Array) -> Array:
        """Rates add."""
        return left + right

    def log_abs_1d(self, theta: Array, y: Array) -> tuple[Array, Array]:
        """Rate times y."""
        return positive(theta * lax.broadcast_to_rank(y, theta.ndim))

    def log_integral_1d(self, theta: Array, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """Rate * middle + log width + log sinhc(rate * width / 2): smooth through rate zero."""
        assert lower is not None
        assert upper is not None
        return positive(exponential_log_integral(theta, lower, upper))

    def log_moment_1d(self, theta: Array, power: int, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """Moments about the middle of the interval, shifted."""
        assert lower is not None
        assert upper is not None
        lower, upper = (lax.broadcast_to_rank(end, theta.ndim) for end in (lower, upper))
        middle, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
        central = [tilted_moment(theta * half, j) for j in range(power + 1)]
        log_abs, sign = log_and_sign(shifted_moment(middle, half, central))
        return exponential_log_integral(theta, lower, upper) + log_abs, sign

    def sample_1d(self, key: PRNGKeyArray, theta: Array) -> Float[Array, " d"]:
        """Inverse distribution function."""
        share = jax.random.uniform(key, theta.shape)
        return sample_exponential(share, theta, *self.bounds(None, None))

    def broad(self, width: float) -> tuple[float]:
        """The constant, rate zero; a bounded domain needs no width."""
        return (0.0,)

    def rebuilt(self, theta: Array) -> tuple[ExponentialBasis, Array]:
        """Functions with these rates."""
        return eqx.tree_at(lambda b: b.rate, self, theta), jnp.zeros(theta.shape[0])

    def power(self, theta: Array, exponent: float) -> Array:
        """Rates scale."""
        return exponent * theta


def exponential_log_integral(rate: Array, lower: Array, upper: Array) -> Array:
    """log int_lower^upper exp(rate y) dy."""
    lower, upper = (lax.broadcast_to_rank(end, rate.ndim) for end in (lower, upper))
    width = upper - lower
    return rate * 0.5 * (lower + upper) + jnp.log(width) + log_sinhc(0.5 * rate * width)


def sample_exponential(share: Array, rate: Array, lower: Array, upper: Array) -> Array:
    """y with a given share of exp(rate y) on [lower, upper] below it, measured from the heavy end."""
    width = upper - lower
    z = jnp.abs(rate) * width
    flat = z < 1e-8
    safe = jnp.where(flat, 1.0, z)
    fraction = jnp.where(flat, share, -jnp.log1p(share * jnp.expm1(-safe)) / safe)
    return jnp.where(rate > 0, upper - width * fraction, lower + width * fraction)


def tilted_moment(z: Array, power: int) -> Array:
    """E[t^power] under the density proportional to exp(z t) on [-1, 1], power up to 4.

    By parts, E_p = (1 or coth z) - p E_(p-1) / z; near zero, where that cancels, a ratio of series of positive terms.
    """
    size = jnp.abs(z)
    small = size < 2.0
    safe, near = jnp.where(small, 2.0, size), jnp.where(small, size, 0.0)
    large = jnp.ones_like(safe)
    for p in range(1, power + 1):
        large = (1.0 if p % 2 == 0 else 1.0 / jnp.tanh(safe)) - p * large / safe
    series = _power_series(near, power) / _power_series(near, 0)
    return jnp.where(small, series, large) * (jnp.sign(z) if power % 2 else 1.0)


def _power_series(z: Array, power: int) -> Array:
    """int t^power exp(z t) dt on [-1, 1] for 0 <= z < 2: sum of 2 z^j / (j! (power + j + 1)), j + power even."""
    total, start = jnp.zeros_like(z), power % 2
    for j in range(start, start + 26, 2):
        total = total + 2.0 / (math.factorial(j) * (power + j + 1)) * z**j
    return total


# Of a spread start, the sharpest function: of the order of the width of what it has to resolve.
_STEEPEST_RATE = 12.0


def _local(means: np.ndarray, covariances: np.ndarray, power: int) -> ExponentialBasis:
    """The density of the family with the same mean: the rate of it, by bisection."""
    del covariances
    means = inner(means)
    low, high = np.full_like(means, -200.0), np.full_like(means, 200.0)
    for _ in range(50):
        rate = 0.5 * (low + high)
        flat = np.abs(rate) < 1e-6
        safe = np.where(flat, 1.0, rate)
        reached = np.where(flat, 0.5, -1.0 / np.expm1(-safe) - 1.0 / safe)
        low, high = np.where(reached < means, rate, low), np.where(reached < means, high, rate)
    return ExponentialBasis(0.5 * (low + high) / power, 0.0, 1.0)


def _spread(size: int, dim: int, constant: bool) -> ExponentialBasis:
    """Rates in arithmetic progression, every other function mirrored."""
    side = np.where(np.arange(size) % 2 == 0, 1.0, -1.0)[:, None]
    return ExponentialBasis(_STEEPEST_RATE * levels(size, dim, constant) * side, 0.0, 1.0)


FAMILY = Family(ExponentialBasis, "gaussian_cdf", local=_local, spread=_spread)
