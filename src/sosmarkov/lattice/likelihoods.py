"""What one reading says of states, and what gates see of a lattice density under it."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief, EstimateWarning
from sosmarkov.contracts.reader import LineLikelihood, Sensor
from sosmarkov.lattice import panels, tables
from sosmarkov.lattice.axis import Axis
from sosmarkov.lattice.beliefs import LatticeBelief
from sosmarkov.lattice.broad import Broad
from sosmarkov.lattice.nodes import Nodes

# Products of mixtures grow: beyond so many terms they are integrated on cells.
_MOST_TERMS = 64
# Of messages, in turn until the evidence stands still: integrals over whole cells miss less than polynomials do.
_TOLERANCES = {1: (1e-5, 1e-8, 1e-12), 2: (1e-5, 1e-8, 1e-11), 3: (1e-4, 1e-6), 4: (1e-3, 1e-5)}
_STILL = {1: 1e-10, 2: 1e-10, 3: 1e-7, 4: 1e-5}
# How far a density of another kind reaches, in its standard deviations.
_CUTS = np.array([-12.0, -8.0, -6.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0])


class Term(NamedTuple):
    """A product of functions of one coordinate.

    Attributes:
        log_weight: Of the product.
        lines: Of some of the coordinates.
    """

    log_weight: float
    lines: dict[int, LineLikelihood]

    def times(self, other: Term) -> Term:
        """The product of both."""
        lines = dict(self.lines)
        for c, line in other.lines.items():
            lines[c] = _both(lines[c], line) if c in lines else line
        return Term(self.log_weight + other.log_weight, lines)


def _both(one: LineLikelihood, other: LineLikelihood) -> LineLikelihood:
    return LineLikelihood(lambda x: one.log(x) + other.log(x), np.concatenate([one.breaks, other.breaks]))


class Likelihood(NamedTuple):
    """l(x) of one reading, or of several of one state.

    Attributes:
        logs: Logarithms of its factors at states, shape (n, d).
        terms: The products that add up to it; None where it is no such sum.
    """

    logs: tuple[Callable[[np.ndarray], np.ndarray], ...]
    terms: tuple[Term, ...] | None

    def log(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """log l(x)."""
        return sum((one(x) for one in self.logs), start=np.zeros(len(x)))

    def times(self, other: Likelihood) -> Likelihood:
        """Both readings of one state."""
        terms = None
        if self.terms is not None and other.terms is not None and len(self.terms) * len(other.terms) <= _MOST_TERMS:
            terms = tuple(a.times(b) for a in self.terms for b in other.terms)
        return Likelihood((*self.logs, *other.logs), terms)

    def breaks(self, c: int) -> Float[np.ndarray, " b"]:
        """Where it has tops or jumps along one coordinate, as far as is known."""
        found = [term.lines[c].breaks for term in self.terms or () if c in term.lines]
        return np.concatenate([np.zeros(0), *found])


NOTHING = Likelihood((), (Term(0.0, {}),))


def likelihood(sensor: Sensor, observation: np.ndarray, axes: Sequence[Axis]) -> Likelihood:
    """Of one reading; on a circle of all turns of the state that it may be a reading of."""
    observation = np.asarray(observation, dtype=float)
    terms = []
    for weight, part in sensor.parts():
        lines = part.lines(observation, len(axes))
        if lines is None:
            return Likelihood((lambda x: sensor.log_likelihood(observation, _inside(x, axes)),), None)
        term = Term(float(np.log(weight)), {})
        for c, line in lines:
            term = term.times(Term(0.0, {c: _round(line, axes[c]) if axes[c].ends == "wrapped" else line}))
        terms.append(term)
    found = tuple(terms)

    def log(x: np.ndarray) -> np.ndarray:
        values = [
            sum((line.log(x[:, c]) for c, line in term.lines.items()), start=np.full(len(x), term.log_weight))
            for term in found
        ]
        return values[0] if len(values) == 1 else np.logaddexp.reduce(np.stack(values), axis=0)

    return Likelihood((log,), found)


def _inside(x: np.ndarray, axes: Sequence[Axis]) -> np.ndarray:
    return np.stack([axis.inside(x[:, c]) for c, axis in enumerate(axes)], axis=-1)


def _round(line: LineLikelihood, axis: Axis) -> LineLikelihood:
    """On a circle: of the state in the turn nearest to where the likelihood is, and in those beside it."""
    period, known = axis.spacing * axis.count, line.breaks[np.isfinite(line.breaks)]
    middle = float(np.mean(known)) if len(known) else 0.5 * (axis.lower + axis.upper)

    def log(x: np.ndarray) -> np.ndarray:
        near = middle + np.mod(x - middle + 0.5 * period, period) - 0.5 * period
        return np.logaddexp.reduce([line.log(near + turn * period) for turn in (-1, 0, 1)], axis=0)

    return LineLikelihood(log, axis.inside(np.append(known, middle + 0.5 * period)))


class Weigher(ABC):
    """What gates see of a density under a likelihood, and the adjoint of that.

    Attributes:
        log_scale: Of all that it returns.
        error: What was reached, as a share of the whole; rounding is not counted.
    """

    log_scale: float
    error: float

    @abstractmethod
    def seen(self) -> Float[np.ndarray, " n"]:
        """int w_i p l."""

    @abstractmethod
    def worth(self, b: Float[np.ndarray, " n"]) -> Float[np.ndarray, " q"]:
        """int E_j l beta of each density, beta = sum_i w_i b_i."""


class ProductWeigher(Weigher):
    """By tables of one coordinate each: closed form, or to rounding."""

    def __init__(self, nodes: Nodes, broad: Broad, C: np.ndarray, terms: Sequence[Term]):
        self.nodes, self.C, self.error = nodes, C, 0.0
        shadows = [np.bincount(at, C[:-1], axis.count) for at, axis in zip(nodes.places.T, nodes.axes, strict=True)]
        self.found, scales = [], []
        for term in terms:
            each = []
            for c, axis in enumerate(nodes.axes):
                own = broad.onto([c])
                if c in term.lines:
                    each.append(tables.under(axis, own, term.lines[c], shadows[c], float(C[-1])))
                else:
                    each.append(tables.plain(axis, own))
            scales.append(term.log_weight + sum(one.log_scale for one in each))
            self.found.append(each)
        self.log_scale = float(max(scales))
        self.weights = np.exp(np.array(scales) - self.log_scale)

    def seen(self) -> Float[np.ndarray, " n"]:
        """The bands applied in turn, and the broad part's own."""
        total = np.zeros(len(self.nodes))
        for weight, each in zip(self.weights, self.found, strict=True):
            total += weight * self.nodes.met(self.C[:-1], [one.table for one in each])
            if self.C[-1] > 0:
                total += weight * self.C[-1] * self.nodes.gathered([one.broad for one in each])
        return total

    def worth(self, b: Float[np.ndarray, " n"]) -> Float[np.ndarray, " q"]:
        """The same, backwards."""
        total = np.zeros(len(self.nodes) + 1)
        for weight, each in zip(self.weights, self.found, strict=True):
            total[:-1] += weight * self.nodes.met_back(b, [one.table for one in each])
            total[-1] += weight * (self.nodes.gathered([one.broad for one in each]) @ b)
        return total


class CellWeigher(Weigher):
    """By polynomials on cells, for any density and any likelihood."""

    def __init__(self, nodes: Nodes, prior: Belief, given: Likelihood):
        self.nodes, self.prior = nodes, prior
        for tolerance in _TOLERANCES[nodes.dim]:
            self.log_scale, self.panels = fit(nodes, prior, given.log, given.breaks, tolerance)
            self.error = self._moved(given)
            if self.error < _STILL[nodes.dim]:
                break
        self.x, self.w = self.panels.points() if self.log_scale > -np.inf else (np.zeros((0, nodes.dim)), np.zeros(0))

    def _moved(self, given: Likelihood) -> float:
        """By how much of itself the evidence moves by integrals of a lower order."""
        if self.log_scale == -np.inf:
            return 0.0
        p = self.panels
        x, w = panels.nodes_of(p.lower, p.upper, p.order - (2 if p.dim < 3 else 1))
        return abs(float(w @ np.exp(density(self.prior, given.log)(x) - self.log_scale)) - 1.0)

    def seen(self) -> Float[np.ndarray, " n"]:
        """Gates at the points, weighed; they add up to one."""
        at, values = self.nodes.gates(self.x)
        return np.bincount(at.reshape(-1), (values * self.w[:, None]).reshape(-1), len(self.nodes)).astype(float)

    def worth(self, b: Float[np.ndarray, " n"]) -> Float[np.ndarray, " q"]:
        """By the same points: each with what it stands for, divided by the density."""
        prior = self.prior
        assert isinstance(prior, LatticeBelief)
        at, values = self.nodes.gates(self.x)
        beta = np.einsum("nk,nk->n", values, b[at])
        log_p = prior.log_value(self.x)
        w = np.where(self.w > 0, self.w * beta * np.exp(-np.where(self.w > 0, log_p, 0.0)), 0.0)
        to, D = self.nodes.densities(self.x)
        found = np.bincount(to.reshape(-1), (D * w[:, None]).reshape(-1), len(self.nodes)).astype(float)
        return np.append(found, np.sum(w * np.exp(prior.broad.log_prob(self.x))))


def weigher(nodes: Nodes, prior: Belief, given: Likelihood) -> Weigher:
    """The quicker one that does."""
    if given.terms is not None and isinstance(prior, LatticeBelief) and prior.nodes == nodes:
        found = ProductWeigher(nodes, prior.broad, prior.C, given.terms)
        # Where each coordinate alone says that belief and likelihood meet, and all together that they do not.
        if np.sum(found.seen()) > 0 or len(given.logs) == 0:
            return found
    return CellWeigher(nodes, prior, given)


def density(prior: Belief, log_factor: panels.LogDensity) -> panels.LogDensity:
    """log p f of states."""
    log_prior = prior.log_value if isinstance(prior, LatticeBelief) else lambda x: np.asarray(prior.log_prob(x))

    def log_density(x: np.ndarray) -> np.ndarray:
        values, there = log_prior(x), np.full(len(x), -np.inf)
        # Likelihoods of one's own need not be defined where no state is.
        held = values > -np.inf
        there[held] = values[held] + log_factor(x[held])
        return there

    return log_density


def fit(
    nodes: Nodes,
    prior: Belief,
    log_factor: Callable[[np.ndarray], np.ndarray],
    breaks: Callable[[int], np.ndarray],
    tolerance: float | None = None,
) -> tuple[float, panels.Panels]:
    """log int p f, and p f divided by it, on the cells where it is."""
    log_density = density(prior, log_factor)
    edges = [_edges(nodes.axes[c], prior, breaks(c), c) for c in range(nodes.dim)]
    return panels.fitted(log_density, *panels.start(log_density, edges), tolerance=tolerance)


def _edges(axis: Axis, prior: Belief, breaks: np.ndarray, c: int) -> np.ndarray:
    """Ends of cells on one axis, of ever longer ones past open ends, and breaks between them."""
    cells = axis.cells()
    edges = axis.origin + axis.spacing * (np.append(cells, cells[-1] + 1) - 0.5)
    if isinstance(prior, LatticeBelief):
        shadow, gates = prior.shadow(c), edges
        edges, own = shadow.edges(), shadow.axis
        if prior.C[-1] > 0:
            line = LineLikelihood(lambda x: np.zeros(len(x)), breaks[np.isfinite(breaks)])
            below, above = tables.tails(own, shadow.broad, line, edges)
            edges = np.concatenate([below, edges, above])
        else:
            # A spline ends where a cell does.
            low, high = (float(end[c]) for end in prior.support())
            edges = edges[(edges > low - 0.5 * own.spacing) & (edges < high + 0.5 * own.spacing)]
        if own != axis:
            edges = np.concatenate([edges, gates[(gates > edges[0]) & (gates < edges[-1])]])
            edges = np.unique(np.clip(edges, axis.lower, axis.upper))
    else:
        mean, std = float(np.asarray(prior.mean())[c]), float(np.sqrt(np.asarray(prior.covariance())[c, c]))
        ends = [float(np.asarray(end)[c]) for end in prior.support()]
        cuts = np.concatenate([mean + std * _CUTS, ends])
        cuts = cuts[np.isfinite(cuts) & (cuts >= axis.lower) & (cuts <= axis.upper)]
        low, high = np.min(cuts), np.max(cuts)
        edges = np.unique(np.concatenate([edges[(edges > low) & (edges < high)], cuts]))
    inner = breaks[(breaks > edges[0]) & (breaks < edges[-1])]
    found = np.unique(np.concatenate([edges, inner]))
    return found[np.append(True, np.diff(found) > 1e-12 * np.ptp(found))]


def report(error: float, dim: int) -> None:
    """Say so where integrals on cells did not come to a standstill."""
    if error > panels.REACHED[dim]:
        warnings.warn(
            f"Integrals under this reading stand still to about {error:.1g} of their value: its likelihood is very"
            " narrow, or jumps, within cells of the lattice.",
            EstimateWarning,
            stacklevel=3,
        )
