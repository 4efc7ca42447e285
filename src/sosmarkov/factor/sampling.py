"""Exact draws from a product of two forms g h, by rejection from an envelope of positive terms.

g h is a signed sum over pairs of terms; taking absolute values of the coefficients (and bounding
signed functions by positive ones) gives a mixture of known densities that lies above it. A draw
from the mixture is kept with probability g h / envelope: the draws follow g h exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.core import checks
from sosmarkov.core.numerics import Signed, unpack_coefficients, within
from sosmarkov.factor.bases import Basis, Terms
from sosmarkov.factor.forms import Form, overlap_table


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
    if h.log_scale is not None:
        right_single = Terms(right_single.theta, right_single.log_scale + h.log_scale)
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


class _Mixture(NamedTuple):
    """What of h the proposals need: absolute coefficients, and the running mass of the envelope over them."""

    weights: Float[Array, " q"]
    cumulative: Float[Array, " q"]


def _mixture(h: Form, envelope: Envelope) -> _Mixture:
    weights = jnp.abs(h.coefficients)
    return _Mixture(weights, jnp.cumsum(weights * envelope.column_mass))


def _propose(key: PRNGKeyArray, g: Form, h: Form, mixture: _Mixture, envelope: Envelope) -> tuple[Array, Array]:
    """Whether one draw from the mixture is kept, and the draw."""
    basis, left, right = envelope.basis, envelope.left, envelope.right
    pick_q, pick_p, inner, keep = jax.random.split(key, 4)
    total = mixture.cumulative[-1]
    q = jnp.searchsorted(mixture.cumulative, jax.random.uniform(pick_q) * total, side="right")
    q = jnp.minimum(q, mixture.cumulative.size - 1)  # u = 1 - eps may round up to the total
    column = envelope.cumulative[q]
    p = jnp.searchsorted(column, jax.random.uniform(pick_p) * column[-1], side="right")
    p = jnp.minimum(p, column.size - 1)
    y = basis.sample_term(inner, basis.multiply(left[p].theta, right[q].theta))
    bound = _log_bound(basis, envelope.singles[0], g.order, envelope.left_weights, y)
    bound = bound + _log_bound(basis, envelope.singles[1], h.order, mixture.weights, y)
    return jnp.log(jax.random.uniform(keep)) < g.log_value(y) + h.log_value(y) - bound, y


def draw_each(
    key: PRNGKeyArray,
    g: Form,
    form: Callable[[Array], Form],
    y: Float[Array, "n d"],
    lower: Array | None = None,
    upper: Array | None = None,
) -> Float[Array, "n d"]:
    """One draw from g h_i (any positive multiple of it) for each point y_i, in model space; can be traced.

    Args:
        key: Of all draws.
        g: The form they share.
        form: From y_i to h_i; all of them over one basis.
        y: The points.
        lower: With `upper`, a box to draw in.
        upper: Likewise.
    """
    some = form(y[0])
    envelope = make_envelope(g, some)
    held = sum(leaf.size for leaf in jax.tree.leaves(_without_basis(some))) + 2 * envelope.column_mass.size
    chunk = min(len(y), max(_LANES, _MOST_HELD // held))
    chunks = -(-len(y) // chunk)
    rows = jnp.minimum(jnp.arange(chunks * chunk), len(y) - 1).reshape(chunks, chunk)

    def one(y: Array) -> tuple[Form, _Mixture]:
        h = form(y)
        return _without_basis(h), _mixture(h, envelope)

    def some_rows(item: tuple[Array, Array]) -> Array:
        key, rows = item
        parts = jax.vmap(one)(y[rows])

        def propose(key: PRNGKeyArray, i: Array) -> tuple[Array, Array]:
            h, mixture = jax.tree.map(lambda leaf: leaf[i], parts)
            h = eqx.tree_at(lambda h: h.basis, h, some.basis, is_leaf=lambda leaf: leaf is None)
            kept, drawn = _propose(key, g, h, mixture, envelope)
            return kept & within(drawn, lower, upper), drawn

        return _until_all_kept(key, propose, chunk, y.shape[1])

    drawn = lax.map(some_rows, (jax.random.split(key, chunks), rows))
    return drawn.reshape(-1, y.shape[1])[: len(y)]


def _without_basis(h: Form) -> Form:
    return eqx.tree_at(lambda h: h.basis, h, None)


def _until_all_kept(
    key: PRNGKeyArray, propose: Callable[[PRNGKeyArray, Array], tuple[Array, Array]], count: int, dim: int
) -> Float[Array, "n d"]:
    """The first kept proposal of each of `count` points: a lane whose point is served takes the next that waits.

    Lanes that each stuck to their own point would all wait for the unluckiest.
    """
    lanes = min(_LANES, count)

    def again(state: tuple[Array, ...]) -> tuple[Array, ...]:
        key, point, waiting, drawn = state
        key, this = jax.random.split(key)
        kept, y = jax.vmap(propose)(jax.random.split(this, lanes), jnp.minimum(point, count - 1))
        kept = kept & (point < count)
        drawn = drawn.at[jnp.where(kept, point, count)].set(y, mode="drop")
        place = jnp.cumsum(kept)
        point = jnp.where(kept, jnp.minimum(waiting + place - 1, count), point)
        return key, point, jnp.minimum(waiting + place[-1], count), drawn

    start = (key, jnp.arange(lanes), jnp.asarray(lanes), jnp.zeros((count, dim)))
    return lax.while_loop(lambda state: jnp.any(state[1] < count), again, start)[3]


def draw_many(
    key: PRNGKeyArray, g: Form, h: Form, count: int, lower: Array | None = None, upper: Array | None = None
) -> Float[Array, "n d"]:
    """Draws from g h, or from what of it lies in a box: proposals in blocks, the first `count` kept of them."""
    envelope, share = _prepare(g, h, lower, upper)
    if not checks.is_concrete(share):
        raise ValueError("Expected known numbers to draw from a belief, got traced ones. Draw outside of jit.")
    acceptance = float(share)
    if not acceptance > _LEAST_ACCEPTANCE:
        raise ValueError(
            f"Expected a belief whose draws by rejection are kept more often than {_LEAST_ACCEPTANCE:g}, got"
            f" {acceptance:.1g}: its coefficients cancel too much, or its box is too unlikely."
        )
    block = min(_BLOCK, 1 << max(6, math.ceil(math.log2(1.2 * count / acceptance))))
    found, have = [], 0
    while have < count:
        key, this = jax.random.split(key)
        kept, y = _block(this, g, h, envelope, lower, upper, block)
        found.append(np.asarray(y)[np.asarray(kept)])
        have += len(found[-1])
    return jnp.asarray(np.concatenate(found)[:count])


_BLOCK = 8192
# Proposals made at once for different points, and numbers held for the points of one chunk.
_LANES = 1024
_MOST_HELD = 2**24
_LEAST_ACCEPTANCE = 1e-7


@eqx.filter_jit
def _prepare(g: Form, h: Form, lower: Array | None, upper: Array | None) -> tuple[Envelope, Array]:
    """The envelope, and the probability that a proposal is kept."""
    envelope = make_envelope(g, h)
    mass = g.coefficients @ overlap_table(g, h, lower, upper) @ h.coefficients
    return envelope, mass / (envelope.column_mass @ jnp.abs(h.coefficients))


@eqx.filter_jit
def _block(
    key: PRNGKeyArray, g: Form, h: Form, envelope: Envelope, lower: Array | None, upper: Array | None, size: int
) -> tuple[Array, Array]:
    mixture = _mixture(h, envelope)
    kept, y = jax.vmap(lambda key: _propose(key, g, h, mixture, envelope))(jax.random.split(key, size))
    return kept & within(y, lower, upper), y
