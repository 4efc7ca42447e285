"""Gymnasium's pendulum under torques that are held for a few of its steps: states and torques, nothing of ours."""

from __future__ import annotations

import numpy as np

STEPS, HELD, TORQUE = 8, 4, 2.0
START_STD = np.array([0.3, 0.6])


def simulate(count: int, seed: int, torques: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """States (count, STEPS + 1, 2) and torques (count, STEPS, 1); random torques where none are given.

    A state is the angle from hanging and the angular velocity. It starts at N(0, diag(0.3, 0.6)^2); torques are
    uniform in [-2, 2], each held for four steps of `Pendulum-v1`.
    """
    import gymnasium

    rng = np.random.default_rng(seed)
    u = rng.uniform(-TORQUE, TORQUE, (count, STEPS, 1)) if torques is None else np.tile(torques, (count, 1, 1))
    pendulum = gymnasium.make("Pendulum-v1").unwrapped
    pendulum.reset(seed=seed)
    x = np.zeros((count, STEPS + 1, 2))
    x[:, 0] = START_STD * rng.normal(size=(count, 2))
    for i in range(count):
        pendulum.state = x[i, 0] + [np.pi, 0.0]  # type: ignore[attr-defined]
        for k in range(STEPS):
            for _ in range(HELD):
                pendulum.step(u[i, k])
            x[i, k + 1] = pendulum.state - [np.pi, 0.0]  # type: ignore[attr-defined]
    return x, u
