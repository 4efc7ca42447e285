"""Array mathematics the rooms below share: packed symmetric matrices, factors, scaled vectors, exponentials.

Nothing here calls LAPACK: on small CPUs several batched LAPACK calls inside one compiled loop can
wait for each other for ever, and the loops below are as fast at the sizes in use.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.core.programs import traced_once

# --- arrays of either kind -------------------------------------------------------------------------


def library(*arrays: Any) -> Any:
    """`numpy` where all arrays are NumPy's, so that forms computed by NumPy answer in its arrays; else `jax.numpy`."""
    return np if all(isinstance(array, (np.ndarray, np.generic, float, int)) for array in arrays) else jnp


def together(*rows: Any) -> Any:
    """Rows of one shape stacked; NumPy's may be of several lengths, as mixtures that grow: filled up with NaN."""
    if library(*rows) is jnp:
        return jnp.stack(rows)
    shapes = [np.shape(one) for one in rows]
    if len(set(shapes)) <= 1:
        return np.stack(rows)
    found = np.full((len(rows), *np.max(shapes, axis=0)), np.nan)
    for place, one in zip(found, rows, strict=True):
        place[tuple(slice(length) for length in np.shape(one))] = one
    return found


# --- symmetric matrices as vectors over unique pairs i <= j --------------------------------------


def pair_indices(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the n (n + 1) / 2 unique pairs i <= j."""
    return np.triu_indices(n)


@traced_once
def pack(A: Float[Array, "*b n n"]) -> Float[Array, "*b p"]:
    """Coefficients of a quadratic form over unique pairs: A_ii, and A_ij + A_ji for i < j."""
    rows, columns = pair_indices(A.shape[-1])
    both = A[..., rows, columns] + A[..., columns, rows]
    return jnp.where(rows == columns, 0.5, 1.0) * both


@partial(traced_once, static_argnums=1)
def unpack(values: Float[Array, "*b p"], n: int) -> Float[Array, "*b n n"]:
    """The symmetric matrix with these values at its unique pairs (integrals, not coefficients)."""
    rows, columns = pair_indices(n)
    where = np.zeros((n, n), dtype=int)
    where[rows, columns] = where[columns, rows] = np.arange(rows.size)
    return values[..., where]


@partial(traced_once, static_argnums=1)
def unpack_coefficients(values: Float[Array, "*b p"], n: int) -> Float[Array, "*b n n"]:
    """The symmetric matrix whose `pack` is this vector."""
    rows, columns = pair_indices(n)
    return unpack(jnp.where(rows == columns, 1.0, 0.5) * values, n)


# --- vectors and logarithms at any scale ----------------------------------------------------------


class Scaled(NamedTuple):
    """The vector `values * exp(log_scale)`, its largest entry kept near one."""

    values: Float[Array, "*b n"]
    log_scale: Float[Array, "*b"]


class Signed(NamedTuple):
    """The vector `sign * exp(log_abs)`."""

    log_abs: Float[Array, "*b n"]
    sign: Float[Array, "*b n"]

    def __mul__(self, other: "Signed") -> "Signed":  # type: ignore[override]
        """The entrywise product."""
        return Signed(self.log_abs + other.log_abs, self.sign * other.sign)

    def scaled(self) -> Scaled:
        """The same vector with its largest magnitude pulled out."""
        top = lax.stop_gradient(jnp.max(self.log_abs, axis=-1, keepdims=True))
        top = jnp.where(jnp.isfinite(top), top, 0.0)
        return Scaled(self.sign * exp(self.log_abs - top), top[..., 0])


def within(y: Float[Array, "*b d"], lower: Array | None, upper: Array | None) -> Array:
    """Whether points lie strictly inside a box; everywhere where there is none."""
    return jnp.asarray(True) if lower is None or upper is None else jnp.all((y > lower) & (y < upper), axis=-1)


class Quadrature(NamedTuple):
    """Nodes and weights in each coordinate of model space, and the values of s at the nodes."""

    nodes: Float[Array, "t d"]
    weights: Float[Array, "t d"]
    values: Float[Array, "t d"]


@traced_once
def log_quadratic(A: Float[Array, "n n"], factor: Float[Array, "n r"], v: Float[Array, " n"]) -> Float[Array, ""]:
    """Log v^T A v, A = F F^T: from the factor, so that nothing cancels; its gradient from A, which is smaller."""
    return _log_quadratic(A, factor, v)


@jax.custom_jvp
def _log_quadratic(A: Float[Array, "n n"], factor: Float[Array, "n r"], v: Float[Array, " n"]) -> Float[Array, ""]:
    """log(v^T A v) for A = F F^T, computed as log ||F^T v||^2 so that it is never NaN.

    The derivative uses A itself, (v^T dA v + 2 v^T A dv) / v^T A v: a factor of a nearly singular
    matrix has wild derivatives, the form it stands for has not.
    """
    del A
    return jnp.log(jnp.sum((factor.T @ v) ** 2))


@_log_quadratic.defjvp
def _log_quadratic_jvp(primals, tangents):
    A, factor, v = primals
    dA, _, dv = tangents
    half = factor.T @ v
    value = jnp.sum(half**2)
    return jnp.log(value), (v @ dA @ v + 2.0 * (factor @ half) @ dv) / value


# --- factors of positive (semi-)definite matrices -------------------------------------------------


@traced_once
def psd_factor(C: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """F with F F^T = C for a positive semi-definite C of any rank.

    Cholesky with diagonal pivoting on C scaled to unit diagonal: it ends when what is left is
    rounding error of C, so a singular matrix needs neither jitter nor clipping. Columns beyond
    the numerical rank are zero. The factor is a constant to differentiation: use `log_quadratic`.
    """
    C = lax.stop_gradient(C)
    n = C.shape[0]
    scale = jnp.sqrt(jnp.diagonal(C))
    usable = scale > 0
    inverse = jnp.where(usable, 1.0 / jnp.where(usable, scale, 1.0), 0.0)
    rest = C * inverse[:, None] * inverse
    rounding = n * jnp.finfo(C.dtype).eps

    def step(carry, j):
        rest, F = carry
        pivot = jnp.argmax(jnp.diagonal(rest))
        size = rest[pivot, pivot]
        column = jnp.where(size > rounding, rest[:, pivot] / jnp.sqrt(jnp.abs(size)), 0.0)
        rest = rest - column[:, None] * column
        rest = rest.at[pivot, :].set(0.0).at[:, pivot].set(0.0)
        return (rest, F.at[:, j].set(column)), None

    (_, F), _ = lax.scan(step, (rest, jnp.zeros_like(C)), jnp.arange(n))
    return F * scale[:, None]


def _inverse_cholesky(T: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """L^{-1} of T = L L^T by elimination on [T | I]; NaN where T is not positive definite."""
    n = T.shape[0]
    below = jnp.arange(n)

    def step(both, j):
        row = lax.dynamic_index_in_dim(both, j, axis=0, keepdims=False)
        pivot = row[j]
        multipliers = jnp.where(below > j, both[:, j] / pivot, 0.0)
        both = both - multipliers[:, None] * row
        return both.at[j].set(row / jnp.sqrt(pivot)), None

    both, _ = lax.scan(step, jnp.concatenate([T, jnp.eye(n, dtype=T.dtype)], axis=1), jnp.arange(n))
    return both[:, n:]


@traced_once
def whitener(T: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Lower-triangular W with W T W^T = I for a positive definite T (the inverse Cholesky factor)."""
    return _whitener(T)


@jax.custom_vjp
def _whitener(T: Float[Array, "n n"]) -> Float[Array, "n n"]:
    return _inverse_cholesky(T)


def _whitener_forward(T):
    W = _inverse_cholesky(T)
    return W, W


def _whitener_backward(W, W_bar):
    # dW = -Phi(W dT W^T) W with Phi = lower triangle, diagonal halved; its adjoint needs no solve.
    inner = jnp.tril(W_bar @ W.T)
    inner = inner - 0.5 * jnp.diag(jnp.diagonal(inner))
    T_bar = -W.T @ inner @ W
    return (0.5 * (T_bar + T_bar.T),)


_whitener.defvjp(_whitener_forward, _whitener_backward)


@traced_once
def inverse_root_near_identity(T: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """W with W T W^T = I up to O(||T - I||^4), for T that is the identity but for rounding."""
    X = T - jnp.eye(T.shape[0], dtype=T.dtype)
    X2 = X @ X
    return jnp.eye(T.shape[0], dtype=T.dtype) - 0.5 * X + 0.375 * X2 - 0.3125 * X2 @ X


@traced_once
def exp(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """The exponential of x <= 700, to rounding: x = k log 2 + r, e^x = 2^k 2^(r / log 2).

    On a CPU, XLA takes the exponential of doubles one by one; this is arithmetic alone, which it vectorises. Zero
    below -708, where normal doubles end.
    """
    return _exp(x)


@traced_once
def exp2(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """The same for 2^x, x <= 1000: cheaper, where exponents can be had to base two."""
    return _exp2(x)


@jax.custom_jvp
def _exp(x: Array) -> Array:
    if x.dtype != jnp.float64:
        return jnp.exp(x)
    k = lax.round(x * math.log2(math.e), lax.RoundingMethod.TO_NEAREST_EVEN)
    r = (x - k * _LOG_2_HIGH) - k * _LOG_2_LOW
    return jnp.where(x < -708.0, 0.0, _power_of_two(k, r * math.log2(math.e)))


@jax.custom_jvp
def _exp2(x: Array) -> Array:
    if x.dtype != jnp.float64:
        return jnp.exp2(x)
    k = lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
    return jnp.where(x < -1021.0, 0.0, _power_of_two(k, x - k))


@_exp.defjvp
def _exp_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    value = _exp(*primals)
    return value, value * tangents[0]


@_exp2.defjvp
def _exp2_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    value = _exp2(*primals)
    return value, math.log(2.0) * value * tangents[0]


def _power_of_two(k: Array, f: Array) -> Array:
    """2^(k + f) for whole k and -1/2 <= f <= 1/2."""
    # One fused multiply-add a term: other orders have shorter chains but more instructions, and a processor that works
    # on many values at once waits for none.
    series = jnp.full_like(f, _SERIES[-1])
    for c in _SERIES[-2::-1]:
        series = series * f + c
    # The sum has k in its last bits.
    bits = (lax.bitcast_convert_type(k + _WHOLE, jnp.int64) + 1023) << 52
    return series * lax.bitcast_convert_type(bits, jnp.float64)


_WHOLE = 1.5 * 2.0**52
# Log 2 in two parts, the first with so few bits that k times it is exact.
_LOG_2_HIGH, _LOG_2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
# 2^f on [-1/2, 1/2] within 1e-17: interpolation at Chebyshev's points, in 40 digits.
_SERIES = (
    1.0, 0.6931471805599453, 0.24022650695910158, 0.055504108664821625, 0.009618129107587256, 0.001333355814640647,
    0.00015403530463724353, 1.5252733841556773e-05, 1.3215432535912375e-06, 1.0178057087733941e-07,
    7.074194297288521e-09, 4.4558179083360645e-10,
)  # fmt: skip
