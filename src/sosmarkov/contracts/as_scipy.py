"""A belief with the method names of scipy.stats, answering in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from sosmarkov.contracts.belief import Belief
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike


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
