"""A particle in a double well, x' = x + 0.2 (x - x^3) + 0.4 e with e standard normal: small, and not Gaussian."""

from __future__ import annotations

import numpy as np

PULL, NOISE = 0.2, 0.4


def drift(x: np.ndarray) -> np.ndarray:
    """The mean of x' given x."""
    return x + PULL * (x - x**3)


def simulate(count: int, length: int, seed: int) -> np.ndarray:
    """Trajectories (count, length, 1) from standard normal states."""
    rng = np.random.default_rng(seed)
    x = np.empty((count, length, 1))
    x[:, 0] = rng.normal(size=(count, 1))
    for k in range(length - 1):
        x[:, k + 1] = drift(x[:, k]) + NOISE * rng.normal(size=(count, 1))
    return x


def log_likelihood(x: np.ndarray) -> float:
    """Mean log p(x' | x) of trajectories under the truth."""
    z = (x[:, 1:] - drift(x[:, :-1])) / NOISE
    return float(np.mean(-0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - np.log(NOISE)))
