"""How inputs enter what is learned: features of u, chosen from the data."""

from __future__ import annotations

import jax
import numpy as np
from sklearn.cluster import KMeans

from sosmarkov.core import checks
from sosmarkov.data.dataset import Dataset
from sosmarkov.factor.couplings import COUPLINGS, Bumps, Features, Network, Phases
from sosmarkov.factor.couplings.features import OVERLAP
from sosmarkov.learning.options import Options, made

KINDS = ("bumps", "network")
_HIDDEN = 16
_OUTPUTS = 5
# Up to so many phases have kernels of their own, however few the data: a week's days need not be like their neighbours.
_OWN_PHASES = 8
# Pairs for each kernel of a longer period. With 24 kernels for 7,000 pairs of hourly temperatures each fits its noise.
_PAIRS_A_KERNEL = 800


def choose_features(given: Options, data: Dataset) -> str | Features | None:
    """A kind, or the features themselves, checked; None without inputs, and with a period."""
    if given.period is not None:
        if data.pairs.u is None:
            raise ValueError("Expected times as inputs with a period and pairs, or trajectories, got none.")
        if given.features is not None:
            raise ValueError("Expected features or a period, got both. Give the phase as one of the inputs instead.")
        if data.pairs.u.shape[1] != 1 or np.any(data.pairs.u != np.round(data.pairs.u)):
            raise ValueError("Expected times as inputs of a process with a period, one whole number each, got others.")
    if data.pairs.u is None:
        return None
    if not COUPLINGS[given.coupling].takes_inputs:
        able = "' or '".join(one.name for one in COUPLINGS.values() if one.takes_inputs)
        raise ValueError(f"Expected coupling '{able}' with inputs or a period, got {given.coupling!r}.")
    if given.period is not None:
        if given.surrogate:
            raise ValueError("Expected surrogate None or False with a period: there is none for times, got True.")
        return None
    own, dim = made(given.features, Features), data.pairs.u.shape[1]
    if own is not None and own.dim != dim:
        raise ValueError(f"Expected features of {dim} inputs, like the data, got {own.dim}.")
    return own or checks.one_of(given.features or "bumps", KINDS, "features (or an object)")


def make_features(asked: str | Features | None, period: int | None, u: np.ndarray, seed: int) -> Features:
    """Features for inputs of shape (N, e), where these lie; phases where the inputs are times of a period."""
    if period is not None:
        return Phases(period, _phase_kernels(period, len(u)))
    own = made(asked, Features)
    if own is not None:
        return own
    spread = np.std(u, axis=0)
    if np.any(spread == 0):
        raise ValueError("Expected inputs that vary, got a constant one. Leave it out.")
    if asked == "network":
        return Network(u.mean(axis=0), spread, _OUTPUTS, _HIDDEN, jax.random.key(seed))
    centres = _centres(u / spread, seed)
    apart = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    nearest = np.median(np.partition(apart, 1, axis=1)[:, 1]) if len(centres) > 1 else 1.0
    return Bumps(centres * spread, np.full(u.shape[1], OVERLAP * nearest) * spread)


def _phase_kernels(period: int, pairs: int) -> int:
    """One for every phase of a short period; of a long one as many as the pairs can carry, shared by neighbours."""
    return min(period, max(_OWN_PHASES, pairs // _PAIRS_A_KERNEL))


def _centres(u: np.ndarray, seed: int) -> np.ndarray:
    """Every value where there are few, else spread over the data."""
    few = np.unique(u, axis=0)
    count = min(6 + 3 * u.shape[1], 12)
    if len(few) <= count:
        return few
    if u.shape[1] == 1:
        return np.quantile(u, (np.arange(count) + 0.5) / count, axis=0)
    return KMeans(count, n_init="auto", random_state=seed).fit(u).cluster_centers_
