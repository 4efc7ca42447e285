"""What users hand over, as checked arrays: trajectories in every shape, their weights, inputs and readings, and pairs.

Whole rows of NaN, and rows with any NaN, are gaps: a state that was not observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from sosmarkov.core.checks import ArrayLike

_SHAPES = "an array (N, T, d), a list of arrays (T_i, d), or one long series (T, d) or (T,)"


def several(given: Any) -> list[Any]:
    """What stands in a list, or in an array of three dimensions; of anything else a list of it alone."""
    return list(given) if isinstance(given, (list, tuple)) or np.ndim(given) == 3 else [given]


def as_list(trajectories: Any) -> Sequence[np.ndarray] | np.ndarray:
    """An array (N, T, d), or a list of arrays (T_i, d), of numbers; one long series is a list of one.

    An array of two dimensions is one trajectory (T, d), and one of one dimension is one of a single coordinate.
    """
    expected = f"Expected trajectories as {_SHAPES}, got"
    listed: Any = trajectories if isinstance(trajectories, (list, tuple)) else ()
    try:
        if not is_listed(listed):
            # One series in a list: as rows it would be a single state.
            array = np.asarray(listed[0] if len(listed) == 1 else trajectories, dtype=float)
            if array.ndim not in (1, 2, 3) or 0 in array.shape:
                raise ValueError(f"{expected} an array of shape {array.shape}.")
            return array if array.ndim == 3 else [array[:, None] if array.ndim == 1 else array]
        parts = [np.asarray(part, dtype=float) for part in listed]
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


def is_listed(parts: Any) -> bool:
    """Whether these are arrays (T_i, d) in a list, and no nested list of rows."""
    return isinstance(parts, (list, tuple)) and len(parts) > 0 and np.ndim(parts[0]) == 2


def padded(parts: Sequence[np.ndarray] | np.ndarray, length: int | None = None, fill: float = np.nan) -> np.ndarray:
    """Arrays (T_i, d) as one of shape (N, length, d), `fill` after the end of shorter ones; the longest where None."""
    length = max(map(len, parts)) if length is None else length
    if isinstance(parts, np.ndarray) and parts.shape[1] == length:
        return parts
    dim = parts[0].shape[1]
    found = np.full((len(parts), length, dim), fill)
    for index, part in enumerate(parts):
        if part.shape[1] != dim:
            raise ValueError(
                f"Expected trajectories with {dim} coordinates like the first, got {part.shape[1]} in number {index}."
            )
        found[index, : len(part)] = part
    return found


def unbroken(here: np.ndarray, steps: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Where `steps` transitions follow each other without a gap: rows i and first columns k of `here`, shape (N, T).

    All of here[i, k], ..., here[i, k + steps] are true; rows come in order, and k within them. None crosses from one
    trajectory to the next.
    """
    if here.shape[1] <= steps:
        return np.zeros(0, int), np.zeros(0, int)
    i, k = np.nonzero(np.all(sliding_window_view(here, steps + 1, axis=1), axis=2))
    return i, k


def consecutive(
    trajectories: Sequence[np.ndarray], inputs: Sequence[np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Pairs x, x' of neighbours in (T_i, d) without a gap between them, and the inputs (T_i - 1, e) of their steps."""
    states = padded(trajectories)
    i, k = unbroken(~np.any(np.isnan(states), axis=2))
    if len(i) == 0:
        raise ValueError("Expected at least one pair of consecutive states, got none (all gaps, or length one).")
    u = None if inputs is None else padded(inputs, states.shape[1] - 1)[i, k]
    return states[i, k], states[i, k + 1], u


def present_states(trajectories: Sequence[np.ndarray]) -> np.ndarray:
    """All states that are there, shape (N, d)."""
    rows = np.concatenate(list(trajectories))
    return rows[~np.any(np.isnan(rows), axis=1)]


def aligned_inputs(inputs: ArrayLike | Sequence[ArrayLike], lengths: Sequence[int]) -> list[np.ndarray]:
    """Inputs (T_i - 1, e) of trajectories of these lengths; those of one number may lack their last axis.

    With one trajectory its inputs need not stand in a list.
    """
    alone = len(lengths) == 1 and len(inputs) > 1
    each = [np.asarray(part, dtype=float) for part in ([inputs] if alone else inputs)]
    each = [part[:, None] if part.ndim == 1 else part for part in each]
    if len(each) != len(lengths):
        raise ValueError(f"Expected inputs of {len(lengths)} trajectories, got those of {len(each)}.")
    dim = each[0].shape[-1]
    for index, (part, length) in enumerate(zip(each, lengths, strict=True)):
        if part.shape != (length - 1, dim):
            raise ValueError(
                f"Expected inputs of shape ({length - 1}, {dim}) for trajectory {index}, one for each of its steps, got"
                f" {part.shape}."
            )
    return each


def as_readings(observations: ArrayLike | Sequence[ArrayLike], lengths: Sequence[int] | None) -> np.ndarray:
    """Readings (N, T, k) from such an array or a list of (T_i, k), padded with NaN; of these lengths, where given."""
    try:
        each = [np.asarray(part, dtype=float) for part in observations]
        each = [part[:, None] if part.ndim == 1 else part for part in each]
        dim = each[0].shape[1]
        lengths = [len(part) for part in each] if lengths is None else lengths
        fits = [part.shape for part in each] == [(length, dim) for length in lengths]
    except (TypeError, IndexError, ValueError) as error:
        raise ValueError(f"Expected observations as numbers of shape (N, T, k), got others: {error}.") from error
    if not fits:
        raise ValueError(
            "Expected observations of shape (N, T, k), one reading for every state of every trajectory (NaN where"
            f" there was none), for {len(lengths)} trajectories of {max(lengths)} states at most, got {len(each)} of"
            " other shapes."
        )
    readings = padded(each, max(lengths))
    if np.any(np.isinf(readings)):
        raise ValueError("Expected finite readings, or NaN where one is missing, got infinite ones.")
    return readings


def as_weights(weights: ArrayLike | None, count: int, what: str) -> np.ndarray:
    """One weight for each, with mean one: losses stay averages whatever the scale of the weights."""
    if weights is None:
        return np.ones(count)
    array = np.asarray(weights, dtype=float)
    if array.shape != (count,):
        raise ValueError(f"Expected one weight per {what}, shape ({count},), got {array.shape}.")
    if not np.all(np.isfinite(array)) or np.any(array < 0) or array.sum() == 0:
        raise ValueError("Expected finite weights >= 0, not all zero, got others.")
    return array / array.mean()


def as_columns(x: ArrayLike, name: str) -> np.ndarray:
    """Numbers of shape (N, d); of shape (N,) they are one column."""
    try:
        array = np.asarray(x, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Expected numbers for {name}, got {type(x).__name__}: {error}.") from error
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"Expected {name} of shape (N, d), got {array.shape}.")
    return array


def as_matrix(x: ArrayLike, name: str) -> np.ndarray:
    """Finite numbers of shape (N, d); of shape (N,) they are one column."""
    array = as_columns(x, name)
    if len(array) == 0:
        raise ValueError(f"Expected {name} of shape (N, d), got {array.shape}.")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"Expected finite numbers for {name}, got NaN or infinite ones. Remove them first.")
    return array
