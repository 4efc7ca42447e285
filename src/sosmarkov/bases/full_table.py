"""The table of integrals of products of two sets of full-covariance Gaussians, with its gradient.

For terms exp(c - (y - mu)^T Lam (y - mu) / 2) the integral of a product needs one d x d inverse and
determinant per pair. Matrix indices come first and pairs last, so that every step of the elimination
is one vectorised operation over pairs; no LAPACK call is made. The gradient is analytic: the derivative of a
log-integral is an expectation under the product Gaussian, its mean and second moment.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float


class FullTheta(NamedTuple):
    """exp(offset - 1/2 (y - mean)^T precision (y - mean)), in d dimensions at once."""

    precision: Float[Array, "*b d d"]
    mean: Float[Array, "*b d"]
    offset: Float[Array, "*b"]


def sweep(A: Float[Array, "d d *b"], over: tuple[int, ...]) -> tuple[Float[Array, "d d *b"], Float[Array, "*b"]]:
    """The sweep operator on symmetric positive definite matrices, and the log-determinant swept out.

    Sweeping indices s leaves -A_ss^{-1} at (s, s) and the Schur complement A_rr - A_rs A_ss^{-1} A_sr
    at the others: an inverse when all are swept, a marginal precision when some are.
    """
    d = A.shape[0]
    tail = (1,) * (A.ndim - 2)

    def one(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        A, log_det = state
        row = lax.dynamic_index_in_dim(A, k, axis=0, keepdims=False)
        pivot = lax.dynamic_index_in_dim(row, k, axis=0, keepdims=False)
        scaled = row / pivot
        here = (jnp.arange(d) == k).reshape(d, *tail)
        # With row k replaced by its own scaled entries, one outer product updates everything.
        left = jnp.where(here, -1.0, row)
        right = jnp.where(here, -1.0 / pivot, scaled)
        kept = jnp.where(here[:, None] | here[None, :], 0.0, A)
        updated = kept - left[:, None] * right[None, :]
        updated = jnp.where(here[:, None] & here[None, :], -1.0 / pivot, updated)
        return updated, log_det + jnp.log(pivot)

    start = (A, jnp.zeros(A.shape[2:], A.dtype))
    if not over:
        return start
    indices = jnp.asarray(over, dtype=int)
    return lax.fori_loop(0, len(over), lambda i, state: one(indices[i], state), start)


def inverse(A: Float[Array, "d d *b"]) -> tuple[Float[Array, "d d *b"], Float[Array, "*b"]]:
    """A^{-1} and log det A."""
    swept, log_det = sweep(A, tuple(range(A.shape[0])))
    return -swept, log_det


class _Pairs(NamedTuple):
    covariance: Array
    log_det: Array
    from_left: Array  # mean of the product minus the left mean
    from_right: Array
    exponent: Array


def _pairs(left: FullTheta, right: FullTheta) -> _Pairs:
    """What the integral of each product of two terms is made of."""
    A, B = jnp.moveaxis(left.precision, 0, -1), jnp.moveaxis(right.precision, 0, -1)
    apart = left.mean.T[:, :, None] - right.mean.T[:, None, :]
    covariance, log_det = inverse(A[..., None] + B[..., None, :])
    by_left = jnp.sum(A[..., None] * apart, axis=1)
    by_right = jnp.sum(B[..., None, :] * apart, axis=1)
    from_right = jnp.sum(covariance * by_left, axis=1)
    from_left = -jnp.sum(covariance * by_right, axis=1)
    return _Pairs(covariance, log_det, from_left, from_right, -0.5 * jnp.sum(from_right * by_right, axis=0))


def _block_value(right: FullTheta, left: FullTheta) -> Float[Array, "p q"]:
    found = _pairs(left, right)
    whole = 0.5 * (left.mean.shape[-1] * jnp.log(2.0 * jnp.pi) - found.log_det)
    return left.offset[:, None] + right.offset + found.exponent + whole


def _block_gradient(right: FullTheta, inputs: tuple[FullTheta, Float[Array, "p q"]]) -> tuple[FullTheta, FullTheta]:
    left, G = inputs
    found = _pairs(left, right)

    def side(theta: FullTheta, away: Array, axis: int) -> FullTheta:
        second = jnp.sum(G * (found.covariance + away[:, None] * away), axis=axis)
        first = jnp.sum(G * away, axis=axis)
        return FullTheta(
            -0.5 * jnp.moveaxis(second, -1, 0),
            jnp.einsum("pij,jp->pi", theta.precision, first),
            jnp.sum(G, axis=axis),
        )

    return side(left, found.from_left, -1), side(right, found.from_right, -2)


def _blocks(tree, count: int, size: int):
    """Leading axes padded with copies of the first entry and split into equal blocks."""

    def split(leaf: Array) -> Array:
        padding = jnp.broadcast_to(leaf[:1], (count * size - leaf.shape[0], *leaf.shape[1:]))
        return jnp.concatenate([leaf, padding]).reshape(count, size, *leaf.shape[1:])

    return jax.tree.map(split, tree)


def _layout(left: FullTheta, right: FullTheta) -> tuple[int, int]:
    """How many blocks of how many left terms: on a CPU a block fits its cache, elsewhere it is large."""
    p, q = left.offset.shape[0], right.offset.shape[0]
    pairs = 1 << (11 if jax.default_backend() == "cpu" else 17)
    size = min(p, -(-pairs // q))
    return -(-p // size), size


@jax.custom_vjp
def log_pair_table(left: FullTheta, right: FullTheta) -> Float[Array, "p q"]:
    """Log of the integral of every product of a left and a right term."""
    count, size = _layout(left, right)
    blocks = lax.map(partial(_block_value, right), _blocks(left, count, size))
    return blocks.reshape(count * size, -1)[: left.offset.shape[0]]


def _forward(left: FullTheta, right: FullTheta):
    return log_pair_table(left, right), (left, right)


def _backward(saved: tuple[FullTheta, FullTheta], G: Array):
    left, right = saved
    count, size = _layout(left, right)
    padded = jnp.zeros((count * size, G.shape[1]), G.dtype).at[: G.shape[0]].set(G)
    inputs = _blocks(left, count, size), padded.reshape(count, size, -1)
    by_left, by_right = lax.map(partial(_block_gradient, right), inputs)
    p = left.offset.shape[0]
    joined = jax.tree.map(lambda leaf: leaf.reshape(count * size, *leaf.shape[2:])[:p], by_left)
    return joined, jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), by_right)


log_pair_table.defvjp(_forward, _backward)
