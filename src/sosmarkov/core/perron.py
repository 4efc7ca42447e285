"""The positive definite eigenvector of A -> Q o G(A), which normalises a paired kernel, and its derivative."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from sosmarkov.core.numerics import pack, pair_indices, unpack

_TOLERANCE = 1e-14
_ADJOINT_TOLERANCE = 1e-13
_LEAST_ITERATIONS = 4
# So many single steps before the map is squared instead: a step is a vector times a matrix, a squaring n^2/2 of them.
_SINGLE_STEPS = 400


class PerronResult(NamedTuple):
    """Dominant eigenpair of the map on the cone, and how the iteration ended."""

    A: Float[Array, "n n"]
    eigenvalue: Float[Array, ""]
    iterations: Int[Array, ""]
    residual: Float[Array, ""]
    converged: Bool[Array, ""]


def schur_map(Q: Float[Array, "n n"], E: Float[Array, "p p"], A: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Q o G(A), G(A) = int (phi^T A phi) psi psi^T, with E the table of unique pairs."""
    return Q * unpack(pack(A) @ E, Q.shape[0])


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def perron(Q: Float[Array, "n n"], E: Float[Array, "p p"], max_iterations: int) -> PerronResult:
    """The eigenvector of A -> Q o G(A) that is positive definite, trace n, and its eigenvalue.

    Power iteration from the identity. The map M sends the cone of positive semi-definite matrices
    into itself, so the spectral radius is an eigenvalue with an eigenvector in the cone. Each
    iteration applies M (I + M / lambda) / 2, which has the same dominant eigenvector and, unlike M,
    none near -lambda: processes that nearly alternate converge too. Where four hundred do not suffice (a
    process that hardly mixes) the map is squared again and again, so that twice as many steps cost one
    more. It stops when an iteration changes A by less than 1e-14 of its diagonal's size, or after
    `max_iterations`, a squaring counting as one; `converged` and `residual` say which. Differentiated
    implicitly.
    """
    return _iterate(Q, E, max_iterations)


def _iterate(Q, E, max_iterations):
    # A by its unique pairs throughout: vectors, and one matrix they are multiplied with.
    n = Q.shape[0]
    rows, columns = pair_indices(n)
    diagonal = np.flatnonzero(rows == columns)
    table = _doubled(n)[:, None] * E * Q[rows, columns][None]

    def normal(image):
        size = jnp.sum(image[diagonal]) / n
        return image / size, size

    def single(a):
        half, _ = normal(a @ table)
        image, size = normal(0.5 * (a + half) @ table)
        root = jnp.sqrt(image[diagonal])
        return image, size, jnp.max(jnp.abs(image - a) / (root[rows] * root[columns]))

    def unfinished(state, most):
        _, _, change, count = state
        return (count < most) & ((change > _TOLERANCE) | (count < _LEAST_ITERATIONS))

    def step(state):
        a, _, _, count = state
        return *single(a), count + 1

    identity = jnp.asarray(rows == columns, dtype=Q.dtype)
    start = (identity, jnp.ones((), Q.dtype), jnp.full((), jnp.inf, Q.dtype), jnp.asarray(0))
    most = min(max_iterations, _SINGLE_STEPS)
    state = lax.while_loop(lambda state: unfinished(state, most), step, start)

    # In units in which A has ones on its diagonal, so that rounding in the powers is relative to A's own entries.
    root = jnp.sqrt(state[0][diagonal])
    unit = root[rows] * root[columns]
    power = 0.5 * (jnp.eye(len(unit)) + table * (unit[:, None] / unit[None]) / state[1])

    def leap(both):
        (a, _, _, count), power = both
        power = power @ power
        power = power / jnp.max(jnp.abs(power))
        a, _ = normal(((a / unit) @ power) * unit)
        return (*single(a), count + 1), power

    state, _ = lax.while_loop(lambda both: unfinished(both[0], max_iterations), leap, (state, power))
    a, size, change, count = state
    return PerronResult(unpack(a, n), size, count, change, change <= _TOLERANCE)


def _doubled(n: int) -> np.ndarray:
    """How often a unique pair stands in a symmetric matrix."""
    rows, columns = pair_indices(n)
    return np.where(rows == columns, 1.0, 2.0)


def _forward(Q, E, max_iterations):
    result = _iterate(Q, E, max_iterations)
    return result, (Q, E, result)


def _backward(max_iterations, saved, bars):
    Q, E, result = saved
    n, eigenvalue = Q.shape[0], result.eigenvalue
    rows, columns = pair_indices(n)
    twice = _doubled(n)
    # Unique pairs again; <x, y> is the product of the matrices they stand for, M^T / lambda the adjoint in it. Half
    # steps, for the same reason as above.
    half = 0.5 * (jnp.eye(len(twice)) + E * (twice * Q[rows, columns] / eigenvalue)[None])
    A, A_bar = result.A[rows, columns], 0.5 * (bars.A + bars.A.T)[rows, columns]
    identity = jnp.asarray(rows == columns, dtype=Q.dtype)

    def inner(x, y):
        return jnp.sum(twice * x * y)

    # Left eigenvector u with <u, A> = 1: d eigenvalue = <u, dM A>.
    u = _left_eigenvector(half, lambda u: u / inner(u, A), identity, max_iterations)
    # w solves (I - M^T / lambda) w = y / lambda with y and w orthogonal to A: the Drazin inverse applied
    # to the cotangent after the gauge (trace A = n) is taken out.
    y = (A_bar - inner(A_bar, A) * identity / n) / eigenvalue
    w = _neumann(half, lambda w: w - inner(w, A) * u, 0.5 * y, max_iterations)
    # The map is M(A) = Q o G(A): pull the cotangent of M(A) back to Q and E.
    _, pull = jax.vjp(lambda Q, E: schur_map(Q, E, result.A), Q, E)
    return pull(unpack(w + bars.eigenvalue * u, n))


def _left_eigenvector(matrix, scale, start, max_iterations):
    """The dominant eigenvector, by single steps and then by squarings."""

    def change(new, old):
        return jnp.max(jnp.abs(new - old)) / jnp.max(jnp.abs(new))

    def step(state):
        u, _, count = state
        image = scale(matrix @ u)
        return image, change(image, u), count + 1

    def leap(both):
        (u, _, count), power = both
        power = power @ power
        power = power / jnp.max(jnp.abs(power))
        image = scale(power @ u)
        return (image, change(image, u), count + 1), power

    def unfinished(state, most):
        return (state[2] < most) & (state[1] > _ADJOINT_TOLERANCE)

    most = min(max_iterations, _SINGLE_STEPS)
    begin = (scale(start), jnp.full((), jnp.inf, start.dtype), jnp.asarray(0))
    state = lax.while_loop(lambda state: unfinished(state, most), step, begin)
    state, _ = lax.while_loop(lambda both: unfinished(both[0], max_iterations), leap, (state, matrix))
    return state[0]


def _neumann(matrix, project, y, max_iterations):
    """sum_j matrix^j y, by single terms and then, for what they leave, by 2, 4, 8, ... terms at once."""

    def large(term, w):
        return jnp.max(jnp.abs(term)) > _ADJOINT_TOLERANCE * jnp.max(jnp.abs(w))

    def step(state):
        w, term, _, count = state
        term = project(matrix @ term)
        w = w + term
        return w, term, large(term, w), count + 1

    def leap(both):
        (w, term, _, count), (power, tail) = both
        more = project(power @ tail)
        tail = tail + more
        return (w, term, large(more, w + tail), count + 1), (power @ power, tail)

    def unfinished(state, most):
        return (state[3] < most) & state[2]

    most = min(max_iterations, _SINGLE_STEPS)
    y = project(y)
    w, term, more, count = lax.while_loop(
        lambda state: unfinished(state, most), step, (y, y, jnp.asarray(True), jnp.asarray(0))
    )
    tail = jnp.where(more, project(matrix @ term), 0.0)
    both = ((w, term, more, count), (matrix, tail))
    (w, *_), (_, tail) = lax.while_loop(lambda both: unfinished(both[0], max_iterations), leap, both)
    return w + tail


perron.defvjp(_forward, _backward)
