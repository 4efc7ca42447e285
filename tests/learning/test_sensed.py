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
        ({"observations": o, "coupling": "linear"}, "for: coupling"),
        ({"observations": o, "inputs": np.zeros((30, 3, 1))}, "for: inputs"),
        ({"sensor_size": 3}, "Expected observations"),
    ):
        with pytest.raises(ValueError, match=message):
            sm.fit(x, size=3, progress=False, **options)
