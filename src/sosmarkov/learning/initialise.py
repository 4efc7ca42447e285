"""Where training starts: mixtures fitted to the data, and how often their components follow each other."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from sosmarkov.bases import FullGaussianBasis, GaussianBasis
from sosmarkov.couplings import Kraus

_MOST_POINTS = 6_000


class Mixture(NamedTuple):
    """A basis whose squares are the components of a mixture, and the mixture itself."""

    basis: GaussianBasis | FullGaussianBasis
    model: Any  # scikit-learn's, fitted


def fit_mixture(y: np.ndarray, size: int, full: bool, seed: int) -> Mixture:
    """EM on at most a few thousand points; widths times sqrt 2, since functions are squared."""
    rng = np.random.default_rng(seed)
    if len(y) > _MOST_POINTS:
        y = y[rng.choice(len(y), _MOST_POINTS, replace=False)]
    kind = "full" if full else "diag"
    model: Any = GaussianMixture(size, covariance_type=kind, reg_covar=1e-4, max_iter=40, random_state=seed)
    with warnings.catch_warnings():
        # A start need not be a converged fit.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(y)
    if full:
        return Mixture(FullGaussianBasis(model.means_, 2.0 * model.covariances_), model)
    return Mixture(GaussianBasis(model.means_, np.sqrt(2.0 * model.covariances_)), model)


def start_transition(
    y: np.ndarray, y_next: np.ndarray, size: int, rank: int, full: bool, background: float, seed: int
) -> tuple[GaussianBasis | FullGaussianBasis, GaussianBasis | FullGaussianBasis, Kraus]:
    """The basis phi from all states, psi from the successors, K from the co-occurrence of responsibilities.

    phi carries g, a factor of every belief, so it has to cover the last states too, which are nobody's
    predecessor. With random signs cross terms cancel on average: f starts near sum_ik J_ik phi_i^2 psi_k^2.
    """
    rng = np.random.default_rng(seed)
    before = fit_mixture(np.concatenate([y, y_next]), size, full, seed)
    after = fit_mixture(y_next, size, full, seed + 1)
    chosen = rng.choice(len(y), min(len(y), 20_000), replace=False)
    left = before.model.predict_proba(y[chosen])
    right = after.model.predict_proba(y_next[chosen])
    joint = left.T @ right / len(chosen)
    # Every pair keeps a little: a coefficient at zero has no gradient of its sign.
    joint = 0.98 * joint + 0.02 * np.outer(joint.sum(1), joint.sum(0))
    weights = before.model.weights_
    density = np.exp(before.model.score_samples(after.model.means_))
    # A start only: components on outliers, where the density is next to nothing, must not drown the others.
    scale = joint / np.clip(density, 1e-2 * np.median(density), None)
    signs = rng.choice([-1.0, 1.0], size=(size, size, rank))
    K = np.sqrt(scale)[:, :, None] * signs / np.sqrt(rank) * (1.0 + 0.1 * rng.normal(size=(size, size, rank)))
    if background == 0:
        return before.basis, after.basis, Kraus(K, np.diag(np.sqrt(weights)))
    # The broad functions that `realise` adds start with little weight and weak ties.
    padded = 0.01 * np.sqrt(np.mean(K**2)) * rng.normal(size=(size + 1, size + 1, rank))
    padded[:size, :size] = K
    factor = np.diag(np.sqrt(np.append(weights, 0.01 * weights.mean())))
    return before.basis, after.basis, Kraus(padded, factor, background=background)


def start_initial(y: np.ndarray, size: int, full: bool, seed: int) -> tuple[GaussianBasis | FullGaussianBasis, Array]:
    """Basis and factor of h_0, from a mixture fitted to the initial states."""
    size = max(1, min(size, len(y) // 20))
    mixture = fit_mixture(y, size, full, seed)
    noise = 0.01 * np.random.default_rng(seed).normal(size=(size, size))
    return mixture.basis, jnp.asarray(np.diag(np.sqrt(mixture.model.weights_)) + noise)
