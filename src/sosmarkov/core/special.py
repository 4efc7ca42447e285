"""Special functions the basis families integrate with, accurate to a few units in the last place."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import betainc, log_ndtr, ndtr

# Coefficients of the Stirling series of log Gamma: sum_k c_k z^(1 - 2k), good to 1e-15 for z >= 8.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
# z (z + 1) ... (z + N - 1) = prod_i (t + c_i) with t = z (z + N - 1), c_i = i (N - 1 - i).
_SHIFT = 8


def log_one_minus(t: Array) -> Array:
    """log(1 - t) for 0 <= t < 1 to full precision (XLA's own log1p is good to 3e-14 only on CPUs).

    Kahan's formula: what rounding did to u = 1 - t is undone by t / (1 - u).
    """
    u = 1.0 - t
    exact = u == 1.0
    return jnp.where(exact, -t, jnp.log(u) * t / jnp.where(exact, 1.0, 1.0 - u))


def _rising(z: Array, count: int) -> tuple[Array, Array]:
    """The product z (z + 1) ... (z + count - 1) and its logarithmic derivative's numerator."""
    t = z * (z + (count - 1))
    value, slope = t, jnp.ones_like(t)
    for i in range(1, count // 2):
        factor = t + i * (count - 1 - i)
        value, slope = value * factor, slope * factor + value
    return value, slope * (2.0 * z + (count - 1))


def _stirling(inverse: Array) -> tuple[Array, Array]:
    """The tail of Stirling's series at z = 1 / inverse and its derivative in z."""
    square = inverse * inverse
    tail, slope = jnp.zeros_like(inverse), jnp.zeros_like(inverse)
    for k in range(len(_STIRLING) - 1, -1, -1):
        tail = tail * square + _STIRLING[k]
        slope = slope * square - (2 * k + 1) * _STIRLING[k]
    return tail * inverse, slope * square


def _log_beta_and_slopes(a: Array, b: Array) -> tuple[Array, Array, Array]:
    rising_a, slope_a = _rising(a, _SHIFT)
    rising_b, slope_b = _rising(b, _SHIFT)
    rising_c, slope_c = _rising(a + b, 2 * _SHIFT)
    a, b = a + _SHIFT, b + _SHIFT
    c = a + b
    # Divisions are what this costs: each argument is inverted once.
    inverse_a, inverse_b, inverse_c = 1.0 / a, 1.0 / b, 1.0 / c
    tail_a, tail_slope_a = _stirling(inverse_a)
    tail_b, tail_slope_b = _stirling(inverse_b)
    tail_c, tail_slope_c = _stirling(inverse_c)
    # log(a / c) and log(b / c): the share near one by log(1 - less), which keeps its digits.
    less = jnp.minimum(a, b) / c
    log_less, log_more = jnp.log(less), log_one_minus(less)
    log_share_a, log_share_b = jnp.where(a < b, log_less, log_more), jnp.where(a < b, log_more, log_less)
    value = (
        (a - 0.5) * log_share_a
        + (b - 0.5) * log_share_b
        + jnp.log(rising_c / (rising_a * rising_b) * jnp.sqrt(2.0 * jnp.pi * inverse_c))
        + (tail_a + tail_b - tail_c)
    )
    # digamma(z) = log z - 1 / (2 z) + tail'(z), shifted down by the rising products.
    below = slope_c / rising_c + 0.5 * inverse_c - tail_slope_c
    by_a = log_share_a - 0.5 * inverse_a + tail_slope_a - slope_a / rising_a + below
    by_b = log_share_b - 0.5 * inverse_b + tail_slope_b - slope_b / rising_b + below
    return value, by_a, by_b


@jax.custom_jvp
def log_beta(a: Array, b: Array) -> Array:
    """log B(a, b) for a, b > 0.

    Both arguments are shifted up by eight, where Stirling's series is exact to rounding; the shift
    is a ratio of products, one logarithm. Differences of log Gamma lose digits at large arguments,
    this does not, and it is cheaper.
    """
    return _log_beta_and_slopes(a, b)[0]


@log_beta.defjvp
def _log_beta_jvp(primals, tangents):
    value, by_a, by_b = _log_beta_and_slopes(*primals)
    return value, by_a * tangents[0] + by_b * tangents[1]


def log_beta_between(a: Array, b: Array, lower: Array, upper: Array) -> Array:
    """Log of the share of a Beta(a, b) distribution between lower and upper, from the nearer tail."""
    above = lower > a / (a + b)
    a, b = jnp.where(above, b, a), jnp.where(above, a, b)
    low = jnp.where(above, 1.0 - upper, lower)
    high = jnp.where(above, 1.0 - lower, upper)
    return jnp.log(betainc(a, b, high) - betainc(a, b, low))


def log_normal_between(lower: Array | None, upper: Array) -> Array:
    """log(Phi(upper) - Phi(lower)), infinite bounds allowed, without cancellation in either tail.

    No lower bound at all is cheaper than an infinite one.
    """
    if lower is None:
        return log_ndtr(upper)
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
