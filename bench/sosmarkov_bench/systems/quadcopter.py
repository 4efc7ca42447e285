"""The quadcopter, 12-D, flown to a reference by its own controller.

The state is (position, world velocity, roll phi, pitch theta, yaw psi in ZYX order, body rates).
The rates are low-pass filtered after each step. The filter's memory is the trajectory's own
current rates, so the 12 coordinates are a Markov state and trajectories are independent.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov_bench.systems.base import AdditiveNoise, Gaussian, System

DT, M, G = 0.05, 1.0, 9.81
J = np.array([0.02, 0.02, 0.04])
C_V, C_W = 0.05, 0.15
REFERENCE = np.array([15.0, 15.0, 5.0])
K_P, K_D = np.array([1.2, 1.2, 2.5]), np.array([0.8, 0.8, 1.5])
K_A, K_R = np.array([2.0, 2.0, 1.5]), np.array([2.0, 2.0, 1.0])
THRUST_LIMIT, TORQUE_LIMIT = 30.0, np.array([1.5, 1.5, 0.8])
LEAST_COSINE = 0.2
FRESH = 0.2  # weight of the raw rates in the filter


def wrap(angle: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """The same angle in [-pi, pi)."""
    return jnp.mod(angle + jnp.pi, 2.0 * jnp.pi) - jnp.pi


def control(x: Float[Array, "12"]) -> tuple[Float[Array, ""], Float[Array, "3"]]:
    """Thrust and torques, clipped to what the vehicle can deliver."""
    p, v, angles, W = jnp.split(x, 4)
    a = K_P * (REFERENCE - p) - K_D * v
    phi, theta, psi = angles
    error = jnp.stack([-a[1] / G - phi, a[0] / G - theta, wrap(0.0 - psi)])
    T = jnp.clip(M * (G + a[2]), 0.0, THRUST_LIMIT)
    return T, jnp.clip(K_A * error - K_R * W, -TORQUE_LIMIT, TORQUE_LIMIT)


def thrust_direction(angles: Float[Array, "3"]) -> Float[Array, "3"]:
    """R e3 with R = Rz(psi) Ry(theta) Rx(phi)."""
    (s_phi, s_theta, s_psi), (c_phi, c_theta, c_psi) = jnp.sin(angles), jnp.cos(angles)
    return jnp.stack(
        [c_psi * s_theta * c_phi + s_psi * s_phi, s_psi * s_theta * c_phi - c_psi * s_phi, c_theta * c_phi]
    )


def angle_rates(angles: Float[Array, "3"], W: Float[Array, "3"]) -> Float[Array, "3"]:
    """E(angles) W, the rates of the ZYX angles, with |cos theta| kept at 0.2 or more."""
    phi, theta, _ = angles
    cosine = jnp.cos(theta)
    cosine = jnp.where(cosine < 0, -1.0, 1.0) * jnp.maximum(jnp.abs(cosine), LEAST_COSINE)
    turn = jnp.sin(phi) * W[1] + jnp.cos(phi) * W[2]
    return jnp.stack([W[0] + jnp.sin(theta) / cosine * turn, jnp.cos(phi) * W[1] - jnp.sin(phi) * W[2], turn / cosine])


def euler_step(x: Float[Array, "12"]) -> Float[Array, "12"]:
    """One Euler step under the controller, the rates filtered, the angles wrapped.

    vdot = (T/m) R e3 - g e3 - c_v v, angdot = E(ang) W, J Wdot = tau - W x J W - c_w W.
    """
    p, v, angles, W = jnp.split(x, 4)
    T, tau = control(x)
    vdot = (T / M) * thrust_direction(angles) - np.array([0.0, 0.0, G]) - C_V * v
    Wdot = (tau - jnp.cross(W, J * W) - C_W * W) / J
    rates = FRESH * (W + DT * Wdot) + (1.0 - FRESH) * W
    return jnp.concatenate([p + DT * v, v + DT * vdot, wrap(angles + DT * angle_rates(angles, W)), rates])


def _noise() -> Gaussian:
    covariance = np.diag(np.repeat([0.03, 0.0005, 0.01], [6, 3, 3]))
    covariance[:6, :6] += 0.03
    return Gaussian(np.zeros(12), covariance)


QUADCOPTER = System(
    name="quadcopter",
    coordinates=("px", "py", "pz", "vx", "vy", "vz", "phi", "theta", "psi", "wx", "wy", "wz"),
    initial=Gaussian.diagonal(
        [-8.0, -8.0, 0.8, 10.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.1, 0.1],
        [1.5, 1.5, 0.5, 6.0, 6.0, 2.5, 0.01, 0.01, 0.01, 0.35, 0.35, 0.35],
    ),
    dynamics=AdditiveNoise(euler_step, _noise()),
    train_trajectories=4_000,
    test_trajectories=10_000,
    horizon=13,
)
