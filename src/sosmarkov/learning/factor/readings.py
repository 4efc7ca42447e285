"""Learning with a sensor p(o | x): filters where states were seen, the evidence of the readings where none was.

Both go through the exact filter. With E_o the table of overlaps under a reading, P = E_o C / p(o | before) and
C' = push(P): the evidence is a smooth function of all parameters, and so is p(x_k | o_0, ..., o_k).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.data.dataset import Dataset
from sosmarkov.data.history import History, Scores
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.beliefs import ProductBelief
from sosmarkov.factor.forms import Form
from sosmarkov.factor.readings import KnownReader
from sosmarkov.factor.step import FactorTransition
from sosmarkov.inference.recursion import passes
from sosmarkov.learning.factor.augment import augmented
from sosmarkov.learning.factor.mixtures import Mixture, fit_mixture, in_parallel
from sosmarkov.learning.factor.objectives import (
    Parameters,
    log_form,
    present_or,
    realise,
    transition_loss,
    weighted_mean,
)
from sosmarkov.learning.loop import evaluate, stack, unstack
from sosmarkov.learning.phases import Phases
from sosmarkov.learning.run import realised, start_parameters, train_start
from sosmarkov.learning.settings import Settings
from sosmarkov.process.ensemble import Ensemble
from sosmarkov.process.process import MarkovProcess
from sosmarkov.sensors import LinearSensor, Sensor
from sosmarkov.spaces.transforms import Identity, Standardize, Transform

# Sequences a step: each has beliefs, and a table of overlaps for every reading, of its own.
_TOGETHER = 32
# Components of the mixture that a linear sensor is held against, and by how many nats a reading that has to be better.
_COMPONENTS = 16
WORTH = 0.25
# Noise below this share of a reading's spread is none: the density of such readings has no bound.
_NOISELESS = 1e-6


class ReadParameters(NamedTuple):
    """What is trained: a process and its sensor; the sensor's states are `transform` away from model space."""

    process: Parameters
    sensor: Sensor
    transform: Transform


class FilterLoss(NamedTuple):
    """Minus the mean log-evidence of a reading, and with states minus their mean score given the readings so far.

    Attributes:
        learned: Whether the sensor is trained, or known.
        scored: Whether -log p(y_k | o_0, ..., o_k) is added; the batch is (states, present, readings) either way, with
            the inputs behind them where there are any.
    """

    learned: bool
    scored: bool

    def __call__(self, parameters: ReadParameters, batch: tuple[Array, ...]) -> Float[Array, ""]:
        """Of sequences of shapes (B, T, d), (B, T), (B, T, k) and (B, T - 1, e)."""
        transition, start = realise(parameters.process)
        transform = lax.stop_gradient(parameters.transform)
        sensor = parameters.sensor if self.learned else lax.stop_gradient(parameters.sensor)
        states, present, readings, *rest = batch
        inputs = rest[0] if rest else None
        predicted, log_evidences = run_filter(transition, start, sensor, transform, readings, inputs)
        read = jnp.any(~jnp.isnan(readings.reshape(*readings.shape[:2], -1)), axis=2)
        loss = -weighted_mean(log_evidences, read.astype(float))
        if not self.scored:
            return loss
        states = present_or(states, present, transition.phi)
        priors = jax.vmap(partial(_priors, transition, start))(predicted, states)
        likelihoods = jax.vmap(jax.vmap(_log_reading(sensor, transition.phi, transform)))(readings, states)
        return loss + weighted_mean(log_evidences - priors - likelihoods, present)


def run_filter(
    dynamics: FactorTransition,
    start: Form,
    sensor: Sensor,
    transform: Transform,
    readings: Float[Array, "b t k"],
    inputs: Float[Array, "b s e"] | None = None,
) -> tuple[Float[Array, "b s q"], Float[Array, "b t"]]:
    """Coefficients of the predicted beliefs at k = 1, ..., T - 1 and log p(o_k | before), of many sequences."""
    reader = KnownReader(dynamics, sensor, transform, batched=True)
    initial, step = ProductBelief(g=dynamics.g, h=start, transform=transform), reader.ahead()

    def one(readings: Array, inputs: Array | None) -> tuple[Array, Array]:
        message = reader.first(initial, readings[0])
        # Tables are made again for gradients: all of them together would be far larger than everything else.
        passed = passes(reader, message, readings[1:], inputs, step=step, again=jax.checkpoint)
        return passed.predicted, jnp.append(message.log_scale, reader.log_evidences(readings[1:], passed))

    return jax.vmap(one)(readings, inputs)


def _priors(transition: FactorTransition, start: Form, predicted: Array, states: Array) -> Float[Array, " t"]:
    """log p(y_k | o_0, ..., o_(k-1)) along one sequence."""
    log_g, psi = transition.g.log_value_inside, transition.psi

    def later(C: Array, y: Array) -> Array:
        return log_g(y) + log_form(transition.g, C, psi.evaluate(y))

    return jnp.append(log_g(states[0]) + start.log_value(states[0]), jax.vmap(later)(predicted, states[1:]))


def _log_reading(sensor: Sensor, basis: Basis, transform: Transform) -> Callable[[Array, Array], Array]:
    """log p(o | y) of one reading, with linear sensors by their own formula: it needs no LAPACK."""

    def part_of(part: Sensor, o: Array, y: Array) -> Array:
        read = part.linear(basis, transform)
        if read is None:
            return part.reading(o, basis, transform).log_value(basis, y)
        there = ~jnp.isnan(o)
        away = jnp.where(there, o, 0.0) - read.H @ y - read.offset
        log_density = jax.scipy.stats.norm.logpdf(away, 0.0, read.std)
        return jnp.sum(jnp.where(there, log_density, 0.0))

    def log_value(o: Array, y: Array) -> Array:
        values = [jnp.log(weight) + part_of(part, o, y) for weight, part in sensor.parts()]
        return values[0] if len(values) == 1 else jax.nn.logsumexp(jnp.stack(values))

    return log_value


class Regression(NamedTuple):
    """o = matrix y + offset + noise by least squares, and the standard deviations of the noise."""

    matrix: np.ndarray
    offset: np.ndarray
    std: np.ndarray

    def log_prob(self, y: np.ndarray, o: np.ndarray) -> np.ndarray:
        """Of rows, shape (N,)."""
        away = (o - y @ self.matrix.T - self.offset) / self.std
        return -np.sum(0.5 * away**2 + np.log(self.std) + 0.5 * np.log(2.0 * np.pi), axis=1)


def regress(y: np.ndarray, o: np.ndarray) -> Regression:
    """Each reading on the states, over the rows where it is there."""
    found = []
    for column in o.T:
        known = ~np.isnan(column)
        design = np.concatenate([y[known], np.ones((known.sum(), 1))], axis=1)
        slope = np.linalg.lstsq(design, column[known], rcond=None)[0]
        found.append((*slope, np.std(column[known] - design @ slope)))
    table = np.asarray(found)
    return Regression(table[:, :-2], table[:, -2], table[:, -1])


def gain_of_a_mixture(training: Dataset, held_out: Dataset, seed: int) -> float:
    """By how many nats a reading a mixture over (y, o) predicts held-out readings better than a line does."""
    (y, o), (y_new, o_new) = (_complete(part) for part in (training, held_out))
    if len(o) < 20 * _COMPONENTS or len(o_new) == 0:
        return -np.inf
    line = regress(y, o)
    if np.min(line.std) < _NOISELESS:
        return np.inf
    (mixture,) = in_parallel(lambda s: fit_mixture(np.concatenate([y, o], axis=1), _COMPONENTS, True, s), [seed])
    d = y.shape[1]
    states = Mixture(mixture.weights, mixture.means[:, :d], mixture.covariances[:, :d, :d])
    both = mixture.log_density(np.concatenate([y_new, o_new], axis=1))
    return float(np.mean(both - states.log_density(y_new) - line.log_prob(y_new, o_new)))


def _complete(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """States and readings where all of both is there."""
    states, present, readings = data.paths[:3]
    assert readings is not None
    rows = (present > 0) & ~np.isnan(readings).any(axis=2)
    return states[rows], readings[rows]


class ReadRun:
    """One call of `fit` with a sensor that is known, or linear and learned.

    Args:
        settings: What steers training.
        phases: Runs it.
        sensor: The known one, or None.
        chosen: What the history should say beside the settings.
        latent: Whether the states are only a start, and the readings alone count.
    """

    def __init__(self, settings: Settings, phases: Phases, sensor: Sensor | None, chosen: dict[str, Any], latent: bool):
        self.settings, self.phases, self.sensor, self.chosen, self.latent = settings, phases, sensor, chosen, latent

    def fit(self, data: Dataset, scale: Standardize, scale_o: Standardize) -> MarkovProcess | Ensemble:
        """The process and its sensor, from states and readings in model space (readings as given for a known one)."""
        s, run = self.settings, self.phases.run
        training, held_out = data.split(s.validation, s.seed)
        sensor, transform = self._sensor(training, scale)
        training = self._material(training, held_out, sensor, transform)
        starts = in_parallel(partial(start_parameters, s, training), range(s.seed, s.seed + s.members))
        process = run("transitions", stack(starts), transition_loss, training.pairs.batch, held_out.pairs.batch)
        process = train_start(self.phases, s, process, training.starts.batch, held_out.starts.batch)
        found = ReadParameters(process, *stack([(sensor, transform)] * s.members))
        loss = FilterLoss(self.sensor is None, not self.latent)
        before = evaluate(loss, found, held_out.paths.batch())
        if s.objective == "beliefs":
            name = "evidence" if self.latent else "filter"
            # A step costs what several do before: half as many.
            plan = {"batch_size": _TOGETHER, "steps": max(1, s.phase_steps // 2)}
            found = run(name, found, loss, training.paths.batch(), held_out.paths.batch(), **plan)
        shift = np.sum(np.log(np.asarray(scale_o.std))) + (0 if self.latent else np.sum(np.log(np.asarray(scale.std))))
        what, after = "evidence" if self.latent else "filtered", evaluate(loss, found, held_out.paths.batch())
        values = {f"{what}_before": before, what: after}
        scores = replace(Scores(), **{name: float(-np.mean(value) - shift) for name, value in values.items()})
        history = History(tuple(self.phases.done), dict(s.chosen) | self.chosen, scores)
        return self._finish(found, scale, scale_o, history)

    def _material(self, training: Dataset, held_out: Dataset, sensor: Sensor, transform: Transform) -> Dataset:
        """What to train on: the given data, or a surrogate's trajectories with readings drawn by the sensor."""
        s, found = self.settings, None
        # States that nobody saw are no data, and times no numbers a network could do with.
        usable = not self.latent and not isinstance(s.features, int)
        if usable and s.objective == "beliefs" and s.surrogate is not False:
            found = augmented(self.phases, training, held_out, sensor, transform, s)
        self.chosen = self.chosen | {"surrogate": found is not None}
        if found is None:
            return training
        self.chosen = self.chosen | {"surrogate_gain": round(found[1], 4)}
        return found[0]

    def _sensor(self, training: Dataset, scale: Standardize) -> tuple[Sensor, Transform]:
        if self.sensor is not None:
            return self.sensor, scale
        states, present, readings = training.paths[:3]
        assert readings is not None
        line = regress(states[present > 0], readings[present > 0])
        if np.min(line.std) < _NOISELESS:
            raise ValueError(
                "Expected readings with noise for a linear sensor, got ones that are a linear function of the states:"
                " their density has no bound. Use sensor='joint', or a known sensor with a small std."
            )
        return LinearSensor(line.matrix, line.std, offset=line.offset), Identity(line.matrix.shape[1])

    def _finish(
        self, stacked: ReadParameters, scale: Standardize, scale_o: Standardize, history: History
    ) -> MarkovProcess | Ensemble:
        found = []
        for member in unstack(stacked, self.settings.members):
            transition, start = realised(member.process, scale)
            sensor = self.sensor if self.sensor is not None else in_data_space(member.sensor, scale, scale_o)
            found.append(MarkovProcess(transition, start, sensor=sensor, history=history))
        return found[0] if len(found) == 1 else Ensemble(found, history=history)


def in_data_space(sensor: LinearSensor, scale: Standardize, scale_o: Standardize) -> LinearSensor:
    """The sensor of states and readings as they were given."""
    matrix = scale_o.std[:, None] * sensor.matrix / scale.std
    offset = scale_o.mean + scale_o.std * sensor.offset - matrix @ scale.mean
    return LinearSensor(matrix, scale_o.std * sensor.std, offset=offset)
