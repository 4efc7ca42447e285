"""The Kalman filter and smoother: what filtering has to come to where the true system is linear and Gaussian."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class LinearGaussian(NamedTuple):
    """x' = A x + b + w and o = C x + c + v with normal w, v and x_0.

    Attributes:
        A: Shape (d, d).
        b: Shape (d,), or (T - 1, d) where it changes from step to step.
        Q: Covariance of w, shape (d, d).
        C: Shape (m, d).
        c: Shape (m,).
        R: Covariance of v, shape (m, m).
        mean: Of x_0, shape (d,).
        covariance: Of x_0, shape (d, d).
    """

    A: np.ndarray
    b: np.ndarray
    Q: np.ndarray
    C: np.ndarray
    c: np.ndarray
    R: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray

    def simulate(self, count: int, steps: int, seed: int) -> Float[np.ndarray, "n t d"]:
        """Trajectories of states, shape (count, steps + 1, d)."""
        rng = np.random.default_rng(seed)
        x = rng.multivariate_normal(self.mean, self.covariance, count)
        path = [x]
        for k in range(steps):
            x = x @ self.A.T + self._offset(k) + rng.multivariate_normal(np.zeros(len(self.A)), self.Q, count)
            path.append(x)
        return np.stack(path, axis=1)

    def read(self, states: np.ndarray, seed: int) -> np.ndarray:
        """A reading of every state, shape (..., m)."""
        noise = np.random.default_rng(seed).multivariate_normal(np.zeros(len(self.R)), self.R, states.shape[:-1])
        return states @ self.C.T + self.c + noise

    def _offset(self, k: int) -> np.ndarray:
        return self.b if self.b.ndim == 1 else self.b[k]


class Kalman(NamedTuple):
    """Normal beliefs given readings.

    Attributes:
        filtered_means: E[x_k | o_0, ..., o_k], shape (T, d).
        filtered_covariances: Shape (T, d, d).
        smoothed_means: E[x_k | o_0, ..., o_(T-1)], shape (T, d).
        smoothed_covariances: Shape (T, d, d).
        log_evidence: Log p(o_0, ..., o_(T-1)).
    """

    filtered_means: np.ndarray
    filtered_covariances: np.ndarray
    smoothed_means: np.ndarray
    smoothed_covariances: np.ndarray
    log_evidence: float


def kalman(system: LinearGaussian, observations: np.ndarray) -> Kalman:
    """Filter and smooth readings of shape (T, m); a row with NaN is a missing reading."""
    mean, covariance, log_evidence = system.mean, system.covariance, 0.0
    predicted, filtered = [], []
    for k, observation in enumerate(observations):
        if k:
            mean = system.A @ mean + system._offset(k - 1)
            covariance = system.A @ covariance @ system.A.T + system.Q
        predicted.append((mean, covariance))
        if not np.any(np.isnan(observation)):
            S = system.C @ covariance @ system.C.T + system.R
            gain = np.linalg.solve(S, system.C @ covariance).T
            away = observation - system.C @ mean - system.c
            log_evidence -= 0.5 * (away @ np.linalg.solve(S, away) + np.linalg.slogdet(2.0 * np.pi * S)[1])
            mean, covariance = mean + gain @ away, covariance - gain @ S @ gain.T
        filtered.append((mean, covariance))
    smoothed = [filtered[-1]]
    for (mean, covariance), (mean_next, covariance_next) in zip(filtered[-2::-1], predicted[:0:-1], strict=True):
        gain = np.linalg.solve(covariance_next, system.A @ covariance).T
        after_mean, after_covariance = smoothed[0]
        found = (
            mean + gain @ (after_mean - mean_next),
            covariance + gain @ (after_covariance - covariance_next) @ gain.T,
        )
        smoothed.insert(0, found)
    stacked = [np.stack(parts) for pairs in (filtered, smoothed) for parts in zip(*pairs, strict=True)]
    return Kalman(*stacked, log_evidence=float(log_evidence))
