"""Exact draws from a product of two forms g h, by rejection from an envelope of positive terms.

g h is a signed sum over pairs of terms; taking absolute values of the coefficients (and bounding
signed functions by positive ones) gives a mixture of known densities that lies above it. A draw
from the mixture is kept with probability g h / envelope: the draws follow g h exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.bases import Basis, Terms
from sosmarkov.forms import Form
from sosmarkov.numerics import Signed, unpack_coefficients


class Envelope(NamedTuple):
    """The mixture above g psi_q for every term q of h's basis; the coefficients of h choose among them."""

    basis: Basis
    singles: tuple[Terms, Terms]
    left: Terms
    right: Terms
    left_weights: Float[Array, " p"]
    column_mass: Float[Array, " q"]
    cumulative: Float[Array, "q p"]


def make_envelope(g: Form, h: Form) -> Envelope:
    """Tables that serve any h over the same basis (its coefficients are not read)."""
    basis, left_single = g.basis.envelope()
    _, right_single = h.basis.envelope()
    left, right = basis.products(left_single, g.order), basis.products(right_single, h.order)
    weights = jnp.abs(g.coefficients)
    table = (weights[:, None] * basis.overlap(left, right)).T
    cumulative = jnp.cumsum(table, axis=1)
    singles = (left_single, right_single)
    return Envelope(basis, singles, left, right, weights, cumulative[:, -1], cumulative)


def acceptance(g: Form, h: Form) -> Float[Array, ""]:
    """Probability that one proposal is kept, for g h of mass one."""
    return 1.0 / (make_envelope(g, h).column_mass @ jnp.abs(h.coefficients))


def _log_bound(basis: Basis, single: Terms, order: int, weights: Array, y: Array) -> Array:
    """Log of sum_p weights_p t_p(y) over products of `order` of the single terms."""
    log_abs, _ = basis.log_abs(single.theta, y)
    at_y = Signed(log_abs + single.log_scale, jnp.ones_like(log_abs)).scaled()
    if order == 1:
        return jnp.log(weights @ at_y.values) + at_y.log_scale
    matrix = unpack_coefficients(weights, at_y.values.size)
    return jnp.log(at_y.values @ matrix @ at_y.values) + 2.0 * at_y.log_scale


def draw(key: PRNGKeyArray, g: Form, h: Form, envelope: Envelope) -> Float[Array, " d"]:
    """One draw from g h (any positive multiple of it), in model space."""
    basis, left, right = envelope.basis, envelope.left, envelope.right
    weights = jnp.abs(h.coefficients)
    mixture = jnp.cumsum(weights * envelope.column_mass)

    def propose(state):
        key, _, _ = state
        key, pick_q, pick_p, inner, keep = jax.random.split(key, 5)
        q = jnp.searchsorted(mixture, jax.random.uniform(pick_q) * mixture[-1], side="right")
        q = jnp.minimum(q, mixture.size - 1)  # u = 1 - eps may round up to the total
        column = envelope.cumulative[q]
        p = jnp.searchsorted(column, jax.random.uniform(pick_p) * column[-1], side="right")
        p = jnp.minimum(p, column.size - 1)
        y = basis.sample_term(inner, basis.multiply(left[p].theta, right[q].theta))
        bound = _log_bound(basis, envelope.singles[0], g.order, envelope.left_weights, y)
        bound = bound + _log_bound(basis, envelope.singles[1], h.order, weights, y)
        kept = jnp.log(jax.random.uniform(keep)) < g.log_value(y) + h.log_value(y) - bound
        return key, kept, y

    start = (key, jnp.asarray(False), g.basis.interior_point())
    return lax.while_loop(lambda state: ~state[1], propose, start)[2]
