"""The cart-pole without control, 4-D, learned from trajectories or from wide transition pairs."""

from functools import partial

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov_bench.systems.base import AdditiveNoise, Gaussian, System, Wide

G = 9.81


def euler_step(x: Float[Array, "4"], *, dt: float, mc: float, mp: float, l: float) -> Float[Array, "4"]:  # noqa: E741
    """One Euler step of the state (p, pdot, th, w), th = 0 upright.

    With M = mc + mp and t = mp l w^2 sin th / M::

        wdot = (g sin th - t cos th) / (l (4/3 - mp cos^2 th / M))
        vdot = t - mp l wdot cos th / M

    Args:
        x: The state.
        dt: Step.
        mc: Mass of the cart.
        mp: Mass of the pole.
        l: Half the length of the pole.
    """
    _, pdot, th, w = x
    sin, cos, M = jnp.sin(th), jnp.cos(th), mc + mp
    t = mp * l * w**2 * sin / M
    wdot = (G * sin - t * cos) / (l * (4.0 / 3.0 - mp * cos**2 / M))
    vdot = t - mp * l * wdot * cos / M
    return x + dt * jnp.stack([pdot, vdot, w, wdot])


_COORDINATES = ("p", "pdot", "th", "w")

CART_POLE = System(
    name="cartpole",
    coordinates=_COORDINATES,
    initial=Gaussian.diagonal([0.0, 5.0, 0.0, 0.0], 0.1),
    dynamics=AdditiveNoise(
        partial(euler_step, dt=0.05, mc=2.0, mp=0.1, l=0.5),
        Gaussian.diagonal(np.zeros(4), 0.01),
    ),
    train_trajectories=1_000,
    test_trajectories=10_000,
    horizon=13,
)

CART_POLE_WIDE = System(
    name="cartpole-wide",
    coordinates=_COORDINATES,
    initial=Gaussian.diagonal(np.zeros(4), 0.2),
    dynamics=AdditiveNoise(
        partial(euler_step, dt=0.2, mc=1.0, mp=0.5, l=1.5),
        Gaussian.diagonal(np.zeros(4), 0.1),
    ),
    train_trajectories=0,
    test_trajectories=5_000,
    horizon=13,
    wide=Wide(Gaussian.diagonal(np.zeros(4), 6.0), initial_count=1_000, pair_count=10_000),
)
