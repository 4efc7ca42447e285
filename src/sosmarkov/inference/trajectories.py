"""Whole trajectories: their likelihood (gaps integrated out), draws of them, and the Chapman-Kolmogorov check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.transition import AbstractTransition, Numbers
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.draws import split
from sosmarkov.core.numerics import library
from sosmarkov.data.given import as_list, padded, unbroken
from sosmarkov.inference.propagate import propagate
from sosmarkov.inference.recursion import program, row, run


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
    transition: AbstractTransition,
    initial: Belief,
    trajectories: list[np.ndarray],
    inputs: list[np.ndarray] | None = None,
) -> Float[Any, " n"]:
    """log p of the states of each trajectory that are there: gaps of r steps by the r-step density."""
    # On to the device where the form of process computes there, and stays where it is for others.
    as_array = jnp.asarray if transition.compiled else np.asarray
    total = np.zeros(len(trajectories))
    groups: dict[int, list[tuple[int, int]]] = {}
    for index, path in enumerate(trajectories):
        seen = np.flatnonzero(~np.isnan(path[:, 0]))
        for before, after in zip(seen[:-1], seen[1:], strict=True):
            groups.setdefault(int(after - before), []).append((index, int(before)))
    for gap, found in groups.items():
        x, x_next = (as_array([trajectories[i][k + ahead] for i, k in found]) for ahead in (0, gap))
        u = None if inputs is None else as_array([inputs[i][k : k + gap] for i, k in found])
        np.add.at(total, [index for index, _ in found], np.asarray(transition.log_prob_later(x_next, x, gap, u)))
    return as_array(total + _first_states(transition, initial, trajectories, inputs))


def _first_states(
    transition: AbstractTransition, initial: Belief, trajectories: list[np.ndarray], inputs: list[np.ndarray] | None
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
        if k == 0:
            found[indices] = np.asarray(initial.log_seen(states))
            continue
        u = None if own < 0 or inputs is None else jnp.asarray(inputs[own][:k])
        C = propagate(transition, initial, k, u)
        belief = transition.belief(jax.tree.map(lambda leaf: leaf[-1], C))
        found[indices] = np.asarray(belief.log_prob(states))
    return found


def draw(
    transition: AbstractTransition,
    initial: Belief,
    key: PRNGKeyArray | Any,
    count: int,
    steps: int,
    inputs: Array | None = None,
) -> Float[Any, "n k d"]:
    """Independent trajectories x_0, ..., x_steps, shape (count, steps + 1, d)."""
    keys = split(key, steps + 1)
    path = [initial.sample(keys[0], count)]
    for k, one in enumerate(keys[1:]):
        path.append(_under(transition, row(inputs, k)).sample(one, path[-1]))
    return library(*path[1:] or path).stack(path, axis=1)


@program
def _under(transition: AbstractTransition, u: Array | None) -> AbstractTransition:
    return transition.at(u)


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
    transition: AbstractTransition, trajectories: list[np.ndarray], steps: int, coordinate: int, ranges: int
) -> ChapmanKolmogorov:
    """Compare k-step predictions with data: starts as observed, so that only the dynamics are judged."""
    starts, later = _windows(trajectories, steps)
    if len(starts) < 10 * ranges:
        raise ValueError(f"Expected at least {10 * ranges} stretches of {steps} steps, got {len(starts)}.")
    inner = np.quantile(starts[:, coordinate], np.linspace(0, 1, ranges + 1)[1:-1])
    edges = np.concatenate([[-np.inf], inner, [np.inf]])
    where = np.searchsorted(inner, starts[:, coordinate])
    reached = np.searchsorted(inner, later[:, :, coordinate])
    boxes = [_range(transition, *ends, coordinate) for ends in zip(edges[:-1], edges[1:], strict=True)]
    shape = (steps, ranges, ranges)
    predicted, observed, error = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for i in range(ranges):
        chosen = where == i
        path = run(transition, transition.mean_push(jnp.asarray(starts[chosen])), steps)
        predicted[:, i] = np.stack([np.asarray(_shares(transition, box, path)) for box in boxes], axis=-1)
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


def _range(transition: AbstractTransition, low: float, high: float, coordinate: int) -> Any:
    """The box of a range of one coordinate."""
    ends = np.full((2, transition.dim), [[-np.inf], [np.inf]])
    ends[:, coordinate] = low, high
    return transition.box(*ends)


@program
def _shares(transition: AbstractTransition, box: Any, C: Numbers) -> Any:
    return transition.window(box).shares(C)
