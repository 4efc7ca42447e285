"""Trajectories together with what was read of them, checked, scaled and split."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sosmarkov.data.dataset import Data, from_trajectories, robust_standardize
from sosmarkov.spaces.transforms import Standardize

# States beyond this many deviations count as missing.
_EXTREME = 100.0


class Sensed(NamedTuple):
    """Trajectories and readings in model space.

    Attributes:
        states: Shape (M, T, d), zero where missing.
        present: Weights of the states, zero where missing, shape (M, T).
        readings: Shape (M, T, k), NaN where missing.
        inputs: Of the steps between, shape (M, T - 1, e), or None.
    """

    states: np.ndarray
    present: np.ndarray
    readings: np.ndarray
    inputs: np.ndarray | None = None

    def part(self, rows: np.ndarray) -> Sensed:
        """Some of the trajectories."""
        return Sensed(*(None if array is None else array[rows] for array in self))  # type: ignore[arg-type]

    def as_data(self) -> Data:
        """The states and inputs alone."""
        states = np.where(self.present[..., None] > 0, self.states, np.nan)
        return from_trajectories(states, self.present.max(axis=1), self.inputs)

    def batch(self) -> tuple[np.ndarray, ...]:
        """States, their weights, readings, and inputs where there are any."""
        return tuple(array for array in self if array is not None)

    def pairs(self) -> tuple[np.ndarray, ...]:
        """y, y', weight and the reading of y'."""
        row, k = np.nonzero((self.present[:, :-1] > 0) & (self.present[:, 1:] > 0))
        return self.states[row, k], self.states[row, k + 1], self.present[row, k], self.readings[row, k + 1]

    def first(self) -> tuple[np.ndarray, ...]:
        """Initial states, weights and their readings."""
        row = np.flatnonzero(self.present[:, 0] > 0)
        return self.states[row, 0], self.present[row, 0], self.readings[row, 0]

    def split(self, share: float, seed: int) -> tuple[Sensed, Sensed]:
        """A held-out share of the trajectories, and the others."""
        order = np.random.default_rng(seed).permutation(len(self.states))
        count = max(1, round(share * len(order)))
        return self.part(order[:count]), self.part(order[count:])


def scaled(
    trajectories: Any, observations: Any, weights: Any, keep: bool, inputs: Any = None
) -> tuple[Sensed, Standardize, Standardize]:
    """Data in model space, and the maps there; states beyond 100 deviations count as missing.

    Readings are kept as they are where they are those of a known sensor; inputs always are.
    """
    data = from_trajectories(trajectories, weights, inputs)
    readings = as_readings(observations, [len(part) for part in trajectories])
    readings, scale_o = scaled_readings(readings, keep)
    scale = robust_standardize(data.states)
    states = (data.trajectories - np.asarray(scale.mean)) / np.asarray(scale.std)
    usable = np.all(np.abs(states) <= _EXTREME, axis=2)
    present = data.present * usable
    states = np.where(present[..., None] > 0, states, 0.0)
    return Sensed(states, present, readings, data.inputs), scale, scale_o


def as_readings(observations: Any, lengths: list[int] | None) -> np.ndarray:
    """Readings (N, T, k) from such an array or a list of (T_i, k), padded with NaN; of these lengths, where given."""
    try:
        each = [np.asarray(part, dtype=float) for part in observations]
        each = [part[:, None] if part.ndim == 1 else part for part in each]
        dim = each[0].shape[1]
        lengths = [len(part) for part in each] if lengths is None else lengths
        fits = [part.shape for part in each] == [(length, dim) for length in lengths]
    except (TypeError, IndexError, ValueError) as error:
        raise ValueError(f"Expected observations as numbers of shape (N, T, k), got others: {error}.") from error
    if not fits:
        raise ValueError(
            "Expected observations of shape (N, T, k), one reading for every state of every trajectory (NaN where"
            f" there was none), for {len(lengths)} trajectories of {max(lengths)} states at most, got {len(each)} of"
            " other shapes."
        )
    readings = np.full((len(each), max(lengths), dim), np.nan)
    for index, part in enumerate(each):
        readings[index, : len(part)] = part
    if np.any(np.isinf(readings)):
        raise ValueError("Expected finite readings, or NaN where one is missing, got infinite ones.")
    return readings


def scaled_readings(readings: np.ndarray, keep: bool) -> tuple[np.ndarray, Standardize]:
    """Readings by their own mean and spread, and the map there; or as they are."""
    dim = readings.shape[2]
    columns = [readings[..., c][~np.isnan(readings[..., c])] for c in range(dim)]
    if min(len(column) for column in columns) < 2 or min(np.std(column) for column in columns) == 0:
        raise ValueError("Expected readings that vary in every coordinate, got none or constant ones.")
    if keep:
        return readings, Standardize(np.zeros(dim), np.ones(dim))
    scales = [robust_standardize(column[:, None]) for column in columns]
    scale = Standardize(*(np.concatenate([np.asarray(getattr(s, n)) for s in scales]) for n in ("mean", "std")))
    return (readings - np.asarray(scale.mean)) / np.asarray(scale.std), scale
