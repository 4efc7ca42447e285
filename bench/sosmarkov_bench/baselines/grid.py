"""A mixture with one component a cell of a grid, weighted by the belief's mass in the cell; 2-D."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Float

from sosmarkov.factor.starts import Mixture
from sosmarkov_bench.baselines.base import Beliefs
from sosmarkov_bench.baselines.ekf import Stepped
from sosmarkov_bench.baselines.mixtures import MixtureBeliefs
from sosmarkov_bench.baselines.steps import StepModel, Stepping
from sosmarkov_bench.protocol import TrainingData

_NODES = 24


@dataclass(frozen=True)
class Grid(Stepped):
    """p(x_(k+1)) = sum over cells of P(x_k in cell) N(f(centre), Cov[x' | centre]).

    The outermost cells reach to infinity, so that no mass is lost; their centres stay where they are.

    Args:
        cells: Along each axis.
        bound: The grid covers [-bound, bound] along both axes.
    """

    cells: int = 20
    bound: float = 5.0

    def propagate(self, model: Stepping, data: TrainingData, seed: int) -> tuple[Beliefs, dict[str, Any]]:
        """The components never change, but their weights."""
        if data.dim != 2:
            raise ValueError(f"Expected 2 coordinates for a grid, got {data.dim}. Use another baseline.")
        edges = np.linspace(-self.bound, self.bound, self.cells + 1)
        middle = 0.5 * (edges[:-1] + edges[1:])
        centres = jnp.asarray(np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1).reshape(-1, 2))
        means, covariances = map(np.asarray, _steps(model.step, centres))
        mixtures = [model.initial]
        from_cell = cell_masses(means, covariances, edges[1:-1])
        weights = model.initial.weights @ cell_masses(*model.initial[1:], edges[1:-1])
        for _ in range(data.steps):
            mixtures.append(Mixture(weights, means, covariances))
            weights = weights @ from_cell
        return MixtureBeliefs(mixtures), {"cells": self.cells**2}


@eqx.filter_jit
def _steps(step: StepModel, x: Array) -> tuple[Array, Array]:
    return jax.vmap(step.mean)(x), jax.vmap(step.covariance)(x)


def cell_masses(means: np.ndarray, covariances: np.ndarray, inner: np.ndarray) -> Float[np.ndarray, "c cells"]:
    """The mass of every normal in every cell, whose edges are -inf, *inner, inf along both axes.

    P(a < x < b, c < y < d) is the integral over u = P(x' < x) of P(c < y < d | x), by Gauss-Legendre nodes in u: they
    lie where the mass is, reach to infinity, and their weights add up to the mass of (a, b) exactly.
    """
    return np.asarray(_masses(*map(jnp.asarray, (means, covariances, inner))))


@jax.jit
def _masses(means: Array, covariances: Array, inner: Array) -> Array:
    t, w = (jnp.asarray(part) for part in np.polynomial.legendre.leggauss(_NODES))

    def one(mean: Array, covariance: Array) -> Array:
        s = jnp.sqrt(covariance[0, 0])
        ends = jnp.concatenate([jnp.zeros(1), ndtr((inner - mean[0]) / s), jnp.ones(1)])
        half = 0.5 * jnp.diff(ends)
        z = ndtri(0.5 * (ends[:-1] + ends[1:])[:, None] + half[:, None] * t[None])
        slope = covariance[0, 1] / s
        width = jnp.sqrt(covariance[1, 1] - slope**2)
        # Where a cell holds nothing, its nodes may round to the end of the line.
        z = jnp.clip(z, -8.0, 8.0)
        below = ndtr((inner[None, None] - mean[1] - slope * z[..., None]) / width)
        ones = jnp.ones((*z.shape, 1))
        inside = jnp.diff(jnp.concatenate([0 * ones, below, ones], axis=-1), axis=-1)
        return jnp.einsum("i,n,inj->ij", half, w, inside).reshape(-1)

    return jax.vmap(one)(means, covariances)
