"""What every belief answers, and the answers that follow from a few of them."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.contracts.entering import Entering
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


class Belief(Entering):
    """A probability density over states, in data space."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of coordinates."""

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
    def moment(self, powers: Sequence[int]) -> Float[Array, ""]:
        """The raw moment E[prod_c x_c^powers_c], powers of shape (d,) with a sum of at most 4."""

    @abstractmethod
    def marginal(self, coordinates: Sequence[int] | int) -> Belief:
        """The belief over some coordinates, in the order given."""

    @abstractmethod
    def condition(self, values: Mapping[int, float]) -> Belief:
        """The belief over the other coordinates, in their order, given x_c = values[c]."""

    @abstractmethod
    def probability(self, lower: ArrayLike, upper: ArrayLike) -> Float[Array, ...]:
        """P(lower < x < upper), for bounds of shape (..., d); infinite ones allowed."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, shape: int | Sequence[int] = ()) -> Float[Array, "... d"]:
        """Independent exact draws, shape (*shape, d)."""

    def support(self) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """Ends of a box outside of which there is no density, shape (d,) each; infinite where there is none."""
        return jnp.full(self.dim, -jnp.inf), jnp.full(self.dim, jnp.inf)

    # --- what follows from these ------------------------------------------------------------------

    def prob(self, x: ArrayLike) -> Float[Array, ...]:
        """Density at states of shape (..., d)."""
        return jnp.exp(self.log_prob(x))

    def cdf(self, x: ArrayLike) -> Float[Array, ...]:
        """P(every coordinate at most x_c), for states of shape (..., d)."""
        x = checks.box_end(x, self.dim, "x")
        return self.probability(jnp.full_like(x, -jnp.inf), x)

    def quantile(self, share: ArrayLike, coordinate: int | None = None) -> Float[Array, ...]:
        """The x with P(x_c <= x) = share, for shares of any shape; of the only coordinate, or of the one named.

        By bisection of the marginal's distribution function, to the last digits.
        """
        share = checks.as_float(share, "share")
        if checks.is_concrete(share) and not np.all((np.asarray(share) > 0) & (np.asarray(share) < 1)):
            raise ValueError(f"Expected shares strictly between 0 and 1, got {share}.")
        if coordinate is None and self.dim != 1:
            raise ValueError(f"Expected a coordinate to take quantiles of, for a belief over {self.dim}, got none.")
        (chosen,) = checks.coordinates(0 if coordinate is None else coordinate, self.dim)
        single = self if self.dim == 1 else self.marginal([chosen])
        return _bisect(single, share.reshape(-1)).reshape(share.shape)

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
        self, lower: ArrayLike, upper: ArrayLike, key: PRNGKeyArray, count: int = _DRAWS
    ) -> Estimate:
        """The share of draws in one box: what remains where `probability` has no closed form."""
        lower, upper = checks.box(lower, upper, self.dim)
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


def _bisect(belief: Belief, shares: Float[Array, " n"]) -> Float[Array, " n"]:
    """Quantiles of a belief over one coordinate."""
    mean, std = belief.mean()[0], jnp.sqrt(belief.covariance()[0, 0])
    ends = eqx.filter_jit(_brackets)(belief, mean, std, shares)
    return eqx.filter_jit(_halve)(belief, *ends, shares)


def _brackets(belief: Belief, mean: Array, std: Array, shares: Array) -> tuple[Array, Array]:
    """Ends mean -+ 2^j std, the nearest ones that hold every share."""
    reach = std * 2.0 ** jnp.arange(1, 13)
    below = belief.cdf((mean - reach)[:, None])
    above = belief.cdf((mean + reach)[:, None])
    low = mean - reach[jnp.argmax(below[None] < shares[:, None], axis=1)]
    return low, mean + reach[jnp.argmax(above[None] > shares[:, None], axis=1)]


def _halve(belief: Belief, low: Array, high: Array, shares: Array) -> Array:
    def step(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        under = belief.cdf(middle[:, None]) < shares
        return jnp.where(under, middle, ends[0]), jnp.where(under, ends[1], middle)

    low, high = jax.lax.fori_loop(0, 64, step, (low, high))
    return 0.5 * (low + high)


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
