"""Fresh trajectories with readings: a surrogate's states, and what the sensor would have read of them."""

from __future__ import annotations

import numpy as np

from sosmarkov.data.dataset import Dataset, Paths, from_paths
from sosmarkov.factor.bases import FullGaussianBasis
from sosmarkov.factor.likelihood import LinearReading
from sosmarkov.learning.choose import Settings
from sosmarkov.learning.factor.rolled import rolled
from sosmarkov.learning.phases import Phases
from sosmarkov.sensors import Sensor
from sosmarkov.spaces.transforms import Transform


def augmented(
    phases: Phases, training: Dataset, held_out: Dataset, sensor: Sensor, transform: Transform, settings: Settings
) -> tuple[Dataset, float] | None:
    """Rolled trajectories in the place of the training data, and how much better they predict held-out states.

    None where real ones serve better, or where the sensor is none that readings are drawn from here.

    Args:
        phases: Runs the surrogate's training.
        training: States and readings in model space.
        held_out: Likewise.
        sensor: Known, or as regression has it.
        transform: From what the sensor reads to model space.
        settings: What steers training.
    """
    parts = linear_parts(sensor, training.dim, transform)
    if parts is None:
        return None
    found = rolled(phases, training, held_out, settings)
    if found is None or found.gain is None:
        return None
    assert training.paths.readings is not None
    states, present, *inputs = found.training.paths.batch(training.horizon)
    rng = np.random.default_rng(settings.seed)
    readings = _readings(states, parts, rng)
    # What was missing is missing as it was: whole sequences of gaps are drawn.
    gaps = np.isnan(training.paths.readings)[rng.integers(len(training.paths.readings), size=len(states))]
    gaps = gaps[:, : states.shape[1]]
    return from_paths(Paths(states, present, np.where(gaps, np.nan, readings), *inputs)), found.gain


def linear_parts(sensor: Sensor, dim: int, transform: Transform) -> list[tuple[float, LinearReading]] | None:
    """A sensor as a mixture of linear readings of a state in model space, with their weights; None where it is none."""
    any_basis = FullGaussianBasis(np.zeros((1, dim)), np.eye(dim)[None])
    found = [(float(weight), part.linear(any_basis, transform)) for weight, part in sensor.parts()]
    linear = [(weight, read) for weight, read in found if read is not None]
    return linear if len(linear) == len(found) else None


def _readings(states: np.ndarray, parts: list[tuple[float, LinearReading]], rng: np.random.Generator) -> np.ndarray:
    weights = np.array([weight for weight, _ in parts])
    which = rng.choice(len(parts), size=states.shape[:2], p=weights / weights.sum())
    drawn = []
    for _, read in parts:
        H, offset, std = (np.asarray(part) for part in read)
        mean = states @ H.T + offset
        drawn.append(mean + std * rng.normal(size=mean.shape))
    return np.take_along_axis(np.stack(drawn), which[None, ..., None], axis=0)[0]
