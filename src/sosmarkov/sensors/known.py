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

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import require, stored
from sosmarkov.factor.bases import Basis, FullGaussianBasis, GaussianBasis, Terms
from sosmarkov.factor.bases.full_table import FullTheta
from sosmarkov.factor.bases.gaussian import GaussianTheta
from sosmarkov.factor.forms import Form
from sosmarkov.spaces.transforms import Transform


class Reading(eqx.Module):
    """l(o | y) = one term of the family, or a form of it, or one on a box: a function of the model-space state y."""

    term: Terms | None = None
    form: Form | None = None
    lower: Float[Array, " d"] | None = None
    upper: Float[Array, " d"] | None = None

    def log_value(self, basis: Basis, y: Float[Array, " d"]) -> Float[Array, ""]:
        """log l(o | y) at one state."""
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

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of one reading."""

    def check(self, observations: ArrayLike, name: str = "observations") -> Float[Array, ...]:
        """Readings on leading axes as an array, NaN for what is missing, or a ValueError."""
        array = checks.as_float(observations, name)
        # Counted from the front: no reading has as many axes as zero.
        if array.shape[array.ndim - len(self.shape) :] != self.shape or array.ndim < len(self.shape):
            raise ValueError(f"Expected {name} with last axes {self.shape}, got an array of shape {array.shape}.")
        self.require_sound(array, name)
        return array

    def require_sound(self, array: Float[Array, ...], name: str) -> None:
        """Refuse infinite readings; of which NaN stands for missing ones."""
        if checks.is_concrete(array) and np.any(np.isinf(array)):
            raise ValueError(f"Expected finite readings, or NaN for missing ones, got infinite {name}.")

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


def one_reading(sensor: Any, observation: ArrayLike) -> Float[Array, ...]:
    """One reading, or a ValueError."""
    array = sensor.check(observation, "observation")
    if array.ndim != len(sensor.shape):
        raise ValueError(f"Expected one reading of shape {sensor.shape}, got an array of shape {array.shape}.")
    return array


def readings_in_rows(sensor: Any, observations: ArrayLike) -> Float[Array, "t ..."]:
    """One or more readings of one sequence, or a ValueError."""
    array = sensor.check(observations)
    if array.ndim != 1 + len(sensor.shape) or array.shape[0] == 0:
        wanted = ", ".join(map(str, ("T", *sensor.shape)))
        raise ValueError(
            f"Expected one reading a row, at least one, shape ({wanted}), got an array of shape {array.shape}. Many"
            " sequences of one length go through `jax.vmap`."
        )
    return array


@stored(check=lambda s: GaussianSensor(s.coordinates, s.std, gain=s.gain, offset=s.offset))
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

    @property
    def shape(self) -> tuple[int, ...]:
        """One number a coordinate."""
        return (len(self.coordinates),)

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


@stored(check=lambda sensor: LinearSensor(sensor.matrix, sensor.std, offset=sensor.offset))
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

    @property
    def shape(self) -> tuple[int, ...]:
        """One number a row of the matrix."""
        return (len(self.matrix),)

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


@stored(make=lambda fields: IntervalSensor(**fields))
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

    @property
    def shape(self) -> tuple[int, ...]:
        """Two ends a coordinate, or the middle of a rounded reading."""
        return (len(self.coordinates),) if self.width is not None else (len(self.coordinates), 2)

    def require_sound(self, array: Float[Array, ...], name: str) -> None:
        """An end may be infinite, a middle not; lower < upper."""
        if self.width is not None:
            super().require_sound(array, name)
        elif checks.is_concrete(array):
            low, high = np.asarray(array)[..., 0], np.asarray(array)[..., 1]
            if np.any(np.isnan(low) != np.isnan(high)) or np.any(low >= high):
                raise ValueError(f"Expected both ends or none (NaN) and lower < upper in {name}, got others.")

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


def _sound_mixture(sensor: MixtureSensor) -> None:
    MixtureSensor(sensor.sensors, sensor.weights)
    require(abs(float(np.sum(sensor.weights)) - 1.0) < 1e-9, "weights that sum to one in a mixture")


@stored(check=_sound_mixture)
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
        if not self.sensors or not all(isinstance(one, Sensor) and len(one.parts()) == 1 for one in self.sensors):
            raise ValueError("Expected one or more sensors that are no mixtures themselves, got none or others.")
        if len({one.shape for one in self.sensors}) > 1:
            got = [one.shape for one in self.sensors]
            raise ValueError(f"Expected sensors that take readings of the same shape, got {got}.")
        weights = checks.parameter(weights, "weights", (len(self.sensors),))
        checks.require_positive(weights, "weights")
        self.weights = weights / jnp.sum(weights)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of each of the sensors."""
        return self.sensors[0].shape

    def require_sound(self, array: Float[Array, ...], name: str) -> None:
        """As each of the sensors asks."""
        for sensor in self.sensors:
            sensor.require_sound(array, name)

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

    def __check_init__(self):
        if not callable(self.likelihood):
            raise ValueError(
                f"Expected a function from a reading to a form as likelihood, got {type(self.likelihood).__name__}."
            )
        checks.count(self.width, "width", 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """As many numbers as `width` says; a row with NaN is missing as a whole."""
        return (self.width,)

    def missing(self, observation: Array | np.ndarray) -> Array | np.bool_:
        """Whether any of its numbers is NaN."""
        return _isnan(observation).any()

    def reading(self, observation: Array, basis: Basis, transform: Transform) -> Reading:
        """The form."""
        del basis, transform
        return Reading(form=self.likelihood(observation))


def _distinct(coordinates: Sequence[int] | int) -> tuple[int, ...]:
    listed = [coordinates] if isinstance(coordinates, (int, np.integer)) else list(coordinates)
    whole = [isinstance(index, (int, np.integer)) and not isinstance(index, bool) for index in listed]
    # A sensor does not know how many coordinates a state has: there is no end to count from.
    if not all(whole) or min([0, *listed]) < 0:
        raise ValueError(f"Expected coordinates counted from 0, got {listed}.")
    return checks.coordinates(listed, max([0, *listed]) + 1)


def log_likelihood(sensor: Sensor, observation: Array, basis: Basis, transform: Transform, y: Array) -> Array:
    """log p(o | y) of one reading at one state in model space."""
    values = [
        jnp.log(weight) + part.reading(observation, basis, transform).log_value(basis, y)
        for weight, part in sensor.parts()
    ]
    return jax.nn.logsumexp(jnp.stack(values))


def _isnan(observation: Array | np.ndarray) -> Any:
    """By NumPy where its array is given, which is quicker for one reading."""
    return (np if isinstance(observation, np.ndarray) else jnp).isnan(observation)
