"""States as regressions see them: angles by their sine and cosine, times of a period likewise, inputs as they are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Room(NamedTuple):
    """What is known of a coordinate's ends.

    Attributes:
        ends: "open", "wrapped", "lower", "upper" or "both".
        lower: The bound, or the cut of a circle; minus infinity where there is none.
        upper: The bound, or the cut one turn on.
    """

    ends: str = "open"
    lower: float = -np.inf
    upper: float = np.inf


class View(NamedTuple):
    """From states and what acts on them to regressors, and from what is regressed to the next state.

    Attributes:
        rooms: One a coordinate.
        period: Of times, which are what acts; None where inputs act, or nothing.
    """

    rooms: tuple[Room, ...]
    period: int | None = None

    @property
    def dim(self) -> int:
        """Coordinates of a state."""
        return len(self.rooms)

    def regressors(self, x: Float[np.ndarray, "n d"], u: Float[np.ndarray, "n e"] | None) -> Float[np.ndarray, "n q"]:
        """The columns of the coordinates, then those of what acts."""
        found = []
        for c, room in enumerate(self.rooms):
            found += [x[:, c]] if room.ends != "wrapped" else [f(self._turn(c) * x[:, c]) for f in (np.cos, np.sin)]
        if u is not None:
            turn = None if self.period is None else 2.0 * np.pi / self.period
            found += list(u.T) if turn is None else [f(turn * u[:, 0]) for f in (np.cos, np.sin)]
        return np.stack(found, axis=1)

    def targets(self, x: Float[np.ndarray, "n d"], x_next: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """What is regressed: the next state, of an angle by how far it turned."""
        found = x_next.copy()
        for c, room in enumerate(self.rooms):
            if room.ends == "wrapped":
                turn = room.upper - room.lower
                found[:, c] = np.mod(x_next[:, c] - x[:, c] + 0.5 * turn, turn) - 0.5 * turn
        return found

    def next(self, x: Float[np.ndarray, "n d"], target: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """The next state from what was regressed; angles are not wrapped."""
        return target + x * self._wrapped

    def slopes(
        self, x: Float[np.ndarray, "n d"], by_regressor: Float[np.ndarray, "n d q"]
    ) -> Float[np.ndarray, "n d d"]:
        """The derivative of the next state by the state."""
        found = np.empty((len(x), self.dim, self.dim))
        place = 0
        for c, room in enumerate(self.rooms):
            if room.ends != "wrapped":
                found[:, :, c] = by_regressor[:, :, place]
                place += 1
                continue
            turn = self._turn(c)
            cos, sin = np.cos(turn * x[:, c])[:, None], np.sin(turn * x[:, c])[:, None]
            found[:, :, c] = turn * (cos * by_regressor[:, :, place + 1] - sin * by_regressor[:, :, place])
            place += 2
        return found + np.diag(self._wrapped)

    @property
    def _wrapped(self) -> np.ndarray:
        return np.array([float(room.ends == "wrapped") for room in self.rooms])

    def _turn(self, c: int) -> float:
        return 2.0 * np.pi / (self.rooms[c].upper - self.rooms[c].lower)
