"""One step as data have it: its mean and noise at any place, and the choice among ways to say them.

All ways begin with one linear step and correct it: not at all, by a smooth function, or by local regressions. Where
data end they go back to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from sosmarkov.learning.lattice.local import (
    LinearStep,
    Neighbours,
    Steps,
    effective_rows,
    linear_step,
    local_means,
    local_noise,
    log_normal,
    small_noise,
)
from sosmarkov.learning.lattice.smooth import Smooth, smooth
from sosmarkov.learning.lattice.view import View

# Deviations beyond which a state is none that nodes are made for.
_USUAL = 10.0


class Way(NamedTuple):
    """How the linear step is corrected, and how its noise is told.

    Attributes:
        lengths: Of the smooth correction's kernels, in deviations of the states; None where there is none.
        amplitude: Its variance, in variances of what the linear step leaves over.
        neighbours: Of the local regressions; None where there are none.
        ridge: What pulls those to the linear step, in rows of data.
        spread: Neighbours whose remainders make the noise at a place; None: it is the same everywhere.
    """

    lengths: float | None = None
    amplitude: float = 1.0
    neighbours: int | None = None
    ridge: float = 1.0
    spread: int | None = None

    def __str__(self) -> str:
        """A few words."""
        mean = "linear step"
        if self.lengths is not None:
            mean = f"smooth, lengths {self.lengths:g}, amplitude {self.amplitude:g}"
        elif self.neighbours is not None:
            mean = f"local, {self.neighbours} neighbours, ridge {self.ridge:g}"
        return mean + (f"; noise of {self.spread} neighbours" if self.spread else "; one noise")


class Rows(NamedTuple):
    """Pairs to learn from.

    Attributes:
        x: States, shape (N, d).
        x_next: Shape (N, d).
        weight: Shape (N,).
        u: What acts, inputs or the time of a period, shape (N, e); None where nothing does.
    """

    x: Float[np.ndarray, "n d"]
    x_next: Float[np.ndarray, "n d"]
    weight: Float[np.ndarray, " n"]
    u: Float[np.ndarray, "n e"] | None = None

    def at(self, rows: np.ndarray) -> Rows:
        """Some of them."""
        return Rows(self.x[rows], self.x_next[rows], self.weight[rows], None if self.u is None else self.u[rows])

    def some(self, most: int) -> Rows:
        """Every so many of them."""
        return self.at(np.arange(0, len(self.x), max(1, len(self.x) // most)))

    @property
    def states(self) -> Float[np.ndarray, "m d"]:
        """All states."""
        return np.concatenate([self.x, self.x_next])

    def usual(self) -> Rows:
        """Without the pairs of which a state lies more than ten deviations out, by the quartiles.

        A few states that ran away would widen the step and the lattice for all others; they are the broad part's.
        """
        low, middle, high = np.quantile(self.states, [0.25, 0.5, 0.75], axis=0)
        spread = (high - low) / 1.349
        reach = _USUAL * np.where(spread > 0, spread, np.std(self.states, axis=0))
        inside = [np.all(np.abs(x - middle) <= reach, axis=1) for x in (self.x, self.x_next)]
        return self.at(np.flatnonzero(inside[0] & inside[1]))


class Ground:
    """What all ways share, made once: the linear step, what it leaves over, neighbours, the noise alone.

    Args:
        rows: Pairs.
        view: How regressions see them.
    """

    def __init__(self, rows: Rows, view: View):
        self.rows, self.view = rows, view
        self.z = view.regressors(rows.x, rows.u)
        targets = view.targets(rows.x, rows.x_next)
        design = view.design(rows.x, rows.u)
        self.linear: LinearStep = linear_step(design, targets, rows.weight)
        self.left = targets - self.linear.ahead(design)
        self.near = Neighbours(self.z, rows.weight)
        self.each = small_noise(self.near, self.left)
        self.pooled = np.mean(self.each, axis=0)


class Surrogate:
    """One step in one of the ways.

    Args:
        ground: What data say.
        way: How to say it.
    """

    def __init__(self, ground: Ground, way: Way):
        self.ground, self.way = ground, way
        z, weight, linear = ground.z, ground.rows.weight, ground.linear
        self.correction: Smooth | None = None
        self.off, free = ground.left, 1.0 + z.shape[1]
        if way.lengths is not None:
            lengths = way.lengths * ground.near.scale
            self.correction = smooth(z, ground.left, weight, ground.pooled, lengths, way.amplitude)
            self.off = ground.left - self.correction.values(z)
            free += self.correction.parameters
        elif way.neighbours is not None:
            self.off = ground.left - local_means(ground.near, ground.left, z, way.neighbours, way.ridge)[0]
            # A tricube window counts as some two fifths of its neighbours.
            free += len(z) / (0.4 * way.neighbours + way.ridge) * (1 + z.shape[1])
        count = effective_rows(weight)
        # What was fitted took that much of the noise away, of half of it at most.
        self.off = self.off * np.sqrt(count / max(count - free, 0.5 * count))
        covariance = (self.off * weight[:, None]).T @ self.off / np.sum(weight)
        corrected = way.lengths is not None or way.neighbours is not None
        self.noise: np.ndarray = covariance if corrected else linear.noise

    def noises(self, z: Float[np.ndarray, "n q"]) -> tuple[Float[np.ndarray, "n d d"], Float[np.ndarray, " n"]]:
        """Cov[x' | z], with what is not known of its mean, and how near the data are."""
        near, far = self.ground.near, self.ground.linear.noise
        # A smooth correction says itself what it does not know; beyond the others' data there is the linear step's.
        away = self.noise if self.correction is not None else far
        if self.way.spread is not None:
            found, nearness = local_noise(near, self.off, z, self.way.spread, self.noise, away)
        else:
            nearness = near.nearness(near.tree.query(z / near.scale)[0])
            fade = nearness[:, None, None]
            found = fade * self.noise + (1.0 - fade) * away
        if self.correction is not None:
            found = found + self.correction.doubts(z)[:, :, None] * np.eye(len(far))
        return found, nearness

    def steps(self, x: Float[np.ndarray, "n d"], u: Float[np.ndarray, " e"] | None = None) -> Steps:
        """One step from each state, under an input or at a time where there are such."""
        view, linear = self.ground.view, self.ground.linear
        acting = None if u is None else np.broadcast_to(u, (len(x), len(u)))
        z = view.regressors(x, acting)
        values, slopes = self._corrected(z)
        noise, nearness = self.noises(z)
        mean = view.next(x, linear.ahead(view.design(x, acting)) + values)
        return Steps(mean, view.slopes(x, view.by_regressor(acting, linear.slope) + slopes), noise, nearness)

    def log_prob(self, rows: Rows) -> Float[np.ndarray, " n"]:
        """log N(x'; mean, noise) of pairs."""
        view = self.ground.view
        z = view.regressors(rows.x, rows.u)
        said = self.ground.linear.ahead(view.design(rows.x, rows.u)) + self._corrected(z)[0]
        off = view.targets(rows.x, rows.x_next) - said
        return log_normal(off, self.noises(z)[0])

    def _corrected(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is added to the linear step, and its slopes."""
        way, d = self.way, self.ground.left.shape[1]
        if self.correction is not None:
            return self.correction.values(z), self.correction.slopes(z)
        if way.neighbours is not None:
            return local_means(self.ground.near, self.ground.left, z, way.neighbours, way.ridge)
        return np.zeros((len(z), d)), np.zeros((len(z), d, z.shape[1]))


def means_to_try(count: int) -> list[Way]:
    """Ways to say the mean, for so many pairs."""
    found = [Way()]
    if count >= 40:
        found += [
            Way(lengths=a, amplitude=b) for a, b in ((4.0, 100.0), (2.0, 10.0), (1.0, 1.0), (0.6, 1.0), (0.35, 1.0))
        ]
    return found + [Way(neighbours=k, ridge=r) for k, r in ((60, 1.0), (60, 10.0), (200, 1.0)) if count >= 3 * k]


def noises_to_try(way: Way, count: int) -> list[Way]:
    """The same mean with other ways to say the noise."""
    return [way._replace(spread=k) for k in (60, 200, 600) if count >= 3 * k]


def best_way(ground: Ground, held_out: Rows) -> tuple[Way, list[tuple[Way, float]]]:
    """The way whose normal densities of held-out steps are highest, and all that were tried, with their means."""
    tried: list[tuple[Way, float]] = []

    def score(way: Way) -> float:
        found = float(np.average(Surrogate(ground, way).log_prob(held_out), weights=held_out.weight))
        tried.append((way, found))
        return found

    count = len(ground.z)
    mean = max(means_to_try(count), key=score)
    for way in noises_to_try(mean, count):
        score(way)
    return max(tried, key=lambda one: one[1])[0], tried
