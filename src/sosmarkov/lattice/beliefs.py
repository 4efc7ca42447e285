"""Lattice beliefs: sums of splines and one broad density, and what they answer in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.line import SplineLine
from sosmarkov.core import checks, draws
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import require, stored
from sosmarkov.lattice.broad import Broad
from sosmarkov.lattice.nodes import Nodes
from sosmarkov.lattice.shadow import Shadow

_BLOCK = 4_000_000
_TRIED = 8


def _sound(belief: LatticeBelief) -> None:
    LatticeBelief(belief.nodes, belief.broad, belief.C)


@stored("nodes", "broad", "C", check=_sound)
class LatticeBelief(Belief):
    """p(x) = sum_i C_i D_i(x) + C_(n+1) t(x): normalised and non-negative.

    On a circle, moments, boxes and distribution functions are those of one turn, from its cut: half a spacing before
    the first node. Boxes with finite ends may lie across it.

    Args:
        nodes: Where the splines sit.
        broad: t.
        C: Shares, shape (n + 1,), non-negative with a sum of one.
    """

    nodes: Nodes
    broad: Broad
    C: Float[np.ndarray, " q"]

    def __init__(self, nodes: Nodes, broad: Broad, C: ArrayLike):
        self.nodes, self.broad = nodes, broad
        self.C = np.asarray(C, dtype=float)
        require(self.C.shape == (len(nodes) + 1,), f"{len(nodes) + 1} shares of nodes and the broad part, got others")
        sound = np.all(self.C >= 0) and abs(float(np.sum(self.C)) - 1.0) < 1e-9
        require(sound, "shares that are not negative and add up to one in a lattice belief")
        require(nodes.axes == broad.axes, "a broad part on the axes of the nodes")
        self.names = None

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.nodes.dim

    @property
    def parameter_count(self) -> int:
        """Free shares."""
        return len(self.C) - 1

    # --- how it enters ----------------------------------------------------------------------------

    def require_of(self, transition: Any) -> None:
        """Any process on a lattice takes it."""
        if not hasattr(transition, "enter_lattice"):
            super().require_of(transition)

    def enter(self, transition: Any, reading: Any = None) -> Any:
        """By its shares."""
        self.require_of(transition)
        return transition.enter_lattice(self, reading)

    # --- the density ------------------------------------------------------------------------------

    def log_prob(self, x: ArrayLike) -> Float[np.ndarray, ...]:
        """log-density at states of shape (..., d); -inf beyond bounds."""
        x = np.asarray(checks.states(x, self.dim))
        return self.log_value(x.reshape(-1, self.dim)).reshape(x.shape[:-1])

    def prob(self, x: ArrayLike) -> Float[np.ndarray, ...]:
        """Density at states of shape (..., d)."""
        return np.exp(self.log_prob(x))

    def log_value(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """log p of states that were checked."""
        at, values = self.nodes.densities(x)
        with np.errstate(divide="ignore"):
            near = np.log(np.einsum("nk,nk->n", self.C[at], values))
            far = np.log(self.C[-1]) + self.broad.log_prob(x) if self.C[-1] > 0 else np.full(len(x), -np.inf)
        return np.logaddexp(near, far)

    # --- one coordinate ---------------------------------------------------------------------------

    @cached_property
    def _shadows(self) -> dict[int, Shadow]:
        return {}

    def shadow(self, c: int) -> Shadow:
        """The distribution of one coordinate."""
        if c not in self._shadows:
            axis = self.nodes.axes[c]
            shares = np.bincount(self.nodes.places[:, c], self.C[:-1], axis.count)
            self._shadows[c] = Shadow(axis, self.broad.onto([c]), shares[None], self.C[-1:])
        return self._shadows[c]

    def line(self, coordinate: int) -> SplineLine:
        """The same for mixtures with beliefs of any form."""
        shadow = self.shadow(coordinate)
        axis = shadow.axis
        places = np.arange(-1, axis.count + 1)
        at = axis.fold(places)
        there = (at >= 0) & (at < axis.count)
        shares = np.where(there, shadow.c[0][np.where(there, at, 0)], 0.0)
        middle, twice = shadow.broad.middle(0)
        return SplineLine.of(
            np.append(shares, self.C[-1]),
            axis.origin + axis.spacing * places,
            axis.spacing,
            (axis.lower, axis.upper),
            None if axis.ends in ("wrapped", "both") else (middle, float(shadow.broad.width[0]), float(np.exp(twice))),
            (float(self.mean()[coordinate]), float(np.sqrt(self.covariance()[coordinate, coordinate]))),
        )

    def _quantiles(self, shares: Any, chosen: tuple[int, ...]) -> Float[np.ndarray, "n k"]:
        return np.stack([self.shadow(c).quantiles(np.asarray(shares))[0] for c in chosen], axis=-1)

    # --- moments ----------------------------------------------------------------------------------

    def mass(self) -> Float[np.ndarray, ""]:
        """The sum of its shares."""
        return np.sum(self.C)

    def mean(self) -> Float[np.ndarray, " d"]:
        """E[x]; on a circle over one turn from the cut."""
        found = [
            self.shadow(c).c[0] @ axis.centres()[0] + self.C[-1] * self.broad.spread(c)[0]
            for c, axis in enumerate(self.nodes.axes)
        ]
        return np.array(found)

    def covariance(self) -> Float[np.ndarray, "d d"]:
        """E[x x^T] - E[x] E[x]^T, from deviations."""
        mean, e = self.mean(), self.C[-1]
        centres = [axis.centres() for axis in self.nodes.axes]
        away = np.stack([(centres[c][0] - mean[c])[at] for c, at in enumerate(self.nodes.places.T)], axis=-1)
        off = np.array([self.broad.spread(c)[0] for c in range(self.dim)]) - mean
        found = (self.C[:-1, None] * away).T @ away + e * np.outer(off, off)
        own = [self.shadow(c).c[0] @ centres[c][1] + e * self.broad.spread(c)[1] for c in range(self.dim)]
        return found + np.diag(own)

    def _moment(self, powers: tuple[int, ...]) -> Float[np.ndarray, ""]:
        product, broad = self.C[:-1].copy(), float(self.C[-1])
        for c, power in enumerate(powers):
            if power:
                product = product * self.nodes.axes[c].moments(power)[:, power][self.nodes.places[:, c]]
                broad = broad * self.broad.moments(c, power)[power]
        return np.sum(product) + broad

    # --- other densities --------------------------------------------------------------------------

    def _marginal(self, kept: tuple[int, ...]) -> LatticeBelief:
        nodes, index = self.nodes.onto(kept)
        shares = np.bincount(index, self.C[:-1], len(nodes))
        return LatticeBelief(nodes, self.broad.onto(kept), np.append(shares, self.C[-1]))

    def _condition(self, values: dict[int, Any]) -> LatticeBelief:
        """A lattice density again: each node has the weight of its own splines at the values."""
        held, log_broad = self.C[:-1].copy(), np.log(self.C[-1]) if self.C[-1] > 0 else -np.inf
        for c, value in values.items():
            axis, x = self.nodes.axes[c], np.asarray(value, dtype=float).reshape(1)
            (at,), (seen,) = axis.seen(x)
            table = np.zeros(axis.count)
            inside = (at >= 0) & (at < axis.count) & axis.allowed(x)
            np.add.at(table, at[inside], seen[inside] / axis.spacing)
            held = held * table[self.nodes.places[:, c]]
            log_broad = log_broad + self.broad.log_line(c, x)[0]
        with np.errstate(divide="ignore"):
            total = np.logaddexp(np.log(np.sum(held)), log_broad)
        if not np.isfinite(total):
            raise ValueError(f"Expected values where the belief has a density, got {values}: there is none.")
        kept = [c for c in range(self.dim) if c not in values]
        part = self.nodes if not np.any(held > 0) else Nodes(self.nodes.axes, self.nodes.cells[held > 0])
        shares = held if part is self.nodes else held[held > 0]
        nodes, index = part.onto(kept)
        found = np.append(np.bincount(index, shares, len(nodes)) * np.exp(-total), np.exp(log_broad - total))
        return LatticeBelief(nodes, self.broad.onto(kept), found / np.sum(found))

    # --- boxes ------------------------------------------------------------------------------------

    def _probability(self, lower: Any, upper: Any) -> Float[np.ndarray, ...]:
        """Sums of products of one-dimensional integrals."""
        lower, upper = np.broadcast_arrays(np.asarray(lower, dtype=float), np.asarray(upper, dtype=float))
        shape, flat = lower.shape[:-1], [end.reshape(-1, self.dim) for end in (lower, upper)]
        bounded = [c for c in range(self.dim) if np.any(flat[0][:, c] > -np.inf) or np.any(flat[1][:, c] < np.inf)]
        if not bounded:
            return np.full(shape, self.mass())
        if len(bounded) < self.dim:
            return self._marginal(tuple(bounded))._probability(lower[..., bounded], upper[..., bounded])
        step = max(1, _BLOCK // len(self.C))
        parts = [self._boxes(*(end[i : i + step] for end in flat)) for i in range(0, len(flat[0]), step)]
        return np.concatenate([np.zeros(0), *parts]).reshape(shape)

    def _boxes(self, lower: Float[np.ndarray, "b d"], upper: Float[np.ndarray, "b d"]) -> Float[np.ndarray, " b"]:
        held = np.broadcast_to(self.C[:-1], (len(lower), len(self.nodes)))
        broad = np.full(len(lower), self.C[-1])
        for c, axis in enumerate(self.nodes.axes):
            held = held * axis.shares_of(lower[:, c], upper[:, c])[:, self.nodes.places[:, c]]
            pieces = axis.pieces(lower[:, c], upper[:, c])
            broad = broad * sum(self.broad.share(c, *piece) for piece in pieces)
        return np.sum(held, axis=1) + broad

    def _cdf(self, x: Any) -> Float[np.ndarray, ...]:
        x = np.asarray(x, dtype=float)
        return self._probability(np.full_like(x, -np.inf), x)

    # --- draws, the mode, the support -------------------------------------------------------------

    def sample(self, key: Any, shape: int | Sequence[int] = ()) -> Float[np.ndarray, "... d"]:
        """Independent exact draws, shape (*shape, d): a node by its share, then three uniforms a coordinate."""
        shape, generator = checks.shape(shape), draws.generator(key)
        found = drawn(generator, self.nodes, self.broad, self.C, int(np.prod(shape, dtype=int)))
        return found.reshape(*shape, self.dim)

    def mode(self, key: Any = None, starts: int = _TRIED) -> Float[np.ndarray, " d"]:
        """The most likely state: by ascent from the nodes with the largest densities."""
        del key
        points, unit = self.nodes.points, self.nodes.spacing
        best = np.argsort(-self.log_value(points))[: checks.count(starts, "starts", 1)]
        ends = [
            ((axis.lower - points[best, c]) / unit[c], (axis.upper - points[best, c]) / unit[c])
            for c, axis in enumerate(self.nodes.axes)
        ]

        def climb(i: int) -> tuple[float, np.ndarray]:
            start = points[best[i]]
            bounds = [
                (-np.inf, np.inf) if axis.ends == "wrapped" else (low[i], high[i])
                for axis, (low, high) in zip(self.nodes.axes, ends, strict=True)
            ]

            def ask(u: np.ndarray) -> tuple[float, np.ndarray]:
                value, slope = self._value_and_slope((start + u * unit)[None])
                return -np.log(value), -slope * unit / value

            found = minimize(
                ask,
                np.zeros(self.dim),
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                options={"ftol": 1e-15, "gtol": 1e-10},
            )
            return found.fun, start + found.x * unit

        place = min((climb(i) for i in range(len(best))), key=lambda found: found[0])[1]
        return np.array([axis.inside(x) for axis, x in zip(self.nodes.axes, place, strict=True)])

    def _value_and_slope(self, x: Float[np.ndarray, "1 d"]) -> tuple[float, Float[np.ndarray, " d"]]:
        """p and its gradient at one state."""
        at, values = self.nodes.densities(x)
        e, broad = self.C[-1], np.exp(self.broad.log_prob(x)[0])
        slope = np.zeros(self.dim)
        for c in range(self.dim):
            _, tilted = self.nodes.densities(x, slope=c)
            middle, _ = self.broad.middle(c)
            flat = self.nodes.axes[c].ends in ("wrapped", "both")
            away = 0.0 if flat else -(x[0, c] - middle) / self.broad.width[c] ** 2
            slope[c] = np.sum(self.C[at] * tilted) + e * broad * away
        return float(np.sum(self.C[at] * values) + e * broad), slope

    def support(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
        """Where the splines with a share reach, or with a broad part the bounds."""
        axes = self.nodes.axes
        low, high = (np.array([getattr(axis, end) for axis in axes]) for end in ("lower", "upper"))
        if self.C[-1] > 0:
            return low, high
        there = self.nodes.points[self.C[:-1] > 0]
        reach = 1.5 * self.nodes.spacing
        circle = np.array([axis.ends == "wrapped" for axis in axes])
        first, last = np.min(there, axis=0) - reach, np.max(there, axis=0) + reach
        return np.where(circle, low, np.maximum(low, first)), np.where(circle, high, np.minimum(high, last))


def drawn(
    generator: np.random.Generator, nodes: Nodes, broad: Broad, C: Float[np.ndarray, " q"], count: int
) -> Float[np.ndarray, "n d"]:
    """Draws of the density with these shares."""
    chosen = generator.choice(len(C), count, p=C / np.sum(C))
    return placed(generator, nodes, broad, chosen)


def placed(generator: np.random.Generator, nodes: Nodes, broad: Broad, chosen: np.ndarray) -> Float[np.ndarray, "n d"]:
    """One draw from the density of each node that was chosen; from the broad one past the last."""
    count, outside = len(chosen), chosen == len(nodes)
    t = np.sum(generator.random((3, count, nodes.dim)), axis=0) - 1.5
    x = nodes.points[np.where(outside, 0, chosen)] + nodes.spacing * t
    for c, axis in enumerate(nodes.axes):
        x[:, c] = axis.folded(x[:, c])
    x[outside] = broad.sample(generator, int(np.sum(outside)))
    return x
