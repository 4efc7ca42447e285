"""One coordinate of a lattice: evenly spaced nodes, and what becomes of a spline that reaches past their ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from sosmarkov.core.stored import require, stored
from sosmarkov.lattice import splines

Ends = Literal["open", "wrapped", "lower", "upper", "both"]
ENDS = ("open", "wrapped", "lower", "upper", "both")


def _sound(axis: Axis) -> None:
    require(np.isfinite(axis.origin) and np.isfinite(axis.spacing), "a finite origin and spacing of an axis")
    require(axis.spacing > 0 and axis.count > 0, "a positive spacing and nodes on an axis")
    require(axis.ends in ENDS, f"ends of an axis among {ENDS}")
    require(axis.ends != "wrapped" or axis.count >= 3, "at least three nodes on a circle")


@stored(check=_sound)
@dataclass(frozen=True)
class Axis:
    """Nodes origin + spacing i, i = 0, ..., count - 1.

    Past an open end there are further nodes of Z, which belong to no list. An angle wraps round (i mod count, the
    period is count spacings); a bound reflects: it lies half a spacing before the first node (or after the last), and
    what a spline has beyond it is folded back. Sums of splines stay one, and integrals of products stay the five taps.

    Attributes:
        origin: The first node.
        spacing: From one node to the next.
        count: How many nodes.
        ends: "open", "wrapped", "lower", "upper" or "both": where it is bounded.
    """

    origin: float
    spacing: float
    count: int
    ends: str = "open"

    @property
    def nodes(self) -> Float[np.ndarray, " n"]:
        """Where they are."""
        return self.origin + self.spacing * np.arange(self.count)

    @property
    def lower(self) -> float:
        """Where the states begin: the bound, or the cut of a circle; else minus infinity."""
        return self.origin - 0.5 * self.spacing if self.ends in ("wrapped", "lower", "both") else -np.inf

    @property
    def upper(self) -> float:
        """Where the states end."""
        end = self.origin + self.spacing * (self.count - 0.5)
        return end if self.ends in ("wrapped", "upper", "both") else np.inf

    def fold(self, places: Int[Any, "*n"]) -> Int[Any, "*n"]:
        """Places of Z after wrapping and reflecting; past an open end they stay what they are."""
        if self.ends == "wrapped":
            return places % self.count
        if self.ends in ("lower", "both"):
            places = np.where(places < 0, -1 - places, places)
        if self.ends in ("upper", "both"):
            places = np.where(places >= self.count, 2 * self.count - 1 - places, places)
        # Few nodes between two bounds: a spline may reach past both.
        return np.clip(places, 0, self.count - 1) if self.ends == "both" and self.count < 3 else places

    def inside(self, x: Float[Any, "*n"]) -> Float[Any, "*n"]:
        """The same states between the ends of a circle; others as they are."""
        if self.ends != "wrapped":
            return x
        return self.lower + np.mod(x - self.lower, self.spacing * self.count)

    def pieces(self, lower: Any, upper: Any) -> list[tuple[Any, Any]]:
        """An interval as parts within the ends: one, or on a circle two, where it goes across the cut.

        On a circle, finite ends may lie in any turn; an infinite one is the cut. Empty parts have lower >= upper.
        """
        lower, upper = np.broadcast_arrays(np.asarray(lower, dtype=float), np.asarray(upper, dtype=float))
        plain = np.maximum(lower, self.lower), np.minimum(upper, self.upper)
        if self.ends != "wrapped":
            return [plain]
        period = self.spacing * self.count
        turned = np.isfinite(lower) & np.isfinite(upper) & (upper - lower < period)
        begin = np.where(turned, self.inside(np.where(turned, lower, 0.0)), plain[0])
        end = np.where(turned, begin + np.where(turned, upper - lower, 0.0), plain[1])
        whole = np.isfinite(lower) & np.isfinite(upper) & ~turned
        begin, end = np.where(whole, self.lower, begin), np.where(whole, self.upper, end)
        return [(begin, np.minimum(end, self.upper)), (np.full_like(begin, self.lower), end - period)]

    def allowed(self, x: Float[Any, "*n"]) -> Any:
        """Whether states lie within the bounds."""
        if self.ends == "wrapped":
            return np.ones(np.shape(x), dtype=bool)
        return (x >= self.lower) & (x <= self.upper)

    def seen(
        self, x: Float[np.ndarray, " n"], slopes: bool = False
    ) -> tuple[Int[np.ndarray, "n 3"], Float[np.ndarray, "n 3"]]:
        """The three splines that are not zero at each state: their nodes' places, folded, and values or slopes."""
        u = (self.inside(x) - self.origin) / self.spacing
        # States far beyond all nodes see the outermost ones whole.
        u = np.clip(u, -4.0, self.count + 3.0)
        nearest = np.rint(u).astype(np.int64)
        values = splines.near_slopes(u - nearest) / self.spacing if slopes else splines.near(u - nearest)
        return self.fold(nearest[:, None] + np.arange(-1, 2)), values

    def shares(self, lower: Float[np.ndarray, " b"], upper: Float[np.ndarray, " b"]) -> Float[np.ndarray, "b n"]:
        """int_lower^upper of each node's density; what was folded included. Ends of a circle lie in one turn of it."""
        lower, upper = np.maximum(lower, self.lower), np.minimum(upper, self.upper)
        found = self._plain_shares(lower, upper)
        if self.ends == "wrapped":
            period = self.spacing * self.count
            found = found + sum(self._plain_shares(lower + turn, upper + turn) for turn in (-period, period))
        if self.ends in ("lower", "both"):
            found = found + self._plain_shares(2.0 * self.lower - upper, 2.0 * self.lower - lower)
        if self.ends in ("upper", "both"):
            found = found + self._plain_shares(2.0 * self.upper - upper, 2.0 * self.upper - lower)
        return found

    def shares_of(self, lower: Float[np.ndarray, " b"], upper: Float[np.ndarray, " b"]) -> Float[np.ndarray, "b n"]:
        """The same for intervals whose ends lie anywhere, on a circle in any turn of it."""
        return sum(self.shares(*piece) for piece in self.pieces(lower, upper))  # type: ignore[return-value]

    def cells(self) -> Int[np.ndarray, " k"]:
        """Places whose cells, half a spacing to either side, splines of nodes reach: one more past an open end."""
        return np.arange(-1 if self.lower == -np.inf else 0, self.count + (1 if self.upper == np.inf else 0))

    def around(self, values: Float[np.ndarray, "*k n"]) -> Float[np.ndarray, "*k c 3"]:
        """For each cell, what its three splines have of the nodes' values: zero for places that are no nodes."""
        at = self.fold(self.cells()[:, None] + np.arange(-1, 2))
        there = (at >= 0) & (at < self.count)
        return np.where(there, values[..., np.where(there, at, 0)], 0.0)

    def centres(self) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Mean and variance of each node's density: its place and h^2/4, but where it is folded."""
        places, weights = splines.cell_rule(6)
        t = np.concatenate([cell + places for cell in (-1.0, 0.0, 1.0)])
        share = splines.spline(t) * np.tile(weights, 3)
        x = self.folded(self.nodes[:, None] + self.spacing * t)
        # From the node, so that far from zero no digits are lost.
        away = x - self.nodes[:, None]
        mean = away @ share
        return self.nodes + mean, ((away - mean[:, None]) ** 2) @ share

    def folded(self, x: Any) -> Any:
        """States past the ends, brought back as splines are: round the circle, or mirrored."""
        if self.ends == "wrapped":
            return self.inside(x)
        if self.ends in ("lower", "both"):
            x = np.where(x < self.lower, 2.0 * self.lower - x, x)
        if self.ends in ("upper", "both"):
            x = np.where(x > self.upper, 2.0 * self.upper - x, x)
        return x

    def _plain_shares(self, lower: np.ndarray, upper: np.ndarray) -> Float[np.ndarray, "b n"]:
        ends = ((end[:, None] - self.origin) / self.spacing - np.arange(self.count) for end in (lower, upper))
        return splines.between(*ends)

    def moments(self, most: int = 4) -> Float[np.ndarray, "n k"]:
        """E[x^k] of each node's density, k = 0, ..., most, over its cells, three for each node."""
        places, weights = splines.cell_rule(6)
        t = np.concatenate([cell + places for cell in (-1.0, 0.0, 1.0)])
        share = splines.spline(t) * np.tile(weights, 3)
        x = self.folded(self.nodes[:, None] + self.spacing * t)
        return np.einsum("q,nqk->nk", share, x[..., None] ** np.arange(most + 1))


def within_one_turn(
    axes: Sequence[Axis], lower: Float[np.ndarray, " d"], upper: Float[np.ndarray, " d"]
) -> list[tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]]:
    """A box as boxes that go across no cut of a circle."""
    found = [(lower, upper)]
    for c, axis in enumerate(axes):
        split = []
        for low, high in axis.pieces(lower[c], upper[c]) if axis.ends == "wrapped" else ():
            split += [(_with(one[0], c, low), _with(one[1], c, high)) for one in found if low < high]
        found = split if axis.ends == "wrapped" else found
    return found


def _with(end: np.ndarray, c: int, value: Any) -> np.ndarray:
    found = np.array(end)
    found[c] = value
    return found
