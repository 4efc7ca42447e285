"""Signed sums of many Gaussians at many points, in tiles that fit a cache.

A marginal of a full-covariance belief has one Gaussian for every product of four functions. At one value a term and
point, all that matters is that exponentials are vectorised and that no table of them leaves the cache.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.bases.full_table import FullTheta, blocks
from sosmarkov.numerics import exp

# Values in a tile of terms by points, and points in it at most.
_TILE, _POINTS = 2**16, 2**11
# Sums below this may have lost terms to underflow, which a double allows from 1e-308 on.
_TINY = 1e-200


class Sums(NamedTuple):
    """At each point sum_t w_t e_t = value exp(log_scale), and the same with magnitudes."""

    value: Float[Array, " b"]
    size: Float[Array, " b"]
    log_scale: Float[Array, " b"]


def sum_at(theta: FullTheta, weights: Float[Array, " t"], y: Float[Array, "b d"]) -> Sums:
    """Sum_t weights_t exp(offset_t - 1/2 (y - mean_t)^T precision_t (y - mean_t)) at every point."""
    count = min(_POINTS, y.shape[0])
    tiles = blocks(y, -(-y.shape[0] // count), count)
    found = lax.map(lambda points: _sum_in_block(theta, weights, points), tiles)
    return jax.tree.map(lambda leaf: leaf.reshape(-1)[: y.shape[0]], found)


def _sum_in_block(theta: FullTheta, weights: Array, y: Array) -> Sums:
    per_tile = min(len(weights), max(1, _TILE // y.shape[0]))
    count = -(-len(weights) // per_tile)
    thetas = blocks(theta, count, per_tile)
    # Terms that only fill the last tile weigh nothing.
    signed = jnp.zeros(count * per_tile).at[: len(weights)].set(weights).reshape(count, per_tile)

    def sums(shift: Array) -> Array:
        def add(total: Array, tile: tuple[FullTheta, Array]) -> tuple[Array, None]:
            # The barrier keeps one tile for the two sums; without it, exponentials are taken twice.
            values = lax.optimization_barrier(exp(_exponents(tile[0], y) - shift))
            return total + jnp.stack([tile[1], jnp.abs(tile[1])]) @ values, None

        return lax.scan(add, jnp.zeros((2, y.shape[0])), (thetas, signed))[0]

    def largest() -> Array:
        def larger(top: Array, tile: FullTheta) -> tuple[Array, None]:
            return jnp.maximum(top, jnp.max(_exponents(tile, y), axis=0)), None

        return lax.scan(larger, jnp.full(y.shape[0], -jnp.inf), thetas)[0]

    # No exponent is above the largest offset. Only where that leaves a sum too small, each point gets its own.
    common = jnp.full(y.shape[0], lax.stop_gradient(jnp.max(theta.offset)))
    near = sums(common)

    def again() -> tuple[Array, Array]:
        own = lax.stop_gradient(largest())
        return sums(own), own

    found, shift = lax.cond(jnp.min(near[1]) < _TINY, again, lambda: (near, common))
    return Sums(found[0], found[1], shift)


def _exponents(theta: FullTheta, y: Float[Array, "b d"]) -> Float[Array, "t b"]:
    """Written out coordinate by coordinate: one loop over the tile."""
    value = theta.offset[:, None]
    apart = [y[:, i] - theta.mean[:, i, None] for i in range(y.shape[1])]
    for i, x in enumerate(apart):
        value = value - 0.5 * theta.precision[:, i, i, None] * x**2
        for j in range(i):
            value = value - theta.precision[:, i, j, None] * x * apart[j]
    return value
