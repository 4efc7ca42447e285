"""The verbs of a process, once, over the processes it is made of: itself alone, or the members of an ensemble."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import equinox as eqx
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.contracts.belief import Belief, Coordinate, Ends, own_names
from sosmarkov.contracts.check import CheckReport
from sosmarkov.contracts.mixture import EnsembleBelief
from sosmarkov.contracts.reader import Reader, Sensor, Updated, one_reading, placed, readings_in_rows
from sosmarkov.contracts.transition import one_input
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import library
from sosmarkov.core.saving import save
from sosmarkov.inference import propagate as propagation
from sosmarkov.inference import safety, stationary
from sosmarkov.inference import trajectories as trajectories_
from sosmarkov.inference.beliefs import Beliefs, BeliefSequence
from sosmarkov.inference.filter import FilterResult, filter_observations
from sosmarkov.inference.smooth import SmoothResult, smooth_observations
from sosmarkov.inference.trajectories import ChapmanKolmogorov
from sosmarkov.process import mixing

# Where beliefs start: a belief of the process, a mixture of such, a form h_0, or a known state, by names as well; the
# process's own where None. For an ensemble one for all members, or what the ensemble believed before.
Start = Any
# Of each step, shape (steps, e), where p(x' | x, u) depends on one.
Inputs = ArrayLike | None
# What one process answers from its start; what several answers come to under the weights of those who gave them.
Ask = Callable[[Any, Belief], Any]
Mix = Callable[[list[Any], Any], Any]


class Model(eqx.Module):
    """A Markov process, or several whose answers are mixed: every verb asks the `members`, a process its own only one.

    What an ensemble answers is the mixture of what its members do, each as likely as the others before anything is
    read; readings weigh them by how likely each held them, exactly.
    """

    initial: eqx.AbstractVar[Belief]
    history: eqx.AbstractVar[Any]
    columns: eqx.AbstractVar[tuple[str, ...]]
    members: eqx.AbstractVar[tuple[Any, ...]]

    # A function of the class, not a method: a stream asks for every reading, and Equinox wraps a method each time it is
    # looked up.
    @staticmethod
    @abstractmethod
    def _answer(model: Any, mix: Mix, ask: Ask, initial: Start = None) -> Any:
        """What each member answers from its start, mixed under their weights."""

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.members[0].transition.dim

    @property
    def form(self) -> str:
        """What `fit` calls its form: factor, gaussian or lattice."""
        return self.members[0].transition.kind

    @property
    def features(self) -> Any | None:
        """How inputs act; None where there are none."""
        return self.members[0].transition.features

    @property
    def input_dim(self) -> int:
        """How many numbers an input has; zero where there are none to give: none are taken, or time counts itself."""
        features = self.features
        return 0 if features is None or features.period is not None else features.dim

    @property
    def parameter_count(self) -> int:
        """Free numbers of the transition and of the initial belief, of all members."""
        return sum(one.transition.parameter_count + one.initial.parameter_count for one in self.members)

    @abstractmethod
    def under(self, u: ArrayLike) -> Model:
        """The same under one input that stays, shape (e,): steps are all alike, and there is a long run."""

    @abstractmethod
    def with_columns(self, columns: Sequence[str]) -> Model:
        """The same with other names for its coordinates."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file, which `sosmarkov.load` reads."""
        save(self, path)

    def propagate(self, steps: int, *, initial: Start = None, inputs: Inputs = None) -> BeliefSequence:
        """Beliefs at steps 0 to `steps`, exactly, by one compiled scan.

        p_(k+1)(x') = int p(x' | x) p_k(x) dx is a linear map on the coefficients of h_k.

        Args:
            steps: How far ahead, zero or more.
            initial: Another start than the process's own: a belief, a form h_0, or a known state, (d,) or by names.
            inputs: Of each step, shape (steps, e), where p(x' | x, u) depends on one. For a process with a period:
                the times of the steps, counted from 0 where none are given.
        """
        steps = checks.count(steps, "steps")
        return self._answer(self, mixing.path, lambda one, start: _path(one, start, steps, inputs), initial)

    def belief_at(self, k: int, *, initial: Start = None) -> Belief:
        """The belief at one step, however far, at a cost that grows with log k (with k, where time has a period)."""
        k = checks.count(k, "k")

        def ask(one: Any, start: Belief) -> Belief:
            if k == 0:
                return start
            if one.transition.features is not None and one.transition.long_run is None:
                return _path(one, start, k, None)[k]
            return _named(one, propagation.coefficients_at(one.transition, start, k))

        return self._answer(self, EnsembleBelief, ask, initial)

    # --- trajectories -----------------------------------------------------------------------------

    def sample(
        self, key: PRNGKeyArray | Any, count: int, steps: int, *, initial: Start = None, inputs: Inputs = None
    ) -> Float[Any, "n k d"]:
        """Independent trajectories x_0, ..., x_steps under the same inputs, exact draws (count, steps + 1, d)."""
        count, steps = checks.count(count, "count", 1), checks.count(steps, "steps")

        def ask(one: Any, start: Belief) -> Callable[[Any, int], Any]:
            given = one.transition.steps_of(inputs, steps)
            return lambda key, count: trajectories_.draw(one.transition, start, key, count, steps, given)

        return self._answer(self, mixing.draws, ask, initial)(key, count)

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

        def ask(one: Any, start: Belief) -> Any:
            given = one.transition.inputs_of([len(path) - 1 for path in found], inputs)
            return trajectories_.log_likelihood(one.transition, start, found, given)

        return self._answer(self, mixing.log_mean, ask)

    def ck_test(
        self, trajectories: ArrayLike, steps: int, *, coordinate: Coordinate = 0, ranges: int = 3
    ) -> ChapmanKolmogorov:
        """Compare k-step predictions with data, from one range of a coordinate to another.

        Args:
            trajectories: As for `log_likelihood`.
            steps: Compare at k = 1, ..., steps.
            coordinate: Whose ranges.
            ranges: How many, with equally many observed states in each.
        """
        found, (chosen,) = trajectories_.gather(trajectories, self.dim), self._places(coordinate)
        steps, ranges = checks.count(steps, "steps", 1), checks.count(ranges, "ranges", 2)
        ask: Ask = lambda one, _: trajectories_.ck_test(one.transition.steady, found, steps, chosen, ranges)  # noqa: E731
        return self._answer(self, mixing.predictions, ask)

    # --- readings ---------------------------------------------------------------------------------

    def filter(
        self, observations: ArrayLike, *, sensor: Sensor | None = None, initial: Start = None, inputs: Inputs = None
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
        ask: Ask = lambda one, start: filter_observations(*_to_read(one, start, observations, sensor, inputs))  # noqa: E731
        return self._answer(self, mixing.filtered, ask, initial)

    def smooth(
        self, observations: ArrayLike, *, sensor: Sensor | None = None, initial: Start = None, inputs: Inputs = None
    ) -> SmoothResult:
        """Beliefs given all readings, before and after, exactly; `sample` draws whole trajectories.

        Arguments as for `filter`.
        """
        ask: Ask = lambda one, start: smooth_observations(*_to_read(one, start, observations, sensor, inputs))  # noqa: E731
        return self._answer(self, mixing.smoothed, ask, initial)

    def predict(self, belief: Start, *, u: ArrayLike | None = None) -> Belief:
        """The belief one step later, under the input u: `propagate` for a single step, at constant cost."""
        ask: Ask = lambda one, start: one.transition.later(start, one_input(one.transition, u))  # noqa: E731
        return self._answer(self, EnsembleBelief, ask, belief)

    def update(self, belief: Start, observation: ArrayLike, *, sensor: Sensor | None = None) -> Updated:
        """The belief after one reading of its state, and the log of how likely the reading was.

        Args:
            belief: Before the reading.
            observation: One reading, NaN for what is missing.
            sensor: p(o | x); None for the process's own. One that was learned in the joint form reads together with
                a step: with it only the first reading, that of the process's initial belief, is an update of its own.
        """

        def ask(one: Any, start: Belief) -> Updated:
            reader = _reader(one, sensor, start)
            return reader.update(start, one_reading(reader.sensor, observation))

        return self._answer(self, mixing.updated, ask, belief)

    def advance(
        self, belief: Start, observation: ArrayLike, *, u: ArrayLike | None = None, sensor: Sensor | None = None
    ) -> Updated:
        """The belief one step later, given what is read there: `predict` and `update` in one.

        Arguments as for `predict` and `update`.
        """

        def ask(one: Any, start: Belief) -> Updated:
            reader = _reader(one, sensor, start)
            return reader.advance(start, one_reading(reader.sensor, observation), one_input(one.transition, u))

        return self._answer(self, mixing.updated, ask, belief)

    # --- the long run -----------------------------------------------------------------------------

    def stationary(self) -> Belief:
        """The belief that a step leaves as it is: the fixed point of the map on coefficients."""
        return self._answer(self, EnsembleBelief, lambda one, _: _named(one, _long_run(one)))

    def spectrum(self) -> np.ndarray:
        """Eigenvalues of the step, the largest first; one of each member's is one, the others decay."""
        return self._answer(self, mixing.modes, lambda one, _: stationary.spectrum(one.transition.steady))

    def timescales(self, count: int) -> np.ndarray:
        """Relaxation times in steps: -1 / log|lambda_i| of the largest eigenvalues after those that are one."""
        wanted, values = checks.count(count, "count", 1), self.spectrum()[len(self.members) :]
        if len(values) < wanted:
            raise ValueError(f"Expected a count of at most {len(values)} for this process, got {wanted}.")
        size = np.abs(values[:wanted])
        with np.errstate(divide="ignore"):
            return np.where(size > 0, -1.0 / np.log(size), 0.0)

    def mixing_time(self, tolerance: float, *, initial: Start = None) -> int:
        """Steps after which the belief is within `tolerance` of the stationary one, in total variation.

        From a bound on the coefficients (the trace distance), so never too few.
        """
        if not 0 < tolerance < 1:
            raise ValueError(f"Expected a tolerance between 0 and 1, got {tolerance}.")
        ask: Ask = lambda one, start: stationary.mixing_time(one.transition.steady, start, float(tolerance))  # noqa: E731
        return self._answer(self, mixing.slowest, ask, initial)

    def autocorrelation(self, coordinate: Coordinate, steps: int) -> Float[Any, " k"]:
        """Corr(x_c at time 0, x_c at time k) for k = 0, ..., steps, once the process is stationary."""
        (chosen,), steps = self._places(coordinate), checks.count(steps, "steps", 1)

        def ask(one: Any, _: Belief) -> Any:
            C = _long_run(one)
            variance = one.transition.belief(C).covariance()[chosen, chosen]
            return stationary.autocorrelation(one.transition.steady, C, chosen, steps, variance)

        def mix(found: list[Any], weights: Any) -> Any:
            del weights
            return mixing.correlation(found, [one.stationary() for one in self.members], chosen)

        return self._answer(self, mix, ask)

    # --- boxes over time --------------------------------------------------------------------------

    def stay_probability(
        self,
        lower: Ends,
        upper: ArrayLike | None = None,
        steps: int | None = None,
        *,
        initial: Start = None,
        inputs: Inputs = None,
    ) -> Float[Any, " k"]:
        """P(x_1, ..., x_k all in the box) for k = 1, ..., steps; a box may be a mapping, such as {"angle": (0, 1)}."""
        steps = checks.count(steps, "steps", 1)

        def ask(one: Any, start: Belief) -> Any:
            given = one.transition.steps_of(inputs, steps)
            return safety.stay(one.transition, start, _box(one, lower, upper), steps, given)

        return self._answer(self, mixing.mean, ask, initial)

    def exit_probability(
        self, lower: Ends, upper: ArrayLike | None = None, steps: int | None = None, **how: Any
    ) -> Float[Any, " k"]:
        """P(x_k is the first of x_1, x_2, ... outside the box) for k = 1, ..., steps: the first-exit time.

        Arguments as for `stay_probability`.
        """
        stayed = self.stay_probability(lower, upper, steps, **how)
        return -library(stayed).diff(stayed, prepend=1.0)

    def reach_probability(
        self,
        lower: Ends,
        upper: ArrayLike | None = None,
        steps: int | None = None,
        *,
        avoid: tuple[ArrayLike, ArrayLike] | Ends | None = None,
        initial: Start = None,
        inputs: Inputs = None,
    ) -> Float[Any, " k"]:
        """P(one of x_1, ..., x_k in the box) for k = 1, ..., steps, shape (steps,).

        With `avoid`, the ends of a second box: and none of the states up to then in it.
        """
        steps = checks.count(steps, "steps", 1)

        def ask(one: Any, start: Belief) -> Any:
            target, shunned = _box(one, lower, upper), None
            if avoid is not None:
                box = _box(one, cast(Ends, avoid)) if isinstance(avoid, Mapping) else _box(one, *avoid)
                shunned = box, target.shared(box)
            given = one.transition.steps_of(inputs, steps)
            return safety.reach(one.transition, start, target, shunned, steps, given)

        return self._answer(self, mixing.mean, ask, initial)

    def mean_first_passage(
        self, lower: Ends, upper: ArrayLike | None = None, *, initial: Start = None
    ) -> Float[Any, ""]:
        """E[min {k >= 0: x_k in the box}], in steps, by one linear solve."""

        def ask(one: Any, start: Belief) -> Any:
            return safety.mean_first_passage(one.transition.steady, start, _box(one, lower, upper))

        return self._answer(self, mixing.mean, ask, initial)

    def check(self) -> CheckReport:
        """How exactly it is normalised, and how well it is conditioned; the worst of the members."""
        return self._answer(self, mixing.worst, lambda one, start: one.transition.steady.examine(start))

    def _places(self, coordinate: Coordinate) -> tuple[int, ...]:
        return checks.coordinates(coordinate, self.dim, self.columns)


# --- what the verbs ask of one process ------------------------------------------------------------


def start_of(one: Any, initial: Start) -> Belief:
    """What a process starts from: its own belief where none is given."""
    if initial is None:
        return one.initial
    start = one.transition.start(checks.state(initial, one.dim, one.columns))
    known = start.names == own_names(one.columns, one.dim)
    return start if known else start.with_columns(one.columns)


def _path(one: Any, start: Belief, steps: int, inputs: Inputs) -> Beliefs:
    given = one.transition.steps_of(inputs, steps)
    return Beliefs(start, one.transition, propagation.propagate(one.transition, start, steps, given) if steps else None)


def _named(one: Any, C: Any) -> Belief:
    return one.transition.belief(C).with_columns(one.columns)


def _long_run(one: Any) -> Any:
    return stationary.stationary_coefficients(one.transition.steady, one.initial)


def _box(one: Any, lower: Ends, upper: ArrayLike | None = None) -> Any:
    return one.transition.box(*checks.ends(lower, upper, one.dim, one.columns))


def _reader(one: Any, sensor: Sensor | None, start: Belief) -> Reader:
    """The sensor, or the process's own, prepared for its transition."""
    found = one.sensor if sensor is None else sensor
    if found is None:
        raise ValueError("Expected a sensor, or a process with a learned sensor of its own, got neither.")
    if not isinstance(found, Sensor):
        raise ValueError(f"Expected a sensor, such as sm.GaussianSensor([0], 0.1), got {type(found).__name__}.")
    return placed(found, one.columns).reader(one.transition, own=start is one.initial)


def _to_read(
    one: Any, start: Belief, observations: ArrayLike, sensor: Sensor | None, inputs: Inputs
) -> tuple[Reader, Belief, Any, Any]:
    reader = _reader(one, sensor, start)
    readings = readings_in_rows(reader.sensor, observations)
    return reader, start, readings, one.transition.steps_of(inputs, len(readings) - 1)
