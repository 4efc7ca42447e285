"""The table of integrals of products of two sets of full-covariance Gaussians, with its gradient.

For terms exp(c - (y - mu)^T Lam (y - mu) / 2) the integral of a product needs one d x d inverse and
determinant per pair. Every step of the elimination is one vectorised operation over pairs; no LAPACK
call is made. The gradient is analytic: the derivative of a
log-integral is an expectation under the product Gaussian, its mean and second moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
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
        scaled = row / pivot[None]
        here = (jnp.arange(d) == k).reshape(d, *tail)
        # With row k replaced by its own scaled entries, one outer product updates everything.
        left = jnp.where(here, -1.0, row)
        right = jnp.where(here, -1.0 / pivot[None], scaled)
        kept = jnp.where(here[:, None] | here[None, :], 0.0, A)
        updated = kept - left[:, None] * right[None, :]
        updated = jnp.where(here[:, None] & here[None, :], -1.0 / pivot[None, None], updated)
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


# Below, a symmetric matrix is the list of rows of its lower triangle, every entry an array over pairs (p, q), and
# loops over entries are unrolled: what is written out in scalars is compiled into few passes over the pairs.


class _System(NamedTuple):
    """A + B of each pair, A (a - b) and B (a - b), with a and b the means."""

    matrix: list[list[Array]]
    by_left: list[Array]
    by_right: list[Array]


def _system(left: FullTheta, right: FullTheta) -> _System:
    d = left.mean.shape[-1]
    A = [[left.precision[:, i, j, None] for j in range(d)] for i in range(d)]
    B = [[right.precision[None, :, i, j] for j in range(d)] for i in range(d)]
    apart = [left.mean[:, i, None] - right.mean[None, :, i] for i in range(d)]

    def times(matrix: list[list[Array]]) -> list[Array]:
        return [sum(entry * x for entry, x in zip(row, apart, strict=True)) for row in matrix]  # type: ignore[misc]

    return _System([[A[i][j] + B[i][j] for j in range(i + 1)] for i in range(d)], times(A), times(B))


def _eliminate(state: _System, count: int) -> tuple[_System, Array, Array]:
    """Gaussian elimination of the first unknowns: what is left, -1/2 of x^T y's part, and the log-determinant's."""
    a, x, y = [list(row) for row in state.matrix], list(state.by_left), list(state.by_right)
    d, pivots, exponent = len(x), [], jnp.zeros(())
    for k in range(count):
        pivots.append(a[k][k])
        inverted = 1.0 / a[k][k]
        exponent = exponent - 0.5 * x[k] * y[k] * inverted
        for i in range(k + 1, d):
            share = a[i][k] * inverted
            x[i], y[i] = x[i] - share * x[k], y[i] - share * y[k]
            for j in range(k + 1, i + 1):
                a[i][j] = a[i][j] - share * a[j][k]
    # Logarithms cost most: one for three pivots, whose product cannot overflow before a variance is 1e-100.
    log_det = sum((jnp.log(math.prod(pivots[k : k + 3])) for k in range(0, count, 3)), jnp.zeros(()))
    return _System([row[count:] for row in a[count:]], x[count:], y[count:]), exponent, log_det


def _block_value(right: FullTheta, left: FullTheta) -> Float[Array, "p q"]:
    """The pivots' product is the determinant, and x^T (A + B)^{-1} y falls out on the way."""
    d = left.mean.shape[-1]
    _, exponent, log_det = _eliminate(_system(left, right), d)
    return left.offset[:, None] + right.offset[None] + exponent + 0.5 * (d * math.log(2.0 * math.pi) - log_det)


def marginal_products(left: FullTheta, right: FullTheta, kept: tuple[int, ...]) -> FullTheta:
    """Every product of a left and a right term with all but some coordinates integrated out, axes (p, q)."""
    dropped = [c for c in range(left.mean.shape[-1]) if c not in kept]
    order = np.asarray([*dropped, *kept])
    left, right = (
        FullTheta(theta.precision[:, order[:, None], order], theta.mean[:, order], theta.offset)
        for theta in (left, right)
    )
    return _over_blocks(lambda block: _block_marginal(right, len(dropped), block), left, right)


def _block_marginal(right: FullTheta, dropped: int, left: FullTheta) -> FullTheta:
    """The first coordinates are integrated out: the Schur complement is the precision of the others."""
    rest, exponent, log_det = _eliminate(_system(left, right), dropped)
    d = len(rest.matrix)
    solved = rest
    for _ in range(d):
        solved = _sweep_first(solved)
    exponent = exponent - 0.5 * sum((x * y for x, y in zip(solved.by_left, rest.by_right, strict=True)), jnp.zeros(()))
    precision = jnp.stack(
        [jnp.stack([rest.matrix[max(i, j)][min(i, j)] for j in range(d)], axis=-1) for i in range(d)], axis=-2
    )
    offset = left.offset[:, None] + right.offset[None] + exponent + 0.5 * (dropped * math.log(2.0 * math.pi) - log_det)
    return FullTheta(precision, right.mean[None, :, dropped:] + jnp.stack(solved.by_left, axis=-1), offset)


def projected_products(
    left: FullTheta, right: FullTheta, H: Float[Array, "k d"]
) -> tuple[Float[Array, "p q k"], Float[Array, "p q k k"]]:
    """Mean and covariance of H y under every product of a left and a right term, as densities of y."""
    return _over_blocks(lambda block: _block_projected(right, H, block), left, right)


def _block_projected(right: FullTheta, H: Array, left: FullTheta) -> tuple[Array, Array]:
    """H (A + B)^{-1} (H^T, A (a - b)) by elimination: every pivot adds its share of the inner products."""
    system, (k, d) = _system(left, right), H.shape
    a, vectors = system.matrix, [*([H[i, c] for c in range(d)] for i in range(k)), list(system.by_left)]
    wanted = [(i, j) for i in range(k) for j in (*range(i + 1), k)]
    total = dict.fromkeys(wanted, jnp.zeros(()))
    for c in range(d):
        inverted = 1.0 / a[c][c]
        for i, j in wanted:
            total[i, j] = total[i, j] + vectors[i][c] * vectors[j][c] * inverted
        for r in range(c + 1, d):
            share = a[r][c] * inverted
            for v in vectors:
                v[r] = v[r] - share * v[c]
            for j in range(c + 1, r + 1):
                a[r][j] = a[r][j] - share * a[j][c]
    mean = jnp.stack([total[i, k] for i in range(k)], axis=-1) + (right.mean @ H.T)[None]
    covariance = [jnp.stack([total[max(i, j), min(i, j)] for j in range(k)], axis=-1) for i in range(k)]
    return mean, jnp.stack(covariance, axis=-2)


def _sweep_first(state: _System) -> _System:
    """Sweep the first index out of the matrix and the vectors, and move it to the end."""
    a, *vectors = state
    d, inverted = len(a), 1.0 / a[0][0]
    scaled = [a[i][0] * inverted for i in range(d)]
    matrix = [[a[i][j] - a[i][0] * scaled[j] for j in range(1, i + 1)] for i in range(1, d)]
    swept = [[v[i] - scaled[i] * v[0] for i in range(1, d)] + [v[0] * inverted] for v in vectors]
    return _System([*matrix, [*scaled[1:], -inverted]], *swept)


def _block_gradient(right: FullTheta, inputs: tuple[FullTheta, Float[Array, "p q"]]) -> tuple[FullTheta, FullTheta]:
    left, G = inputs
    d = left.mean.shape[-1]
    # A loop, though its body is the same for every index: across it nothing is computed twice. All swept: minus the
    # covariance of the product, and its mean as seen from either side.
    found = lax.fori_loop(0, d, lambda _, state: _sweep_first(state), _system(left, right))

    def side(theta: FullTheta, away: list[Array], axis: int) -> FullTheta:
        second = [
            [jnp.sum(G * (away[i] * away[j] - found.matrix[i][j]), axis=axis) for j in range(i + 1)] for i in range(d)
        ]
        whole = jnp.stack([jnp.stack([second[max(i, j)][min(i, j)] for j in range(d)]) for i in range(d)])
        first = jnp.stack([jnp.sum(G * x, axis=axis) for x in away])
        return FullTheta(
            -0.5 * jnp.moveaxis(whole, -1, 0), jnp.einsum("pij,jp->pi", theta.precision, first), jnp.sum(G, axis=axis)
        )

    return side(left, [-x for x in found.by_right], -1), side(right, found.by_left, -2)


def blocks(tree, count: int, size: int):
    """Leading axes padded with copies of the first entry and split into equal blocks."""

    def split(leaf: Array) -> Array:
        padding = jnp.broadcast_to(leaf[:1], (count * size - leaf.shape[0], *leaf.shape[1:]))
        return jnp.concatenate([leaf, padding]).reshape(count, size, *leaf.shape[1:])

    return jax.tree.map(split, tree)


def unblocked(tree, length: int):
    """Blocks joined again, without what was padded."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:length], tree)


def _over_blocks(function: Callable[[FullTheta], Any], left: FullTheta, right: FullTheta) -> Any:
    """A function of a block of left terms, for all of them."""
    return unblocked(lax.map(function, blocks(left, *_layout(left, right))), len(left.offset))


def _layout(left: FullTheta, right: FullTheta) -> tuple[int, int]:
    """How many blocks of how many left terms: on a CPU a block fits its cache, elsewhere it is large."""
    p, q = left.offset.shape[0], right.offset.shape[0]
    pairs = 1 << (13 if jax.default_backend() == "cpu" else 17)
    size = min(p, -(-pairs // q))
    return -(-p // size), size


@jax.custom_vjp
def log_pair_table(left: FullTheta, right: FullTheta) -> Float[Array, "p q"]:
    """Log of the integral of every product of a left and a right term."""
    return _over_blocks(partial(_block_value, right), left, right)


def _forward(left: FullTheta, right: FullTheta):
    return log_pair_table(left, right), (left, right)


def _backward(saved: tuple[FullTheta, FullTheta], G: Array):
    left, right = saved
    count, size = _layout(left, right)
    padded = jnp.zeros((count * size, G.shape[1]), G.dtype).at[: G.shape[0]].set(G)
    inputs = blocks(left, count, size), padded.reshape(count, size, -1)
    by_left, by_right = lax.map(partial(_block_gradient, right), inputs)
    return unblocked(by_left, len(G)), jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), by_right)


log_pair_table.defvjp(_forward, _backward)
