"""What sensors of coordinates share."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import equinox as eqx
import numpy as np
from jaxtyping import Float

from sosmarkov.contracts.reader import LineLikelihood, Sensor
from sosmarkov.core import checks


class CoordinateSensor(Sensor):
    """A sensor of single coordinates, by index or by the names of a process's columns."""

    coordinates: eqx.AbstractVar[tuple[int | str, ...]]

    @property
    def named(self) -> bool:
        """Whether any of them is a name."""
        return any(isinstance(one, str) for one in self.coordinates)

    def on_columns(self, columns: Sequence[str]) -> Sensor:
        """Names get their places among the columns."""
        found = copy(self)
        object.__setattr__(found, "coordinates", checks.coordinates(self.coordinates, len(columns), columns))
        return found

    def places(self, dim: int) -> np.ndarray:
        """Indices of the coordinates of a state of so many."""
        return np.asarray(checks.coordinates(self.coordinates, dim))


def distinct(coordinates: Sequence[int | str] | int | str) -> tuple[int | str, ...]:
    """Coordinates counted from zero, and names that wait for the columns of a process, or a ValueError."""
    listed = [coordinates] if isinstance(coordinates, (int, np.integer, str)) else list(coordinates)
    # A sensor does not know how many coordinates a state has: there is no end to count from.
    sound = all(isinstance(c, str) or (type(c) is int or isinstance(c, np.integer)) and c >= 0 for c in listed)
    if not sound or not 0 < len(set(listed)) == len(listed):
        raise ValueError(f"Expected distinct coordinates counted from 0, or their names, got {listed}.")
    return tuple(c if isinstance(c, str) else int(c) for c in listed)


def normal_line(observation: float, gain: float, offset: float, std: float) -> LineLikelihood:
    """o = gain x + offset + noise as a function of x."""

    def log(x: np.ndarray) -> np.ndarray:
        z = (observation - gain * x - offset) / std
        return -0.5 * z**2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)

    return LineLikelihood(log, np.array([(observation - offset) / gain]))


def product_of_lines(lines: Sequence[tuple[int, LineLikelihood]], x: Float[np.ndarray, "n d"]) -> np.ndarray:
    """The logarithm of a product of functions of one coordinate each."""
    return sum((line.log(x[:, c]) for c, line in lines), start=np.zeros(len(x)))
