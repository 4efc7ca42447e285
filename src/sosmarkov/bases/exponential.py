"""Exponentials with a linear argument on a box: f(y) = exp(sum_c rate_c y_c)."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov import checks
from sosmarkov.bases.interval import IntervalBasis, interval_ends
from sosmarkov.bases.parametrise import with_row
from sosmarkov.bases.product import log_and_sign, positive
from sosmarkov.checks import ArrayLike
from sosmarkov.special import log_sinhc


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

    @property
    def size(self) -> int:
        """Number of functions n."""
        return self.rate.shape[0]

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return self.rate.shape[1]

    def natural(self) -> Array:
        """The rates."""
        return self.rate

    def multiply(self, left: Array, right: Array) -> Array:
        """Rates add."""
        return left + right

    def log_abs_1d(self, theta: Array, y: Array) -> tuple[Array, Array]:
        """Rate times y."""
        return positive(theta * y)

    def log_integral_1d(self, theta: Array, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """Rate * middle + log width + log sinhc(rate * width / 2): smooth through rate zero."""
        assert lower is not None
        assert upper is not None
        return positive(exponential_log_integral(theta, lower, upper))

    def log_moment_1d(self, theta: Array, power: int) -> tuple[Array, Array]:
        """Moments about the middle from derivatives of log sinhc, then shifted."""
        lower, upper = self.bounds(None, None)
        middle, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
        z = theta * half
        first = half * langevin(z)
        expected = middle + first
        if power == 2:
            expected = expected**2 + half**2 * langevin_slope(z)
        log_abs, sign = log_and_sign(expected)
        return exponential_log_integral(theta, lower, upper) + log_abs, sign

    def sample_1d(self, key: PRNGKeyArray, theta: Array) -> Float[Array, " d"]:
        """Inverse distribution function."""
        share = jax.random.uniform(key, theta.shape)
        return sample_exponential(share, theta, *self.bounds(None, None))

    def with_broad(self, width: float) -> ExponentialBasis:
        """And the constant, rate zero; a bounded domain needs no width."""
        del width
        return eqx.tree_at(lambda b: b.rate, self, with_row(self.rate, 0.0))

    def restrict(self, kept: tuple[int, ...]) -> ExponentialBasis:
        """The functions on some coordinates."""
        where = jnp.asarray(kept)
        return ExponentialBasis(self.rate[:, where], *([end[c] for c in kept] for end in self.ends))


def exponential_log_integral(rate: Array, lower: Array, upper: Array) -> Array:
    """Log int_lower^upper exp(rate y) dy."""
    width = upper - lower
    return rate * 0.5 * (lower + upper) + jnp.log(width) + log_sinhc(0.5 * rate * width)


def sample_exponential(share: Array, rate: Array, lower: Array, upper: Array) -> Array:
    """Y with a given share of exp(rate y) on [lower, upper] below it, measured from the heavy end."""
    width = upper - lower
    z = jnp.abs(rate) * width
    flat = z < 1e-8
    safe = jnp.where(flat, 1.0, z)
    fraction = jnp.where(flat, share, -jnp.log1p(share * jnp.expm1(-safe)) / safe)
    return jnp.where(rate > 0, upper - width * fraction, lower + width * fraction)


def langevin(z: Array) -> Array:
    """Coth z - 1/z, the mean of exp(z t) on [-1, 1]."""
    small = jnp.abs(z) < 0.5
    safe = jnp.where(small, 1.0, z)
    square = jnp.where(small, z, 0.0) ** 2
    series = jnp.zeros_like(square)
    for coefficient in (_LANGEVIN[k] for k in range(len(_LANGEVIN) - 1, -1, -1)):
        series = series * square + coefficient
    return jnp.where(small, z * series, 1.0 / jnp.tanh(safe) - 1.0 / safe)


def langevin_slope(z: Array) -> Array:
    """The derivative 1/z^2 - 1/sinh(z)^2, the variance of exp(z t) on [-1, 1]."""
    small = jnp.abs(z) < 0.5
    safe = jnp.where(small, 1.0, jnp.abs(z))
    square = jnp.where(small, z, 0.0) ** 2
    series = jnp.zeros_like(square)
    for k in range(len(_LANGEVIN) - 1, -1, -1):
        series = series * square + (2 * k + 1) * _LANGEVIN[k]
    decay = jnp.exp(-2.0 * safe)
    return jnp.where(small, series, 1.0 / safe**2 - 4.0 * decay / (1.0 - decay) ** 2)


# coth z - 1/z = sum_k c_k z^(2k + 1), c_k = 2^(2k + 2) B_(2k + 2) / (2k + 2)!.
_LANGEVIN = (
    1 / 3,
    -1 / 45,
    2 / 945,
    -1 / 4725,
    2 / 93555,
    -1382 / 638512875,
    4 / 18243225,
    -3617 / 162820783125,
    87734 / 38979295480125,
    -349222 / 1531329465290625,
    310732 / 13447856940643125,
)
