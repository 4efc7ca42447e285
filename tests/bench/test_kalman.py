"""Our Kalman filter and smoother against dynamax, and against the results that pykalman stores with its data."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from sosmarkov_bench.kalman import LinearGaussian, kalman


def random_system(rng, d, m):
    def covariance(size):
        root = rng.normal(size=(size, size))
        return root @ root.T + 0.1 * np.eye(size)

    return LinearGaussian(
        A=0.5 * rng.normal(size=(d, d)), b=rng.normal(size=d), Q=covariance(d),
        C=rng.normal(size=(m, d)), c=rng.normal(size=m), R=covariance(m),
        mean=rng.normal(size=d), covariance=covariance(d),
    )  # fmt: skip


def test_dynamax_finds_the_same():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what dynamax's own dependencies warn of is not ours
        lgssm = pytest.importorskip("dynamax.linear_gaussian_ssm")
    system = random_system(np.random.default_rng(0), 3, 2)
    readings = jnp.asarray(system.read(system.simulate(1, 30, 1)[0], 2))
    A, b, Q, C, c, R, mean, covariance = map(jnp.asarray, system)
    parameters = lgssm.ParamsLGSSM(
        initial=lgssm.ParamsLGSSMInitial(mean=mean, cov=covariance),
        dynamics=lgssm.ParamsLGSSMDynamics(weights=A, bias=b, input_weights=jnp.zeros((3, 0)), cov=Q),
        emissions=lgssm.ParamsLGSSMEmissions(weights=C, bias=c, input_weights=jnp.zeros((2, 0)), cov=R),
    )
    expected = lgssm.lgssm_smoother(parameters, readings)
    found = kalman(system, np.asarray(readings))
    np.testing.assert_allclose(found.log_evidence, expected.marginal_loglik, rtol=1e-9)
    for name in ("filtered_means", "filtered_covariances", "smoothed_means", "smoothed_covariances"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-8, atol=1e-8)


# pykalman's loader leaves its text file to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_stored_results_of_the_robot_are_found_again():
    robot = pytest.importorskip("pykalman.datasets").load_robot()
    system = LinearGaussian(
        A=robot.transition_matrix, b=robot.transition_offsets, Q=robot.transition_covariance,
        C=robot.observation_matrix, c=robot.observation_offset, R=robot.observation_covariance,
        mean=robot.initial_state_mean, covariance=robot.initial_state_covariance,
    )  # fmt: skip
    found = kalman(system, np.ma.filled(robot.observations, np.nan))
    for name in ("means", "covariances"):
        for kind in ("filtered", "smoothed"):
            ours, stored = getattr(found, f"{kind}_{name}"), robot[f"{kind}_state_{name}"]
            np.testing.assert_allclose(ours, stored, rtol=1e-6, atol=1e-6)


def test_readings_that_are_missing_change_nothing():
    system = random_system(np.random.default_rng(3), 2, 1)
    found = kalman(system, np.full((4, 1), np.nan))
    mean, covariance = system.mean, system.covariance
    for k in range(4):
        np.testing.assert_allclose(found.filtered_means[k], mean)
        np.testing.assert_allclose(found.smoothed_covariances[k], covariance)
        mean, covariance = system.A @ mean + system.b, system.A @ covariance @ system.A.T + system.Q
    assert found.log_evidence == 0.0
