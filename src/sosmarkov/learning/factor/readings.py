"""Learning with a sensor p(o | x): filters where states were seen, the evidence of the readings where none was.

Both go through the exact filter. With E_o the table of overlaps under a reading, P = E_o C / p(o | before) and
C' = push(P): the evidence is a smooth function of all parameters, and so is p(x_k | o_0, ..., o_k).
"""

from __future__ import annotations

from abc import abstractmethod
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
from sosmarkov.factor.likelihood import LinearReading
from sosmarkov.factor.readings import KnownReader
from sosmarkov.factor.starts import Mixture
from sosmarkov.factor.step import FactorTransition
from sosmarkov.inference.recursion import passes
from sosmarkov.learning.choose import Settings
from sosmarkov.learning.factor.initialise import fit_mixture, start_parameters
from sosmarkov.learning.factor.objectives import Parameters, present_or, realise, transition_loss, weighted_mean
from sosmarkov.learning.factor.plain import initial_phase, realised
from sosmarkov.learning.factor.rolled import augmented, told
from sosmarkov.learning.loop import evaluate
from sosmarkov.learning.phases import Phase, Task, Trainer, in_parallel
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
    g, log_g = transition.g, transition.g.log_value_inside

    def later(C: Array, y: Array) -> Array:
        f, log_scale = transition.psi.evaluate(y).scaled()
        return log_g(y) + (jnp.log(g.values(C, f[None])[0]) + g.order * log_scale)

    return jnp.append(log_g(states[0]) + start.log_value(states[0]), jax.vmap(later)(predicted, states[1:]))


def _log_reading(sensor: Sensor, basis: Basis, transform: Transform) -> Callable[[Array, Array], Array]:
    """log p(o | y) of one reading, with linear sensors by their own formula: it needs no LAPACK."""

    def part_of(part: Sensor, o: Array, y: Array) -> Array:
        read = part.linear(basis, transform)
        return part.reading(o, basis, transform).log_value(basis, y) if read is None else _log_linear(read, o, y)

    def log_value(o: Array, y: Array) -> Array:
        values = [jnp.log(weight) + part_of(part, o, y) for weight, part in sensor.parts()]
        return values[0] if len(values) == 1 else jax.nn.logsumexp(jnp.stack(values))

    return log_value


def _log_linear(read: LinearReading, o: Array, y: Array) -> Array:
    """log p(o | y) of one reading, of as much of it as is there."""
    there = ~jnp.isnan(o)
    away = jnp.where(there, o, 0.0) - read.H @ y - read.offset
    return jnp.sum(jnp.where(there, jax.scipy.stats.norm.logpdf(away, 0.0, read.std), 0.0))


def regress(y: np.ndarray, o: np.ndarray) -> LinearReading:
    """o = H y + offset + noise by least squares: each number on the states, over the rows where it is there."""
    found = []
    for column in o.T:
        known = ~np.isnan(column)
        design = np.concatenate([y[known], np.ones((known.sum(), 1))], axis=1)
        slope = np.linalg.lstsq(design, column[known], rcond=None)[0]
        found.append((*slope, np.std(column[known] - design @ slope)))
    table = jnp.asarray(found)
    return LinearReading(table[:, :-2], table[:, -2], table[:, -1])


def gain_of_a_mixture(training: Dataset, held_out: Dataset, seed: int) -> float:
    """By how many nats a reading a mixture over (y, o) predicts held-out readings better than a line does."""
    (y, o), (y_new, o_new) = (_complete(part) for part in (training, held_out))
    if len(o) < 20 * _COMPONENTS or len(o_new) == 0:
        return -np.inf
    line = regress(y, o)
    if jnp.min(line.std) < _NOISELESS:
        return np.inf
    (mixture,) = in_parallel(lambda s: fit_mixture(np.concatenate([y, o], axis=1), _COMPONENTS, True, s), [seed])
    d = y.shape[1]
    states = Mixture(mixture.weights, mixture.means[:, :d], mixture.covariances[:, :d, :d])
    both = mixture.log_density(np.concatenate([y_new, o_new], axis=1))
    by_line = np.asarray(jax.vmap(partial(_log_linear, line))(jnp.asarray(o_new), jnp.asarray(y_new)))
    return float(np.mean(both - states.log_density(y_new) - by_line))


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


class Sensed(Task[MarkovProcess]):
    """What is learned from states and readings: transitions, p_0, and last the filter.

    Args:
        sensed: States and readings in model space, and the sensor.
        settings: What steers training.
        trainer: Runs other training that this takes.
    """

    loss: Callable[..., Any]
    # Of the last phase and its score, and whether states count beside the readings.
    last, score, scored = "filter", "filtered", True
    # A step of it costs what several do before: half as many. Whether it is told what it brings.
    shorter, compared = 2, True

    def __init__(self, sensed: Sensing, settings: Settings, trainer: Trainer):
        del trainer
        self.settings, self.sensed = settings, sensed
        self.chosen = settings.chosen | sensed.chosen
        self.training, self.held_out = sensed.data.split(settings.validation, settings.seed)

    @abstractmethod
    def first(self) -> list[Phase]:
        """Transitions and p_0."""

    def phases(self) -> list[Phase]:
        """Transitions, p_0, and filters where beliefs are asked for."""
        if self.settings.objective != "beliefs":
            return self.first()
        plan = {"batch_size": TOGETHER, "steps": max(1, self.settings.phase_steps // self.shorter)}
        training, held_out = self.training.paths.batch(), self.held_out.paths.batch()
        return [*self.first(), Phase(self.last, self.loss, training, held_out, plan, scored=self.compared)]

    def scores(self, parameters: Any) -> dict[str, float]:
        """Of states and readings given the readings before, or of readings alone."""
        loss = evaluate(self.loss, parameters, self.held_out.paths.batch())
        shift = np.sum(np.log(np.asarray(self.sensed.scale_o.std)))
        shift += np.sum(np.log(np.asarray(self.sensed.scale.std))) if self.scored else 0
        return {self.score: float(-np.mean(loss) - shift)}


class Read(Sensed):
    """A process with a sensor that is known (whose readings are as given), or linear and learned."""

    def __init__(self, sensed: Sensing, settings: Settings, trainer: Trainer):
        super().__init__(sensed, settings, trainer)
        self._sensor, self._transform = self._begun(self.training)
        found = None
        # Nothing is rolled from states that nobody saw.
        if settings.may_roll and self.scored:
            found = augmented(trainer, self.training, self.held_out, self._sensor, self._transform, settings)
        self.chosen |= told(found)
        self.training = self.training if found is None else found.training
        self.loss = FilterLoss(sensed.sensor is None, self.scored)

    def start(self, seed: int) -> ReadParameters:
        """A plain start, with the sensor as it is known, or as regression has it."""
        process = start_parameters(self.settings, self.training, seed)
        return ReadParameters(process, self._sensor, self._transform)

    def first(self) -> list[Phase]:
        """Those of the process alone."""
        training, held_out = self.training, self.held_out
        return [
            Phase("transitions", transition_loss, training.pairs.batch, held_out.pairs.batch).of("process"),
            initial_phase(self.settings, training, held_out).of("process"),
        ]

    def realise(self, parameters: ReadParameters, history: History) -> MarkovProcess:
        """In data space."""
        sensed = self.sensed
        transition, start = realised(parameters.process, sensed.scale)
        sensor = sensed.sensor or in_data_space(parameters.sensor, sensed.scale, sensed.scale_o)
        return MarkovProcess(transition, start, sensor=sensor, history=history)

    def _begun(self, training: Dataset) -> tuple[Sensor, Transform]:
        """The sensor training begins with, and the map from its states to model space."""
        if self.sensed.sensor is not None:
            return self.sensed.sensor, self.sensed.scale
        states, present, readings = training.paths[:3]
        assert readings is not None
        line = regress(states[present > 0], readings[present > 0])
        if jnp.min(line.std) < _NOISELESS:
            raise ValueError(
                "Expected readings with noise for a linear sensor, got ones that are a linear function of the states:"
                " their density has no bound. Use sensor='joint', or a known sensor with a small std."
            )
        return LinearSensor(line.H, line.std, offset=line.offset), Identity(line.H.shape[1])


class Latent(Read):
    """A process and its sensor from readings alone: the states are a start."""

    last, score, scored = "evidence", "evidence", False


def in_data_space(sensor: Any, scale: Standardize, scale_o: Standardize) -> LinearSensor:
    """The linear sensor of states and readings as they were given."""
    matrix = scale_o.std[:, None] * sensor.matrix / scale.std[None]
    offset = scale_o.mean + scale_o.std * sensor.offset - matrix @ scale.mean
    return LinearSensor(matrix, scale_o.std * sensor.std, offset=offset)
