"""Smoothing, exactly: p(x_k | all readings), by the adjoint of the filter's recursion.

What comes after step k is worth B_k(x) / g(x) to a state x, with B_k = phi^T (.) phi; the next message is
B_k(x) = int f(x, x') l(o_(k+1) | x') B_(k+1)(x') dx'. A smoothed belief h_k l_k B_k is a product of two forms again.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.known import KnownState
from sosmarkov.contracts.mixture import MixtureBelief
from sosmarkov.core import checks
from sosmarkov.factor import sampling
from sosmarkov.factor.beliefs import ProductBelief
from sosmarkov.factor.forms import Form
from sosmarkov.factor.transition import Dynamics, Transition
from sosmarkov.inference.filter import FilterResult, ReadBeliefs, filter_observations, times
from sosmarkov.inference.propagate import Beliefs, BeliefSequence, row, some_form
from sosmarkov.inference.weigh import make_weigher, under
from sosmarkov.sensors.known import Sensor
from sosmarkov.spaces.transforms import to_data, to_model


class SmoothedBeliefs(ReadBeliefs):
    """Beliefs given all readings."""

    predicted: Beliefs
    sensor: Sensor
    observations: Float[Array, "t ..."]
    messages: Float[Array, "t p"]
    inputs: Float[Array, "k e"] | None

    def before(self, k: int | Array) -> Belief:
        """The prediction with what follows in the place of g; of mass one where no reading is."""
        prior = self.predicted.at(k)
        if isinstance(prior, KnownState):
            return prior
        return _with_message(prior, message_form(self.predicted.transition, self.messages[k]))

    def sample(self, key: PRNGKeyArray, count: int) -> Float[Array, "n t d"]:
        """x_0 from its smoothed belief, then x_(k+1) from f(x_k, .) l(o_(k+1) | .) B_(k+1)."""
        transition, keys = self.predicted.transition, jax.random.split(key, len(self))
        path = [self[0].sample(keys[0], count)]
        for k in range(1, len(self)):
            skip = bool(self.sensor.missing(self.observations[k]))
            observation = None if skip else self.observations[k]
            u = row(self.inputs, k - 1)
            path.append(_next(transition, self.sensor, keys[k], path[-1], observation, self.messages[k], u))
        return jnp.stack(path, axis=1)


class SmoothResult(eqx.Module):
    """What smoothing found.

    Attributes:
        filtered: The filter's own result.
        beliefs: p(x_k | o_0, ..., o_(T-1)) for k = 0, ..., T - 1.
    """

    filtered: FilterResult
    beliefs: BeliefSequence

    @property
    def log_evidence(self) -> Float[Array, ...]:
        """log p(o_0, ..., o_(T-1))."""
        return self.filtered.log_evidence

    def sample(self, key: PRNGKeyArray, count: int = 1) -> Float[Array, "n t d"]:
        """Whole trajectories given all readings: independent exact draws, shape (count, T, d).

        x_0 from its smoothed belief, then x_(k+1) from the density proportional to f(x_k, .) l(o_(k+1) | .) B_(k+1).
        """
        return self.beliefs.sample(key, checks.count(count, "count", 1))  # type: ignore[attr-defined]


def smooth_observations(
    transition: Dynamics, initial: Belief, observations: Array, sensor: Sensor, inputs: Array | None = None
) -> SmoothResult:
    """All readings of a sequence, seen from its end."""
    filtered = filter_observations(transition, initial, observations, sensor, inputs)
    messages = backward(transition, observations, sensor, filtered.log_evidences, inputs)
    return SmoothResult(filtered, SmoothedBeliefs(filtered.predicted, sensor, observations, messages, inputs))


@eqx.filter_jit
def backward(
    transition: Dynamics, observations: Array, sensor: Sensor, log_evidences: Array, inputs: Array | None = None
) -> Float[Array, "t p"]:
    """Coefficients of B_0, ..., B_(T-1) over phi's terms; the last is g.

    Each is divided by the evidence of the reading it takes in, so that none grows or vanishes.
    """
    last = transition.g.coefficients
    if observations.shape[0] == 1:
        return last[None]
    weigher = make_weigher(sensor, transition.transform, some_form(transition), transition.g)

    def retreat(b: Array, at: tuple[Array, Array, Array | None]) -> tuple[Array, Array]:
        observation, log_evidence, u = at
        M, log_scale = weigher(observation, b)
        before = transition.at(u).kernel.pull(M) * jnp.exp(log_scale - log_evidence)
        return before, before

    _, messages = lax.scan(retreat, last, (observations[1:], log_evidences[1:], inputs), reverse=True)
    return jnp.concatenate([messages, last[None]])


@eqx.filter_jit
def message_form(dynamics: Dynamics, coefficients: Array) -> Form:
    """B as a form over phi."""
    return dynamics.form(dynamics.phi, coefficients)


def _with_message(belief: Belief, message: Form) -> ProductBelief:
    """h B in the place of h g."""
    if isinstance(belief, MixtureBelief):
        raise ValueError("Expected one belief to start from, got a mixture: smooth from each of its members.")
    assert isinstance(belief, ProductBelief)
    return eqx.tree_at(lambda b: b.g, belief, message)


@eqx.filter_jit
def _next(
    dynamics: Dynamics,
    sensor: Sensor,
    key: Array,
    x: Array,
    observation: Array | None,
    message: Array,
    u: Array | None,
) -> Array:
    """One draw of x' for each x, given what is read of x' and of what comes after it."""
    B, transition = message_form(dynamics, message), dynamics.at(u)
    choose, *keys = jax.random.split(key, len(sensor.parts()) + 1)
    y, _ = to_model(transition.transform, x)
    if observation is None:
        drawn, _ = _draw_next(transition, keys[0], y, B, None)
        return to_data(transition.transform, drawn)
    found = []
    for (weight, part), one in zip(sensor.parts(), keys, strict=True):
        reading = part.reading(observation, transition.phi, transition.transform)
        drawn, mass = _draw_next(transition, one, y, B, reading)
        found.append((drawn, jnp.log(weight) + jnp.log(mass)))
    which = jax.random.categorical(choose, jnp.stack([log_weight for _, log_weight in found], axis=1), axis=1)
    drawn = jnp.stack([draws for draws, _ in found])[which, jnp.arange(len(y))]
    return to_data(transition.transform, drawn)


def _draw_next(transition: Transition, key: Array, y: Array, B: Form, reading) -> tuple[Array, Array]:
    """Draws from f(y, .) l B for each y, and its integral."""
    box = (None, None) if reading is None else (reading.lower, reading.upper)

    def form(y: Array) -> Form:
        h = transition.form_from(y)
        return h if reading is None else times(h, reading)

    h = transition.form_from(y[0])
    table = B.basis.overlap(B.terms, h.terms) if reading is None else under(B.basis, B.terms, h.terms, reading)
    worth = B.coefficients @ table
    mass = lax.map(lambda y: worth @ transition.form_from(y).coefficients, y, batch_size=min(1024, len(y)))
    return sampling.draw_each(key, B, form, y, *box), mass
