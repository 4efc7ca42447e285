"""Gaussian kernels on R^d, axis-aligned: f(y) = exp(-1/2 sum_c ((y_c - mean_c) / std_c)^2)."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.special import log_normal_between
from sosmarkov.core.stored import stored
from sosmarkov.factor.bases.base import Terms
from sosmarkov.factor.bases.family import Family
from sosmarkov.factor.bases.product import ProductBasis, log_and_sign, positive, shifted_moment


class GaussianTheta(NamedTuple):
    """exp(offset - 1/2 precision (y - mean)^2) per coordinate.

    Kept centred: natural parameters (precision, precision * mean) would add up more simply, and
    lose digits to cancellation when means are many widths from the origin.
    """

    precision: Array
    mean: Array
    offset: Array


@stored()
class GaussianBasis(ProductBasis):
    """Axis-aligned Gaussian kernels.

    Args:
        mean: Centres, shape (n, d).
        std: Widths per coordinate, shape (n, d), positive. The square of a kernel is a Gaussian
            density of standard deviation std / sqrt(2).
    """

    family: ClassVar[str] = "gaussian"
    gaussian: ClassVar[bool] = True

    mean: Float[Array, "n d"]
    log_std: Float[Array, "n d"]

    def __init__(self, mean: ArrayLike, std: ArrayLike):
        self.mean = checks.parameter(mean, "mean", (None, None))
        std = checks.parameter(std, "std", self.mean.shape)
        checks.require_positive(std, "std")
        self.log_std = jnp.log(std)

    def interior_point(self) -> Float[Array, " d"]:
        """The first centre."""
        return self.mean[0]

    @property
    def covariance(self) -> Float[Array, "n d d"]:
        """Covariance matrices, diagonal."""
        return jnp.exp(2.0 * self.log_std)[..., None] * jnp.eye(self.dim)[None]

    def natural(self) -> GaussianTheta:
        """Precision, mean and offset per function and coordinate."""
        return GaussianTheta(jnp.exp(-2.0 * self.log_std), self.mean, jnp.zeros_like(self.mean))

    def multiply(self, left: GaussianTheta, right: GaussianTheta) -> GaussianTheta:
        """Precisions add; the mean is their weighted mean; distance between means costs offset."""
        precision = left.precision + right.precision
        share = left.precision / precision
        apart = left.mean - right.mean
        return GaussianTheta(
            precision,
            right.mean + share * apart,
            left.offset + right.offset - 0.5 * share * right.precision * apart**2,
        )

    def log_abs_1d(self, theta: GaussianTheta, y: Array) -> tuple[Array, Array]:
        """The exponent."""
        y = lax.broadcast_to_rank(y, theta.mean.ndim)
        return positive(theta.offset - 0.5 * theta.precision * (y - theta.mean) ** 2)

    def log_integral_1d(self, theta: GaussianTheta, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """Offset + log sqrt(2 pi / precision) + log of the normal probability between the bounds."""
        whole = theta.offset + 0.5 * jnp.log(2.0 * jnp.pi / theta.precision)
        if upper is None:
            return positive(whole)
        root = jnp.sqrt(theta.precision)
        low = None if lower is None else (lax.broadcast_to_rank(lower, root.ndim) - theta.mean) * root
        share = log_normal_between(low, (lax.broadcast_to_rank(upper, root.ndim) - theta.mean) * root)
        return positive(whole + share)

    def log_moment_1d(
        self, theta: GaussianTheta, power: int, lower: Array | None, upper: Array | None
    ) -> tuple[Array, Array]:
        """E[(mean + std z)^power] times the integral, z standard normal, between the bounds where there are any."""
        std = 1.0 / jnp.sqrt(theta.precision)
        standard = _standard_moments(power)
        if lower is not None and upper is not None:
            low, high = ((lax.broadcast_to_rank(end, std.ndim) - theta.mean) / std for end in (lower, upper))
            standard = _truncated_moments(low, high, power)
        log_abs, sign = log_and_sign(shifted_moment(theta.mean, std, standard))
        return self.log_integral_1d(theta, lower, upper)[0] + log_abs, sign

    def project(
        self, left: Terms, right: Terms, H: Float[Array, "k d"]
    ) -> tuple[Float[Array, "k p q"], dict[tuple[int, int], Float[Array, "p q"]]]:
        """See `Basis.project`: rows of H that share no coordinate."""
        theta = self.outer(left, right).theta
        variances = {(i, i): jnp.sum((row**2)[None, None] / theta.precision, axis=-1) for i, row in enumerate(H)}
        return jnp.moveaxis(theta.mean @ H.T, -1, 0), variances

    def sample_1d(self, key: PRNGKeyArray, theta: GaussianTheta) -> Float[Array, " d"]:
        """A normal draw."""
        return theta.mean + jax.random.normal(key, theta.mean.shape) / jnp.sqrt(theta.precision)

    def broad(self, width: float) -> tuple[float, Array]:
        """One more kernel at the origin with this standard deviation in every coordinate."""
        return 0.0, jnp.log(width)

    def rebuilt(self, theta: GaussianTheta) -> tuple[GaussianBasis, Array]:
        """Kernels with these precisions and means."""
        basis = eqx.tree_at(lambda b: (b.mean, b.log_std), self, (theta.mean, -0.5 * jnp.log(theta.precision)))
        return basis, jnp.sum(theta.offset, axis=-1)

    def power(self, theta: GaussianTheta, exponent: float) -> GaussianTheta:
        """Precision and offset scale."""
        return GaussianTheta(exponent * theta.precision, theta.mean, exponent * theta.offset)


def _standard_moments(power: int) -> list[Array]:
    """E[z^j] for j = 0, ..., power of a standard normal z."""
    return [jnp.asarray(float(math.prod(range(1, j, 2))) if j % 2 == 0 else 0.0) for j in range(power + 1)]


def _truncated_moments(a: Array, b: Array, power: int) -> list[Array]:
    """E[z^j | a < z < b]: by parts, E_j = (j - 1) E_(j-2) + a^(j-1) r(a) - b^(j-1) r(b), r the density at an end."""
    log_share = log_normal_between(a, b)

    def end(t: Array) -> tuple[Array, Array]:
        finite = jnp.isfinite(t)
        t = jnp.where(finite, t, 0.0)
        return t, jnp.where(finite, jnp.exp(-0.5 * t**2 - 0.5 * math.log(2.0 * math.pi) - log_share), 0.0)

    (a, at_a), (b, at_b) = end(a), end(b)
    found = [jnp.ones_like(log_share)]
    for j in range(1, power + 1):
        before = (j - 1) * found[j - 2] if j > 1 else 0.0
        found.append(before + a ** (j - 1) * at_a - b ** (j - 1) * at_b)
    return found


def local(means: np.ndarray, covariances: np.ndarray, power: int) -> GaussianBasis:
    """The variance times the power."""
    return GaussianBasis(means, np.sqrt(power * covariances))


FAMILY = Family(GaussianBasis, "standardize", local=local, most=lambda dim, pairs: 36)
