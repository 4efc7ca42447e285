"""Special functions against mpmath and scipy."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.special

from sosmarkov import special
from sosmarkov.bases.exponential import langevin, langevin_slope

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


def test_log_sinhc_and_its_relatives_are_smooth():
    z = jnp.concatenate([jnp.linspace(-3, 3, 241), jnp.asarray([1e-9, 40.0, -300.0])])
    with mpmath.workdps(90):
        exact = [
            [float(f(mpmath.mpf(float(v)))) if v else g for v in z]
            for f, g in (
                (lambda v: mpmath.log(mpmath.sinh(v) / v), 0.0),
                (lambda v: mpmath.coth(v) - 1 / v, 0.0),
                (lambda v: 1 / v**2 - 1 / mpmath.sinh(v) ** 2, 1 / 3),
            )
        ]
    for found, expected in zip((special.log_sinhc(z), langevin(z), langevin_slope(z)), exact, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-13, atol=1e-15)
    assert np.all(np.isfinite(jax.vmap(jax.grad(special.log_sinhc))(z)))
