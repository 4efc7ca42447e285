"""Special functions the basis families integrate with, accurate to a few units in the last place."""

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import betainc, log_ndtr, ndtr

_SHIFT = 8
# Coefficients of the Stirling series of log Gamma: sum_k c_k z^(1 - 2k), good to 1e-15 for z >= 8.
_STIRLING = (
    1 / 12,
    -1 / 360,
    1 / 1260,
    -1 / 1680,
    1 / 1188,
    -691 / 360360,
    1 / 156,
)


def _stirling_tail(z: Array) -> Array:
    inverse = 1.0 / z
    square = inverse * inverse
    total = jnp.zeros_like(z)
    for coefficient in reversed(_STIRLING):
        total = total * square + coefficient
    return total * inverse


def log_beta(a: Array, b: Array) -> Array:
    """log B(a, b) for a, b > 0.

    Both arguments are shifted up by eight, where Stirling's series is exact to rounding; the shift
    is a ratio of products, one logarithm. Differences of log Gamma lose digits at large arguments,
    this does not, and its derivative needs no digamma.
    """
    ratio = jnp.ones_like(a * b)
    for i in range(_SHIFT):
        ratio = ratio * ((a + b + 2 * i) / (a + i)) * ((a + b + 2 * i + 1) / (b + i))
    a, b = a + _SHIFT, b + _SHIFT
    total = a + b
    main = (a - 0.5) * -jnp.log1p(b / a) + (b - 0.5) * -jnp.log1p(a / b) - 0.5 * jnp.log(total)
    tails = _stirling_tail(a) + _stirling_tail(b) - _stirling_tail(total)
    return main + 0.5 * jnp.log(2 * jnp.pi) + tails + jnp.log(ratio)


def log_beta_between(a: Array, b: Array, lower: Array, upper: Array) -> Array:
    """log of the share of a Beta(a, b) distribution between lower and upper, from the nearer tail."""
    above = lower > a / (a + b)
    a, b = jnp.where(above, b, a), jnp.where(above, a, b)
    low = jnp.where(above, 1.0 - upper, lower)
    high = jnp.where(above, 1.0 - lower, upper)
    return jnp.log(betainc(a, b, high) - betainc(a, b, low))


def log_normal_between(lower: Array, upper: Array) -> Array:
    """log(Phi(upper) - Phi(lower)), infinite bounds allowed, without cancellation in either tail."""
    flip = lower > 0
    low, high = jnp.where(flip, -upper, lower), jnp.where(flip, -lower, upper)
    in_tail = high < -1.0
    # Each branch sees harmless arguments where the other is taken, so that no gradient is NaN.
    high_tail, low_tail = jnp.where(in_tail, high, -1.0), jnp.where(in_tail, low, -2.0)
    log_high = log_ndtr(high_tail)
    tail = log_high + jnp.log(-jnp.expm1(log_ndtr(low_tail) - log_high))
    centre = jnp.log(ndtr(jnp.where(in_tail, 0.0, high)) - ndtr(jnp.where(in_tail, -1.0, low)))
    return jnp.where(in_tail, tail, centre)


def log_sinhc(z: Array) -> Array:
    """log(sinh(z) / z), even and smooth through zero."""
    size = jnp.abs(z)
    small = size < 0.3
    safe = jnp.where(small, 1.0, size)
    large = safe + jnp.log(-jnp.expm1(-2.0 * safe)) - jnp.log(2.0 * safe)
    square = jnp.where(small, z * z, 0.0)
    series = jnp.zeros_like(square)
    for denominator in (272.0, 210.0, 156.0, 110.0, 72.0, 42.0, 20.0, 6.0):
        series = square / denominator * (1.0 + series)
    return jnp.where(small, jnp.log1p(series), large)
