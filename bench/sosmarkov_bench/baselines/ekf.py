"""The extended Kalman filter's prediction, for every component of a mixture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
from jax import Array

from sosmarkov.factor.starts import Mixture
from sosmarkov_bench.baselines.base import Baseline, Trainer
from sosmarkov_bench.baselines.gp import GPTrainer
from sosmarkov_bench.baselines.mixtures import MixtureBeliefs
from sosmarkov_bench.baselines.steps import StepModel, Stepping, Truth, in_blocks
from sosmarkov_bench.protocol import TrainingData


@dataclass(frozen=True)
class Stepped(Baseline[Stepping]):
    """What methods on a learned or true step share.

    Args:
        dynamics: "gp" or "true".
        points: Pairs the processes are conditioned on, at most.
        tuned: Pairs their length scales are chosen with, at most.
        components: Of the initial mixture.
    """

    dynamics: str = "gp"
    points: int = 4_000
    tuned: int = 500
    components: int = 10

    @property
    def trainer(self) -> Trainer[Stepping]:
        """Gaussian processes, or the truth."""
        if self.dynamics not in ("gp", "true"):
            raise ValueError(f"Expected dynamics 'gp' or 'true', got {self.dynamics!r}.")
        if self.dynamics == "true":
            return Truth(self.components)
        return GPTrainer(self.points, self.tuned, self.components)


@dataclass(frozen=True)
class EKF(Stepped):
    """Each component by its mean and the Jacobian there."""

    def propagate(self, model: Stepping, data: TrainingData, seed: int) -> tuple[MixtureBeliefs, dict[str, Any]]:
        """(m, P) becomes (f(m), J P J^T + Cov[x' | m]); weights stay."""
        mixtures = [model.initial]
        for _ in range(data.steps):
            mixtures.append(advance(model.step, mixtures[-1]))
        return MixtureBeliefs(mixtures), {}


def advance(step: StepModel, mixture: Mixture) -> Mixture:
    """One step of every component."""
    means, covariances = in_blocks(partial(_advance, step), *mixture[1:])
    return Mixture(mixture.weights, means, covariances)


@eqx.filter_jit
def _advance(step: StepModel, means: Array, covariances: Array) -> tuple[Array, Array]:
    def one(mean: Array, covariance: Array) -> tuple[Array, Array]:
        J = jax.jacfwd(step.mean)(mean)
        return step.mean(mean), J @ covariance @ J.T + step.covariance(mean)

    return jax.vmap(one)(means, covariances)
