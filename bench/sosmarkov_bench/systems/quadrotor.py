"""The planar quadrotor, 6-D, flown to a reference by its own controller."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov_bench.systems.base import AdditiveNoise, Gaussian, System

DT, M, INERTIA, ARM, G = 0.01, 1.0, 0.02, 0.2, 9.81
C_V, C_W = 0.05, 0.02
REFERENCE = (5.0, 0.0)
ROTOR_LIMIT = 20.0


def control(x: Float[Array, "6"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Thrust and torque the rotors can deliver: each rotor's force is clipped to [0, 20]."""
    px, pz, th, vx, vz, w = x
    a_x = 2.0 * (REFERENCE[0] - px) - vx
    a_z = 2.0 * (REFERENCE[1] - pz) - vz + G
    th_d = -jnp.arctan2(a_x, a_z)
    tau = 5.0 * (th_d - th) - 3.0 * w
    T = M * jnp.sqrt(a_x**2 + a_z**2)
    u1 = jnp.clip((T - tau / ARM) / 2.0, 0.0, ROTOR_LIMIT)
    u2 = jnp.clip((T + tau / ARM) / 2.0, 0.0, ROTOR_LIMIT)
    return u1 + u2, ARM * (u2 - u1)


def euler_step(x: Float[Array, "6"]) -> Float[Array, "6"]:
    """One Euler step of the state (px, pz, th, vx, vz, w) under the controller.

    vxdot = -(T/m) sin th - c_v vx, vzdot = (T/m) cos th - g - c_v vz, wdot = tau/I - c_w w.
    """
    _, _, th, vx, vz, w = x
    T, tau = control(x)
    vxdot = -(T / M) * jnp.sin(th) - C_V * vx
    vzdot = (T / M) * jnp.cos(th) - G - C_V * vz
    wdot = tau / INERTIA - C_W * w
    return x + DT * jnp.stack([vx, vz, w, vxdot, vzdot, wdot])


QUADROTOR = System(
    name="quadrotor",
    coordinates=("px", "pz", "th", "vx", "vz", "w"),
    initial=Gaussian.diagonal([0.0, 0.0, 0.1, 50.0, 0.0, 0.0], [0.1, 0.1, 0.05, 0.1, 0.1, 0.05]),
    dynamics=AdditiveNoise(euler_step, Gaussian.diagonal(np.zeros(6), 0.05)),
    train_trajectories=4_000,
    test_trajectories=10_000,
    horizon=13,
)
