"""One run of `fit`: scale, split, roll, start, train, finish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jax import Array

from sosmarkov.data.dataset import EXTREME, Dataset, from_trajectories, robust_standardize
from sosmarkov.data.enough import repeated
from sosmarkov.data.given import padded
from sosmarkov.data.history import History, Scores
from sosmarkov.data.stream import Stream
from sosmarkov.factor.forms import Form
from sosmarkov.factor.step import FactorTransition
from sosmarkov.learning.factor.barrier import BarrierParameters, barrier_loss, finish
from sosmarkov.learning.factor.initialise import model_space, start_initial, start_transition, wanted_start
from sosmarkov.learning.factor.inputs import make_features
from sosmarkov.learning.factor.mixtures import in_parallel, points_for
from sosmarkov.learning.factor.objectives import (
    Parameters,
    Start,
    belief_loss,
    initial_loss,
    realise,
    realise_transition,
    transition_loss,
)
from sosmarkov.learning.factor.rolled import rolled
from sosmarkov.learning.loop import TrainingError, evaluate, stack, unstack
from sosmarkov.learning.phases import Phases
from sosmarkov.learning.settings import Settings
from sosmarkov.process.ensemble import Ensemble
from sosmarkov.process.process import MarkovProcess
from sosmarkov.spaces.transforms import Affine, GaussianCDF, Standardize, Transform, rows_to_data, rows_to_model

_STARTS = 8
_ROWS = 20_000
_TRANSFORMS = ("standardize", "whiten", "gaussian_cdf")
# Where a normal distribution function is one in double precision there is no density: a little less than that.
_EXTREME_CDF = 8.0


class BeliefLoss(NamedTuple):
    """`belief_loss` with its weight; equal by value, so that it is compiled once."""

    weight: float

    def __call__(self, parameters: Parameters, batch: tuple[Array, ...]) -> Array:
        """The loss of a batch of trajectories."""
        return belief_loss(parameters, batch, self.weight)


class Run:
    """One call of `fit`, and what it leaves for the history."""

    def __init__(
        self, settings: Settings, transform: str | Transform | None, phases: Phases, stream: Stream | None = None
    ):
        self.settings = settings
        self.stream = stream
        self.transform = transform if transform is not None else model_space(settings.basis)
        self.phases = phases
        self.chosen: dict[str, Any] = dict(settings.chosen)
        self.scores = Scores()
        if not isinstance(self.transform, Transform) and self.transform not in _TRANSFORMS:
            raise ValueError(
                f"Expected transform one of {', '.join(_TRANSFORMS)}, or a transform object, got {self.transform!r}."
            )

    def fit(self, data: Dataset) -> MarkovProcess | Ensemble:
        """The process these data suggest."""
        scale = robust_standardize(data.states)
        data, self.chosen["set_aside"] = data.within(scale, EXTREME)
        self.chosen["repeated_pairs"] = repeated(data)
        training, held_out = data.split(self.settings.validation, self.settings.seed)
        training, held_out, judged = self._material(training, held_out, scale)
        transform = self._make_transform(training)
        (training, lost), (held_out, _), (judged, seen) = (_within(d, transform) for d in (training, held_out, judged))
        # A surrogate's own trajectories are nobody's data.
        self.chosen["set_aside"] += seen + (0 if self.chosen["surrogate"] else lost)
        forward = _forward(transform)
        score = _Score(transform, judged, self.settings.horizon)
        source = _Source(training.mapped(forward), self.stream, partial(self._prepared, scale, transform, forward))
        parameters = self._train(source, held_out.mapped(forward), score)
        self.scores = replace(self.scores, **score(parameters))
        return self._finish(parameters, transform)

    def _material(self, training: Dataset, held_out: Dataset, scale: Standardize) -> tuple[Dataset, Dataset, Dataset]:
        """What to train on, to stop by and to score, in data space: the given data, or a surrogate's trajectories."""
        # With so many trajectories that they have to be streamed, nothing is gained by inventing more.
        wanted = self.settings.objective == "beliefs" and self.settings.surrogate is not False and not self.stream
        # Times are no numbers a network could do with: phases share nothing.
        wanted = wanted and not isinstance(self.settings.features, int)
        found = None
        if wanted:
            forward = _forward(scale)
            found = rolled(self.phases, training.mapped(forward), held_out.mapped(forward), self.settings)
        self.chosen["surrogate"] = found is not None
        if found is None:
            return training, held_out, held_out
        if found.gain is not None:
            self.chosen["surrogate_gain"] = round(found.gain, 4)
        backward = partial(rows_to_data, scale)
        fresh, stop = (part.mapped(backward) for part in (found.training, found.held_out))
        # Transitions and beliefs from the surrogate, initial states as they were given.
        fresh, stop = (replace(part, starts=own.starts) for part, own in ((fresh, training), (stop, held_out)))
        return fresh, stop, replace(held_out, paths=stop.paths)

    def _make_transform(self, training: Dataset) -> Transform:
        if isinstance(self.transform, Transform):
            return self.transform
        if self.transform == "whiten":
            return Affine.whiten(training.states)
        scale = robust_standardize(training.states)
        return GaussianCDF(scale.mean, scale.std) if self.transform == "gaussian_cdf" else scale

    def _prepared(
        self, scale: Standardize, transform: Transform, forward: Callable, trajectories: list[np.ndarray]
    ) -> Dataset:
        """A block of a stream, treated like the data in memory."""
        # One length for all blocks, so that none has to be compiled again.
        length = max(self.settings.horizon + 2, *(len(part) for part in trajectories))
        data, _ = from_trajectories(padded(trajectories, length)).within(scale, EXTREME)
        return _within(data, transform)[0].mapped(forward)

    def _train(self, source: _Source, held_out: Dataset, score: _Score) -> Parameters:
        s, run, training = self.settings, self.phases.run, source.resident
        starts = in_parallel(partial(start_parameters, s, training), range(s.seed, s.seed + s.members))
        if s.objective == "barrier":
            parameters = self._by_barrier(starts, source, held_out)
        else:
            parameters = run("transitions", stack(starts), transition_loss, source(_pairs), held_out.pairs.batch)
        parameters = train_start(self.phases, s, parameters, training.starts.batch, held_out.starts.batch)
        if s.objective == "beliefs":
            self.scores = replace(self.scores, **{f"{name}_before": v for name, v in score(parameters).items()})
            whole = [source(lambda data: data.paths.batch(s.horizon + 1)), held_out.paths.batch(s.horizon)]
            loss = BeliefLoss(s.transition_weight)
            # Under inputs every trajectory has beliefs of its own: fewer of them a step.
            share = 2 if training.paths.inputs is None else 16
            parameters = run("beliefs", parameters, loss, *whole, batch_size=max(1, s.batch_size // share))
        return parameters

    def _by_barrier(self, starts: list[Parameters], source: _Source, held_out: Dataset) -> Parameters:
        """The paper's training; infeasible results are refused, since they are no densities."""
        begun = stack([BarrierParameters.start(*start[:3]) for start in starts])  # type: ignore[arg-type]
        trained = self.phases.run("barrier", begun, barrier_loss, source(_pairs), held_out.pairs.batch)
        results = [finish(member) for member in unstack(trained, len(starts))]
        for member, result in enumerate(results):
            if result.parts is None:
                raise TrainingError(f"Expected a feasible R, got none in member {member}. {result.message}")
        self.chosen["paper_normalisation_error"] = max(result.normalisation_error for result in results)
        parts = [result.parts for result in results if result.parts is not None]
        return stack([Parameters(*part, *start[3:]) for part, start in zip(parts, starts, strict=True)])

    def _finish(self, stacked: Parameters, transform: Transform) -> MarkovProcess | Ensemble:
        history = History(tuple(self.phases.done), self.chosen, self.scores)
        processes = [
            MarkovProcess(*realised(parameters, transform), history=history)
            for parameters in unstack(stacked, self.settings.members)
        ]
        return processes[0] if len(processes) == 1 else Ensemble(processes, history=history)


def start_parameters(settings: Settings, training: Dataset, seed: int) -> Parameters:
    """Where one member begins, from data in model space."""
    s = settings
    rows, first = (_rows(weight, s.size, seed) for weight in (training.pairs.weight, training.starts.weight))
    wanted = wanted_start(s.basis, s.coupling, s.size, rank=s.rank, background=s.background, seed=seed)
    u = None if training.pairs.u is None else training.pairs.u[rows]
    features = None if u is None else make_features(s.features, u, seed)
    begun = start_transition(training.pairs.x[rows], training.pairs.x_next[rows], wanted, s.coupling, features, u)
    few = wanted._replace(size=min(s.size, _STARTS))
    return Parameters(*begun, *start_initial(training.starts.x[first], few, s.coupling))


def realised(parameters: Parameters, transform: Transform) -> tuple[FactorTransition, Form]:
    """The transition in data space and h_0."""
    found, start = _realise(parameters)
    return type(found)(found.phi, found.psi, found.coupling, transform), start  # type: ignore[call-arg]


_realise = eqx.filter_jit(realise)


def train_start(phases: Phases, settings: Settings, parameters: Parameters, training: Any, held_out: Any) -> Parameters:
    """p_0 from initial states and their weights, with g as the transition has it."""
    background = parameters.coupling.background
    g = eqx.filter_jit(eqx.filter_vmap(lambda one: realise_transition(one).g, in_axes=eqx.if_array(0)))(parameters)
    start = Start(g, parameters.start_basis, parameters.start_factor, background)
    start = phases.run("initial", start, initial_loss, training, held_out, steps=settings.initial_steps)
    return parameters._replace(start_basis=start.basis, start_factor=start.factor)


class _Source:
    """Where phases take their rows from: data in memory, or blocks of a stream."""

    def __init__(self, resident: Dataset, stream: Stream | None, prepare: Callable[[list[np.ndarray]], Dataset]):
        self.resident = resident
        self._stream = stream
        self._prepare = prepare

    def __call__(self, pick: Callable[[Dataset], Any]) -> Any:
        stream = self._stream
        if stream is None:
            return pick(self.resident)
        return lambda done: pick(self._prepare(stream.block(done)).regular())


def _within(data: Dataset, transform: Transform) -> tuple[Dataset, int]:
    """Without the states a transform has no room for, and how many pairs that took away."""
    if not isinstance(transform, GaussianCDF):
        return data, 0
    return data.within(Standardize(transform.mean, transform.std), _EXTREME_CDF)


class _Score:
    """Held-out log-likelihoods in data space, averaged over members."""

    def __init__(self, transform: Transform, data: Dataset, horizon: int):
        model = data.mapped(_forward(transform))
        self._pairs = model.pairs.batch
        self._whole = model.paths.batch(horizon) if data.whole else None
        self._shift = {
            "transitions": np.average(rows_to_model(transform, data.pairs.x_next)[1], weights=data.pairs.weight)
        }
        if data.whole:
            states, present = data.paths.batch(horizon)[:2]
            self._shift["beliefs"] = np.average(rows_to_model(transform, states)[1], weights=present)

    def __call__(self, stacked: Parameters) -> dict[str, float]:
        losses = [evaluate(transition_loss, stacked, self._pairs)]
        if self._whole is not None:
            losses.append(evaluate(BeliefLoss(0.0), stacked, self._whole))
        return {name: float(shift - np.mean(v)) for (name, shift), v in zip(self._shift.items(), losses, strict=True)}


def _pairs(data: Dataset) -> tuple[np.ndarray, ...]:
    return data.pairs.batch


def _forward(transform: Transform) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: rows_to_model(transform, x)[0]


def _rows(weight: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Rows for a start, as many as it looks at, drawn by weight where weights differ."""
    rng, most = np.random.default_rng(seed), max(_ROWS, points_for(size))
    if np.ptp(weight) > 0:
        return rng.choice(len(weight), min(len(weight), most), p=weight / weight.sum())
    return rng.permutation(len(weight))[:most]
