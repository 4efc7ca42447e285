"""Where a lattice process starts: p(x0) from initial states, a normal distribution changed by counts."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from sosmarkov.lattice.beliefs import LatticeBelief
from sosmarkov.lattice.broad import Broad
from sosmarkov.lattice.nodes import Nodes

# Initial states behind the normal distribution that counts weigh against; None: the normal alone.
_STRENGTHS = (None, 1000.0, 300.0, 100.0, 30.0, 10.0)
_PASSES, _FOLDS, _BROAD = 30, 5, 1e-3


def learn_initial(
    nodes: Nodes, broad: Broad, x: Float[np.ndarray, "n d"], weight: Float[np.ndarray, " n"]
) -> LatticeBelief:
    """p(x0) = sum_j C_j D_j + C_(n+1) t, with the strength under which initial states left out are most likely."""
    part = np.random.default_rng(0).permutation(len(x)) % _FOLDS
    strength = None
    if len(x) >= 4 * _FOLDS:
        scores = {one: 0.0 for one in _STRENGTHS}
        for fold in range(_FOLDS):
            kept, out = part != fold, part == fold
            for one in scores:
                belief = LatticeBelief(nodes, broad, _counted(nodes, broad, x[kept], weight[kept], one))
                scores[one] += float(np.sum(weight[out] * np.asarray(belief.log_prob(x[out]))))
        strength = max(scores, key=lambda one: scores[one])
    return LatticeBelief(nodes, broad, _counted(nodes, broad, x, weight, strength))


def _counted(
    nodes: Nodes, broad: Broad, x: np.ndarray, weight: np.ndarray, strength: float | None
) -> Float[np.ndarray, " q"]:
    """Shares by expectation-maximisation, shrunk to the normal distribution."""
    prior = _normal(nodes, x, weight)
    if strength is None:
        return prior
    index, density = nodes.densities(x)
    far, C = np.exp(broad.log_prob(x)), prior.copy()
    # Weights count as data do where their mean is one.
    weight = weight / np.mean(weight)
    for _ in range(_PASSES):
        held = density * C[index]
        p = np.sum(held, axis=1) + C[-1] * far
        counts = np.bincount(index.reshape(-1), (held * (weight / p)[:, None]).reshape(-1), len(C))
        counts[-1] += np.sum(weight * C[-1] * far / p)
        C = counts + strength * prior
        C /= np.sum(C)
    return C


def _normal(nodes: Nodes, x: np.ndarray, weight: np.ndarray) -> Float[np.ndarray, " q"]:
    """Shares of the nodes by the density of a normal distribution, narrower by what splines blur; bounds cut it off."""
    mean = np.average(x, axis=0, weights=weight)
    away = x - mean
    blur = nodes.spacing**2 / 4.0
    covariance = (away * weight[:, None]).T @ away / np.sum(weight)
    values, vectors = np.linalg.eigh(covariance - np.diag(blur))
    # Initial states all alike, or nearly: as narrow as a node allows.
    values = np.maximum(values, np.min(blur))
    z = (nodes.points - mean) @ vectors
    log_share = -0.5 * np.sum(z**2 / values, axis=1)
    share = np.exp(log_share - np.max(log_share))
    return np.append((1.0 - _BROAD) * share / np.sum(share), _BROAD)
