"""Gaussian kernels on R^d with full covariance: f(y) = exp(-1/2 (y - mean)^T cov^{-1} (y - mean))."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, PRNGKeyArray

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import Quadrature, Signed, whitener
from sosmarkov.core.special import log_normal_between
from sosmarkov.core.stored import stored
from sosmarkov.factor.bases.base import Basis, Expansion, Terms
from sosmarkov.factor.bases.family import Family
from sosmarkov.factor.bases.full_table import (
    FullTheta,
    inverse,
    log_pair_table,
    marginal_products,
    projected_products,
)
from sosmarkov.factor.bases.gaussian import GaussianBasis


@stored()
class FullGaussianBasis(Basis):
    """Gaussian kernels, each with its own covariance matrix.

    Few well-oriented kernels do what many axis-aligned ones cannot in six dimensions and more.

    Args:
        mean: Centres, shape (n, d).
        covariance: Shape (n, d, d), symmetric positive definite. The square of a kernel is a
            Gaussian density of half this covariance.
    """

    family: ClassVar[str] = "gaussian-full"
    axis_aligned: ClassVar[bool] = False
    gaussian: ClassVar[bool] = True

    mean: Float[Array, "n d"]
    # Lower triangular B with precision B^T B, logarithms on its diagonal.
    raw_factor: Float[Array, "n d d"]

    def __init__(self, mean: ArrayLike, covariance: ArrayLike):
        self.mean = checks.parameter(mean, "mean", (None, None))
        n, d = self.mean.shape
        covariance = checks.parameter(covariance, "covariance", (n, d, d))
        self.raw_factor = _raw_factor(covariance)
        if checks.is_concrete(covariance):
            values = np.asarray(covariance)
            symmetric = np.allclose(values, np.swapaxes(values, -1, -2), rtol=1e-8, atol=0.0)
            if not (symmetric and np.all(np.isfinite(self.raw_factor))):
                raise ValueError("Expected symmetric positive definite matrices for covariance, got one that is not.")

    def interior_point(self) -> Float[Array, " d"]:
        """The first centre."""
        return self.mean[0]

    def inside(self, y: Float[Array, "... d"]) -> Bool[Array, ...]:
        """Everywhere."""
        return jnp.ones(y.shape[:-1], dtype=bool)

    @property
    def factor(self) -> Float[Array, "n d d"]:
        """B, lower triangular, precision = B^T B."""
        diagonal = jnp.exp(jnp.diagonal(self.raw_factor, axis1=-2, axis2=-1))
        return jnp.tril(self.raw_factor, -1) + diagonal[..., None] * jnp.eye(self.dim)[None]

    @property
    def covariance(self) -> Float[Array, "n d d"]:
        """Covariance matrices."""
        return _inverse(self.natural().precision)[0]

    def natural(self) -> FullTheta:
        """Precision matrix, mean and offset per function."""
        B = self.factor
        return FullTheta(jnp.swapaxes(B, -1, -2) @ B, self.mean, jnp.zeros(self.size))

    def log_norm(self) -> Float[Array, " n"]:
        """-1/2 log int f^2, from the diagonal of B."""
        half_log_det = jnp.sum(jnp.diagonal(self.raw_factor, axis1=-2, axis2=-1), axis=-1)
        return 0.5 * half_log_det - 0.25 * self.dim * jnp.log(jnp.pi)

    def multiply(self, left: FullTheta, right: FullTheta) -> FullTheta:
        """Precisions add; with S = P_l + P_r the offset loses (m_l - m_r)^T P_l S^-1 P_r (m_l - m_r) / 2."""
        precision = left.precision + right.precision
        apart = left.mean - right.mean
        by_left, by_right = _times(left.precision, apart), _times(right.precision, apart)
        step = _times(_inverse(precision)[0], by_left)
        return FullTheta(
            precision,
            right.mean + step,
            left.offset + right.offset - 0.5 * jnp.sum(step * by_right, axis=-1),
        )

    def log_abs(self, theta: FullTheta, y: Float[Array, " d"]) -> tuple[Array, Array]:
        """The exponent."""
        apart = lax.broadcast_to_rank(y, theta.mean.ndim) - theta.mean
        value = theta.offset - 0.5 * jnp.einsum("...i,...ij,...j->...", apart, theta.precision, apart)
        return value, jnp.ones(())

    def log_integral(self, theta: FullTheta, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """Offset + d/2 log 2 pi - 1/2 log det precision; over an interval in one dimension."""
        if upper is not None:
            if self.dim > 1:
                raise ValueError(_BOXLESS)
            root, mean = jnp.sqrt(theta.precision[..., 0, 0]), theta.mean[..., 0]
            low = None if lower is None else (lower[0] - mean) * root
            share = log_normal_between(low, (upper[0] - mean) * root)
            return self.log_integral(theta, None, None)[0] + share, jnp.ones(())
        _, log_det = _inverse(theta.precision)
        value = theta.offset + 0.5 * (self.dim * jnp.log(2.0 * jnp.pi) - log_det)
        return value, jnp.ones(())

    def log_pair_table(
        self, left: Terms, right: Terms, lower: Array | None, upper: Array | None
    ) -> tuple[Array, Array]:
        """See `Basis.log_pair_table`."""
        if lower is not None or upper is not None:
            both = self.outer(left, right)
            return self.log_integral(both.theta, lower, upper)[0] + both.log_scale, jnp.ones(())
        scale = left.log_scale[:, None] + right.log_scale[None]
        return scale + log_pair_table(left.theta, right.theta), jnp.ones(())

    def contract_powers(
        self, sum_: Expansion, powers: np.ndarray, observable: Quadrature | None = None
    ) -> Float[Array, " k"]:
        """See `Basis.contract_powers`: moments of one normal per pair of terms."""
        _require_whole(sum_)
        mass, mean, covariance = self._pairs(sum_.left, sum_.right, observable)
        mass = sum_.weights.reshape(-1) * mass
        if powers.sum(axis=1).max() <= 2:
            second = jnp.einsum("p,pij->ij", mass, covariance) + jnp.einsum("p,pi,pj->ij", mass, mean, mean)
            tensors = [jnp.sum(mass), mass @ mean, second]
            return jnp.stack([tensors[len(row)][tuple(row)] for row in map(_indices, powers)])
        return jnp.stack([mass @ _normal_moment(mean, covariance, _indices(row)) for row in powers])

    def power_table(
        self, left: Terms, right: Terms, coordinate: int, observable: Quadrature | None = None
    ) -> Float[Array, "p q"]:
        """See `Basis.power_table`."""
        mass, mean, _ = self._pairs(left, right, observable)
        return (mass * mean[:, coordinate]).reshape(left.log_scale.shape[0], -1)

    def _pairs(self, left: Terms, right: Terms, observable: Quadrature | None) -> tuple[Array, Array, Array]:
        """Integral, mean and covariance of every product of two terms."""
        if observable is not None:
            raise ValueError(
                "Expected an affine transform with a full-covariance basis: moments of other"
                " transforms have no closed form there. Use basis 'gaussian', or average samples."
            )
        both = self.pairs(left, right)
        log_mass, _ = self.log_integral(both.theta, None, None)
        return jnp.exp(log_mass + both.log_scale), both.theta.mean, _inverse(both.theta.precision)[0]

    def project(
        self, left: Terms, right: Terms, H: Float[Array, "k d"]
    ) -> tuple[Float[Array, "k p q"], dict[tuple[int, int], Float[Array, "p q"]]]:
        """See `Basis.project`."""
        mean, covariance = projected_products(left.theta, right.theta, H)
        entries = {(i, j): covariance[..., i, j] for i in range(len(H)) for j in range(i + 1)}
        return jnp.moveaxis(mean, -1, 0), entries

    def marginalise(self, sum_: Expansion, kept: tuple[int, ...]) -> Expansion:
        """See `Basis.marginalise`: every product of two terms leaves its own Gaussian."""
        _require_whole(sum_)
        left, right = sum_.left, sum_.right
        found = marginal_products(left.theta, right.theta, kept)
        theta = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found)
        log_scale = (left.log_scale[:, None] + right.log_scale[None]).reshape(-1)
        dim = len(kept)
        unit = FullTheta(jnp.zeros((1, dim, dim)), jnp.zeros((1, dim)), jnp.zeros(1))
        both = Terms(theta, log_scale), Terms(unit, jnp.zeros(1))
        return Expansion(self.restrict(kept), *both, sum_.weights.reshape(-1, 1))

    @staticmethod
    def inverse(precision: Float[Array, "*b d d"]) -> Float[Array, "*b d d"]:
        """Covariances of precisions, without LAPACK."""
        return _inverse(precision)[0]

    def slice(self, fixed: tuple[int, ...], values: Float[Array, " f"]) -> tuple[FullGaussianBasis, Signed]:
        """See `Basis.slice`: precision P_kk, mean moved by -P_kk^-1 P_kf (values - mean_f)."""
        f = np.asarray(fixed)
        k = np.asarray([c for c in range(self.dim) if c not in fixed])
        precision = self.natural().precision
        P_kk, P_kf, P_ff = (precision[:, a[:, None], b] for a, b in ((k, k), (k, f), (f, f)))
        away = values[None] - self.mean[:, f]
        push = _times(P_kf, away)
        covariance, _ = _inverse(P_kk)
        step = _times(covariance, push)
        basis = FullGaussianBasis(self.mean[:, k] - step, covariance)
        rest = jnp.sum(away * _times(P_ff, away), axis=-1) - jnp.sum(push * step, axis=-1)
        log_abs = self.log_norm() - 0.5 * rest - basis.log_norm()
        return basis, Signed(log_abs, jnp.ones_like(log_abs))

    def rebuilt(self, theta: FullTheta) -> tuple[FullGaussianBasis, Array]:
        """Kernels with these precisions and means."""
        return FullGaussianBasis(theta.mean, _inverse(theta.precision)[0]), theta.offset

    def power(self, theta: FullTheta, exponent: float) -> FullTheta:
        """Precision and offset scale."""
        return FullTheta(exponent * theta.precision, theta.mean, exponent * theta.offset)

    def sample_term(self, key: PRNGKeyArray, theta: FullTheta) -> Float[Array, " d"]:
        """A normal draw."""
        noise = jax.random.normal(key, theta.mean.shape)
        return theta.mean + whitener(theta.precision).T @ noise

    def broad(self, width: float) -> tuple[float, Array]:
        """One more kernel at the origin with this standard deviation in every direction."""
        return 0.0, -jnp.log(width) * jnp.eye(self.dim)

    def restrict(self, kept: tuple[int, ...]) -> FullGaussianBasis:
        """Kernels with the covariance of some coordinates (marginal kernels, not slices)."""
        where = np.asarray(kept)
        return FullGaussianBasis(self.mean[:, where], self.covariance[:, where[:, None], where])

    @classmethod
    def pushed(cls, basis: GaussianBasis | FullGaussianBasis, matrix: Array, offset: Array) -> FullGaussianBasis:
        """The kernels of a Gaussian basis in x = matrix y + offset (up to their scale)."""
        return cls(basis.mean @ matrix.T + offset[None], matrix @ basis.covariance @ matrix.T)


def _indices(row: np.ndarray) -> list[int]:
    """Coordinates, each as often as its power says."""
    return [int(c) for c in np.repeat(np.arange(len(row)), row)]


def _normal_moment(mean: Array, covariance: Array, indices: list[int]) -> Array:
    """E[x_a x_b ...] of normals: by Stein's lemma E[x_a X] = m_a E[X] + sum_b S_ab E[X without x_b]."""
    if not indices:
        return jnp.ones(mean.shape[0])
    first, *others = indices
    total = mean[:, first] * _normal_moment(mean, covariance, others)
    for position, other in enumerate(others):
        without = others[:position] + others[position + 1 :]
        total = total + covariance[:, first, other] * _normal_moment(mean, covariance, without)
    return total


@jax.jit
def _raw_factor(covariance: Float[Array, "n d d"]) -> Float[Array, "n d d"]:
    """B with B covariance B^T = I, lower triangular, logarithms on its diagonal."""
    factor = jax.vmap(whitener)(covariance)
    diagonal = jnp.diagonal(factor, axis1=-2, axis2=-1)
    return jnp.tril(factor, -1) + jnp.log(diagonal)[..., None] * jnp.eye(covariance.shape[-1])[None]


def _inverse(A: Float[Array, "*b d d"]) -> tuple[Float[Array, "*b d d"], Float[Array, "*b"]]:
    inverted, log_det = inverse(jnp.moveaxis(A, (-2, -1), (0, 1)))
    return jnp.moveaxis(inverted, (0, 1), (-2, -1)), log_det


def _times(A: Array, v: Array) -> Array:
    return jnp.sum(A * v[..., None, :], axis=-1)


_BOXLESS = (
    "Expected an axis-aligned basis for box integrals: full-covariance Gaussians have none in"
    " closed form. Use basis 'gaussian', or integrate samples."
)


def _require_whole(sum_: Expansion) -> None:
    if sum_.lower is not None or sum_.upper is not None:
        raise ValueError(_BOXLESS)


def _local(means: np.ndarray, covariances: np.ndarray, power: int) -> FullGaussianBasis:
    """The covariance times the power."""
    return _made(jnp.asarray(means), jnp.asarray(power * covariances))


_made = eqx.filter_jit(FullGaussianBasis)


def _most(dim: int, pairs: int) -> int:
    """Up to four coordinates so many that a laptop trains them in a minute or two."""
    if dim <= 4:
        return 20 if dim <= 2 else 18
    return 24 if pairs < 40_000 else 32


FAMILY = Family(FullGaussianBasis, "standardize", local=_local, full=True, most=_most)
