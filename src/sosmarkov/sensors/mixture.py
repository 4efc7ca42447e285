"""Several explanations of one reading."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from scipy.special import logsumexp

from sosmarkov.contracts.reader import Sensor, placed
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import require, stored
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.likelihood import Reading
from sosmarkov.spaces.transforms import Transform


def _sound(sensor: MixtureSensor) -> None:
    MixtureSensor(sensor.sensors, sensor.weights)
    require(abs(float(np.sum(sensor.weights)) - 1.0) < 1e-9, "weights that sum to one in a mixture")


@stored(check=_sound)
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

    @property
    def named(self) -> bool:
        """Whether any of the sensors has names for coordinates."""
        return any(one.named for one in self.sensors)

    def on_columns(self, columns: Sequence[str]) -> Sensor:
        """Each of the sensors on these columns."""
        return MixtureSensor([placed(one, columns) for one in self.sensors], self.weights)

    def parts(self) -> tuple[tuple[Array, Sensor], ...]:
        """The weighted sensors."""
        return tuple(zip(self.weights, self.sensors, strict=True))

    def log_likelihood(self, observation: np.ndarray, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """The mixture of the parts' own."""
        values = np.stack([one.log_likelihood(observation, x) for one in self.sensors])
        return logsumexp(values, axis=0, b=np.asarray(self.weights)[:, None])

    def reading(self, observation: Array, basis: Basis, transform: Transform) -> Reading:
        """Refused: a mixture says several things."""
        raise ValueError("Expected one of a mixture's parts to read, got the mixture.")
