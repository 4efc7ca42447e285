"""Known dynamics as steps from places: x' = f(x) + noise, whatever f is made of, with slopes by central differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.gaussian.beliefs import numbers, positive_definite
from sosmarkov.learning.lattice.local import Steps
from sosmarkov.learning.lattice.view import Room

# States that are handed to a function at once.
_BLOCK = 100_000
# What bending may add to a mean, in deviations of the noise: beyond, the step jumps, and has no second derivative.
_BENT = 0.5


class Part(NamedTuple):
    """One normal of the noise.

    Attributes:
        weight: Its probability.
        shift: Its mean, shape (d,).
        covariance: Shape (d, d), or a function of states (N, d) that gives (N, d, d).
    """

    weight: float
    shift: Float[np.ndarray, " d"]
    covariance: np.ndarray | Callable[[np.ndarray], Any]

    def at(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d d"]:
        """The covariance at states."""
        shape = (*x.shape, x.shape[1])
        if not callable(self.covariance):
            return np.broadcast_to(self.covariance, shape)
        found = np.asarray(self.covariance(x), dtype=float)
        if found.shape != shape:
            raise ValueError(f"Expected noise(x) of shape {shape} for states of shape {x.shape}, got {found.shape}.")
        return positive_definite(numbers(found, "noise(x)"), "noise(x)")


def noise_of(noise: Any, dim: int) -> tuple[Part, ...]:
    """The normals of a covariance, of a function that gives one, or of a list of (weight, shift, covariance)."""
    if callable(noise) or _shape(noise) in ((dim, dim), ()):
        return (Part(1.0, np.zeros(dim), _covariance(noise, dim)),)
    try:
        given = [(float(weight), shift, covariance) for weight, shift, covariance in noise]
    except (TypeError, ValueError):
        raise ValueError(
            f"Expected noise as a covariance of shape ({dim}, {dim}), a function of states (N, {dim}) that gives"
            f" (N, {dim}, {dim}), or a list of (weight, shift, covariance), got {noise!r}."
        ) from None
    weights = numbers([weight for weight, _, _ in given], "weights of the noise")
    if not (np.all(weights > 0) and abs(np.sum(weights) - 1.0) < 1e-9):
        raise ValueError(f"Expected weights of the noise above zero with a sum of one, got {weights.tolist()}.")
    found = []
    for weight, shift, covariance in given:
        shift = np.atleast_1d(numbers(shift, "a shift of the noise"))
        if shift.shape != (dim,):
            raise ValueError(f"Expected shifts of the noise of shape ({dim},), got {shift.shape}.")
        found.append(Part(weight, shift, _covariance(covariance, dim)))
    return tuple(found)


def _shape(given: Any) -> tuple[int, ...] | None:
    try:
        return np.shape(np.asarray(given, dtype=float))
    except (TypeError, ValueError):
        return None


def _covariance(given: Any, dim: int) -> Any:
    if callable(given):
        return given
    found = numbers(given, "noise")
    found = found.reshape(1, 1) if found.ndim == 0 and dim == 1 else found
    if found.shape != (dim, dim):
        raise ValueError(f"Expected a covariance of the noise of shape ({dim}, {dim}), got {found.shape}.")
    return positive_definite(found, "noise")


class Known:
    """x' = f(x) + noise.

    Args:
        f: From states (N, d) to the next ones without noise, (N, d).
        parts: The normals that the noise is a mixture of.
        rooms: One a coordinate: differences of angles are less than half a turn.
        reach: Half of what central differences go over, shape (d,): half a spacing, as splines see no less.
    """

    def __init__(self, f: Callable[[np.ndarray], Any], parts: Sequence[Part], rooms: Sequence[Room], reach: np.ndarray):
        self.f, self.parts, self.rooms, self.reach = f, tuple(parts), tuple(rooms), reach

    def values(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """f(x), looked at."""
        found = [self._block(x[i : i + _BLOCK]) for i in range(0, len(x), _BLOCK)]
        return np.concatenate(found)

    def _block(self, x: np.ndarray) -> np.ndarray:
        found = np.asarray(self.f(x), dtype=float)
        if found.shape != x.shape:
            raise ValueError(f"Expected f(x) of shape {x.shape} for states of that shape, got {found.shape}.")
        bad = ~np.all(np.isfinite(found), axis=1)
        if np.any(bad):
            raise ValueError(
                f"Expected finite f(x) on the box and a few spacings beyond it, got NaN or infinite numbers at"
                f" {int(np.sum(bad))} states, such as {x[bad][0].tolist()}. Where states have a bound, say bounds=."
            )
        return found

    def moves(
        self, x: Float[np.ndarray, "n d"]
    ) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n d d"], Float[np.ndarray, "n d"]]:
        """f(x), its slopes, and what bending adds to its mean over states that spread by `reach` in each coordinate."""
        middle, d = self.values(x), x.shape[1]
        slope, bent = np.empty((*x.shape, d)), np.zeros(x.shape)
        for c, reach in enumerate(self.reach):
            step = np.zeros(d)
            step[c] = reach
            ahead, behind = (self._turned(self.values(x + s * step) - middle) for s in (1.0, -1.0))
            slope[:, :, c] = (ahead - behind) / (2.0 * reach)
            bent += 0.5 * (ahead + behind)
        return middle, slope, bent

    def _turned(self, away: np.ndarray) -> np.ndarray:
        for c, room in enumerate(self.rooms):
            if room.ends == "wrapped":
                turn = room.upper - room.lower
                away[:, c] = np.mod(away[:, c] + 0.5 * turn, turn) - 0.5 * turn
        return away

    def each(self, x: Float[np.ndarray, "n d"]) -> list[Steps]:
        """The steps of every part of the noise.

        Gates see f as a mean over splines, f(x) + h^2/8 f''(x) in each coordinate: nodes that go to f less this much
        leave what states do as it is. With differences over h that is half the sum of both.
        """
        (middle, slope, bent), near = self.moves(x), np.ones(len(x))
        found = []
        for part in self.parts:
            noise = part.at(x)
            most = _BENT * np.sqrt(np.einsum("naa->na", noise))
            smooth = np.all(np.abs(bent) <= most, axis=1, keepdims=True)
            found.append(Steps(middle + part.shift - np.where(smooth, bent, 0.0), slope, noise, near))
        return found

    def over(self, reach: Float[np.ndarray, " d"]) -> Known:
        """With differences over twice so much."""
        return Known(self.f, self.parts, self.rooms, reach)

    def deviations(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " d"]:
        """Of the noise where it is small, of its narrowest part."""
        each = [np.quantile(np.einsum("naa->na", part.at(x)), 0.25, axis=0) for part in self.parts]
        return np.sqrt(np.min(each, axis=0))

    def of(self, part: int) -> Single:
        """With one part of the noise alone."""
        return Single(self, part)


class Single:
    """Known dynamics with one of the normals of their noise.

    Args:
        known: The dynamics.
        part: Which one.
    """

    def __init__(self, known: Known, part: int):
        one = known.parts[part]
        self.known = Known(known.f, (one,), known.rooms, known.reach)

    def steps(self, x: Float[np.ndarray, "n d"], u: Float[np.ndarray, " e"] | None = None) -> Steps:
        """One step from each state."""
        del u
        return self.known.each(x)[0]


def box_of(lower: Any, upper: Any) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """Both ends of a box, finite, the lower ones below."""
    low, high = (
        np.atleast_1d(np.asarray(checks.as_float(end, name))) for end, name in ((lower, "lower"), (upper, "upper"))
    )
    if low.ndim != 1 or low.shape != high.shape or low.size == 0:
        raise ValueError(f"Expected lower and upper with a number for each coordinate, got {low.shape}, {high.shape}.")
    if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high)) and np.all(low < high)):
        raise ValueError(
            f"Expected finite lower < upper in every coordinate, got {low.tolist()} and {high.tolist()}. Give the box"
            " that states stay in, nearly always."
        )
    return low, high
