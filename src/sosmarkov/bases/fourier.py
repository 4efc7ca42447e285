"""Trigonometric functions with a linear argument on a box: f(y) = prod_c cos(freq_c y_c + phase_c)."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov import checks
from sosmarkov.bases.base import Basis, Terms
from sosmarkov.bases.exponential import ExponentialBasis
from sosmarkov.bases.interval import IntervalBasis, interval_ends
from sosmarkov.bases.parametrise import with_row
from sosmarkov.bases.product import log_and_sign
from sosmarkov.checks import ArrayLike


class FourierTheta(NamedTuple):
    """The mean over a last axis of cosines: a product of j of them is a mean of 2^(j - 1)."""

    frequency: Array
    phase: Array


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

    @property
    def size(self) -> int:
        """Number of functions n."""
        return self.frequency.shape[0]

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return self.frequency.shape[1]

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
        return log_and_sign(jnp.mean(jnp.cos(theta.frequency * y[..., None] + theta.phase), axis=-1))

    def log_integral_1d(self, theta: FourierTheta, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """Width times sin(z) / z times the cosine at the middle, z = frequency * width / 2."""
        assert lower is not None
        assert upper is not None
        return log_and_sign(jnp.mean(self._central(theta, lower, upper, 0), axis=-1))

    def log_moment_1d(self, theta: FourierTheta, power: int) -> tuple[Array, Array]:
        """Moments about the middle of the box, shifted."""
        middle = (0.5 * (self.lower + self.upper))[:, None]
        zeroth, first = (self._central(theta, *self.bounds(None, None), p) for p in (0, 1))
        value = middle * zeroth + first
        if power == 2:
            second = self._central(theta, *self.bounds(None, None), 2)
            value = middle**2 * zeroth + 2.0 * middle * first + second
        return log_and_sign(jnp.mean(value, axis=-1))

    @staticmethod
    def _central(theta: FourierTheta, lower: Array, upper: Array, power: int) -> Array:
        """Int (y - middle)^power cos(frequency y + phase) dy for each cosine."""
        half = (0.5 * (upper - lower))[..., None]
        at_middle = theta.frequency * (0.5 * (lower + upper))[..., None] + theta.phase
        z = theta.frequency * half
        if power == 0:
            return 2.0 * half * _cosine_moment(z, 0) * jnp.cos(at_middle)
        if power == 1:
            return -2.0 * half**2 * _sine_moment(z) * jnp.sin(at_middle)
        return 2.0 * half**3 * _cosine_moment(z, 2) * jnp.cos(at_middle)

    def envelope(self) -> tuple[Basis, Terms]:
        """|cos| <= 1: constants with the functions' own scales."""
        flat = ExponentialBasis(jnp.zeros_like(self.frequency), *self.ends)
        return flat, Terms(flat.natural(), self.log_norm())

    def sample_1d(self, key: PRNGKeyArray, theta: FourierTheta) -> Float[Array, " d"]:
        """Refused: a product of cosines is not a density; the envelope is sampled instead."""
        raise ValueError("Expected a non-negative family to draw from; a product of cosines is signed.")

    def with_broad(self, width: float) -> FourierBasis:
        """And the constant, frequency and phase zero; a bounded domain needs no width."""
        del width
        return eqx.tree_at(
            lambda b: (b.frequency, b.phase), self, (with_row(self.frequency, 0.0), with_row(self.phase, 0.0))
        )

    def restrict(self, kept: tuple[int, ...]) -> FourierBasis:
        """The functions on some coordinates."""
        where = jnp.asarray(kept)
        ends = ([end[c] for c in kept] for end in self.ends)
        return FourierBasis(self.frequency[:, where], self.phase[:, where], *ends)


def _series(z: Array, small: Array, first: int, shift: int) -> Array:
    """sum_k t_k / (2k + shift), t_0 = 1, t_(k+1) = -t_k z^2 / ((2k + first) (2k + first + 1))."""
    square = jnp.where(small, z, 0.0) ** 2
    total = jnp.zeros_like(square)
    term = jnp.ones_like(square)
    for k in range(11):
        total = total + term / (2 * k + shift)
        term = -term * square / ((2 * k + first) * (2 * k + first + 1))
    return total


def _cosine_moment(z: Array, power: int) -> Array:
    """int_0^1 s^power cos(z s) ds for power 0 or 2, smooth through z = 0."""
    small = jnp.abs(z) < 1.0
    safe = jnp.where(small, 1.0, z)
    if power == 0:
        large = jnp.sin(safe) / safe
    else:
        large = jnp.sin(safe) / safe + 2.0 * jnp.cos(safe) / safe**2 - 2.0 * jnp.sin(safe) / safe**3
    return jnp.where(small, _series(z, small, 1, power + 1), large)


def _sine_moment(z: Array) -> Array:
    """int_0^1 s sin(z s) ds, smooth through z = 0."""
    small = jnp.abs(z) < 1.0
    safe = jnp.where(small, 1.0, z)
    large = jnp.sin(safe) / safe**2 - jnp.cos(safe) / safe
    return jnp.where(small, z * _series(z, small, 2, 3), large)
