"""Tables become trajectories: data frames through Arrow (pandas, polars, pyarrow, ...), and columns of NumPy."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from sosmarkov.data.recorded import Recorded

# A gap this many times as long as there are rows is a wrong time, not a gap.
_EMPTY = 1000
_LONG = 100_000


class Columns(ABC):
    """A table, column by column."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """All columns, in order."""

    @property
    @abstractmethod
    def numeric(self) -> list[str]:
        """Those that hold numbers."""

    @abstractmethod
    def numbers(self, name: str) -> np.ndarray:
        """One column as float64, NaN where an entry is missing."""

    @abstractmethod
    def moments(self, name: str) -> np.ndarray:
        """One column of times, as float64 or datetime64[ns]."""

    @abstractmethod
    def labels(self, name: str) -> tuple[np.ndarray, list[Any]]:
        """Whole numbers 0, 1, ... in the order labels first appear (-1: missing), and the labels."""

    def stacked(self, names: Sequence[str]) -> np.ndarray:
        """Columns of numbers side by side, shape (n, d)."""
        values = np.stack([self.numbers(name) for name in names], axis=1)
        if len(values) == 0:
            raise ValueError("Expected at least one row, got an empty table.")
        return values


class ArrowColumns(Columns):
    """The columns of any table with `__arrow_c_stream__`."""

    def __init__(self, frame: Any):
        self._table = as_table(frame)

    @property
    def names(self) -> list[str]:
        """All columns, in order."""
        return self._table.column_names

    @property
    def numeric(self) -> list[str]:
        """Integers, floating-point numbers, decimals."""
        import pyarrow.types as types

        kinds = (types.is_integer, types.is_floating, types.is_decimal)
        return [field.name for field in self._table.schema if any(kind(field.type) for kind in kinds)]

    def numbers(self, name: str) -> np.ndarray:
        """One column as float64; dates count nanoseconds."""
        if self._dated(name):
            return self.moments(name).astype(np.int64).astype(float)
        column = self._table.column(name).combine_chunks()
        try:
            return column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
        except (ValueError, NotImplementedError, TypeError) as error:  # Arrow's own errors derive from these
            raise ValueError(f"Expected numbers in column {name!r}, got {_described(column)}.") from error

    def moments(self, name: str) -> np.ndarray:
        """One column as datetime64[ns] where it holds dates, as float64 elsewhere."""
        column = self._table.column(name).combine_chunks()
        if column.null_count:
            raise ValueError(f"Expected a time in every row of column {name!r}, got missing ones.")
        if self._dated(name):
            try:
                return column.cast("timestamp[ns]").to_numpy(zero_copy_only=False).astype("datetime64[ns]")
            except ValueError as error:
                raise ValueError(f"Expected dates between 1678 and 2262 in column {name!r}, got others.") from error
        try:
            return self.numbers(name)
        except ValueError as error:
            raise ValueError(
                f"Expected numbers or dates in column {name!r}, got {_described(column)}. Write dates like 2024-12-31"
                " or 2024-12-31 13:45:00."
            ) from error

    def labels(self, name: str) -> tuple[np.ndarray, list[Any]]:
        """Labels of any kind."""
        encoded = self._table.column(name).combine_chunks().dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return codes, encoded.dictionary.to_pylist()

    def _dated(self, name: str) -> bool:
        import pyarrow.types as types

        kind = self._table.schema.field(name).type
        return types.is_timestamp(kind) or types.is_date(kind)


def is_frame(value: Any) -> bool:
    """Whether a value is a table that Arrow can read."""
    return hasattr(value, "__arrow_c_stream__")


def read_frame(
    frame: Any, *, trajectory: str | None = None, time: str | None = None, columns: Sequence[str] | None = None
) -> Recorded:
    """What a table with one row per state holds.

    Args:
        frame: Any table with `__arrow_c_stream__` (pandas, polars, pyarrow, ...), or one column of such.
        trajectory: The column that says which trajectory a row belongs to; None: all rows are one.
        time: The column to sort each trajectory by. Times a whole number of steps apart leave gaps (NaN rows); others
            are refused, since a process in discrete time has one step length. None: rows are in order; where all are
            one trajectory and the frame has an index of times, these are their times.
        columns: The coordinates, in order; None: all numeric columns but those two.

    Returns:
        Trajectories in the order they first appear. Null entries become NaN.
    """
    frame = _as_frame(frame)
    moments = _index_times(frame) if trajectory is None and time is None else None
    table = ArrowColumns(frame if moments is None else frame.reset_index(drop=True))
    return arrange(table, chosen(table, columns, {trajectory, time}), trajectory, time, moments=moments)


def _as_frame(value: Any) -> Any:
    """A column by itself as a frame of one."""
    if not hasattr(value, "to_frame"):
        return value
    return value.to_frame("x0" if value.name in (None, "") else str(value.name))


def _index_times(frame: Any) -> np.ndarray | None:
    """The times that a frame of pandas has for its index; None where it has none, or its frequency says all."""
    index: Any = getattr(frame, "index", None)
    if not hasattr(index, "freq"):
        return None
    # Of periods the ordinals: months follow each other whatever their days.
    ordinal = hasattr(index, "to_timestamp")
    moments = np.asarray(index.asi8 if ordinal else index.values)
    if np.any(index.isna()):
        raise ValueError("Expected a time in every row of the index, got missing ones.")
    if np.any(np.diff(moments) < moments[:1] - moments[:1]):
        raise ValueError(
            "Expected an index of times that increase, got ones that fall back. Sort the rows first, or tell"
            " trajectories apart with trajectory=."
        )
    if ordinal:
        return moments
    return None if index.freq is not None else moments


def coordinates_of(
    frame: Any, *, trajectory: str | None = None, time: str | None = None, columns: Sequence[str] | None = None
) -> list[str]:
    """Names of the coordinates that `read_frame` reads with these options."""
    return chosen(ArrowColumns(frame), columns, {trajectory, time})


def arrow(what: str) -> Any:
    """pyarrow, with its modules for files; or a message on how to get it."""
    try:
        for name in ("pyarrow.csv", "pyarrow.parquet"):
            import_module(name)
        return import_module("pyarrow")
    except ImportError as error:
        raise ImportError(f"Expected pyarrow for {what}, got none. Try pip install 'sosmarkov[data]'.") from error


def as_table(frame: Any) -> Any:
    """The frame as an Arrow table; a stream can be read only once."""
    pyarrow = arrow("data frames")
    try:
        return pyarrow.table(frame)
    except pyarrow.ArrowException as error:
        raise ValueError(f"Expected a table with columns, got {type(frame).__name__}: {error}.") from error


def chosen(table: Columns, columns: Sequence[str] | None, others: set[str | None]) -> list[str]:
    """The columns asked for, or all numeric ones but `others`; a ValueError where they are not there."""
    wanted = {*(columns or ()), *others} - {None}
    missing = [name for name in wanted if name not in table.names]
    if missing:
        close = [_nearest(str(name), table.names) for name in sorted(map(str, missing))]
        guess = f" Did you mean {', '.join(map(repr, close))}?" if all(close) else ""
        raise ValueError(f"Expected columns among {table.names}, got {sorted(map(str, missing))}.{guess}")
    asked = set(table.names) if columns is None else wanted
    twice = sorted({name for name in table.names if table.names.count(name) > 1} & asked)
    if twice:
        raise ValueError(f"Expected columns with names of their own, got {twice} more than once.")
    if columns is not None:
        return list(columns)
    # pandas hands over an index that is not 0, 1, 2, ... under such a name, and writes one without a name to CSV; it
    # is no coordinate.
    index = ("__index_level_", "Unnamed: 0")
    found = [name for name in table.numeric if name and name not in others and not name.startswith(index)]
    if not found:
        raise ValueError(f"Expected at least one numeric column, got {table.names}.")
    return found


def _nearest(word: str, names: Sequence[str]) -> str | None:
    """The name that was likely meant, capitals and units aside; None where nothing is close."""
    plain = {name.lower(): name for name in names}
    begun = [name for low, name in plain.items() if word and low.startswith(word.lower())]
    close = difflib.get_close_matches(word.lower(), list(plain), n=1)
    return begun[0] if len(begun) == 1 else plain[close[0]] if close else None


def arrange(
    table: Columns,
    columns: Sequence[str],
    trajectory: str | None,
    time: str | None,
    *,
    inputs: Sequence[str] = (),
    moments: np.ndarray | None = None,
) -> Recorded:
    """Rows sorted into trajectories, each on an even grid of times; arguments as for `read_frame`.

    Inputs are columns whose row k acts on the step from row k to the next; moments are times that are no column.
    """
    values = table.stacked([*columns, *inputs])
    label, labels = np.zeros(len(values), dtype=int), None
    if trajectory is not None:
        label, labels = table.labels(trajectory)
        if np.any(label < 0):
            raise ValueError(f"Expected a trajectory in every row of column {trajectory!r}, got missing ones.")
    timed = time is not None or moments is not None
    where = f"column {time!r}" if time is not None else "the index"
    moment = table.moments(time) if time is not None else np.arange(len(values)) if moments is None else moments
    if not np.all(np.isfinite(moment)):
        raise ValueError(f"Expected a time in every row of {where}, got missing or infinite ones.")
    order = np.lexsort([moment, label])
    label, moment, values = label[order], moment[order], values[order]
    ends = np.flatnonzero(np.diff(label)) + 1
    parts, starts, times = np.split(values, ends), np.split(moment, ends), None
    if timed:
        step = _step(label, moment, where)
        indices = [_positions(part, step, where) for part in starts]
        parts = [_on_grid(part, index) for part, index in zip(parts, indices, strict=True)]
        times = [start[0] + np.arange(len(grid)) * step for start, grid in zip(starts, parts, strict=True)]
    dim = len(columns)
    given = [part[:-1, dim:] for part in parts] if inputs else None
    return Recorded([part[:, :dim] for part in parts] if inputs else parts, tuple(columns), given, labels, times)


def _step(label: np.ndarray, moment: np.ndarray, where: str) -> Any:
    """The smallest difference: a number, or a timedelta64."""
    apart = np.diff(moment)[np.diff(label) == 0]
    if len(apart) == 0:
        return np.timedelta64(1, "D") if moment.dtype.kind == "M" else 1.0
    step = apart.min()
    if step == step * 0:
        raise ValueError(f"Expected different times within a trajectory in {where}, got the same one twice.")
    return step


def _positions(moment: np.ndarray, step: Any, where: str) -> np.ndarray:
    """How many steps after the first each time is."""
    position = (moment - moment[0]) / step
    if not position[-1] < max(_EMPTY * len(moment), _LONG):
        raise ValueError(
            f"Expected times in {where} that are mostly one step apart, got steps of {_span(step)} and a"
            f" trajectory {position[-1]:.2g} of them long with {len(moment)} rows. Look for wrong times."
        )
    index = np.rint(position).astype(int)
    if np.any(np.abs(position - index) > 1e-3):
        apart = np.diff(position)
        worst = np.diff(moment)[np.argmax(np.abs(apart - np.rint(apart)))]
        raise ValueError(
            f"Expected times in {where} a whole number of steps of {_span(step)} apart, got {_span(worst)}."
            " Resample to one step length first."
        )
    return index


def _on_grid(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    grid = np.full((index[-1] + 1, values.shape[1]), np.nan)
    grid[index] = values
    return grid


def _span(step: Any) -> str:
    if np.asarray(step).dtype.kind != "m":
        return f"{step:g}"
    seconds = step / np.timedelta64(1, "s")
    return f"{seconds / 86400:g} days" if seconds >= 86400 else f"{seconds:g} s"


def _described(column: Any) -> str:
    """The kind of a column, and for text the first entry that is no number, with its row."""
    for row, entry in enumerate(column.to_pylist()):
        if isinstance(entry, str) and not is_number(entry):
            return f"{entry[:40]!r} in row {row + 1}"
    return str(column.type)


def is_number(entry: object) -> bool:
    """Whether a cell, or a label, reads as a number."""
    try:
        float(str(entry))
    except ValueError:
        return False
    return True
