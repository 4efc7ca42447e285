"""E[x' | x] for many known states at once."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.contracts.transition import AbstractTransition
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.factor.transition import Transition
from sosmarkov.spaces.transforms import to_model

# States whose coefficients are held at once.
_BLOCK = 256


def mean_after(transition: AbstractTransition, x: ArrayLike) -> Float[Any, "... d"]:
    """E[x' | x] for states of shape (..., d); of a factor form int x' g h_x, linear in h_x = f(x, .) / g(x)."""
    x = checks.states(x, transition.dim, "x")
    if not isinstance(transition, Transition):
        return transition.mean_after(x.reshape(-1, transition.dim)).reshape(x.shape)
    found, inside = _mean_after(transition, x.reshape(-1, transition.dim))
    if checks.is_concrete(inside) and not np.all(inside):
        raise ValueError(
            f"Expected states inside the domain, got {int(np.sum(~np.asarray(inside)))} of {inside.size} outside"
            f" (model space {transition.phi.lower} to {transition.phi.upper})."
        )
    return found.reshape(x.shape)


@eqx.filter_jit
def _mean_after(transition: Transition, x: Float[Array, "n d"]) -> tuple[Float[Array, "n d"], Array]:
    y, _ = to_model(transition.transform, x)
    inside, g = transition.phi.inside(y), transition.g
    matrix, offset, inner = transition.transform.split()
    terms = transition.psi.terms(g.order)
    first = [g.coefficients @ g.basis.power_table(g.terms, terms, c, inner) for c in range(transition.dim)]
    safe = jnp.where(inside[:, None], y, transition.phi.interior_point()[None])
    C = lax.map(lambda one: transition.form_from(one).coefficients, safe, batch_size=min(_BLOCK, len(y)))
    return C @ jnp.stack(first).T @ matrix.T + offset[None], inside
