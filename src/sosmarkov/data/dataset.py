"""Trajectories and transition pairs, checked, weighted, and split by trajectory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sosmarkov.core.checks import ArrayLike
from sosmarkov.spaces.transforms import Standardize, Transform, rows_to_model


class Data(NamedTuple):
    """What `fit` was given, as plain arrays.

    Attributes:
        x: States with a successor, shape (N, d).
        x_next: Their successors, shape (N, d).
        weight: Weight of each pair, shape (N,).
        owner: The trajectory each pair belongs to, shape (N,).
        initial: Initial states, shape (N0, d).
        initial_weight: Their weights, shape (N0,).
        initial_owner: The trajectory each belongs to, shape (N0,).
        trajectories: Shape (M, T, d), missing states as zeros; M is zero where pairs were given.
        present: Weight of each state of a trajectory, zero where it is missing, shape (M, T).
        u: Input of each pair, shape (N, e); None where there are no inputs.
        inputs: Input of each step of a trajectory, shape (M, T - 1, e), zero where it leads to no pair; or None.
    """

    x: np.ndarray
    x_next: np.ndarray
    weight: np.ndarray
    owner: np.ndarray
    initial: np.ndarray
    initial_weight: np.ndarray
    initial_owner: np.ndarray
    trajectories: np.ndarray
    present: np.ndarray
    u: np.ndarray | None = None
    inputs: np.ndarray | None = None

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.x.shape[1]

    @property
    def states(self) -> np.ndarray:
        """All states with their repetitions, for scales."""
        return np.concatenate([self.x, self.x_next, self.initial])

    @property
    def horizon(self) -> int:
        """Transitions in the longest trajectory."""
        return self.trajectories.shape[1] - 1


def from_trajectories(
    trajectories: ArrayLike | Sequence[ArrayLike],
    weights: ArrayLike | None = None,
    inputs: ArrayLike | Sequence[ArrayLike] | None = None,
) -> Data:
    """Pairs, initial states and padded trajectories from (N, T, d) or from a list of (T_i, d).

    A row with a NaN is a gap: no pair crosses it, and none crosses from one trajectory to the next. Inputs, of shape
    (N, T - 1, e) or a list of (T_i - 1, e), belong to the steps.
    """
    parts = as_list(trajectories)
    weight = _weights(weights, len(parts), "trajectory")
    padded = _pad(parts)
    if np.any(np.isinf(padded)):
        index = int(np.flatnonzero(np.any(np.isinf(padded), axis=(1, 2)))[0])
        raise ValueError(f"Expected finite states (NaN rows are gaps), got infinite ones in trajectory {index}.")
    here = ~np.any(np.isnan(padded), axis=2)
    padded = np.where(here[..., None], padded, 0.0)
    u = None
    if inputs is not None:
        u = _inputs_like(inputs, [len(part) for part in parts], padded.shape[1])
        known = np.all(np.isfinite(u), axis=2)
        needed = np.flip(np.logical_or.accumulate(np.flip(here[:, 1:], axis=1), axis=1), axis=1)
        if np.any(needed & ~known):
            raise ValueError(
                "Expected a finite input for every step up to a trajectory's last state, got NaN or infinite ones."
                " Beliefs go through gaps in the states, not through gaps in the inputs: split such trajectories."
            )
        u = np.where(known[..., None], u, 0.0)
    owner, k = np.nonzero(here[:, :-1] & here[:, 1:])
    if len(owner) == 0:
        raise ValueError("Expected at least one pair of consecutive states, got none (all gaps, or length one).")
    started = np.flatnonzero(here[:, 0])
    return Data(
        x=padded[owner, k],
        x_next=padded[owner, k + 1],
        weight=weight[owner],
        owner=owner,
        initial=padded[started, 0],
        initial_weight=weight[started],
        initial_owner=started,
        trajectories=padded,
        present=here * weight[:, None],
        u=None if u is None else u[owner, k],
        inputs=u,
    )


def _inputs_like(inputs: ArrayLike | Sequence[ArrayLike], lengths: list[int], longest: int) -> np.ndarray:
    """Inputs padded with NaN to shape (N, longest - 1, e); those of one number may lack their last axis."""
    each = [np.asarray(part, dtype=float) for part in inputs]
    each = [part[:, None] if part.ndim == 1 else part for part in each]
    if len(each) != len(lengths):
        raise ValueError(f"Expected inputs of {len(lengths)} trajectories, got those of {len(each)}.")
    dim = each[0].shape[-1]
    padded = np.full((len(each), longest - 1, dim), np.nan)
    for index, (part, length) in enumerate(zip(each, lengths, strict=True)):
        if part.shape != (length - 1, dim):
            raise ValueError(
                f"Expected inputs of shape ({length - 1}, {dim}) for trajectory {index}, one for each of its steps, got"
                f" {part.shape}."
            )
        padded[index, : length - 1] = part
    return padded


def from_pairs(
    x: ArrayLike,
    x_next: ArrayLike,
    initial: ArrayLike,
    weights: ArrayLike | None = None,
    inputs: ArrayLike | None = None,
) -> Data:
    """Independent transition pairs and initial states; NaN is refused here, since it cannot be a gap."""
    x, x_next, initial = (
        _matrix(a, name) for a, name in ((x, "transitions[0]"), (x_next, "transitions[1]"), (initial, "initial"))
    )
    if x.shape != x_next.shape:
        raise ValueError(f"Expected as many x as x_next, got {x.shape} and {x_next.shape}.")
    if initial.shape[1] != x.shape[1]:
        raise ValueError(f"Expected initial states with {x.shape[1]} coordinates, got {initial.shape[1]}.")
    weight, count = _weights(weights, len(x), "pair"), len(initial)
    u = None
    if inputs is not None:
        u = _matrix(np.asarray(inputs, dtype=float).reshape(len(x), -1), "inputs")
    empty = np.zeros((0, 2, x.shape[1]))
    return Data(
        x,
        x_next,
        weight,
        np.arange(len(x)),
        initial,
        np.ones(count),
        np.arange(count),
        empty,
        np.zeros((0, 2)),
        u,
        None if u is None else np.zeros((0, 1, u.shape[1])),
    )


def require_enough(data: Data, least: int) -> None:
    """Refuse too little data, coordinates that never vary, and states that repeat too much to learn from."""
    if len(data.x) < least or len(data.initial) < 2:
        raise ValueError(
            f"Expected at least {least} transitions and two initial states to learn from, got {len(data.x)} and"
            f" {len(data.initial)}. For one long series give transitions=(x[:-1], x[1:]) and initial=x."
        )
    constant = np.flatnonzero(np.ptp(np.concatenate([data.x, data.x_next]), axis=0) == 0)
    if constant.size:
        raise ValueError(f"Expected coordinates that vary, got constant ones {constant.tolist()}. Drop them first.")
    distinct = len(np.unique(data.x_next, axis=0))
    if distinct < least:
        raise ValueError(
            f"Expected at least {least} distinct successors, got {distinct} among {len(data.x)}. A density cannot be"
            " learned from values that only repeat: use a smaller size, or data that are not rounded."
        )


def repeated(data: Data) -> int:
    """How many transition pairs are copies of another."""
    return len(data.x) - len(np.unique(np.concatenate([data.x, data.x_next], axis=1), axis=0))


# A standard deviation this many times the one the quartiles suggest is made by a few extreme states.
_CONTAMINATED = 5.0


def robust_standardize(x: np.ndarray) -> Standardize:
    """Mean and standard deviation per coordinate; median and quartiles where extremes dwarf the rest."""
    low, median, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
    spread = (high - low) / 1.349  # the quartiles of a normal are 1.349 standard deviations apart
    std = np.std(x, axis=0)
    contaminated = (spread > 0) & ~(std < _CONTAMINATED * spread)
    mean = np.where(contaminated, median, np.mean(x, axis=0))
    return Standardize(mean, np.where(contaminated, spread, std))


def set_aside_extremes(data: Data, transform: Transform, extreme: float) -> tuple[Data, int]:
    """Without the states that lie beyond so many deviations, and how many pairs that took away.

    A simulation that blew up says nothing about the dynamics one can learn, and its likelihood has no useful
    gradient. Nothing is dropped from what is later scored.
    """

    def usable(x: np.ndarray) -> np.ndarray:
        return np.all(np.abs(rows_to_model(transform, x)[0]) <= extreme, axis=-1)

    pair, start, state = usable(data.x) & usable(data.x_next), usable(data.initial), usable(data.trajectories)
    kept = _select(data, pair, start, np.ones(len(data.trajectories), bool))
    kept = kept._replace(
        trajectories=np.where(state[..., None], data.trajectories, 0.0), present=data.present * state
    )  # fmt: skip
    return kept, int((~pair).sum())


def split(data: Data, share: float, seed: int) -> tuple[Data, Data]:
    """Training and held-out parts; a trajectory goes to one of them whole."""
    rng = np.random.default_rng(seed)

    def held_out(count: int) -> np.ndarray:
        chosen = np.zeros(count, dtype=bool)
        chosen[rng.permutation(count)[: max(1, round(share * count))]] = True
        return chosen

    whole = held_out(len(data.trajectories))
    if len(data.trajectories):
        pair, start = whole[data.owner], whole[data.initial_owner]
    else:
        pair, start = held_out(len(data.x)), held_out(len(data.initial))
    for name, chosen in (("transitions", pair), ("initial states", start)):
        if chosen.all() or not chosen.any():
            raise ValueError(
                f"Expected {name} in both the training and the held-out part, got {int((~chosen).sum())} and"
                f" {int(chosen.sum())}. Give more trajectories, or another validation share or seed."
            )
    return _select(data, ~pair, ~start, ~whole), _select(data, pair, start, whole)


def _select(data: Data, pair: np.ndarray, start: np.ndarray, whole: np.ndarray) -> Data:
    rows = {name: pair for name in ("x", "x_next", "weight", "owner")}
    rows |= {name: start for name in ("initial", "initial_weight", "initial_owner")}
    rows |= {name: whole for name in ("trajectories", "present")}
    if data.u is not None:
        rows |= {"u": pair, "inputs": whole}
    return Data(**{name: getattr(data, name)[chosen] for name, chosen in rows.items()})


def _weights(weights: ArrayLike | None, count: int, what: str) -> np.ndarray:
    if weights is None:
        return np.ones(count)
    array = np.asarray(weights, dtype=float)
    if array.shape != (count,):
        raise ValueError(f"Expected one weight per {what}, shape ({count},), got {array.shape}.")
    if not np.all(np.isfinite(array)) or np.any(array < 0) or array.sum() == 0:
        raise ValueError("Expected finite weights >= 0, not all zero, got others.")
    # Mean one: losses stay averages whatever the scale of the weights.
    return array / array.mean()


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


def _pad(parts: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Shape (N, longest, d), NaN after the end of shorter ones."""
    if isinstance(parts, np.ndarray):
        return parts
    dim = parts[0].shape[1]
    longest = max(len(part) for part in parts)
    padded = np.full((len(parts), longest, dim), np.nan)
    for index, part in enumerate(parts):
        if part.shape[1] != dim:
            raise ValueError(
                f"Expected trajectories with {dim} coordinates like the first, got {part.shape[1]} in number {index}."
            )
        padded[index, : len(part)] = part
    return padded


def as_list(trajectories: ArrayLike | Sequence[ArrayLike]) -> Sequence[np.ndarray] | np.ndarray:
    """An array (N, T, d), or a list of arrays (T_i, d), of numbers."""
    expected = "Expected trajectories as an array (N, T, d) or a list of arrays (T_i, d), got"
    ragged = isinstance(trajectories, (list, tuple)) and len(trajectories) > 0 and np.ndim(trajectories[0]) == 2
    try:
        if not ragged:
            array = np.asarray(trajectories, dtype=float)
            if array.ndim != 3 or 0 in array.shape:
                raise ValueError(f"{expected} an array of shape {array.shape}.")
            return array
        parts = [np.asarray(part, dtype=float) for part in trajectories]
    except TypeError as error:
        raise ValueError(f"{expected} {type(trajectories).__name__}: {error}.") from error
    except ValueError as error:
        if str(error).startswith("Expected"):
            raise
        raise ValueError(f"{expected} {type(trajectories).__name__}: {error}.") from error
    for index, part in enumerate(parts):
        if part.ndim != 2 or part.shape[1] == 0:
            raise ValueError(f"Expected trajectory {index} of shape (T, d), got {part.shape}.")
    return parts
