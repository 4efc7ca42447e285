"""Learning a process from its states: from transitions, then initial states, then beliefs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import numpy as np

from sosmarkov.data.dataset import EXTREME, Dataset, from_trajectories, robust_standardize
from sosmarkov.data.enough import repeated
from sosmarkov.data.given import padded
from sosmarkov.data.history import History
from sosmarkov.data.stream import Stream
from sosmarkov.factor.forms import Form
from sosmarkov.factor.step import FactorTransition
from sosmarkov.learning.choose import Settings
from sosmarkov.learning.factor.initialise import model_space, start_parameters
from sosmarkov.learning.factor.objectives import (
    BeliefLoss,
    Parameters,
    Start,
    initial_loss,
    realise,
    realise_transition,
    transition_loss,
)
from sosmarkov.learning.factor.rolled import rolled, told
from sosmarkov.learning.loop import evaluate
from sosmarkov.learning.options import made
from sosmarkov.learning.phases import Phase, Task, Trainer
from sosmarkov.process.process import MarkovProcess
from sosmarkov.spaces.transforms import Affine, GaussianCDF, Standardize, Transform, rows_to_data, rows_to_model

# Where a normal distribution function is one in double precision there is no density: a little less than that.
_EXTREME_CDF = 8.0


class Plain(Task[MarkovProcess]):
    """A process from its states alone.

    Args:
        data: What was given.
        stream: Where more trajectories come from than are in memory, or None.
        settings: What steers training.
        trainer: Runs the surrogate's training.
    """

    def __init__(self, data: Dataset, stream: Stream | None, settings: Settings, trainer: Trainer):
        self.settings, self._stream = settings, stream
        self.chosen: dict[str, Any] = dict(settings.chosen)
        self._scale = robust_standardize(data.states)
        data, self.chosen["set_aside"] = data.within(self._scale, EXTREME)
        self.chosen["repeated_pairs"] = repeated(data)
        training, held_out = data.split(settings.validation, settings.seed)
        training, held_out, judged = self._material(training, held_out, trainer)
        self.transform = _make_transform(settings, training)
        (training, lost), (held_out, _), (judged, seen) = (
            _within(d, self.transform) for d in (training, held_out, judged)
        )
        # A surrogate's own trajectories are nobody's data.
        self.chosen["set_aside"] += seen + (0 if self.chosen["surrogate"] else lost)
        self.training, self.held_out = (part.mapped(self._forward) for part in (training, held_out))
        self._judged = judged

    def start(self, seed: int) -> Parameters:
        """From mixtures fitted to the data."""
        return start_parameters(self.settings, self.training, seed)

    def phases(self) -> list[Phase]:
        """Transitions, p_0, and beliefs where they are asked for."""
        s = self.settings
        found = [self.first_phase(), initial_phase(s, self.training, self.held_out)]
        if s.objective != "beliefs":
            return found
        training = self.source(lambda data: data.paths.batch(s.horizon + 1))
        # Under inputs every trajectory has beliefs of its own: fewer of them a step.
        share = 2 if self.training.pairs.u is None else 16
        plan = {"batch_size": max(1, s.batch_size // share)}
        loss, held_out = BeliefLoss(s.transition_weight), self.held_out.paths.batch(s.horizon)
        return [*found, Phase("beliefs", loss, training, held_out, plan, scored=True)]

    def first_phase(self) -> Phase:
        """What is learned from transitions."""
        training = self.source(lambda data: data.pairs.batch)
        return Phase("transitions", transition_loss, training, self.held_out.pairs.batch)

    def source(self, pick: Callable[[Dataset], Any]) -> Any:
        """Rows of the data in memory, or of blocks of the stream."""
        stream = self._stream
        if stream is None:
            return pick(self.training)
        return lambda done: pick(self._prepared(stream.block(done)).regular())

    def scores(self, parameters: Any) -> dict[str, float]:
        """Of transitions, and of beliefs where there are trajectories."""
        data, horizon, forward = self._judged, self.settings.horizon, partial(rows_to_model, self.transform)
        model = data.mapped(self._forward)
        losses = {"transitions": evaluate(transition_loss, parameters, model.pairs.batch)}
        shifts = {"transitions": np.average(forward(data.pairs.x_next)[1], weights=data.pairs.weight)}
        if data.whole:
            losses["beliefs"] = evaluate(BeliefLoss(0.0), parameters, model.paths.batch(horizon))
            states, present = data.paths.batch(horizon)[:2]
            shifts["beliefs"] = np.average(forward(states)[1], weights=present)
        return {name: float(shifts[name] - np.mean(loss)) for name, loss in losses.items()}

    def realise(self, parameters: Parameters, history: History) -> MarkovProcess:
        """In data space."""
        return MarkovProcess(*realised(parameters, self.transform), history=history)

    def _forward(self, x: np.ndarray) -> np.ndarray:
        return rows_to_model(self.transform, x)[0]

    def _material(self, training: Dataset, held_out: Dataset, trainer: Trainer) -> tuple[Dataset, Dataset, Dataset]:
        """What to train on, to stop by and to score, in data space: the given data, or a surrogate's trajectories."""
        scale, found = self._scale, None
        # With so many trajectories that they have to be streamed, nothing is gained by inventing more.
        if self.settings.may_roll and self._stream is None:
            seen, new = (part.mapped(lambda x: rows_to_model(scale, x)[0]) for part in (training, held_out))
            found = rolled(trainer, seen, new, self.settings)
        self.chosen |= told(found)
        if found is None:
            return training, held_out, held_out
        fresh, stop = (part.mapped(partial(rows_to_data, scale)) for part in (found.training, found.held_out))
        # Transitions and beliefs from the surrogate, initial states as they were given.
        return (
            replace(fresh, starts=training.starts),
            replace(stop, starts=held_out.starts),
            replace(held_out, paths=stop.paths),
        )

    def _prepared(self, trajectories: list[np.ndarray]) -> Dataset:
        """A block of a stream, treated like the data in memory."""
        # One length for all blocks, so that none has to be compiled again.
        length = max(self.settings.horizon + 2, *(len(part) for part in trajectories))
        data, _ = from_trajectories(padded(trajectories, length)).within(self._scale, EXTREME)
        return _within(data, self.transform)[0].mapped(self._forward)


def initial_phase(settings: Settings, training: Dataset, held_out: Dataset) -> Phase:
    """p_0 from initial states and their weights, with g as the transition has it."""
    return Phase(
        "initial", initial_loss, training.starts.batch, held_out.starts.batch, {"steps": settings.initial_steps},
        enter=_start_of,
        leave=lambda whole, start: whole._replace(start_basis=start.basis, start_factor=start.factor),
    )  # fmt: skip


def _start_of(stacked: Parameters) -> Start:
    g = _each_g(stacked)
    return Start(g, stacked.start_basis, stacked.start_factor, stacked.coupling.background)


_each_g = eqx.filter_jit(eqx.filter_vmap(lambda one: realise_transition(one).g, in_axes=eqx.if_array(0)))


def realised(parameters: Parameters, transform: Transform) -> tuple[FactorTransition, Form]:
    """The transition in data space and h_0."""
    found, start = _realise(parameters)
    return type(found)(found.phi, found.psi, found.coupling, transform), start  # type: ignore[call-arg]


_realise = eqx.filter_jit(realise)


def _make_transform(settings: Settings, training: Dataset) -> Transform:
    own = made(settings.transform, Transform)
    if own is not None:
        return own
    asked = settings.transform or model_space(settings.basis)
    if asked == "whiten":
        return Affine.whiten(training.states)
    scale = robust_standardize(training.states)
    return GaussianCDF(scale.mean, scale.std) if asked == "gaussian_cdf" else scale


def _within(data: Dataset, transform: Transform) -> tuple[Dataset, int]:
    """Without the states a transform has no room for, and how many pairs that took away."""
    if not isinstance(transform, GaussianCDF):
        return data, 0
    return data.within(Standardize(transform.mean, transform.std), _EXTREME_CDF)
