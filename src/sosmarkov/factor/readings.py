"""A known sensor prepared for a transition: readings of states, then the step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.mixture import MixtureBelief
from sosmarkov.contracts.reader import Passed, Reader, Sensor, Updated, require_possible
from sosmarkov.core import checks
from sosmarkov.factor import sampling
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.beliefs import ProductBelief
from sosmarkov.factor.forms import Form, overlap_table
from sosmarkov.factor.likelihood import Message, Reading
from sosmarkov.factor.weigh import make_weigher, under
from sosmarkov.spaces.transforms import Transform, to_data, to_model


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Likelihoods:
    """What readings say of beliefs and states, without the transition: a stream hands it over with every reading."""

    sensor: Sensor
    transform: Transform
    basis: Basis

    def products(
        self, belief: ProductBelief, observation: Array, skipped: tuple[bool, ...]
    ) -> list[tuple[Array, tuple[Form, Array | None, Array | None]]]:
        """The log of int p l and the normalised product, for each part of the sensor."""
        found = []
        for (weight, part), skip in zip(self.sensor.parts(), skipped, strict=True):
            reading = Reading() if skip else part.reading(observation, belief.basis, self.transform)
            log_mass, after = _times(belief, reading).normalised()
            found.append((jnp.log(weight) + log_mass, (after.h, after.lower, after.upper)))
        return found

    def log_prob(self, observation: Array, state: Float[Array, " d"]) -> Float[Array, ""]:
        """log p(o | x) at one state; zero where nothing was read."""
        y, _ = self.transform.forward(state)
        values = [
            jnp.log(weight) + part.reading(observation, self.basis, self.transform).log_value(self.basis, y)
            for weight, part in self.sensor.parts()
        ]
        return jnp.where(self.sensor.missing(observation), 0.0, jax.nn.logsumexp(jnp.stack(values)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class KnownReader(Reader):
    """A sensor of the state alone, whose likelihoods are functions of the basis's family.

    Args:
        transition: Of the states that are read.
        sensor: Reads them.
        transform: From what the sensor reads to model space: the transition's, but in training.
        batched: Whether many sequences are read at once, so that all branches of a program would be taken.
    """

    transition: Any
    sensor: Sensor
    transform: Transform
    batched: bool = field(default=False, metadata={"static": True})

    @property
    def likelihoods(self) -> Likelihoods:
        """Of single readings."""
        return Likelihoods(self.sensor, self.transform, self.transition.phi)

    def first(self, initial: Belief, observation: Array) -> Message:
        """E_o h over the start's own basis."""
        return self.transition.enter(initial, _Read(self, observation))

    def ahead(self) -> Callable[[Message, Array, Array | None], tuple[Message, Passed]]:
        """C = push(P), then E_o C."""
        transition = self.transition
        weigher = make_weigher(self.sensor, self.transform, transition.g, transition.some_form(), batched=self.batched)

        def step(message: Message, observation: Array, u: Array | None) -> tuple[Message, Passed]:
            C = transition.push(message, u)
            P, log_scale = weigher(observation, C)
            mass = transition.g.coefficients @ P
            # Logarithms wait for the end of the loop: for small processes it is the number of operations that counts.
            return Message(P / mass, jnp.zeros(())), Passed(C, C, mass, log_scale)

        return step

    def back(self) -> Callable[[Array, Array, Array, Array | None], Array]:
        """b = pull(E_o^T b'), divided by the evidence, so that none grows or vanishes."""
        transition = self.transition
        weigher = make_weigher(self.sensor, self.transform, transition.some_form(), transition.g, batched=self.batched)

        def step(b: Array, observation: Array, log_evidence: Array, u: Array | None) -> Array:
            M, log_scale = weigher(observation, b)
            return transition.pull(M, u) * jnp.exp(log_scale - log_evidence)

        return step

    def posterior(self, belief: Belief, observation: Array | None, backward: Array | None = None) -> Belief:
        """Bayes' rule, with what follows in the place of g: of mass one where no reading is."""
        if backward is not None:
            _, belief = belief.facing(self.transition, backward)
            if len(belief.parts()) > 1:
                # What follows weighs the members anew.
                _, belief = belief.normalised()
        return belief if observation is None else self.update(belief, observation).belief

    def update(self, belief: Belief, observation: Array) -> Updated:
        """Each part of the belief under each part of the sensor."""
        skipped = self._skipped(observation)
        if all(skipped):
            return Updated(belief, jnp.zeros(()))
        parts = belief.parts()
        found, weights, log_evidence = _given(self.likelihoods, parts, observation, skipped)
        require_possible(log_evidence)
        # Outside of the program, so that what a belief shares with the transition is not copied.
        members = [part.changed(one) for (_, part), ones in zip(parts, found, strict=True) for one in ones]
        return Updated(members[0] if len(members) == 1 else MixtureBelief(members, weights), log_evidence)

    def _skipped(self, observation: Array) -> tuple[bool, ...]:
        """Which parts of the sensor the reading says nothing to, as far as its numbers can be looked at."""
        if not checks.is_concrete(observation):
            return (False,) * len(self.sensor.parts())
        values = np.asarray(observation)
        return tuple(bool(part.missing(values)) for _, part in self.sensor.parts())

    def draw(self, key: Array, x: Array, observation: Array, backward: Array, u: Array | None) -> Array:
        """From f(x, .) l(o | .) B."""
        missing = bool(self.sensor.missing(observation))
        return _draw(self, key, x, None if missing else observation, backward, u)


class _Read(NamedTuple):
    """One reading, as a start enters under it."""

    reader: KnownReader
    observation: Array

    def enter_product(self, belief: ProductBelief) -> Message:
        """P of mass one; the evidence is its scale."""
        transition, sensor = self.reader.transition, self.reader.sensor
        if belief.ends is None:
            weigher = make_weigher(sensor, self.reader.transform, transition.g, belief.h, batched=self.reader.batched)
            P, log_scale = weigher(self.observation, belief.h.coefficients)
            mass = transition.g.coefficients @ P
            message = Message(P / mass, jnp.log(mass) + log_scale)
        else:
            # On a box no table serves all readings: each part of the sensor makes a belief of its own.
            found = self.reader.likelihoods.products(belief, self.observation, (False,) * len(sensor.parts()))
            messages = [belief.changed(one).enter(transition).times(log_mass) for log_mass, one in found]
            message = transition.mixed(jnp.ones(len(messages)), messages)
        scale = jnp.where(sensor.missing(self.observation), 0.0, message.log_scale)
        return Message(message.P, scale)

    def log_prob(self, state: Float[Array, " d"]) -> Float[Array, ""]:
        """Of the reading at a known state."""
        return self.reader.likelihoods.log_prob(self.observation, state)


def _times(belief: ProductBelief, reading: Reading) -> ProductBelief:
    """h l on what the two boxes share."""
    lower, upper = belief.lower, belief.upper
    if reading.lower is not None and reading.upper is not None:
        lower = reading.lower if lower is None else jnp.maximum(lower, reading.lower)
        upper = reading.upper if upper is None else jnp.minimum(upper, reading.upper)
    return ProductBelief(g=belief.g, h=reading.times(belief.h), transform=belief.transform, lower=lower, upper=upper)


# Plain `jit`: all leaves are arrays, and a stream of readings feels what Equinox's filtering costs.
@partial(jax.jit, static_argnames="skipped")
def _given(
    likelihoods: Likelihoods, parts: list[tuple[Array | float, Belief]], observation: Array, skipped: tuple[bool, ...]
) -> tuple[list[list[Any]], Array, Array]:
    """What changes in every part of a belief, the weights of all, and the log-evidence."""
    found = [part.given(likelihoods, observation, skipped) for _, part in parts]
    log_weights = [prior + log_mass for (prior, _), ones in zip(parts, found, strict=True) for log_mass, _ in ones]
    total = jax.nn.logsumexp(jnp.stack(log_weights))
    return [[one for _, one in ones] for ones in found], jnp.exp(jnp.stack(log_weights) - total), total


@eqx.filter_jit
def _draw(
    reader: KnownReader, key: Array, x: Array, observation: Array | None, backward: Array, u: Array | None
) -> Array:
    transition = reader.transition.at(u)
    B = transition.form(transition.phi, backward)
    choose, *keys = jax.random.split(key, len(reader.sensor.parts()) + 1)
    y, _ = to_model(transition.transform, x)
    if observation is None:
        drawn, _ = _draw_next(transition, keys[0], y, B, None)
        return to_data(transition.transform, drawn)
    found = []
    for (weight, part), one in zip(reader.sensor.parts(), keys, strict=True):
        reading = part.reading(observation, transition.phi, transition.transform)
        drawn, mass = _draw_next(transition, one, y, B, reading)
        found.append((drawn, jnp.log(weight) + jnp.log(mass)))
    which = jax.random.categorical(choose, jnp.stack([log_weight for _, log_weight in found], axis=1), axis=1)
    drawn = jnp.stack([draws for draws, _ in found])[which, jnp.arange(len(y))]
    return to_data(transition.transform, drawn)


def _draw_next(transition: Any, key: Array, y: Array, B: Form, reading: Reading | None) -> tuple[Array, Array]:
    """Draws from f(y, .) l B for each y, and its integral."""
    box = (None, None) if reading is None else (reading.lower, reading.upper)

    def form(y: Array) -> Form:
        h = transition.form_from(y)
        return h if reading is None else reading.times(h)

    h = transition.form_from(y[0])
    table = overlap_table(B, h) if reading is None else under(B.basis, B.terms, h.terms, reading)
    worth = B.coefficients @ table
    mass = lax.map(lambda y: worth @ transition.form_from(y).coefficients, y, batch_size=min(1024, len(y)))
    return sampling.draw_each(key, B, form, y, *box), mass
