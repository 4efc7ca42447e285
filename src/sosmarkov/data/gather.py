"""From whatever was given to `fit` to a `Dataset`: arrays, frames, columns, files too large for memory, or pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.data.dataset import Dataset, from_pairs, from_series, from_trajectories
from sosmarkov.data.frames import is_frame, read_frame
from sosmarkov.data.given import as_list
from sosmarkov.data.recorded import Clock
from sosmarkov.data.stream import Stored, StoredArray, Stream, streams


class Source(NamedTuple):
    """Trajectories as arrays, and what came with them.

    Attributes:
        trajectories: An array (N, T, d), or a list of (T_i, d); None where there are none.
        columns: Names of the coordinates, where they have any.
        clock: When states were observed, where that is known.
        stream: The others, of trajectories too many to hold at once.
    """

    trajectories: Sequence[np.ndarray] | np.ndarray | None
    columns: Sequence[str] | None = None
    clock: Clock | None = None
    stream: Stream | None = None


def open_source(
    trajectories: Any,
    *,
    trajectory: str | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
    seed: int = 0,
) -> Source:
    """Trajectories, one long series, a frame (whose columns the names tell apart), or a file opened for streaming.

    Of a file with more trajectories than fit in memory, `seed` picks those that are held.
    """
    if is_frame(trajectories):
        found = read_frame(trajectories, trajectory=trajectory, time=time, columns=columns)
        return Source(found.trajectories, found.columns, found.clock)
    if trajectory is not None or time is not None:
        raise ValueError(
            "Expected a data frame with trajectory= or time=, which name its columns, got"
            f" {'none' if trajectories is None else type(trajectories).__name__}."
        )
    if trajectories is None:
        return Source(None, columns)
    if isinstance(trajectories, np.memmap) and trajectories.ndim > 2:
        trajectories = StoredArray(trajectories)
    if not isinstance(trajectories, Stored):
        return Source(as_list(trajectories), columns)
    columns = trajectories.columns if columns is None else columns
    if not streams(trajectories):
        return Source(list(trajectories.take(0, len(trajectories))), columns)
    stream = Stream(trajectories, seed)
    return Source(stream.resident(), columns, stream=stream)


def gather(
    source: Source,
    *,
    transitions: tuple[ArrayLike, ArrayLike] | None = None,
    initial: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    inputs: ArrayLike | Sequence[ArrayLike] | None = None,
    period: int | None = None,
    observations: ArrayLike | Sequence[ArrayLike] | None = None,
) -> Dataset:
    """Trajectories of a source, or pairs; of one long series the pairs in it. The arguments are those of `fit`."""
    trajectories = source.trajectories
    if (trajectories is None) == (transitions is None):
        raise ValueError("Expected either trajectories or transitions=(x, x_next) with initial, got both or neither.")
    if trajectories is None:
        if initial is None or transitions is None or len(transitions) != 2:
            raise ValueError("Expected transitions=(x, x_next) and initial=x0, got no initial states or not a pair.")
        if observations is not None:
            raise ValueError("Expected trajectories with observations, got transitions: filters go along trajectories.")
        return _with_names(from_pairs(*transitions, initial, weights, inputs), source)
    if initial is not None:
        raise ValueError("Expected initial only with transitions: trajectories bring their own first states.")
    if period is not None and inputs is None:
        inputs = [np.arange(len(part) - 1.0) for part in trajectories]
    if len(trajectories) > 1:
        return _with_names(from_trajectories(trajectories, weights, inputs, observations), source)
    if observations is not None:
        raise ValueError(
            "Expected two trajectories or more with observations, got one. Cut a long one into pieces:"
            " x[: n * 50].reshape(n, 50, d), and its observations likewise."
        )
    if weights is not None:
        raise ValueError(
            "Expected weights with two trajectories or more, or with pairs, got one series. Leave them out."
        )
    return _with_names(from_series(list(trajectories), inputs), source)


def _with_names(data: Dataset, source: Source) -> Dataset:
    columns = None if source.columns is None else checks.columns(source.columns, data.dim)
    return dataclasses.replace(data, columns=columns, clock=source.clock)
