"""Bayesian filtering, exactly: p(x_k | o_0, ..., o_k) and the evidence, one linear map per reading."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.known import KnownState
from sosmarkov.contracts.mixture import MixtureBelief
from sosmarkov.core import checks
from sosmarkov.core.programs import jit_wide
from sosmarkov.factor.beliefs import ProductBelief, normalised
from sosmarkov.factor.forms import Form, multiplied
from sosmarkov.factor.transition import Dynamics, Transition
from sosmarkov.inference.propagate import Beliefs, BeliefSequence, first_coefficients, row, some_form
from sosmarkov.inference.weigh import Weigher, make_weigher
from sosmarkov.sensors.known import Reading, Sensor, log_likelihood


class Updated(NamedTuple):
    """What one reading made of a belief.

    Attributes:
        belief: p(x | o).
        log_evidence: Log p(o).
    """

    belief: Belief
    log_evidence: Float[Array, ""]


class ReadBeliefs(BeliefSequence):
    """Beliefs that the reading at their own step has updated."""

    predicted: eqx.AbstractVar[Beliefs]
    sensor: eqx.AbstractVar[Sensor]
    observations: eqx.AbstractVar[Float[Array, "t ..."]]

    @abstractmethod
    def before(self, k: int | Array) -> Belief:
        """The belief without the reading."""

    def __len__(self) -> int:
        """As many as there are readings."""
        return len(self.predicted)

    def at(self, k: int | Array) -> Belief:
        """The belief, updated; no reading changes a known state."""
        prior = self.before(k)
        return prior if isinstance(prior, KnownState) else update(prior, self.observations[k], self.sensor).belief

    def ask(self, k: int | Array, query: str) -> Array:
        """A missing reading leaves the belief as it is, whose form another one would change."""
        missing = self.sensor.missing(self.observations[k])
        if isinstance(missing, bool | np.bool_) or checks.is_concrete(jnp.asarray(missing)):
            return super().ask(k, query)
        return lax.cond(missing, lambda: getattr(self.before(k), query)(), lambda: getattr(self.at(k), query)())


class Posteriors(ReadBeliefs):
    """Beliefs given the readings up to their own step."""

    predicted: Beliefs
    sensor: Sensor
    observations: Float[Array, "t ..."]

    def before(self, k: int | Array) -> Belief:
        """The prediction."""
        return self.predicted.at(k)


class FilterResult(eqx.Module):
    """What filtering found.

    Attributes:
        predicted: p(x_k | o_0, ..., o_(k-1)) for k = 0, ..., T - 1.
        beliefs: p(x_k | o_0, ..., o_k).
        log_evidences: Log p(o_k | o_0, ..., o_(k-1)), shape (T,); zero where a reading is missing.
    """

    predicted: Beliefs
    beliefs: BeliefSequence
    log_evidences: Float[Array, "... t"]

    @property
    def log_evidence(self) -> Float[Array, ...]:
        """log p(o_0, ..., o_(T-1)), of each sequence where many were filtered by `jax.vmap`."""
        return jnp.sum(self.log_evidences, axis=-1)


def update(belief: Belief, observation: Array, sensor: Sensor) -> Updated:
    """Bayes' rule for one reading: p(x | o) is proportional to p(x) l(o | x)."""
    skipped = _skipped(sensor, observation)
    if all(skipped):
        return Updated(belief, jnp.zeros(()))
    if isinstance(belief, KnownState):
        raise ValueError("Expected a belief with a density to update, got a known state: no reading changes it.")
    members = _members(belief)
    parts, weights, log_evidence = _updated_parts(members, observation, sensor, skipped)
    require_possible(log_evidence)
    # Outside of the program, so that g and the transform are shared and not copied: the next step knows them again.
    owners = [member for _, member in members for _ in sensor.parts()]
    found = [
        ProductBelief(g=member.g, h=h, transform=member.transform, lower=lower, upper=upper)
        for member, (h, lower, upper) in zip(owners, parts, strict=True)
    ]
    return Updated(found[0] if len(found) == 1 else MixtureBelief(found, weights), log_evidence)


def _skipped(sensor: Sensor, observation: Array) -> tuple[bool, ...]:
    """Which parts of a sensor the reading says nothing to, as far as its numbers can be looked at."""
    if not checks.is_concrete(observation):
        return (False,) * len(sensor.parts())
    values = np.asarray(observation)
    return tuple(bool(part.missing(values)) for _, part in sensor.parts())


# Plain `jit`: all leaves are arrays, and a stream of readings feels what Equinox's filtering costs.
@partial(jax.jit, static_argnames="skipped")
def _updated_parts(
    members: list[tuple[Array, ProductBelief]], observation: Array, sensor: Sensor, skipped: tuple[bool, ...]
) -> tuple[list[tuple[Form, Array | None, Array | None]], Array, Array]:
    """The form and the box of every member after every part of the sensor, their weights, and the log-evidence."""
    found, log_weights = [], []
    for log_prior, member in members:
        for (weight, part), skip in zip(sensor.parts(), skipped, strict=True):
            reading = Reading() if skip else part.reading(observation, member.basis, member.transform)
            log_mass, after = _apply(member, reading)
            found.append((after.h, after.lower, after.upper))
            log_weights.append(log_prior + jnp.log(weight) + log_mass)
    total = jax.nn.logsumexp(jnp.stack(log_weights))
    return found, jnp.exp(jnp.stack(log_weights) - total), total


def _members(belief: Belief) -> list[tuple[Array, ProductBelief]]:
    if isinstance(belief, ProductBelief):
        return [(jnp.zeros(()), belief)]
    if isinstance(belief, MixtureBelief) and all(isinstance(member, ProductBelief) for member in belief.members):
        return list(zip(jnp.log(belief.weights), belief.members, strict=True))  # type: ignore[arg-type]
    raise ValueError(f"Expected a belief of a process to update, got {type(belief).__name__}.")


def _apply(belief: ProductBelief, reading: Reading) -> tuple[Array, ProductBelief]:
    """The log of int p l, and the normalised product."""
    h = times(belief.h, reading)
    lower, upper = belief.lower, belief.upper
    if reading.lower is not None and reading.upper is not None:
        lower = reading.lower if lower is None else jnp.maximum(lower, reading.lower)
        upper = reading.upper if upper is None else jnp.minimum(upper, reading.upper)
    return normalised(ProductBelief(g=belief.g, h=h, transform=belief.transform, lower=lower, upper=upper))


def times(h: Form, reading: Reading) -> Form:
    """h l without the reading's box."""
    if reading.term is not None:
        h = h.times_term(reading.term)
    return h if reading.form is None else multiplied(h, reading.form)


def require_possible(log_evidence: Array) -> None:
    """Refuse readings of probability zero (looked at on concrete arrays only)."""
    if checks.is_concrete(log_evidence) and not np.all(np.asarray(log_evidence) > -np.inf):
        raise ValueError(
            "Expected readings that are possible under the process, got one of probability zero: an interval outside"
            " of where the process can be, or a number no double can square. Widen the interval, or mark the reading as"
            " missing (NaN)."
        )


def filter_observations(
    transition: Dynamics, initial: Belief, observations: Array, sensor: Sensor, inputs: Array | None = None
) -> FilterResult:
    """All readings of a sequence; row k belongs to x_k, input k to the step after it."""
    coefficients, log_evidences = forward(transition, initial, observations, sensor, inputs)
    require_possible(log_evidences)
    predicted = Beliefs(initial, transition, coefficients)
    return FilterResult(predicted, Posteriors(predicted, sensor, observations), log_evidences)


@jit_wide
def forward(
    transition: Dynamics, initial: Belief, observations: Array, sensor: Sensor, inputs: Array | None = None
) -> tuple[Array, Array]:
    """Coefficients of the predicted beliefs at k = 1, ..., T - 1, and the evidence of every reading."""
    steps = observations.shape[0] - 1
    # After a single reading there is no step, whatever its input would be.
    features = transition.features
    u = row(inputs, 0) if steps > 0 or features is None else jnp.zeros(features.dim)
    C, first = first_step(transition.at(u), initial, observations[0], sensor)
    if steps == 0:
        return jnp.zeros((0, transition.overlap.shape[1])), first[None]
    weigher = make_weigher(sensor, transition.transform, transition.g, some_form(transition))

    def advance(C: Array, at: tuple[Array, Array | None]) -> tuple[Array, tuple[Array, ...]]:
        observation, u = at
        # Logarithms wait for the end of the loop: for small processes it is the number of operations that counts.
        P, log_scale = weigher(observation, C)
        mass = transition.g.coefficients @ P
        return transition.at(u).kernel.push(P / mass), (C, mass, log_scale)

    later = None if inputs is None else inputs[1:]
    last, (coefficients, masses, log_scales) = lax.scan(advance, C, (observations[1:-1], later))
    log_evidences = jax.vmap(partial(_log_evidence, sensor))(observations[1:-1], masses, log_scales)
    # The last reading has no prediction after it.
    _, log_evidence = weighed(transition, weigher, last, observations[-1])
    return (
        jnp.concatenate([coefficients, last[None]]),
        jnp.concatenate([first[None], log_evidences, log_evidence[None]]),
    )


def weighed(dynamics: Dynamics, weigher: Weigher, C: Array, observation: Array) -> tuple[Array, Array]:
    """P = int (phi phi^T) l(o_k | .) h_k / p(o_k | before), and log p(o_k | before)."""
    P, log_scale = weigher(observation, C)
    mass = dynamics.g.coefficients @ P
    return P / mass, _log_evidence(weigher.sensor, observation, mass, log_scale)


def _log_evidence(sensor: Sensor, observation: Array, mass: Array, log_scale: Array) -> Array:
    # Without a reading the mass is one but for rounding, which is nobody's evidence.
    return jnp.where(sensor.missing(observation), 0.0, jnp.log(mass) + log_scale)


def first_step(transition: Transition, initial: Belief, observation: Array, sensor: Sensor) -> tuple[Array, Array]:
    """C_1 given o_0, and log p(o_0)."""
    if isinstance(initial, KnownState):
        y, _ = transition.transform.forward(initial.state)
        value = log_likelihood(sensor, observation, transition.phi, transition.transform, y)
        return first_coefficients(transition, initial), jnp.where(sensor.missing(observation), 0.0, value)
    total, masses = [], []
    for log_prior, member in _members(initial):
        weigher = make_weigher(sensor, transition.transform, transition.g, member.h)
        if member.lower is not None:
            raise ValueError(
                "Expected an initial belief on the whole domain, got one on a box. Use predict and update."
            )
        P, log_mass = weighed(transition, weigher, member.h.coefficients, observation)
        total.append(transition.kernel.push(P))
        masses.append(log_prior + log_mass)
    log_evidence = jax.nn.logsumexp(jnp.stack(masses))
    return jnp.exp(jnp.stack(masses) - log_evidence) @ jnp.stack(total), log_evidence
