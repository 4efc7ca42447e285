"""Densities as polynomials on boxes: what has no closed form on a lattice, fitted until it stands still.

On each box the density is known at Gauss-Legendre nodes, and is the polynomial through them: integrals, boxes, lines,
marginals and draws are those of the polynomials. Boxes are halved until the last Legendre coefficients vanish.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.ndimage import maximum_filter

# Nodes along each side of a box, by the number of coordinates.
_ORDERS = {1: 16, 2: 10, 3: 5, 4: 4}
# What the polynomial on a box may miss of the whole, by the number of coordinates; what all may miss together before it
# is said.
TOLERANCES = {1: 1e-12, 2: 1e-11, 3: 1e-6, 4: 1e-5}
REACHED = {1: 1e-9, 2: 1e-8, 3: 1e-3, 4: 1e-2}
# What the boxes that are not looked at may hold, as a share of the whole.
_LEFT_OUT = {1: 1e-17, 2: 1e-15, 3: 1e-8, 4: 1e-6}
# Logarithms: by how much a corner may be above all nodes of its box, and what is too faint to matter.
_UNSEEN, _FAINT = 6.0, 42.0
_MOST_VALUES, _ROUNDS, _BLOCK = 3_000_000, 60, 200_000
_EPS = np.finfo(float).eps

LogDensity = Callable[[np.ndarray], np.ndarray]


@cache
def _rule(order: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places and weights on [-1, 1], weights with a sum of one, and from values to Legendre coefficients."""
    u, w = np.polynomial.legendre.leggauss(order)
    degrees = np.arange(order)
    return u, 0.5 * w, (degrees[:, None] + 0.5) * np.polynomial.legendre.legvander(u, order - 1).T * w


def _at(order: int, u: np.ndarray) -> np.ndarray:
    """Weights of the values in the polynomial at u, shape (..., order)."""
    return np.polynomial.legendre.legvander(u, order - 1) @ _rule(order)[2]


def _up_to(order: int, u: np.ndarray) -> np.ndarray:
    """The same of its integral from -1 to u, divided by the length, two."""
    P = np.polynomial.legendre.legvander(u, order)
    below = np.concatenate([np.ones_like(P[..., :1]) * -1.0, P[..., :-2]], axis=-1)
    degrees = np.arange(order)
    return 0.5 * ((P[..., 1:] - below) / (2 * degrees + 1)) @ _rule(order)[2]


class Line(NamedTuple):
    """One coordinate: a polynomial on each of some intervals that do not overlap.

    Attributes:
        edges: Ends of the intervals, lower and upper, shape (a,) each, in order.
        coefficients: Legendre coefficients times the length, shape (a, m).
        below: What lies before each interval, shape (a + 1,).
    """

    lower: Float[np.ndarray, " a"]
    upper: Float[np.ndarray, " a"]
    coefficients: Float[np.ndarray, "a m"]
    below: Float[np.ndarray, " b"]

    def quantiles(self, shares: Float[np.ndarray, " s"]) -> Float[np.ndarray, " s"]:
        """Newton's steps between the ends of the interval that holds each."""
        at = np.clip(np.searchsorted(self.below, shares, side="right") - 1, 0, len(self.lower) - 1)
        a, wanted = self.coefficients[at], shares - self.below[at]
        low, high, u = -np.ones(len(at)), np.ones(len(at)), np.zeros(len(at))
        for _ in range(100):
            mass, slope = _integral(a, u), _value(a, u)
            gap = mass - wanted
            low, high = np.where(gap < 0, u, low), np.where(gap < 0, high, u)
            with np.errstate(divide="ignore", invalid="ignore"):
                newton = u - gap / slope
            moved = np.where((newton >= low) & (newton <= high), newton, 0.5 * (low + high))
            step, u = np.max(np.abs(moved - u)), moved
            if step < 4.0 * _EPS:
                break
        return self.lower[at] + 0.5 * (u + 1.0) * (self.upper - self.lower)[at]

    def cdf(self, x: Float[np.ndarray, " t"]) -> Float[np.ndarray, " t"]:
        """What lies up to x."""
        at = np.clip(np.searchsorted(self.lower, x, side="right") - 1, 0, len(self.lower) - 1)
        u = np.clip(2.0 * (x - self.lower[at]) / (self.upper - self.lower)[at] - 1.0, -1.0, 1.0)
        return np.where(x < self.lower[0], 0.0, self.below[at] + _integral(self.coefficients[at], u))


def _value(a: np.ndarray, u: np.ndarray) -> np.ndarray:
    return 0.5 * np.einsum("sm,sm->s", np.polynomial.legendre.legvander(u, a.shape[1] - 1), a)


def _integral(a: np.ndarray, u: np.ndarray) -> np.ndarray:
    P = np.polynomial.legendre.legvander(u, a.shape[1])
    below = np.concatenate([-np.ones_like(P[:, :1]), P[:, :-2]], axis=1)
    return 0.5 * np.einsum("sm,sm->s", (P[:, 1:] - below) / (2 * np.arange(a.shape[1]) + 1), a)


class Panels(NamedTuple):
    """A density on boxes, which may overlap: their polynomials add up.

    Attributes:
        lower: Lower ends, shape (b, d).
        upper: Upper ends, shape (b, d).
        values: At the Gauss-Legendre nodes of each box, shape (b, m, ..., m), with an integral of one.
        error: What the polynomials may miss of it.
    """

    lower: Float[np.ndarray, "b d"]
    upper: Float[np.ndarray, "b d"]
    values: np.ndarray
    error: float

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.lower.shape[1]

    @property
    def order(self) -> int:
        """Nodes along each side."""
        return self.values.shape[1]

    @property
    def masses(self) -> Float[np.ndarray, " b"]:
        """Of each box."""
        return self._contracted([np.broadcast_to(_rule(self.order)[1], (len(self.lower), self.order))] * self.dim)

    def points(self) -> tuple[Float[np.ndarray, "q d"], Float[np.ndarray, " q"]]:
        """All nodes, and what of the whole each stands for."""
        x, w = nodes_of(self.lower, self.upper, self.order)
        return x, w * self.values.reshape(-1)

    def _contracted(self, weights: Sequence[Float[np.ndarray, "b m"]]) -> Float[np.ndarray, " b"]:
        """The values summed over all axes of each box, times the lengths of its sides."""
        found = self.values
        for w in weights[::-1]:
            found = np.einsum("b...m,bm->b...", found, w)
        return found * np.prod(self.upper - self.lower, axis=1)

    def value(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """The density at states."""
        return np.array([float(np.sum(self._given(dict(enumerate(one)))[2])) for one in x])

    def _given(self, fixed: dict[int, float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The boxes that hold some coordinates' values, and the polynomials there over the others."""
        at = list(fixed)
        x = np.array([fixed[c] for c in at])
        lower, upper = self.lower[:, at], self.upper[:, at]
        inside = np.all((x >= lower) & (x < upper), axis=1)
        values, u = self.values[inside], 2.0 * (x - lower[inside]) / (upper - lower)[inside] - 1.0
        for i in np.argsort(at)[::-1]:
            values = np.einsum("bm...,bm->b...", np.moveaxis(values, at[i] + 1, 1), _at(self.order, u[:, i]))
        kept = [c for c in range(self.dim) if c not in fixed]
        return self.lower[inside][:, kept], self.upper[inside][:, kept], values

    def condition(self, fixed: dict[int, float]) -> tuple[float, Panels]:
        """The density of the fixed values, and that of the others given them."""
        lower, upper, values = self._given(fixed)
        found = Panels(lower, upper, values, self.error)
        total = float(np.sum(found.masses)) if len(lower) else 0.0
        return total, found._replace(values=values / total) if total > 0 else found

    def marginal(self, kept: Sequence[int]) -> Panels:
        """Over some coordinates, in the order given."""
        gone = [c for c in range(self.dim) if c not in kept]
        values, w = self.values, _rule(self.order)[1]
        for c in gone[::-1]:
            values = (
                np.moveaxis(values, c + 1, -1)
                @ w
                * (self.upper - self.lower)[:, c].reshape(-1, *[1] * (values.ndim - 2))
            )
        left = [c for c in range(self.dim) if c in kept]
        values = np.moveaxis(values, [left.index(c) + 1 for c in kept], range(1, len(kept) + 1))
        return Panels(self.lower[:, list(kept)], self.upper[:, list(kept)], values, self.error)

    def box(self, lower: Float[np.ndarray, " d"], upper: Float[np.ndarray, " d"]) -> float:
        """What lies in a box."""
        u = [2.0 * (end - self.lower) / (self.upper - self.lower) - 1.0 for end in (lower, upper)]
        low, high = (np.clip(one, -1.0, 1.0) for one in u)
        touched = np.all(high > low, axis=1)
        part = Panels(self.lower[touched], self.upper[touched], self.values[touched], 0.0)
        weights = [_up_to(self.order, high[touched, c]) - _up_to(self.order, low[touched, c]) for c in range(self.dim)]
        return float(np.sum(part._contracted(weights)))

    def clipped(self, lower: Float[np.ndarray, " d"], upper: Float[np.ndarray, " d"]) -> Panels:
        """The part in a box: of mass less than one."""
        low, high = np.maximum(self.lower, lower), np.minimum(self.upper, upper)
        touched = np.all(high > low, axis=1)
        own, low, high, values = self.lower[touched], low[touched], high[touched], self.values[touched]
        length, u = (self.upper - self.lower)[touched], _rule(self.order)[0]
        for c in range(self.dim):
            x = 0.5 * (low + high)[:, c, None] + 0.5 * (high - low)[:, c, None] * u
            table = _at(self.order, 2.0 * (x - own[:, c, None]) / length[:, c, None] - 1.0)
            values = np.moveaxis(np.einsum("bqm,bm...->bq...", table, np.moveaxis(values, c + 1, 1)), 1, c + 1)
        return Panels(low, high, values, self.error)

    def line(self, c: int) -> Line:
        """One coordinate, on intervals that no end of a box divides."""
        own = self.marginal([c])
        low, high = own.lower[:, 0], own.upper[:, 0]
        edges = np.unique(np.concatenate([low, high]))
        # What is closer than rounding is one end.
        edges = edges[np.append(True, np.diff(edges) > 1e-14 * np.ptp(edges))]
        left, right = edges[:-1], edges[1:]
        first = np.searchsorted(edges, low * 1.0 + 1e-12 * (high - low), side="right") - 1
        last = np.searchsorted(edges, high - 1e-12 * (high - low), side="left")
        count = last - first
        box = np.repeat(np.arange(len(low)), count)
        piece = np.arange(len(box)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
        u, _, to_coefficients = _rule(self.order)
        x = 0.5 * (left + right)[piece, None] + 0.5 * (right - left)[piece, None] * u
        inner = 2.0 * (x - low[box, None]) / (high - low)[box, None] - 1.0
        values = np.einsum("pqm,pm->pq", _at(self.order, inner), own.values[box])
        total = np.zeros((len(left), self.order))
        np.add.at(total, piece, values)
        coefficients = (total * (right - left)[:, None]) @ to_coefficients.T
        return Line(left, right, coefficients, np.append(0.0, np.cumsum(coefficients[:, 0])))

    def sample(self, generator: np.random.Generator, count: int) -> Float[np.ndarray, "n d"]:
        """Draws: a box by its mass, then one coordinate after the other."""
        masses = np.maximum(self.masses, 0.0)
        chosen = generator.choice(len(masses), count, p=masses / np.sum(masses))
        return drawn_within(generator, self.lower[chosen], self.upper[chosen], self.values[chosen])


def drawn_within(
    generator: np.random.Generator, lower: Float[np.ndarray, "n d"], upper: Float[np.ndarray, "n d"], values: np.ndarray
) -> Float[np.ndarray, "n d"]:
    """A draw from the polynomial on each box, shape (n, m, ..., m): marginals and conditionals are polynomials too."""
    count, dim = lower.shape
    found, order = np.empty((count, dim)), values.shape[1]
    _, w, to_coefficients = _rule(order)
    for c in range(dim):
        own = values
        for _ in range(dim - c - 1):
            own = own @ w
        a = own @ to_coefficients.T * 2.0
        a = a / np.where(a[:, :1] > 0, a[:, :1], 1.0)
        line = _each(a, generator.random(count))
        found[:, c] = lower[:, c] + 0.5 * (line + 1.0) * (upper - lower)[:, c]
        values = np.einsum("bm...,bm->b...", values, _at(order, line))
    return found


def _each(a: Float[np.ndarray, "n m"], shares: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The u up to which the n-th polynomial, of mass one, has the n-th share."""
    low, high, u = -np.ones(len(a)), np.ones(len(a)), np.zeros(len(a))
    for _ in range(100):
        gap, slope = _integral(a, u) - shares, _value(a, u)
        low, high = np.where(gap < 0, u, low), np.where(gap < 0, high, u)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = u - gap / slope
        moved = np.where((newton >= low) & (newton <= high), newton, 0.5 * (low + high))
        step, u = np.max(np.abs(moved - u), initial=0.0), moved
        if step < 1e-14:
            break
    return u


def nodes_of(
    lower: Float[np.ndarray, "b d"], upper: Float[np.ndarray, "b d"], order: int
) -> tuple[Float[np.ndarray, "q d"], Float[np.ndarray, " q"]]:
    """Gauss-Legendre nodes and weights of boxes, box by box."""
    dim = lower.shape[1]
    u, w, _ = _rule(order)
    places = np.array(list(product(u, repeat=dim)))
    weights = np.prod(np.array(list(product(w, repeat=dim))), axis=1)
    x = 0.5 * (lower + upper)[:, None] + 0.5 * (upper - lower)[:, None] * places
    return x.reshape(-1, dim), (np.prod(upper - lower, axis=1)[:, None] * weights).reshape(-1)


def start(log_density: LogDensity, edges: Sequence[Float[np.ndarray, " _"]]) -> tuple[np.ndarray, np.ndarray]:
    """Of the boxes between these ends, those that matter by the density at their middles and at their neighbours'."""
    grids = np.meshgrid(*[0.5 * (e[:-1] + e[1:]) for e in edges], indexing="ij")
    centres = np.stack([grid.reshape(-1) for grid in grids], axis=-1)
    values = np.concatenate([log_density(centres[i : i + _BLOCK]) for i in range(0, len(centres), _BLOCK)])
    around = maximum_filter(values.reshape(grids[0].shape), size=3, mode="nearest").reshape(-1)
    volume = np.ones(())
    for e in edges:
        volume = np.multiply.outer(volume, np.diff(e))
    top = np.max(around)
    masses = np.exp(around - (top if top > -np.inf else 0.0)) * volume.reshape(-1)
    order = np.argsort(masses)
    kept = np.sort(order[np.cumsum(masses[order]) > _LEFT_OUT[len(edges)] * np.sum(masses)])
    at = np.unravel_index(kept, grids[0].shape)
    ends = [(e[:-1][a], e[1:][a]) for e, a in zip(edges, at, strict=True)]
    return np.stack([end[0] for end in ends], axis=-1), np.stack([end[1] for end in ends], axis=-1)


def fitted(
    log_density: LogDensity,
    lower: Float[np.ndarray, "b d"],
    upper: Float[np.ndarray, "b d"],
    tolerance: float | None = None,
) -> tuple[float, Panels]:
    """The logarithm of the integral over these boxes, and the density divided by it.

    The polynomials miss no more on a box than `tolerance` of the whole; integrals over whole boxes about its square.
    """
    dim = lower.shape[1]
    order, tolerance = _ORDERS[dim], TOLERANCES[dim] if tolerance is None else tolerance
    _, w, to_coefficients = _rule(order)
    done: list[Any] = []
    masses, errors, scales, ends, off, top, total = [], [], [], [], [], -np.inf, 1.0
    for round_ in range(_ROUNDS):
        x, _w = nodes_of(lower, upper, order)
        logs = np.concatenate([np.zeros(0), *(log_density(x[i : i + _BLOCK]) for i in range(0, len(x), _BLOCK))])
        logs = logs.reshape(len(lower), *[order] * dim)
        scale = np.max(logs, axis=tuple(range(1, logs.ndim)), initial=-np.inf)
        safe = np.where(scale > -np.inf, scale, 0.0)
        values, volume = np.exp(logs - safe.reshape(len(safe), *[1] * dim)), np.prod(upper - lower, axis=1)
        tails = np.stack([_tail(values, c, to_coefficients) for c in range(dim)], axis=-1) * volume[:, None]
        mass = values
        for _c in range(dim):
            mass = mass @ w
        ends.append(_corners(log_density, lower, upper))
        errors.append(np.max(tails, axis=1))
        # A top at a corner that no node sees: cut towards it, across one side after the other.
        tails[ends[-1] > scale + _UNSEEN] = np.eye(dim)[round_ % dim]
        done.append((lower, upper, values, tails))
        masses.append(mass * volume)
        scales.append(scale)
        top = max(np.max(one, initial=-np.inf) for one in scales)
        if top == -np.inf:
            return -np.inf, Panels(lower, upper, values, 0.0)
        total = sum(float(np.sum(m * np.exp(s - top))) for m, s in zip(masses, scales, strict=True))
        off = [e * np.exp(s - top) for e, s in zip(errors, scales, strict=True)]
        size = sum(len(one[0]) for one in done) * order**dim
        highest = max(top, *(np.max(one, initial=-np.inf) for one in ends))
        unseen = [(e > s + _UNSEEN) & (e > highest - _FAINT) for e, s in zip(ends, scales, strict=True)]
        split = [np.flatnonzero((o > tolerance * total) | u) for o, u in zip(off, unseen, strict=True)]
        if sum(map(len, split)) == 0 or size > _MOST_VALUES:
            break
        lower, upper = _halves(done, split)
        for i, chosen in enumerate(split):
            kept = np.setdiff1d(np.arange(len(masses[i])), chosen)
            done[i] = tuple(part[kept] for part in done[i])
            masses[i], errors[i], scales[i], ends[i] = (one[i][kept] for one in (masses, errors, scales, ends))
    lower, upper, values, _ = (np.concatenate(parts) for parts in zip(*done, strict=True))
    factor = np.exp(np.concatenate(scales) - top) / total
    error = sum(float(np.sum(one)) for one in off) / total
    held = factor * np.concatenate(masses) > 1e-18
    values = values * factor.reshape(-1, *[1] * dim)
    return top + float(np.log(total)), Panels(lower[held], upper[held], values[held], error)


def _corners(log_density: LogDensity, lower: np.ndarray, upper: np.ndarray) -> Float[np.ndarray, " b"]:
    """The largest logarithm at the corners of each box, seen from just inside."""
    side = np.array(list(product((1e-9, 1.0 - 1e-9), repeat=lower.shape[1])))
    x = lower[:, None] + (upper - lower)[:, None] * side
    values = log_density(x.reshape(-1, lower.shape[1])) if len(lower) else np.zeros(0)
    return np.max(values.reshape(len(lower), len(side)), axis=1)


def _tail(values: np.ndarray, c: int, to_coefficients: np.ndarray) -> Float[np.ndarray, " b"]:
    """The last two coefficients along one axis, the largest over the others."""
    last = np.abs(np.moveaxis(values, c + 1, -1) @ to_coefficients[-2:].T)
    sums = np.sum(last, axis=-1)
    return np.max(sums, axis=tuple(range(1, sums.ndim)), initial=0.0)


def _halves(done: list, split: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The boxes that are not good enough, cut across the side along which they are worst."""
    lower, upper, tails = (
        np.concatenate([one[part][chosen] for one, chosen in zip(done, split, strict=True)]) for part in (0, 1, 3)
    )
    worst, each = np.argmax(tails, axis=1), np.arange(len(lower))
    middle = 0.5 * (lower + upper)[each, worst]
    left, right = upper.copy(), lower.copy()
    left[each, worst], right[each, worst] = middle, middle
    return np.concatenate([lower, right]), np.concatenate([left, upper])
