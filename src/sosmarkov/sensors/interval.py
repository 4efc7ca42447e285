"""Readings that say between which ends a coordinate lies."""

# JAX annotates some of its functions in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.contracts.reader import LineLikelihood
from sosmarkov.core import checks
from sosmarkov.core.stored import stored
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.likelihood import Reading
from sosmarkov.factor.space import Space
from sosmarkov.sensors.base import CoordinateSensor, distinct, product_of_lines
from sosmarkov.spaces.transforms import Transform


@stored(make=lambda fields: IntervalSensor(**fields))
class IntervalSensor(CoordinateSensor):
    """A reading says between which ends coordinates lie; an open end is infinite (a censored reading).

    Closed form for families of products under coordinate-wise transforms.

    Args:
        coordinates: Which coordinates are read, k of them, distinct: indices, or names of the process's columns.
        width: None: a reading is its two ends, shape (k, 2). Else a reading is a middle, shape (k,), and the ends lie
            half a width to either side: readings rounded to a step.
    """

    coordinates: tuple[int | str, ...] = eqx.field(static=True)
    width: float | None = eqx.field(static=True)

    def __init__(self, coordinates: Sequence[int | str] | int | str, *, width: float | None = None):
        self.coordinates = distinct(coordinates)
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

    def log_likelihood(self, observation: np.ndarray, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Zero between the ends, else -inf."""
        return product_of_lines(self.lines(observation, x.shape[1]), x)

    def lines(self, observation: np.ndarray, dim: int) -> list[tuple[int, LineLikelihood]]:
        """A window for each coordinate that is read."""
        ends = np.asarray(observation)
        if self.width is not None:
            ends = ends[:, None] + 0.5 * self.width * np.array([-1.0, 1.0])
        read = zip(self.places(dim), ends, strict=True)
        return [(int(c), _window(low, high)) for c, (low, high) in read if not np.isnan(low)]

    def reading(self, observation: Array, basis: Basis, transform: Transform) -> Reading:
        """A box, whole where nothing is read."""
        where = self.places(basis.dim)
        Space(basis, transform).require("interval reading")
        if self.width is not None:
            observation = observation[:, None] + 0.5 * self.width * jnp.asarray([[-1.0, 1.0]])
        ends = []
        for side, open_end, domain in ((0, -jnp.inf, basis.lower), (1, jnp.inf, basis.upper)):
            end = jnp.full(basis.dim, open_end).at[where].set(observation[:, side])
            inner, _ = transform.forward(jnp.where(jnp.isnan(end), open_end, end))
            ends.append(jnp.clip(inner, basis.lower, basis.upper) if np.isfinite(domain).all() else inner)
        return Reading(lower=ends[0], upper=ends[1])


def _window(low: float, high: float) -> LineLikelihood:
    """One between two ends, else zero."""

    def log(x: np.ndarray) -> np.ndarray:
        return np.where((x > low) & (x < high), 0.0, -np.inf)

    return LineLikelihood(log, np.array([low, high]))
