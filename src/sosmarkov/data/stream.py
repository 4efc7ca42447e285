"""Trajectories that do not fit in memory: a sample is kept, the rest is read in blocks while training goes on."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sosmarkov.data.frames import arrow, coordinates_of, read_frame

# Trajectories held in memory: for scales, starts and the held-out part.
RESIDENT = 20_000
# Trajectories read for each chunk of steps.
_BLOCK = 4_096
# Neighbours are read together: random access to single rows would make the disk the bottleneck.
_WINDOW = 64


class Stored(ABC):
    """Trajectories on disk."""

    @abstractmethod
    def __len__(self) -> int:
        """How many trajectories."""

    @abstractmethod
    def take(self, start: int, stop: int) -> Sequence[np.ndarray]:
        """Trajectories start, ..., stop - 1, each (T_i, d)."""

    @property
    def columns(self) -> list[str] | None:
        """Names of the coordinates, where they have any."""
        return None


class StoredArray(Stored):
    """A memory-mapped array of shape (N, T, d)."""

    def __init__(self, array: np.ndarray):
        if array.ndim != 3 or 0 in array.shape:
            raise ValueError(f"Expected stored trajectories of shape (N, T, d), got {array.shape}.")
        self._array = array

    def __len__(self) -> int:
        """How many trajectories."""
        return len(self._array)

    def take(self, start: int, stop: int) -> Sequence[np.ndarray]:
        """A copy of these rows in memory."""
        return list(np.array(self._array[start:stop], dtype=float))


class StoredTable(Stored):
    """A Parquet file with one row per state, in which the rows of a trajectory follow each other.

    Args:
        path: The file.
        trajectory: The column that says which trajectory a row belongs to.
        time: The column to sort each trajectory by, or None.
        columns: The coordinates; None: all other numeric columns.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        trajectory: str,
        time: str | None = None,
        columns: Sequence[str] | None = None,
    ):
        self._file = arrow(f"Parquet, {Path(path).name}").parquet.ParquetFile(path)
        names = self._file.schema_arrow.names
        if trajectory not in names:
            raise ValueError(f"Expected a column {trajectory!r} in {path}, got {names}.")
        self._options = {"trajectory": trajectory, "time": time, "columns": columns}
        self._read = None if columns is None else [n for n in (trajectory, time, *columns) if n is not None]
        counts = [self._file.metadata.row_group(i).num_rows for i in range(self._file.num_row_groups)]
        self._group_ends = np.cumsum(counts)
        self._ends = self._boundaries(trajectory, path)

    def _boundaries(self, trajectory: str, path: str | os.PathLike[str]) -> np.ndarray:
        """The row after the last of each trajectory, read from one column in batches."""
        ends, seen, last, row = [], set(), None, 0
        for batch in self._file.iter_batches(columns=[trajectory], batch_size=262_144):
            labels = batch.column(0).to_pylist()
            for label in labels:
                if label != last:
                    if label in seen:
                        raise ValueError(
                            f"Expected the rows of a trajectory to follow each other in {path}, got {label!r} in two"
                            " places. Sort the file by trajectory first."
                        )
                    seen.add(label)
                    if row:
                        ends.append(row)
                    last = label
                row += 1
        return np.array([*ends, row])

    def __len__(self) -> int:
        """How many trajectories."""
        return len(self._ends)

    @property
    def columns(self) -> list[str]:
        """Names of the coordinates."""
        return coordinates_of(self._file.schema_arrow.empty_table(), **self._options)

    def take(self, start: int, stop: int) -> Sequence[np.ndarray]:
        """These trajectories, from the row groups that hold them."""
        first = int(self._ends[start - 1]) if start else 0
        last = int(self._ends[stop - 1])
        low, high = np.searchsorted(self._group_ends, [first, last - 1], side="right")
        table = self._file.read_row_groups(list(range(low, high + 1)), columns=self._read)
        offset = int(self._group_ends[low - 1]) if low else 0
        return read_frame(table.slice(first - offset, last - first), **self._options).trajectories


def open_trajectories(
    path: str | os.PathLike[str],
    *,
    trajectory: str | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
) -> Stored:
    """Trajectories in a file, to be given to `fit` without being read whole.

    Args:
        path: `.npy` with an array (N, T, d), or `.parquet` with one row per state.
        trajectory: For Parquet, the column that says which trajectory a row belongs to.
        time: For Parquet, the column to sort each trajectory by.
        columns: For Parquet, the coordinates; None: all other numeric columns.
    """
    kind = Path(path).suffix.lower()
    if kind == ".npy":
        return StoredArray(np.load(path, mmap_mode="r", allow_pickle=False))
    if kind in (".parquet", ".pq"):
        if trajectory is None:
            raise ValueError("Expected trajectory=, the column that tells trajectories apart, got None.")
        return StoredTable(path, trajectory=trajectory, time=time, columns=columns)
    raise ValueError(f"Expected a .npy or .parquet file, got {Path(path).name}.")


class Stream:
    """Blocks of random trajectories that are not among the resident ones."""

    def __init__(self, stored: Stored, seed: int):
        self._stored = stored
        self._seed = seed
        windows = np.random.default_rng(seed).permutation(-(-len(stored) // _WINDOW))
        held = -(-RESIDENT // _WINDOW)
        self._kept, self._others = windows[:held], windows[held:]

    def resident(self) -> list[np.ndarray]:
        """The sample held in memory."""
        return self._windows(self._kept)

    def block(self, done: int) -> list[np.ndarray]:
        """Trajectories for the chunk that begins after `done` steps; the same for the same number."""
        rng = np.random.default_rng([self._seed, done])
        count = min(_BLOCK // _WINDOW, len(self._others))
        return self._windows(rng.choice(self._others, count, replace=False))[:_BLOCK]

    def _windows(self, windows: np.ndarray) -> list[np.ndarray]:
        spans = [(w * _WINDOW, min((w + 1) * _WINDOW, len(self._stored))) for w in np.sort(windows).tolist()]
        return [trajectory for start, stop in spans for trajectory in self._stored.take(start, stop)]


def streams(stored: Stored) -> bool:
    """Whether there are so many that a sample has to do for what needs them at once."""
    return len(stored) > 2 * RESIDENT
