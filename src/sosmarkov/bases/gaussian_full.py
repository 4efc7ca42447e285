"""Gaussian kernels on R^d with full covariance: f(y) = exp(-1/2 (y - mean)^T cov^{-1} (y - mean))."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, PRNGKeyArray

from sosmarkov import checks
from sosmarkov.bases.base import Basis, Terms
from sosmarkov.bases.gaussian import GaussianBasis
from sosmarkov.numerics import Quadrature


class FullTheta(NamedTuple):
    """exp(offset - 1/2 (y - mean)^T precision (y - mean)), in d dimensions at once."""

    precision: Float[Array, "*b d d"]
    mean: Float[Array, "*b d"]
    offset: Float[Array, "*b"]


class FullGaussianBasis(Basis):
    """Gaussian kernels, each with its own covariance matrix.

    Few well-oriented kernels do what many axis-aligned ones cannot in six dimensions and more.

    Args:
        mean: Centres, shape (n, d).
        covariance: Shape (n, d, d), symmetric positive definite. The square of a kernel is a
            Gaussian density of half this covariance.
    """

    family: ClassVar[str] = "gaussian-full"

    mean: Float[Array, "n d"]
    # Lower triangle of the precision's Cholesky factor, logarithms on the diagonal.
    raw_factor: Float[Array, "n d d"]

    def __init__(self, mean: ArrayLike, covariance: ArrayLike):
        self.mean = checks.parameter(mean, "mean", (None, None))
        n, d = self.mean.shape
        covariance = checks.parameter(covariance, "covariance", (n, d, d))
        inverse = _triangular_inverse(cholesky(covariance))
        precision_factor = cholesky(jnp.swapaxes(inverse, -1, -2) @ inverse)
        if checks.is_concrete(covariance):
            symmetric = jnp.allclose(covariance, jnp.swapaxes(covariance, -1, -2), rtol=1e-8, atol=0.0)
            if not bool(symmetric & jnp.all(jnp.isfinite(precision_factor))):
                raise ValueError(
                    "Expected symmetric positive definite matrices for covariance, got one that is not."
                )
        diagonal = jnp.diagonal(precision_factor, axis1=-2, axis2=-1)
        self.raw_factor = jnp.tril(precision_factor, -1) + jnp.log(diagonal)[..., None] * jnp.eye(d)

    @property
    def size(self) -> int:
        """Number of functions n."""
        return self.mean.shape[0]

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return self.mean.shape[1]

    @property
    def lower(self) -> Float[Array, " d"]:
        """-inf in every coordinate."""
        return jnp.full(self.dim, -jnp.inf)

    @property
    def upper(self) -> Float[Array, " d"]:
        """Inf in every coordinate."""
        return jnp.full(self.dim, jnp.inf)

    def interior_point(self) -> Float[Array, " d"]:
        """The first centre."""
        return self.mean[0]

    def inside(self, y: Float[Array, "... d"]) -> Bool[Array, ...]:
        """Everywhere."""
        return jnp.ones(y.shape[:-1], dtype=bool)

    @property
    def factor(self) -> Float[Array, "n d d"]:
        """B, lower triangular, precision = B B^T."""
        diagonal = jnp.exp(jnp.diagonal(self.raw_factor, axis1=-2, axis2=-1))
        return jnp.tril(self.raw_factor, -1) + diagonal[..., None] * jnp.eye(self.dim)

    @property
    def covariance(self) -> Float[Array, "n d d"]:
        """Covariance matrices."""
        inverse = _triangular_inverse(self.factor)
        return jnp.swapaxes(inverse, -1, -2) @ inverse

    def natural(self) -> FullTheta:
        """Precision matrix, mean and offset per function."""
        B = self.factor
        return FullTheta(B @ jnp.swapaxes(B, -1, -2), self.mean, jnp.zeros(self.size))

    def multiply(self, left: FullTheta, right: FullTheta) -> FullTheta:
        """Precisions add; with S = P_l + P_r the offset loses (m_l - m_r)^T P_l S^-1 P_r (m_l - m_r) / 2."""
        precision = left.precision + right.precision
        L = cholesky(precision)
        apart = left.mean - right.mean
        by_left = _forward_solve(L, _times(left.precision, apart))
        by_right = _forward_solve(L, _times(right.precision, apart))
        return FullTheta(
            precision,
            right.mean + _backward_solve(L, by_left),
            left.offset + right.offset - 0.5 * jnp.sum(by_left * by_right, axis=-1),
        )

    def log_abs(self, theta: FullTheta, y: Float[Array, " d"]) -> tuple[Array, Array]:
        """The exponent."""
        apart = y - theta.mean
        value = theta.offset - 0.5 * jnp.sum(apart * _times(theta.precision, apart), axis=-1)
        return value, jnp.ones_like(value)

    def log_integral(self, theta: FullTheta, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """Offset + d/2 log 2 pi - 1/2 log det precision."""
        if lower is not None or upper is not None:
            raise ValueError(
                "Expected an axis-aligned basis for box integrals: full-covariance Gaussians have none in"
                " closed form. Use basis 'gaussian', or integrate samples."
            )
        L = cholesky(theta.precision)
        half_log_det = jnp.sum(jnp.log(jnp.diagonal(L, axis1=-2, axis2=-1)), axis=-1)
        value = theta.offset + 0.5 * self.dim * jnp.log(2.0 * jnp.pi) - half_log_det
        return value, jnp.ones_like(value)

    def _products(self, left: Terms, right: Terms) -> Terms:
        """All P x Q products, as one group of terms."""
        expanded = jax.tree.map(lambda leaf: leaf[:, None], left), jax.tree.map(lambda leaf: leaf[None], right)
        theta = self.multiply(expanded[0].theta, expanded[1].theta)
        both = Terms(theta, expanded[0].log_scale + expanded[1].log_scale)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), both)

    def contract_moments(
        self,
        left: Terms,
        right: Terms,
        weights: Float[Array, "p q"],
        observable: Quadrature | None = None,
    ) -> tuple[Array, Array]:
        """See `Basis.contract_moments`."""
        if observable is not None:
            raise ValueError(
                "Expected an affine transform with a full-covariance basis: moments of other"
                " transforms have no closed form there. Use basis 'gaussian', or average samples."
            )
        both = self._products(left, right)
        log_mass, _ = self.log_integral(both.theta, None, None)
        mass = weights.reshape(-1) * jnp.exp(log_mass + both.log_scale)
        inverse = _triangular_inverse(cholesky(both.theta.precision))
        mean = both.theta.mean
        second = jnp.einsum("p,pei,pej->ij", mass, inverse, inverse) + jnp.einsum("p,pi,pj->ij", mass, mean, mean)
        return mass @ mean, second

    def marginalise(
        self, left: Terms, right: Terms, weights: Float[Array, "p q"], kept: tuple[int, ...]
    ) -> tuple[Terms, Terms, Array]:
        """See `Basis.marginalise`: every product of two terms leaves its own Gaussian."""
        both = self._products(left, right)
        dropped = [c for c in range(self.dim) if c not in kept]
        order = np.array(dropped + list(kept), dtype=int)
        L = cholesky(both.theta.precision[..., order[:, None], order])
        # With the dropped coordinates first, the trailing block of L factors their Schur complement.
        k = len(dropped)
        trailing = L[..., k:, k:]
        log_dropped = 0.5 * k * jnp.log(2.0 * jnp.pi) - jnp.sum(
            jnp.log(jnp.diagonal(L, axis1=-2, axis2=-1)[..., :k]), axis=-1
        )
        theta = FullTheta(
            trailing @ jnp.swapaxes(trailing, -1, -2),
            both.theta.mean[..., order[k:]],
            both.theta.offset + log_dropped,
        )
        dim = len(kept)
        unit = FullTheta(jnp.zeros((1, dim, dim)), jnp.zeros((1, dim)), jnp.zeros(1))
        return Terms(theta, both.log_scale), Terms(unit, jnp.zeros(1)), weights.reshape(-1, 1)

    def envelope(self) -> tuple[Basis, Terms]:
        """See `Basis.envelope`."""
        return self, self.terms(1)

    def sample_term(self, key: PRNGKeyArray, theta: FullTheta) -> Float[Array, " d"]:
        """A normal draw."""
        noise = jax.random.normal(key, theta.mean.shape)
        return theta.mean + _backward_solve(cholesky(theta.precision), noise)

    def restrict(self, kept: tuple[int, ...]) -> FullGaussianBasis:
        """Kernels with the covariance of some coordinates (marginal kernels, not slices)."""
        where = np.asarray(kept)
        return FullGaussianBasis(self.mean[:, where], self.covariance[:, where[:, None], where])

    @classmethod
    def pushed(cls, basis: GaussianBasis | FullGaussianBasis, matrix: Array, offset: Array) -> FullGaussianBasis:
        """The kernels of a Gaussian basis in x = matrix y + offset (up to their scale)."""
        if isinstance(basis, GaussianBasis):
            covariance = jnp.exp(2.0 * basis.log_std)[..., None] * jnp.eye(basis.dim)
        else:
            covariance = basis.covariance
        return cls(basis.mean @ matrix.T + offset, matrix @ covariance @ matrix.T)


def cholesky(A: Float[Array, "*b d d"]) -> Float[Array, "*b d d"]:
    """Cholesky factor of many small matrices, unrolled over columns and vectorised over the batch."""
    d = A.shape[-1]
    columns = []
    for j in range(d):
        column = A[..., j:, j]
        for earlier in columns:
            offset = j - (d - earlier.shape[-1])
            column = column - earlier[..., offset:] * earlier[..., offset, None]
        columns.append(column / jnp.sqrt(column[..., :1]))
    padded = [jnp.pad(c, [(0, 0)] * (c.ndim - 1) + [(d - c.shape[-1], 0)]) for c in columns]
    return jnp.stack(padded, axis=-1)


def _times(A: Array, v: Array) -> Array:
    return jnp.sum(A * v[..., None, :], axis=-1)


def _forward_solve(L: Array, b: Array) -> Array:
    """L^{-1} b, unrolled."""
    solution = []
    for j in range(L.shape[-1]):
        value = b[..., j]
        for i, earlier in enumerate(solution):
            value = value - L[..., j, i] * earlier
        solution.append(value / L[..., j, j])
    return jnp.stack(solution, axis=-1)


def _backward_solve(L: Array, b: Array) -> Array:
    """L^{-T} b, unrolled."""
    d = L.shape[-1]
    solution: list[Array] = [b[..., 0]] * d
    for j in reversed(range(d)):
        value = b[..., j]
        for i in range(j + 1, d):
            value = value - L[..., i, j] * solution[i]
        solution[j] = value / L[..., j, j]
    return jnp.stack(solution, axis=-1)


def _triangular_inverse(L: Array) -> Array:
    """L^{-1} of lower-triangular matrices."""
    d = L.shape[-1]
    identity = jnp.broadcast_to(jnp.eye(d), L.shape)
    return jnp.stack([_forward_solve(L, identity[..., :, j]) for j in range(d)], axis=-1)

