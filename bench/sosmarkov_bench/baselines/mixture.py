"""The other reference that costs nothing: one mixture per k, fitted to the training trajectories.

With fresh simulated trajectories instead, as many as wanted, it is no method but a bound: whatever it scores, the true
belief scores more. Where a system has no transition density there is no other limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from sosmarkov_bench.baselines.base import Baseline, Trained, Trainer
from sosmarkov_bench.baselines.gaussian import states_by_step
from sosmarkov_bench.baselines.mixtures import MixtureBeliefs, fit_large_mixture, fit_mixture, mixture_parameters
from sosmarkov_bench.protocol import TrainingData


@dataclass(frozen=True)
class PerStepMixture(Trainer[MixtureBeliefs]):
    """EM on the states at each k; on those of `fresh` simulated trajectories where that is not zero."""

    components: int
    fresh: int
    rounds: int

    def train(self, data: TrainingData, seed: int) -> Trained[MixtureBeliefs]:
        """One mixture per k."""
        if self.fresh:
            states = self._simulated(data, seed)
            beliefs = MixtureBeliefs([fit_large_mixture(x, self.components, seed, self.rounds) for x in states])
        else:
            beliefs = MixtureBeliefs([fit_mixture(x, self.components, seed) for x in states_by_step(data)])
        parameters = sum(mixture_parameters(len(m.weights), data.dim) for m in beliefs.mixtures)
        return Trained(beliefs, parameters, {"components": len(beliefs.mixtures[0].weights), "fresh": self.fresh})

    def _simulated(self, data: TrainingData, seed: int) -> list[np.ndarray]:
        if data.system is None:
            raise ValueError("Expected a known system to simulate fresh trajectories of, got data alone.")
        # Of no other use: neither training nor test data nor predecessors of the limit.
        key = jax.random.fold_in(jax.random.key(7_000), seed)
        paths = np.asarray(data.system.simulate(key, self.fresh, data.steps))
        usable = np.all(np.isfinite(paths), axis=2)
        return [paths[usable[:, k], k] for k in range(data.steps + 1)]


@dataclass(frozen=True)
class OneMixture(Baseline[MixtureBeliefs]):
    """One mixture per k.

    Args:
        components: Of each mixture.
        fresh: Trajectories to simulate and learn from in place of the training data; 0 for the training data.
        rounds: Of EM, with fresh trajectories.
    """

    components: int = 20
    fresh: int = 0
    rounds: int = 150

    @property
    def trainer(self) -> PerStepMixture:
        """All there is."""
        return PerStepMixture(self.components, self.fresh, self.rounds)

    def propagate(self, model: MixtureBeliefs, data: TrainingData, seed: int) -> tuple[MixtureBeliefs, dict[str, Any]]:
        """Nothing is propagated."""
        return model, {}
