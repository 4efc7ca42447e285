"""The limit against Kalman's prediction in 12-D, where independent predecessors say nothing."""

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from sosmarkov_bench.oracle import limit, twisted_limit
from sosmarkov_bench.systems import AdditiveNoise, Gaussian, System, get_system

D, STEPS = 12, 3


@pytest.fixture(scope="module")
def linear():
    rng = np.random.default_rng(0)
    A = 0.9 * np.linalg.qr(rng.normal(size=(D, D)))[0]
    return A, System(
        name="linear",
        coordinates=tuple(f"x{i}" for i in range(D)),
        initial=Gaussian.diagonal(rng.normal(size=D), rng.uniform(0.5, 2.0, D)),
        dynamics=AdditiveNoise(lambda x: A @ x, Gaussian.diagonal(np.zeros(D), 0.02)),
        train_trajectories=1, test_trajectories=1, horizon=STEPS,
    )  # fmt: skip


def exact(A, system, test):
    mean, covariance = system.initial.mean, system.initial.covariance
    for k in range(1, STEPS + 1):
        mean, covariance = A @ mean, A @ covariance @ A.T + system.dynamics.noise.covariance
        yield multivariate_normal(mean, covariance).logpdf(test[:, k]).mean()


def test_backward_particles_find_what_plain_averages_miss_in_twelve_dimensions(linear):
    A, system = linear
    test = np.asarray(system.simulate(jax.random.key(1), 40, STEPS))
    others = np.asarray(system.simulate(jax.random.key(2), 4_000, STEPS))
    expected = np.array(list(exact(A, system, test)))
    found = twisted_limit(system, test, others, jax.random.key(3), particles=50)
    np.testing.assert_allclose(found.lower, expected, atol=0.08)
    np.testing.assert_allclose(found.upper, expected, atol=0.08)
    plain = limit(system, test, others)
    assert np.all(plain.lower < expected - 5.0)
    assert np.all(plain.upper > expected)
    assert np.all(found.error > 0)


def test_both_estimates_agree_and_enclose_where_the_step_is_not_linear():
    system = get_system("vdp")
    test = np.asarray(system.simulate(jax.random.key(4), 40, STEPS))
    others = np.asarray(system.simulate(jax.random.key(5), 4_000, STEPS))
    plain, found = limit(system, test, others), twisted_limit(system, test, others, jax.random.key(6), particles=50)
    assert np.all(found.lower < found.upper + 0.01)
    np.testing.assert_allclose(found.lower, plain.lower, atol=0.06)
    np.testing.assert_allclose(found.upper, plain.upper, atol=0.06)
