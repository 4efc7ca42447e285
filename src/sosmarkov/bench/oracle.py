"""What no prediction can beat: log p(x_k) of test states under the true dynamics."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from sosmarkov.bench.systems.base import System

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
