"""Learning a process together with its sensor: p(x', o' | x) from states and what was read of them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.core.numerics import unpack_coefficients
from sosmarkov.data.history import History
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.bases.gaussian import local
from sosmarkov.factor.beliefs import ProductBelief
from sosmarkov.factor.couplings import Kraus
from sosmarkov.factor.forms import Form, SquaredForm
from sosmarkov.factor.starts import BROAD, kraus_parts
from sosmarkov.factor.transition import Transition
from sosmarkov.inference.recursion import passes
from sosmarkov.learning.factor.initialise import ROWS, STARTS, fit_mixture, start_initial, wanted_start
from sosmarkov.learning.factor.objectives import Parameters, present_or, realise, realise_transition, weighted_mean
from sosmarkov.learning.factor.readings import Sensed
from sosmarkov.learning.phases import Phase
from sosmarkov.process.process import MarkovProcess
from sosmarkov.sensors.joint import LearnedSensor


class SensedParameters(NamedTuple):
    """What is trained: a process whose coupling has rank z R and whose initial form has rank z R_0, and zeta."""

    process: Parameters
    zeta: Basis


def realise_sensed(parameters: SensedParameters) -> tuple[Transition, SquaredForm, LearnedSensor]:
    """The transition, h_0 and the sensor, with their backgrounds."""
    transition, start = realise(parameters.process)
    return transition.at(None), start, _sensor(parameters)  # type: ignore[return-value]


def _sensor(parameters: SensedParameters) -> LearnedSensor:
    share = parameters.process.coupling.background
    return LearnedSensor(parameters.zeta.with_broad(BROAD) if share > 0 else parameters.zeta, background=share)


def joint_loss(parameters: SensedParameters, batch: tuple[Array, Array, Array, Array]) -> Float[Array, ""]:
    """-log p(y', o' | y), weighted mean over pairs."""
    transition, sensor = realise_transition(parameters.process).at(None), _sensor(parameters)
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


def _start_log_prob(transition: Transition, start: SquaredForm, sensor: LearnedSensor, y: Array, o: Array) -> Array:
    seen = sensor.emitted(o)
    return _log_prob(transition.g, start.basis, sensor.start(start.factor, seen), y) + seen.log_scale


def _log_prob(g: Form, basis: Basis, matrix: Array, y: Array) -> Array:
    """log g(y) f(y)^T matrix f(y)."""
    f, log_scale = basis.evaluate(y).scaled()
    return g.log_value_inside(y) + jnp.log(f @ matrix @ f) + 2.0 * log_scale


def filter_loss(parameters: SensedParameters, batch: tuple[Array, Array, Array]) -> Float[Array, ""]:
    """-log p(y_k | o_0, ..., o_k) - log p(o_k | o_0, ..., o_(k-1)), mean over trajectories and k."""
    transition, start, sensor = realise_sensed(parameters)
    states, present, readings = batch
    states = present_or(states, present, transition.phi)
    scores, evidences = jax.vmap(partial(_filter_scores, transition, start, sensor))(states, readings)
    return weighted_mean(-scores, present) - jnp.mean(evidences)


def _filter_scores(
    transition: Transition, start: SquaredForm, sensor: LearnedSensor, states: Array, readings: Array
) -> tuple[Array, Array]:
    reader = sensor.reader(transition)
    initial = ProductBelief(g=transition.g, h=start, transform=transition.transform)
    message = reader.first(initial, readings[0])
    passed = passes(reader, message, readings[1:])
    score = partial(_log_prob, transition.g)
    matrices = jax.vmap(lambda C: unpack_coefficients(C, transition.psi.size))(passed.base)
    later = jax.vmap(partial(score, transition.psi))(matrices, states[1:])
    seen = sensor.emitted(readings[0])
    begin = score(start.basis, sensor.start(start.factor, seen), states[0]) + seen.log_scale - message.log_scale
    log_evidences = reader.log_evidences(readings[1:], passed)
    return jnp.append(begin, later), jnp.append(message.log_scale, log_evidences)


class Joint(Sensed):
    """A process together with a sensor of the joint form; nothing is rolled."""

    loss = staticmethod(filter_loss)
    shorter, compared = 1, False

    def first(self) -> list[Phase]:
        """Transitions with readings, and p_0."""
        training, held_out, steps = self.training, self.held_out, {"steps": self.settings.initial_steps}
        return [
            Phase("transitions", joint_loss, training.pairs.read, held_out.pairs.read),
            Phase("initial", start_loss, training.starts.read, held_out.starts.read, steps),
        ]

    def realise(self, parameters: SensedParameters, history: History) -> MarkovProcess:
        """In data space."""
        transition, start, sensor = _realise(parameters)
        transition = Transition(transition.phi, transition.psi, transition.coupling, self.sensed.scale)
        sensor = LearnedSensor(sensor.zeta, self.sensed.scale_o, background=sensor.background)
        return MarkovProcess(transition, start, sensor=sensor, history=history)

    def start(self, seed: int) -> SensedParameters:
        """From mixtures of states and of readings, and how often their components go together."""
        s, rng = self.settings, np.random.default_rng(seed)
        assert s.sensor_size is not None
        y, y_next, _, o = self.training.pairs.read
        rows = rng.permutation(np.flatnonzero(~np.isnan(o).any(axis=1)))[:ROWS]
        mixture = fit_mixture(o[rows], s.sensor_size, False, seed)
        zeta = local(mixture.means, mixture.covariances, 2)
        shares = mixture.responsibilities(o[rows])
        wanted = wanted_start(s.basis, "kraus", s.size, rank=s.rank, background=s.background, seed=seed)
        phi, psi, K, factor = kraus_parts(wanted, y[rows], y_next[rows], shares)
        # Signs that differ from one function of the reading to the next, so that their products cancel on average.
        signs = rng.choice([-1.0, 1.0], size=(len(K), 1, 1, s.rank))
        K = K * signs * np.sqrt(shares.mean(axis=0))[:, None, None, None]
        first, _, o_first = self.training.starts.read
        basis, F = start_initial(first[:ROWS], wanted._replace(size=min(s.size, STARTS)))
        known = ~np.isnan(o_first).any(axis=1)
        weights = mixture.responsibilities(o_first[known]).mean(axis=0) if known.any() else shares.mean(axis=0)
        F = np.asarray(F)[None] * np.sqrt(weights)[:, None, None] * rng.choice([-1.0, 1.0], (len(K), 1, F.shape[1]))
        back = _to_orthonormal(zeta, s.background)
        K, F = (np.einsum("a...r,ab->...br", part, back[: len(part)]) for part in (K, F))
        K = K + 1e-3 * np.sqrt(np.mean(K**2)) * rng.normal(size=K.shape)
        coupling = Kraus(K.reshape(*K.shape[:2], -1), factor, background=s.background)
        process = Parameters(phi, psi, coupling, basis, jnp.asarray(F.reshape(len(F), -1)))
        return SensedParameters(process, zeta)


_realise = eqx.filter_jit(realise_sensed)


def _to_orthonormal(zeta: Basis, background: float) -> np.ndarray:
    """B with zeta = B times the orthonormal functions."""
    sensor = LearnedSensor(zeta.with_broad(BROAD) if background > 0 else zeta)
    return np.linalg.inv(np.asarray(sensor.root))
