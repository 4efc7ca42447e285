"""Coordinates that wrap round or have bounds: what was said of them, and what data look as if should be said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sosmarkov.core import checks
from sosmarkov.learning.lattice.view import Room

# How many decimals of a turn, or of a whole, data may miss it by and still look like it.
_NEAR = 0.02


def rooms_of(
    circular: Sequence[Any] | Mapping[Any, float | None] | None,
    bounds: Mapping[Any, Any] | None,
    states: np.ndarray,
    columns: Sequence[str],
) -> tuple[Room, ...]:
    """What is known of each coordinate's ends, or a ValueError."""
    dim, found = states.shape[1], {}
    turns = dict.fromkeys(circular or ()) if not isinstance(circular, Mapping) else dict(circular)
    for c, turn in checks.by_coordinate(turns, dim, columns).items() if turns else ():
        found[c] = _circle(states[:, c], turn, columns[c])
    for c, ends in checks.by_coordinate(bounds, dim, columns).items() if bounds else ():
        if c in found:
            raise ValueError(f"Expected bounds or circular for {columns[c]!r}, got both: an angle has no bounds.")
        found[c] = _bounded(states[:, c], ends, columns[c])
    return tuple(found.get(c, Room()) for c in range(dim))


def _circle(x: np.ndarray, turn: float | None, name: str) -> Room:
    """A whole turn is 2 pi where the numbers fit into one, else 360, unless it was given."""
    if turn is None:
        turn = 2.0 * np.pi if np.ptp(x) <= 2.0 * np.pi * (1.0 + _NEAR) else 360.0
    if not (np.isfinite(turn) and turn > 0):
        raise ValueError(f"Expected a positive turn of the angle {name!r}, such as 360, got {turn!r}.")
    begin = 0.0 if np.min(x) >= 0 else -0.5 * turn
    return Room("wrapped", begin, begin + float(turn))


def _bounded(x: np.ndarray, ends: Any, name: str) -> Room:
    """One bound or both, None for none; all data lie within."""
    try:
        lower, upper = (
            default if end is None else float(end) for end, default in zip(ends, (-np.inf, np.inf), strict=True)
        )
    except (TypeError, ValueError):
        raise ValueError(
            f"Expected bounds of {name!r} as a pair (lower, upper), None where there is none, got {ends!r}."
        ) from None
    if not lower < upper or (np.isinf(lower) and np.isinf(upper)):
        raise ValueError(f"Expected one finite bound of {name!r} or two with lower < upper, got {ends!r}.")
    if np.min(x) < lower or np.max(x) > upper:
        raise ValueError(
            f"Expected values of {name!r} between {lower:g} and {upper:g}, got some from {np.min(x):g} to"
            f" {np.max(x):g}. Give the bounds they have, or leave bounds out."
        )
    kind = "both" if np.isfinite(lower) and np.isfinite(upper) else "lower" if np.isfinite(lower) else "upper"
    return Room(kind, lower, upper)


def looks_like(x: np.ndarray, x_next: np.ndarray, columns: Sequence[str], said: Sequence[Room]) -> list[str]:
    """A sentence for each column that looks like an angle or a bounded number and was not said to be one."""
    found = []
    for c, name in enumerate(columns):
        if said[c].ends != "open":
            continue
        both = np.concatenate([x[:, c], x_next[:, c]])
        low, high, jump = np.min(both), np.max(both), np.abs(x_next[:, c] - x[:, c])
        turn = next((t for t in (2.0 * np.pi, 360.0) if (1.0 - _NEAR) * t <= high - low <= (1.0 + 1e-9) * t), None)
        # Of an angle that wraps, some steps go nearly all the way round, and none half of it.
        if turn is not None and np.any(jump > 0.9 * turn) and not np.any((jump > 0.4 * turn) & (jump < 0.6 * turn)):
            found.append(f"{name!r} jumps by {turn:.4g}: if it is an angle, say circular=[{name!r}].")
        elif low >= 0 and high <= 1 and (low < _NEAR or high > 1 - _NEAR):
            found.append(f"{name!r} lies between 0 and 1: if it always does, say bounds={{{name!r}: (0, 1)}}.")
        elif low >= 0 and low < _NEAR * (high - low):
            found.append(f"{name!r} is never negative: if it cannot be, say bounds={{{name!r}: (0, None)}}.")
    return found
