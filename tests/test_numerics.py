"""The vectorised exponential, against mpmath."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np

from sosmarkov.numerics import exp


def test_the_exponential_is_right_to_a_few_units_of_rounding():
    rng = np.random.default_rng(0)
    x = np.concatenate([-rng.exponential(20.0, 300), 0.3 * rng.normal(size=200), [-708.0, -1e-300, 0.0, 1.0, 699.0]])
    found = np.asarray(exp(jnp.asarray(x)))
    with mpmath.workdps(40):
        errors = [
            float(mpmath.mpf(float(y)) / mpmath.exp(mpmath.mpf(float(at))) - 1) for at, y in zip(x, found, strict=True)
        ]
    assert np.max(np.abs(errors)) < 2.5 * np.finfo(float).eps


def test_the_exponential_vanishes_where_normal_doubles_end_and_has_itself_as_derivative():
    assert np.all(np.asarray(exp(jnp.asarray([-708.1, -1e6, -jnp.inf]))) == 0.0)
    slope = jax.grad(exp)(jnp.asarray(-3.0))
    np.testing.assert_allclose(slope, np.exp(-3.0), rtol=1e-15)
