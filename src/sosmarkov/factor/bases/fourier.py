"""Trigonometric functions with a linear argument on a box: f(y) = prod_c cos(freq_c y_c + phase_c)."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import stored
from sosmarkov.factor.bases.base import Basis, Terms
from sosmarkov.factor.bases.exponential import ExponentialBasis
from sosmarkov.factor.bases.family import Family, degrees
from sosmarkov.factor.bases.interval import IntervalBasis, interval_ends, sound_ends
from sosmarkov.factor.bases.product import log_and_sign, shifted_moment


class FourierTheta(NamedTuple):
    """The mean over a last axis of cosines: a product of j of them is a mean of 2^(j - 1)."""

    frequency: Array
    phase: Array


@stored("frequency", "phase", "ends", check=sound_ends)
class FourierBasis(IntervalBasis):
    """Cosines of any frequency and phase (a sine is a cosine of phase -pi/2, a constant has frequency 0).

    The functions take both signs, so they serve squared forms only. Give one of them frequency and
    phase zero where g must stay away from zero.

    Args:
        frequency: Shape (n, d), in radians per unit.
        phase: Shape (n, d).
        lower: Lower end of the domain, one number or one per coordinate.
        upper: Upper end, above lower.
    """

    family: ClassVar[str] = "fourier"
    nonnegative: ClassVar[bool] = False

    frequency: Float[Array, "n d"]
    phase: Float[Array, "n d"]
    ends: tuple[tuple[float, ...], tuple[float, ...]] = eqx.field(static=True)

    def __init__(self, frequency: ArrayLike, phase: ArrayLike, lower: ArrayLike, upper: ArrayLike):
        self.frequency = checks.parameter(frequency, "frequency", (None, None))
        self.phase = checks.parameter(phase, "phase", self.frequency.shape)
        self.ends = interval_ends(lower, upper, self.frequency.shape[1])

    def natural(self) -> FourierTheta:
        """Frequency and phase, one cosine each."""
        return FourierTheta(self.frequency[..., None], self.phase[..., None])

    def multiply(self, left: FourierTheta, right: FourierTheta) -> FourierTheta:
        """Cos a cos b = (cos(a + b) + cos(a - b)) / 2 for every pair of cosines."""

        def combine(a: Array, b: Array) -> Array:
            a, b = a[..., :, None], b[..., None, :]
            both = jnp.stack([a + b, a - b], axis=-1)
            return both.reshape(*both.shape[:-3], -1)

        return FourierTheta(combine(left.frequency, right.frequency), combine(left.phase, right.phase))

    def log_abs_1d(self, theta: FourierTheta, y: Array) -> tuple[Array, Array]:
        """log|mean of cosines| and its sign."""
        y = lax.broadcast_to_rank(y[..., None], theta.phase.ndim)
        return log_and_sign(jnp.mean(jnp.cos(theta.frequency * y + theta.phase), axis=-1))

    def log_integral_1d(self, theta: FourierTheta, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """Width times sin(z) / z times the cosine at the middle, z = frequency * width / 2."""
        return self.log_moment_1d(theta, 0, lower, upper)

    def log_moment_1d(
        self, theta: FourierTheta, power: int, lower: Array | None, upper: Array | None
    ) -> tuple[Array, Array]:
        """Moments about the middle of the interval, shifted."""
        assert lower is not None
        assert upper is not None
        lower, upper = (lax.broadcast_to_rank(end[..., None], theta.phase.ndim) for end in (lower, upper))
        middle, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
        at_middle, z = theta.frequency * middle + theta.phase, theta.frequency * half
        # Int (y - middle)^j cos(frequency y + phase) dy / half^(j + 1): even powers keep the cosine, odd ones the sine.
        central = [
            2.0 * cosine_moment(z, j) * jnp.cos(at_middle)
            if j % 2 == 0
            else -2.0 * sine_moment(z, j) * jnp.sin(at_middle)
            for j in range(power + 1)
        ]
        return log_and_sign(jnp.mean(half * shifted_moment(middle, half, central), axis=-1))

    def envelope(self) -> tuple[Basis, Terms]:
        """|cos| <= 1: constants with the functions' own scales."""
        flat = ExponentialBasis(jnp.zeros_like(self.frequency), *self.ends)
        return flat, Terms(flat.natural(), self.log_norm())

    def sample_1d(self, key: PRNGKeyArray, theta: FourierTheta) -> Float[Array, " d"]:
        """Refused: a product of cosines is not a density; the envelope is sampled instead."""
        raise ValueError("Expected a non-negative family to draw from; a product of cosines is signed.")

    def broad(self, width: float) -> tuple[float, float]:
        """The constant, frequency and phase zero; a bounded domain needs no width."""
        return 0.0, 0.0


def _series(z: Array, first: int, shift: int) -> Array:
    """sum_k t_k / (2k + shift), t_0 = 1, t_(k+1) = -t_k z^2 / ((2k + first) (2k + first + 1)), for |z| < 2."""
    total, term = jnp.zeros_like(z), jnp.ones_like(z)
    for k in range(14):
        total = total + term / (2 * k + shift)
        term = -term * z**2 / ((2 * k + first) * (2 * k + first + 1))
    return total


def cosine_moment(z: Array, power: int) -> Array:
    """Int_0^1 s^power cos(z s) ds for an even power: by parts, or a series where that cancels."""
    small = jnp.abs(z) < 2.0
    safe, near = jnp.where(small, 2.0, z), jnp.where(small, z, 0.0)
    large = jnp.sin(safe) / safe
    if power > 0:
        large = large - power / safe * sine_moment(safe, power - 1)
    return jnp.where(small, _series(near, 1, power + 1), large)


def sine_moment(z: Array, power: int) -> Array:
    """Int_0^1 s^power sin(z s) ds for an odd power."""
    small = jnp.abs(z) < 2.0
    safe, near = jnp.where(small, 2.0, z), jnp.where(small, z, 0.0)
    large = (power * cosine_moment(safe, power - 1) - jnp.cos(safe)) / safe
    return jnp.where(small, near * _series(near, 2, power + 2), large)


def _spread(size: int, dim: int, constant: bool) -> FourierBasis:
    """cos(pi k y), orthogonal and complete."""
    k = degrees(size, dim, constant)
    return FourierBasis(np.pi * k, np.zeros_like(k), 0.0, 1.0)


FAMILY = Family(FourierBasis, "gaussian_cdf", spread=_spread)
