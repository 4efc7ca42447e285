"""The reference that costs nothing: one normal per k, fitted to the training trajectories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sosmarkov.factor.starts import Mixture
from sosmarkov_bench.baselines.base import Baseline, Trained, Trainer
from sosmarkov_bench.baselines.mixtures import MixtureBeliefs, mixture_parameters
from sosmarkov_bench.protocol import TrainingData


@dataclass(frozen=True)
class PerStepGaussian(Trainer[MixtureBeliefs]):
    """Mean and covariance of the states at each k."""

    def train(self, data: TrainingData, seed: int) -> Trained[MixtureBeliefs]:
        """One normal per k; nothing is random."""
        beliefs = MixtureBeliefs([gaussian(x) for x in states_by_step(data)])
        return Trained(beliefs, (data.steps + 1) * mixture_parameters(1, data.dim), {})


@dataclass(frozen=True)
class OneGaussian(Baseline[MixtureBeliefs]):
    """One normal per k."""

    @property
    def trainer(self) -> PerStepGaussian:
        """All there is."""
        return PerStepGaussian()

    def propagate(self, model: MixtureBeliefs, data: TrainingData, seed: int) -> tuple[MixtureBeliefs, dict[str, Any]]:
        """Nothing is propagated."""
        return model, {}


def gaussian(x: np.ndarray) -> Mixture:
    """The normal with the mean and covariance of states of shape (N, d), as a mixture of one."""
    return Mixture(np.ones(1), x.mean(0, keepdims=True), np.atleast_2d(np.cov(x.T))[None])


def states_by_step(data: TrainingData) -> list[np.ndarray]:
    """The training states at k = 0, 1, ..., without those set aside."""
    if data.trajectories is None:
        raise ValueError(
            "Expected training trajectories to fit a density at every k, got transition pairs. Use a baseline that"
            " propagates."
        )
    by_step = (data.trajectories[:, k] for k in range(data.steps + 1))
    return [x[~np.any(np.isnan(x), axis=1)] for x in by_step]


def gaussian_per_step(training: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Mean log-likelihood of test states under one normal per k, fitted to training trajectories; k = 1, ..., K."""
    beliefs = MixtureBeliefs([gaussian(training[:, k]) for k in range(test.shape[1])])
    return np.array([beliefs.log_prob(k, test[:, k]).mean() for k in range(1, test.shape[1])])
