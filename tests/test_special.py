"""Special functions against mpmath and scipy."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.special

from sosmarkov.core import numerics, special
from sosmarkov.factor.bases.exponential import tilted_moment
from sosmarkov.factor.bases.fourier import cosine_moment, sine_moment

ARGUMENTS = [0.2, 0.5, 1.0, 1.7, 6.3, 8.0, 33.3, 250.0, 4000.0]


def test_log_beta_to_the_last_digits():
    with mpmath.workdps(50):
        for a in ARGUMENTS:
            for b in ARGUMENTS:
                exact = float(mpmath.log(mpmath.beta(a, b)))
                assert abs(float(special.log_beta(jnp.asarray(a), jnp.asarray(b))) - exact) < 2e-14 + 4e-15 * abs(exact)


def test_log_beta_gradient_is_a_difference_of_digammas():
    a, b = (jnp.asarray(v) for v in np.meshgrid(ARGUMENTS, ARGUMENTS))
    by_a, by_b = jax.grad(lambda a, b: jnp.sum(special.log_beta(a, b)), argnums=(0, 1))(a, b)
    digamma = scipy.special.digamma
    np.testing.assert_allclose(by_a, digamma(a) - digamma(a + b), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(by_b, digamma(b) - digamma(a + b), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (-np.inf, np.inf),
        (-1.0, 2.0),
        (5.0, 6.0),
        (-31.0, -30.0),
        (30.0, np.inf),
        (-np.inf, -12.0),
        (0.1, 0.2),
    ],
)
def test_normal_probability_between(lower, upper):
    with mpmath.workdps(260):
        exact = float(mpmath.log(mpmath.ncdf(upper) - mpmath.ncdf(lower)))
    found = float(special.log_normal_between(jnp.asarray(lower), jnp.asarray(upper)))
    assert abs(found - exact) < 1e-13 * max(1.0, abs(exact)) * 10


@pytest.mark.parametrize(("a", "b"), [(1.2, 3.4), (20.0, 5.0), (0.8, 0.9)])
@pytest.mark.parametrize(("lower", "upper"), [(0.0, 1.0), (0.2, 0.3), (0.9, 1.0), (0.97, 0.99), (0.001, 0.002)])
def test_beta_probability_between(a, b, lower, upper):
    with mpmath.workdps(40):
        exact = float(mpmath.log(mpmath.betainc(a, b, lower, upper, regularized=True)))
    found = float(special.log_beta_between(*(jnp.asarray(v) for v in (a, b, lower, upper))))
    np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-11)


LINE = jnp.concatenate([jnp.linspace(-4, 4, 81), jnp.asarray([1e-9, 1.9999, 40.0, -300.0])])


def test_log_sinhc_is_smooth():
    with mpmath.workdps(90):
        exact = [
            float(mpmath.log(mpmath.sinh(mpmath.mpf(float(v))) / mpmath.mpf(float(v)))) if v else 0.0 for v in LINE
        ]
    np.testing.assert_allclose(special.log_sinhc(LINE), exact, rtol=2e-13, atol=1e-15)
    assert np.all(np.isfinite(jax.vmap(jax.grad(special.log_sinhc))(LINE)))


@pytest.mark.parametrize("power", range(5))
def test_moments_of_exponentials_and_cosines_on_an_interval(power):
    even = power % 2 == 0
    waves = (cosine_moment if even else sine_moment)(LINE, power)
    for z, tilted, wave in zip(LINE, tilted_moment(LINE, power), waves, strict=True):
        with mpmath.workdps(150):
            z = mpmath.mpf(float(z))
            # In antiderivatives (upwards recursions at 150 digits), so that no quadrature is needed.
            whole, part = (_antiderivative(p, z, 1) - _antiderivative(p, z, -1) for p in (0, power))
            over = _antiderivative(power, 1j * z, 1) - _antiderivative(power, 1j * z, 0)
            exact = float((part / whole).real), float(over.real if even else over.imag)
        np.testing.assert_allclose((tilted, wave), exact, rtol=2e-13, atol=1e-14)


def _antiderivative(power, z, t):
    """Int t^power exp(z t) dt without a constant."""
    if z == 0:
        return mpmath.mpf(t) ** (power + 1) / (power + 1)
    total = mpmath.mpf(0)
    for j in range(power + 1):
        rest = power - j
        total += (-1) ** j * mpmath.factorial(power) / mpmath.factorial(rest) * mpmath.mpf(t) ** rest / z ** (j + 1)
    return total * mpmath.exp(z * t)


def test_the_exponential_of_tables_is_that_of_numpy():
    x = np.concatenate([np.linspace(-708.0, 700.0, 20_001), np.linspace(-1.0, 1.0, 2_001), [-np.inf, -1e300, -709.0]])
    with np.errstate(under="ignore"):
        expected = np.where(x < -708.0, 0.0, np.exp(x))
    # Compiled: a compiler that reassociates sums would undo the rounding.
    np.testing.assert_allclose(jax.jit(numerics.exp)(jnp.asarray(x)), expected, rtol=5e-16)
    slopes = jax.jit(jax.vmap(jax.grad(numerics.exp)))(jnp.asarray(x))
    np.testing.assert_allclose(slopes, expected, rtol=5e-16)
