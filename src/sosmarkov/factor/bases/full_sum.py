"""Signed sums of many Gaussians at many points, in tiles that fit a cache.

A marginal of a full-covariance belief has one Gaussian for every product of four functions. At one value a term and
point, what matters is that exponentials are vectorised, that no table of them leaves the cache, and that terms are
left out that cannot change a digit: integrated over many coordinates, most are that small.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.core.numerics import exp
from sosmarkov.factor.bases.full_table import FullTheta, blocks, unblocked

# Values in a tile of terms by points, and points in it at most.
_TILE, _POINTS = 2**16, 2**11
# Sums below this may have lost terms to underflow, which a double allows from 1e-308 on.
_TINY = 1e-200
# Terms that together are below this share of the sum of magnitudes are far below its rounding, and so are their slopes.
_ROUNDING = 2.0**-60


class Sums(NamedTuple):
    """At each point sum_t w_t e_t = value exp(log_scale), and the same with magnitudes."""

    value: Float[Array, " b"]
    size: Float[Array, " b"]
    log_scale: Float[Array, " b"]


def sum_at(theta: FullTheta, weights: Float[Array, " t"], y: Float[Array, "b d"]) -> Sums:
    """Sum_t weights_t exp(offset_t - 1/2 (y - mean_t)^T precision_t (y - mean_t)) at every point."""
    count = min(_POINTS, y.shape[0])
    tiles = blocks(y, -(-y.shape[0] // count), count)
    # No term is larger anywhere than it is at its mean. With the largest first, the others soon cannot matter.
    order = jnp.argsort(-lax.stop_gradient(jnp.log(jnp.abs(weights)) + theta.offset))
    theta, weights = jax.tree.map(lambda leaf: leaf[order], (theta, weights))
    found = lax.map(lambda points: _sum_in_block(theta, weights, points), tiles)
    return unblocked(found, len(y))


def _sum_in_block(theta: FullTheta, weights: Array, y: Array) -> Sums:
    per_tile = min(len(weights), max(1, _TILE // y.shape[0]))
    count = -(-len(weights) // per_tile)
    thetas = blocks(theta, count, per_tile)
    # Terms that only fill the last tile weigh nothing.
    signed = jnp.zeros(count * per_tile).at[: len(weights)].set(weights).reshape(count, per_tile)
    top = lax.stop_gradient(jnp.max(theta.offset))
    most = jnp.sum(lax.stop_gradient(jnp.abs(signed) * jnp.exp(thetas.offset - top)), axis=1)
    # What this tile and all after it can add to a sum of magnitudes.
    left = jnp.cumsum(most[::-1])[::-1]

    def sums(shift: Array) -> Array:
        def add(total: Array, tile: tuple[FullTheta, Array, Array]) -> tuple[Array, None]:
            theta, signed, left = tile

            def more(total: Array) -> Array:
                # The barrier keeps one tile for the two sums; without it, exponentials are taken twice.
                values = lax.optimization_barrier(exp(_exponents(theta, y) - shift[None]))
                return total + jnp.stack([signed, jnp.abs(signed)]) @ values

            matters = jnp.any(left * jnp.exp(top - shift) > _ROUNDING * total[1])
            return lax.cond(matters, more, lambda total: total, total), None

        return lax.scan(add, jnp.zeros((2, y.shape[0])), (thetas, signed, left))[0]

    def largest() -> Array:
        def larger(top: Array, tile: FullTheta) -> tuple[Array, None]:
            return jnp.maximum(top, jnp.max(_exponents(tile, y), axis=0)), None

        return lax.scan(larger, jnp.full(y.shape[0], -jnp.inf), thetas)[0]

    # No exponent is above the largest offset. Only where that leaves a sum too small, each point gets its own.
    common = jnp.full(y.shape[0], top)
    near = sums(common)

    def again() -> tuple[Array, Array]:
        own = lax.stop_gradient(largest())
        return sums(own), own

    found, shift = lax.cond(jnp.min(near[1]) < _TINY, again, lambda: (near, common))
    return Sums(found[0], found[1], shift)


def _exponents(theta: FullTheta, y: Float[Array, "b d"]) -> Float[Array, "t b"]:
    """Written out coordinate by coordinate: one loop over the tile."""
    value = theta.offset[:, None]
    apart = [y[None, :, i] - theta.mean[:, i, None] for i in range(y.shape[1])]
    for i, x in enumerate(apart):
        value = value - 0.5 * theta.precision[:, i, i, None] * x**2
        for j in range(i):
            value = value - theta.precision[:, i, j, None] * x * apart[j]
    return value
