"""Learning a process together with its sensor: p(x', o' | x) from states and what was read of them."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov import checks
from sosmarkov.bases import Basis
from sosmarkov.couplings import Kraus
from sosmarkov.emission import LearnedSensor
from sosmarkov.ensemble import Ensemble
from sosmarkov.forms import Form, SquaredForm, overlap_table
from sosmarkov.inference.emission import readings_after
from sosmarkov.learning.data import Data, from_trajectories, robust_standardize
from sosmarkov.learning.history import History
from sosmarkov.learning.initialise import Wanted, kraus_parts, start_initial
from sosmarkov.learning.loop import evaluate, stack, unstack
from sosmarkov.learning.mixtures import fit_mixture, in_parallel, local_basis
from sosmarkov.learning.objectives import BROAD, Parameters, present_or, realise, weighted_mean
from sosmarkov.learning.phases import Phases
from sosmarkov.learning.settings import Settings
from sosmarkov.numerics import pack, unpack_coefficients
from sosmarkov.process import MarkovProcess
from sosmarkov.transforms import Standardize
from sosmarkov.transition import Transition

_STARTS = 8
_ROWS = 20_000
_EXTREME = 100.0
# Trajectories a step while filters are trained: each has beliefs of its own.
_TOGETHER = 32


class Sensed(NamedTuple):
    """Trajectories and readings in model space.

    Attributes:
        states: Shape (M, T, d), zero where missing.
        present: Weights of the states, zero where missing, shape (M, T).
        readings: Shape (M, T, k), NaN where missing.
    """

    states: np.ndarray
    present: np.ndarray
    readings: np.ndarray

    def part(self, rows: np.ndarray) -> Sensed:
        """Some of the trajectories."""
        return Sensed(*(array[rows] for array in self))

    def pairs(self) -> tuple[np.ndarray, ...]:
        """y, y', weight and the reading of y'."""
        row, k = np.nonzero((self.present[:, :-1] > 0) & (self.present[:, 1:] > 0))
        return self.states[row, k], self.states[row, k + 1], self.present[row, k], self.readings[row, k + 1]

    def first(self) -> tuple[np.ndarray, ...]:
        """Initial states, weights and their readings."""
        row = np.flatnonzero(self.present[:, 0] > 0)
        return self.states[row, 0], self.present[row, 0], self.readings[row, 0]


class SensedParameters(NamedTuple):
    """What is trained: a process whose coupling has rank z R and whose initial form has rank z R_0, and zeta."""

    process: Parameters
    zeta: Basis


def realise_sensed(parameters: SensedParameters) -> tuple[Transition, Form, LearnedSensor]:
    """The transition, h_0 and the sensor, with their backgrounds."""
    transition, start = realise(parameters.process)
    share = parameters.process.coupling.background
    zeta = parameters.zeta.with_broad(BROAD) if share > 0 else parameters.zeta
    assert isinstance(transition, Transition)
    return transition, start, LearnedSensor(zeta, background=share)


def joint_loss(parameters: SensedParameters, batch: tuple[Array, Array, Array, Array]) -> Float[Array, ""]:
    """-log p(y', o' | y), weighted mean over pairs."""
    transition, _, sensor = realise_sensed(parameters)
    y, y_next, weight, o = batch
    y, y_next = (present_or(states, weight, transition.phi) for states in (y, y_next))
    return weighted_mean(-jax.vmap(partial(sensor.log_prob_model, transition))(y_next, y, o), weight)


def start_loss(parameters: SensedParameters, batch: tuple[Array, Array, Array]) -> Float[Array, ""]:
    """-log p(y_0, o_0), with all but the initial form held fixed."""
    process = parameters.process
    held = lax.stop_gradient((process.phi, process.psi, process.coupling, parameters.zeta))
    process = Parameters(*held[:3], process.start_basis, process.start_factor)
    transition, start, sensor = realise_sensed(SensedParameters(process, held[3]))
    y, weight, o = batch
    return weighted_mean(-jax.vmap(partial(_start_log_prob, transition, start, sensor))(y, o), weight)


def _start_log_prob(transition: Transition, start: Form, sensor: LearnedSensor, y: Array, o: Array) -> Array:
    assert isinstance(start, SquaredForm)
    seen = sensor.emitted(o)
    f, log_scale = start.basis.evaluate(y).scaled()
    h = f @ sensor.start(start.factor, seen) @ f
    return transition.g.log_value_inside(y) + jnp.log(h) + 2.0 * log_scale + seen.log_scale


def filter_loss(parameters: SensedParameters, batch: tuple[Array, Array, Array]) -> Float[Array, ""]:
    """-log p(y_k | o_0, ..., o_k) - log p(o_k | o_0, ..., o_(k-1)), mean over trajectories and k."""
    transition, start, sensor = realise_sensed(parameters)
    states, present, readings = batch
    states = present_or(states, present, transition.phi)
    scores, evidences = jax.vmap(partial(_filter_scores, transition, start, sensor))(states, readings)
    return weighted_mean(-scores, present) - jnp.mean(evidences)


def _filter_scores(
    transition: Transition, start: Form, sensor: LearnedSensor, states: Array, readings: Array
) -> tuple[Array, Array]:
    assert isinstance(start, SquaredForm)
    seen = sensor.emitted(readings[0])
    matrix = sensor.start(start.factor, seen)
    P = overlap_table(transition.g, start) @ pack(matrix)
    mass = transition.g.coefficients @ P
    _, filtered, log_evidences = readings_after(transition, sensor, P / mass, readings[1:])

    def score(basis: Basis, matrix: Array, y: Array) -> Array:
        f, log_scale = basis.evaluate(y).scaled()
        return transition.g.log_value_inside(y) + jnp.log(f @ matrix @ f) + 2.0 * log_scale

    matrices = jax.vmap(lambda C: unpack_coefficients(C, transition.psi.size))(filtered)
    later = jax.vmap(partial(score, transition.psi))(matrices, states[1:])
    first = jnp.where(jnp.all(jnp.isnan(readings[0])), 0.0, jnp.log(mass) + seen.log_scale)
    begin = score(start.basis, matrix / mass, states[0])
    return jnp.append(begin, later), jnp.append(first, log_evidences)


class SensorSize(NamedTuple):
    """Functions of a reading, and the rank for each of them."""

    size: int
    rank: int


def settle_sensor(data: Data, observations: Any, size: int | None, given: dict[str, Any]) -> SensorSize | None:
    """What a sensor is given to be learned with; None where there are no observations."""
    if observations is None:
        if size is not None:
            raise ValueError("Expected observations with sensor_size, got none.")
        return None
    refused = {
        "coupling": given["coupling"] != "kraus",
        "basis": given["basis"] not in (None, "gaussian", "gaussian-full"),
        "transform": given["transform"] not in (None, "standardize"),
        "inputs": data.u is not None,
        "transitions": len(data.trajectories) == 0,
        "surrogate": bool(given["surrogate"]),
    }
    if any(refused.values()):
        names = ", ".join(name for name, bad in refused.items() if bad)
        raise ValueError(
            "Expected, with observations, trajectories without inputs, Gaussian functions, coupling 'kraus', a"
            f" standardising transform and no surrogate; got something else for: {names}."
        )
    dim = np.asarray(observations[0], dtype=float).reshape(len(observations[0]), -1).shape[1]
    return SensorSize(checks.count(min(4 + 2 * dim, 12) if size is None else size, "sensor_size", 1), 3)


class SensedRun:
    """One call of `fit` with observations."""

    def __init__(self, settings: Settings, phases: Phases, functions: int):
        self.settings, self.phases, self.functions = settings, phases, functions

    def fit(self, trajectories: Any, observations: Any, weights: Any) -> MarkovProcess | Ensemble:
        """The process and sensor these data suggest."""
        s = self.settings
        data, scale, scale_o = _scaled(trajectories, observations, weights)
        rng = np.random.default_rng(s.seed)
        order, count = rng.permutation(len(data.states)), max(1, round(s.validation * len(data.states)))
        held_out, training = data.part(order[:count]), data.part(order[count:])
        starts = in_parallel(partial(self._start, training), range(s.seed, s.seed + s.members))
        run = self.phases.run
        found = run("transitions", stack(starts), joint_loss, training.pairs(), held_out.pairs())
        found = run("initial", found, start_loss, training.first(), held_out.first(), steps=s.initial_steps)
        if s.objective == "beliefs":
            found = run("filter", found, filter_loss, tuple(training), tuple(held_out), batch_size=_TOGETHER)
        shift = float(np.sum(np.log(np.asarray(scale.std))) + np.sum(np.log(np.asarray(scale_o.std))))
        scores = {"states and readings given the readings before": -evaluate(filter_loss, found, tuple(held_out))}
        history = History(
            tuple(self.phases.done),
            dict(s.chosen) | {"sensor_size": self.functions},
            {name: float(np.mean(value)) - shift for name, value in scores.items()},
        )
        return self._finish(found, scale, scale_o, history)

    def _start(self, training: Sensed, seed: int) -> SensedParameters:
        s, rng = self.settings, np.random.default_rng(seed)
        y, y_next, weight, o = training.pairs()
        rows = rng.permutation(np.flatnonzero(~np.isnan(o).any(axis=1)))[:_ROWS]
        mixture = fit_mixture(o[rows], self.functions, False, seed)
        zeta = local_basis("gaussian", mixture, 2)
        shares = mixture.responsibilities(o[rows])
        phi, psi, K, factor = kraus_parts(
            y[rows], y_next[rows], Wanted(s.basis, s.size, s.rank, s.background, seed), shares
        )
        # Signs that differ from one function of the reading to the next, so that their products cancel on average.
        signs = rng.choice([-1.0, 1.0], size=(len(K), 1, 1, s.rank))
        K = K * signs * np.sqrt(shares.mean(axis=0))[:, None, None, None]
        first, _, o_first = training.first()
        basis, F = start_initial(
            first[:_ROWS], basis=s.basis, coupling="kraus", size=min(s.size, _STARTS), seed=seed
        )  # fmt: skip
        known = ~np.isnan(o_first).any(axis=1)
        weights = mixture.responsibilities(o_first[known]).mean(axis=0) if known.any() else shares.mean(axis=0)
        F = np.asarray(F)[None] * np.sqrt(weights)[:, None, None] * rng.choice([-1.0, 1.0], (len(K), 1, F.shape[1]))
        back = _to_orthonormal(zeta, s.background)
        K, F = (np.einsum("a...r,ab->...br", part, back[: len(part)]) for part in (K, F))
        K = K + 1e-3 * np.sqrt(np.mean(K**2)) * rng.normal(size=K.shape)
        coupling = Kraus(K.reshape(*K.shape[:2], -1), factor, background=s.background)
        process = Parameters(phi, psi, coupling, basis, jnp.asarray(F.reshape(len(F), -1)))
        return SensedParameters(process, zeta)

    def _finish(
        self, stacked: SensedParameters, scale: Standardize, scale_o: Standardize, history: History
    ) -> MarkovProcess | Ensemble:
        make, found = eqx.filter_jit(realise_sensed), []
        for member in unstack(stacked, self.settings.members):
            transition, start, sensor = make(member)
            transition = Transition(transition.phi, transition.psi, transition.coupling, scale)
            sensor = LearnedSensor(sensor.zeta, scale_o, background=sensor.background)
            found.append(MarkovProcess(transition, start, sensor=sensor, history=history))
        return found[0] if len(found) == 1 else Ensemble(found, history=history)


def _to_orthonormal(zeta: Basis, background: float) -> np.ndarray:
    """B with zeta = B times the orthonormal functions."""
    sensor = LearnedSensor(zeta.with_broad(BROAD) if background > 0 else zeta)
    return np.linalg.inv(np.asarray(sensor.root))


def _scaled(trajectories: Any, observations: Any, weights: Any) -> tuple[Sensed, Standardize, Standardize]:
    """Data in model space, and the maps there; states beyond 100 deviations count as missing."""
    data = from_trajectories(trajectories, weights)
    shape = data.present.shape
    try:
        each = [np.asarray(part, dtype=float) for part in observations]
        each = [part[:, None] if part.ndim == 1 else part for part in each]
        lengths = [len(part) for part in trajectories]
        dim = each[0].shape[1]
        fits = [part.shape for part in each] == [(length, dim) for length in lengths]
    except (TypeError, IndexError, ValueError) as error:
        raise ValueError(f"Expected observations as numbers of shape (N, T, k), got others: {error}.") from error
    if not fits:
        raise ValueError(
            "Expected observations of shape (N, T, k), one reading for every state of every trajectory (NaN where"
            f" there was none), for {len(lengths)} trajectories of {shape[1]} states at most, got {len(each)} of other"
            " shapes."
        )
    readings = np.full((*shape, dim), np.nan)
    for index, part in enumerate(each):
        readings[index, : len(part)] = part
    if np.any(np.isinf(readings)):
        raise ValueError("Expected finite readings, or NaN where one is missing, got infinite ones.")
    columns = [readings[..., c][~np.isnan(readings[..., c])] for c in range(dim)]
    if min(len(column) for column in columns) < 2 or min(np.std(column) for column in columns) == 0:
        raise ValueError("Expected readings that vary in every coordinate, got none or constant ones.")
    scales = [robust_standardize(column[:, None]) for column in columns]
    scale_o = Standardize(*(np.concatenate([np.asarray(getattr(s, n)) for s in scales]) for n in ("mean", "std")))
    scale = robust_standardize(data.states)
    states = (data.trajectories - np.asarray(scale.mean)) / np.asarray(scale.std)
    usable = np.all(np.abs(states) <= _EXTREME, axis=2)
    present = data.present * usable
    readings = (readings - np.asarray(scale_o.mean)) / np.asarray(scale_o.std)
    return Sensed(np.where(present[..., None] > 0, states, 0.0), present, readings), scale, scale_o
