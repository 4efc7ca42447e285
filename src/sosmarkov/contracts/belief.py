"""What every belief answers, and the answers that follow from a few of them."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cache
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.contracts.entering import Entering
from sosmarkov.contracts.line import Line, quantiles
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike

_DRAWS = 65_536
_STARTS = 16


class EstimateWarning(UserWarning):
    """An answer that has no closed form for this basis or transform was estimated; the text says how well."""


class Estimate(NamedTuple):
    """A number found by averaging draws.

    Attributes:
        value: The average.
        standard_error: Its standard deviation over repetitions.
    """

    value: Float[Array, ""]
    standard_error: Float[Array, ""]


# A coordinate, by the name of its column or by its index; lower ends of boxes, or a mapping from coordinates to both.
Coordinate = int | str
Ends = ArrayLike | Mapping[Any, Any]
B = TypeVar("B", bound="Belief")


@cache
def own_names(columns: tuple[str, ...], dim: int) -> tuple[str, ...] | None:
    """Names that are not the default ones: beliefs that differ in those alone are one structure to programs."""
    names = checks.columns(columns, dim)
    return None if names == checks.columns(None, dim) else names


class Belief(Entering):
    """A probability density over states, in data space.

    Wherever a coordinate is asked for, its column's name will do. What is known of it in closed form depends on its
    family and its transform: see docs/queries.md.
    """

    # None stands for x0, x1, ...
    names: tuple[str, ...] | None = eqx.field(static=True, default=None, kw_only=True)

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of coordinates."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        return checks.columns(self.names, self.dim)

    def with_columns(self: B, columns: Sequence[str] | None) -> B:
        """The same belief with other names for its coordinates; x0, x1, ... for None."""
        kept = None if columns is None else own_names(tuple(columns), self.dim)
        if kept == self.names:
            return self
        found = copy(self)
        object.__setattr__(found, "names", kept)
        return found

    @abstractmethod
    def log_prob(self, x: ArrayLike) -> Float[Array, ...]:
        """log-density at states of shape (..., d); -inf outside the domain, never NaN."""

    @abstractmethod
    def mass(self) -> Float[Array, ""]:
        """The closed-form integral over all states: one up to rounding."""

    @abstractmethod
    def mean(self) -> Float[Array, " d"]:
        """E[x]."""

    @abstractmethod
    def covariance(self) -> Float[Array, "d d"]:
        """E[x x^T] - E[x] E[x]^T."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, shape: int | Sequence[int] = ()) -> Float[Array, "... d"]:
        """Independent exact draws, shape (*shape, d)."""

    def support(self) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """Ends of a box outside of which there is no density, shape (d,) each; infinite where there is none."""
        return jnp.full(self.dim, -jnp.inf), jnp.full(self.dim, jnp.inf)

    # --- what each kind of belief knows, arguments checked -----------------------------------------

    @abstractmethod
    def _moment(self, powers: tuple[int, ...]) -> Float[Array, ""]: ...

    @abstractmethod
    def _marginal(self, kept: tuple[int, ...]) -> Belief: ...

    @abstractmethod
    def _condition(self, values: dict[int, Any]) -> Belief: ...

    @abstractmethod
    def line(self, coordinate: int) -> Line:
        """The distribution of one coordinate, by its index."""

    @abstractmethod
    def _probability(self, lower: Array, upper: Array) -> Float[Array, ...]: ...

    def line_coefficients(self) -> Float[Array, " q"]:
        """Those of its lines: the same for every coordinate."""
        return self.line(0).coefficients[0]

    def _cdf(self, x: Array) -> Float[Any, ...]:
        return self._probability(jnp.full_like(x, -jnp.inf), x)

    # --- what follows from these ------------------------------------------------------------------

    def moment(self, powers: Sequence[int] | Mapping[Any, int]) -> Float[Any, ""]:
        """The raw moment E[prod_c x_c^powers_c], powers of shape (d,) or a mapping, with a sum of at most 4."""
        return self._moment(checks.powers(powers, self.dim, self.columns))

    def marginal(self, coordinates: Sequence[Coordinate] | Coordinate) -> Belief:
        """The belief over some coordinates, in the order given.

        Closed form for every family under coordinate-wise transforms (identity, standardise,
        Gaussian CDF and chains of these), and for Gaussian families under any affine map.
        """
        kept = checks.coordinates(coordinates, self.dim, self.columns)
        return self._marginal(kept).with_columns([self.columns[c] for c in kept])

    def condition(self, values: Mapping[Any, Any]) -> Belief:
        """The belief over the other coordinates, in their order, given x_c = values[c].

        Closed form wherever `marginal` is.
        """
        at = checks.fixed(values, self.dim, self.columns)
        return self._condition(at).with_columns([name for c, name in enumerate(self.columns) if c not in at])

    def probability(self, lower: Ends, upper: ArrayLike | None = None) -> Float[Any, ...]:
        """P(lower < x < upper).

        Closed form for families of products under coordinate-wise transforms. Full-covariance kernels, and Gaussian
        ones under an affine map that mixes coordinates, have closed probabilities where one coordinate alone is
        bounded; otherwise draws are counted, with an `EstimateWarning` that gives the error.

        Args:
            lower: Shape (..., d) or one number, infinite ends allowed; or a mapping from coordinates to pairs
                (lower, upper), such as {"angle": (0, 1)}, in which those that are not named are open.
            upper: Like lower; none with a mapping.
        """
        return self._probability(*checks.box(lower, upper, self.dim, self.columns))

    def cdf(self, x: Ends) -> Float[Any, ...]:
        """P(every coordinate at most x_c), for states of shape (..., d), or a mapping with the others open."""
        return self._cdf(checks.box_end(x, self.dim, "x", self.columns))

    def prob(self, x: ArrayLike) -> Float[Array, ...]:
        """Density at states of shape (..., d)."""
        return jnp.exp(self.log_prob(x))

    def quantile(
        self, share: ArrayLike, coordinate: Sequence[Coordinate] | Coordinate | None = None
    ) -> Float[Any, ...]:
        """The x with P(x_c <= x) = share, to the last digits.

        Closed form wherever `marginal` is: the marginal's distribution function is inverted to rounding.

        Args:
            share: Strictly between 0 and 1, any shape.
            coordinate: One, or several for an axis of them after those of the shares; None for the only one, or all.

        Returns:
            Shape (*shares), or (*shares, coordinates).
        """
        shares = checks.shares(share)
        chosen = checks.coordinates(range(self.dim) if coordinate is None else coordinate, self.dim, self.columns)
        found = self._quantiles(shares.reshape(-1), chosen).reshape(*shares.shape, len(chosen))
        single = self.dim == 1 if coordinate is None else isinstance(coordinate, (int, np.integer, str))
        return found[..., 0] if single else found

    def _quantiles(self, shares: Float[Array, " n"], chosen: tuple[int, ...]) -> Float[Array, "n k"]:
        return quantiles(tuple(self.line(c) for c in chosen), shares)[0]

    def entropy(self, key: PRNGKeyArray, count: int = _DRAWS) -> Estimate:
        """-E[log p(x)], estimated from draws."""
        values = -self.log_prob(self.sample(key, checks.count(count, "count", 2)))
        return average(values)

    def kl(self, other: Belief, key: PRNGKeyArray, count: int = _DRAWS) -> Estimate:
        """E[log p(x) - log q(x)] under this belief p, estimated from draws; infinite where q has no density."""
        _require_alike(self, other)
        x = self.sample(key, checks.count(count, "count", 2))
        return average(self.log_prob(x) - other.log_prob(x))

    def estimate_probability(
        self,
        lower: Ends,
        upper: ArrayLike | None,
        key: PRNGKeyArray,
        count: int = _DRAWS,
    ) -> Estimate:
        """The share of draws in one box, as for `probability`: what remains where that has no closed form."""
        lower, upper = checks.box(lower, upper, self.dim, self.columns)
        if lower.ndim != 1 or upper.ndim != 1:
            raise ValueError(
                f"Expected one box, got ends of shape {lower.shape} and {upper.shape}. Ask for one by one."
            )
        x = self.sample(key, checks.count(count, "count", 2))
        inside = jnp.all((x > lower) & (x < upper), axis=-1)
        # Laplace's rule for the error, so that none or all inside does not look certain.
        share = (jnp.sum(inside) + 1.0) / (count + 2.0)
        return Estimate(jnp.mean(inside), jnp.sqrt(share * (1.0 - share) / count))

    def mode(self, key: PRNGKeyArray | None = None, starts: int = _STARTS) -> Float[Array, " d"]:
        """The most likely state found by ascent from the best of many draws and the mean.

        Args:
            key: For the draws; a fixed one where none is given.
            starts: How many ascents.
        """
        from scipy.optimize import minimize

        drawn = self.sample(jax.random.key(0) if key is None else key, 32 * checks.count(starts, "starts", 1))
        candidates = np.concatenate([np.asarray(drawn), np.asarray(self.mean())[None]])
        order = np.argsort(-np.asarray(self.log_prob(candidates)))[:starts]
        value = eqx.filter_jit(eqx.filter_value_and_grad(lambda x, belief: -belief.log_prob(x)))

        # In deviations from the start, so that a first step is neither far too long nor far too short.
        unit = np.std(np.asarray(drawn), axis=0)
        # A density may vanish at the ends of its support: no logarithm there to climb by.
        ends = [np.asarray(end) + inwards * 1e-9 * unit for end, inwards in zip(self.support(), (1, -1), strict=True)]

        def climb(start: np.ndarray) -> Any:
            def ask(u: np.ndarray) -> tuple[float, np.ndarray]:
                found, slope = value(jnp.asarray(start + u * unit), self)
                # Outside the domain the line search is told to turn back.
                return (float(found), np.asarray(slope) * unit) if np.isfinite(found) else (1e300, np.zeros_like(u))

            bounds = list(zip(*((end - start) / unit for end in ends), strict=True))
            return minimize(ask, np.zeros(self.dim), jac=True, method="L-BFGS-B", bounds=bounds)

        results = [(climb(candidates[i]), candidates[i]) for i in order]
        best, start = min(results, key=lambda result: result[0].fun)
        return jnp.asarray(start + best.x * unit)

    def to_scipy(self) -> ScipyBelief:
        """The same density with the method names of scipy.stats: logpdf, pdf, cdf, rvs, mean, cov."""
        return ScipyBelief(self)


def average(values: Float[Array, " n"]) -> Estimate:
    """The mean of independent values and its standard error."""
    return Estimate(jnp.mean(values), jnp.std(values, ddof=1) / math.sqrt(values.shape[0]))


def estimated_probability(belief: Belief, lower: Array, upper: Array, why: str) -> Array:
    """Probabilities of boxes of shape (..., d) by counting draws, with a warning that says so and how well."""
    boxes = [np.broadcast_to(end, np.broadcast_shapes(lower.shape, upper.shape)) for end in (lower, upper)]
    flat = [end.reshape(-1, belief.dim) for end in boxes]
    key = jax.random.key(0)
    found = [belief.estimate_probability(low, high, key) for low, high in zip(*flat, strict=True)]
    worst = max(float(estimate.standard_error) for estimate in found)
    warnings.warn(
        f"{why} The share of {_DRAWS} draws is given instead, with a standard error of up to {worst:.1g};"
        " `estimate_probability` takes more draws and returns the error.",
        EstimateWarning,
        stacklevel=3,
    )
    return jnp.stack([estimate.value for estimate in found]).reshape(boxes[0].shape[:-1])


def _require_alike(one: Belief, other: Belief) -> None:
    if one.dim != other.dim:
        raise ValueError(f"Expected a belief over {one.dim} coordinates to compare with, got {other.dim}.")


class ScipyBelief:
    """`logpdf`, `pdf`, `cdf`, `rvs`, `mean`, `cov`, and `ppf` and `interval` for one coordinate.

    Points have shape (..., d) as in scipy's multivariate distributions.
    """

    def __init__(self, belief: Belief):
        self.belief = belief

    def logpdf(self, x: ArrayLike) -> np.ndarray:
        """log-density."""
        return np.asarray(self.belief.log_prob(x))

    def pdf(self, x: ArrayLike) -> np.ndarray:
        """Density."""
        return np.asarray(self.belief.prob(x))

    def cdf(self, x: ArrayLike) -> np.ndarray:
        """Distribution function."""
        return np.asarray(self.belief.cdf(x))

    def ppf(self, q: ArrayLike) -> np.ndarray:
        """Quantiles of a belief over one coordinate."""
        return np.asarray(self.belief.quantile(q))

    def interval(self, confidence: float) -> tuple[np.ndarray, np.ndarray]:
        """The central interval with this probability, of a belief over one coordinate."""
        return self.ppf(0.5 * (1.0 - confidence)), self.ppf(0.5 * (1.0 + confidence))

    def mean(self) -> np.ndarray:
        """Expectation, shape (d,)."""
        return np.asarray(self.belief.mean())

    def cov(self) -> np.ndarray:
        """Covariance matrix."""
        return np.asarray(self.belief.covariance())

    def rvs(self, size: int | Sequence[int] = 1, random_state: int | np.random.Generator | None = None) -> np.ndarray:
        """Draws of shape (*size, d)."""
        seed = np.random.default_rng(random_state).integers(2**31)
        return np.asarray(self.belief.sample(jax.random.key(int(seed)), checks.shape(size)))
