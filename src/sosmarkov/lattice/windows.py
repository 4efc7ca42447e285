"""Boxes over time: what gates see of the part of a belief that lies in a box."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.lattice import tables
from sosmarkov.lattice.axis import within_one_turn
from sosmarkov.lattice.beliefs import LatticeBelief
from sosmarkov.lattice.message import Met


class Box:
    """One box in data space.

    Args:
        lower: Shape (d,), or one number; -inf where it is open.
        upper: The same; inf where it is open.
        dim: Number of coordinates.
    """

    def __init__(self, lower: ArrayLike, upper: ArrayLike, dim: int):
        low, high = checks.box(lower, upper, dim)
        if low.ndim != 1 or high.ndim != 1:
            raise ValueError(f"Expected one box of {dim} coordinates, got ends of shape {low.shape} and {high.shape}.")
        self.lower, self.upper = np.asarray(low), np.asarray(high)

    def shared(self, other: Box) -> Box:
        """The box of what lies in both; where there is nothing, its ends are equal."""
        low, high = np.maximum(self.lower, other.lower), np.minimum(self.upper, other.upper)
        return Box(low, np.maximum(low, high), len(low))

    def holds(self, state: Float[np.ndarray, " d"], axes: Any) -> float:
        """One where a state lies in the box, else zero."""
        found = 1.0
        for c, axis in enumerate(axes):
            x = axis.inside(state[c])
            pieces = axis.pieces(self.lower[c], self.upper[c])
            found *= float(any(low < x < high for low, high in pieces))
        return found


class Window:
    """What of a belief goes on: a sum of boxes with signs, or of all there is.

    Args:
        transition: Whose gates.
        boxes: A sign for each; None stands for all there is.
    """

    def __init__(self, transition: Any, boxes: tuple[tuple[int, Box | None], ...]):
        self.transition, self.boxes = transition, boxes
        self._parts: list[tuple[int, list, np.ndarray]] | None = None

    def __add__(self, other: Window) -> Window:
        """Both together."""
        return Window(self.transition, self.boxes + other.boxes)

    def __sub__(self, other: Window) -> Window:
        """The one without the other."""
        return Window(self.transition, self.boxes + tuple((-sign, box) for sign, box in other.boxes))

    def _seen(self, box: Box | None, broad: Any) -> list[tables.Seen]:
        found = []
        for c, axis in enumerate(self.transition.nodes.axes):
            own = broad.onto([c])
            if box is None or (box.lower[c] == -np.inf and box.upper[c] == np.inf):
                found.append(tables.plain(axis, own))
            else:
                found.append(tables.over_box(axis, own, float(box.lower[c]), float(box.upper[c])))
        return found

    @property
    def parts(self) -> list[tuple[int, list, np.ndarray]]:
        """For each box its sign, its bands, and what gates see of the broad part in it."""
        if self._parts is None:
            nodes, found = self.transition.nodes, []
            for sign, box in self.boxes:
                each = self._seen(box, self.transition.broad)
                bands = nodes.meet([one.table for one in each])
                found.append((sign, bands, nodes.gathered([one.broad for one in each])))
            self._parts = found
        return self._parts

    def seen(self, C: np.ndarray) -> np.ndarray:
        """What gates see of beliefs with these numbers, in the window."""
        total = np.zeros((len(self.transition.nodes), *C.shape[1:]))
        for sign, bands, broad in self.parts:
            held = C[:-1]
            for band in bands:
                held = band @ held
            total += sign * (held + np.multiply.outer(broad, C[-1]))
        return total

    def __call__(self, C: Float[np.ndarray, " q"]) -> Met:
        """The message of what is seen of a belief."""
        return Met(self.seen(np.asarray(C)), 0.0)

    def shares(self, C: np.ndarray) -> Float[Any, "*k"]:
        """The mass that is seen of each of these."""
        return np.asarray(C) @ self.masses()

    def masses(self) -> Float[np.ndarray, " q"]:
        """The integral of each density over the window."""
        nodes, broad = self.transition.nodes, self.transition.broad
        total = np.zeros(len(nodes) + 1)
        for sign, box in self.boxes:
            own, last = np.ones(len(nodes)), 1.0
            for c, axis in enumerate(nodes.axes):
                if box is None:
                    continue
                low, high = box.lower[c : c + 1], box.upper[c : c + 1]
                own = own * axis.shares_of(low, high)[0][nodes.places[:, c]]
                last = last * sum(float(broad.share(c, *piece)[0]) for piece in axis.pieces(low, high))
            total += sign * np.append(own, last)
        return total

    def enter(self, belief: Any) -> Met:
        """The same of a belief that starts."""
        nodes = self.transition.nodes
        if isinstance(belief, LatticeBelief) and belief.nodes == nodes:
            total = np.zeros(len(nodes))
            for sign, box in self.boxes:
                each = self._seen(box, belief.broad)
                total += sign * nodes.met(belief.C[:-1], [one.table for one in each])
                total += sign * belief.C[-1] * nodes.gathered([one.broad for one in each])
            return Met(total, 0.0)
        panels, total = self.transition.cells(belief).panels, np.zeros(len(nodes))
        for sign, box in self.boxes:
            ends = (np.full(nodes.dim, -np.inf), np.full(nodes.dim, np.inf)) if box is None else (box.lower, box.upper)
            for low, high in within_one_turn(nodes.axes, *ends):
                x, w = panels.clipped(low, high).points()
                at, values = nodes.gates(x)
                total += sign * np.bincount(at.reshape(-1), (values * w[:, None]).reshape(-1), len(nodes))
        return Met(total, 0.0)

    def log_prob(self, state: Any) -> float:
        """Zero where a state is seen, else -inf."""
        state, axes = np.asarray(state), self.transition.nodes.axes
        held = sum(sign * (1.0 if box is None else box.holds(state, axes)) for sign, box in self.boxes)
        with np.errstate(divide="ignore"):
            return float(np.log(held))
