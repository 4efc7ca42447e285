"""The broad part of a lattice process: a density for what no node speaks of, with honest tails, closed integrals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr, ndtr, ndtri

from sosmarkov.core.stored import require, stored
from sosmarkov.lattice import splines
from sosmarkov.lattice.axis import Axis
from sosmarkov.lattice.nodes import Nodes

_ORDER = 8


def _sound(broad: Broad) -> None:
    require(len(broad.axes) == len(broad.centre) == len(broad.width), "a centre and a width for each axis")
    require(bool(np.all(np.isfinite(broad.centre)) and np.all(broad.width > 0)), "finite centres and positive widths")


@stored(check=_sound)
@dataclass(frozen=True, eq=False)
class Broad:
    """t(x), a product over coordinates: normal; on a circle or between two bounds uniform; past one half a normal.

    Attributes:
        axes: Whose ends it goes by.
        centre: Means of the normals, shape (d,); of half a normal it is the bound.
        width: Standard deviations, shape (d,), before halving.
    """

    axes: tuple[Axis, ...]
    centre: Float[np.ndarray, " d"]
    width: Float[np.ndarray, " d"]

    def __eq__(self, other: object) -> bool:
        """Whether both are the same density, bit for bit."""
        if not isinstance(other, Broad) or self.axes != other.axes:
            return False
        return np.array_equal(self.centre, other.centre) and np.array_equal(self.width, other.width)

    def __hash__(self) -> int:
        """By its axes."""
        return hash(self.axes)

    def onto(self, kept: Sequence[int]) -> Broad:
        """The same over some coordinates, in the order given."""
        at = list(kept)
        return Broad(tuple(self.axes[c] for c in at), self.centre[at], self.width[at])

    def log_line(self, c: int, x: Float[Any, "*n"]) -> Float[Any, "*n"]:
        """The log-density of one coordinate; -inf beyond its bounds."""
        axis = self.axes[c]
        if axis.ends in ("wrapped", "both"):
            found = np.full(np.shape(x), -np.log(axis.spacing * axis.count))
        else:
            middle, twice = self.middle(c)
            z = (x - middle) / self.width[c]
            found = twice - 0.5 * z**2 - np.log(self.width[c]) - 0.5 * np.log(2.0 * np.pi)
        return np.where(axis.allowed(x), found, -np.inf)

    def log_prob(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """log t(x)."""
        return sum((self.log_line(c, x[:, c]) for c in range(len(self.axes))), start=np.zeros(len(x)))

    def share(self, c: int, lower: Float[Any, "*n"], upper: Float[Any, "*n"]) -> Float[Any, "*n"]:
        """P(lower < x_c < upper), by the nearer tail; zero where upper < lower."""
        axis = self.axes[c]
        lower, upper = np.maximum(lower, axis.lower), np.minimum(upper, axis.upper)
        if axis.ends in ("wrapped", "both"):
            return np.maximum(upper - lower, 0.0) / (axis.spacing * axis.count)
        middle, twice = self.middle(c)
        low, high = (lower - middle) / self.width[c], (upper - middle) / self.width[c]
        flip = low > 0
        low, high = np.where(flip, -high, low), np.where(flip, -low, high)
        return np.where(high > low, np.exp(twice) * (ndtr(high) - ndtr(low)), 0.0)

    def log_tail(self, c: int, x: float) -> float:
        """log P(x_c < x) of a normal coordinate, however far out."""
        return float(log_ndtr((x - self.centre[c]) / self.width[c]))

    def moments(self, c: int, most: int = 4) -> Float[np.ndarray, " k"]:
        """E[x_c^k] for k = 0, ..., most."""
        axis = self.axes[c]
        powers = np.arange(most + 1)
        if axis.ends in ("wrapped", "both"):
            ends = np.array([axis.lower, axis.upper])[:, None] ** (powers + 1)
            return (ends[1] - ends[0]) / ((powers + 1) * (axis.upper - axis.lower))
        # E|z|^k of a standard normal z, or E[z^k]; then the binomial expansion of (middle + width z)^k.
        middle, _ = self.middle(c)
        whole = np.array([1.0, 0.0, 1.0, 0.0, 3.0])
        half = np.array([1.0, np.sqrt(2.0 / np.pi), 1.0, 2.0 * np.sqrt(2.0 / np.pi), 3.0])
        signs = (-1.0) ** powers if axis.ends == "upper" else np.ones(most + 1)
        z = (whole if axis.ends == "open" else half[: most + 1] * signs)[: most + 1] * self.width[c] ** powers
        binomials = [[math.comb(k, j) * middle ** (k - j) for j in range(k + 1)] for k in powers]
        return np.array([np.dot(row, z[: len(row)]) for row in binomials])

    def spread(self, c: int) -> tuple[float, float]:
        """Mean and variance of one coordinate."""
        axis, width = self.axes[c], float(self.width[c])
        if axis.ends in ("wrapped", "both"):
            return 0.5 * (axis.lower + axis.upper), (axis.upper - axis.lower) ** 2 / 12.0
        middle, _ = self.middle(c)
        if axis.ends == "open":
            return middle, width**2
        away = width * math.sqrt(2.0 / math.pi)
        return middle + (away if axis.ends == "lower" else -away), width**2 * (1.0 - 2.0 / math.pi)

    def tail(self, c: int, share: Float[Any, "*n"], upper: bool) -> Float[Any, "*n"]:
        """Where an open side of one coordinate has this share beyond it."""
        middle, twice = self.middle(c)
        z = -ndtri(np.minimum(share * np.exp(-twice), 1.0))
        return middle + self.width[c] * (z if upper else -z)

    def sample(self, generator: np.random.Generator, count: int) -> Float[np.ndarray, "n d"]:
        """Independent draws."""
        found = np.empty((count, len(self.axes)))
        for c, axis in enumerate(self.axes):
            if axis.ends in ("wrapped", "both"):
                found[:, c] = generator.uniform(axis.lower, axis.upper, count)
                continue
            middle, _ = self.middle(c)
            z = self.width[c] * generator.standard_normal(count)
            sign = {"open": 0, "lower": 1, "upper": -1}[axis.ends]
            found[:, c] = middle + (z if sign == 0 else sign * np.abs(z))
        return found

    def met(self, nodes: Nodes) -> Float[np.ndarray, " n"]:
        """int w_i t: what the gates see of it, with a sum of one."""
        return nodes.gathered([self.seen(c) for c in range(len(self.axes))])

    def seen(self, c: int) -> Float[np.ndarray, " k"]:
        """int B_i t_c of each place of an axis; the outermost ones of an open end stand for all beyond."""
        axis = self.axes[c]
        places, weights = splines.cell_rule(_ORDER)
        cells = np.arange(-2 if axis.lower == -np.inf else 0, axis.count + (2 if axis.upper == np.inf else 0))
        x = axis.origin + axis.spacing * (cells[:, None] + places)
        density = np.exp(self.log_line(c, x)) * weights * axis.spacing
        found = np.zeros(axis.count)
        for step, value in zip(
            (-1, 0, 1), np.moveaxis(splines.near(np.broadcast_to(places, x.shape)), -1, 0), strict=True
        ):
            to = np.clip(axis.fold(cells + step), 0, axis.count - 1)
            np.add.at(found, to, np.sum(density * value, axis=1))
        first, last = (axis.origin + axis.spacing * (cells[end] + side) for end, side in ((0, -0.5), (-1, 0.5)))
        found[0] += self.share(c, np.asarray(-np.inf), np.asarray(first))
        found[-1] += self.share(c, np.asarray(last), np.asarray(np.inf))
        return found / np.sum(found)

    def middle(self, c: int) -> tuple[float, float]:
        """Where the normal has its top, and the logarithm of two where half of it is cut off."""
        axis = self.axes[c]
        if axis.ends == "lower":
            return axis.lower, float(np.log(2.0))
        if axis.ends == "upper":
            return axis.upper, float(np.log(2.0))
        return float(self.centre[c]), 0.0
