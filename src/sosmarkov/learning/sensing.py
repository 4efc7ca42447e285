"""What `fit` is given to read: which kind of sensor to learn, or which one is known, and the data for it."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

import numpy as np

from sosmarkov.core import checks
from sosmarkov.data.dataset import Dataset, from_trajectories, scaled, scaled_readings
from sosmarkov.data.given import as_readings
from sosmarkov.factor.bases import FullGaussianBasis
from sosmarkov.learning.factor.latent import Known, draw_states
from sosmarkov.learning.factor.readings import WORTH, ReadRun, gain_of_a_mixture
from sosmarkov.learning.factor.sensed import SensedRun
from sosmarkov.learning.phases import Phases
from sosmarkov.learning.settings import Settings
from sosmarkov.process.ensemble import Ensemble
from sosmarkov.process.process import MarkovProcess
from sosmarkov.sensors import Sensor
from sosmarkov.spaces.transforms import Identity, Standardize

KINDS = ("linear", "joint")
# Rank for each function of a reading.
_JOINT_RANK = 3


class Sensing(NamedTuple):
    """A sensor to learn or to use, with states and readings in model space.

    Attributes:
        kind: "linear", "joint" or "known".
        sensor: The known one.
        size: Functions of a reading, for "joint".
        latent: Whether states were never seen, and those here are a start only.
        data: States and readings.
        scale: From states as given to model space.
        scale_o: The same of readings.
        chosen: What the history should say.
    """

    kind: str
    sensor: Sensor | None
    size: int
    latent: bool
    data: Dataset
    scale: Standardize
    scale_o: Standardize
    chosen: dict[str, Any]

    def given(self, given: dict[str, Any]) -> dict[str, Any]:
        """The settings asked for, with what the sensor suggests for those left open."""
        if self.kind == "joint":
            rank = _JOINT_RANK if given["rank"] is None else given["rank"]
            return given | {"sensor_size": self.size, "rank": rank}
        return given | {"basis": given["basis"] or "gaussian-full"}

    def run(self, settings: Settings, phases: Phases) -> MarkovProcess | Ensemble:
        """Train."""
        if self.kind == "joint":
            run = SensedRun(settings, phases, self.size, self.chosen)
        else:
            run = ReadRun(settings, phases, self.sensor, self.chosen, latent=self.latent)
        return run.fit(self.data, self.scale, self.scale_o)


def settle_sensing(data: Dataset, given: dict[str, Any]) -> Sensing | None:
    """What is to be read beside the states; None where nothing is."""
    sensor, size = given["sensor"], given["sensor_size"]
    if data.paths.readings is None:
        if sensor is not None or size is not None:
            raise ValueError("Expected observations with sensor or sensor_size, got none.")
        return None
    if given["dim"] is not None:
        raise ValueError("Expected dim only where no states are given: trajectories bring theirs.")
    _refuse(given, {})
    kind = _asked_kind(sensor, size, given, data.pairs.u is not None)
    known = sensor if _known(sensor) else None
    found, scale, scale_o, lost = scaled(data, known is not None)
    readings = found.paths.readings
    assert readings is not None
    if known is not None:
        known.check(readings)
    chosen: dict[str, Any] = {"set_aside": lost}
    if kind is None:
        training, held_out = found.split(given["validation"], given["seed"])
        gain = gain_of_a_mixture(training, held_out, given["seed"])
        kind = "joint" if gain > WORTH else "linear"
        chosen |= {"sensor_gain": round(gain, 4)} if np.isfinite(gain) else {}
    width = readings.shape[2]
    size = checks.count(min(4 + 2 * width, 12) if size is None else size, "sensor_size", 1)
    chosen |= {"sensor": kind if known is None else type(known).__name__}
    chosen |= {"sensor_size": size} if kind == "joint" else {}
    return Sensing(kind, known, size, False, found, scale, scale_o, chosen)


def settle_latent(observations: Any, weights: Any, given: dict[str, Any]) -> tuple[Dataset, Sensing]:
    """Where training from readings alone starts: the states a linear-Gaussian process would have had."""
    if given["dim"] is None:
        raise ValueError("Expected dim, how many coordinates the unseen state has, with observations alone, got none.")
    dim, sensor = checks.count(given["dim"], "dim", 1), given["sensor"]
    if sensor not in (None, "linear") and not _known(sensor):
        raise ValueError(f"Expected sensor 'linear', or a known one, with observations alone, got {sensor!r}.")
    _refuse(
        given,
        {"sensor_size": given["sensor_size"] is not None, "weights": weights is not None}
        | {"surrogate": bool(given["surrogate"])}
        | {"basis": given["basis"] not in (None, "gaussian-full")},
    )
    known = sensor if _known(sensor) else None
    readings, scale_o = scaled_readings(as_readings(observations, None), known is not None)
    if len(readings) < 2:
        raise ValueError(
            f"Expected two sequences of readings or more, got {len(readings)}. Cut a long one into pieces:"
            " observations[: n * 50].reshape(n, 50, k)."
        )
    states = draw_states(readings, dim, None if known is None else _linear(known, dim, readings), given["seed"])
    # Nothing is learned from what would come after the last reading of a shorter sequence.
    read = ~np.isnan(readings).all(axis=2)
    running = np.flip(np.logical_or.accumulate(np.flip(read, axis=1), axis=1), axis=1)
    states = np.where(running[..., None], states, np.nan)
    data = from_trajectories(states, observations=readings)
    found, scale, _, _ = scaled(data, keep=True)
    name = "linear" if known is None else type(known).__name__
    chosen = {"dim": dim, "sensor": name}
    kind = "linear" if known is None else "known"
    return data, Sensing(kind, known, 0, True, found, scale, scale_o, chosen)


def _known(sensor: Any) -> TypeGuard[Sensor]:
    """Whether it is a sensor of the state alone, which needs no learning."""
    return isinstance(sensor, Sensor) and sensor.of_state


def _linear(sensor: Sensor, dim: int, readings: np.ndarray) -> Known:
    """A known sensor as the start needs it."""
    sensor.check(readings)
    any_basis = FullGaussianBasis(np.zeros((1, dim)), np.eye(dim)[None])
    read = sensor.linear(any_basis, Identity(dim))
    if read is None:
        raise ValueError(
            "Expected a Gaussian sensor of linear functions of the state with observations alone, got"
            f" {type(sensor).__name__}. Use GaussianSensor or LinearSensor."
        )
    return Known(*(np.asarray(part) for part in (read.H, read.offset, read.std**2)))


def _asked_kind(sensor: Any, size: int | None, given: dict[str, Any], driven: bool) -> str | None:
    """The kind that was asked for; None where the data are to say."""
    basis, coupling = given["basis"], given["coupling"]
    if _known(sensor):
        if size is not None:
            raise ValueError("Expected sensor_size only where the sensor is learned, got it beside a known one.")
        return "known"
    if sensor not in (None, *KINDS):
        raise ValueError(f"Expected sensor one of {', '.join(KINDS)}, or a sensor that is known, got {sensor!r}.")
    if sensor == "linear" and (size is not None or basis == "gaussian"):
        raise ValueError("Expected basis 'gaussian-full' and no sensor_size with sensor 'linear', got others.")
    # Functions of a reading are the joint form's; axis-aligned functions have no closed form under a linear sensor.
    kind = "joint" if size is not None or basis == "gaussian" else sensor
    alone = coupling == "kraus" and not driven
    if kind == "joint" and (not alone or given["surrogate"]):
        raise ValueError(
            "Expected coupling 'kraus', no inputs and no surrogate with a sensor of the joint form, got others. Use"
            " sensor='linear'."
        )
    # Where the joint form cannot be had there is nothing to choose.
    return "linear" if kind is None and not alone else kind


def _refuse(given: dict[str, Any], others: dict[str, bool]) -> None:
    refused = {
        "basis": given["basis"] not in (None, "gaussian", "gaussian-full"),
        "transform": given["transform"] not in (None, "standardize"),
    } | others
    if any(refused.values()):
        names = ", ".join(name for name, bad in refused.items() if bad)
        raise ValueError(
            "Expected, with observations, trajectories, Gaussian functions and a standardising transform; got something"
            f" else for: {names}."
        )
