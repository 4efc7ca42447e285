"""Components split along their most nonlinear direction before every step of the extended Kalman filter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.factor.starts import Mixture
from sosmarkov_bench.baselines.base import Beliefs
from sosmarkov_bench.baselines.ekf import Stepped, advance
from sosmarkov_bench.baselines.mixtures import MixtureBeliefs
from sosmarkov_bench.baselines.steps import StepModel, Stepping, in_blocks
from sosmarkov_bench.protocol import TrainingData

# N(0, 1) becomes two halves at -+_APART with variance 1 - _APART^2: mean and variance stay.
_APART = 0.5


@dataclass(frozen=True)
class WSASOS(Stepped):
    """Each component is split in two a step, by whitened second-order stretching averaged over directions.

    Args:
        directions: How many to average over.
        most: Components; the beliefs end where there would be more.
    """

    directions: int = 500
    most: int = 5_000

    def propagate(self, model: Stepping, data: TrainingData, seed: int) -> tuple[Beliefs, dict[str, Any]]:
        """Split, then move as the extended Kalman filter does."""
        drawn = np.random.default_rng(seed).normal(size=(self.directions, data.dim))
        directions = jnp.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))
        mixtures = [model.initial]
        for _ in range(data.steps):
            if 2 * len(mixtures[-1].weights) > self.most:
                break
            mixtures.append(advance(model.step, split(model.step, mixtures[-1], directions)))
        notes: dict[str, Any] = {"components": len(mixtures[-1].weights)}
        if len(mixtures) <= data.steps:
            notes["stopped"] = f"after k = {len(mixtures) - 1}: more than {self.most} components"
        return MixtureBeliefs(mixtures), notes


def split(step: StepModel, mixture: Mixture, directions: Array) -> Mixture:
    """Twice the components, with the same mean and covariance in pairs."""
    weights, means, covariances = mixture
    # Second derivatives take memory in proportion to the square of the dimension.
    block = max(1, min(64, 2_048 // means.shape[1] ** 2))
    away = _APART * in_blocks(partial(_most_nonlinear, step, directions), means, covariances, block=block)
    rest = covariances - away[:, :, None] * away[:, None, :]
    halves = np.concatenate([0.5 * weights, 0.5 * weights])
    return Mixture(halves, np.concatenate([means - away, means + away]), np.concatenate([rest, rest]))


@eqx.filter_jit
def _most_nonlinear(step: StepModel, directions: Array, means: Array, covariances: Array) -> Float[Array, "c d"]:
    """S u for every component: its most nonlinear direction, one standard deviation long.

    With P = S S^T and J P J^T + Cov[x' | m] = T T^T, the whitened second derivatives are G = T^{-1} H (S ., S .). The
    unit vector u maximises the mean over directions v of |G(u, v)|^2.
    """

    def one(mean: Array, P: Array) -> Array:
        S = jnp.linalg.cholesky(P)
        J = jax.jacfwd(step.mean)(mean)
        T = jnp.linalg.cholesky(J @ P @ J.T + step.covariance(mean))
        H = jax.jacfwd(jax.jacrev(step.mean))(mean)
        G = jnp.linalg.solve(T, jnp.einsum("oij,ia,jb->oab", H, S, S).reshape(len(mean), -1)).reshape(H.shape)
        along = jnp.einsum("oab,vb->voa", G, directions)
        stretching = jnp.einsum("voa,vob->ab", along, along) / len(directions)
        return S @ jnp.linalg.eigh(stretching)[1][:, -1]

    return jax.vmap(one)(means, covariances)
