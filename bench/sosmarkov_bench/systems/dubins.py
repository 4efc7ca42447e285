"""The Dubins car with trailer, 6-D, driven by mixture noise in two coordinates, with and without a full-rank part."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from jaxtyping import Float, PRNGKeyArray

from sosmarkov_bench.systems.base import Dynamics, Gaussian, System

DT, L, V_REF, K_V, K_TH = 0.2, 1.0, 1.0, 1.0, 2.0
S_V, S_W, S_S = 0.1, 0.5, 0.1

# (xi_v, xi_w) ~ sum_c WEIGHTS[c] N(MEANS[c], COVARIANCES[c])
WEIGHTS = np.array([0.6, 0.4])
MEANS = np.array([[0.0, 0.0], [1.0, 1.0]])
COVARIANCES = 0.5 * np.array([[[1.0, 0.2], [0.2, 1.0]], [[1.0, -0.2], [-0.2, 1.0]]])
FACTORS = np.linalg.cholesky(COVARIANCES)


def euler_step(x: Float[Array, "6"]) -> Float[Array, "6"]:
    """The state (px, py, th_c, th_t, v, w) one step on with xi = 0."""
    _, _, th_c, th_t, v, w = x
    slope = [v * jnp.cos(th_c), v * jnp.sin(th_c), w, (v / L) * jnp.sin(th_c - th_t), K_V * (V_REF - v), -K_TH * th_c]
    return x + DT * jnp.stack(slope)


def gains(x: Float[Array, "6"]) -> Float[Array, "2"]:
    """Slopes of v' in xi_v and of w' in xi_w: given x, both are affine."""
    th_c, v = x[2], x[4]
    return jnp.stack([DT * K_V * (V_REF - v) * S_V + S_S * v, -DT * K_TH * th_c * S_W])


@dataclass(frozen=True, eq=False)
class MixtureNoise(Dynamics):
    """x' = F(x) + (0, 0, 0, 0, gains(x) xi) + N(0, variance I).

    Args:
        variance: Of the noise on every coordinate; zero leaves all but v' and w' deterministic.
    """

    variance: float

    @property
    def has_density(self) -> bool:
        """Whether there is noise on every coordinate."""
        return self.variance > 0

    def sample(self, key: PRNGKeyArray, x: Float[Array, "6"]) -> Float[Array, "6"]:
        """A component, then xi, then the noise on every coordinate."""
        pick, normal = jax.random.split(key)
        c = jax.random.bernoulli(pick, WEIGHTS[1]).astype(int)
        z = jax.random.normal(normal, (8,))
        xi = jnp.asarray(MEANS)[c] + jnp.asarray(FACTORS)[c] @ z[:2]
        return euler_step(x).at[4:].add(gains(x) * xi) + np.sqrt(self.variance) * z[2:]

    def mean(self, x: Float[Array, "6"]) -> Float[Array, "6"]:
        """E[x' | x], which is not the step with xi = 0: xi has mean 0.4."""
        return euler_step(x).at[4:].add(gains(x) * (WEIGHTS @ MEANS))

    def log_prob(self, x_next: Float[Array, "6"], x: Float[Array, "6"]) -> Float[Array, ""]:
        """Two Gaussians, whose covariances differ from variance I in the block of v' and w' only."""
        if not self.has_density:
            raise ValueError(
                "Expected a transition with a density, got 'dubins': given x only v' and w' are random, so"
                " p(x' | x) has none in R^6. Score the beliefs p(x_k), or use 'dubins-full'."
            )
        error, gain = x_next - euler_step(x), gains(x)
        still = -0.5 * jnp.sum(error[:4] ** 2) / self.variance - 2.0 * np.log(2.0 * np.pi * self.variance)
        moved = error[None, 4:] - gain[None] * MEANS
        # The 2 x 2 blocks D S_c D + variance I; |correlation| <= 0.2, so nothing cancels below.
        a = gain[0] ** 2 * COVARIANCES[:, 0, 0] + self.variance
        b = gain[1] ** 2 * COVARIANCES[:, 1, 1] + self.variance
        r = gain[0] * gain[1] * COVARIANCES[:, 0, 1]
        det = a * b - r**2
        square = (b * moved[:, 0] ** 2 - 2.0 * r * moved[:, 0] * moved[:, 1] + a * moved[:, 1] ** 2) / det
        parts = np.log(WEIGHTS) - 0.5 * square - 0.5 * jnp.log(det) - np.log(2.0 * np.pi)
        return still + logsumexp(parts)


_COORDINATES = ("px", "py", "th_c", "th_t", "v", "w")
_INITIAL = Gaussian.diagonal([0.0, 0.0, 1.0, 0.0, 10.0, -0.5], [0.1, 0.1, 0.05, 0.1, 0.1, 0.05])

DUBINS = System(
    name="dubins",
    coordinates=_COORDINATES,
    initial=_INITIAL,
    dynamics=MixtureNoise(0.0),
    train_trajectories=4_000,
    test_trajectories=10_000,
    horizon=13,
)

DUBINS_FULL = System(
    name="dubins-full",
    coordinates=_COORDINATES,
    initial=_INITIAL,
    dynamics=MixtureNoise(1e-3),
    train_trajectories=4_000,
    test_trajectories=10_000,
    horizon=13,
)
