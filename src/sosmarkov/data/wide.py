"""Wide tables: one row a trajectory, one column a coordinate and step."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from sosmarkov.data.frames import Columns
from sosmarkov.data.recorded import Recorded

_STEP = re.compile(r"(.*?[^\d])(\d+)[\])]?")


def from_wide(
    table: Columns, columns: Sequence[str] | None, trajectory: str | None, inputs: Sequence[str] | None
) -> Recorded:
    """Trajectories from columns x_0, x_1, ..., y_0, y_1, ...; also x0, x.0, x[0], and steps from 1.

    A row that ends in missing states is a shorter trajectory; missing ones in between are gaps.
    """
    if trajectory is not None and trajectory not in table.names:
        raise ValueError(f"Expected columns among {table.names}, got {trajectory!r}.")
    found = _groups([name for name in table.numeric if name != trajectory])
    taken = [*(columns or ()), *(inputs or ())]
    missing = [name for name in taken if name not in found]
    if missing or not found:
        raise ValueError(
            f"Expected columns like x_0, x_1, ... of {', '.join(missing) or 'at least one coordinate'}, got"
            f" {table.names}."
        )
    names = list(columns) if columns else [name for name in found if name not in taken]
    if not names:
        raise ValueError("Expected at least one coordinate beside the inputs, got none.")
    steps = sorted(found[names[0]])
    for name in names:
        if sorted(found[name]) != list(range(steps[0], steps[0] + len(steps))):
            raise ValueError(
                f"Expected steps {steps[0]} to {steps[-1]} of every coordinate, each once, got {sorted(found[name])} of"
                f" {name!r}."
            )
    states = _values(table, found, names, steps)
    if len(states) == 0:
        raise ValueError("Expected at least one row, got an empty table.")
    lengths = [_length(row) for row in states]
    given = None
    if inputs:
        short = [name for name in inputs if not set(steps[:-1]) <= set(found[name])]
        if short:
            raise ValueError(f"Expected inputs of steps {steps[0]} to {steps[-2]}, got fewer of {', '.join(short)}.")
        each = _values(table, found, inputs, steps[:-1])
        given = [u[: length - 1] for u, length in zip(each, lengths, strict=True)]
    codes, labels = (None, None) if trajectory is None else table.labels(trajectory)
    if codes is not None and labels is not None:
        labels = [None if code < 0 else labels[code] for code in codes]
    parts = [row[:length] for row, length in zip(states, lengths, strict=True)]
    used = {column for name in [*names, *(inputs or ())] for column in found[name].values()} | {trajectory}
    rest = tuple(name for name in table.names if name not in used)
    return Recorded(parts, tuple(names), given, labels, left_out=rest)


def _groups(names: Sequence[str]) -> dict[str, dict[int, str]]:
    """From coordinate to step to column."""
    found: dict[str, dict[int, str]] = {}
    for name in names:
        match = _STEP.fullmatch(name)
        if match:
            base = match.group(1).rstrip("_.-[( ") or name
            steps = found.setdefault(base, {})
            if int(match.group(2)) in steps:
                raise ValueError(f"Expected one column a coordinate and step, got {name!r} for a second time.")
            steps[int(match.group(2))] = name
    return found


def _values(table: Columns, found: dict[str, dict[int, str]], names: Sequence[str], steps: Sequence[int]) -> np.ndarray:
    """Shape (N, T, d)."""
    by_name = [np.stack([table.numbers(found[name][step]) for step in steps], axis=1) for name in names]
    return np.stack(by_name, axis=2)


def _length(row: np.ndarray) -> int:
    """Up to the last state that is there; one where there is none."""
    there = np.flatnonzero(~np.all(np.isnan(row), axis=1))
    return int(there[-1]) + 1 if there.size else 1
