"""The other reference that costs nothing: one mixture per k, fitted to the training trajectories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sosmarkov.bench.baselines.base import Baseline, Trained, Trainer
from sosmarkov.bench.baselines.gaussian import states_by_step
from sosmarkov.bench.baselines.mixtures import MixtureBeliefs, fit_mixture, mixture_parameters
from sosmarkov.bench.protocol import TrainingData


@dataclass(frozen=True)
class PerStepMixture(Trainer[MixtureBeliefs]):
    """EM on the states at each k."""

    components: int

    def train(self, data: TrainingData, seed: int) -> Trained[MixtureBeliefs]:
        """One mixture per k."""
        beliefs = MixtureBeliefs([fit_mixture(x, self.components, seed) for x in states_by_step(data)])
        parameters = sum(mixture_parameters(len(m.weights), data.dim) for m in beliefs.mixtures)
        return Trained(beliefs, parameters, {"components": len(beliefs.mixtures[0].weights)})


@dataclass(frozen=True)
class OneMixture(Baseline[MixtureBeliefs]):
    """One mixture per k.

    Args:
        components: Of each mixture.
    """

    components: int = 20

    @property
    def trainer(self) -> PerStepMixture:
        """All there is."""
        return PerStepMixture(self.components)

    def propagate(self, model: MixtureBeliefs, data: TrainingData, seed: int) -> tuple[MixtureBeliefs, dict[str, Any]]:
        """Nothing is propagated."""
        return model, {}
