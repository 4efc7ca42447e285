"""Belief propagation: one linear map on the coefficients of a belief, applied any number of times."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.transition import AbstractTransition, Numbers
from sosmarkov.inference.recursion import program, run_from


@program
def first_coefficients(transition: AbstractTransition, initial: Belief, u: Float[Array, " e"] | None = None) -> Numbers:
    """C_1 of a start."""
    return transition.push(transition.enter(initial), u)


# C_1, ..., C_steps by one scan; under inputs, one a step.
propagate = program(run_from)


@program
def step_matrix(transition: AbstractTransition) -> Float[Array, "q q"]:
    """The map C_k -> C_(k+1) as a matrix."""
    return transition.step_matrix()


@eqx.filter_jit
def _power_times(matrix: Array, C: Array, power: Array) -> Array:
    """matrix^power C by repeated squaring."""

    def halve(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        matrix, C, power = state
        C = jnp.where(power % 2 == 1, matrix @ C, C)
        return matrix @ matrix, C, power // 2

    return lax.while_loop(lambda state: state[2] > 0, halve, (matrix, C, power))[1]


def coefficients_at(transition: AbstractTransition, initial: Belief, k: int) -> Numbers:
    """C_k for k >= 1 at a cost of log2(k) matrix products."""
    if transition.long_run is not None:
        return transition.long_run.far(initial, k)
    first = first_coefficients(transition, initial)
    return _power_times(step_matrix(transition), first, jnp.asarray(k - 1))
