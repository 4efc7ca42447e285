"""What a start is made of: mixtures fitted to the data, and bases made from them or spread over the domain."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from sosmarkov.factor.bases import Basis, BetaBasis, ExponentialBasis, FourierBasis, FullGaussianBasis, GaussianBasis
from sosmarkov.factor.bases.monomial import MonomialBasis
from sosmarkov.factor.bases.parametrise import LEAST_EXPONENT

T = TypeVar("T")
# Points that a mixture is fitted to: as many as these, and as many for each component.
_POINTS, _POINTS_EACH = 6_000, 20
_MANY = 100
# Families that are spread over the domain: their functions are no bumps one could put on a component.
SPREAD = ("exponential", "monomial", "fourier")
# How sharp the sharpest function of a spread start is: of the order of the width of what it has to resolve.
_STEEPEST_RATE = 12.0
_HIGHEST_EXPONENT = 24.0


class Mixture(NamedTuple):
    """Gaussian components: weights (c,), means (c, d), covariances (c, d) where diagonal, else (c, d, d)."""

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    def log_components(self, y: np.ndarray) -> np.ndarray:
        """Log-densities of the components at points of shape (N, d), shape (N, c)."""
        if self.covariances.ndim == 2:
            # Products of matrices: differences of all points and means would be the largest array there is.
            precision = 1.0 / self.covariances
            square = y**2 @ precision.T - 2.0 * y @ (self.means * precision).T + np.sum(self.means**2 * precision, -1)
            log_det = np.sum(np.log(self.covariances), axis=-1)
        else:
            away = y[:, None] - self.means
            square = np.einsum("nci,cij,ncj->nc", away, np.linalg.inv(self.covariances), away)
            log_det = np.linalg.slogdet(self.covariances)[1]
        return -0.5 * (square + log_det + y.shape[1] * np.log(2.0 * np.pi))

    def responsibilities(self, y: np.ndarray) -> np.ndarray:
        """How likely each component is at points of shape (N, d), shape (N, c)."""
        return softmax(self.log_components(y) + np.log(self.weights), axis=1)

    def density(self, y: np.ndarray) -> np.ndarray:
        """At points of shape (N, d), shape (N,)."""
        return np.exp(self.log_density(y))

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Its logarithm, also where it is zero in doubles."""
        return np.asarray(logsumexp(self.log_components(y) + np.log(self.weights), axis=1))


def in_parallel(make: Callable[[int], T], seeds: Sequence[int]) -> list[T]:
    """What `make` gives for each seed, in threads: mixtures are too small for more than one core each."""
    with warnings.catch_warnings(), threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as pool:
        # A start need not be a converged fit.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return list(pool.map(make, seeds))


def fit_mixture(y: np.ndarray, size: int, full: bool, seed: int) -> Mixture:
    """EM on as many points as that takes; covariances full or diagonal."""
    y = _some(y, size, seed)
    kind = "full" if full else "diag"
    # With some twenty points each, many components soon fit these alone.
    many = size > _MANY
    model = GaussianMixture(
        size, covariance_type=kind, reg_covar=_least_variance(y), random_state=seed,
        max_iter=10 if many else 40, init_params="k-means++" if many else "kmeans",
    )  # fmt: skip
    model.fit(y)
    return Mixture(model.weights_, model.means_, model.covariances_)  # type: ignore[arg-type]


def fit_halves(y: np.ndarray, y_next: np.ndarray, size: int, full: bool, seed: int) -> tuple[Mixture, Mixture]:
    """A mixture sum_i w_i N_i(y) N'_i(y') of pairs, as its two halves: independent within a component.

    Full covariances come from the responsibilities of diagonal ones: a mixture with full covariances of the pair
    would put the dependence of y' on y where the halves do not keep it.
    """
    both = _some(np.concatenate([y, y_next], axis=1), size, seed)
    joint = fit_mixture(both, size, False, seed)
    d = y.shape[1]
    shares = joint.responsibilities(both)
    halves = []
    for part in (slice(0, d), slice(d, 2 * d)):
        means, covariances = joint.means[:, part], joint.covariances[:, part]
        if full:
            covariances = _scatter(both[:, part], shares) + _least_variance(both) * np.eye(d)
        halves.append(Mixture(joint.weights, means, covariances))
    return halves[0], halves[1]


def _scatter(y: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Covariances (c, d, d) of points (N, d) that belong to components by shares (N, c)."""
    weights = shares / shares.sum(axis=0)
    # Around the centre of all, so that the difference of two moments keeps its digits.
    y = y - y.mean(axis=0)
    first, d = weights.T @ y, y.shape[1]
    second = (weights.T @ (y[:, :, None] * y[:, None]).reshape(len(y), -1)).reshape(-1, d, d)
    return second - first[:, :, None] * first[:, None]


def points_for(size: int) -> int:
    """How many points a mixture of this size is fitted to."""
    return max(_POINTS, _POINTS_EACH * size)


def _some(y: np.ndarray, size: int, seed: int) -> np.ndarray:
    if len(y) <= points_for(size):
        return y
    return y[np.random.default_rng(seed).choice(len(y), points_for(size), replace=False)]


def _least_variance(y: np.ndarray) -> float:
    # Relative to the data; the constant is for data that do not vary at all, as a known initial state.
    return 1e-4 * float(np.mean(np.var(y, axis=0))) + 1e-8


def local_basis(family: str, mixture: Mixture, power: int) -> Basis:
    """Functions whose square (power 2), or which themselves (power 1), look like the components.

    Gaussian: covariance times the power. Beta: the Beta density of the same mean and variance, exponents divided by
    the power, none below zero. Exponential and monomial: the density of that family with the same mean.
    """
    means, covariances = mixture.means, mixture.covariances
    if family == "gaussian":
        return GaussianBasis(means, np.sqrt(power * covariances))
    if family == "gaussian-full":
        return eqx.filter_jit(FullGaussianBasis)(jnp.asarray(means), jnp.asarray(power * covariances))
    inner = np.clip(means, 0.01, 0.99)  # a start: a component on the very end has no density of the family
    if family == "beta":
        count = inner * (1.0 - inner) / covariances - 1.0
        left, right = (np.maximum(side * count - 1.0, 0.0) / power for side in (inner, 1.0 - inner))
        return BetaBasis(1.0 + left, 1.0 + right)
    if family == "exponential":
        return ExponentialBasis(_rate_of_mean(inner) / power, 0.0, 1.0)
    exponent = (2.0 * inner - 1.0) / (1.0 - inner)  # the mean of (e + 1) y^e is (e + 1) / (e + 2)
    return MonomialBasis(np.maximum(exponent, 0.5 * LEAST_EXPONENT) / power, 0.0, 1.0)


def _rate_of_mean(mean: np.ndarray) -> np.ndarray:
    """The rates r for which the density of exp(r y) on (0, 1) has these means, 0.01 to 0.99, by bisection."""
    low, high = np.full_like(mean, -200.0), np.full_like(mean, 200.0)
    for _ in range(50):
        rate = 0.5 * (low + high)
        flat = np.abs(rate) < 1e-6
        safe = np.where(flat, 1.0, rate)
        reached = np.where(flat, 0.5, -1.0 / np.expm1(-safe) - 1.0 / safe)
        low, high = np.where(reached < mean, rate, low), np.where(reached < mean, high, rate)
    return 0.5 * (low + high)


def spread_basis(family: str, size: int, dim: int, constant: bool) -> Basis:
    """Functions of lowest degree first, products of a few levels a coordinate, on (0, 1)^dim.

    Fourier: cos(pi k y), orthogonal and complete. Monomial: exponents e_k with 2 e_k + 1 in geometric progression,
    which keeps their overlaps equal. Exponential: rates in arithmetic progression, every other function mirrored.

    Args:
        family: One of SPREAD.
        size: Number of functions.
        dim: Number of coordinates.
        constant: Whether the first one is the constant.
    """
    degrees = _multi_indices(size + (not constant), dim)[0 if constant else 1 :]
    level = degrees / max(1, degrees.max())
    if family == "fourier":
        return FourierBasis(np.pi * degrees, np.zeros_like(level), 0.0, 1.0)
    if family == "monomial":
        return MonomialBasis(0.5 * ((2.0 * _HIGHEST_EXPONENT + 1.0) ** level - 1.0), 0.0, 1.0)
    side = np.where(np.arange(size) % 2 == 0, 1.0, -1.0)[:, None]
    return ExponentialBasis(_STEEPEST_RATE * level * side, 0.0, 1.0)


def _multi_indices(count: int, dim: int) -> np.ndarray:
    """The `count` multi-indices of lowest total degree, shape (count, dim)."""
    found = []
    for degree in itertools.count():
        for chosen in itertools.combinations_with_replacement(range(dim), degree):
            found.append(np.bincount(np.asarray(chosen, dtype=int), minlength=dim))
            if len(found) == count:
                return np.array(found, dtype=float)
    raise AssertionError


def project(basis: Basis, mixture: Mixture, y: np.ndarray, seed: int) -> np.ndarray:
    """Coefficients B, shape (n, c), with (B^T f)_c close to the root of component c's density.

    Ridge regression at the data and at as many points spread over the domain (twice the data's range where it is
    unbounded), so that B^T f stays small where there are no data.
    """
    rng = np.random.default_rng(seed)
    points = y[rng.choice(len(y), min(len(y), 2000), replace=False)]
    low, high = np.min(y, axis=0), np.max(y, axis=0)
    beyond = 0.5 * (high - low)
    low = np.where(np.isfinite(basis.lower), basis.lower, low - beyond)
    high = np.where(np.isfinite(basis.upper), basis.upper, high + beyond)
    points = np.concatenate([points, low + (high - low) * rng.random(points.shape)])
    values = np.asarray(_evaluate(basis, jnp.asarray(points)))
    targets = np.exp(0.5 * mixture.log_components(points))
    normal = values.T @ values
    ridge = 1e-6 * np.trace(normal) / len(normal)
    return np.linalg.solve(normal + ridge * np.eye(len(normal)), values.T @ targets)


@eqx.filter_jit
def _evaluate(basis: Basis, points: jax.Array) -> jax.Array:
    log_abs, sign = jax.vmap(basis.evaluate)(points)
    return sign * jnp.exp(log_abs)
