"""Columns of a table that were left out and look as if they were meant: times, numbers with a word among them, ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sosmarkov.data.frames import Columns, is_number
from sosmarkov.data.recorded import Doubt

# Text of which so many cells are numbers was meant to be numbers.
_MOSTLY = 0.8


def about_left_out(table: Columns, names: Sequence[str], trajectory: str | None, time: str | None) -> tuple[Doubt, ...]:
    """Columns that an option, or an empty cell, would make part of the data."""
    found, ids = [], []
    for name in names:
        if _dated(table, name):
            found += [Doubt(name, "dates")] if time is None else []
            continue
        codes, labels = table.labels(name)
        numbers = np.array([is_number(label) for label in labels], dtype=bool)
        there = codes[codes >= 0]
        if len(there) and not numbers.all() and np.mean(numbers[there]) >= _MOSTLY:
            row = int(np.flatnonzero(np.isin(codes, np.flatnonzero(~numbers)))[0])
            found.append(Doubt(name, "words", str(labels[codes[row]])[:40], row + 1))
        elif trajectory is None and _in_runs(codes):
            ids.append(Doubt(name, "ids"))
    return (*found, *ids[:1])


def _dated(table: Columns, name: str) -> bool:
    try:
        return table.moments(name).dtype.kind == "M"
    except ValueError:
        return False


def _in_runs(codes: np.ndarray) -> bool:
    """Whether labels stay for a few rows and do not come back: as ids of trajectories do."""
    runs = 1 + int(np.count_nonzero(np.diff(codes)))
    kinds = len(np.unique(codes))
    return bool(np.all(codes >= 0)) and 1 < kinds == runs <= len(codes) / 2
