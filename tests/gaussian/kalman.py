"""Kalman's filter, the smoother of Rauch, Tung and Striebel, and their bank for mixtures: textbook formulas, NumPy."""

from __future__ import annotations

import numpy as np
from scipy.stats import multivariate_normal


def stable(rng, d, size=0.9):
    F = rng.normal(size=(d, d))
    return F * size / np.max(np.abs(np.linalg.eigvals(F)))


def covariance(rng, d, scale=1.0):
    root = rng.normal(size=(d, d + 2))
    return scale * root @ root.T / (d + 2)


def kalman(steps, H, c, R, m, P, readings):
    """Predicted and filtered means and covariances, and log-evidences; `steps` are (F, b, Q) of each transition."""
    predicted, filtered, logs = [], [], []
    for k, o in enumerate(readings):
        if k:
            F, b, Q = steps[k - 1]
            m, P = F @ m + b, F @ P @ F.T + Q
        predicted.append((m, P))
        there = ~np.isnan(o)
        log = 0.0
        if there.any():
            h, r = H[there], R[np.ix_(there, there)]
            S = h @ P @ h.T + r
            K = P @ h.T @ np.linalg.inv(S)
            log = multivariate_normal(h @ m + c[there], S).logpdf(o[there])
            m, P = m + K @ (o[there] - h @ m - c[there]), P - K @ S @ K.T
        filtered.append((m, P))
        logs.append(log)
    return predicted, filtered, np.array(logs)


def rts(steps, predicted, filtered):
    """Smoothed means and covariances."""
    found = [filtered[-1]]
    for k in reversed(range(len(filtered) - 1)):
        (m, P), (mp, Pp), (ms, Ps) = filtered[k], predicted[k + 1], found[0]
        G = P @ steps[k][0].T @ np.linalg.inv(Pp)
        found.insert(0, (m + G @ (ms - mp), P + G @ (Ps - Pp) @ G.T))
    return found


def joint(steps, m, P):
    """Mean and covariance of the whole trajectory x_0, ..., x_K stacked."""
    d, count = len(m), len(steps) + 1
    mean, cov = np.zeros(d * count), np.zeros((d * count, d * count))
    mean[:d], cov[:d, :d] = m, P
    for k, (F, b, Q) in enumerate(steps):
        now, after = slice(d * k, d * (k + 1)), slice(d * (k + 1), d * (k + 2))
        mean[after] = F @ mean[now] + b
        cov[after, : d * (k + 1)] = F @ cov[now, : d * (k + 1)]
        cov[: d * (k + 1), after] = cov[after, : d * (k + 1)].T
        cov[after, after] = F @ cov[now, now] @ F.T + Q
    return mean, cov


def moments(weights, means, covariances):
    """Mean and covariance of a mixture."""
    mean = np.einsum("i,ij->j", weights, means)
    second = np.einsum("i,ijk->jk", weights, covariances) + np.einsum("i,ij,ik->jk", weights, means, means)
    return mean, second - np.outer(mean, mean)
