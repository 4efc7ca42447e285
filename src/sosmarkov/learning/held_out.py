"""What is held out to judge forecasts by: blocks of time, or whole trajectories, never single rows.

A forecast starts from a known state and is scored by the density it gave to the states some steps later.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from sosmarkov.contracts.transition import AbstractTransition
from sosmarkov.data.dataset import Pairs

# Steps ahead at which forecasts are judged.
AHEAD = (1, 2, 4, 8)
# Blocks of one record, of so many pairs where it is short; trajectories from which on whole ones are held out; origins
# of forecasts at most, by the number of coordinates.
_BLOCKS, _LONG, _MANY, _ORIGINS = 20, 40, 20, (2000, 400, 128)
# Pairs below which every block is held out once, in five turns.
_FEW = 1500


class Fold(NamedTuple):
    """One way to hold something out.

    Attributes:
        training: Pairs to learn from, as rows.
        held_out: Pairs held out.
        origins: Pairs among these whose states forecasts start from.
        later: For each origin and number of steps the pair whose successor is scored, -1 where there is none, (M, K).
        between: For each origin the pairs it goes through, as far as the farthest, (M, max steps).
    """

    training: Int[np.ndarray, " n"]
    held_out: Int[np.ndarray, " m"]
    origins: Int[np.ndarray, " o"]
    later: Int[np.ndarray, "o k"]
    between: Int[np.ndarray, "o j"]


def folds(pairs: Pairs, seed: int = 0, ahead: tuple[int, ...] = AHEAD) -> list[Fold]:
    """The folds of some data: one, or five where there are few pairs."""
    count = len(pairs.x)
    follows = successors(pairs)
    groups = _groups(pairs, follows, seed)
    turns = range(5) if count < _FEW else range(1)
    found = []
    for turn in turns:
        held_out = groups % 5 == turn
        # A state at the edge of a block belongs to the held-out part on one side of it only.
        touched = held_out.copy()
        touched[follows[held_out & (follows >= 0)]] = True
        touched[np.flatnonzero(follows >= 0)[held_out[follows[follows >= 0]]]] = True
        rows = np.flatnonzero(held_out)
        if len(rows) == 0 or len(rows) == count:
            continue
        origins = rows[:: max(1, len(rows) // _most_origins(pairs))]
        found.append(Fold(np.flatnonzero(~touched), rows, *_forecasts(origins, held_out, follows, ahead)))
    return found


def all_of(pairs: Pairs) -> Fold:
    """Forecasts within pairs that are held out as a whole."""
    rows = np.arange(len(pairs.x))
    held_out = np.ones(len(rows), dtype=bool)
    origins = rows[:: max(1, len(rows) // _most_origins(pairs))]
    return Fold(rows[:0], rows, *_forecasts(origins, held_out, successors(pairs), AHEAD))


def _most_origins(pairs: Pairs) -> int:
    """A forecast costs more where there are more coordinates."""
    return _ORIGINS[min(pairs.x.shape[1], len(_ORIGINS)) - 1]


def successors(pairs: Pairs) -> Int[np.ndarray, " n"]:
    """The pair that begins where each pair ends, -1 where there is none or more than one."""
    count = len(pairs.x)
    both = np.ascontiguousarray(np.concatenate([pairs.x, pairs.x_next]) + 0.0)
    keys = both.view(np.dtype((np.void, both.dtype.itemsize * both.shape[1]))).ravel()
    _, number = np.unique(keys, return_inverse=True)
    number = number.ravel()
    if pairs.u is None and len(np.unique(pairs.owner)) < count:
        # States that repeat, as rounded readings do, are told apart by their trajectory and by coming next in it.
        follows = np.arange(1, count + 1)
        follows[-1] = -1
        same = np.append(number[1:count] == number[count : 2 * count - 1], False)
        same[:-1] &= pairs.owner[1:] == pairs.owner[:-1]
        if np.mean(same) > 0.5:
            return np.where(same, follows, -1)
    first = np.full(number.max() + 1, -1)
    times = np.bincount(number[:count], minlength=len(first))
    first[number[:count]] = np.arange(count)
    found = first[number[count:]]
    return np.where((found >= 0) & (times[number[count:]] == 1), found, -1)


def _groups(pairs: Pairs, follows: np.ndarray, seed: int) -> Int[np.ndarray, " n"]:
    """The block or trajectory of each pair, numbered so that each fifth of the numbers is a fair part."""
    owners = np.unique(pairs.owner)
    whole = len(owners) >= _MANY and len(owners) < len(pairs.x)
    if whole:
        shuffled = np.random.default_rng(seed).permutation(len(owners))
        return shuffled[np.searchsorted(owners, pairs.owner)]
    if np.mean(follows >= 0) < 0.2:
        # Pairs that have nothing to do with each other: any are as good as a block.
        return np.random.default_rng(seed).permutation(len(pairs.x))
    blocks = int(np.clip(len(pairs.x) // _LONG, 5, _BLOCKS))
    return np.arange(len(pairs.x)) * blocks // len(pairs.x) + seed % 5


def _forecasts(
    origins: np.ndarray, held_out: Bool[np.ndarray, " n"], follows: np.ndarray, ahead: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Origins, and for each the pairs so many steps on, as far as they are held out as well."""
    between = np.full((len(origins), max(ahead)), -1)
    between[:, 0] = origins
    for k in range(1, max(ahead)):
        now = between[:, k - 1]
        on = np.where(now >= 0, follows[now], -1)
        between[:, k] = np.where((on >= 0) & held_out[on], on, -1)
    return origins, between[:, np.array(ahead) - 1], between


def forecast_scores(transition: AbstractTransition, pairs: Any, fold: Fold) -> Float[np.ndarray, "o k"]:
    """log p(x_k | x_0) at each origin and number of steps, whatever the form; NaN where there is no later state.

    Args:
        transition: Learned from the fold's training pairs.
        pairs: All pairs, with fields `x`, `x_next` and `u`.
        fold: What is held out.
    """
    found = np.full(fold.later.shape, np.nan)
    for column, gap in enumerate(AHEAD[: found.shape[1]]):
        there = fold.later[:, column] >= 0
        if not np.any(there):
            continue
        origins, later = fold.origins[there], fold.later[there, column]
        inputs = None if pairs.u is None else pairs.u[fold.between[there, :gap]]
        scores = transition.log_prob_later(pairs.x_next[later], pairs.x[origins], gap, inputs)
        found[there, column] = np.asarray(scores)
    return found


def mean_score(scores: Float[np.ndarray, "o k"]) -> float:
    """The mean over numbers of steps of the mean over origins; NaN stands for what there is not."""
    there = ~np.all(np.isnan(scores), axis=0)
    return float(np.mean(np.nanmean(scores[:, there], axis=0)))
