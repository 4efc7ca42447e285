"""Independent references: quadrature, grids, the paper's recipe. Nothing here imports the library."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def gauss_legendre(lower: float, upper: float, panels: int, order: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Composite Gauss-Legendre nodes and weights."""
    t, w = np.polynomial.legendre.leggauss(order)
    edges = np.linspace(lower, upper, panels + 1)
    half = 0.5 * np.diff(edges)[:, None]
    nodes = 0.5 * (edges[:-1] + edges[1:])[:, None] + half * t
    return nodes.ravel(), (half * w).ravel()


def tanh_sinh(lower: float, upper: float, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Double-exponential rule for integrands with end-point singularities."""
    s = np.linspace(-3.4, 3.4, count)
    u = 0.5 * np.pi * np.sinh(s)
    weight = 0.5 * np.pi * np.cosh(s) / np.cosh(u) ** 2 * (s[1] - s[0])
    # From the nearer end, so that nodes close to `lower` keep their digits.
    share = np.where(u < 0, np.exp(u) / (2 * np.cosh(u)), 1.0 - np.exp(-u) / (2 * np.cosh(u)))
    inside = (share > 0) & (share < 1)
    return (lower + (upper - lower) * share)[inside], (0.5 * (upper - lower) * weight)[inside]


def tensor(nodes: np.ndarray, weights: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """A tensor-product rule: points of shape (N^dim, dim) and weights of shape (N^dim,)."""
    points = np.stack(np.meshgrid(*[nodes] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    product = weights
    for _ in range(dim - 1):
        product = np.multiply.outer(product, weights)
    return points, product.ravel()


def finite_difference(function: Callable[[np.ndarray], float], at: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Central differences, entry by entry."""
    gradient = np.zeros_like(at)
    for index in np.ndindex(*at.shape):
        up, down = at.copy(), at.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (function(up) - function(down)) / (2 * step)
    return gradient


def assert_gradients(value: Callable[[list], float], leaves: list, gradients: list, atol: float) -> None:
    """Every leaf's gradient against central differences of the value, within 1e-5 relative."""
    for index, leaf in enumerate(leaves):

        def at(entries: np.ndarray, index: int = index) -> float:
            return float(value([*leaves[:index], entries, *leaves[index + 1 :]]))

        expected = finite_difference(at, np.asarray(leaf))
        np.testing.assert_allclose(gradients[index], expected, rtol=1e-5, atol=atol)


def dense_table(phi: np.ndarray, psi: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """E[(ij), (kl)] = int phi_i phi_j psi_k psi_l as an n^2 x m^2 matrix, from values at nodes."""
    n, m = phi.shape[1], psi.shape[1]
    left = (phi[:, :, None] * phi[:, None, :]).reshape(-1, n * n)
    right = (psi[:, :, None] * psi[:, None, :]).reshape(-1, m * m)
    return left.T @ (weights[:, None] * right)


def paper_recipe(Q: np.ndarray, E: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """The paper's section 5: for each positive real eigenvalue of diag(v^Q) E^T, scale Q and take R.

    Returns the feasible (eigenvalue, R) pairs, those with R positive definite, R of trace n.
    """
    n = Q.shape[0]
    values, vectors = np.linalg.eig(np.diag(Q.ravel()) @ E.T)
    found = []
    for value, vector in zip(values, vectors.T, strict=True):
        if abs(value.imag) > 1e-12 * abs(value) or value.real <= 0:
            continue
        R = vector.real.reshape(n, n)
        R = 0.5 * (R + R.T)
        if np.trace(R) == 0:
            continue
        R = R * n / np.trace(R)
        if np.linalg.eigvalsh(R)[0] > 0:
            found.append((value.real, R))
    return found
