"""The Van der Pol oscillator, 2-D, learned from trajectories or from wide transition pairs."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from sosmarkov_bench.systems.base import AdditiveNoise, Gaussian, System, Wide

DT, MU = 0.3, 0.9
BOUND = 10.0


def euler_step(x: Float[Array, "2"]) -> Float[Array, "2"]:
    """x1' = x1 + dt x2, x2' = x2 + dt (mu (1 - x1^2) x2 - x1)."""
    x1, x2 = x
    return jnp.stack([x1 + DT * x2, x2 + DT * (MU * (1.0 - x1**2) * x2 - x1)])


def blown_up(x: Float[Array, "*b d"]) -> Bool[Array, "*b"]:
    """Whether any coordinate has left [-10, 10]: outside the limit cycle Euler's method diverges."""
    # Not any(|x| > 10): a few steps after leaving, states overflow to NaN, and NaN > 10 is false.
    return ~jnp.all(jnp.abs(x) <= BOUND, axis=-1)


_INITIAL = Gaussian.diagonal([0.2, 0.1], 0.2)
_DYNAMICS = AdditiveNoise(euler_step, Gaussian.diagonal(np.zeros(2), 0.1))

VAN_DER_POL = System(
    name="vdp",
    coordinates=("x1", "x2"),
    initial=_INITIAL,
    dynamics=_DYNAMICS,
    train_trajectories=1_000,
    test_trajectories=10_000,
    horizon=11,
)

VAN_DER_POL_WIDE = System(
    name="vdp-wide",
    coordinates=("x1", "x2"),
    initial=_INITIAL,
    dynamics=_DYNAMICS,
    train_trajectories=0,
    test_trajectories=10_000,
    horizon=11,
    wide=Wide(Gaussian.diagonal(np.zeros(2), 2.0), initial_count=1_000, pair_count=10_000),
)
