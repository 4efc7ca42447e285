"""What no prediction can beat: log p(x_k) of test states under the true dynamics."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import PRNGKeyArray

from sosmarkov_bench.systems.base import System

_AT_ONCE = 64


class Limit(NamedTuple):
    """Mean log p(x_k) of test states, between two estimates, for k = 1, ..., K.

    Attributes:
        lower: By averaging the true kernel over independent predecessors: too low where few of them matter.
        upper: With the test state's own predecessor among them: too high by about as much.
        error: Standard error over the test states.
    """

    lower: np.ndarray
    upper: np.ndarray
    error: np.ndarray


def limit(system: System, test: np.ndarray, predecessors: np.ndarray) -> Limit:
    """The mean of log p(x_k) = log E[p(x_k | x_(k-1))], over independent trajectories.

    Args:
        system: With a transition density.
        test: Trajectories to score, shape (N, K + 1, d).
        predecessors: Independent trajectories, shape (M, K + 1, d).
    """
    count = predecessors.shape[0]
    lower, upper, error = [], [], []
    for k in range(1, test.shape[1]):
        others = jnp.asarray(predecessors[:, k - 1])
        low, own = (np.asarray(v) for v in _log_mean(system, jnp.asarray(test[:, k - 1 : k + 1]), others))
        high = np.logaddexp(low + np.log(count), own) - np.log(count + 1)
        lower.append(low.mean())
        upper.append(high.mean())
        error.append(low.std() / np.sqrt(len(low)))
    return Limit(np.array(lower), np.array(upper), np.array(error))


@partial(jax.jit, static_argnames="system")
def _log_mean(system: System, steps: Array, others: Array) -> tuple[Array, Array]:
    def one(step: Array) -> tuple[Array, Array]:
        before, after = step
        values = jax.vmap(lambda x: system.log_transition(after, x))(others)
        return jax.nn.logsumexp(values) - jnp.log(len(others)), system.log_transition(after, before)

    return lax.map(one, steps, batch_size=_AT_ONCE)


def twisted_limit(
    system: System, test: np.ndarray, predecessors: np.ndarray, key: PRNGKeyArray, particles: int = 200
) -> Limit:
    """The same by particles that walk backward from each test state, where few independent predecessors matter.

    With g_j the normal of the simulated states at j (g_0 = p_0, as it is) and q_j(x_j | x_(j+1)) the regression of
    them, drawing x_j ~ q_j and weighting by w_j = p(x_(j+1) | x_j) g_j(x_j) / (q_j(x_j | x_(j+1)) g_(j+1)(x_(j+1)))
    gives p(x_k) = g_k(x_k) E[w_(k-1) ... w_0]; between steps particles are resampled. All weights are one where the
    system is linear and Gaussian. The logarithm of the estimate is too low in the mean; with the test state's own
    past as one of the particles, never lost in resampling, it is too high: 1 / p(x_k) is then what is estimated
    without bias.

    Args:
        system: With a transition density.
        test: Trajectories to score, shape (N, K + 1, d); their own past gives the upper estimate.
        predecessors: Independent trajectories, shape (M, K + 1, d), to take g and q from.
        key: Of the draws.
        particles: How many a test state.
    """
    normals = _backward_normals(predecessors)
    lower, upper, error = [], [], []
    for k in range(1, test.shape[1]):
        steps = jnp.asarray(test[:, : k + 1])
        # Padded to one length, so that every k runs the same program.
        past = jnp.concatenate([steps, jnp.repeat(steps[:, -1:], test.shape[1] - 1 - k, axis=1)], axis=1)
        keys = jax.random.split(jax.random.fold_in(key, k), len(past))
        found = _walk_back(system, normals, past, keys, jnp.asarray(k), particles)
        low, high = (np.asarray(part) for part in found)
        lower.append(low.mean())
        upper.append(high.mean())
        error.append(low.std() / np.sqrt(len(low)))
    return Limit(np.array(lower), np.array(upper), np.array(error))


class _Normals(NamedTuple):
    """For j = 0, ..., K: means and factors of g_j, and x_j = mean_j + gain_j (x_(j+1) - mean_(j+1)) + spread_j z."""

    mean: Array
    factor: Array
    gain: Array
    spread: Array


def _backward_normals(x: np.ndarray) -> _Normals:
    mean = x.mean(axis=0)
    centred = np.swapaxes(x - mean, 0, 1)
    covariance = np.swapaxes(centred, 1, 2) @ centred / len(x)
    cross = np.swapaxes(centred[:-1], 1, 2) @ centred[1:] / len(x)
    gain = np.swapaxes(np.linalg.solve(covariance[1:], np.swapaxes(cross, 1, 2)), 1, 2)
    left = covariance[:-1] - gain @ np.swapaxes(cross, 1, 2)
    factors = np.linalg.cholesky(covariance), np.linalg.cholesky(left)
    return _Normals(jnp.asarray(mean), jnp.asarray(factors[0]), jnp.asarray(gain), jnp.asarray(factors[1]))


def _log_normal(away: Array, factor: Array) -> Array:
    z = solve_triangular(factor, away, lower=True)
    return -0.5 * jnp.sum(z**2) - jnp.sum(jnp.log(jnp.diag(factor))) - 0.5 * len(away) * np.log(2.0 * np.pi)


@partial(jax.jit, static_argnames=("system", "particles"))
def _walk_back(
    system: System, normals: _Normals, past: Array, keys: Array, k: Array, particles: int
) -> tuple[Array, Array]:
    """log p(x_k) of each of the test states past[:, k]: too low, and too high."""

    def log_g(j: Array, x: Array) -> Array:
        fitted = _log_normal(x - normals.mean[j], normals.factor[j])
        return jnp.where(j == 0, system.initial_log_prob(x), fitted)

    def weigh(j: Array, x: Array, after: Array) -> Array:
        expected = normals.mean[j] + normals.gain[j] @ (after - normals.mean[j + 1])
        proposed = _log_normal(x - expected, normals.spread[j])
        return system.log_transition(after, x) + log_g(j, x) - proposed - log_g(j + 1, after)

    def one(both: tuple[Array, Array], own: bool) -> Array:
        path, key = both

        def back(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            after, total = state
            j = k - 1 - i
            draw, pick = jax.random.split(jax.random.fold_in(key, i))
            z = jax.random.normal(draw, after.shape)
            expected = normals.mean[j][None] + (after - normals.mean[j + 1][None]) @ normals.gain[j].T
            x = expected + z @ normals.spread[j].T
            x = x.at[0].set(path[j]) if own else x
            log_w = jax.vmap(partial(weigh, j))(x, after)
            # By the inverse distribution function: a draw costs log(particles), not as many numbers as there are.
            edges = jnp.cumsum(jax.nn.softmax(log_w))
            u = edges[-1] * jax.random.uniform(pick, (particles,))
            chosen = jnp.minimum(jnp.searchsorted(edges, u, side="right"), particles - 1)
            chosen = chosen.at[0].set(0) if own else chosen
            return x[chosen], total + jax.nn.logsumexp(log_w) - jnp.log(particles)

        start = jnp.broadcast_to(path[k], (particles, path.shape[1]))
        return lax.fori_loop(0, k, back, (start, log_g(k, path[k])))[1]

    low = lax.map(partial(one, own=False), (past, keys), batch_size=_AT_ONCE)
    high = lax.map(partial(one, own=True), (past, keys), batch_size=_AT_ONCE)
    return low, high
