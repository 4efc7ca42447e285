"""MarkovProcess: an initial belief and a transition, with the verbs that act on them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.contracts.belief import Belief, Coordinate, Ends, own_names
from sosmarkov.contracts.check import CheckReport
from sosmarkov.contracts.model import Model
from sosmarkov.contracts.reader import Reader, Sensor, Updated, one_reading, placed, readings_in_rows
from sosmarkov.contracts.transition import AbstractTransition, one_input
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.saving import save
from sosmarkov.core.stored import stored
from sosmarkov.data.history import require_history
from sosmarkov.inference import propagate as propagation
from sosmarkov.inference import safety, stationary
from sosmarkov.inference import trajectories as trajectories_
from sosmarkov.inference.beliefs import Beliefs
from sosmarkov.inference.filter import FilterResult, filter_observations
from sosmarkov.inference.smooth import SmoothResult, smooth_observations
from sosmarkov.spaces.transforms import Transform

# Where beliefs start: a belief of the process, a mixture of such, a form h_0, or a known state, by names as well.
Start = Any


_FIELDS = ("initial", "transition", "history", "sensor", "columns")


@stored(*_FIELDS, make=lambda fields: MarkovProcess(**fields), check=require_history, model="process")
class MarkovProcess(Model):
    """A Markov process in rational-factor form.

    Args:
        transition: p(x' | x), or p(x' | x, u).
        initial: Where it starts: a form h_0 over a basis of its own (p_0 = g h_0, normalised
            exactly), a belief of this process, or a known state of shape (d,), or such as {"x0": 0.5, "x1": 0}.
        sensor: What reads the states where no other is named: learned with the process, or given.
        columns: Names of the coordinates; "x0", "x1", ... where none are given.
    """

    initial: Belief
    transition: AbstractTransition
    history: Any = eqx.field(static=True)  # what training did: a record, not part of the mathematics
    sensor: Sensor | None
    columns: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        transition: AbstractTransition,
        initial: Start,
        *,
        sensor: Sensor | None = None,
        history: Any = None,
        columns: Sequence[str] | None = None,
    ):
        self.transition, self.history = transition, history
        self.columns = checks.columns(columns, self.dim)
        self.initial = _start(self, initial)
        self.sensor = None if sensor is None else placed(sensor, self.columns)
        if sensor is not None:
            sensor.require_fits(transition)

    @property
    def members(self) -> tuple[MarkovProcess]:
        """Itself: a process is no mixture."""
        return (self,)

    @property
    def transform(self) -> Transform:
        """From data to model space."""
        return self.transition.transform

    def under(self, u: ArrayLike) -> MarkovProcess:
        """The process under one input that stays, shape (e,): an ordinary one, with a long run of its own."""
        parts = {"sensor": self.sensor, "history": self.history, "columns": self.columns}
        return MarkovProcess(self.transition.under(u), self.initial, **parts)

    @property
    def sensor_origin(self) -> str | None:
        """Where the sensor comes from, in words; None without one."""
        if self.sensor is None:
            return None
        learned = getattr(self.history, "chosen", {}).get("sensor") in ("linear", "joint")
        return "learned with the process" if learned else f"{type(self.sensor).__name__}, given"

    def __repr__(self) -> str:
        """A few lines for a person."""
        return "\n".join([f"{type(self).__name__}: {self.transition.summary()}", *self._facts()])

    def _facts(self) -> list[str]:
        normalised, sizes = self.transition.normalisation, self.transition.sizes
        said = "not looked at: process.check()" if normalised is None else f"within {normalised:.1g} for every state"
        read = "" if self.sensor is None else f"; sensor {self.sensor_origin}"
        return [
            f"  coordinates    {', '.join(self.columns)}{read}",
            f"  size           {sizes}, {self.parameter_count:,} numbers",
            f"  trained on     {_training(self.history)}",
            f"  normalisation  {said}",
        ]

    def with_columns(self, columns: Sequence[str]) -> MarkovProcess:
        """The same process with other names for its coordinates."""
        return MarkovProcess(self.transition, self.initial, sensor=self.sensor, history=self.history, columns=columns)

    def save(self, path: str | os.PathLike) -> None:
        """Write the process to one file, which `sosmarkov.load` reads."""
        save(self, path)

    def propagate(self, steps: int, *, initial: Start | None = None, inputs: ArrayLike | None = None) -> Beliefs:
        """Beliefs at steps 0 to `steps`, exactly, by one compiled scan.

        p_(k+1)(x') = int p(x' | x) p_k(x) dx is a linear map on the coefficients of h_k.

        Args:
            steps: How far ahead, zero or more.
            initial: Another start than the process's own: a belief, a form h_0, or a known state, (d,) or by names.
            inputs: Of each step, shape (steps, e), where p(x' | x, u) depends on one. For a process with a period:
                the times of the steps, counted from 0 where none are given.
        """
        steps = checks.count(steps, "steps")
        start, inputs = _start(self, initial), self.transition.steps_of(inputs, steps)
        if steps == 0:
            return Beliefs(start, self.transition, None)
        return Beliefs(start, self.transition, propagation.propagate(self.transition, start, steps, inputs))

    def belief_at(self, k: int, *, initial: Start | None = None) -> Belief:
        """The belief at one step, however far, at a cost that grows with log k (with k, where time has a period)."""
        k = checks.count(k, "k")
        start = _start(self, initial)
        if k == 0:
            return start
        if self.transition.features is not None and self.transition.long_run is None:
            return self.propagate(k, initial=start)[k]
        return self._belief(propagation.coefficients_at(self.transition, start, k))

    # --- trajectories -----------------------------------------------------------------------------

    def sample(
        self,
        key: PRNGKeyArray | Any,
        count: int,
        steps: int,
        *,
        initial: Start | None = None,
        inputs: ArrayLike | None = None,
    ) -> Float[Any, "n k d"]:
        """Independent trajectories x_0, ..., x_steps under the same inputs, exact draws (count, steps + 1, d)."""
        count, steps = checks.count(count, "count", 1), checks.count(steps, "steps")
        inputs = self.transition.steps_of(inputs, steps)
        return trajectories_.draw(self.transition, _start(self, initial), key, count, steps, inputs)

    def log_likelihood(
        self, trajectories: ArrayLike | Sequence[ArrayLike], *, inputs: ArrayLike | Sequence[ArrayLike] | None = None
    ) -> Float[Any, " n"]:
        """log p(x_0, x_1, ...) per trajectory: log p_0(x_0) + sum_k log p(x_(k+1) | x_k).

        Args:
            trajectories: Shape (N, T, d), one of shape (T, d), or a list of those. Rows of NaN are gaps: the states
                in them are integrated out exactly.
            inputs: Of each step of each trajectory: shape (N, T - 1, e), or a list of arrays (T_i - 1, e).
        """
        found = trajectories_.gather(trajectories, self.dim)
        given = self.transition.inputs_of([len(path) - 1 for path in found], inputs)
        return trajectories_.log_likelihood(self.transition, self.initial, found, given)

    def ck_test(
        self, trajectories: ArrayLike, steps: int, *, coordinate: Coordinate = 0, ranges: int = 3
    ) -> trajectories_.ChapmanKolmogorov:
        """Compare k-step predictions with data, from one range of a coordinate to another.

        Chapman-Kolmogorov holds within the model: a difference is the model's, or the data are not Markov.

        Args:
            trajectories: As for `log_likelihood`.
            steps: Compare at k = 1, ..., steps.
            coordinate: Whose ranges.
            ranges: How many, with equally many observed states in each.
        """
        found = trajectories_.gather(trajectories, self.dim)
        (chosen,) = checks.coordinates(coordinate, self.dim, self.columns)
        steps, ranges = checks.count(steps, "steps", 1), checks.count(ranges, "ranges", 2)
        return trajectories_.ck_test(self.transition.steady, found, steps, chosen, ranges)

    # --- readings ---------------------------------------------------------------------------------

    def filter(
        self,
        observations: ArrayLike,
        *,
        sensor: Sensor | None = None,
        initial: Start | None = None,
        inputs: ArrayLike | None = None,
    ) -> FilterResult:
        """Beliefs given the readings so far, exactly, and the evidence.

        p(x_k | o_0, ..., o_k) is proportional to p(x_k | o_0, ..., o_(k-1)) l(o_k | x_k). Works under `jax.vmap` for
        many sequences.

        Args:
            observations: One reading a row; row k belongs to x_k, row 0 to the initial state. NaN where missing.
            sensor: p(o | x); None for the one that was learned with the process.
            initial: Another start than the process's own.
            inputs: As for `propagate`: of the T - 1 steps between T readings.
        """
        return filter_observations(*self._to_read(observations, sensor, initial, inputs))

    def smooth(
        self,
        observations: ArrayLike,
        *,
        sensor: Sensor | None = None,
        initial: Start | None = None,
        inputs: ArrayLike | None = None,
    ) -> SmoothResult:
        """Beliefs given all readings, before and after, exactly; `sample` draws whole trajectories.

        Arguments as for `filter`.
        """
        return smooth_observations(*self._to_read(observations, sensor, initial, inputs))

    def predict(self, belief: Start, *, u: ArrayLike | None = None) -> Belief:
        """The belief one step later, under the input u: `propagate` for a single step, at constant cost."""
        return self.transition.later(_start(self, belief), one_input(self.transition, u))

    def update(self, belief: Start, observation: ArrayLike, *, sensor: Sensor | None = None) -> Updated:
        """The belief after one reading of its state, and the log of how likely the reading was.

        Args:
            belief: Before the reading.
            observation: One reading, NaN for what is missing.
            sensor: p(o | x); None for the process's own. One that was learned in the joint form reads together with
                a step: with it only the first reading, that of the process's initial belief, is an update of its own.
        """
        start = _start(self, belief)
        reader = _reader(self, sensor, start)
        return reader.update(start, one_reading(reader.sensor, observation))

    def advance(
        self,
        belief: Start,
        observation: ArrayLike,
        *,
        u: ArrayLike | None = None,
        sensor: Sensor | None = None,
    ) -> Updated:
        """The belief one step later, given what is read there: `predict` and `update` in one.

        Arguments as for `predict` and `update`.
        """
        start = _start(self, belief)
        reader = _reader(self, sensor, start)
        return reader.advance(start, one_reading(reader.sensor, observation), one_input(self.transition, u))

    # --- the long run -----------------------------------------------------------------------------

    def stationary(self) -> Belief:
        """The belief that a step leaves as it is: the fixed point of the map on coefficients."""
        return self._belief(stationary.stationary_coefficients(self.transition.steady, self.initial))

    def _belief(self, C: Any) -> Belief:
        return self.transition.belief(C).with_columns(self.columns)

    def spectrum(self) -> np.ndarray:
        """Eigenvalues of the step, the largest first; the first is one, the others decay."""
        return stationary.spectrum(self.transition.steady)

    def mixing_time(self, tolerance: float, *, initial: Start | None = None) -> int:
        """Steps after which the belief is within `tolerance` of the stationary one, in total variation.

        From a bound on the coefficients (the trace distance), so never too few.
        """
        if not 0 < tolerance < 1:
            raise ValueError(f"Expected a tolerance between 0 and 1, got {tolerance}.")
        return stationary.mixing_time(self.transition.steady, _start(self, initial), float(tolerance))

    def autocorrelation(self, coordinate: Coordinate, steps: int) -> Float[Any, " k"]:
        """Corr(x_c at time 0, x_c at time k) for k = 0, ..., steps, once the process is stationary."""
        (chosen,) = checks.coordinates(coordinate, self.dim, self.columns)
        coefficients = stationary.stationary_coefficients(self.transition.steady, self.initial)
        variance = self.transition.belief(coefficients).covariance()[chosen, chosen]
        steps = checks.count(steps, "steps", 1)
        return stationary.autocorrelation(self.transition.steady, coefficients, chosen, steps, variance)

    # --- boxes over time --------------------------------------------------------------------------

    def stay_probability(
        self,
        lower: Ends,
        upper: ArrayLike | None = None,
        steps: int | None = None,
        *,
        initial: Start | None = None,
        inputs: ArrayLike | None = None,
    ) -> Float[Any, " k"]:
        """P(x_1, ..., x_k all in the box) for k = 1, ..., steps; a box may be a mapping, such as {"angle": (0, 1)}."""
        box, steps = self._box(lower, upper), checks.count(steps, "steps", 1)
        inputs = self.transition.steps_of(inputs, steps)
        return safety.stay(self.transition, _start(self, initial), box, steps, inputs)

    def reach_probability(
        self,
        lower: Ends,
        upper: ArrayLike | None = None,
        steps: int | None = None,
        *,
        avoid: tuple[ArrayLike, ArrayLike] | Ends | None = None,
        initial: Start | None = None,
        inputs: ArrayLike | None = None,
    ) -> Float[Any, " k"]:
        """P(one of x_1, ..., x_k in the box) for k = 1, ..., steps, shape (steps,).

        With `avoid`, the ends of a second box: and none of the states up to then in it.
        """
        target, steps = self._box(lower, upper), checks.count(steps, "steps", 1)
        shunned = None
        if avoid is not None:
            box = self._box(avoid) if isinstance(avoid, Mapping) else self._box(*avoid)
            shunned = box, target.shared(box)
        inputs = self.transition.steps_of(inputs, steps)
        return safety.reach(self.transition, _start(self, initial), target, shunned, steps, inputs)

    def mean_first_passage(
        self, lower: Ends, upper: ArrayLike | None = None, *, initial: Start | None = None
    ) -> Float[Any, ""]:
        """E[min {k >= 0: x_k in the box}], in steps, by one linear solve."""
        box = self._box(lower, upper)
        return safety.mean_first_passage(self.transition.steady, _start(self, initial), box)

    def _box(self, lower: Ends, upper: ArrayLike | None = None) -> Any:
        return self.transition.box(*checks.ends(lower, upper, self.dim, self.columns))

    def check(self) -> CheckReport:
        """How exactly the process is normalised, and how well it is conditioned."""
        return self.transition.steady.examine(self.initial)

    def _to_read(
        self, observations: ArrayLike, sensor: Sensor | None, initial: Start | None, inputs: ArrayLike | None
    ) -> tuple[Reader, Belief, Array, Array | None]:
        start = _start(self, initial)
        reader = _reader(self, sensor, start)
        readings = readings_in_rows(reader.sensor, observations)
        return reader, start, readings, self.transition.steps_of(inputs, len(readings) - 1)


# Functions, not methods: a stream asks both for every reading, and Equinox wraps a method each time it is looked up.
def _reader(process: MarkovProcess, sensor: Sensor | None, start: Belief) -> Reader:
    """The sensor, or the process's own, prepared for its transition."""
    found = process.sensor if sensor is None else sensor
    if found is None:
        raise ValueError("Expected a sensor, or a process with a learned sensor of its own, got neither.")
    if not isinstance(found, Sensor):
        raise ValueError(f"Expected a sensor, such as sm.GaussianSensor([0], 0.1), got {type(found).__name__}.")
    return placed(found, process.columns).reader(process.transition, own=start is process.initial)


def _start(process: MarkovProcess, initial: Start | None) -> Belief:
    """What to start from: the process's own belief where none is given."""
    if initial is None:
        return process.initial
    start = process.transition.start(checks.state(initial, process.dim, process.columns))
    known = start.names == own_names(process.columns, process.dim)
    return start if known else start.with_columns(process.columns)


def _training(history: Any) -> str:
    """What a process was trained on, in a line."""
    if history is None or not history.phases:
        return "nothing: built by hand"
    steps = sum(phase.done for phase in history.phases)
    names = ", ".join(phase.name for phase in history.phases)
    return f"{names}: {steps:,} steps, {history.seconds:.3g} s on {history.device}"
