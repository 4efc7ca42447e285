"""Systems against formulas written out again here, in scalars, and against densities from SciPy."""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from sosmarkov_bench.systems import SYSTEMS, AdditiveNoise, Gaussian, System, blown_up, get_system

NAMES = ["vdp", "cartpole", "quadrotor", "dubins", "dubins-full", "quadcopter", "vdp-wide", "cartpole-wide"]
TRAIN, TEST, STEPS = 4_000, 10_000, 13


def clip(value, low, high):
    return min(max(value, low), high)


def wrapped(angle):
    while angle >= math.pi:
        angle -= 2 * math.pi
    while angle < -math.pi:
        angle += 2 * math.pi
    return angle


def van_der_pol(x):
    x1, x2 = x
    return [x1 + 0.3 * x2, x2 + 0.3 * (0.9 * (1 - x1 * x1) * x2 - x1)]


def cart_pole(x, dt=0.05, mc=2.0, mp=0.1, length=0.5):
    p, v, th, w = x
    total = mc + mp
    t = mp * length * w * w * math.sin(th) / total
    wdot = (9.81 * math.sin(th) - t * math.cos(th)) / (length * (4 / 3 - mp * math.cos(th) ** 2 / total))
    vdot = t - mp * length * wdot * math.cos(th) / total
    return [p + dt * v, v + dt * vdot, th + dt * w, w + dt * wdot]


def cart_pole_wide(x):
    return cart_pole(x, dt=0.2, mc=1.0, mp=0.5, length=1.5)


def quadrotor(x):
    px, pz, th, vx, vz, w = x
    ax, az = 2 * (5 - px) - vx, 2 * (0 - pz) - vz + 9.81
    tau = 5 * (-math.atan2(ax, az) - th) - 3 * w
    thrust = math.hypot(ax, az)
    u1, u2 = clip((thrust - tau / 0.2) / 2, 0, 20), clip((thrust + tau / 0.2) / 2, 0, 20)
    vxdot = -(u1 + u2) * math.sin(th) - 0.05 * vx
    vzdot = (u1 + u2) * math.cos(th) - 9.81 - 0.05 * vz
    wdot = 0.2 * (u2 - u1) / 0.02 - 0.02 * w
    return [px + 0.01 * vx, pz + 0.01 * vz, th + 0.01 * w, vx + 0.01 * vxdot, vz + 0.01 * vzdot, w + 0.01 * wdot]


def dubins(x, xi_v=0.4, xi_w=0.4):
    """The step for given xi; their means are 0.6 * 0 + 0.4 * 1, and the step is affine in them."""
    px, py, car, trailer, v, w = x
    return [
        px + 0.2 * v * math.cos(car),
        py + 0.2 * v * math.sin(car),
        car + 0.2 * w,
        trailer + 0.2 * v * math.sin(car - trailer),
        v + 0.2 * (1 - v) * (1 + 0.1 * xi_v) + 0.1 * v * xi_v,
        w - 0.2 * 2 * car * (1 + 0.5 * xi_w),
    ]


def quadcopter(x):
    position, velocity, angles, rates = x[:3], x[3:6], x[6:9], x[9:]
    phi, theta, psi = angles
    reference, kp, kd = (15, 15, 5), (1.2, 1.2, 2.5), (0.8, 0.8, 1.5)
    a = [kp[i] * (reference[i] - position[i]) - kd[i] * velocity[i] for i in range(3)]
    thrust = clip(9.81 + a[2], 0, 30)
    errors = [-a[1] / 9.81 - phi, a[0] / 9.81 - theta, wrapped(-psi)]
    ka, kr, limit, inertia = (2, 2, 1.5), (2, 2, 1), (1.5, 1.5, 0.8), (0.02, 0.02, 0.04)
    tau = [clip(ka[i] * errors[i] - kr[i] * rates[i], -limit[i], limit[i]) for i in range(3)]

    def turn(axis, angle):
        s, c = math.sin(angle), math.cos(angle)
        matrix = np.eye(3)
        i, j = [(1, 2), (2, 0), (0, 1)][axis]
        matrix[i, i], matrix[i, j], matrix[j, i], matrix[j, j] = c, -s, s, c
        return matrix

    up = (turn(2, psi) @ turn(1, theta) @ turn(0, phi))[:, 2]
    accelerations = [thrust * up[i] - (9.81 if i == 2 else 0.0) - 0.05 * velocity[i] for i in range(3)]
    cosine = math.copysign(max(abs(math.cos(theta)), 0.2), math.cos(theta))
    euler = np.array(
        [
            [1, math.sin(phi) * math.sin(theta) / cosine, math.cos(phi) * math.sin(theta) / cosine],
            [0, math.cos(phi), -math.sin(phi)],
            [0, math.sin(phi) / cosine, math.cos(phi) / cosine],
        ]
    )
    angle_rates = euler @ np.array(rates)
    momentum = [inertia[i] * rates[i] for i in range(3)]
    filtered = []
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        gyroscopic = rates[j] * momentum[k] - rates[k] * momentum[j]
        raw = rates[i] + 0.05 * (tau[i] - gyroscopic - 0.15 * rates[i]) / inertia[i]
        filtered.append(0.2 * raw + 0.8 * rates[i])
    return [
        *(position[i] + 0.05 * velocity[i] for i in range(3)),
        *(velocity[i] + 0.05 * accelerations[i] for i in range(3)),
        *(wrapped(angles[i] + 0.05 * angle_rates[i]) for i in range(3)),
        *filtered,
    ]


MEAN = {
    "vdp": van_der_pol,
    "cartpole": cart_pole,
    "quadrotor": quadrotor,
    "dubins": dubins,
    "dubins-full": dubins,
    "quadcopter": quadcopter,
    "vdp-wide": van_der_pol,
    "cartpole-wide": cart_pole_wide,
}

# Half-widths of a box of states that reaches every clip, wrap and sign of the formulas.
SPREAD = {
    2: [3, 3],
    4: [3, 8, 7, 6],
    6: [10, 10, 4, 60, 20, 6],
    12: [20, 20, 20, 10, 10, 10, 6, 6, 6, 5, 5, 5],
}


def dubins_components(x, variance):
    """Weights, means and covariances of x' given x."""
    still = np.array(dubins(x, 0.0, 0.0))
    gain = np.zeros((6, 2))
    gain[:, 0] = np.array(dubins(x, 1.0, 0.0)) - still
    gain[:, 1] = np.array(dubins(x, 0.0, 1.0)) - still
    parts = []
    for weight, mean, r in [(0.6, 0.0, 0.2), (0.4, 1.0, -0.2)]:
        covariance = gain @ (0.5 * np.array([[1.0, r], [r, 1.0]])) @ gain.T + variance * np.eye(6)
        parts.append((weight, still + gain @ np.array([mean, mean]), covariance))
    return parts


def covariance_of_step(name, x):
    if name.startswith("dubins"):
        parts = dubins_components(x, 1e-3 if name == "dubins-full" else 0.0)
        centre = sum(weight * mean for weight, mean, _ in parts)
        return sum(w * (c + np.outer(m - centre, m - centre)) for w, m, c in parts)
    if name == "quadcopter":
        covariance = np.zeros((12, 12))
        for i in range(6):
            for j in range(6):
                covariance[i, j] = 0.06 if i == j else 0.03
        for i in range(6, 12):
            covariance[i, i] = 0.0005 if i < 9 else 0.01
        return covariance
    variance = {"vdp": 0.1, "cartpole": 0.01, "quadrotor": 0.05, "vdp-wide": 0.1, "cartpole-wide": 0.1}[name]
    return variance * np.eye(SYSTEMS[name].dim)


def random_states(name, count, seed=0):
    width = np.array(SPREAD[SYSTEMS[name].dim], dtype=float)
    return np.random.default_rng(seed).uniform(-width, width, (count, width.size))


@cache
def mean_step(name):
    return jax.jit(jax.vmap(SYSTEMS[name].mean_step))


@cache
def step(name):
    return jax.jit(jax.vmap(SYSTEMS[name].step, (0, None)))


@cache
def trajectories(name):
    return np.asarray(SYSTEMS[name].simulate(jax.random.key(3), TRAIN + TEST, STEPS))


@pytest.mark.parametrize("name", NAMES)
def test_mean_step_matches_scalar_formulas(name):
    states = random_states(name, 300)
    found = mean_step(name)(jnp.asarray(states))
    expected = [MEAN[name](list(x)) for x in states]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_draws_of_a_step_have_the_stated_mean_and_covariance(name):
    x = np.asarray(SYSTEMS[name].initial.mean) + 0.3
    count = 200_000
    draws = np.asarray(step(name)(jax.random.split(jax.random.key(7), count), jnp.asarray(x)))
    errors = draws - np.array(MEAN[name](list(x)))
    rounding = 1e-12  # all there is to see in coordinates without noise
    assert np.all(np.abs(errors.mean(0)) <= 5 * errors.std(0) / np.sqrt(count) + rounding)
    expected = covariance_of_step(name, list(x))
    second, fourth = errors.T @ errors / count, (errors**2).T @ errors**2 / count
    bound = 5 * np.sqrt(np.maximum(fourth - second**2, 0) / count) + rounding
    assert np.all(np.abs(second - expected) <= bound)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "dubins"])
def test_log_transition_matches_scipy(name):
    rng = np.random.default_rng(1)
    states = random_states(name, 20, seed=2)
    later, expected = [], []
    for x in states:
        covariance = covariance_of_step(name, list(x))
        y = rng.multivariate_normal(MEAN[name](list(x)), 2 * covariance)
        parts = [(1.0, MEAN[name](list(x)), covariance)]
        if name == "dubins-full":
            parts = dubins_components(list(x), 1e-3)
        expected.append(logsumexp([np.log(w) + multivariate_normal.logpdf(y, m, c) for w, m, c in parts]))
        later.append(y)
    found = jax.jit(jax.vmap(SYSTEMS[name].log_transition))(jnp.asarray(later), jnp.asarray(states))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_dubins_full_draws_follow_its_density():
    system = SYSTEMS["dubins-full"]
    x = jnp.array([0.0, 0.0, 1.0, 0.2, 10.0, -0.5])
    mean = np.array(dubins([float(value) for value in x]))
    v, w = np.linspace(mean[4] - 6, mean[4] + 6, 601), np.linspace(mean[5] - 1.6, mean[5] + 1.6, 401)
    points = np.tile(mean, (v.size, w.size, 1))
    points[..., 4], points[..., 5] = v[:, None], w[None, :]
    values = jax.jit(jax.vmap(lambda y: system.log_transition(y, x)))(jnp.asarray(points.reshape(-1, 6)))
    # The other four coordinates are at their mode: dividing their density out leaves p(v', w' | x).
    density = np.exp(np.asarray(values)).reshape(v.size, w.size) * (2 * np.pi * 1e-3) ** 2
    mass = density * (v[1] - v[0]) * (w[1] - w[0])
    np.testing.assert_allclose(mass.sum(), 1.0, rtol=1e-9)
    count = 200_000
    draws = np.asarray(step("dubins-full")(jax.random.split(jax.random.key(8), count), x))[:, 4:] - mean[4:]
    for test in (lambda a, b: a**3, lambda a, b: a**2 * b, lambda a, b: np.cos(a + 3 * b), lambda a, b: a**2 * b**2):
        expected = np.sum(mass * test(v[:, None] - mean[4], w[None, :] - mean[5]))
        drawn = test(draws[:, 0], draws[:, 1])
        assert abs(drawn.mean() - expected) < 5 * drawn.std() / np.sqrt(count)


def test_dubins_has_no_transition_density():
    system = SYSTEMS["dubins"]
    assert not system.has_density
    with pytest.raises(ValueError, match="'dubins-full'"):
        system.log_transition(jnp.zeros(6), jnp.zeros(6))
    assert all(SYSTEMS[name].has_density for name in NAMES if name != "dubins")


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("vdp", -1.228),
        ("cartpole", -1.071),
        ("quadrotor", -0.913),
        ("dubins", -0.913),
        ("dubins-full", -0.913),
        ("quadcopter", -10.854),
        ("vdp-wide", -1.228),
        ("cartpole-wide", -2.4570),
    ],
)
def test_initial_states_follow_their_density(name, exact):
    system = SYSTEMS[name]
    x = trajectories(name)[:, 0]
    values = np.asarray(jax.jit(jax.vmap(system.initial_log_prob))(jnp.asarray(x)))
    assert abs(values.mean() - exact) < 4 * values.std() / np.sqrt(values.size)
    reference = multivariate_normal(system.initial.mean, system.initial.covariance)
    np.testing.assert_allclose(values[:50], reference.logpdf(x[:50]), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "train", "scores"),
    [
        ("cartpole", 1_000, [-1.24, -1.74, -2.31, -2.86, -3.42, -3.99, -4.67]),
        ("quadrotor", 4_000, [-2.37, -4.01, -5.05, -5.89, -6.63, -7.26, -7.84]),
        ("dubins", 4_000, [-1.51, -1.42, -1.16, -2.29, -3.45, -4.11, -4.32]),
        ("quadcopter", 4_000, [-10.63, -9.42, -7.54, -7.33, -7.29, -7.33, -7.41]),
    ],
)
def test_one_gaussian_per_step_scores_as_recorded(name, train, scores):
    x = trajectories(name)
    for k, score in zip(range(1, 14, 2), scores, strict=True):
        fitted = multivariate_normal(x[:train, k].mean(0), np.cov(x[:train, k].T))
        assert abs(fitted.logpdf(x[TRAIN:, k]).mean() - score) < 0.12, f"k = {k}"


@pytest.mark.parametrize("name", NAMES)
def test_simulation_is_repeatable(name):
    system, x = SYSTEMS[name], trajectories(name)
    assert x.shape == (TRAIN + TEST, STEPS + 1, system.dim)
    assert x.dtype == np.float64
    np.testing.assert_array_equal(x, system.simulate(jax.random.key(3), TRAIN + TEST, STEPS))
    other = np.asarray(system.simulate(jax.random.key(4), TRAIN + TEST, STEPS))
    assert np.all(np.any(x != other, axis=-1))


@pytest.mark.parametrize("name", NAMES)
def test_trajectories_and_steps_do_not_share_noise(name):
    x = trajectories(name)[:50, :6]
    assert np.unique(x[:, 0], axis=0).shape[0] == 50
    means = mean_step(name)(jnp.asarray(x[:, :-1].reshape(-1, x.shape[-1])))
    noise = x[:, 1:, -1].ravel() - np.asarray(means)[:, -1]
    assert np.unique(noise).size == noise.size


def test_more_trajectories_and_steps_extend_the_simulation():
    short = SYSTEMS["vdp"].simulate(jax.random.key(3), 5, 4)
    np.testing.assert_allclose(trajectories("vdp")[:5, :5], short, rtol=1e-12, atol=1e-13)


def test_initial_states_have_the_stated_moments():
    x = np.asarray(SYSTEMS["cartpole"].sample_initial(jax.random.key(2), 20_000))
    assert x.shape == (20_000, 4)
    np.testing.assert_allclose(x.mean(0), [0, 5, 0, 0], atol=5 * np.sqrt(0.1 / 20_000))
    np.testing.assert_allclose(np.cov(x.T), 0.1 * np.eye(4), atol=0.5 * np.sqrt(2 / 20_000))


@pytest.mark.parametrize(("name", "variance"), [("vdp-wide", 2.0), ("cartpole-wide", 6.0)])
def test_wide_pairs(name, variance):
    system = SYSTEMS[name]
    x, x_next = (np.asarray(part) for part in system.sample_wide(jax.random.key(4), system.pair_count))
    assert x.shape == x_next.shape == (10_000, system.dim)
    np.testing.assert_allclose(np.cov(x.T), variance * np.eye(system.dim), atol=5 * variance * np.sqrt(2 / 10_000))
    errors = x_next - np.array([MEAN[name](list(state)) for state in x])
    np.testing.assert_allclose(np.cov(errors.T), 0.1 * np.eye(system.dim), atol=0.5 * np.sqrt(2 / 10_000))
    # Noise that leaned on x would show here.
    cross = errors.T @ x / len(x)
    assert np.all(np.abs(cross) < 5 * np.sqrt(0.1 * variance / len(x)))


def test_counts_of_the_protocol():
    assert list(SYSTEMS) == NAMES
    found = {
        name: (s.dim, s.train_trajectories, s.test_trajectories, s.horizon, s.initial_count, s.pair_count)
        for name, s in SYSTEMS.items()
    }
    assert found == {
        "vdp": (2, 1_000, 10_000, 11, 1_000, 11_000),
        "cartpole": (4, 1_000, 10_000, 13, 1_000, 13_000),
        "quadrotor": (6, 4_000, 10_000, 13, 4_000, 52_000),
        "dubins": (6, 4_000, 10_000, 13, 4_000, 52_000),
        "dubins-full": (6, 4_000, 10_000, 13, 4_000, 52_000),
        "quadcopter": (12, 4_000, 10_000, 13, 4_000, 52_000),
        "vdp-wide": (2, 0, 10_000, 11, 1_000, 10_000),
        "cartpole-wide": (4, 0, 5_000, 13, 1_000, 10_000),
    }


def test_van_der_pol_blows_up_as_often_as_recorded():
    x = SYSTEMS["vdp"].simulate(jax.random.key(5), 200_000, 11)
    fractions = np.asarray(blown_up(x)).mean(0)
    assert 1.5e-4 < fractions[7] < 6e-4
    assert 2.5e-3 < fractions[9] < 4e-3
    assert 1.2e-2 < fractions[11] < 1.6e-2
    assert fractions[0] == 0


def test_overflowed_states_count_as_blown_up():
    x = jnp.array([[9.9, -9.9], [10.1, 0.0], [0.0, -10.1], [np.nan, 0.0], [-np.inf, np.nan]])
    np.testing.assert_array_equal(blown_up(x), [False, True, True, True, True])


def test_errors_name_both_sides():
    with pytest.raises(ValueError, match="cartpole.*vdp-wide.*got 'pendulum'"):
        get_system("pendulum")
    assert get_system("vdp") is SYSTEMS["vdp"]
    system = SYSTEMS["cartpole"]
    with pytest.raises(ValueError, match=r"shape \(4,\), got an array of shape \(3,\)"):
        system.mean_step(jnp.zeros(3))
    with pytest.raises(ValueError, match="trained on trajectories"):
        system.sample_wide(jax.random.key(0), 5)
    with pytest.raises(ValueError, match="whole number >= 1 for count"):
        system.sample_initial(jax.random.key(0), 0)
    with pytest.raises(ValueError, match="centred at zero"):
        AdditiveNoise(lambda x: x, Gaussian.diagonal([1.0], 1.0))
    with pytest.raises(ValueError, match="1 coordinates, got 4"):
        System(
            name="short",
            coordinates=("p",),
            initial=system.initial,
            dynamics=system.dynamics,
            train_trajectories=1,
            test_trajectories=1,
            horizon=1,
        )
