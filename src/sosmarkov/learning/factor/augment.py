"""Fresh trajectories with readings: a surrogate's states, and what the sensor would have read of them."""

from __future__ import annotations

import numpy as np

from sosmarkov.data.observed import Sensed
from sosmarkov.factor.bases import FullGaussianBasis
from sosmarkov.factor.likelihood import LinearReading
from sosmarkov.learning.factor.rolled import rolled
from sosmarkov.learning.phases import Phases
from sosmarkov.learning.settings import Settings
from sosmarkov.sensors import Sensor
from sosmarkov.spaces.transforms import Transform


def augmented(
    phases: Phases, training: Sensed, held_out: Sensed, sensor: Sensor, transform: Transform, settings: Settings
) -> tuple[Sensed, float] | None:
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
    dim = training.states.shape[2]
    any_basis = FullGaussianBasis(np.zeros((1, dim)), np.eye(dim)[None])
    parts = [(float(weight), part.linear(any_basis, transform)) for weight, part in sensor.parts()]
    if any(read is None for _, read in parts):
        return None
    found = rolled(phases, training.as_data(), held_out.as_data(), settings)
    if found is None or found.gain is None:
        return None
    length = training.states.shape[1]
    states, present = found.training.trajectories[:, :length], found.training.present[:, :length]
    rng = np.random.default_rng(settings.seed)
    readings = _readings(states, parts, rng)  # type: ignore[arg-type]
    # What was missing is missing as it was: whole sequences of gaps are drawn.
    gaps = np.isnan(training.readings)[rng.integers(len(training.readings), size=len(states))]
    inputs = None if found.training.inputs is None else found.training.inputs[:, : length - 1]
    return Sensed(states, present, np.where(gaps, np.nan, readings), inputs), found.gain


def _readings(states: np.ndarray, parts: list[tuple[float, LinearReading]], rng: np.random.Generator) -> np.ndarray:
    weights = np.array([weight for weight, _ in parts])
    which = rng.choice(len(parts), size=states.shape[:2], p=weights / weights.sum())
    drawn = []
    for _, read in parts:
        H, offset, std = (np.asarray(part) for part in read)
        mean = states @ H.T + offset
        drawn.append(mean + std * rng.normal(size=mean.shape))
    return np.take_along_axis(np.stack(drawn), which[None, ..., None], axis=0)[0]
