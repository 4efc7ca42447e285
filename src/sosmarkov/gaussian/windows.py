"""Boxes of a linear-Gaussian step: their shares of beliefs; what goes on from one is no Gaussian any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.gaussian.mixture import Mixture
from sosmarkov.gaussian.normal import boxes


class Message(NamedTuple):
    """A belief as it enters a step: a mixture of mass one, times exp(log_scale)."""

    mixture: Mixture
    log_scale: Any


class Box:
    """A box in data space.

    Args:
        lower: Shape (d,); -inf where it is open.
        upper: Shape (d,); inf where it is open.
        dim: Coordinates of a state.
    """

    def __init__(self, lower: ArrayLike, upper: ArrayLike, dim: int):
        ends = checks.box(lower, upper, dim)
        if any(end.ndim != 1 for end in ends):
            raise ValueError(f"Expected one box, got ends of shape {ends[0].shape} and {ends[1].shape}.")
        self.lower, self.upper, self.dim = np.asarray(ends[0]), np.asarray(ends[1]), dim

    @property
    def whole(self) -> bool:
        """Whether it leaves nothing out."""
        return bool(np.all(self.lower == -np.inf) and np.all(self.upper == np.inf))

    def shared(self, other: Box) -> Box:
        """What lies in both."""
        lower = np.maximum(self.lower, other.lower)
        return Box(lower, np.maximum(lower, np.minimum(self.upper, other.upper)), self.dim)

    def shares(self, C: Mixture) -> ndarray:
        """Probabilities under beliefs with these numbers, one a row."""
        means, covariances = C.means.reshape(-1, self.dim), C.covariances.reshape(-1, self.dim, self.dim)
        found, _ = boxes(self.lower[None], self.upper[None], means, covariances)
        return np.sum(C.weights * found[0].reshape(C.weights.shape), axis=-1)


@dataclass(frozen=True)
class Window:
    """Boxes that are added and subtracted.

    Args:
        parts: A sign for each.
    """

    parts: tuple[tuple[int, Box], ...]

    def __add__(self, other: Window) -> Window:
        """Both."""
        return Window(self.parts + other.parts)

    def __sub__(self, other: Window) -> Window:
        """The first without the second."""
        return Window(self.parts + tuple((-sign, box) for sign, box in other.parts))

    def shares(self, C: Mixture) -> ndarray:
        """Probabilities under beliefs with these numbers, one a row."""
        return np.sum([sign * box.shares(C) for sign, box in self.parts], axis=0)

    def let_through(self) -> float:
        """One where it leaves nothing out, zero where it is empty; anything else is refused."""
        kept = sum(sign * box.whole for sign, box in self.parts)
        rest = [(sign, box) for sign, box in self.parts if not box.whole and np.all(box.lower < box.upper)]
        if rest:
            raise ValueError(
                "Expected steps=1, or a box without ends, of a process in the gaussian form, got a box: what stays in a"
                " box is no Gaussian any more, and has no closed form. Learn the process with form='lattice' or"
                " form='factor', or count trajectories of process.sample."
            )
        return float(kept)

    def __call__(self, C: Mixture) -> Message:
        """The message of what goes on."""
        return self.of(C)

    def of(self, mixture: Mixture) -> Message:
        """The message of what a start leaves."""
        return Message(mixture._replace(weights=self.let_through() * mixture.weights), 0.0)
