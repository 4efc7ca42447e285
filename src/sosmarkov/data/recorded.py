"""What a frame or a file holds, before anything is made of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Clock(NamedTuple):
    """When states were observed.

    Attributes:
        start: The time of each trajectory's first state, numbers or dates, shape (M,).
        step: From one state to the next, a number or a timedelta64.
    """

    start: np.ndarray
    step: Any


class Doubt(NamedTuple):
    """A column that was left out and looks as if it was meant.

    Attributes:
        column: Its name.
        kind: "dates"; "words": numbers with a word among them; or "ids": one value a trajectory.
        entry: The word.
        row: The row it stands in, counted from 1.
    """

    column: str
    kind: str
    entry: str = ""
    row: int = 0


class Recorded(NamedTuple):
    """What a frame or a file holds.

    Attributes:
        trajectories: One array (T_i, d) each, in the order they first appear; rows with NaN are gaps.
        columns: Names of the coordinates.
        inputs: One array (T_i - 1, e) each, where columns of inputs were named.
        labels: What the table calls each trajectory; None where all rows are one, or they have no names.
        times: The time of each row of each, numbers or dates, gaps filled in; None where rows are in order.
        left_out: Columns that were not asked for or hold no numbers.
        doubts: What in those looks as if it was meant.
    """

    trajectories: list[np.ndarray]
    columns: tuple[str, ...]
    inputs: list[np.ndarray] | None = None
    labels: list[Any] | None = None
    times: list[np.ndarray] | None = None
    left_out: tuple[str, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    @property
    def rows(self) -> int:
        """States that are there, gaps not counted."""
        return sum(int(np.sum(~np.any(np.isnan(part), axis=1))) for part in self.trajectories)

    @property
    def gaps(self) -> int:
        """Rows with something missing."""
        return sum(map(len, self.trajectories)) - self.rows

    @property
    def clock(self) -> Clock | None:
        """When the states were observed."""
        longest = max(self.times or [[]], key=len)
        if len(longest) < 2:
            return None
        return Clock(np.array([times[0] for times in self.times or ()]), longest[1] - longest[0])
