"""Gaussian mixtures as beliefs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.special import log_ndtr, logsumexp, ndtri

from sosmarkov.contracts.belief import Belief, EstimateWarning
from sosmarkov.contracts.line import NormalLine
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.draws import generator
from sosmarkov.core.stored import require, stored
from sosmarkov.gaussian import mixture as mixtures
from sosmarkov.gaussian.mixture import Mixture
from sosmarkov.gaussian.normal import boxes

_STARTS = 16
_ROUNDS = 200
# Pairs of points and members whose densities are held at once.
_BLOCK = 2**20


def _sound(belief: GaussianBelief) -> None:
    GaussianBelief(belief.means, belief.covariances, belief.weights)
    require(abs(float(np.sum(belief.weights)) - 1.0) < 1e-9, "weights that sum to one in a belief")


@stored("means", "covariances", "weights", check=_sound)
class GaussianBelief(Belief):
    """p(x) = sum_i w_i N(x; m_i, P_i): a Gaussian, or a mixture of m of them. Answers are NumPy arrays.

    Args:
        means: Shape (d,), or (m, d).
        covariances: Symmetric and positive definite, shape (d, d), or (m, d, d).
        weights: Non-negative, shape (m,), scaled to sum to one; equal where none are given.
    """

    means: Float[ndarray, "m d"]
    covariances: Float[ndarray, "m d d"]
    weights: Float[ndarray, " m"]

    def __init__(self, means: ArrayLike, covariances: ArrayLike, weights: ArrayLike | None = None):
        means, covariances = numbers(means, "means"), numbers(covariances, "covariances")
        means, covariances = (
            (means[None] if means.ndim == 1 else means),
            (covariances[None] if covariances.ndim == 2 else covariances),
        )
        if means.ndim != 2 or means.size == 0 or covariances.shape != (*means.shape, means.shape[1]):
            raise ValueError(
                "Expected means of shape (m, d) and covariances of shape (m, d, d), got"
                f" {means.shape} and {covariances.shape}."
            )
        given = numbers(np.ones(len(means)) if weights is None else weights, "weights")
        if given.shape != (len(means),) or np.any(given < 0) or not np.sum(given) > 0:
            raise ValueError(f"Expected {len(means)} weights >= 0, not all zero, got {weights}.")
        self.means, self.covariances = means, positive_definite(covariances, "covariances")
        self.weights = given / np.sum(given)
        self.names = None

    @property
    def mixture(self) -> Mixture:
        """Weights, means and covariances as a plain record."""
        return Mixture(self.weights, self.means, self.covariances)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.means.shape[1]

    @property
    def parameter_count(self) -> int:
        """Weights but one, means, and halves of covariances."""
        m, d = self.means.shape
        return m - 1 + m * d + m * d * (d + 1) // 2

    # --- entering a recursion ---------------------------------------------------------------------

    def require_of(self, transition: Any) -> None:
        """A form of process that takes Gaussian mixtures."""
        if not callable(getattr(transition, "enter_mixture", None)):
            raise ValueError(
                "Expected a belief that this form of process can start from, got a GaussianBelief, which the gaussian"
                " form takes. Start from a known state, or from a belief of the process."
            )

    def enter(self, transition: Any, reading: Any = None) -> Any:
        """The mixture itself."""
        return transition.enter_mixture(self.mixture, reading)

    # --- questions --------------------------------------------------------------------------------

    def log_prob(self, x: ArrayLike) -> Float[Any, ...]:
        """log-density at states of shape (..., d)."""
        x = np.asarray(checks.states(x, self.dim))
        flat, step = x.reshape(-1, self.dim), max(1, _BLOCK // self.means.size)
        found = [mixtures.log_density(self.mixture, flat[i : i + step]) for i in range(0, len(flat), step)]
        return np.concatenate([np.zeros(0), *found]).reshape(x.shape[:-1])

    def prob(self, x: ArrayLike) -> Float[Any, ...]:
        """Density at states of shape (..., d)."""
        return np.exp(self.log_prob(x))

    def mass(self) -> Any:
        """The sum of the weights."""
        return float(np.sum(self.weights))

    def mean(self) -> Float[Any, " d"]:
        """E[x]."""
        return mixtures.mean(self.mixture)

    def covariance(self) -> Float[Any, "d d"]:
        """E[x x^T] - E[x] E[x]^T."""
        return mixtures.covariance(self.mixture)

    def sample(self, key: Any, shape: int | Sequence[int] = ()) -> Float[Any, "... d"]:
        """Independent exact draws, shape (*shape, d); a JAX key, a whole number or a NumPy generator to draw by."""
        rng, shape = generator(key), checks.shape(shape)
        return draw(rng, self.mixture, math.prod(shape)).reshape(*shape, self.dim)

    def mode(self, key: Any = None, starts: int = _STARTS) -> Float[Any, " d"]:
        """The most likely state: ascents from the means under which the density is largest; nothing is drawn."""
        del key
        order = np.argsort(-self.log_prob(self.means))[: checks.count(starts, "starts", 1)]
        found = np.array([_climbed(self.mixture, self.means[i]) for i in order])
        return found[np.argmax(self.log_prob(found))]

    def support(self) -> tuple[Float[Any, " d"], Float[Any, " d"]]:
        """Everywhere."""
        return np.full(self.dim, -np.inf), np.full(self.dim, np.inf)

    def line(self, coordinate: int) -> NormalLine:
        """A mixture of normals on one coordinate."""
        std = np.sqrt(self.covariances[:, coordinate, coordinate])
        return NormalLine.of(self.weights, self.means[:, coordinate], std)

    def _moment(self, powers: tuple[int, ...]) -> Any:
        return mixtures.moment(self.mixture, powers)

    def _marginal(self, kept: tuple[int, ...]) -> GaussianBelief:
        return of(mixtures.marginal(self.mixture, kept))

    def _condition(self, values: dict[int, Any]) -> GaussianBelief:
        found, log_density = mixtures.conditional(self.mixture, values)
        if not log_density > -np.inf:
            raise ValueError(f"Expected values where the belief has a density, got {values}: there is none.")
        return of(found)

    def _probability(self, lower: Any, upper: Any) -> Float[Any, ...]:
        lower, upper = np.broadcast_arrays(np.asarray(lower), np.asarray(upper))
        flat = lower.reshape(-1, self.dim), upper.reshape(-1, self.dim)
        found, error = boxes(*flat, self.means, self.covariances)
        if error > 0:
            warnings.warn(
                f"Boxes over {self.dim} coordinates that hang together have no closed form, and were integrated with a"
                f" standard error of up to {error:.1g}; `estimate_probability` counts draws, and `marginal` is closed.",
                EstimateWarning,
                stacklevel=3,
            )
        return (found @ self.weights).reshape(lower.shape[:-1])

    def _quantiles(self, shares: Any, chosen: tuple[int, ...]) -> Float[Any, "n k"]:
        std = np.sqrt(np.diagonal(self.covariances, axis1=1, axis2=2))
        ends = [quantiles(self.weights, self.means[:, c], std[:, c], np.asarray(shares)) for c in chosen]
        return np.stack(ends, axis=-1)


def numbers(given: ArrayLike, name: str) -> ndarray:
    """Finite numbers as an array of NumPy's, or a ValueError."""
    array = np.array(checks.as_float(given, name), dtype=float)
    checks.require_finite(array, name)  # type: ignore[arg-type]
    return array


def positive_definite(P: ndarray, name: str) -> ndarray:
    """Symmetric matrices (..., d, d) with a factor, without what rounding made of their halves; or a ValueError."""
    size = np.sqrt(np.abs(np.diagonal(P, axis1=-2, axis2=-1)))
    scale = size[..., :, None] * size[..., None, :]
    if np.any(np.abs(P - np.swapaxes(P, -1, -2)) > 1e-9 * scale):
        raise ValueError(f"Expected {name} to be symmetric, got a matrix that is not: {P}.")
    found = mixtures.symmetric(P)
    try:
        np.linalg.cholesky(found)
    except np.linalg.LinAlgError:
        least = float(np.min(np.linalg.eigvalsh(found)))
        raise ValueError(
            f"Expected {name} to be positive definite, got a smallest eigenvalue of {least:.3g}. Leave out coordinates"
            " that the others determine; where there is no noise, there is no density."
        ) from None
    return found


def of(mixture: Mixture) -> GaussianBelief:
    """The belief that numbers stand for."""
    return GaussianBelief(mixture.means, mixture.covariances, mixture.weights)


def draw(rng: np.random.Generator, mixture: Mixture, count: int) -> Float[ndarray, "n d"]:
    """Independent draws, in random order."""
    chosen = rng.choice(len(mixture.weights), count, p=mixture.weights)
    L = np.linalg.cholesky(mixture.covariances)
    noise = rng.standard_normal((count, mixture.means.shape[1]))
    if len(L) == 1:
        return mixture.means[0] + noise @ L[0].T
    return mixture.means[chosen] + np.einsum("nij,nj->ni", L[chosen], noise)


def quantiles(weights: ndarray, means: ndarray, stds: ndarray, shares: ndarray) -> ndarray:
    """The x with sum_i w_i Phi((x - m_i) / s_i) = share, to the last digits in both tails.

    Newton's steps for the logarithm of the nearer tail, between ends that hold the root: the smallest and the largest
    of the members' own quantiles. Halved where a step leaves them.
    """
    found = means[0] + stds[0] * ndtri(shares)
    kept = weights > 0
    if np.sum(kept) == 1 and kept[0]:
        return found
    weights, means, stds = weights[kept], means[kept], stds[kept]
    # The upper tail is looked at from the other side, where shares near one keep their digits.
    side = np.where(shares > 0.5, -1.0, 1.0)
    wanted = np.log(np.where(shares > 0.5, 1.0 - shares, shares))
    own = means[:, None] + stds[:, None] * ndtri(shares)
    low, high = np.min(own, axis=0), np.max(own, axis=0)
    x = np.clip(weights @ own, low, high)
    log_weights, unit = np.log(weights)[:, None], np.min(stds)
    going = np.ones(len(x), dtype=bool)
    for _ in range(_ROUNDS):
        z = (x - means[:, None]) / stds[:, None]
        log_mass = logsumexp(log_weights + log_ndtr(side * z), axis=0)
        log_slope = logsumexp(log_weights - 0.5 * z**2 - np.log(stds)[:, None] - 0.5 * math.log(2 * math.pi), axis=0)
        gap = log_mass - wanted
        above = side * gap > 0
        low, high = np.where(above, low, x), np.where(above, x, high)
        newton = x - side * gap * np.exp(np.minimum(log_mass - log_slope, 700.0))
        moved = np.where((newton >= low) & (newton <= high), newton, 0.5 * (low + high))
        going &= np.abs(moved - x) > 2.0**-52 * np.maximum(np.abs(x), unit)
        # Where two steps would go to and fro by a last digit, the first is kept.
        x = np.where(going, moved, x)
        if not np.any(going):
            break
    return x


def _climbed(mixture: Mixture, x: ndarray) -> ndarray:
    """A maximum uphill of x, by x <- (sum_i r_i P_i^-1)^-1 sum_i r_i P_i^-1 m_i, then by Newton's steps."""
    eye = np.broadcast_to(np.eye(len(x)), mixture.covariances.shape)
    precision = mixtures.symmetric(np.linalg.solve(mixture.covariances, eye))
    for _ in range(_ROUNDS):
        logs = mixtures.log_densities(mixture, x[None])[0]
        share, _ = mixtures.reweighed(mixture.weights, logs)
        pull = np.einsum("mij,mj->mi", precision, mixture.means - x)
        slope, curve = share @ pull, np.tensordot(share, precision, 1)
        bent = curve - (share * pull.T) @ pull + np.outer(slope, slope)
        # Newton's step where the logarithm bends down, else the one that never goes down.
        safe = bool(np.all(np.linalg.eigvalsh(bent) > 0.5 * np.linalg.eigvalsh(curve)))
        step = np.linalg.solve(bent if safe else curve, slope)
        x = x + step
        if np.max(np.abs(step)) <= 2.0**-50 * np.max(np.abs(x)):
            break
    return x
