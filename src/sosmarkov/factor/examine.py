"""How exact a rational-factor transition is: what `process.check` reports of it."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.check import CheckReport
from sosmarkov.spaces.transforms import to_data

_PROBES = 64


def examine(transition: Any, initial: Belief) -> CheckReport:
    """Measure a process; see `CheckReport`."""
    kernel = transition.kernel
    M = transition.mass_vector()
    condition_factor, condition_gram = kernel.conditions(M)
    return CheckReport(
        normalisation_error=float(np.max(np.abs(kernel.gains(M) - 1.0))),
        initial_mass_error=abs(float(initial.mass()) - 1.0),
        smallest_log_density=float(_smallest(transition)),
        condition_factor=condition_factor,
        condition_gram=condition_gram,
        amplification=kernel.amplification(M),
        iterations=kernel.iterations,
        residual=float(kernel.residual),
        converged=kernel.converged,
    )


@eqx.filter_jit
def _smallest(transition: Any) -> Float[Array, ""]:
    """Smallest log-density between points drawn from the squares of the basis functions."""
    envelope, terms = transition.phi.envelope()
    count = min(transition.phi.size, _PROBES)
    squares = envelope.multiply(terms.theta, terms.theta)
    keys = jax.random.split(jax.random.key(0), count)
    chosen = jax.tree.map(lambda leaf: leaf[:count], squares)
    y = jax.vmap(envelope.sample_term)(keys, chosen)
    x = to_data(transition.transform, y)
    return jnp.min(transition.log_prob(x[None, :], x[:, None]))
