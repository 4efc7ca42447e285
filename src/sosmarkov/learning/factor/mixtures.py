"""Mixtures fitted to the data, which every start is made of."""

from __future__ import annotations

import numpy as np
from sklearn.mixture import GaussianMixture

from sosmarkov.factor.starts import Mixture

# Points that a mixture is fitted to: as many as these, and as many for each component.
_POINTS, _POINTS_EACH = 6_000, 20
_MANY = 100


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
