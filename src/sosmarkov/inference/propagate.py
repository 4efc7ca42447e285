"""Belief propagation: one linear map on the coefficients of h, applied any number of times."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import overload

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.known import KnownState
from sosmarkov.contracts.mixture import MixtureBelief
from sosmarkov.factor.beliefs import ProductBelief
from sosmarkov.factor.forms import Form, overlap_table
from sosmarkov.factor.transition import Dynamics, Transition


def first_coefficients(transition: Transition, initial: Belief) -> Float[Array, " q"]:
    """C_1 from a belief g h, whose h may sit on a basis of its own, from a mixture of such, or from a known state."""
    if isinstance(initial, KnownState):
        y, _ = transition.transform.forward(initial.state)
        return transition.form_from(y).coefficients
    if isinstance(initial, ProductBelief):
        # g is absent on purpose: the belief multiplies by it and the transition divides by it, so it
        # cancels inside the integral.
        table = overlap_table(transition.g, initial.h, initial.lower, initial.upper)
        return transition.kernel.push(table @ initial.h.coefficients)
    if isinstance(initial, MixtureBelief):
        reached = jnp.stack([first_coefficients(transition, member) for member in initial.members])
        return initial.weights @ reached
    raise ValueError(f"Expected a belief of this process or a known state to start from, got {type(initial).__name__}.")


def step(transition: Transition, C: Float[Array, " q"]) -> Float[Array, " q"]:
    """C_(k+1) = push(int (phi phi^T) h_k)."""
    return transition.kernel.push(transition.overlap @ C)


def row(inputs: Float[Array, "k e"] | None, k: int) -> Float[Array, " e"] | None:
    """The input of one step, where there are any."""
    return None if inputs is None else inputs[k]


def run_from(
    dynamics: Dynamics, first: Float[Array, " q"], steps: int, inputs: Float[Array, "j e"] | None = None
) -> Float[Array, "k q"]:
    """C_1 and what it becomes, `steps` of them in all; `inputs` are those of the steps after it."""

    def advance(C: Array, u: Array | None) -> tuple[Array, Array]:
        C_next = step(dynamics.at(u), C)
        return C_next, C_next

    return jnp.concatenate([first[None], lax.scan(advance, first, inputs, length=steps - 1)[1]])


@eqx.filter_jit
def propagate(
    dynamics: Dynamics, initial: Belief, steps: int, inputs: Float[Array, "k e"] | None = None
) -> Float[Array, "k q"]:
    """C_1, ..., C_steps by one scan; under inputs, one a step."""
    first = first_coefficients(dynamics.at(row(inputs, 0)), initial)
    return run_from(dynamics, first, steps, None if inputs is None else inputs[1:])


@eqx.filter_jit
def step_matrix(transition: Transition) -> Float[Array, "q q"]:
    """The map C_k -> C_(k+1) as a matrix."""
    columns = jax.vmap(transition.kernel.push)(transition.overlap.T)
    return columns.T


@eqx.filter_jit
def _power_times(matrix: Array, C: Array, power: Array) -> Array:
    """matrix^power C by repeated squaring."""

    def halve(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        matrix, C, power = state
        C = jnp.where(power % 2 == 1, matrix @ C, C)
        return matrix @ matrix, C, power // 2

    return lax.while_loop(lambda state: state[2] > 0, halve, (matrix, C, power))[1]


def coefficients_at(transition: Transition, initial: Belief, k: int) -> Float[Array, " q"]:
    """C_k for k >= 1 at a cost of log2(k) matrix products."""
    first = eqx.filter_jit(first_coefficients)(transition, initial)
    return _power_times(step_matrix(transition), first, jnp.asarray(k - 1))


@eqx.filter_jit
def belief_from(dynamics: Dynamics, coefficients: Float[Array, " q"]) -> ProductBelief:
    """The belief g h with these coefficients of h over the terms of psi."""
    h = dynamics.form(dynamics.psi, coefficients)
    return ProductBelief(g=dynamics.g, h=h, transform=dynamics.transform)


def one_later(dynamics: Dynamics, belief: Belief, u: Float[Array, " e"] | None) -> ProductBelief:
    """The belief after one step, which shares its factor g with the transition."""
    return ProductBelief(g=dynamics.g, h=_form_later(dynamics, belief, u), transform=dynamics.transform)


# Plain `jit`: all leaves are arrays, and a stream of readings feels what Equinox's filtering costs.
@jax.jit
def _form_later(dynamics: Dynamics, belief: Belief, u: Array | None) -> Form:
    return dynamics.form(dynamics.psi, first_coefficients(dynamics.at(u), belief))


def some_form(dynamics: Dynamics) -> Form:
    """A form over psi, for tables that read its terms and not its coefficients."""
    return dynamics.form(dynamics.psi, jnp.ones(dynamics.overlap.shape[1]))


class BeliefSequence(eqx.Module, Sequence):
    """Beliefs at steps 0, 1, ...; each is made when it is asked for."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def at(self, k: int | Array) -> Belief:
        """The belief at one step; a traced k is one after the first."""

    def ask(self, k: int | Array, query: str) -> Array:
        """What a method of the belief at one step says."""
        return getattr(self.at(k), query)()

    def means(self) -> Float[Array, "t d"]:
        """E[x_k] of every belief, by one program."""
        return _of_each(self, "mean")

    def covariances(self) -> Float[Array, "t d d"]:
        """The covariance of every belief, by one program."""
        return _of_each(self, "covariance")

    @overload
    def __getitem__(self, index: int) -> Belief: ...

    @overload
    def __getitem__(self, index: slice) -> list[Belief]: ...

    def __getitem__(self, index: int | slice) -> Belief | list[Belief]:
        """The belief at a step, or a list of them for a slice."""
        if isinstance(index, slice):
            return [self.at(k) for k in range(*index.indices(len(self)))]
        return self.at(range(len(self))[index])

    def __iter__(self) -> Iterator[Belief]:
        """From the first to the last step."""
        return (self.at(k) for k in range(len(self)))


@eqx.filter_jit
def _of_each(beliefs: BeliefSequence, query: str) -> Array:
    """What a method of each belief says; only the first may have a form of its own."""
    first = beliefs.ask(0, query)[None]
    return jnp.concatenate([first, lax.map(lambda k: beliefs.ask(k, query), jnp.arange(1, len(beliefs)))])


class Beliefs(BeliefSequence):
    """Beliefs at steps 0, 1, ..., K of a process from its start."""

    initial: Belief
    transition: Dynamics
    coefficients: Float[Array, "k q"]

    def __len__(self) -> int:
        """K + 1."""
        return self.coefficients.shape[0] + 1

    def at(self, k: int | Array) -> Belief:
        """The start, or the belief of the coefficients."""
        return self.initial if isinstance(k, int) and k == 0 else belief_from(self.transition, self.coefficients[k - 1])
