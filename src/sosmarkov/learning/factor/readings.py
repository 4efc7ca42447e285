"""Learning with a sensor p(o | x): filters where states were seen, the evidence of the readings where none was.

Both go through the exact filter. With E_o the table of overlaps under a reading, P = E_o C / p(o | before) and
C' = push(P): the evidence is a smooth function of all parameters, and so is p(x_k | o_0, ..., o_k).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.data.dataset import Dataset
from sosmarkov.data.history import History
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.beliefs import ProductBelief
from sosmarkov.factor.forms import Form
from sosmarkov.factor.readings import KnownReader
from sosmarkov.factor.step import FactorTransition
from sosmarkov.inference.recursion import passes
from sosmarkov.learning.choose import Settings
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
from sosmarkov.learning.factor.plain import initial_phase, realised, start_parameters
from sosmarkov.learning.loop import evaluate
from sosmarkov.learning.phases import Phases
from sosmarkov.learning.task import Phase, Task
from sosmarkov.process.process import MarkovProcess
from sosmarkov.sensors import LinearSensor, Sensor
from sosmarkov.spaces.transforms import Identity, Standardize, Transform

# Sequences a step: each has beliefs, and a table of overlaps for every reading, of its own.
TOGETHER = 32
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


class Sensing(NamedTuple):
    """A sensor to learn or to use, with states and readings in model space.

    Attributes:
        sensor: The known one; None where it is learned.
        data: States and readings.
        scale: From states as given to model space.
        scale_o: The same of readings.
        chosen: What the history should say.
    """

    sensor: Sensor | None
    data: Dataset
    scale: Standardize
    scale_o: Standardize
    chosen: dict[str, Any]


class Read(Task[MarkovProcess]):
    """A process with a sensor that is known, or linear and learned.

    Args:
        sensed: States and readings in model space (readings as given for a known sensor), and the sensor.
        settings: What steers training.
        phases: Runs the surrogate's training.
    """

    # Of the last phase and its score, and whether states count beside the readings.
    last, told, scored = "filter", "filtered", True

    def __init__(self, sensed: Sensing, settings: Settings, phases: Phases):
        s = self.settings = settings
        self.sensed = sensed
        self.chosen = s.chosen | sensed.chosen
        training, self._held_out = sensed.data.split(s.validation, s.seed)
        self._sensor, self._transform = self._begun(training)
        self._training = self._material(training, phases)
        self._loss = FilterLoss(sensed.sensor is None, self.scored)

    def start(self, seed: int) -> ReadParameters:
        """A plain start, with the sensor as it is known, or as regression has it."""
        process = start_parameters(self.settings, self._training, seed)
        return ReadParameters(process, self._sensor, self._transform)

    def phases(self) -> list[Phase]:
        """Transitions, p_0, and filters where beliefs are asked for."""
        s, training, held_out = self.settings, self._training, self._held_out
        found = [
            Phase("transitions", transition_loss, training.pairs.batch, held_out.pairs.batch).of("process"),
            initial_phase(s, training, held_out).of("process"),
        ]
        if s.objective != "beliefs":
            return found
        # A step costs what several do before: half as many.
        plan = {"batch_size": TOGETHER, "steps": max(1, s.phase_steps // 2)}
        return [*found, Phase(self.last, self._loss, training.paths.batch(), held_out.paths.batch(), plan, scored=True)]

    def scores(self, parameters: Any) -> dict[str, float]:
        """Of states and readings given the readings before, or of readings alone."""
        loss = evaluate(self._loss, parameters, self._held_out.paths.batch())
        shift = np.sum(np.log(np.asarray(self.sensed.scale_o.std)))
        shift += np.sum(np.log(np.asarray(self.sensed.scale.std))) if self.scored else 0
        return {self.told: float(-np.mean(loss) - shift)}

    def realise(self, parameters: ReadParameters, history: History) -> MarkovProcess:
        """In data space."""
        sensed = self.sensed
        transition, start = realised(parameters.process, sensed.scale)
        sensor = sensed.sensor or in_data_space(parameters.sensor, sensed.scale, sensed.scale_o)
        return MarkovProcess(transition, start, sensor=sensor, history=history)

    def _material(self, training: Dataset, phases: Phases) -> Dataset:
        """What to train on: the given data, or a surrogate's trajectories with readings drawn by the sensor."""
        found = None
        if self.settings.may_roll:
            found = augmented(phases, training, self._held_out, self._sensor, self._transform, self.settings)
        self.chosen["surrogate"] = found is not None
        if found is None:
            return training
        self.chosen["surrogate_gain"] = round(found[1], 4)
        return found[0]

    def _begun(self, training: Dataset) -> tuple[Sensor, Transform]:
        """The sensor training begins with, and the map from its states to model space."""
        if self.sensed.sensor is not None:
            return self.sensed.sensor, self.sensed.scale
        states, present, readings = training.paths[:3]
        assert readings is not None
        line = regress(states[present > 0], readings[present > 0])
        if np.min(line.std) < _NOISELESS:
            raise ValueError(
                "Expected readings with noise for a linear sensor, got ones that are a linear function of the states:"
                " their density has no bound. Use sensor='joint', or a known sensor with a small std."
            )
        return LinearSensor(line.matrix, line.std, offset=line.offset), Identity(line.matrix.shape[1])


class Latent(Read):
    """A process and its sensor from readings alone: the states are a start, and nothing is rolled from them."""

    last, told, scored = "evidence", "evidence", False

    def _material(self, training: Dataset, phases: Phases) -> Dataset:
        del phases
        self.chosen["surrogate"] = False
        return training


def in_data_space(sensor: Sensor, scale: Standardize, scale_o: Standardize) -> LinearSensor:
    """The linear sensor of states and readings as they were given."""
    assert isinstance(sensor, LinearSensor)
    matrix = scale_o.std[:, None] * sensor.matrix / scale.std[None]
    offset = scale_o.mean + scale_o.std * sensor.offset - matrix @ scale.mean
    return LinearSensor(matrix, scale_o.std * sensor.std, offset=offset)
