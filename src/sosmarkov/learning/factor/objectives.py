"""What training minimises: negative log-likelihoods of transitions, of initial states, of beliefs.

All are weighted means, sum w (-log p) / sum w. A row of weight zero stands for data that are missing: whatever its
place holds is neither evaluated nor differentiated.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.factor.background import Background
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.beliefs import ProductBelief
from sosmarkov.factor.couplings import Coupling, Driven
from sosmarkov.factor.driven import DrivenTransition
from sosmarkov.factor.forms import Form, overlap_table
from sosmarkov.factor.likelihood import Message
from sosmarkov.factor.starts import BROAD
from sosmarkov.factor.step import FactorTransition
from sosmarkov.factor.transition import Transition


class Parameters(NamedTuple):
    """Everything that is trained, in model space; background functions are added by `realise`.

    Attributes:
        phi: Basis of g and of f in x, n functions.
        psi: Basis of f in x', n functions.
        coupling: Its coefficients; with a background share, for one function more in each basis.
        start_basis: Basis of h_0.
        start_factor: Of a squared form the factor F, shape (n_0, r), h_0 = ||F^T f||^2; under the linear coupling
            the logarithms of its weights, shape (n_0,), h_0 = exp(start_factor) . f, so that they stay positive.
    """

    phi: Basis
    psi: Basis
    coupling: Coupling | Driven
    start_basis: Basis
    start_factor: Float[Array, "n r"] | Float[Array, " n"]


def realise(parameters: Parameters) -> tuple[FactorTransition, Form]:
    """The transition and the initial form h_0 these parameters stand for, with honest tails.

    With a background share e, phi, psi and the initial basis get one broad function each, of fixed width. Then

        p(x' | x) = (1 - e) p_own(x' | x) + e g(x') t(x') / int g t,    p_0 = (1 - e) p_own + e g t / int g t

    with t the square of the broad function (the function itself under the linear coupling): an exact share,
    whatever the other parameters are. Both are scaled to mass one.
    """
    transition = realise_transition(parameters)
    start = Start(transition.g, parameters.start_basis, parameters.start_factor, parameters.coupling.background)
    return transition, realise_start(start)


def realise_transition(parameters: Parameters) -> FactorTransition:
    """The transition alone."""
    phi, psi, coupling = parameters[:3]
    if coupling.background > 0:
        phi, psi = phi.with_broad(BROAD), psi.with_broad(BROAD)
    make = DrivenTransition if isinstance(coupling, Driven) else Transition
    return make(phi, psi, coupling)  # type: ignore[arg-type]


class Start(NamedTuple):
    """The initial form's share of `Parameters`, beside the factor g it is normalised against."""

    g: Form
    basis: Basis
    factor: Float[Array, "n r"] | Float[Array, " n"]
    background: float


def realise_start(start: Start) -> Form:
    """The initial form h_0 with its background, int g h_0 = 1."""
    g, basis, factor, share = start
    # The broad function has no part in what is trained.
    own = g.free(basis if share == 0 else basis.with_broad(BROAD), factor)
    own = own.scale(-jnp.log(g.coefficients @ overlap_table(g, own) @ own.coefficients))
    return own if share == 0 else Background(share, g.coefficients @ overlap_table(g, own)[:, -1]).form(own)


def weighted_mean(values: Float[Array, "*b"], weight: Float[Array, "*b"]) -> Float[Array, ""]:
    """The weighted mean sum w v / sum w, zero where all weights are."""
    total = jnp.sum(weight)
    return jnp.sum(weight * jnp.where(weight > 0, values, 0.0)) / jnp.where(total > 0, total, 1.0)


def present_or(y: Float[Array, "*b d"], weight: Float[Array, "*b"], basis: Basis) -> Float[Array, "*b d"]:
    """The states, with some point of the domain in place of those of weight zero."""
    return jnp.where(weight[..., None] > 0, y, lax.broadcast_to_rank(lax.stop_gradient(basis.interior_point()), y.ndim))


def transition_loss(parameters: Parameters, batch: tuple[Array, ...]) -> Float[Array, ""]:
    """-log p(y' | y), weighted mean over pairs (y, y', weight) or (y, y', weight, u), u the inputs, shape (B, e)."""
    return _transition_loss(realise_transition(parameters), *batch)


def _transition_loss(
    dynamics: FactorTransition, y: Array, y_next: Array, weight: Array, u: Array | None = None
) -> Array:
    y, y_next = (present_or(states, weight, dynamics.phi) for states in (y, y_next))

    def log_prob(y_next: Array, y: Array, u: Array | None) -> Array:
        return dynamics.at(u).log_prob_model(y_next, y)

    return weighted_mean(-jax.vmap(log_prob)(y_next, y, u), weight)


def initial_loss(start: Start, batch: tuple[Array, Array]) -> Float[Array, ""]:
    """-log p_0(y) with g held fixed, weighted mean over (y, weight) of shapes (B, d), (B,)."""
    y, weight = batch
    start = start._replace(g=lax.stop_gradient(start.g))
    return weighted_mean(-_log_product(start.g, realise_start(start), present_or(y, weight, start.basis)), weight)


def _log_product(g: Form, h: Form, y: Float[Array, "b d"]) -> Float[Array, " b"]:
    return jax.vmap(lambda y: g.log_value(y) + h.log_value(y))(y)


def belief_log_probs(
    transition: FactorTransition,
    start: Form,
    trajectories: Float[Array, "b t d"],
    present: Float[Array, "b t"],
    inputs: Float[Array, "b k e"] | None = None,
) -> Float[Array, "b t"]:
    """log p_k(y_k) for k = 0, ..., T - 1; where nothing is present the number means nothing."""
    psi, g = transition.psi, transition.g
    states = jnp.swapaxes(present_or(trajectories, present, psi), 0, 1)
    at_start = _log_product(g, start, states[0])

    message = transition.enter(ProductBelief(g=g, h=start, transform=transition.transform))

    # The first step is one of the loop's: taken before it, a second copy of it and of its gradient would be compiled.
    def advance(message: Message, u: Array | None) -> tuple[Message, Array]:
        C = transition.push(message, u)
        return transition.message(C), C

    def path(u: Array | None) -> Array:
        return lax.scan(advance, message, u, length=len(states) - 1)[1]

    # Of the belief, or of each trajectory's own under its inputs.
    coefficients = path(None) if inputs is None else jax.vmap(path)(inputs)

    def features(y: Array) -> tuple[Array, Array, Array, Array]:
        inside = psi.inside(y)
        y = jnp.where(inside, y, psi.interior_point())
        values, log_scale = psi.evaluate(y).scaled()
        return values, log_scale, g.log_value_inside(y), inside

    # All states at once: inside the scan the same work would be done in as many small pieces.
    f, log_scale, log_g, inside = jax.vmap(jax.vmap(features))(states[1:])
    # Many states a step, or one of each trajectory, whose belief is its own.
    h = (
        g.values(coefficients, f)
        if inputs is None
        else g.values(jnp.swapaxes(coefficients, 0, 1), f[:, :, None])[..., 0]
    )
    later = jnp.where(inside, log_g + jnp.log(h) + g.order * log_scale, -jnp.inf)
    return jnp.swapaxes(jnp.concatenate([at_start[None], later]), 0, 1)


class BeliefLoss(NamedTuple):
    """-log p_k(y_k), weighted mean over trajectories and k, plus `weight` times a transition loss along them.

    Equal by value, so that it is compiled once.

    Attributes:
        weight: Of the transition loss, taken on one pair a trajectory, weighted by the product of its states'.
    """

    weight: float

    def __call__(self, parameters: Parameters, batch: tuple[Array, ...]) -> Float[Array, ""]:
        """Of trajectories (B, T, d), the weights of their states (B, T), zero where missing, and any inputs."""
        trajectories, present, *rest = batch
        inputs = rest[0] if rest else None
        transition, start = realise(parameters)
        loss = weighted_mean(-belief_log_probs(transition, start, trajectories, present, inputs), present)
        count, length, _ = trajectories.shape
        if self.weight == 0 or length < 2:
            return loss
        # One transition a trajectory, at a step that differs from one to the next: the cost of a batch of pairs.
        row, k = jnp.arange(count), jnp.arange(count) % (length - 1)
        both = present[row, k] * present[row, k + 1]
        u = None if inputs is None else inputs[row, k]
        pairs = trajectories[row, k], trajectories[row, k + 1], both, u
        return loss + self.weight * _transition_loss(transition, *pairs)
