"""What training minimises: negative log-likelihoods of transitions, of initial states, of beliefs."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.bases import FullGaussianBasis, GaussianBasis
from sosmarkov.couplings import Kraus
from sosmarkov.forms import Form, SquaredForm, overlap_table
from sosmarkov.numerics import unpack_coefficients
from sosmarkov.transition import Transition

# Width of the background functions, in standard deviations of the data.
BROAD = 8.0


class Parameters(NamedTuple):
    """Everything that is trained, in model space; background functions are added by `realise`."""

    phi: GaussianBasis | FullGaussianBasis
    psi: GaussianBasis | FullGaussianBasis
    coupling: Kraus
    start_basis: GaussianBasis | FullGaussianBasis
    start_factor: Float[Array, "n r"]


def realise(parameters: Parameters) -> tuple[Transition, SquaredForm]:
    """The transition and the initial form h_0 these parameters stand for, with honest tails.

    With a background share, phi, psi and the initial basis get one broad function each, of fixed width;
    its weight in p(x' | x) and in p_0 is exactly the share, whatever the other parameters are.
    """
    phi, psi, coupling, start_basis, start_factor = parameters
    share = coupling.background
    if share == 0:
        transition = Transition(phi, psi, coupling)
        return transition, normalised(transition.g, SquaredForm(start_basis, start_factor))
    transition = Transition(phi.with_broad(BROAD), psi.with_broad(BROAD), coupling)
    basis = start_basis.with_broad(BROAD)
    n, r = start_factor.shape
    main = jnp.zeros((n + 1, r)).at[:n].set(start_factor)
    last = jnp.zeros((n + 1, 1)).at[n, 0].set(1.0)
    parts = [normalised(transition.g, SquaredForm(basis, factor)).factor for factor in (main, last)]
    joined = jnp.concatenate([math.sqrt(1.0 - share) * parts[0], math.sqrt(share) * parts[1]], axis=1)
    return transition, SquaredForm(basis, joined)


def normalised(g: Form, h: SquaredForm) -> SquaredForm:
    """H scaled so that int g h = 1."""
    return SquaredForm(h.basis, h.factor / jnp.sqrt(g.coefficients @ overlap_table(g, h) @ h.coefficients))


def transition_loss(parameters: Parameters, batch: tuple[Array, Array]) -> Float[Array, ""]:
    """-mean log p(y' | y) over pairs, each of shape (B, d)."""
    y, y_next = batch
    transition, _ = realise(parameters)
    return -jnp.mean(jax.vmap(transition.log_prob_model)(y_next, y))


def initial_loss(parameters: Parameters, batch: Array) -> Float[Array, ""]:
    """-mean log p_0(y) with the factor g held fixed, states of shape (B, d)."""
    fixed = lax.stop_gradient(parameters[:3])
    transition, start = realise(Parameters(*fixed, *parameters[3:]))  # type: ignore[arg-type]
    log_p = jax.vmap(lambda y: transition.g.log_value_inside(y) + start.log_value_inside(y))
    return -jnp.mean(log_p(batch))


def belief_log_probs(parameters: Parameters, trajectories: Array) -> Float[Array, "t b"]:
    """Log p_k(y_k) for k = 0, ..., T of trajectories of shape (B, T + 1, d)."""
    transition, start = realise(parameters)
    psi, g = transition.psi, transition.g
    first = transition.kernel.push(overlap_table(g, start) @ start.coefficients)

    def log_prob(C: Array, y: Array) -> Array:
        matrix = unpack_coefficients(C, psi.size)

        def one(y: Array) -> Array:
            f = psi.evaluate(y).scaled()
            return g.log_value_inside(y) + jnp.log(f.values @ matrix @ f.values) + 2.0 * f.log_scale

        return jax.vmap(one)(y)

    def advance(C: Array, y: Array) -> tuple[Array, Array]:
        return transition.kernel.push(transition.overlap @ C), log_prob(C, y)

    states = jnp.swapaxes(trajectories, 0, 1)
    _, later = lax.scan(advance, first, states[1:])
    at_start = jax.vmap(lambda y: g.log_value_inside(y) + start.log_value_inside(y))(states[0])
    return jnp.concatenate([at_start[None], later])


def belief_loss(parameters: Parameters, batch: Array, weight: float) -> Float[Array, ""]:
    """-mean over k of log p_k(y_k), plus `weight` times the transition loss along the same trajectories."""
    loss = -jnp.mean(belief_log_probs(parameters, batch))
    if weight == 0:
        return loss
    # One transition a trajectory, at a step that differs from one to the next: the cost of a batch of pairs.
    count, length, _ = batch.shape
    row, k = jnp.arange(count), jnp.arange(count) % (length - 1)
    return loss + weight * transition_loss(parameters, (batch[row, k], batch[row, k + 1]))
