"""The Van der Pol oscillator of the demonstration: simulated, and what no prediction of it can beat."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

DT, MU = 0.3, 0.9
START, START_VARIANCE, VARIANCE = np.array([0.2, 0.1]), 0.2, 0.1
_AT_ONCE = 100


def drift(x: np.ndarray) -> np.ndarray:
    """x1' = x1 + dt x2, x2' = x2 + dt (mu (1 - x1^2) x2 - x1), for states (..., 2)."""
    x1, x2 = np.moveaxis(x, -1, 0)
    return np.stack([x1 + DT * x2, x2 + DT * (MU * (1.0 - x1**2) * x2 - x1)], axis=-1)


def simulate(count: int, steps: int, seed: int) -> np.ndarray:
    """Trajectories (count, steps + 1, 2): a normal start, x' = drift(x) + normal noise."""
    rng = np.random.default_rng(seed)
    x = [START + np.sqrt(START_VARIANCE) * rng.normal(size=(count, 2))]
    for _ in range(steps):
        x.append(drift(x[-1]) + np.sqrt(VARIANCE) * rng.normal(size=(count, 2)))
    return np.stack(x, axis=1)


def limit(test: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The mean over test states of log p(x_k) = log E[p(x_k | x_(k-1))], k = 1, ..., K, by averaging over others.

    Args:
        test: Trajectories (N, K + 1, 2).
        others: Independent trajectories (M, K + 1, 2).
    """
    found = np.empty(test.shape[1] - 1)
    for k in range(1, test.shape[1]):
        means = drift(others[:, k - 1])
        blocks = np.array_split(test[:, k], -(-len(test) // _AT_ONCE))
        logs = sum(np.sum(logsumexp(-0.5 * cdist(x, means, "sqeuclidean") / VARIANCE, axis=1)) for x in blocks)
        found[k - 1] = logs / len(test) - np.log(2.0 * np.pi * VARIANCE * len(others))
    return found


def one_gaussian(training: np.ndarray, test: np.ndarray) -> np.ndarray:
    """The mean over test states of log N(x_k), k = 1, ..., K, one normal a k fitted to training trajectories."""
    found = np.empty(test.shape[1] - 1)
    for k in range(1, test.shape[1]):
        covariance = np.cov(training[:, k].T)
        away = test[:, k] - training[:, k].mean(0)
        distance = np.mean(np.sum(away * np.linalg.solve(covariance, away.T).T, axis=1))
        found[k - 1] = -0.5 * (distance + np.linalg.slogdet(2.0 * np.pi * covariance)[1])
    return found
