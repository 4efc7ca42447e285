"""The long run: the stationary belief, spectrum and relaxation times, mixing, correlation in time."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.core.numerics import unpack, unpack_coefficients
from sosmarkov.factor.forms import LinearForm
from sosmarkov.factor.transition import Transition
from sosmarkov.inference.propagate import coefficients_at, first_coefficients, run_from, step, step_matrix

# Steps beyond which a process is said not to mix.
_LONGEST = 2**60


@eqx.filter_jit
def mass_vector(transition: Transition) -> Float[Array, " q"]:
    """v with mass v . C."""
    return transition.g.coefficients @ transition.overlap


def stationary_coefficients(transition: Transition, start: Belief) -> Float[Array, " q"]:
    """C with step(C) = C and mass one: (I - S + u v^T) C = u, where v . u = 1."""
    S, v = np.asarray(step_matrix(transition)), np.asarray(mass_vector(transition))
    u = np.asarray(eqx.filter_jit(first_coefficients)(transition, start))
    system = np.eye(len(v)) - S + np.outer(u, v)
    found = np.linalg.solve(system, u)
    if not (np.all(np.isfinite(found)) and np.linalg.cond(system) < 1e14):
        raise ValueError(
            "Expected a process with one stationary belief, got one that falls apart into parts that do not"
            " communicate (an eigenvalue one more than once). See process.spectrum()."
        )
    return _polish(transition, jnp.asarray(found))


@eqx.filter_jit
def _polish(transition: Transition, C: Array) -> Array:
    """Two more steps: what rounding left is of size 1e-16, and each step makes the matrix a sum of squares again."""
    for _ in range(2):
        C = step(transition, C)
    return C / (mass_vector(transition) @ C)


def spectrum(transition: Transition) -> np.ndarray:
    """Eigenvalues of the map C_k -> C_(k+1), the largest first; the first is one."""
    values = np.linalg.eigvals(np.asarray(step_matrix(transition)))
    return values[np.argsort(-np.abs(values))]


def timescales(transition: Transition, count: int) -> np.ndarray:
    """-1 / log|lambda_i| for i = 2, ..., count + 1, in steps."""
    values = spectrum(transition)[1 : count + 1]
    if len(values) < count:
        raise ValueError(f"Expected a count of at most {len(values)} for this process, got {count}.")
    size = np.abs(values)
    with np.errstate(divide="ignore"):
        return np.where(size > 0, -1.0 / np.log(size), 0.0)


def total_variation_bound(transition: Transition, difference: Array) -> float:
    """A bound on 1/2 int |p - q| from the difference D of two coefficients.

    With D = D+ - D- of positive semi-definite parts, int g |psi^T D psi| <= tr(|D| M), M = int g psi psi^T, the
    absolute value taken where M is the identity: the trace distance of quantum states.
    """
    v = np.asarray(mass_vector(transition))
    if isinstance(transition.g, LinearForm):
        return float(0.5 * np.sum(np.abs(np.asarray(difference)) * v))
    m = transition.psi.size
    values, vectors = np.linalg.eigh(np.asarray(unpack(jnp.asarray(v), m)))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    D = np.asarray(unpack_coefficients(jnp.asarray(difference), m))
    return float(0.5 * np.sum(np.abs(np.linalg.eigvalsh(root.T @ D @ root))))


def mixing_time(transition: Transition, start: Belief, tolerance: float) -> int:
    """The first k at which the belief is within a total-variation bound of the stationary one.

    The bound never grows with k (the step is positive and keeps mass), so the first k is found by bisection.
    """
    target = stationary_coefficients(transition, start)

    def far(k: int) -> bool:
        return total_variation_bound(transition, coefficients_at(transition, start, k) - target) > tolerance

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


@eqx.filter_jit
def coordinate_table(transition: Transition, coordinate: int) -> Float[Array, "p q"]:
    """int x_c times phi's term p times psi's term q, x in data space."""
    matrix, offset, inner = transition.transform.split()
    order = transition.kernel.order
    left, right = transition.phi.terms(order), transition.psi.terms(order)
    total = offset[coordinate] * transition.overlap
    reached = [coordinate] if transition.transform.coordinatewise else range(transition.dim)
    for e in reached:
        total = total + matrix[coordinate, e] * transition.phi.power_table(left, right, e, inner)
    return total


@eqx.filter_jit
def autocorrelation(transition: Transition, stationary: Array, coordinate: int, steps: int, variance: Array) -> Array:
    """Corr(x_c at 0, x_c at k) for k = 0, ..., steps, under the stationary belief."""
    table = coordinate_table(transition, coordinate)
    weighed = table @ stationary
    mean_of = transition.g.coefficients @ table
    mean = mean_of @ stationary
    later = run_from(transition, transition.kernel.push(weighed), steps)
    covariances = later @ mean_of - mean**2
    return jnp.concatenate([jnp.ones(1), covariances / variance])
