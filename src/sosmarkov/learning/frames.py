"""Data frames, through Arrow: pandas, polars, pyarrow and whatever else speaks its stream protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def is_frame(value: Any) -> bool:
    """Whether a value is a table that Arrow can read."""
    return hasattr(value, "__arrow_c_stream__")


def trajectories_from(
    frame: Any, *, trajectory: str | None = None, time: str | None = None, columns: Sequence[str] | None = None
) -> list[np.ndarray]:
    """Trajectories (T_i, d) from a table with one row per state.

    Args:
        frame: Any table with `__arrow_c_stream__` (pandas, polars, pyarrow, ...).
        trajectory: The column that says which trajectory a row belongs to; None: all rows are one.
        time: The column to sort each trajectory by. Times a whole number of steps apart leave gaps (NaN rows); others
            are refused, since a process in discrete time has one step length. None: rows are in order.
        columns: The coordinates, in order; None: all numeric columns but those two.

    Returns:
        One array per trajectory, in the order they first appear. Null entries become NaN.
    """
    table = as_table(frame)
    columns = _columns(table, columns, {trajectory, time})
    values = np.stack([_numbers(table, name) for name in columns], axis=1)
    order = np.arange(len(values))
    label = np.zeros(len(values), dtype=int)
    if trajectory is not None:
        label = _labels(table, trajectory)
    if time is None:
        return [values[label == index] for index in range(label.max(initial=0) + 1)]
    moment = _numbers(table, time)
    if np.any(np.isnan(moment)):
        raise ValueError(f"Expected a time in every row of column {time!r}, got missing ones.")
    order = np.lexsort([moment, label])
    label, moment, values = label[order], moment[order], values[order]
    step = _step(label, moment, time)
    return [
        _on_grid(values[label == index], moment[label == index], step, time)
        for index in range(label.max(initial=0) + 1)
    ]


def coordinates_of(
    frame: Any, *, trajectory: str | None = None, time: str | None = None, columns: Sequence[str] | None = None
) -> list[str]:
    """Names of the coordinates that `trajectories_from` reads with these options."""
    return _columns(as_table(frame), columns, {trajectory, time})


def as_table(frame: Any) -> Any:
    """The frame as an Arrow table; a stream can be read only once."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("Reading data frames needs pyarrow: pip install 'sosmarkov[data]'.") from error
    return pyarrow.table(frame)


def _columns(table: Any, columns: Sequence[str] | None, others: set[str | None]) -> list[str]:
    import pyarrow.types as types

    missing = [name for name in {*(columns or ()), *others} - {None} if name not in table.column_names]
    if missing:
        raise ValueError(f"Expected columns among {table.column_names}, got {sorted(missing)}.")
    if columns is not None:
        return list(columns)

    def numeric(kind: Any) -> bool:
        return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)

    # pandas hands over an index that is not 0, 1, 2, ... under such a name; it is no coordinate.
    named = [field for field in table.schema if not field.name.startswith("__index_level_")]
    found = [field.name for field in named if numeric(field.type) and field.name not in others]
    if not found:
        raise ValueError(f"Expected at least one numeric column, got {table.schema.names}.")
    return found


def _numbers(table: Any, name: str) -> np.ndarray:
    import pyarrow.types as types

    column = table.column(name).combine_chunks()
    if types.is_timestamp(column.type) or types.is_date(column.type):
        column = column.cast("timestamp[ns]").cast("int64")
    try:
        return column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
    except (ValueError, NotImplementedError, TypeError) as error:  # Arrow's own errors derive from these
        raise ValueError(f"Expected numbers in column {name!r}, got {column.type}.") from error


def _labels(table: Any, name: str) -> np.ndarray:
    """Whole numbers 0, 1, ... in the order labels first appear."""
    encoded = table.column(name).combine_chunks().dictionary_encode()
    if encoded.null_count:
        raise ValueError(f"Expected a trajectory in every row of column {name!r}, got missing ones.")
    return np.asarray(encoded.indices)


def _step(label: np.ndarray, moment: np.ndarray, name: str) -> float:
    apart = np.diff(moment)[np.diff(label) == 0]
    if len(apart) == 0:
        return 1.0
    if np.any(apart <= 0):
        raise ValueError(f"Expected different times within a trajectory in column {name!r}, got the same one twice.")
    return float(apart.min())


def _on_grid(values: np.ndarray, moment: np.ndarray, step: float, name: str) -> np.ndarray:
    position = (moment - moment[0]) / step
    index = np.rint(position).astype(int)
    if np.any(np.abs(position - index) > 1e-3):
        worst = float(np.diff(moment)[np.argmax(np.abs(np.diff(position) - np.rint(np.diff(position))))])
        raise ValueError(
            f"Expected times in column {name!r} a whole number of steps of {step:g} apart, got {worst:g}. Resample to"
            " one step length first."
        )
    grid = np.full((index[-1] + 1, values.shape[1]), np.nan)
    grid[index] = values
    return grid
