"""The long run: the stationary belief, spectrum and relaxation times, mixing, correlation in time."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.transition import AbstractTransition, Numbers
from sosmarkov.inference.propagate import coefficients_at, first_coefficients, step_matrix
from sosmarkov.inference.recursion import program, run

# Steps beyond which a process is said not to mix.
_LONGEST = 2**60


@program
def mass_vector(transition: AbstractTransition) -> Float[Array, " q"]:
    """v with mass v . C."""
    return transition.mass_vector()


def stationary_coefficients(transition: AbstractTransition, start: Belief) -> Numbers:
    """C with step(C) = C and mass one: (I - S + u v^T) C = u, where v . u = 1."""
    if transition.long_run is not None:
        return transition.long_run.fixed(start)
    S, v = np.asarray(step_matrix(transition)), np.asarray(mass_vector(transition))
    u = np.asarray(first_coefficients(transition, start))
    system = np.eye(len(v)) - S + np.outer(u, v)
    found = np.linalg.solve(system, u)
    if not (np.all(np.isfinite(found)) and np.linalg.cond(system) < 1e14):
        raise ValueError(
            "Expected a process with one stationary belief, got one that falls apart into parts that do not"
            " communicate (an eigenvalue one more than once). See process.spectrum()."
        )
    return _polish(transition, jnp.asarray(found))


@program
def _polish(transition: AbstractTransition, C: Array) -> Array:
    """Two more steps: what rounding left is of size 1e-16, and each step makes the matrix a sum of squares again."""
    for _ in range(2):
        C = transition.push(transition.message(C))
    return C / (transition.mass_vector() @ C)


def spectrum(transition: AbstractTransition) -> np.ndarray:
    """Eigenvalues of the map C_k -> C_(k+1), the largest first; the first is one."""
    if transition.long_run is not None:
        return transition.long_run.spectrum()
    values = np.linalg.eigvals(np.asarray(step_matrix(transition)))
    return values[np.argsort(-np.abs(values))]


def mixing_time(transition: AbstractTransition, start: Belief, tolerance: float) -> int:
    """The first k at which the belief is within a total-variation bound of the stationary one.

    The bound never grows with k (the step is positive and keeps mass), so the first k is found by bisection.
    """
    target = stationary_coefficients(transition, start)

    def far(k: int) -> bool:
        C = coefficients_at(transition, start, k)
        own = transition.long_run
        return (transition.distance(C - target) if own is None else own.distance(C, target)) > tolerance

    if not far(1):
        return 1
    high = 2
    while far(high):
        high *= 2
        if high > _LONGEST:
            raise ValueError(
                f"Expected a tolerance that the process reaches, got {tolerance}: after {_LONGEST} steps it is still"
                " farther from its stationary belief than that."
            )
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if far(middle) else (low, middle)
    return high


@program
def autocorrelation(
    transition: AbstractTransition, stationary: Numbers, coordinate: int, steps: int, variance: Any
) -> Float[Any, " k"]:
    """Corr(x_c at 0, x_c at k) for k = 0, ..., steps, under the stationary belief."""
    if transition.long_run is not None:
        return transition.long_run.correlations(stationary, coordinate, steps)
    weighed = transition.coordinate(coordinate)
    mean = weighed.shares(stationary)
    later = run(transition, transition.push(weighed(stationary)), steps)
    covariances = weighed.shares(later) - mean**2
    return jnp.concatenate([jnp.ones(1), covariances / variance])
