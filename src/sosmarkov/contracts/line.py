"""The distribution of one coordinate under many beliefs at once, and its quantiles to the last digits.

Beliefs of one process differ in their coefficients alone: F_k(x) = sum_q c_kq F_q(x), with the same F_q for them all.
On equal pieces of a range the densities are interpolated at Gauss-Legendre nodes; where that is good to rounding, which
the closed-form F at both ends of the range confirms, the integral of the interpolant is inverted piece by piece. Else
the closed form itself is inverted. One solver does both: Newton's steps between ends that hold the root.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.stats import norm
from jaxtyping import Bool, Float

# Pieces, and nodes in each; a range reaches so many standard deviations to either side of the mean.
_PIECES, _NODES, _REACH = 32, 16, 6.0
_MOST_ROUNDS = 120


class Line(eqx.Module):
    """One coordinate under K beliefs: rows of coefficients over Q columns that they share."""

    coefficients: eqx.AbstractVar[Float[Array, "k q"]]

    @abstractmethod
    def densities(self, x: Float[Array, " t"]) -> Float[Array, "t q"]:
        """The columns' densities."""

    @abstractmethod
    def masses(self, x: Float[Array, " t"]) -> Float[Array, "t q"]:
        """The columns' integrals up to x, in closed form."""

    @abstractmethod
    def moments(self) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """Mean and standard deviation under each belief."""

    @abstractmethod
    def support(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Ends outside of which there is no density."""


class Blend(Line):
    """A mixture of lines: their columns side by side."""

    coefficients: Float[Array, "k q"]
    parts: tuple[Line, ...]
    weights: Float[Array, " m"]

    def __init__(self, parts: Sequence[Line], weights: Float[Array, " m"]):
        self.parts, self.weights = tuple(parts), weights
        weighted = [weight * part.coefficients for weight, part in zip(weights, self.parts, strict=True)]
        self.coefficients = jnp.concatenate(weighted, axis=1)

    def densities(self, x: Float[Array, " t"]) -> Float[Array, "t q"]:
        """Those of every part."""
        return jnp.concatenate([part.densities(x) for part in self.parts], axis=1)

    def masses(self, x: Float[Array, " t"]) -> Float[Array, "t q"]:
        """Those of every part."""
        return jnp.concatenate([part.masses(x) for part in self.parts], axis=1)

    def moments(self) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """The mean of means; the mean variance plus the variance of means."""
        means, stds = (jnp.stack(found) for found in zip(*(part.moments() for part in self.parts), strict=True))
        mean = self.weights @ means
        return mean, jnp.sqrt(self.weights @ (stds**2 + (means - mean[None]) ** 2))

    def support(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """What holds every part's."""
        lower, upper = (jnp.stack(ends) for ends in zip(*(part.support() for part in self.parts), strict=True))
        return jnp.min(lower), jnp.max(upper)


class SplineLine(Line):
    """A column for each of some evenly spaced quadratic splines, cut at both ends, and one for a normal or uniform."""

    coefficients: Float[Array, "k q"]
    places: Float[Array, " p"]
    spacing: Float[Array, ""]
    ends: Float[Array, " 2"]
    # Mean and standard deviation of the normal, and how often it counts; None for a uniform one between the ends.
    normal: Float[Array, " 3"] | None
    known: Float[Array, " 2"]

    @classmethod
    def of(
        cls,
        shares: np.ndarray,
        places: np.ndarray,
        spacing: float,
        ends: tuple[float, float],
        normal: tuple[float, float, float] | None,
        known: tuple[float, float],
    ) -> SplineLine:
        """One belief, with its mean and standard deviation."""
        at, unit, bounds, about = (jnp.asarray(one, dtype=float) for one in (places, spacing, ends, known))
        last = None if normal is None else jnp.asarray(normal, dtype=float)
        return cls(jnp.asarray(shares)[None], at, unit, bounds, last, about)

    def densities(self, x: Float[Array, " t"]) -> Float[Array, "t q"]:
        """Each spline's, and the last one's."""
        far = jnp.abs(x[:, None] - self.places[None]) / self.spacing
        found = jnp.where(far < 0.5, 0.75 - far**2, 0.5 * jnp.maximum(1.5 - far, 0.0) ** 2) / self.spacing
        if self.normal is None:
            last = jnp.full_like(x, 1.0 / (self.ends[1] - self.ends[0]))
        else:
            last = self.normal[2] * norm.pdf(x, self.normal[0], self.normal[1])
        inside = (x >= self.ends[0]) & (x <= self.ends[1])
        return jnp.where(inside[:, None], jnp.concatenate([found, last[:, None]], axis=1), 0.0)

    def masses(self, x: Float[Array, " t"]) -> Float[Array, "t q"]:
        """From the lower end on."""
        inside = jnp.clip(x, self.ends[0], self.ends[1])

        def below(t: Array) -> Array:
            """int_(-inf)^t of the spline."""
            far = jnp.minimum(jnp.abs(t), 1.5)
            tail = jnp.where(far < 0.5, 0.5 - 0.75 * far + far**3 / 3.0, (1.5 - far) ** 3 / 6.0)
            return jnp.where(t < 0, tail, 1.0 - tail)

        found = below((inside[:, None] - self.places[None]) / self.spacing)
        found = found - below((self.ends[0] - self.places) / self.spacing)[None]
        if self.normal is None:
            last = (inside - self.ends[0]) / (self.ends[1] - self.ends[0])
        else:
            middle, std, times = self.normal
            last = times * (norm.cdf(inside, middle, std) - norm.cdf(self.ends[0], middle, std))
        return jnp.concatenate([found, last[:, None]], axis=1)

    def moments(self) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """The belief's own."""
        return self.known[:1], self.known[1:]

    def support(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Both ends."""
        return self.ends[0], self.ends[1]


class NormalLine(Line):
    """A mixture of normals: a column for each."""

    coefficients: Float[Array, "k q"]
    places: Float[Array, " q"]
    stds: Float[Array, " q"]

    @classmethod
    def of(cls, weights: np.ndarray, means: np.ndarray, stds: np.ndarray) -> NormalLine:
        """One belief: weights, means and standard deviations of its members."""
        return cls(jnp.asarray(weights)[None], jnp.asarray(means), jnp.asarray(stds))

    def densities(self, x: Float[Array, " t"]) -> Float[Array, "t q"]:
        """Each normal's own."""
        return norm.pdf(x[:, None], self.places[None], self.stds[None])

    def masses(self, x: Float[Array, " t"]) -> Float[Array, "t q"]:
        """Each normal's own."""
        return norm.cdf(x[:, None], self.places[None], self.stds[None])

    def moments(self) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """The mean of means; the mean variance plus the variance of means."""
        mean = self.coefficients @ self.places
        spread = self.stds[None] ** 2 + (self.places[None] - mean[:, None]) ** 2
        return mean, jnp.sqrt(jnp.sum(self.coefficients * spread, axis=1))

    def support(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Everywhere."""
        return jnp.asarray(-jnp.inf), jnp.asarray(jnp.inf)


class PolynomialLine(Line):
    """One column: a polynomial on each of some intervals, in Legendre's coefficients times the length."""

    coefficients: Float[Array, "k 1"]
    lower: Float[Array, " a"]
    upper: Float[Array, " a"]
    pieces: Float[Array, "a m"]
    below: Float[Array, " b"]
    known: Float[Array, " 2"]

    @classmethod
    def of(cls, line: tuple[np.ndarray, ...], known: tuple[float, float]) -> PolynomialLine:
        """One belief: ends, coefficients, what lies before each interval; its mean and standard deviation."""
        lower, upper, pieces, below = (jnp.asarray(part) for part in line)
        return cls(jnp.ones((1, 1)), lower, upper, pieces, below, jnp.asarray(known))

    def _found(self, x: Float[Array, " t"]) -> tuple[Array, Array, Array]:
        """The interval of each place, its coefficients, and the place in it from -1 to 1."""
        at = jnp.clip(jnp.searchsorted(self.lower, x, side="right") - 1, 0, len(self.lower) - 1)
        u = 2.0 * (x - self.lower[at]) / (self.upper - self.lower)[at] - 1.0
        return at, self.pieces[at], jnp.clip(u, -1.0, 1.0)

    def _legendre(self, u: Float[Array, " t"], count: int) -> list[Array]:
        P = [jnp.ones_like(u), u]
        for j in range(1, count - 1):
            P.append(((2 * j + 1) * u * P[j] - j * P[j - 1]) / (j + 1))
        return P[:count]

    def densities(self, x: Float[Array, " t"]) -> Float[Array, "t 1"]:
        """Zero outside of all intervals."""
        at, a, u = self._found(x)
        value = sum(a[:, j] * P for j, P in enumerate(self._legendre(u, a.shape[1])))
        inside = (x >= self.lower[at]) & (x <= self.upper[at])
        return jnp.where(inside, value / (self.upper - self.lower)[at], 0.0)[:, None]

    def masses(self, x: Float[Array, " t"]) -> Float[Array, "t 1"]:
        """The integral of P_j is (P_(j+1) - P_(j-1)) / (2 j + 1)."""
        at, a, u = self._found(x)
        P = [-jnp.ones_like(u), *self._legendre(u, a.shape[1] + 1)]
        total = sum(a[:, j] * (P[j + 2] - P[j]) / (2 * j + 1) for j in range(a.shape[1]))
        return jnp.where(x < self.lower[0], 0.0, self.below[at] + 0.5 * total)[:, None]

    def moments(self) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """The belief's own."""
        return self.known[:1], self.known[1:]

    def support(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """From the first interval to the last."""
        return self.lower[0], self.upper[-1]


@eqx.filter_jit
def quantiles(lines: tuple[Line, ...], shares: Float[Array, " n"]) -> Float[Array, "k n d"]:
    """The x with F_k(x) = share, on every line."""
    leaves, structures = zip(*(jax.tree.flatten(line) for line in lines), strict=True)
    alike = all(one == structures[0] for one in structures)
    if alike and all([a.shape for a in one] == [a.shape for a in leaves[0]] for one in leaves):
        # One body to compile, whatever the number of coordinates.
        stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *lines)
        return jnp.moveaxis(lax.map(lambda line: _on_one(line, shares), stacked), 0, -1)
    return jnp.stack([_on_one(line, shares) for line in lines], axis=-1)


def _on_one(line: Line, shares: Float[Array, " n"]) -> Float[Array, "k n"]:
    found, sound = _by_pieces(line, shares)
    return lax.cond(jnp.all(sound), lambda: found, lambda: _by_closed_form(line, found, shares))


class _Values(NamedTuple):
    """A distribution function and its slope where they were asked for, and the size of what was summed."""

    mass: Array
    slope: Array
    size: Array


def _solved(
    evaluate: Callable[[Array], _Values], x: Array, low: Array, high: Array, shares: Array, unit: Array
) -> Array:
    """F(x) = share with low <= x <= high: Newton's step where it stays between and shrinks by half, else the middle."""
    rounding = jnp.finfo(x.dtype).eps

    def again(state: tuple[Array, ...]) -> tuple[Array, ...]:
        x, low, high, step, _, count = state
        mass, slope, size = evaluate(x)
        gap = mass - shares[None]
        low, high = jnp.where(gap < 0, x, low), jnp.where(gap < 0, high, x)
        newton = x - gap / slope
        fast = (newton >= low) & (newton <= high) & (jnp.abs(newton - x) <= 0.5 * step)
        # Slopes of zero or of no digits fail every comparison.
        there = jnp.abs(gap) <= 2.0 * rounding * size
        moved = jnp.where(fast, newton, jnp.where(there, x, 0.5 * (low + high)))
        step = jnp.abs(moved - x)
        done = there | (step <= rounding * jnp.maximum(jnp.abs(x), unit))
        return moved, low, high, step, done, count + 1

    def going(state: tuple[Array, ...]) -> Array:
        return ~jnp.all(state[4]) & (state[5] < _MOST_ROUNDS)

    start = (x, low, high, high - low, jnp.zeros(x.shape, dtype=bool), jnp.asarray(0))
    return lax.while_loop(going, again, start)[0]


def _by_pieces(line: Line, shares: Float[Array, " n"]) -> tuple[Float[Array, "k n"], Bool[Array, "k n"]]:
    """Quantiles from interpolated densities, and whether those are good to rounding."""
    C, (mean, std), ends = line.coefficients, line.moments(), line.support()
    low = jnp.maximum(jnp.min(mean - _REACH * std), ends[0])
    high = jnp.minimum(jnp.max(mean + _REACH * std), ends[1])
    half = 0.5 * (high - low) / _PIECES
    u, inverse = _legendre()
    middle = low + half * (2.0 * jnp.arange(_PIECES) + 1.0)
    p = line.densities((middle[:, None] + half * u[None]).reshape(-1)) @ C.T
    # Legendre coefficients of the density on each piece, times the piece's half length.
    a = half * jnp.einsum("jt,mtk->kmj", inverse, p.reshape(_PIECES, _NODES, -1))
    columns = line.masses(jnp.stack([low, high]))
    outer = C @ columns.T
    below = jnp.concatenate([outer[:, :1], outer[:, :1] + 2.0 * jnp.cumsum(a[..., 0], axis=1)], axis=1)
    place = jax.vmap(lambda inner: jnp.searchsorted(inner, shares))(below[:, 1:-1])
    under = jnp.take_along_axis(below, place, axis=1)
    own = jnp.take_along_axis(a, place[..., None], axis=1)

    def evaluate(v: Array) -> _Values:
        """sum_j a_j P_j and its integral, in which that of P_j is (P_(j+1) - P_(j-1)) / (2 j + 1)."""

        def add(j: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
            mass, slope, last, P = state
            following = ((2 * j + 1) * v * P - j * last) / (j + 1)
            aj = own[..., j]
            return mass + aj * (following - last) / (2 * j + 1), slope + aj * P, P, following

        start = under + own[..., 0] * (v + 1.0), own[..., 0] + 0.0 * v, jnp.ones_like(v), v
        mass, slope, _, _ = lax.fori_loop(1, _NODES, add, start)
        return _Values(mass, slope, jnp.abs(mass))

    v = _solved(evaluate, jnp.zeros(under.shape), -jnp.ones(under.shape), jnp.ones(under.shape), shares, jnp.ones(()))
    rounding = 16.0 * jnp.finfo(C.dtype).eps * (1.0 + jnp.abs(C) @ jnp.max(jnp.abs(columns), axis=0))[:, None]
    resolved = jnp.abs(below[:, -1:] - outer[:, 1:]) <= rounding
    smooth = jnp.sum(jnp.abs(own[..., -2:]), axis=-1) <= rounding
    inside = (under <= shares[None]) & (shares[None] <= jnp.take_along_axis(below, place + 1, axis=1))
    return jnp.take(middle, place) + half * v, resolved & smooth & inside


def _legendre() -> tuple[np.ndarray, np.ndarray]:
    """Nodes, and the matrix from values there to Legendre coefficients."""
    u, w = np.polynomial.legendre.leggauss(_NODES)
    degrees = np.arange(_NODES)
    return u, (degrees[:, None] + 0.5) * np.polynomial.legendre.legvander(u, _NODES - 1).T * w


def _by_closed_form(line: Line, start: Float[Array, "k n"], shares: Float[Array, " n"]) -> Float[Array, "k n"]:
    """Quantiles of F itself."""
    C, (mean, std) = line.coefficients, line.moments()

    def summed(columns: Callable[[Array], Array], x: Float[Array, "k n"]) -> tuple[Array, Array]:
        found = columns(x.reshape(-1)).reshape(*x.shape, -1)
        return jnp.einsum("knq,kq->kn", found, C), jnp.einsum("knq,kq->kn", jnp.abs(found), jnp.abs(C))

    def evaluate(x: Array) -> _Values:
        mass, size = summed(line.masses, x)
        return _Values(mass, summed(line.densities, x)[0], size)

    # Chebyshev's inequality: shares that doubles can tell from zero and one lie within.
    low, high = (mean[:, None] + side * 2.0**26 * std[:, None] + jnp.zeros_like(start) for side in (-1.0, 1.0))
    x = jnp.where((start > low) & (start < high), start, mean[:, None])
    return _solved(evaluate, x, low, high, shares, std[:, None])
