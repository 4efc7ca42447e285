"""The library itself, as one of the methods compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from sosmarkov.contracts.belief import Belief
from sosmarkov.learning.fit import fit
from sosmarkov.process.process import MarkovProcess
from sosmarkov_bench.baselines.base import Baseline, Beliefs, Trained, Trainer
from sosmarkov_bench.protocol import TrainingData


@dataclass(frozen=True)
class FitTrainer(Trainer[MarkovProcess]):
    """`fit` with options other than its defaults, as (name, value) pairs."""

    options: tuple[tuple[str, Any], ...]

    def train(self, data: TrainingData, seed: int) -> Trained[MarkovProcess]:
        """What was granted goes in as it is: `fit` sets extremes aside itself."""
        # The rows of records are those of the factor form, unless another is among the options.
        options = {"form": "factor"} | dict(self.options)
        process = fit(**data.granted, **options, seed=seed, progress=False)
        assert isinstance(process, MarkovProcess)
        assert process.history is not None
        return Trained(process, process.parameter_count, {"chosen": dict(process.history.chosen)})


@dataclass(frozen=True, eq=False)
class ExactBeliefs(Beliefs):
    """What `propagate` gives."""

    beliefs: Sequence[Belief]

    @property
    def last(self) -> int:
        """One less than there are beliefs."""
        return len(self.beliefs) - 1

    def log_prob(self, k: int, x: np.ndarray) -> np.ndarray:
        """In closed form."""
        return np.asarray(self.beliefs[k].log_prob(x))

    def mass(self, k: int) -> float:
        """In closed form."""
        return float(self.beliefs[k].mass())


@dataclass(frozen=True)
class Ours(Baseline[MarkovProcess]):
    """Learned by `fit`, propagated exactly."""

    options: tuple[tuple[str, Any], ...] = ()

    @property
    def trainer(self) -> FitTrainer:
        """All options are its."""
        return FitTrainer(self.options)

    def propagate(self, model: MarkovProcess, data: TrainingData, seed: int) -> tuple[Beliefs, dict[str, Any]]:
        """Nothing is random."""
        beliefs = model.propagate(data.steps)
        jax.block_until_ready(beliefs)
        return ExactBeliefs(beliefs), {}
