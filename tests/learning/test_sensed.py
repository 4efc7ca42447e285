"""Learning a sensor with the process: the filter comes close to Kalman's on a linear-Gaussian system."""

import numpy as np
import pytest
import scipy.stats

import sosmarkov as sm


def simulate(count, steps, seed):
    """x' = 0.8 x + N(0, 0.25), o = (2 x + 1 + N(0, 0.25), pure noise), x_0 ~ N(0, 0.49)."""
    rng = np.random.default_rng(seed)
    x = [0.7 * rng.normal(size=count)]
    for _ in range(steps):
        x.append(0.8 * x[-1] + 0.5 * rng.normal(size=count))
    x = np.stack(x, axis=1)
    first = 2.0 * x + 1.0 + 0.5 * rng.normal(size=x.shape)
    return x[..., None], np.stack([first, rng.normal(size=x.shape)], axis=2)


def kalman(readings):
    mean, variance, found, evidence = 0.0, 0.49, [], 0.0
    for k, o in enumerate(readings[:, 0]):
        if k > 0:
            mean, variance = 0.8 * mean, 0.64 * variance + 0.25
        if not np.isnan(o):
            total = 4.0 * variance + 0.25
            evidence += scipy.stats.norm(2.0 * mean + 1.0, np.sqrt(total)).logpdf(o)
            gain = 2.0 * variance / total
            mean, variance = mean + gain * (o - 2.0 * mean - 1.0), variance * (1.0 - 2.0 * gain)
        found.append(scipy.stats.norm(mean, np.sqrt(variance)))
    return found, evidence


@pytest.fixture(scope="module")
def process():
    x, o = simulate(300, 4, 0)
    o[:20, 2] = np.nan
    return sm.fit(x, observations=o, size=6, sensor_size=5, rank=2, steps=200, progress=False)


def test_the_filter_is_close_to_kalmans(process):
    x, o = simulate(30, 4, 1)
    o[:10, 1] = np.nan
    o[:5, 3, 1] = np.nan
    gaps = []
    for states, readings in zip(x, o, strict=True):
        expected, _ = kalman(readings)
        found = process.filter(readings).beliefs
        gaps.append([d.logpdf(s[0]) - float(b.log_prob(s)) for d, b, s in zip(expected, found, states, strict=True)])
    assert -0.05 < np.mean(gaps) < 0.15
    report = process.check()
    assert report.ok


def test_history_says_what_was_done(process):
    assert [phase.name for phase in process.history.phases] == ["transitions", "initial", "filter"]
    assert process.history.chosen["sensor_size"] == 5
    assert all(np.all(phase.held_out[0] >= phase.best) for phase in process.history.phases)


def test_wrong_observations_are_refused():
    x, o = simulate(30, 3, 0)
    for options, message in (
        ({"observations": o[:, :-1]}, "one reading for every state"),
        ({"observations": np.where(o > 0, o, np.inf)}, "finite readings"),
        ({"observations": 0.0 * o}, "vary"),
        ({"observations": o, "coupling": "linear", "sensor_size": 3}, "coupling 'kraus', no inputs"),
        ({"observations": o, "sensor": "joint", "inputs": np.ones((30, 3, 1))}, "coupling 'kraus', no inputs"),
        ({"observations": o, "sensor": "joint", "surrogate": True}, "no surrogate"),
        ({"sensor_size": 3}, "Expected observations"),
    ):
        with pytest.raises(ValueError, match=message):
            sm.fit(x, size=3, progress=False, **options)


def simulate_driven(count, steps, seed):
    """x' = 0.8 x + u + noise, read as 2 x + 0.5 + noise."""
    rng = np.random.default_rng(seed)
    u = rng.choice([-0.5, 0.0, 0.5], size=(count, steps, 1))
    x = [0.7 * rng.normal(size=(count, 1))]
    for k in range(steps):
        x.append(0.8 * x[-1] + u[:, k] + 0.4 * rng.normal(size=(count, 1)))
    x = np.stack(x, axis=1)
    return x, u, 2.0 * x + 0.5 + 0.6 * rng.normal(size=x.shape)


def kalman_driven(readings, u):
    """Log p(o_0, ..., o_T) from the joint normal distribution of the readings."""
    steps = len(u)
    powers = np.tril(0.8 ** (np.arange(steps + 1)[:, None] - np.arange(steps + 1)))
    noise = np.diag([0.49] + [0.16] * steps)
    mean = 2.0 * powers @ np.append(0.0, u[:, 0]) + 0.5
    covariance = 4.0 * powers @ noise @ powers.T + 0.36 * np.eye(steps + 1)
    return scipy.stats.multivariate_normal(mean, covariance).logpdf(readings[:, 0])


def test_a_sensor_is_learned_beside_inputs():
    x, u, o = simulate_driven(300, 4, 0)
    process = sm.fit(x, inputs=u, observations=o, size=5, steps=100, surrogate=False, progress=False)
    np.testing.assert_allclose(np.asarray(process.sensor.matrix), [[2.0]], atol=0.1)
    new_x, new_u, new_o = simulate_driven(40, 4, 1)
    evidence = [float(process.filter(one, inputs=way).log_evidence) for one, way in zip(new_o, new_u, strict=True)]
    expected = [kalman_driven(one, way) for one, way in zip(new_o, new_u, strict=True)]
    assert abs(np.mean(evidence) - np.mean(expected)) / len(new_o[0]) < 0.1
    # The wrong inputs are worse: the filter uses them.
    wrong = [float(process.filter(one, inputs=-way).log_evidence) for one, way in zip(new_o, new_u, strict=True)]
    assert np.mean(wrong) < np.mean(evidence) - 0.5
    # One reading after the other, each under its input.
    belief, total = process.update(process.initial, new_o[0, 0], sensor=process.sensor)
    for reading, way in zip(new_o[0, 1:], new_u[0], strict=True):
        belief, log_evidence = process.advance(belief, reading, u=way)
        total += log_evidence
    np.testing.assert_allclose(total, evidence[0], rtol=1e-9)
    assert process.under([0.5]).sensor is process.sensor
