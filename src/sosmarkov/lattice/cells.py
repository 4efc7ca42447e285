"""Beliefs that are no lattice densities: one times a likelihood, and times what lies behind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.line import Line, PolynomialLine
from sosmarkov.core import checks, draws
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import stored
from sosmarkov.lattice.axis import Axis, within_one_turn
from sosmarkov.lattice.likelihoods import NOTHING, Likelihood, Weigher, fit, report, weigher
from sosmarkov.lattice.nodes import Nodes
from sosmarkov.lattice.panels import Panels


class PanelBelief(Belief):
    """A density that is a polynomial on each of many boxes.

    Args:
        panels: Of mass one.
        axes: One a coordinate: on circles boxes may go across the cut.
    """

    panels: Panels
    axes: tuple[Axis, ...]

    def __init__(self, panels: Panels, axes: Sequence[Axis]):
        self.panels, self.axes, self.names = panels, tuple(axes), None

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.panels.dim

    @property
    def error(self) -> float:
        """What its polynomials may miss of the mass."""
        return self.panels.error

    @cached_property
    def _points(self) -> tuple[np.ndarray, np.ndarray]:
        return self.panels.points()

    def log_prob(self, x: ArrayLike) -> Float[Any, ...]:
        """log-density at states of shape (..., d)."""
        x = np.asarray(checks.states(x, self.dim))
        found = self.panels.value(x.reshape(-1, self.dim)).reshape(x.shape[:-1])
        # Where the density vanishes its polynomial may be a rounding error to either side of zero.
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(found > 0, np.log(np.abs(found)), -np.inf)

    def prob(self, x: ArrayLike) -> Float[Any, ...]:
        """Density at states of shape (..., d)."""
        return np.exp(self.log_prob(x))

    def mass(self) -> Float[Any, ""]:
        """The integral of all polynomials."""
        return np.sum(self._points[1])

    def mean(self) -> Float[Any, " d"]:
        """E[x]."""
        x, w = self._points
        return w @ x

    def covariance(self) -> Float[Any, "d d"]:
        """E[x x^T] - E[x] E[x]^T, from deviations."""
        x, w = self._points
        away = x - w @ x
        return (w[:, None] * away).T @ away

    def _moment(self, powers: tuple[int, ...]) -> Float[Any, ""]:
        x, w = self._points
        return w @ np.prod(x ** np.asarray(powers), axis=1)

    def _marginal(self, kept: tuple[int, ...]) -> PanelBelief:
        return PanelBelief(self.panels.marginal(kept), [self.axes[c] for c in kept])

    def _condition(self, values: dict[int, Any]) -> PanelBelief:
        total, found = self.panels.condition({c: float(value) for c, value in values.items()})
        if not total > 0:
            raise ValueError(f"Expected values where the belief has a density, got {values}: there is none.")
        return PanelBelief(found, [axis for c, axis in enumerate(self.axes) if c not in values])

    def line(self, coordinate: int) -> Line:
        """The polynomials of one coordinate."""
        known = self.mean()[coordinate], np.sqrt(self.covariance()[coordinate, coordinate])
        return PolynomialLine.of(tuple(self.panels.line(coordinate)), known)

    def _quantiles(self, shares: Any, chosen: tuple[int, ...]) -> Float[Any, "n k"]:
        return np.stack([self.panels.line(c).quantiles(np.asarray(shares)) for c in chosen], axis=-1)

    def _probability(self, lower: Any, upper: Any) -> Float[Any, ...]:
        lower, upper = np.broadcast_arrays(np.asarray(lower, dtype=float), np.asarray(upper, dtype=float))
        flat = zip(lower.reshape(-1, self.dim), upper.reshape(-1, self.dim), strict=True)
        found = [sum(self.panels.box(*one) for one in within_one_turn(self.axes, low, high)) for low, high in flat]
        return np.array(found, dtype=float).reshape(lower.shape[:-1])

    def _cdf(self, x: Any) -> Float[Any, ...]:
        x = np.asarray(x, dtype=float)
        return self._probability(np.full_like(x, -np.inf), x)

    def sample(self, key: Any, shape: int | Sequence[int] = ()) -> Float[Any, "... d"]:
        """Independent draws: a box, then one coordinate after the other by its distribution function."""
        shape = checks.shape(shape)
        found = self.panels.sample(draws.generator(key), int(np.prod(shape, dtype=int)))
        return found.reshape(*shape, self.dim)

    def support(self) -> tuple[Float[Any, " d"], Float[Any, " d"]]:
        """The box around all boxes."""
        return np.min(self.panels.lower, axis=0), np.max(self.panels.upper, axis=0)

    def mode(self, key: Any = None, starts: int = 8) -> Float[Any, " d"]:
        """The most likely state: by ascent from the nodes of polynomials with the largest values."""
        del key
        return climbed(self.log_prob, self.panels, checks.count(starts, "starts", 1))


@stored("prior", "nodes", make=lambda fields: CellBelief(**fields))
class CellBelief(Belief):
    """p(x) l(x) beta(x) / Z: a belief under readings, and under what lies behind it, beta = sum_i w_i b_i.

    The density is exact. Integrals of it (moments, boxes, quantiles, marginals) are those of polynomials on cells,
    halved until they stand still; `error` says to what.

    Args:
        prior: p: a lattice belief, or a belief of any kind that is to enter a lattice.
        nodes: Of the gates it enters by.
        readings: l.
        behind: b, shape (n,); None where nothing lies behind.
    """

    prior: Belief
    nodes: Nodes
    readings: Likelihood
    behind: Float[np.ndarray, " n"] | None

    def __init__(self, prior: Belief, nodes: Nodes, readings: Likelihood = NOTHING, behind: np.ndarray | None = None):
        self.prior, self.nodes, self.readings, self.behind, self.names = prior, nodes, readings, behind, None

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.nodes.dim

    # --- how it enters ----------------------------------------------------------------------------

    def require_of(self, transition: Any) -> None:
        """Any process on a lattice takes it."""
        if not hasattr(transition, "enter_lattice"):
            super().require_of(transition)

    def enter(self, transition: Any, reading: Any = None) -> Any:
        """By what the gates see of it."""
        self.require_of(transition)
        return transition.enter_lattice(self, reading)

    def times(self, given: Likelihood, behind: np.ndarray | None = None) -> CellBelief:
        """Under one more reading, and under what lies behind."""
        if behind is not None and self.behind is not None:
            given = given.times(Likelihood((Behind(self.nodes, self.behind),), None))
        return CellBelief(self.prior, self.nodes, self.readings.times(given), self.behind if behind is None else behind)

    @cached_property
    def _weigher(self) -> Weigher:
        found = weigher(self.nodes, self.prior, self.readings)
        report(found.error, self.dim)
        return found

    @cached_property
    def _seen(self) -> np.ndarray:
        return self._weigher.seen()

    @cached_property
    def log_mass(self) -> float:
        """log int p l beta."""
        total = np.sum(self._seen) if self.behind is None else self._seen @ self.behind
        with np.errstate(divide="ignore"):
            return float(np.log(total) + self._weigher.log_scale)

    def seen(self) -> Float[Any, " n"]:
        """What the gates see of it: shares with a sum of one."""
        if self.behind is None:
            return self._seen / np.sum(self._seen)
        x, w = self.panels.points()
        at, values = self.nodes.gates(x)
        return np.bincount(at.reshape(-1), (values * w[:, None]).reshape(-1), len(self.nodes))

    # --- the density ------------------------------------------------------------------------------

    def _log_factor(self, x: Float[np.ndarray, "n d"]) -> Float[Any, " n"]:
        found = self.readings.log(x)
        return found if self.behind is None else found + Behind(self.nodes, self.behind)(x)

    def log_prob(self, x: ArrayLike) -> Float[Any, ...]:
        """log-density at states of shape (..., d)."""
        x = np.asarray(checks.states(x, self.dim))
        flat = x.reshape(-1, self.dim)
        found = np.asarray(self.prior.log_prob(flat), dtype=float) - self.log_mass
        held = found > -np.inf
        values = np.full(len(flat), -np.inf)
        values[held] = found[held] + self._log_factor(flat[held])
        return values.reshape(x.shape[:-1])

    def prob(self, x: ArrayLike) -> Float[Any, ...]:
        """Density at states of shape (..., d)."""
        return np.exp(self.log_prob(x))

    # --- integrals --------------------------------------------------------------------------------

    @cached_property
    def _fitted(self) -> tuple[float, Panels]:
        found = fit(self.nodes, self.prior, self._log_factor, self.readings.breaks)
        report(found[1].error, self.dim)
        return found

    @property
    def panels(self) -> Panels:
        """The polynomials, of mass one."""
        return self._fitted[1]

    @property
    def error(self) -> float:
        """What the polynomials may miss of the mass."""
        return self.panels.error

    @cached_property
    def _answers(self) -> Any:
        """What knows its integrals: the prior itself, where nothing has come to it."""
        plain = self.behind is None and not self.readings.logs
        return self.prior if plain else PanelBelief(self.panels, self.nodes.axes)

    def mass(self) -> Float[Any, ""]:
        """By the polynomials, over Z by what the gates see: one up to what both miss."""
        if self._answers is self.prior:
            return self.prior.mass()
        return np.exp(self._fitted[0] - self.log_mass)

    def mean(self) -> Float[Any, " d"]:
        """E[x]."""
        return self._answers.mean()

    def covariance(self) -> Float[Any, "d d"]:
        """E[x x^T] - E[x] E[x]^T."""
        return self._answers.covariance()

    def _moment(self, powers: tuple[int, ...]) -> Float[Any, ""]:
        return self._answers._moment(powers)

    def _marginal(self, kept: tuple[int, ...]) -> Belief:
        return self._answers._marginal(kept)

    def _condition(self, values: dict[int, Any]) -> Belief:
        """The density along the others is exact again."""
        if self._answers is self.prior:
            return self.prior._condition(values)
        prior = self.prior._condition(values)
        kept = [c for c in range(self.dim) if c not in values]
        factor = Sliced(self._log_factor, self.dim, {c: float(value) for c, value in values.items()})
        found = CellBelief(prior, self.nodes.onto(kept)[0], Likelihood((factor,), None))
        if not np.isfinite(found.log_mass):
            raise ValueError(f"Expected values where the belief has a density, got {values}: there is none.")
        return found

    def line(self, coordinate: int) -> Line:
        """The distribution of one coordinate."""
        return self._answers.line(coordinate)

    def _quantiles(self, shares: Any, chosen: tuple[int, ...]) -> Float[Any, "n k"]:
        return np.asarray(self._answers._quantiles(shares, chosen))

    def _probability(self, lower: Any, upper: Any) -> Float[Any, ...]:
        return self._answers._probability(lower, upper)

    def _cdf(self, x: Any) -> Float[Any, ...]:
        return self._answers._cdf(x)

    def sample(self, key: Any, shape: int | Sequence[int] = ()) -> Float[Any, "... d"]:
        """Independent draws."""
        return np.asarray(self._answers.sample(key, shape))

    def support(self) -> tuple[Float[Any, " d"], Float[Any, " d"]]:
        """The prior's: as far as the readings leave it open is not looked at."""
        return self.prior.support()

    def mode(self, key: Any = None, starts: int = 8) -> Float[Any, " d"]:
        """The most likely state: by ascent from the nodes of polynomials with the largest values."""
        if self._answers is self.prior:
            return np.asarray(self.prior.mode(key, starts))
        return climbed(self.log_prob, self.panels, checks.count(starts, "starts", 1))


class Behind:
    """log beta(x), beta = sum_i w_i b_i: a function of states."""

    def __init__(self, nodes: Nodes, b: np.ndarray):
        self.nodes, self.b = nodes, b

    def __call__(self, x: Float[np.ndarray, "n d"]) -> Float[Any, " n"]:
        """At many states."""
        at, values = self.nodes.gates(x)
        with np.errstate(divide="ignore"):
            return np.log(np.einsum("nk,nk->n", values, self.b[at]))


class Sliced:
    """A function of states as one of some coordinates, the others fixed."""

    def __init__(self, log: Any, dim: int, fixed: dict[int, float]):
        self.log, self.dim, self.fixed = log, dim, fixed

    def __call__(self, x: Float[np.ndarray, "n k"]) -> Float[Any, " n"]:
        """At many states of the free coordinates."""
        whole = np.empty((len(x), self.dim))
        whole[:, [c for c in range(self.dim) if c not in self.fixed]] = x
        for c, value in self.fixed.items():
            whole[:, c] = value
        return self.log(whole)


def climbed(log_density: Any, panels: Panels, starts: int) -> Float[Any, " d"]:
    """The best of some ascents, without slopes."""
    from scipy.optimize import minimize

    x, w = panels.points()
    values = panels.values.reshape(-1)
    best = np.argsort(-values)[:starts]
    unit = np.sqrt(w @ (x - w @ x) ** 2)

    def climb(start: np.ndarray) -> Any:
        options = {"xatol": 1e-9, "fatol": 1e-14, "maxiter": 2000, "initial_simplex": None}
        return minimize(lambda u: -float(log_density(start + u * unit)), np.zeros(len(unit)), method="Nelder-Mead",
                        options=options)  # fmt: skip

    found = [(climb(x[i]), x[i]) for i in best]
    result, start = min(found, key=lambda one: one[0].fun)
    return start + result.x * unit
