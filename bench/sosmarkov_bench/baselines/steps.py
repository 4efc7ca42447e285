"""x' = f(x) + normal noise, learned or told: what the extended Kalman filter and its refinements propagate."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.factor.starts import Mixture
from sosmarkov_bench.baselines.base import Trained, Trainer
from sosmarkov_bench.baselines.mixtures import fit_mixture, mixture_parameters
from sosmarkov_bench.protocol import TrainingData
from sosmarkov_bench.systems.base import AdditiveNoise, System


class StepModel(eqx.Module):
    """Mean and covariance of x' given x, one point at a time."""

    @abstractmethod
    def mean(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """E[x' | x], differentiable."""

    @abstractmethod
    def covariance(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        """Cov[x' | x]."""


class TrueStep(StepModel):
    """The true dynamics, in place of learned ones."""

    system: System = eqx.field(static=True)

    def mean(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """F(x)."""
        return self.system.mean_step(x)

    def covariance(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        """That of the noise."""
        dynamics = self.system.dynamics
        assert isinstance(dynamics, AdditiveNoise)
        return jnp.asarray(dynamics.noise.covariance)


class Stepping(NamedTuple):
    """A step, and the mixture it begins with."""

    step: StepModel
    initial: Mixture


@dataclass(frozen=True)
class Truth(Trainer[Stepping]):
    """The true dynamics; only the initial mixture is learned.

    Args:
        components: Of the initial mixture.
    """

    components: int

    def train(self, data: TrainingData, seed: int) -> Trained[Stepping]:
        """Fit the initial mixture."""
        if data.system is None or not isinstance(data.system.dynamics, AdditiveNoise):
            raise ValueError(
                "Expected a known system with additive normal noise for dynamics='true', got"
                f" {data.system.name if data.system else 'data alone'!r}. Use dynamics='gp'."
            )
        initial = fit_mixture(data.initial, self.components, seed)
        parameters = mixture_parameters(len(initial.weights), data.dim)
        return Trained(Stepping(TrueStep(data.system), initial), parameters, {"dynamics": "true"})


def in_blocks(function: Callable[..., Any], *arrays: np.ndarray, block: int = 64) -> Any:
    """What a function of arrays with `block` rows gives for as many rows as there are, a block at a time.

    Mixtures double from step to step; this way one size of them is compiled.
    """
    count = len(arrays[0])
    missing = -count % block
    full = [jnp.asarray(np.concatenate([part, np.repeat(part[:1], missing, axis=0)])) for part in arrays]
    found = [function(*(part[i : i + block] for part in full)) for i in range(0, count + missing, block)]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *found)
