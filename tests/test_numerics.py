"""The vectorised exponentials, against mpmath."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from sosmarkov.core.numerics import exp, exp2


@pytest.mark.parametrize(("function", "base", "least"), [(exp, mpmath.e, -708.0), (exp2, 2, -1021.0)])
def test_exponentials_are_right_to_a_few_units_of_rounding(function, base, least):
    rng = np.random.default_rng(0)
    x = np.concatenate([-rng.exponential(20.0, 300), 0.3 * rng.normal(size=200), [least, -1e-300, 0.0, 1.0, 699.0]])
    found = np.asarray(function(jnp.asarray(x)))
    with mpmath.workdps(40):
        expected = [mpmath.mpf(base) ** mpmath.mpf(float(at)) for at in x]
        errors = [float(mpmath.mpf(float(y)) / value - 1) for y, value in zip(found, expected, strict=True)]
    assert np.max(np.abs(errors)) < 2.5 * np.finfo(float).eps


@pytest.mark.parametrize(("function", "base", "least"), [(exp, np.e, -708.1), (exp2, 2.0, -1021.1)])
def test_exponentials_vanish_where_normal_doubles_end_and_have_their_derivative(function, base, least):
    assert np.all(np.asarray(function(jnp.asarray([least, -1e6, -jnp.inf]))) == 0.0)
    slope = jax.grad(function)(jnp.asarray(-3.0))
    np.testing.assert_allclose(slope, np.log(base) * base**-3.0, rtol=1e-15)
