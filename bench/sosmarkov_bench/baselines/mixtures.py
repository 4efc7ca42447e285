"""Mixtures of normals: the beliefs of most baselines."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from sosmarkov.data.dataset import robust_standardize
from sosmarkov.factor.starts import Mixture
from sosmarkov_bench.baselines.base import Beliefs

# Numbers held at once while a block of states is scored.
_AT_ONCE = 4_000_000
_SIZES = (1, 32, 512, 2_048)
# States a round of EM takes at once, and what keeps covariances regular, in units of the data's.
_BLOCK, _LEAST = 5_000, 1e-6


@dataclass(frozen=True, eq=False)
class MixtureBeliefs(Beliefs):
    """One mixture a step; covariances (c, d, d), or (1, d, d) where all components share one."""

    mixtures: Sequence[Mixture]

    @property
    def last(self) -> int:
        """One less than there are mixtures."""
        return len(self.mixtures) - 1

    def log_prob(self, k: int, x: np.ndarray) -> np.ndarray:
        """Log of the weighted sum of normal densities."""
        return mixture_log_prob(self.mixtures[k], x)

    def mass(self, k: int) -> float:
        """The sum of the weights."""
        return float(np.sum(self.mixtures[k].weights))


def mixture_log_prob(mixture: Mixture, x: np.ndarray) -> np.ndarray:
    """At states of shape (N, d), shape (N,)."""
    mixture = _padded(mixture)
    block = max(1, min(256, _AT_ONCE // mixture.means.size))
    return np.asarray(_log_prob(*map(jnp.asarray, mixture), jnp.asarray(x), block))


def _padded(mixture: Mixture) -> Mixture:
    """With components of weight zero, so that few numbers of them are ever compiled."""
    count = len(mixture.weights)
    full = next((size for size in _SIZES if size >= count), -(-count // _SIZES[-1]) * _SIZES[-1])

    def more(part: np.ndarray) -> np.ndarray:
        return np.concatenate([part, np.repeat(part[:1], full - count, axis=0)])

    weights = np.concatenate([mixture.weights, np.zeros(full - count)])
    shared = len(mixture.covariances) == 1 < count
    return Mixture(weights, more(mixture.means), mixture.covariances if shared else more(mixture.covariances))


@partial(jax.jit, static_argnames="block")
def _log_prob(
    weights: Float[Array, " c"], means: Float[Array, "c d"], covariances: Float[Array, "s d d"], x: Array, block: int
) -> Array:
    d = means.shape[1]
    factors = jnp.linalg.cholesky(covariances)
    whiten = jnp.linalg.inv(factors)
    log_scale = -jnp.sum(jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)), axis=1) - 0.5 * d * np.log(2.0 * np.pi)
    # Whitened once a state for each covariance: for a kernel estimate that is one of thousands.
    centres = jnp.einsum("sij,sj->si", jnp.broadcast_to(whiten, (len(means), d, d)), means)

    def one(state: Array) -> Array:
        away = jnp.einsum("sij,j->si", whiten, state) - centres
        return jax.nn.logsumexp(log_scale - 0.5 * jnp.sum(away**2, axis=1), b=weights)

    return lax.map(one, x, batch_size=block)


def fit_mixture(x: np.ndarray, components: int, seed: int) -> Mixture:
    """EM with full covariances; no more components than one for every ten states."""
    components = max(1, min(components, len(x) // 10))
    # Relative to the data: coordinates of small scale must not drown in what keeps covariances regular.
    scale = np.asarray(robust_standardize(x).std)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = GaussianMixture(components, reg_covar=1e-6, max_iter=200, random_state=seed).fit(x / scale)
    covariances = np.asarray(model.covariances_) * scale[:, None] * scale
    return Mixture(np.asarray(model.weights_), np.asarray(model.means_) * scale, covariances)


def fit_large_mixture(x: np.ndarray, components: int, seed: int, rounds: int) -> Mixture:
    """EM with full covariances for more states and components than scikit-learn does in passable time.

    It begins with the clusters of k-means, and takes `rounds` rounds over states in blocks.
    """
    scale = np.asarray(robust_standardize(x).std)
    y = x[np.random.default_rng(seed).permutation(len(x))] / scale
    y = y[: len(y) // _BLOCK * _BLOCK] if len(y) > _BLOCK else y
    few = y[: 50 * components]
    labels = np.asarray(KMeans(components, n_init="auto", random_state=seed).fit_predict(few))
    d = y.shape[1]
    counts = np.bincount(labels, minlength=components)
    means = np.stack([few[labels == c].mean(0) for c in range(components)])
    away = few - means[labels]
    # As wide as all clusters together: one of few states has no covariance of its own.
    covariances = np.repeat((away.T @ away / len(few) + _LEAST * np.eye(d))[None], components, axis=0)
    blocks = jnp.asarray(y.reshape(-1, min(_BLOCK, len(y)), d))
    weights, means, covariances = map(np.asarray, _em(counts / len(few), means, covariances, blocks, rounds))
    return Mixture(weights / weights.sum(), means * scale, covariances * scale[:, None] * scale)


@partial(jax.jit, static_argnames="rounds")
def _em(
    weights: Float[Array, " c"],
    means: Float[Array, "c d"],
    covariances: Array,
    blocks: Float[Array, "b n d"],
    rounds: int,
) -> tuple[Array, Array, Array]:
    d = means.shape[1]

    def once(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        weights, means, covariances = state
        factors = jnp.linalg.cholesky(covariances)
        whiten = jnp.linalg.inv(factors)
        log_scale = jnp.log(weights) - jnp.sum(jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)), axis=1)
        centres = jnp.einsum("cij,cj->ci", whiten, means)

        def add(sums: tuple[Array, Array, Array], x: Array) -> tuple[tuple[Array, Array, Array], None]:
            away = jnp.einsum("cij,nj->nci", whiten, x) - centres[None]
            shares = jax.nn.softmax(log_scale[None] - 0.5 * jnp.sum(away**2, axis=2), axis=1)
            second = jnp.einsum("nc,ni,nj->cij", shares, x, x)
            return (sums[0] + shares.sum(0), sums[1] + shares.T @ x, sums[2] + second), None

        start = jnp.zeros_like(weights), jnp.zeros_like(means), jnp.zeros_like(covariances)
        total, first, second = lax.scan(add, start, blocks)[0]
        # A component that lost all its states stays where it was, with no weight.
        safe = jnp.where(total > 0, total, 1.0)
        mean = jnp.where((total > 0)[:, None], first / safe[:, None], means)
        spread = second / safe[:, None, None] - mean[:, :, None] * mean[:, None, :] + _LEAST * jnp.eye(d)[None]
        covariance = jnp.where((total > d)[:, None, None], spread, covariances)
        return total / blocks.shape[0] / blocks.shape[1], mean, covariance

    return lax.fori_loop(0, rounds, once, (weights, means, covariances))


def mixture_parameters(components: int, d: int) -> int:
    """Free numbers of a mixture with full covariances."""
    return components * (1 + d + d * (d + 1) // 2) - 1
