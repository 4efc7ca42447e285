"""What the verbs ask of one process: its start, its path, its sensor, prepared."""

from __future__ import annotations

from typing import Any

from sosmarkov.contracts.belief import Belief, Ends, own_names
from sosmarkov.contracts.reader import Reader, Sensor, placed, readings_in_rows
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.inference import propagate as propagation
from sosmarkov.inference import stationary
from sosmarkov.inference.beliefs import Beliefs

# Where beliefs start: a belief of the process, a mixture of such, a form h_0, or a known state, by names as well; the
# process's own where None. For an ensemble one for all members, or what the ensemble believed before.
Start = Any
# Of each step, shape (steps, e), where p(x' | x, u) depends on one.
Inputs = ArrayLike | None


def start_of(one: Any, initial: Start) -> Belief:
    """What a process starts from: its own belief where none is given."""
    if initial is None:
        return one.initial
    start = one.transition.start(checks.state(initial, one.dim, one.columns))
    known = start.names == own_names(one.columns, one.dim)
    return start if known else start.with_columns(one.columns)


def path_of(one: Any, start: Belief, steps: int, inputs: Inputs) -> Beliefs:
    """Its beliefs from a start."""
    given = one.transition.steps_of(inputs, steps)
    C = propagation.propagate(one.transition, start, steps, given) if steps else None
    return Beliefs(start, one.transition, C)


def named_of(one: Any, C: Any) -> Belief:
    """The belief with these numbers, and its columns."""
    return one.transition.belief(C).with_columns(one.columns)


def long_run_of(one: Any) -> Any:
    """Numbers of its stationary belief."""
    return stationary.stationary_coefficients(one.transition.steady, one.initial)


def box_of(one: Any, lower: Ends, upper: ArrayLike | None = None) -> Any:
    """A box of its states, checked."""
    return one.transition.box(*checks.ends(lower, upper, one.dim, one.columns))


def reader_of(one: Any, sensor: Sensor | None, start: Belief) -> Reader:
    """The sensor, or the process's own, prepared for its transition."""
    found = one.sensor if sensor is None else sensor
    if found is None:
        raise ValueError("Expected a sensor, or a process with a learned sensor of its own, got neither.")
    if not isinstance(found, Sensor):
        raise ValueError(f"Expected a sensor, such as sm.GaussianSensor([0], 0.1), got {type(found).__name__}.")
    return placed(found, one.columns).reader(one.transition, own=start is one.initial)


def to_read(
    one: Any, start: Belief, observations: ArrayLike, sensor: Sensor | None, inputs: Inputs
) -> tuple[Reader, Belief, Any, Any]:
    """What a filter is given: the sensor prepared, a start, readings in rows, inputs of the steps between."""
    reader = reader_of(one, sensor, start)
    readings = readings_in_rows(reader.sensor, observations)
    return reader, start, readings, one.transition.steps_of(inputs, len(readings) - 1)
