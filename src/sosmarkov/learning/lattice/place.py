"""Where nodes go: how fine a lattice a step's noise asks for, and which states it may see."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.ndimage import binary_fill_holes

from sosmarkov.lattice.axis import Axis
from sosmarkov.lattice.nodes import MOST_PLACES, Nodes, covering
from sosmarkov.learning.lattice.local import Stepper
from sosmarkov.learning.lattice.surrogate import Surrogate
from sosmarkov.learning.lattice.view import Room

# Spacings that are tried, in deviations of the noise, and the variance in squares of a spacing that rows shall keep.
_SPACINGS = np.geomspace(0.95, 0.1, 24)
_ROOM = 0.2
# The share of states whose rows may be narrower than that.
_NARROW = 0.05
# By the number of coordinates: nodes at most, how far beyond the states they go in spreads of these, and how many
# deviations of its noise a step may lead off.
_BUDGET, _BEYOND, _FAR = (20_000, 60_000, 120_000), (0.4, 0.2, 0.0), (4.0, 3.0, 2.0)


def spacing_for(
    stepper: Stepper, x: Float[np.ndarray, "n d"], acting: Sequence[Float[np.ndarray, " e"] | None]
) -> Float[np.ndarray, " d"]:
    """The widest spacing that leaves rows their noise: what entering and leaving a spline blurs is less.

    The blur is H + F H F^T, H = diag(h^2/4); the least eigenvalue of what is left of Q, in squares of the spacing, is
    to be 0.2 or more at nearly all states, under whatever acts.
    """
    some = x[:: max(1, len(x) * len(acting) // 800)]
    each = [stepper.steps(some, u) for u in acting]
    noise, slope = (np.concatenate([getattr(one, name) for one in each]) for name in ("noise", "slope"))
    deviations = np.sqrt(np.quantile(np.einsum("naa->na", noise), 0.25, axis=0))
    noise = noise / (deviations[:, None] * deviations)
    slope = slope * deviations / deviations[:, None]
    blur = 0.25 * (np.eye(x.shape[1]) + slope @ np.swapaxes(slope, 1, 2))
    for c in _SPACINGS:
        least = np.linalg.eigvalsh(noise / c**2 - blur)[:, 0]
        if np.quantile(least, _NARROW) >= _ROOM:
            return c * deviations
    return _SPACINGS[-1] * deviations


def axes_for(low: np.ndarray, high: np.ndarray, spacing: np.ndarray, rooms: Sequence[Room]) -> list[Axis]:
    """Axes over a box, widened by what splines reach; a circle is divided evenly, a bound lies half a spacing out."""
    found = []
    for a, b, h, room in zip(low, high, spacing, rooms, strict=True):
        if room.ends in ("wrapped", "both"):
            count = max(int(np.ceil((room.upper - room.lower) / h)), 5)
            h = (room.upper - room.lower) / count
            found.append(Axis(float(room.lower + 0.5 * h), float(h), count, room.ends))
            continue
        if room.ends == "upper":
            count = max(int(np.ceil((room.upper - a) / h)), 1) + 3
            found.append(Axis(float(room.upper - h * (count - 0.5)), float(h), count, "upper"))
            continue
        begin = room.lower + 0.5 * h if room.ends == "lower" else a - 3.0 * h
        found.append(Axis(float(begin), float(h), max(int(np.ceil((b - begin) / h)), 1) + 3, room.ends))
    return found


def reached(
    surrogate: Stepper, x: Float[np.ndarray, "n d"], u: Float[np.ndarray, " e"] | None, deviations: float
) -> Float[np.ndarray, "m d"]:
    """Where a step may lead from some states: its mean, and so many deviations along each axis of its noise."""
    found = surrogate.steps(x, u)
    values, vectors = np.linalg.eigh(found.noise)
    out = deviations * np.sqrt(np.maximum(values, 0.0))[:, None] * vectors
    around = np.moveaxis(out, 2, 0)
    return np.concatenate(
        [found.mean, *(found.mean + step for step in around), *(found.mean - step for step in around)]
    )


def widened_states(x: Float[np.ndarray, "n d"], share: float) -> Float[np.ndarray, "m d"]:
    """States moved outwards from the middle, those that lie far out themselves."""
    middle, spread = np.mean(x, axis=0), np.std(x, axis=0)
    away = np.sqrt(np.sum(((x - middle) / np.where(spread > 0, spread, 1.0)) ** 2, axis=1))
    outer = x[away >= np.quantile(away, 0.7)]
    return np.concatenate([middle + (1.0 + part) * (outer - middle) for part in np.linspace(share / 4.0, share, 4)])


def place(
    surrogate: Surrogate,
    states: Float[np.ndarray, "n d"],
    spacing: Float[np.ndarray, " d"],
    acting: Sequence[Float[np.ndarray, " e"] | None],
) -> Nodes:
    """Nodes at states, somewhat beyond, and where steps from all these lead; farther apart where they were too many."""
    d, rooms = states.shape[1], surrogate.ground.view.rooms
    beyond = widened_states(_some(states), _BEYOND[d - 1])
    seen = _some(states)[:: len(acting)]
    led = [reached(surrogate, seen, u, _FAR[d - 1]) for u in acting] + [
        surrogate.steps(_some(beyond), u).mean for u in acting
    ]
    points = np.concatenate([states, beyond, *led])
    for c, room in enumerate(rooms):
        if room.ends != "wrapped":
            points[:, c] = np.clip(points[:, c], room.lower, room.upper)
    while True:
        axes = axes_for(points.min(axis=0), points.max(axis=0), spacing, rooms)
        if np.prod([float(axis.count) for axis in axes]) <= MOST_PLACES:
            found = filled(covering(axes, points, 2 if d < 3 else 1))
            if len(found) <= _BUDGET[d - 1]:
                return found
            spacing = spacing * max(1.02, (len(found) / _BUDGET[d - 1]) ** (1.0 / d))
        else:
            spacing = spacing * 1.5


def _some(x: Float[np.ndarray, "n d"], most: int = 20_000) -> Float[np.ndarray, "m d"]:
    return x[:: max(1, len(x) // most)]


def filled(nodes: Nodes) -> Nodes:
    """With the holes in them: a state may cross where none was seen."""
    if nodes.dim != 2 or len(nodes) == len(nodes.member):
        return nodes
    there = (nodes.member >= 0).reshape(nodes.shape)
    return Nodes(nodes.axes, np.flatnonzero(np.asarray(binary_fill_holes(there))))
