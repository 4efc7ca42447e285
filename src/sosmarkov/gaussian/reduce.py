"""Fewer members for a mixture that grows with every reading."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from sosmarkov.gaussian import mixture as mixtures
from sosmarkov.gaussian.mixture import Mixture

# Members that weigh less beside the heaviest are below the rounding of every answer.
_NOTHING = 1e-20


def reduced(mixture: Mixture, most: int) -> tuple[Mixture, float]:
    """At most so many members, and by about how many nats joining them moved the belief (Runnalls' bound, summed).

    Members without any weight to speak of go first; then pairs are joined that cost least, moments kept.
    """
    kept = mixture.weights > _NOTHING * np.max(mixture.weights)
    if not np.any(kept):
        return mixture, 0.0
    found = _known_once(Mixture(*(part[kept] for part in mixture)))
    weights = found.weights / np.sum(found.weights)
    found = found._replace(weights=weights)
    if len(weights) <= most or not np.all(np.any(found.covariances, axis=(1, 2))):
        return found, 0.0
    return _joined(found, most)


def _known_once(mixture: Mixture) -> Mixture:
    """Known states, which explanations leave as they are, each once."""
    known = ~np.any(mixture.covariances, axis=(1, 2))
    if np.sum(known) < 2:
        return mixture
    places, where = np.unique(mixture.means[known], axis=0, return_inverse=True)
    weights = np.bincount(where.reshape(-1), mixture.weights[known])
    zeros = np.zeros((len(places), *mixture.covariances.shape[1:]))
    rest = (part[~known] for part in mixture)
    return Mixture(*(np.concatenate(parts) for parts in zip((weights, places, zeros), rest, strict=True)))


def _joined(mixture: Mixture, most: int) -> tuple[Mixture, float]:
    w, m, P = (np.array(part) for part in mixture)
    logs = np.linalg.slogdet(P)[1]
    costs = np.array([_costs(w, m, P, logs, i) for i in range(len(w))])
    alive, total = np.ones(len(w), dtype=bool), 0.0
    for _ in range(len(w) - most):
        i, j = np.unravel_index(np.argmin(costs), costs.shape)
        total += float(costs[i, j])
        weight, mean, spread = _both(w, m, P, int(i), np.array([j]))
        w[i], m[i], P[i] = weight[0], mean[0], spread[0]
        logs[i], alive[j] = np.linalg.slogdet(P[i])[1], False
        costs[j], costs[:, j] = np.inf, np.inf
        row = np.where(alive, _costs(w, m, P, logs, int(i)), np.inf)
        costs[i], costs[:, i] = row, row
    return Mixture(w[alive] / np.sum(w[alive]), m[alive], P[alive]), total


def _both(w: ndarray, m: ndarray, P: ndarray, i: int, j: ndarray) -> tuple[ndarray, ndarray, ndarray]:
    """Weight, mean and covariance of member i together with each of some others."""
    weight = w[i] + w[j]
    share = (w[j] / weight)[:, None]
    away = m[j] - m[i]
    spread = (1.0 - share[..., None]) * P[i] + share[..., None] * P[j]
    outer = (share * (1.0 - share))[..., None] * away[:, :, None] * away[:, None, :]
    return weight, m[i] + share * away, mixtures.symmetric(spread + outer)


def _costs(w: ndarray, m: ndarray, P: ndarray, logs: ndarray, i: int) -> ndarray:
    """Bounds on the divergence that joining member i with each of the others makes; infinite with itself."""
    weight, _, spread = _both(w, m, P, i, np.arange(len(w)))
    found = 0.5 * (weight * np.linalg.slogdet(spread)[1] - w[i] * logs[i] - w * logs)
    found[i] = np.inf
    # Rounding makes less than nothing of what costs nothing.
    return np.maximum(found, 0.0)
