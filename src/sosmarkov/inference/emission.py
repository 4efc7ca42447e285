"""Filtering and smoothing with a learned sensor: the reading is part of the step that leads to its state."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.mixture import MixtureBelief
from sosmarkov.core.numerics import unpack_coefficients
from sosmarkov.factor import sampling
from sosmarkov.factor.beliefs import ProductBelief, normalised
from sosmarkov.factor.forms import SquaredForm, overlap_table
from sosmarkov.factor.transition import Transition
from sosmarkov.inference.filter import FilterResult, Updated, require_possible
from sosmarkov.inference.propagate import Beliefs, BeliefSequence, belief_from
from sosmarkov.inference.smooth import SmoothResult, message_form
from sosmarkov.sensors.joint import Emitted, LearnedSensor
from sosmarkov.spaces.transforms import to_data, to_model


class Run(eqx.Module):
    """Coefficients of predicted and filtered beliefs at k = 1, ..., T - 1, h_0 given o_0, and all evidences."""

    predicted: Float[Array, "t q"]
    filtered: Float[Array, "t q"]
    start: ProductBelief
    log_evidences: Float[Array, " k"]


@eqx.filter_jit
def run(transition: Transition, initial: ProductBelief, observations: Array, sensor: LearnedSensor) -> Run:
    """The forward recursion: C_(k+1) = push under o_(k+1), divided by its mass."""
    first = sensor.emitted(observations[0])
    log_mass, start = first_read(initial, first, sensor)
    P = overlap_table(transition.g, start.h) @ start.h.coefficients
    predicted, filtered, log_evidences = readings_after(transition, sensor, P, observations[1:])
    begin = jnp.where(jnp.all(jnp.isnan(observations[0])), 0.0, log_mass + first.log_scale)
    return Run(predicted, filtered, start, jnp.concatenate([begin[None], log_evidences]))


def first_read(initial: ProductBelief, seen: Emitted, sensor: LearnedSensor) -> tuple[Array, ProductBelief]:
    """The log of the first reading's mass (up to its scale), and the initial belief given it."""
    assert isinstance(initial.h, SquaredForm)
    h = SquaredForm(initial.h.basis, matrix=sensor.start(initial.h.factor, seen))
    return normalised(eqx.tree_at(lambda b: b.h, initial, h))


def update_first(transition: Transition, initial: ProductBelief, observation: Array, sensor: LearnedSensor) -> Updated:
    """The initial belief given its own reading, and the log of how likely that was."""
    del transition
    belief, log_evidence = _first_updated(initial, observation, sensor)
    require_possible(log_evidence)
    return Updated(belief, log_evidence)


@eqx.filter_jit
def _first_updated(initial: ProductBelief, observation: Array, sensor: LearnedSensor) -> tuple[ProductBelief, Array]:
    seen = sensor.emitted(observation)
    log_mass, start = first_read(initial, seen, sensor)
    return start, jnp.where(jnp.all(jnp.isnan(observation)), 0.0, log_mass + seen.log_scale)


def readings_after(
    transition: Transition, sensor: LearnedSensor, P: Float[Array, " p"], observations: Float[Array, "t k"]
) -> tuple[Float[Array, "t q"], Float[Array, "t q"], Float[Array, " t"]]:
    """Predicted and filtered coefficients and log-evidences, from P = int (phi phi^T) h of the belief before."""
    M = transition.g.coefficients @ transition.overlap

    def advance(P: Array, observation: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        seen = sensor.emitted(observation)
        C = sensor.push(transition, P, seen)
        mass = M @ C
        C = C / mass
        log_evidence = jnp.where(jnp.all(jnp.isnan(observation)), 0.0, jnp.log(mass) + seen.log_scale)
        return transition.overlap @ C, (transition.kernel.push(P), C, log_evidence)

    return lax.scan(advance, P, observations)[1]


def filter_emitted(
    transition: Transition, initial: ProductBelief, observations: Array, sensor: LearnedSensor
) -> FilterResult:
    """All readings of a sequence."""
    found = run(transition, initial, observations, sensor)
    require_possible(found.log_evidences)
    filtered = Beliefs(found.start, transition, found.filtered)
    return FilterResult(Beliefs(initial, transition, found.predicted), filtered, found.log_evidences)


def advance(transition: Transition, belief: Belief, observation: Array, sensor: LearnedSensor) -> Updated:
    """The belief one step later, given what is read there, and the log of how likely that was."""
    C, log_evidence = _advanced(transition, belief, observation, sensor)
    require_possible(log_evidence)
    return Updated(belief_from(transition, C), log_evidence)


@eqx.filter_jit
def _advanced(transition: Transition, belief: Belief, observation: Array, sensor: LearnedSensor) -> tuple[Array, Array]:
    seen = sensor.emitted(observation)
    C = _first_coefficients(transition, belief, seen, sensor)
    mass = transition.g.coefficients @ transition.overlap @ C
    missing = jnp.all(jnp.isnan(observation))
    return C / mass, jnp.where(missing, 0.0, jnp.log(mass) + seen.log_scale)


def _first_coefficients(transition: Transition, belief: Belief, seen: Emitted, sensor: LearnedSensor) -> Array:
    if isinstance(belief, MixtureBelief):
        found = [_first_coefficients(transition, member, seen, sensor) for member in belief.members]
        return belief.weights @ jnp.stack(found)
    if isinstance(belief, ProductBelief):
        table = overlap_table(transition.g, belief.h, belief.lower, belief.upper)
        return sensor.push(transition, table @ belief.h.coefficients, seen)
    y, _ = transition.transform.forward(belief.state)  # type: ignore[attr-defined]
    return sensor.push_from(transition, y, seen)


class EmittedSmoothed(BeliefSequence):
    """Beliefs given all readings: what was filtered, with the message in the place of g."""

    filtered: BeliefSequence
    transition: Transition
    sensor: LearnedSensor
    observations: Float[Array, "t k"]
    messages: Float[Array, "t p"]

    def __len__(self) -> int:
        """As many as there are readings."""
        return len(self.filtered)

    def at(self, k: int | Array) -> Belief:
        """h_k B_k, normalised."""
        return _with_message(self.filtered.at(k), self.messages[k])  # type: ignore[arg-type]

    def sample(self, key: PRNGKeyArray, count: int) -> Float[Array, "n t d"]:
        """x_0 from its smoothed belief, then x_(k+1) from f(x_k; ., o_(k+1)) B_(k+1)."""
        keys = jax.random.split(key, len(self))
        path = [self[0].sample(keys[0], count)]
        for k in range(1, len(self)):
            seen = eqx.filter_jit(LearnedSensor.emitted)(self.sensor, self.observations[k])
            root = _root(seen)
            path.append(_next(self.transition, self.sensor, keys[k], path[-1], root, self.messages[k]))
        return jnp.stack(path, axis=1)


def _root(seen: Emitted) -> tuple[Array, Array]:
    """F with F F^T = N, and the root of the background's share."""
    values, vectors = np.linalg.eigh(np.asarray(seen.N))
    # N is a Gram matrix: what is below zero is rounding.
    return jnp.asarray(vectors * np.sqrt(np.where(values > 0, values, 0.0))), jnp.sqrt(seen.broad)


@eqx.filter_jit
def _with_message(belief: ProductBelief, message: Array) -> ProductBelief:
    form = SquaredForm(belief.g.basis, matrix=unpack_coefficients(message, belief.g.basis.size))
    return normalised(eqx.tree_at(lambda b: b.g, belief, form))[1]


@eqx.filter_jit
def backward(
    transition: Transition, observations: Array, sensor: LearnedSensor, log_evidences: Array
) -> Float[Array, "t p"]:
    """Coefficients of B_0, ..., B_(T-1) over phi's terms, each divided by the evidence it takes in; the last is g."""
    last = transition.g.coefficients

    def retreat(b: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        observation, log_evidence = at
        seen = sensor.emitted(observation)
        before = sensor.pull(transition, b @ transition.overlap, seen) * jnp.exp(seen.log_scale - log_evidence)
        return before, before

    _, messages = lax.scan(retreat, last, (observations[1:], log_evidences[1:]), reverse=True)
    return jnp.concatenate([messages, last[None]])


def smooth_emitted(
    transition: Transition, initial: ProductBelief, observations: Array, sensor: LearnedSensor
) -> SmoothResult:
    """All readings of a sequence, seen from its end."""
    filtered = filter_emitted(transition, initial, observations, sensor)
    messages = backward(transition, observations, sensor, filtered.log_evidences)
    return SmoothResult(filtered, EmittedSmoothed(filtered.beliefs, transition, sensor, observations, messages))


@eqx.filter_jit
def _next(
    transition: Transition, sensor: LearnedSensor, key: Array, x: Array, root: tuple[Array, Array], message: Array
) -> Array:
    """One draw of x' for each x."""
    B, kernel = message_form(transition, message), transition.kernel
    K, share = sensor.split(kernel.K), sensor.background  # type: ignore[attr-defined]
    y, _ = to_model(transition.transform, x)

    def form(y: Array) -> SquaredForm:
        w = transition.g.root_of(transition.phi.evaluate(y)).values  # type: ignore[attr-defined]
        factor = jnp.einsum("n,nmar,ab->mbr", w / jnp.sqrt(w @ w), K, root[0]).reshape(K.shape[1], -1)
        if share > 0:
            far = jnp.zeros((K.shape[1], 1)).at[-1, 0].set(jnp.sqrt(share / kernel.background_mass) * root[1])
            factor = jnp.concatenate([jnp.sqrt(1.0 - share) * factor, far], axis=1)
        return SquaredForm(transition.psi, factor)

    return to_data(transition.transform, sampling.draw_each(key, B, form, y))
