"""What every baseline is: something trained once, and a way to beliefs from it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from sosmarkov_bench.protocol import TrainingData

M = TypeVar("M")


class Beliefs(ABC):
    """Densities p(x_k) for k = 0, ..., last."""

    @property
    @abstractmethod
    def last(self) -> int:
        """The last k; less than what was asked for where a method gives up."""

    @abstractmethod
    def log_prob(self, k: int, x: np.ndarray) -> np.ndarray:
        """log p(x_k) at states of shape (N, d), shape (N,)."""

    @abstractmethod
    def mass(self, k: int) -> float:
        """The integral of p(x_k), in closed form; one where the belief is normalised."""


@dataclass(frozen=True, eq=False)
class Trained(Generic[M]):
    """What training left.

    Args:
        model: Whatever the baseline propagates.
        parameters: How many numbers it keeps.
        notes: What a reader of the results has to know, such as subsets taken.
        seconds: Wall time, with compilation.
    """

    model: M
    parameters: int
    notes: dict[str, Any]
    seconds: float = 0.0


class Trainer(ABC, Generic[M]):
    """Learns a model; a frozen dataclass of its options, so that baselines with the same one can share the model."""

    @abstractmethod
    def train(self, data: TrainingData, seed: int) -> Trained[M]:
        """The model these data suggest."""

    def timed(self, data: TrainingData, seed: int) -> Trained[M]:
        """The same, with its seconds."""
        begin = time.perf_counter()
        trained = self.train(data, seed)
        return replace(trained, seconds=time.perf_counter() - begin)


@dataclass(frozen=True)
class Fitted:
    """Beliefs, and what they cost.

    Args:
        beliefs: For k = 0, ..., `last`.
        training_seconds: Wall time, with compilation.
        propagation_seconds: The same, up to densities that can be evaluated.
        parameters: How many numbers the model keeps.
        notes: What a reader of the results has to know.
    """

    beliefs: Beliefs
    training_seconds: float
    propagation_seconds: float
    parameters: int
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The last k there is a belief for."""
        return self.beliefs.last

    def log_prob(self, k: int, x: np.ndarray) -> np.ndarray:
        """log p(x_k) at states of shape (N, d), shape (N,)."""
        if not 0 <= k <= self.last:
            raise ValueError(f"Expected k from 0 to {self.last}, where there are beliefs, got {k}.")
        return self.beliefs.log_prob(k, np.asarray(x))

    def mass_error(self) -> float:
        """The largest |mass - 1| over k."""
        return max(abs(self.beliefs.mass(k) - 1.0) for k in range(self.last + 1))


class Baseline(ABC, Generic[M]):
    """A method with its options: `fit` trains and propagates."""

    @property
    @abstractmethod
    def trainer(self) -> Trainer[M]:
        """Equal for baselines that can share a model."""

    @abstractmethod
    def propagate(self, model: M, data: TrainingData, seed: int) -> tuple[Beliefs, dict[str, Any]]:
        """Beliefs for k = 0, ..., data.steps (fewer where the method gives up), and notes on them."""

    def fit(self, data: TrainingData, seed: int, trained: Trained[M] | None = None) -> Fitted:
        """Train, unless a model of the same trainer, data and seed is given, and propagate."""
        trained = self.trainer.timed(data, seed) if trained is None else trained
        begin = time.perf_counter()
        beliefs, notes = self.propagate(trained.model, data, seed)
        seconds = time.perf_counter() - begin
        notes = {"pairs": len(data.x), "set_aside": data.set_aside} | trained.notes | notes
        return Fitted(beliefs, trained.seconds, seconds, trained.parameters, notes)
