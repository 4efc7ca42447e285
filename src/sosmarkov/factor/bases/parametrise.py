"""Free numbers for constrained parameters: the valid set is built in, nothing is clipped."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sosmarkov.core import checks

# Overlaps multiply up to five functions; each exponent above -1/5 keeps the sum above -1.
LEAST_EXPONENT = -0.2


def above(raw: Array, least: float) -> Array:
    """Least + softplus(raw): any real number to one above `least`."""
    return least + jax.nn.softplus(raw)


def unbounded(value: Array, least: float, name: str) -> Array:
    """The raw number that `above` maps to this value."""
    if checks.is_concrete(value) and not np.all(np.asarray(value) - least > 0):
        raise ValueError(
            f"Expected {name} above {least:g} so that products of five functions are integrable,"
            f" got a smallest of {float(np.min(value)):g}."
        )
    return _inverse_softplus(value - least)


@jax.jit
def _inverse_softplus(excess: Array) -> Array:
    return excess + jnp.log(-jnp.expm1(-excess))
