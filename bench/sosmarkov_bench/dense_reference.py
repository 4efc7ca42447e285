"""A plain dense reference, as the paper describes the method: every integral, every eigenvector.

All n^4 overlaps as an n^2 x n^2 matrix (log Gamma differences, no use of symmetry), R as an
eigenvector of the n^2 x n^2 matrix diag(v^Q) E, chosen among all of them; gradients of it by one dense
bordered solve. Beta basis. Nothing of the library's mathematics is used.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln


class Parameters(NamedTuple):
    """Exponents of both bases, each (n, d), and the coupling's parameters."""

    left: Array
    right: Array
    left_next: Array
    right_next: Array
    coupling: tuple[Array, ...]


def _log_integral(a: Array, b: Array) -> Array:
    return gammaln(a + 1.0) + gammaln(b + 1.0) - gammaln(a + b + 2.0)


def _log_norm(a: Array, b: Array) -> Array:
    return -0.5 * jnp.sum(_log_integral(2.0 * a, 2.0 * b), axis=-1)


def _four(x: Array, y: Array) -> Array:
    return x[:, None, None, None] + x[None, :, None, None] + y[None, None, :, None] + y[None, None, None, :]


def table(p: Parameters) -> Array:
    """E[(ij), (kl)] as an n^2 x n^2 matrix."""
    n = p.left.shape[0]
    log_e = jnp.sum(_log_integral(_four(p.left, p.left_next), _four(p.right, p.right_next)), axis=-1)
    scale = _four(_log_norm(p.left, p.right), _log_norm(p.left_next, p.right_next))
    return jnp.exp(log_e + scale).reshape(n * n, n * n)


def table_linear(p: Parameters) -> Array:
    """Omega[i, j], n x n."""
    log_e = jnp.sum(_log_integral(p.left[:, None] + p.left_next[None], p.right[:, None] + p.right_next[None]), axis=-1)
    return jnp.exp(log_e + _log_norm(p.left, p.right)[:, None] + _log_norm(p.left_next, p.right_next)[None])


@jax.custom_vjp
def eigenvector(M: Array) -> tuple[Array, Array]:
    """The largest positive real eigenvalue of M and its eigenvector, of unit first norm."""
    values, vectors = jnp.linalg.eig(M)
    real = jnp.where(jnp.abs(values.imag) < 1e-9 * jnp.abs(values), values.real, -jnp.inf)
    best = jnp.argmax(real)
    v = vectors[:, best].real
    return real[best], v / jnp.sum(v)


def _forward(M: Array):
    value, v = eigenvector(M)
    return (value, v), (M, value, v)


def _backward(saved, bars):
    M, value, v = saved
    n = M.shape[0]
    ones = jnp.ones((1, n))
    bordered = jnp.block([[M - value * jnp.eye(n), -v[:, None]], [ones, jnp.zeros((1, 1))]])
    w = jnp.linalg.solve(bordered.T, jnp.concatenate([bars[1], bars[0][None]]))[:n]
    return (-jnp.outer(w, v),)


eigenvector.defvjp(_forward, _backward)


def normalise_paired(p: Parameters) -> tuple[Array, Array, Array]:
    """(E, R, Q scaled to eigenvalue one)."""
    (L,) = p.coupling
    n = L.shape[0]
    Q = L @ L.T
    E = table(p)
    value, v = eigenvector(Q.reshape(-1)[:, None] * E.T)
    return E, v.reshape(n, n), Q / value


def normalise_kraus(p: Parameters) -> tuple[Array, Array, Array]:
    """(E, A, K) with the QR of the stacked operators."""
    K, L_A = p.coupling
    n, m, rank = K.shape
    A = L_A @ L_A.T
    E = table(p)
    gram = (A.reshape(-1) @ E).reshape(m, m)
    stacked = jnp.einsum("nmr,mk->nkr", K, jnp.linalg.cholesky(gram)).reshape(n, m * rank)
    U = jnp.linalg.qr(stacked.T, mode="r")
    U = U * jnp.sign(jnp.diagonal(U))[:, None]  # a QR leaves the signs of U's rows open
    return E, A, jnp.einsum("an,nmr->amr", L_A @ jnp.linalg.inv(U.T), K)


def normalise_linear(p: Parameters) -> tuple[Array, Array, Array]:
    """(Omega, a, b)."""
    (a,) = p.coupling
    Omega = table_linear(p)
    return Omega, a, a / (a @ Omega)


NORMALISE = {"paired": normalise_paired, "kraus": normalise_kraus, "linear": normalise_linear}


def _functions(a: Array, b: Array, y: Array) -> Array:
    log_f = jnp.log(y) @ a.T + jnp.log1p(-y) @ b.T
    return jnp.exp(log_f + _log_norm(a, b)[None])


def loss(p: Parameters, y: Array, y_next: Array, coupling: str) -> Array:
    """Mean negative log-likelihood of transitions in model space."""
    _, A, core = NORMALISE[coupling](p)
    phi, phi_next = _functions(p.left, p.right, y), _functions(p.left, p.right, y_next)
    psi = _functions(p.left_next, p.right_next, y_next)
    if coupling == "linear":
        g, g_next, f = phi @ A, phi_next @ A, (phi * psi) @ core
    else:
        g, g_next = (jnp.einsum("xi,ij,xj->x", v, A, v) for v in (phi, phi_next))
        if coupling == "paired":
            f = jnp.einsum("xi,ij,xj->x", phi * psi, core, phi * psi)
        else:
            f = jnp.sum(jnp.einsum("xn,nmr,xm->xr", phi, core, psi) ** 2, axis=-1)
    return -jnp.mean(jnp.log(g_next) + jnp.log(f) - jnp.log(g))


def propagate(p: Parameters, start: Array, steps: int, coupling: str) -> Array:
    """Coefficients of h after each step, normalisation included."""
    E, _, core = NORMALISE[coupling](p)
    found = []
    C = start
    for _ in range(steps):
        if coupling == "linear":
            C = core * (E @ C)
        else:
            P = (E @ C.reshape(-1)).reshape(p.left.shape[0], -1)
            C = core * P if coupling == "paired" else jnp.einsum("nmr,nl,lkr->mk", core, P, core)
        found.append(C)
    return jnp.stack(found)
