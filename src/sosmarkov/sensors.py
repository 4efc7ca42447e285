"""Sensors: what a reading says about a state, as functions of the basis's own family, so that filtering is exact."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov import checks
from sosmarkov.bases import Basis, FullGaussianBasis, GaussianBasis, Terms
from sosmarkov.bases.full_table import FullTheta
from sosmarkov.bases.gaussian import GaussianTheta
from sosmarkov.checks import ArrayLike
from sosmarkov.forms import Form
from sosmarkov.transforms import Transform


class Reading(eqx.Module):
    """l(o | y) = one term of the family, or a form of it, or one on a box: a function of the model-space state y."""

    term: Terms | None = None
    form: Form | None = None
    lower: Float[Array, " d"] | None = None
    upper: Float[Array, " d"] | None = None

    def log_value(self, basis: Basis, y: Float[Array, " d"]) -> Float[Array, ""]:
        """Log l(o | y) at one state."""
        total = jnp.zeros(())
        if self.term is not None:
            total = total + basis.log_abs(self.term.theta, y)[0] + self.term.log_scale
        if self.form is not None:
            total = total + self.form.log_value(y)
        if self.lower is not None and self.upper is not None:
            total = jnp.where(jnp.all((y >= self.lower) & (y <= self.upper)), total, -jnp.inf)
        return total


class LinearReading(NamedTuple):
    """o = H y + offset + noise of standard deviation std, y in model space."""

    H: Float[Array, "k d"]
    offset: Float[Array, " k"]
    std: Float[Array, " k"]


class Sensor(eqx.Module):
    """p(o | x), known. Readings of a sequence lead with the axis of time; NaN stands for what is missing."""

    @abstractmethod
    def check(self, observations: ArrayLike, name: str = "observations") -> Float[Array, ...]:
        """The readings as an array, or a ValueError."""

    @abstractmethod
    def reading(self, observation: Array, basis: Basis, transform: Transform) -> Reading:
        """What one reading says, in model space."""

    def parts(self) -> tuple[tuple[Array, Sensor], ...]:
        """Weights and sensors whose densities add up to this one's."""
        return ((jnp.ones(()), self),)

    def missing(self, observation: Array | np.ndarray) -> Array | np.bool_:
        """Whether one reading says nothing."""
        return _isnan(observation).all()

    def linear(self, basis: Basis, transform: Transform) -> LinearReading | None:
        """The sensor as a linear one with Gaussian noise, where it is one for this family."""
        del basis, transform
        return None


def _columns(observations: ArrayLike, shape: tuple[int, ...], name: str) -> Array:
    """Readings with these last axes; NaN allowed, infinite values only where there are two ends."""
    array = checks.as_float(observations, name)
    if array.shape[-len(shape) :] != shape:
        raise ValueError(f"Expected {name} with last axes {shape}, got an array of shape {array.shape}.")
    return array


def _finite_columns(observations: ArrayLike, count: int, name: str) -> Array:
    array = _columns(observations, (count,), name)
    if checks.is_concrete(array) and np.any(np.isinf(array)):
        raise ValueError(f"Expected finite readings, or NaN for missing ones, got infinite {name}.")
    return array


class GaussianSensor(Sensor):
    """o_i = gain_i x_(c_i) + offset_i + noise, normal with standard deviation std_i, independent.

    Closed form for the Gaussian families: axis-aligned under coordinate-wise transforms, full-covariance under any
    affine one.

    Args:
        coordinates: Which coordinates are read, k of them, distinct.
        std: Standard deviations, one number or k of them.
        gain: One number or k of them, not zero.
        offset: One number or k of them.
    """

    coordinates: tuple[int, ...] = eqx.field(static=True)
    std: Float[Array, " k"]
    gain: Float[Array, " k"]
    offset: Float[Array, " k"]

    def __init__(
        self, coordinates: Sequence[int] | int, std: ArrayLike, *, gain: ArrayLike = 1.0, offset: ArrayLike = 0.0
    ):
        self.coordinates = _distinct(coordinates)
        count = len(self.coordinates)

        def each(value: ArrayLike, name: str) -> Array:
            array = checks.as_float(value, name)
            return checks.parameter(jnp.broadcast_to(array, (count,)) if array.ndim == 0 else array, name, (count,))

        self.std, self.gain, self.offset = each(std, "std"), each(gain, "gain"), each(offset, "offset")
        checks.require_positive(self.std, "std")
        if checks.is_concrete(self.gain) and not np.all(np.asarray(self.gain) != 0):
            raise ValueError(f"Expected gains that are not zero, got {self.gain}.")

    def check(self, observations: ArrayLike, name: str = "observations") -> Float[Array, ...]:
        """Shape (..., k), NaN for what is missing."""
        return _finite_columns(observations, len(self.coordinates), name)

    def linear(self, basis: Basis, transform: Transform) -> LinearReading:
        """x_c is affine in y."""
        checks.coordinates(self.coordinates, basis.dim)
        axis_aligned = isinstance(basis, GaussianBasis) and transform.coordinatewise
        if not (axis_aligned or isinstance(basis, FullGaussianBasis)) or transform.split().inner is not None:
            raise ValueError(
                f"Expected a Gaussian basis under an affine transform for Gaussian readings in closed form, got"
                f" family {basis.family} under {type(transform).__name__}. Use basis 'gaussian' with a standardising"
                " transform, basis 'gaussian-full', or interval readings."
            )
        matrix, offset, _ = transform.split()
        where = np.asarray(self.coordinates)
        return LinearReading(self.gain[:, None] * matrix[where], self.gain * offset[where] + self.offset, self.std)

    def reading(self, observation: Array, basis: Basis, transform: Transform) -> Reading:
        """One Gaussian term, flat in what is not read."""
        H, offset, std = self.linear(basis, transform)
        there = ~jnp.isnan(observation)
        target = jnp.where(there, observation, 0.0) - offset
        log_norm = jnp.where(there, -0.5 * jnp.log(2.0 * jnp.pi) - jnp.log(std), 0.0)
        weight = jnp.where(there, 1.0 / std**2, 0.0)
        if isinstance(basis, FullGaussianBasis):
            # Any y with H y = target: the directions that are not read have no precision.
            at = H.T @ jnp.linalg.solve(H @ H.T, target)
            theta = FullTheta(H.T @ (weight[:, None] * H), at, jnp.sum(log_norm))
        else:
            where = np.asarray(self.coordinates)
            slope = H[np.arange(len(where)), where]
            flat = jnp.zeros(basis.dim)
            theta = GaussianTheta(
                flat.at[where].set(slope**2 * weight), flat.at[where].set(target / slope), flat.at[where].set(log_norm)
            )
        return Reading(term=Terms(theta, jnp.zeros(())))


class LinearSensor(Sensor):
    """o = matrix x + offset + noise, normal with standard deviations std, independent: what `fit` learns.

    Closed form for the full-covariance Gaussian family under an affine transform.

    Args:
        matrix: Shape (k, d).
        std: Standard deviations, one number or k of them.
        offset: One number or k of them.
    """

    matrix: Float[Array, "k d"]
    log_std: Float[Array, " k"]
    offset: Float[Array, " k"]

    def __init__(self, matrix: ArrayLike, std: ArrayLike, *, offset: ArrayLike = 0.0):
        self.matrix = checks.parameter(matrix, "matrix", (None, None))
        count = self.matrix.shape[0]
        std, offset = (jnp.broadcast_to(checks.as_float(v, n), (count,)) for v, n in ((std, "std"), (offset, "offset")))
        checks.require_positive(std, "std")
        self.log_std, self.offset = jnp.log(std), checks.parameter(offset, "offset", (count,))

    @property
    def std(self) -> Float[Array, " k"]:
        """Standard deviations of the noise."""
        return jnp.exp(self.log_std)

    def check(self, observations: ArrayLike, name: str = "observations") -> Float[Array, ...]:
        """Shape (..., k), NaN for what is missing."""
        return _finite_columns(observations, len(self.matrix), name)

    def linear(self, basis: Basis, transform: Transform) -> LinearReading:
        """A state is affine in y, and so is a reading."""
        matrix, offset, inner = transform.split()
        if not isinstance(basis, FullGaussianBasis) or inner is not None or self.matrix.shape[1] != basis.dim:
            raise ValueError(
                f"Expected a process of {self.matrix.shape[1]} coordinates with basis 'gaussian-full' under an affine"
                f" transform, got {basis.dim} with {basis.family} under {type(transform).__name__}."
            )
        return LinearReading(self.matrix @ matrix, self.matrix @ offset + self.offset, self.std)

    def reading(self, observation: Array, basis: Basis, transform: Transform) -> Reading:
        """One Gaussian term, flat in the directions that are not read."""
        H, offset, std = self.linear(basis, transform)
        there = ~jnp.isnan(observation)
        rows = jnp.where(there, 1.0 / std, 0.0)[:, None] * H
        target = jnp.where(there, (observation - offset) / std, 0.0)
        at = jnp.linalg.pinv(rows) @ target
        left = -0.5 * jnp.sum((target - rows @ at) ** 2)
        log_norm = jnp.sum(jnp.where(there, -0.5 * jnp.log(2.0 * jnp.pi) - jnp.log(std), 0.0))
        return Reading(term=Terms(FullTheta(rows.T @ rows, at, log_norm + left), jnp.zeros(())))


class IntervalSensor(Sensor):
    """A reading says between which ends coordinates lie; an open end is infinite (a censored reading).

    Closed form for families of products under coordinate-wise transforms.

    Args:
        coordinates: Which coordinates are read, k of them, distinct.
        width: None: a reading is its two ends, shape (k, 2). Else a reading is a middle, shape (k,), and the ends lie
            half a width to either side: readings rounded to a step.
    """

    coordinates: tuple[int, ...] = eqx.field(static=True)
    width: float | None = eqx.field(static=True)

    def __init__(self, coordinates: Sequence[int] | int, *, width: float | None = None):
        self.coordinates = _distinct(coordinates)
        if width is not None and not width > 0:
            raise ValueError(f"Expected a positive width, got {width}.")
        self.width = None if width is None else float(width)

    def check(self, observations: ArrayLike, name: str = "observations") -> Float[Array, ...]:
        """Shape (..., k, 2) with lower < upper, or (..., k) for rounded readings; NaN for what is missing."""
        count = len(self.coordinates)
        if self.width is not None:
            return _columns(observations, (count,), name)
        array = _columns(observations, (count, 2), name)
        if checks.is_concrete(array):
            low, high = np.asarray(array)[..., 0], np.asarray(array)[..., 1]
            if np.any(np.isnan(low) != np.isnan(high)) or np.any(low >= high):
                raise ValueError(f"Expected both ends or none (NaN) and lower < upper in {name}, got others.")
        return array

    def reading(self, observation: Array, basis: Basis, transform: Transform) -> Reading:
        """A box, whole where nothing is read."""
        checks.coordinates(self.coordinates, basis.dim)
        if not transform.coordinatewise or isinstance(basis, FullGaussianBasis):
            raise ValueError(
                "Expected a family of products under a coordinate-wise transform for interval readings, got family"
                f" {basis.family} under {type(transform).__name__}. Use basis 'gaussian' and a standardising transform."
            )
        if self.width is not None:
            observation = observation[:, None] + 0.5 * self.width * jnp.asarray([-1.0, 1.0])
        where = np.asarray(self.coordinates)
        ends = []
        for side, open_end, domain in ((0, -jnp.inf, basis.lower), (1, jnp.inf, basis.upper)):
            end = jnp.full(basis.dim, open_end).at[where].set(observation[:, side])
            inner, _ = transform.forward(jnp.where(jnp.isnan(end), open_end, end))
            ends.append(jnp.clip(inner, basis.lower, basis.upper) if np.isfinite(domain).all() else inner)
        return Reading(lower=ends[0], upper=ends[1])


class MixtureSensor(Sensor):
    """p(o | x) = sum_j weight_j p_j(o | x): outliers, or several explanations of one reading.

    Args:
        sensors: Sensors that take readings of the same shape.
        weights: Positive, scaled to sum to one.
    """

    sensors: tuple[Sensor, ...]
    weights: Float[Array, " j"]

    def __init__(self, sensors: Sequence[Sensor], weights: ArrayLike):
        self.sensors = tuple(sensors)
        if not self.sensors or any(len(sensor.parts()) > 1 for sensor in self.sensors):
            raise ValueError("Expected one or more sensors that are no mixtures themselves.")
        weights = checks.parameter(weights, "weights", (len(self.sensors),))
        checks.require_positive(weights, "weights")
        self.weights = weights / jnp.sum(weights)

    def check(self, observations: ArrayLike, name: str = "observations") -> Float[Array, ...]:
        """As each of the sensors asks."""
        return [sensor.check(observations, name) for sensor in self.sensors][0]

    def parts(self) -> tuple[tuple[Array, Sensor], ...]:
        """The weighted sensors."""
        return tuple(zip(self.weights, self.sensors, strict=True))

    def reading(self, observation: Array, basis: Basis, transform: Transform) -> Reading:
        """Refused: a mixture says several things."""
        raise ValueError("Expected one of a mixture's parts to read, got the mixture.")


class FactorSensor(Sensor):
    """Any likelihood that is a form over the basis's own family.

    Args:
        likelihood: From one reading, shape (k,), to a form in the process's model space, of the coupling's kind
            (squared for Kraus and Paired, linear for Linear). It is traced.
        width: How many numbers a reading has, k.
    """

    likelihood: Callable[[Array], Form] = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def check(self, observations: ArrayLike, name: str = "observations") -> Float[Array, ...]:
        """Shape (..., k); a row with NaN is missing as a whole."""
        return _columns(observations, (self.width,), name)

    def missing(self, observation: Array | np.ndarray) -> Array | np.bool_:
        """Whether any of its numbers is NaN."""
        return _isnan(observation).any()

    def reading(self, observation: Array, basis: Basis, transform: Transform) -> Reading:
        """The form."""
        del basis, transform
        return Reading(form=self.likelihood(observation))


def _distinct(coordinates: Sequence[int] | int) -> tuple[int, ...]:
    listed = [coordinates] if isinstance(coordinates, (int, np.integer)) else list(coordinates)
    return checks.coordinates(listed, max([0, *listed]) + 1)


def log_likelihood(sensor: Sensor, observation: Array, basis: Basis, transform: Transform, y: Array) -> Array:
    """Log p(o | y) of one reading at one state in model space."""
    values = [
        jnp.log(weight) + part.reading(observation, basis, transform).log_value(basis, y)
        for weight, part in sensor.parts()
    ]
    return jax.nn.logsumexp(jnp.stack(values))


def _isnan(observation: Array | np.ndarray) -> Any:
    """By NumPy where its array is given, which is quicker for one reading."""
    return (np if isinstance(observation, np.ndarray) else jnp).isnan(observation)
