"""Monomials with real exponents on a box of non-negative numbers: f(y) = prod_c y_c^exponent_c."""

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
from sosmarkov.core.stored import require, stored
from sosmarkov.factor.bases.exponential import exponential_log_integral, sample_exponential
from sosmarkov.factor.bases.family import Family, inner, levels
from sosmarkov.factor.bases.interval import IntervalBasis, interval_ends, sound_ends
from sosmarkov.factor.bases.parametrise import LEAST_EXPONENT, above, unbounded
from sosmarkov.factor.bases.product import positive


def _sound(basis: MonomialBasis) -> None:
    sound_ends(basis)
    require(min(basis.ends[0]) >= 0, "monomials on an interval from zero upward")


@stored("raw_exponent", "ends", check=_sound)
class MonomialBasis(IntervalBasis):
    """Real-exponent monomials.

    Exponents stay above -1/5 by parametrisation, so that products of five functions are integrable
    down to zero.

    Args:
        exponent: Shape (n, d), above -1/5.
        lower: Lower end of the domain, zero or more; one number or one per coordinate.
        upper: Upper end, above lower.
    """

    family: ClassVar[str] = "monomial"

    raw_exponent: Float[Array, "n d"]
    ends: tuple[tuple[float, ...], tuple[float, ...]] = eqx.field(static=True)

    def __init__(self, exponent: ArrayLike, lower: ArrayLike, upper: ArrayLike):
        exponent = checks.parameter(exponent, "exponent", (None, None))
        self.raw_exponent = unbounded(exponent, LEAST_EXPONENT, "exponent")
        self.ends = interval_ends(lower, upper, exponent.shape[1])
        if min(self.ends[0]) < 0:
            raise ValueError(
                f"Expected lower >= 0 for monomials with real exponents, got {min(self.ends[0]):g}."
                " Shift the coordinate first."
            )

    @property
    def exponent(self) -> Float[Array, "n d"]:
        """The exponents."""
        return above(self.raw_exponent, LEAST_EXPONENT)

    def inside(self, y: Float[Array, "... d"]) -> Bool[Array, ...]:
        """The box, without zero, where an exponent may be singular."""
        return super().inside(y) & jnp.all(y > 0, axis=-1)

    def natural(self) -> Array:
        """The exponents."""
        return self.exponent

    def multiply(self, left: Array, right: Array) -> Array:
        """Exponents add."""
        return left + right

    def log_abs_1d(self, theta: Array, y: Array) -> tuple[Array, Array]:
        """Exponent times log y."""
        return positive(theta * jnp.log(lax.broadcast_to_rank(y, theta.ndim)))

    def log_integral_1d(self, theta: Array, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """(upper^(e + 1) - lower^(e + 1)) / (e + 1): an exponential in log y where lower > 0."""
        assert lower is not None
        assert upper is not None
        lower, upper = (lax.broadcast_to_rank(end, theta.ndim) for end in (lower, upper))
        from_zero = lower <= 0
        logs = jnp.log(jnp.where(from_zero, 0.5 * upper, lower)), jnp.log(upper)
        bounded = exponential_log_integral(theta + 1.0, *logs)
        return positive(jnp.where(from_zero, (theta + 1.0) * logs[1] - jnp.log(theta + 1.0), bounded))

    def log_moment_1d(self, theta: Array, power: int, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """y^power raises the exponent."""
        return self.log_integral_1d(theta + power, lower, upper)

    def sample_1d(self, key: PRNGKeyArray, theta: Array) -> Float[Array, " d"]:
        """Inverse distribution function, in log y where lower > 0."""
        share = jax.random.uniform(key, theta.shape)
        lower, upper = self.bounds(None, None)
        from_zero = lower <= 0
        low = jnp.log(jnp.where(from_zero, 0.5 * upper, lower))
        bounded = jnp.exp(sample_exponential(share, theta + 1.0, low, jnp.log(upper)))
        return jnp.where(from_zero, upper * share ** (1.0 / (theta + 1.0)), bounded)

    def broad(self, width: float) -> tuple[Array]:
        """The constant, exponent zero; a bounded domain needs no width."""
        return (unbounded(jnp.zeros(()), LEAST_EXPONENT, "exponent"),)

    def rebuilt(self, theta: Array) -> tuple[MonomialBasis, Array]:
        """Functions with these exponents."""
        return MonomialBasis(theta, *self.ends), jnp.zeros(theta.shape[0])

    def power(self, theta: Array, exponent: float) -> Array:
        """Exponents scale."""
        return exponent * theta


# Of a spread start, the sharpest function: of the order of the width of what it has to resolve.
_HIGHEST_EXPONENT = 24.0


def _local(means: np.ndarray, covariances: np.ndarray, power: int) -> MonomialBasis:
    """The density of the family with the same mean: that of (e + 1) y^e is (e + 1) / (e + 2)."""
    del covariances
    means = inner(means)
    exponent = (2.0 * means - 1.0) / (1.0 - means)
    return MonomialBasis(np.maximum(exponent, 0.5 * LEAST_EXPONENT) / power, 0.0, 1.0)


def _spread(size: int, dim: int, constant: bool) -> MonomialBasis:
    """Exponents e_k with 2 e_k + 1 in geometric progression, which keeps the functions' overlaps equal."""
    level = levels(size, dim, constant)
    return MonomialBasis(0.5 * ((2.0 * _HIGHEST_EXPONENT + 1.0) ** level - 1.0), 0.0, 1.0)


FAMILY = Family(MonomialBasis, "gaussian_cdf", local=_local, spread=_spread)
