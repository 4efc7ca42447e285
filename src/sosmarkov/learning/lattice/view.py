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

    def design(self, x: Float[np.ndarray, "n d"], u: Float[np.ndarray, "n e"] | None) -> Float[np.ndarray, "n p"]:
        """What the linear step is linear in: regressors; with a period slopes that change with its two harmonics."""
        found = self.regressors(x, u)
        if u is None or self.period is None:
            return found
        waves = self._waves(u)
        return np.concatenate([found, waves[:, 2:], *(x[:, [c]] * waves for c, _ in self._open)], axis=1)

    def by_regressor(self, u: Float[np.ndarray, "n e"] | None, slope: Float[np.ndarray, "d p"]) -> np.ndarray:
        """Derivatives of a linear step by the regressors of the coordinates, shape (n, d, q), or (1, d, q)."""
        if u is None or self.period is None:
            return slope[None]
        waves = self._waves(u)
        count = len(slope[0]) - 2 - waves.shape[1] * len(self._open)
        found = np.repeat(slope[None, :, :count], len(u), axis=0)
        for number, (_, place) in enumerate(self._open):
            begin = count + 2 + waves.shape[1] * number
            found[:, :, place] += waves @ slope[:, begin : begin + waves.shape[1]].T
        return found

    def _waves(self, u: np.ndarray) -> np.ndarray:
        """Cosine and sine of the time once and twice round the period, shape (n, 4)."""
        turn = 2.0 * np.pi * u[:, 0] / float(self.period or 1)
        return np.stack([f(k * turn) for k in (1, 2) for f in (np.cos, np.sin)], axis=1)

    @property
    def _open(self) -> list[tuple[int, int]]:
        """Coordinates that are no angles, and their places among the regressors."""
        places = np.cumsum([0, *(2 if room.ends == "wrapped" else 1 for room in self.rooms)])
        return [(c, int(places[c])) for c, room in enumerate(self.rooms) if room.ends != "wrapped"]

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
