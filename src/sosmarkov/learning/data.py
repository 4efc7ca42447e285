"""Trajectories and transition pairs, checked and split by trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from sosmarkov.checks import ArrayLike
from sosmarkov.transforms import Standardize, Transform, to_model


class Data(NamedTuple):
    """What `fit` was given, in data space, as plain arrays.

    Attributes:
        x: States with a successor, shape (N, d).
        x_next: Their successors, shape (N, d).
        owner: The trajectory each pair belongs to, shape (N,).
        initial: Initial states, shape (N0, d).
        trajectories: Whole trajectories of one length without gaps, shape (M, T, d); M may be zero.
    """

    x: np.ndarray
    x_next: np.ndarray
    owner: np.ndarray
    initial: np.ndarray
    trajectories: np.ndarray

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.x.shape[1]


def from_trajectories(trajectories: ArrayLike | Sequence[ArrayLike]) -> Data:
    """Pairs, initial states and whole trajectories from (N, T, d) or from a list of (T_i, d).

    A row with a NaN is a gap: no pair crosses it, and none crosses from one trajectory to the next.
    """
    parts = _as_list(trajectories)
    dim = parts[0].shape[1]
    pairs, owners, initial, whole = [], [], [], []
    for index, part in enumerate(parts):
        if part.shape[1] != dim:
            raise ValueError(
                f"Expected trajectories with {dim} coordinates like the first, got {part.shape[1]} in number {index}."
            )
        if np.any(np.isinf(part)):
            raise ValueError(f"Expected finite states (NaN rows are gaps), got infinite ones in trajectory {index}.")
        present = ~np.any(np.isnan(part), axis=1)
        both = present[:-1] & present[1:]
        pairs.append(np.stack([part[:-1][both], part[1:][both]], axis=1))
        owners.append(np.full(int(both.sum()), index))
        if present[0]:
            initial.append(part[0])
        if present.all():
            whole.append(part)
    joined = np.concatenate(pairs)
    if len(joined) == 0:
        raise ValueError("Expected at least one pair of consecutive states, got none (all gaps, or length one).")
    lengths = [len(part) for part in whole]
    equal = bool(lengths) and len(set(lengths)) == 1 and lengths[0] > 1
    return Data(
        joined[:, 0],
        joined[:, 1],
        np.concatenate(owners),
        np.array(initial).reshape(-1, dim),
        np.stack(whole) if equal else np.zeros((0, 2, dim)),
    )


def from_pairs(x: ArrayLike, x_next: ArrayLike, initial: ArrayLike) -> Data:
    """Independent transition pairs and initial states; a pair with a NaN is dropped from neither: it is refused."""
    x, x_next, initial = (
        _matrix(a, name) for a, name in ((x, "transitions[0]"), (x_next, "transitions[1]"), (initial, "initial"))
    )
    if x.shape != x_next.shape:
        raise ValueError(f"Expected as many x as x_next, got {x.shape} and {x_next.shape}.")
    if initial.shape[1] != x.shape[1]:
        raise ValueError(f"Expected initial states with {x.shape[1]} coordinates, got {initial.shape[1]}.")
    return Data(x, x_next, np.arange(len(x)), initial, np.zeros((0, 2, x.shape[1])))


def require_enough(data: Data, least: int) -> None:
    """Refuse too little data, and coordinates that never vary."""
    if len(data.x) < least or len(data.initial) < 2:
        raise ValueError(
            f"Expected at least {least} transitions and two initial states to learn from,"
            f" got {len(data.x)} and {len(data.initial)}."
        )
    constant = np.flatnonzero(np.ptp(np.concatenate([data.x, data.x_next]), axis=0) == 0)
    if constant.size:
        raise ValueError(f"Expected coordinates that vary, got constant ones {constant.tolist()}. Drop them first.")


# A standard deviation this many times the one the quartiles suggest is made by a few extreme states.
_CONTAMINATED = 5.0
_EXTREME = 100.0


def robust_standardize(x: np.ndarray) -> Standardize:
    """Mean and standard deviation per coordinate; median and quartiles where extremes dwarf the rest."""
    low, median, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
    spread = (high - low) / 1.349  # the quartiles of a normal are 1.349 standard deviations apart
    std = np.std(x, axis=0)
    contaminated = (spread > 0) & ~(std < _CONTAMINATED * spread)
    mean = np.where(contaminated, median, np.mean(x, axis=0))
    return Standardize(mean, np.where(contaminated, spread, std))


def set_aside_extremes(data: Data, transform: Transform) -> tuple[Data, int]:
    """Without the pairs, starts and trajectories that reach beyond 100 deviations, and how many pairs those were.

    A simulation that blew up says nothing about the dynamics one can learn, and its likelihood has no useful
    gradient. Nothing is dropped from what is later scored.
    """

    def usable(x: np.ndarray) -> np.ndarray:
        y, _ = to_model(transform, jnp.asarray(x.reshape(-1, x.shape[-1])))
        inside = np.all(np.abs(np.asarray(y)) <= _EXTREME, axis=-1)
        return inside.reshape(x.shape[:-1])

    pair = usable(data.x) & usable(data.x_next)
    start, whole = usable(data.initial), usable(data.trajectories).all(axis=1)
    kept = Data(data.x[pair], data.x_next[pair], data.owner[pair], data.initial[start], data.trajectories[whole])
    return kept, int((~pair).sum())


def split(data: Data, share: float, seed: int) -> tuple[Data, Data]:
    """Training and held-out parts; a trajectory goes to one of them whole."""
    rng = np.random.default_rng(seed)

    def held_out(count: int) -> np.ndarray:
        chosen = np.zeros(count, dtype=bool)
        chosen[rng.permutation(count)[: round(share * count)]] = True
        return chosen

    owners = held_out(int(data.owner.max()) + 1)
    pair = owners[data.owner]
    # With whole trajectories the initial states are theirs; otherwise they are drawn on their own.
    start = owners if len(data.initial) == len(owners) else held_out(len(data.initial))
    whole = owners if len(data.trajectories) == len(owners) else held_out(len(data.trajectories))
    return tuple(
        Data(data.x[p], data.x_next[p], data.owner[p], data.initial[s], data.trajectories[w])
        for p, s, w in ((~pair, ~start, ~whole), (pair, start, whole))
    )  # type: ignore[return-value]


def _matrix(x: ArrayLike, name: str) -> np.ndarray:
    try:
        array = np.asarray(x, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Expected numbers for {name}, got {type(x).__name__}: {error}.") from error
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"Expected {name} of shape (N, d), got {array.shape}.")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"Expected finite numbers for {name}, got NaN or infinite ones. Remove them first.")
    return array


def _as_list(trajectories: ArrayLike | Sequence[ArrayLike]) -> list[np.ndarray]:
    if isinstance(trajectories, (list, tuple)) and trajectories and np.ndim(trajectories[0]) == 2:
        parts = [np.asarray(part, dtype=float) for part in trajectories]
    else:
        try:
            array = np.asarray(trajectories, dtype=float)
        except (TypeError, ValueError) as error:
            raise ValueError(
                "Expected trajectories as an array (N, T, d) or a list of arrays (T_i, d), got"
                f" {type(trajectories).__name__}: {error}."
            ) from error
        if array.ndim != 3:
            raise ValueError(
                "Expected trajectories as an array (N, T, d) or a list of arrays (T_i, d), got an array of shape"
                f" {array.shape}."
            )
        parts = list(array)
    if not parts:
        raise ValueError("Expected at least one trajectory, got none.")
    for index, part in enumerate(parts):
        if part.ndim != 2 or part.shape[1] == 0:
            raise ValueError(f"Expected trajectory {index} of shape (T, d), got {part.shape}.")
    return parts
