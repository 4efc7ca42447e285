"""Beta-PDFs on (0, 1)^d: f(y) = prod_c y_c^(alpha_c - 1) (1 - y_c)^(beta_c - 1)."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, PRNGKeyArray

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.special import log_beta, log_beta_between, log_one_minus
from sosmarkov.core.stored import stored
from sosmarkov.factor.bases.family import Family, inner
from sosmarkov.factor.bases.parametrise import LEAST_EXPONENT, above, unbounded
from sosmarkov.factor.bases.product import ProductBasis, positive


class BetaTheta(NamedTuple):
    """y^left (1 - y)^right per coordinate."""

    left: Array
    right: Array


@stored()
class BetaBasis(ProductBasis):
    """Products of Beta-PDFs.

    Exponents stay above -1/5 by parametrisation, so that products of five functions are integrable.

    Args:
        alpha: Shape (n, d), above 4/5.
        beta: Shape (n, d), above 4/5.
    """

    family: ClassVar[str] = "beta"

    raw_left: Float[Array, "n d"]
    raw_right: Float[Array, "n d"]

    def __init__(self, alpha: ArrayLike, beta: ArrayLike):
        alpha = checks.parameter(alpha, "alpha", (None, None))
        beta = checks.parameter(beta, "beta", alpha.shape)
        self.raw_left = unbounded(alpha - 1.0, LEAST_EXPONENT, "alpha - 1")
        self.raw_right = unbounded(beta - 1.0, LEAST_EXPONENT, "beta - 1")

    @property
    def alpha(self) -> Float[Array, "n d"]:
        """First shape parameters."""
        return 1.0 + above(self.raw_left, LEAST_EXPONENT)

    @property
    def beta(self) -> Float[Array, "n d"]:
        """Second shape parameters."""
        return 1.0 + above(self.raw_right, LEAST_EXPONENT)

    @property
    def lower(self) -> np.ndarray:
        """Zero in every coordinate."""
        return np.zeros(self.dim)

    @property
    def upper(self) -> np.ndarray:
        """One in every coordinate."""
        return np.ones(self.dim)

    def interior_point(self) -> Float[Array, " d"]:
        """The middle of the unit box."""
        return jnp.full(self.dim, 0.5)

    def inside(self, y: Float[Array, "... d"]) -> Bool[Array, ...]:
        """The open unit box: an exponent may be singular or zero at the ends."""
        return jnp.all((y > 0) & (y < 1), axis=-1)

    def natural(self) -> BetaTheta:
        """Exponents of y and of 1 - y."""
        return BetaTheta(above(self.raw_left, LEAST_EXPONENT), above(self.raw_right, LEAST_EXPONENT))

    def multiply(self, left: BetaTheta, right: BetaTheta) -> BetaTheta:
        """Exponents add."""
        return BetaTheta(left.left + right.left, left.right + right.right)

    def log_abs_1d(self, theta: BetaTheta, y: Array) -> tuple[Array, Array]:
        """Left log y + right log(1 - y)."""
        y = lax.broadcast_to_rank(y, theta.left.ndim)
        return positive(theta.left * jnp.log(y) + theta.right * log_one_minus(y))

    def log_integral_1d(self, theta: BetaTheta, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """log B(left + 1, right + 1), times the incomplete-beta share between the bounds."""
        a, b = theta.left + 1.0, theta.right + 1.0
        whole = log_beta(a, b)
        if lower is None or upper is None:
            return positive(whole)
        low, high = (lax.broadcast_to_rank(end, a.ndim) for end in (lower, upper))
        return positive(whole + log_beta_between(a, b, low, high))

    def log_moment_1d(
        self, theta: BetaTheta, power: int, lower: Array | None, upper: Array | None
    ) -> tuple[Array, Array]:
        """y^power raises the first exponent."""
        return self.log_integral_1d(BetaTheta(theta.left + power, theta.right), lower, upper)

    def sample_1d(self, key: PRNGKeyArray, theta: BetaTheta) -> Float[Array, " d"]:
        """A Beta draw."""
        return jax.random.beta(key, theta.left + 1.0, theta.right + 1.0)

    def broad(self, width: float) -> tuple[Array, Array]:
        """The constant, alpha = beta = 1; a bounded domain needs no width."""
        zero = unbounded(jnp.zeros(()), LEAST_EXPONENT, "exponent")
        return zero, zero

    def rebuilt(self, theta: BetaTheta) -> tuple[BetaBasis, Array]:
        """Functions with these exponents."""
        basis = BetaBasis(1.0 + theta.left, 1.0 + theta.right)
        return basis, jnp.zeros(theta.left.shape[0])

    def power(self, theta: BetaTheta, exponent: float) -> BetaTheta:
        """Exponents scale."""
        return BetaTheta(exponent * theta.left, exponent * theta.right)


def _local(means: np.ndarray, covariances: np.ndarray, power: int) -> BetaBasis:
    """The Beta density of the same mean and variance, exponents divided by the power, none below zero."""
    means = inner(means)
    count = means * (1.0 - means) / covariances - 1.0
    left, right = (np.maximum(side * count - 1.0, 0.0) / power for side in (means, 1.0 - means))
    return BetaBasis(1.0 + left, 1.0 + right)


FAMILY = Family(BetaBasis, "gaussian_cdf", local=_local)
