"""Options of a program are refused inside of another one: functions that have them must work there all the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sosmarkov.core.programs import jit_wide

X = jnp.linspace(-2.0, 2.0, 5)


@jit_wide
def total(x: jax.Array, power: int = 2) -> jax.Array:
    return jnp.sum(jnp.exp(-(x**power)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: total(X),
        lambda: total(X, power=2),
        lambda: jax.jit(total)(X),
        # Nothing that is passed is traced here: the program around it is.
        lambda: jax.jit(lambda: total(X))(),
        lambda: jax.vmap(total)(X[None])[0],
        lambda: jax.jit(jax.vmap(total))(X[None])[0],
        lambda: jax.lax.scan(lambda carry, x: (carry + total(x), None), 0.0, X[:, None])[0],
    ],
)
def test_the_same_value_wherever_it_is_called(call):
    np.testing.assert_allclose(call(), np.sum(np.exp(-(np.asarray(X) ** 2))), rtol=1e-14)


def test_gradients_inside_and_outside_of_a_program():
    expected = -2.0 * np.asarray(X) * np.exp(-(np.asarray(X) ** 2))
    for gradient in (jax.grad(total), jax.jit(jax.grad(total))):
        np.testing.assert_allclose(gradient(X), expected, rtol=1e-13)
