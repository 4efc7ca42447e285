"""Exact Gaussian process regression of the next state, one process an output."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Float
from scipy.optimize import minimize

from sosmarkov_bench.baselines.base import Trained, Trainer
from sosmarkov_bench.baselines.mixtures import fit_mixture, mixture_parameters
from sosmarkov_bench.baselines.steps import StepModel, Stepping
from sosmarkov_bench.protocol import TrainingData

# Of the standardised outputs' variance: what keeps kernel matrices regular where noise is all but absent.
_LEAST_NOISE = 1e-6


class GaussianProcesses(StepModel):
    """x'_i = x_i + offset_i + scale_i (g_i(z) + noise) with z = (x - centre) / width.

    Each g_i has zero mean and covariance s_i^2 exp(-|(z - z') / l_i|^2 / 2) beforehand.

    Attributes:
        centre: Of the inputs, shape (d,).
        width: Of the inputs, shape (d,).
        offset: Mean increment, shape (d,).
        scale: Of the increments, shape (d,).
        points: Standardised inputs, shape (N, d).
        lengths: l_i for every input, shape (d, d).
        signal: s_i^2, shape (d,).
        noise: Variance of the noise in units of scale^2, shape (d,).
        factors: Cholesky factors of K_i + noise_i I, shape (d, N, N).
        dual: (K_i + noise_i I)^{-1} y_i, shape (d, N).
    """

    centre: Float[Array, " d"]
    width: Float[Array, " d"]
    offset: Float[Array, " d"]
    scale: Float[Array, " d"]
    points: Float[Array, "N d"]
    lengths: Float[Array, "d d"]
    signal: Float[Array, " d"]
    noise: Float[Array, " d"]
    factors: Float[Array, "d N N"]
    dual: Float[Array, "d N"]

    def _similar(self, x: Float[Array, " d"]) -> Float[Array, "d N"]:
        z = (x - self.centre) / self.width
        away = (z[None] - self.points)[None] / self.lengths[:, None]
        return self.signal[:, None] * jnp.exp(-0.5 * jnp.sum(away**2, axis=-1))

    def mean(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The posterior mean of x'."""
        return x + self.offset + self.scale * jnp.sum(self._similar(x) * self.dual, axis=1)

    def covariance(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        """Noise, and what is not known of the mean; outputs are independent."""
        explained = jax.vmap(lambda L, k: solve_triangular(L, k, lower=True))(self.factors, self._similar(x))
        variance = self.signal - jnp.sum(explained**2, axis=1) + self.noise
        return jnp.diag(self.scale**2 * variance)


def gram(z: Array, parameters: Array) -> Array:
    """K + noise I at inputs (N, d), for log-lengths (d), log s^2 and log of the noise, in that order."""
    scaled = z / jnp.exp(parameters[:-2])[None]
    square = jnp.sum((scaled[:, None] - scaled[None]) ** 2, axis=-1)
    noise = jnp.exp(parameters[-1]) + _LEAST_NOISE
    return jnp.exp(parameters[-2] - 0.5 * square) + noise * jnp.eye(len(z))


@jax.jit
def _negative_log_evidence(parameters: Array, z: Array, y: Array) -> tuple[Array, Array]:
    def value(parameters: Array) -> Array:
        L = jnp.linalg.cholesky(gram(z, parameters))
        white = solve_triangular(L, y, lower=True)
        return (0.5 * jnp.sum(white**2) + jnp.sum(jnp.log(jnp.diag(L)))) / len(y)

    return jax.value_and_grad(value)(parameters)


@jax.jit
def _condition(parameters: Array, z: Array, y: Array) -> tuple[Array, Array]:
    def one(both: tuple[Array, Array]) -> tuple[Array, Array]:
        L = jnp.linalg.cholesky(gram(z, both[0]))
        return L, cho_solve((L, True), both[1])

    return lax.map(one, (parameters, y))


@dataclass(frozen=True)
class GPTrainer(Trainer[Stepping]):
    """Widths by the evidence of a part of the data, then exact regression on more of them.

    Args:
        points: Pairs to condition on, at most.
        tuned: Pairs to choose length scales, signal and noise with, at most.
        components: Of the initial mixture.
    """

    points: int
    tuned: int
    components: int

    def train(self, data: TrainingData, seed: int) -> Trained[Stepping]:
        """Random subsets of the pairs where there are more."""
        d, rng = data.dim, np.random.default_rng(seed)
        chosen = rng.permutation(len(data.x))[: self.points]
        x, increment = data.x[chosen], (data.x_next - data.x)[chosen]
        centre, width, offset, scale = x.mean(0), x.std(0), increment.mean(0), increment.std(0)
        z, y = jnp.asarray((x - centre) / width), jnp.asarray(((increment - offset) / scale).T)
        parameters = jnp.stack([_tuned(z[: self.tuned], y[i, : self.tuned]) for i in range(d)])
        factors, dual = jax.block_until_ready(_condition(parameters, z, y))
        lengths, signal, noise = jnp.exp(parameters[:, :-2]), jnp.exp(parameters[:, -2]), jnp.exp(parameters[:, -1])
        scales = [jnp.asarray(part) for part in (centre, width, offset, scale)]
        parts = [*scales, z, lengths, signal, noise + _LEAST_NOISE, factors, dual]
        step = GaussianProcesses(*parts)
        initial = fit_mixture(data.initial, self.components, seed)
        # Every input and every dual coefficient is kept, beside d + 2 numbers an output.
        kept = 2 * d * len(z) + d * (d + 2) + mixture_parameters(len(initial.weights), d)
        notes = {"dynamics": "gp", "points": len(z), "tuned_on": min(self.tuned, len(z))}
        return Trained(Stepping(step, initial), kept, notes)


def _tuned(z: Array, y: Array) -> Array:
    d = z.shape[1]
    begin = np.concatenate([np.full(d, 0.5 * np.log(d) + 0.5), [0.0, np.log(0.1)]])

    def value(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        loss, slope = _negative_log_evidence(jnp.asarray(parameters), z, y)
        return float(loss), np.asarray(slope)

    bounds = [(-3.0, 6.0)] * d + [(-6.0, 8.0), (-16.0, 2.0)]
    found = minimize(value, begin, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 100})
    return jnp.asarray(found.x)
