"""Fresh trajectories from a surrogate, with what a sensor would have read of them, and whether they are good enough."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sosmarkov.data.dataset import Dataset, Paths, from_paths, from_trajectories
from sosmarkov.factor.bases import FullGaussianBasis
from sosmarkov.factor.likelihood import LinearReading
from sosmarkov.learning.choose import Settings
from sosmarkov.learning.factor.surrogate import Surrogate, draw_starts, gaussian_score, roll, surrogate_loss
from sosmarkov.learning.phases import Phase, Trainer
from sosmarkov.sensors import Sensor
from sosmarkov.spaces.transforms import Transform

# So many that fitting them is as good as knowing where they come from: as many as these, and as many per function.
_COUNT, _COUNT_EACH = 20_000, 100
# Nats a state by which rolled trajectories may fit held-out ones worse than real ones do, and still be used.
_WORSE = 0.02
# The decision looks at states within this many deviations: a normal per step says nothing about blown-up ones.
_NEAR = 6.0
# Rolled states beyond this many deviations have left everything the surrogate was fitted to.
_FAR = 20.0


class Rolled(NamedTuple):
    """Rolled trajectories to train on and to hold out, in standardised space.

    Attributes:
        training: To learn from.
        held_out: To stop early by: real ones where there are any, rolled ones otherwise.
        gain: Nats a held-out state by which they predict better than real ones do; None where there are none.
    """

    training: Dataset
    held_out: Dataset
    gain: float | None


def told(found: Rolled | None) -> dict[str, Any]:
    """What the history says of it."""
    gain = None if found is None else found.gain
    return {"surrogate": found is not None} | ({} if gain is None else {"surrogate_gain": round(gain, 4)})


def rolled(trainer: Trainer, training: Dataset, held_out: Dataset, settings: Settings) -> Rolled | None:
    """Fit a surrogate, roll it from fresh initial states; None where real trajectories serve better.

    Data are in standardised space. One step more is rolled than beliefs are trained for: the last states then
    have successors, like all others.
    """
    surrogate = Surrogate(training)
    plan = {"learning_rate": 3e-3, "patience": 1000}
    phase = Phase("surrogate", surrogate_loss, surrogate.batch(training), surrogate.batch(held_out), plan)
    networks = trainer.run(phase, surrogate.start(settings.seed))
    count = max(_COUNT, _COUNT_EACH * settings.size)
    starts = draw_starts(*training.starts.batch, count, settings.seed)
    inputs = None if training.pairs.u is None else draw_inputs(training, count, settings.horizon + 1, settings.seed)
    states = roll(
        surrogate, networks, jnp.asarray(starts), settings.horizon + 1, jax.random.key(settings.seed),
        None if inputs is None else jnp.asarray(inputs),
    )  # fmt: skip
    fresh = _followed(np.asarray(states), inputs)
    if not training.whole:
        return Rolled(*fresh.split(settings.validation, settings.seed), gain=None)
    real, seen = _near(training), _near(held_out)
    gain = gaussian_score(_near(fresh), seen) - gaussian_score(real, seen)
    if settings.surrogate is None and gain < -_WORSE:
        return None
    return Rolled(fresh, held_out, gain)


def draw_inputs(data: Dataset, count: int, steps: int, seed: int) -> np.ndarray:
    """Sequences of inputs as they were given, shape (count, steps, e); longer ones end with single inputs drawn."""
    u, inputs, present = data.pairs.u, data.paths.inputs, data.paths.present
    assert u is not None
    assert inputs is not None
    rng = np.random.default_rng(seed)
    drawn = u[rng.integers(len(u), size=(count, steps))]
    # A sequence serves whole, or not at all: inputs often depend on those before them.
    whole = inputs[np.all(present > 0, axis=1)]
    if len(whole):
        length = min(steps, whole.shape[1])
        drawn[:, :length] = whole[rng.integers(len(whole), size=count), :length]
    return drawn


def _followed(states: np.ndarray, inputs: np.ndarray | None) -> Dataset:
    """As data, each trajectory up to where it leaves what the surrogate knows."""
    inside = np.all(np.abs(states) <= _FAR, axis=2)
    kept = np.logical_and.accumulate(inside, axis=1)
    return from_trajectories(np.where(kept[..., None], states, np.nan), None, inputs)


def _near(data: Dataset) -> Dataset:
    return data.kept(lambda x: np.all(np.abs(x) <= _NEAR, axis=-1))[0]


def augmented(
    trainer: Trainer, training: Dataset, held_out: Dataset, sensor: Sensor, transform: Transform, settings: Settings
) -> Rolled | None:
    """Rolled trajectories in the place of the training data, with what the sensor reads of them.

    None where real ones serve better, or where the sensor is none that readings are drawn from here.

    Args:
        trainer: Runs the surrogate's training.
        training: States and readings in model space.
        held_out: Likewise.
        sensor: Known, or as regression has it.
        transform: From what the sensor reads to model space.
        settings: What steers training.
    """
    parts = linear_parts(sensor, training.dim, transform)
    if parts is None:
        return None
    found = rolled(trainer, training, held_out, settings)
    if found is None or found.gain is None:
        return None
    assert training.paths.readings is not None
    states, present, *inputs = found.training.paths.batch(training.horizon)
    rng = np.random.default_rng(settings.seed)
    weights = np.array([weight for weight, _ in parts])
    which = rng.choice(len(parts), size=states.shape[:2], p=weights / weights.sum())
    drawn = []
    for _, read in parts:
        H, offset, std = (np.asarray(part) for part in read)
        mean = states @ H.T + offset
        drawn.append(mean + std * rng.normal(size=mean.shape))
    readings = np.take_along_axis(np.stack(drawn), which[None, ..., None], axis=0)[0]
    # What was missing is missing as it was: whole sequences of gaps are drawn.
    gaps = np.isnan(training.paths.readings)[rng.integers(len(training.paths.readings), size=len(states))]
    readings = np.where(gaps[:, : states.shape[1]], np.nan, readings)
    return found._replace(training=from_paths(Paths(states, present, readings, *inputs)))


def linear_parts(sensor: Sensor, dim: int, transform: Transform) -> list[tuple[float, LinearReading]] | None:
    """A sensor as a mixture of linear readings of a state in model space, with their weights; None where it is none."""
    any_basis = FullGaussianBasis(np.zeros((1, dim)), np.eye(dim)[None])
    found = [(float(weight), part.linear(any_basis, transform)) for weight, part in sensor.parts()]
    linear = [(weight, read) for weight, read in found if read is not None]
    return linear if len(linear) == len(found) else None
