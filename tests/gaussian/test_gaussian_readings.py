"""Filters and smoothers: against textbook recursions, the joint Gaussian of a trajectory, and pykalman."""

import itertools
import warnings

import numpy as np
import pykalman
import pytest
from kalman import covariance, joint, kalman, moments, rts
from scipy import stats
from scipy.special import logsumexp
from test_gaussian_process import CASES, plain, steps_of

import sosmarkov as sm

RNG = np.random.default_rng(11)
READINGS = RNG.normal(size=(7, 2))
READINGS[2] = np.nan
READINGS[4, 0] = np.nan
READINGS[6, 1] = np.nan
LINEAR = sm.LinearSensor([[1.0, 0.5], [-0.3, 2.0]], [0.4, 0.7], offset=[0.1, -0.2])
SENSORS = {
    "linear": (LINEAR, np.array([[1.0, 0.5], [-0.3, 2.0]]), np.array([0.1, -0.2]), np.diag([0.16, 0.49])),
    "gaussian": (
        sm.GaussianSensor(["x1", "x0"], [0.3, 0.6], gain=[2.0, 1.0], offset=0.5),
        np.array([[0.0, 2.0], [1.0, 0.0]]),
        np.array([0.5, 0.5]),
        np.diag([0.09, 0.36]),
    ),
}


def bank(process, sensor, readings, inputs):
    """Filter and smoother of every member of the start, weighed by their evidences."""
    _, H, c, R = sensor
    steps, start = steps_of(process, len(readings) - 1, inputs), process.initial
    runs = [kalman(steps, H, c, R, m, P, readings) for m, P in zip(start.means, start.covariances, strict=True)]
    logs = np.log(start.weights)[:, None] + np.cumsum([run[2] for run in runs], axis=1)
    totals = logsumexp(logs, axis=0)
    evidence = np.diff(totals, prepend=0.0)
    smooth = [rts(steps, run[0], run[1]) for run in runs]
    return runs, smooth, logs - totals, evidence


def mixed(weights, members):
    return moments(weights, *(np.array(part) for part in zip(*members, strict=True)))


@pytest.mark.parametrize("sensor", SENSORS)
@pytest.mark.parametrize("name", CASES)
def test_filters_and_smoothers_of_a_mixture_with_missing_readings(name, sensor):
    make, inputs = CASES[name]
    process = make()
    runs, smooth, shares, evidence = bank(process, SENSORS[sensor], READINGS, inputs)
    found = process.smooth(READINGS, sensor=SENSORS[sensor][0], inputs=inputs)
    result = found.filtered
    np.testing.assert_allclose(result.log_evidences, evidence, rtol=1e-10, atol=1e-12)
    assert result.log_evidences[2] == 0.0
    np.testing.assert_allclose(found.log_evidence, evidence.sum(), rtol=1e-11)
    assert type(result.beliefs.means()) is np.ndarray
    for k in range(len(READINGS)):
        mean, cov = mixed(np.exp(shares[:, k]), [run[1][k] for run in runs])
        np.testing.assert_allclose(result.beliefs[k].mean(), mean, rtol=1e-10, atol=1e-11)
        np.testing.assert_allclose(result.beliefs[k].covariance(), cov, rtol=1e-10, atol=1e-11)
        before = process.initial.weights if k == 0 else np.exp(shares[:, k - 1])
        mean, _ = mixed(before, [run[0][k] for run in runs])
        np.testing.assert_allclose(result.predicted[k].mean(), mean, rtol=1e-10, atol=1e-11)
        mean, cov = mixed(np.exp(shares[:, -1]), [one[k] for one in smooth])
        np.testing.assert_allclose(found.beliefs[k].mean(), mean, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(found.beliefs[k].covariance(), cov, rtol=1e-9, atol=1e-11)


def test_the_same_by_pykalman():
    process = plain()
    start, t = process.initial, process.transition
    process = sm.MarkovProcess(t, sm.GaussianBelief(start.means[0], start.covariances[0]))
    sensor, H, c, R = SENSORS["linear"]
    readings = np.where(np.isnan(READINGS), 0.5, READINGS)
    readings[3] = np.nan
    other = pykalman.KalmanFilter(t.F, H, t.Q, R, t.b, c, start.means[0], start.covariances[0])
    masked = np.ma.array(readings, mask=np.isnan(readings))
    means, covariances = other.smooth(masked)
    found = process.smooth(readings, sensor=sensor)
    np.testing.assert_allclose(found.beliefs.means(), means, rtol=1e-9)
    np.testing.assert_allclose(found.beliefs.covariances(), covariances, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.log_evidence, other.loglikelihood(masked), rtol=1e-10)


def test_smoothing_draws_have_the_moments_of_the_joint_posterior():
    process = plain()
    sensor, H, c, R = SENSORS["linear"]
    start = sm.GaussianBelief(process.initial.means[0], process.initial.covariances[0])
    count = 5
    mean, cov = joint(steps_of(process, count - 1), start.means[0], start.covariances[0])
    there = ~np.isnan(READINGS[:count].reshape(-1))
    G, r = np.kron(np.eye(count), H)[there], np.kron(np.eye(count), R)[np.ix_(there, there)]
    S = G @ cov @ G.T + r
    K = np.linalg.solve(S, G @ cov).T
    away = READINGS[:count].reshape(-1)[there] - G @ mean - np.tile(c, count)[there]
    mean, cov = mean + K @ away, cov - K @ S @ K.T
    drawn = process.smooth(READINGS[:count], sensor=sensor, initial=start).sample(3, 40_000).reshape(40_000, -1)
    assert np.all(np.abs(drawn.mean(0) - mean) < 5 * np.sqrt(np.diag(cov) / len(drawn)))
    np.testing.assert_allclose(np.cov(drawn.T), cov, atol=0.03)


def test_streams_answer_as_whole_sequences_do():
    process, sensor = plain(), LINEAR
    result = process.filter(READINGS, sensor=sensor)
    belief, log = process.update(process.initial, READINGS[0], sensor=sensor)
    np.testing.assert_allclose(log, result.log_evidences[0], rtol=1e-13)
    for k in range(1, len(READINGS)):
        belief, log = process.advance(belief, READINGS[k], sensor=sensor)
        np.testing.assert_allclose(log, result.log_evidences[k], rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(belief.mean(), result.beliefs[k].mean(), rtol=1e-11)
    assert process.filter(READINGS[:1], sensor=sensor).log_evidences.shape == (1,)
    np.testing.assert_allclose(process.smooth(READINGS[:1], sensor=sensor).beliefs[0].mean(), result.beliefs[0].mean())


@pytest.mark.parametrize("sensor", [LINEAR, sm.MixtureSensor([LINEAR, LINEAR], [1, 2])])
def test_nothing_read_is_nothing_learned(sensor):
    process, nothing = plain(), np.full((4, 2), np.nan)
    found = process.smooth(nothing, sensor=sensor)
    np.testing.assert_array_equal(found.filtered.log_evidences, 0.0)
    np.testing.assert_allclose(found.beliefs.means(), process.propagate(3).means(), rtol=1e-13)
    assert process.update(process.initial, nothing[0], sensor=sensor).belief is process.initial


def test_a_known_start_stays_known():
    process, state = plain(), np.array([0.3, -0.7])
    found = process.smooth(READINGS, sensor=LINEAR, initial=state)
    assert isinstance(found.beliefs[0], sm.KnownState)
    noise = stats.multivariate_normal(SENSORS["linear"][1] @ state + SENSORS["linear"][2], SENSORS["linear"][3])
    np.testing.assert_allclose(found.filtered.log_evidences[0], noise.logpdf(READINGS[0]), rtol=1e-12)
    mixed_start = sm.MixtureBelief([sm.KnownState(state), sm.KnownState(-state), process.initial], [0.3, 0.3, 0.4])
    found = process.filter(READINGS, sensor=LINEAR, initial=mixed_start)
    parts = [process.filter(READINGS, sensor=LINEAR, initial=one).log_evidence for one in (state, -state, None)]
    np.testing.assert_allclose(found.log_evidence, logsumexp(parts, b=[0.3, 0.3, 0.4]), rtol=1e-11)


OUTLIERS = sm.MixtureSensor([sm.GaussianSensor(0, 0.3), sm.GaussianSensor(0, 4.0)], [0.9, 0.1])


def explanations(process, readings, stds=(0.3, 4.0), weights=(0.9, 0.1)):
    """Every way to explain the readings, as joint posteriors: log-weights, means and covariances of trajectories."""
    start, steps = process.initial, steps_of(process, len(readings) - 1)
    found = []
    for i, which in itertools.product(range(len(start.weights)), itertools.product((0, 1), repeat=len(readings))):
        mean, cov = joint(steps, start.means[i], start.covariances[i])
        G = np.kron(np.eye(len(readings)), [[1.0, 0.0]])
        S = G @ cov @ G.T + np.diag(np.array(stds)[list(which)] ** 2)
        log = stats.multivariate_normal(G @ mean, S).logpdf(readings[:, 0])
        K = np.linalg.solve(S, G @ cov).T
        prior = np.log(start.weights[i]) + np.sum(np.log(np.array(weights)[list(which)]))
        found.append((log + prior, mean + K @ (readings[:, 0] - G @ mean), cov - K @ S @ K.T))
    return found


def test_a_mixture_of_sensors_weighs_every_explanation():
    process, readings = plain(), np.array([[0.5], [9.0], [-0.3], [0.8]])
    parts = explanations(process, readings)
    logs = np.array([part[0] for part in parts])
    result = process.smooth(readings, sensor=OUTLIERS)
    np.testing.assert_allclose(result.log_evidence, logsumexp(logs), rtol=1e-11)
    mean, cov = moments(np.exp(logs - logsumexp(logs)), *(np.array([part[i] for part in parts]) for i in (1, 2)))
    np.testing.assert_allclose(result.beliefs.means().reshape(-1), mean, rtol=1e-9)
    for k in range(4):
        own = slice(2 * k, 2 * k + 2)
        np.testing.assert_allclose(result.beliefs[k].covariance(), cov[own, own], rtol=1e-9)
    np.testing.assert_allclose(result.filtered.beliefs[3].mean(), mean[6:], rtol=1e-10)
    drawn = result.sample(0, 20_000).reshape(20_000, -1)
    assert np.all(np.abs(drawn.mean(0) - mean) < 5 * np.sqrt(np.diag(cov) / len(drawn)))


def test_long_sequences_under_a_mixture_of_sensors_say_what_was_joined():
    process = plain()
    states = process.sample(0, 1, 16)[0]
    readings = states[:, :1] + 0.3 * np.random.default_rng(0).normal(size=(17, 1))
    readings[6] += 8.0
    with pytest.warns(sm.EstimateWarning, match="were joined, which moved it by about"):
        found = process.filter(readings, sensor=OUTLIERS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sm.EstimateWarning)
        short = process.filter(readings[:9], sensor=OUTLIERS)
        with pytest.raises(ValueError, match="combinations of explanations"):
            process.smooth(readings, sensor=OUTLIERS)
        assert len(found.beliefs[16].weights) == 256
    np.testing.assert_allclose(found.log_evidences[:9], short.log_evidences, rtol=1e-12)
    exact = logsumexp([part[0] for part in explanations(process, readings[:9])])
    np.testing.assert_allclose(np.sum(found.log_evidences[:9]), exact, atol=1e-6)


def test_covariances_stay_positive_under_nearly_exact_readings():
    process = plain(4, seed=9)
    sensor = sm.GaussianSensor([0, 1, 2, 3], 1e-7)
    states = process.sample(0, 1, 60)[0]
    found = process.smooth(states, sensor=sensor)
    np.testing.assert_allclose(found.beliefs.means(), states, atol=1e-6)
    for cov in found.beliefs.covariances():
        assert np.all(np.linalg.eigvalsh(cov) > 0)
        np.testing.assert_allclose(np.sqrt(np.diag(cov)), 1e-7, rtol=1e-4)


def test_other_sensors_are_refused():
    process = plain()
    for sensor, o in (
        (sm.IntervalSensor(0), [[0.0, 1.0]]),
        (sm.MixtureSensor([sm.IntervalSensor(0), sm.IntervalSensor(1)], [1, 1]), [[0.0, 1.0]]),
    ):
        with pytest.raises(ValueError, match="form='lattice' or form='factor', which read it"):
            process.update(process.initial, o, sensor=sensor)
    with pytest.raises(ValueError, match="possible under the process"):
        process.filter([[1e200, 0.0]], sensor=LINEAR)
    with pytest.raises(ValueError, match="2 coordinates to read, got 1"):
        plain(1).update([0.0], [0.0, 0.0], sensor=LINEAR)
    assert covariance(RNG, 2).shape == (2, 2)
