"""Questions the tests share, each one program a family, coupling and dimension.

Compilation is nearly all that a test costs here: points come in batches of one length, so that every test that
asks about the same kind of object runs the same program.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sosmarkov as sm

BATCH = 10_000


@eqx.filter_jit
def ask(parts: tuple, x_next: jax.Array, x: jax.Array) -> tuple[sm.Transition, jax.Array, jax.Array]:
    """A transition, its mass at x, its log-density of x_next given x."""
    transition = sm.Transition(*parts)
    return transition, transition.mass(x), transition.log_prob(x_next, x)


def log_prob(parts: tuple, x_next: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Log p(x_next | x) for any number of pairs, leading axes broadcast, in full batches."""
    x_next, x = np.broadcast_arrays(x_next, x)
    flat = [points.reshape(-1, points.shape[-1]) for points in (x_next, x)]
    count = len(flat[0])
    found = []
    for begin in range(0, count, BATCH):
        # The last batch is filled up with points that have been asked about before.
        rows = np.arange(begin, begin + BATCH) % count
        found.append(np.asarray(ask(parts, *(jnp.asarray(points[rows]) for points in flat))[2]))
    return np.concatenate(found)[:count].reshape(x.shape[:-1])
