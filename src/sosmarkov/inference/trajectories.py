"""Whole trajectories: their likelihood (gaps integrated out), draws of them, and the Chapman-Kolmogorov check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.known import KnownState
from sosmarkov.core.checks import ArrayLike
from sosmarkov.data.given import as_list, padded, unbroken
from sosmarkov.factor.transition import Dynamics, Transition
from sosmarkov.inference.propagate import belief_from, propagate, row, run_from, some_form
from sosmarkov.inference.safety import Box, box_table
from sosmarkov.spaces.transforms import to_model

_BLOCK = 1024


def gather(trajectories: ArrayLike | Sequence[ArrayLike], dim: int) -> list[np.ndarray]:
    """Trajectories of shape (N, T, d), one of shape (T, d), or a list of them; whole rows of NaN are gaps."""
    found = list(as_list(trajectories))
    for one in found:
        if one.shape[1] != dim or len(one) == 0:
            raise ValueError(f"Expected trajectories of shape (T, {dim}), got {one.shape}.")
        if np.any(np.isinf(one)) or np.any(np.isnan(one).any(axis=1) != np.isnan(one).all(axis=1)):
            raise ValueError(
                "Expected finite states, or rows of NaN for gaps, got rows that are partly NaN or infinite."
                " For states known in part use `process.filter`."
            )
    return found


def log_likelihood(
    dynamics: Dynamics, initial: Belief, trajectories: list[np.ndarray], inputs: list[np.ndarray] | None = None
) -> Float[Array, " n"]:
    """log p of the states of each trajectory that are there: gaps of r steps by the r-step density."""
    total = np.zeros(len(trajectories))
    groups: dict[int, list[tuple[int, int]]] = {}
    for index, path in enumerate(trajectories):
        seen = np.flatnonzero(~np.isnan(path[:, 0]))
        for before, after in zip(seen[:-1], seen[1:], strict=True):
            groups.setdefault(int(after - before), []).append((index, int(before)))
    for gap, found in groups.items():
        x, x_next = (jnp.asarray([trajectories[i][k + ahead] for i, k in found]) for ahead in (0, gap))
        u = None if inputs is None else jnp.asarray([inputs[i][k : k + gap] for i, k in found])
        np.add.at(total, [index for index, _ in found], np.asarray(_after(dynamics, x, x_next, gap, u)))
    return jnp.asarray(total + _first_states(dynamics, initial, trajectories, inputs))


def _first_states(
    dynamics: Dynamics, initial: Belief, trajectories: list[np.ndarray], inputs: list[np.ndarray] | None
) -> np.ndarray:
    """Log-density of the first state that is there, at its own step."""
    found = np.zeros(len(trajectories))
    groups: dict[tuple[int, int], list[int]] = {}
    for index, path in enumerate(trajectories):
        seen = np.flatnonzero(~np.isnan(path[:, 0]))
        if len(seen):
            # Under inputs, every trajectory has a belief of its own after the first step.
            own = index if inputs is not None and seen[0] > 0 else -1
            groups.setdefault((int(seen[0]), own), []).append(index)
    for (k, own), indices in groups.items():
        states = np.array([trajectories[index][k] for index in indices])
        if k == 0 and isinstance(initial, KnownState):
            found[indices] = np.where(np.all(states == np.asarray(initial.state), axis=1), 0.0, -np.inf)
            continue
        u = None if own < 0 or inputs is None else jnp.asarray(inputs[own][:k])
        belief = initial if k == 0 else belief_from(dynamics, propagate(dynamics, initial, k, u)[-1])
        found[indices] = np.asarray(belief.log_prob(states))
    return found


@eqx.filter_jit
def _after(dynamics: Dynamics, x: Array, x_next: Array, gap: int, inputs: Float[Array, "n gap e"] | None) -> Array:
    """log p(x_next | x) over several steps, under the inputs of each pair."""
    y, _ = to_model(dynamics.transform, x)
    y_next, log_det = to_model(dynamics.transform, x_next)

    def one(pair: tuple[Array, Array, Array | None]) -> Array:
        y, y_next, u = pair
        first = dynamics.at(row(u, 0))
        if gap == 1:
            return first.log_prob_model(y_next, y)
        later = None if u is None else u[1:]
        C = run_from(dynamics, first.form_from(y).coefficients, gap, later)[-1]
        return belief_from(dynamics, C).log_prob_model(y_next)

    return lax.map(one, (y, y_next, inputs), batch_size=min(_BLOCK, len(y))) + log_det


def draw(
    dynamics: Dynamics, initial: Belief, key: PRNGKeyArray, count: int, steps: int, inputs: Array | None = None
) -> Float[Array, "n k d"]:
    """Independent trajectories x_0, ..., x_steps, shape (count, steps + 1, d)."""
    keys = jax.random.split(key, steps + 1)
    path = [initial.sample(keys[0], count)]
    for k, one in enumerate(keys[1:]):
        path.append(_under(dynamics, row(inputs, k)).sample(one, path[-1]))
    return jnp.stack(path, axis=1)


@eqx.filter_jit
def _under(dynamics: Dynamics, u: Array | None) -> Transition:
    return dynamics.at(u)


class ChapmanKolmogorov(NamedTuple):
    """Predicted and observed probabilities of going from one range of a coordinate to another.

    Attributes:
        steps: Shape (K,): 1, ..., K.
        edges: Ends of the ranges, shape (B + 1,), the first -inf and the last inf.
        predicted: P(x_(t+k) in range j | x_t as observed in range i), shape (K, B, B).
        observed: Shares in the data, shape (K, B, B).
        standard_error: Of the observed shares, shape (K, B, B), as if stretches that overlap were independent: too
            small where they are not.
        coordinate: Which coordinate.
    """

    steps: np.ndarray
    edges: np.ndarray
    predicted: np.ndarray
    observed: np.ndarray
    standard_error: np.ndarray
    coordinate: int


def ck_test(
    transition: Transition, trajectories: list[np.ndarray], steps: int, coordinate: int, ranges: int
) -> ChapmanKolmogorov:
    """Compare k-step predictions with data: starts as observed, so that only the dynamics are judged."""
    starts, later = _windows(trajectories, steps)
    if len(starts) < 10 * ranges:
        raise ValueError(f"Expected at least {10 * ranges} stretches of {steps} steps, got {len(starts)}.")
    inner = np.quantile(starts[:, coordinate], np.linspace(0, 1, ranges + 1)[1:-1])
    edges = np.concatenate([[-np.inf], inner, [np.inf]])
    where = np.searchsorted(inner, starts[:, coordinate])
    reached = np.searchsorted(inner, later[:, :, coordinate])
    functionals = _range_functionals(transition, edges, coordinate)
    shape = (steps, ranges, ranges)
    predicted, observed, error = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for i in range(ranges):
        chosen = where == i
        C = _mean_coefficients(transition, jnp.asarray(starts[chosen]))
        path = run_from(transition, C, steps)
        predicted[:, i] = np.asarray(path @ functionals.T)
        for j in range(ranges):
            share = np.mean(reached[chosen] == j, axis=0)
            observed[:, i, j] = share
            error[:, i, j] = np.sqrt(share * (1.0 - share) / np.sum(chosen))
    return ChapmanKolmogorov(np.arange(1, steps + 1), edges, predicted, observed, error, coordinate)


def _windows(trajectories: list[np.ndarray], steps: int) -> tuple[np.ndarray, np.ndarray]:
    """States that have `steps` states after them without a gap, and those."""
    states = padded(trajectories)
    i, k = unbroken(~np.any(np.isnan(states), axis=2), steps)
    return states[i, k], states[i[:, None], k[:, None] + np.arange(1, steps + 1)]


@eqx.filter_jit
def _mean_coefficients(transition: Transition, x: Array) -> Array:
    """The mean over states of C_1 from each."""
    y, _ = to_model(transition.transform, x)
    return jnp.mean(lax.map(lambda y: transition.form_from(y).coefficients, y, batch_size=min(_BLOCK, len(y))), axis=0)


def _range_functionals(transition: Transition, edges: np.ndarray, coordinate: int) -> Array:
    """For each range, v with P(x_c in the range) = v . C."""
    h = some_form(transition)
    found = []
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        ends = np.full((2, transition.dim), [[-np.inf], [np.inf]])
        ends[:, coordinate] = low, high
        box = Box(ends[0], ends[1], transition.dim)
        found.append(eqx.filter_jit(lambda t, b: t.g.coefficients @ box_table(t, h, b))(transition, box))
    return jnp.stack(found)
