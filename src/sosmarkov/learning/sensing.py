"""What `fit` is given to read: which kind of sensor to learn, or which one is known, and the data for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from sosmarkov.contracts.reader import placed
from sosmarkov.core import checks
from sosmarkov.data.dataset import Dataset, from_trajectories, scaled, scaled_readings
from sosmarkov.data.given import as_readings
from sosmarkov.factor.likelihood import LinearReading
from sosmarkov.learning.choose import Settings
from sosmarkov.learning.factor.latent import draw_states
from sosmarkov.learning.factor.readings import WORTH, Latent, Read, Sensing, gain_of_a_mixture
from sosmarkov.learning.factor.rolled import linear_parts
from sosmarkov.learning.factor.sensed import Joint
from sosmarkov.learning.options import Options
from sosmarkov.learning.phases import Task, Trainer
from sosmarkov.process.process import MarkovProcess
from sosmarkov.sensors import Sensor
from sosmarkov.spaces.transforms import Identity

KINDS = ("linear", "joint")
# Options that say something of states, or of a sensor that learns from them.
_OF_STATES = ("inputs", "period", "sensor_size", "weights")
# Rank for each function of a reading.
_JOINT_RANK = 3


Make = Callable[[Settings, Trainer], Task[MarkovProcess]]


def sense(given: Options, data: Dataset) -> tuple[Options, Dataset, Make]:
    """What is learned with readings beside the states; the options, with what that suggests for those left open."""
    if given.dim is not None:
        raise ValueError("Expected dim only where no states are given: trajectories bring theirs.")
    _refuse(given, transitions=not data.whole)
    kind = _asked_kind(given, data.pairs.u is not None)
    known = given.known_sensor
    if known is not None:
        known = placed(known, checks.columns(data.columns, data.dim))
    found, scale, scale_o, lost = scaled(data, known is not None)
    readings = found.paths.readings
    assert readings is not None
    if known is not None:
        known.check(readings)
        if given.surrogate and linear_parts(known, data.dim, scale) is None:
            raise ValueError(
                "Expected a sensor of linear functions of the state with surrogate=True, whose readings are drawn, got"
                f" {type(known).__name__}. Leave surrogate out."
            )
    chosen: dict[str, Any] = {"set_aside": lost}
    if kind is None:
        training, held_out = found.split(given.validation, given.seed)
        gain = gain_of_a_mixture(training, held_out, given.seed)
        kind = "joint" if gain > WORTH else "linear"
        chosen |= {"sensor_gain": round(gain, 4)} if np.isfinite(gain) else {}
    _refuse_horizon(given, kind == "joint" or given.period is not None)
    chosen |= {"sensor": kind if known is None else type(known).__name__}
    if kind != "joint":
        given = replace(given, basis=given.basis or "gaussian-full")
        return given, data, partial(Read, Sensing(known, found, scale, scale_o, chosen))
    size = given.sensor_size or min(4 + 2 * readings.shape[2], 12)
    chosen |= {"sensor_size": size}
    given = replace(given, sensor_size=size, rank=_JOINT_RANK if given.rank is None else given.rank)
    return given, data, partial(Joint, Sensing(None, found, scale, scale_o, chosen))


def sense_alone(given: Options) -> tuple[Options, Dataset, Make]:
    """Where training from readings alone starts: the states a linear-Gaussian process would have had."""
    if given.dim is None:
        raise ValueError("Expected dim, how many coordinates the unseen state has, with observations alone, got none.")
    dim, known = given.dim, given.known_sensor
    if known is None and given.sensor not in (None, "linear"):
        raise ValueError(f"Expected sensor 'linear', or a known one, with observations alone, got {given.sensor!r}.")
    _refuse(
        given,
        **{name: value is not None for name, value in given.picked(*_OF_STATES).items()},
        surrogate=bool(given.surrogate),
        basis=given.basis not in (None, "gaussian-full"),
    )
    _refuse_horizon(given, True)
    readings, scale_o = scaled_readings(as_readings(given.observations, None), known is not None)
    if len(readings) < 2:
        raise ValueError(
            f"Expected two sequences of readings or more, got {len(readings)}. Cut a long one into pieces:"
            " observations[: n * 50].reshape(n, 50, k)."
        )
    states = draw_states(readings, dim, None if known is None else _linear(known, dim, readings), given.seed)
    # Nothing is learned from what would come after the last reading of a shorter sequence.
    read = ~np.isnan(readings).all(axis=2)
    running = np.flip(np.logical_or.accumulate(np.flip(read, axis=1), axis=1), axis=1)
    data = from_trajectories(np.where(running[..., None], states, np.nan), observations=readings)
    data = replace(data, columns=None if given.columns is None else checks.columns(given.columns, dim))
    found, scale, _, _ = scaled(data, keep=True)
    chosen = {"dim": dim, "sensor": "linear" if known is None else type(known).__name__}
    given = replace(given, basis="gaussian-full")
    return given, data, partial(Latent, Sensing(known, found, scale, scale_o, chosen))


def _linear(sensor: Sensor, dim: int, readings: np.ndarray) -> LinearReading:
    """A known sensor as the start needs it."""
    sensor.check(readings)
    parts = linear_parts(sensor, dim, Identity(dim))
    if parts is None or len(parts) > 1:
        raise ValueError(
            "Expected a Gaussian sensor of linear functions of the state with observations alone, got"
            f" {type(sensor).__name__}. Use GaussianSensor or LinearSensor."
        )
    return parts[0][1]


def _asked_kind(given: Options, driven: bool) -> str | None:
    """The kind that was asked for; None where the data are to say."""
    size = given.sensor_size
    if given.known_sensor is not None:
        if size is not None:
            raise ValueError("Expected sensor_size only where the sensor is learned, got it beside a known one.")
        return "known"
    sensor = None
    if given.sensor is not None:
        sensor = checks.one_of(given.sensor, KINDS, "sensor (or one that is known)")
    if sensor == "linear" and (size is not None or given.basis == "gaussian"):
        raise ValueError("Expected basis 'gaussian-full' and no sensor_size with sensor 'linear', got others.")
    # Functions of a reading are the joint form's; axis-aligned functions have no closed form under a linear sensor.
    kind = "joint" if size is not None or given.basis == "gaussian" else sensor
    alone = given.coupling == "kraus" and not driven and not given.surrogate
    if kind == "joint" and not alone:
        raise ValueError(
            "Expected coupling 'kraus', no inputs and no surrogate with a sensor of the joint form, got others. Use"
            " sensor='linear'."
        )
    # Where the joint form cannot be had there is nothing to choose.
    return "linear" if kind is None and not alone else kind


def _refuse_horizon(given: Options, unused: bool) -> None:
    """Filters are trained over whole sequences: a horizon is how far a surrogate is rolled, where there is one."""
    if given.horizon is not None and (unused or given.surrogate is False or given.objective == "transitions"):
        raise ValueError(
            "Expected a horizon with observations only where a surrogate is rolled; here it would change nothing. Leave"
            " it out."
        )


def _refuse(given: Options, **others: bool) -> None:
    """Refuse options that come with no sensor here; `others` says of more of them whether they are."""
    refused = {
        "basis": given.basis not in (None, "gaussian", "gaussian-full"),
        "transform": given.transform not in (None, "standardize"),
        "objective": given.objective not in (None, 0, "transitions", "beliefs"),
    } | others
    if any(refused.values()):
        found = ", ".join(name for name, bad in refused.items() if bad)
        raise ValueError(
            "Expected trajectories, Gaussian functions, a standardising transform and objective 'transitions' or"
            f" 'beliefs' with observations, got something else for: {found}."
        )
