"""The record of hourly temperatures, and baselines for a period against numpy and simulation."""

import numpy as np
import pytest
import scipy.stats

from sosmarkov_bench.hourly import PERIOD, WEEK, hourly_temperatures
from sosmarkov_bench.seasonal import SeasonalAR, block_mean, climatology


@pytest.fixture(scope="module")
def record():
    return hourly_temperatures()


def test_the_record_is_a_year_of_plausible_hours(record):
    x = record.celsius
    assert len(x) == 365 * PERIOD
    assert np.isnan(x).sum() < 100
    assert -15 < np.nanmin(x) < np.nanmax(x) < 40
    # Afternoons are warmer than nights, and neighbours alike: hours and dates are where they belong.
    by_hour = np.nanmean(x.reshape(-1, PERIOD), axis=0)
    assert by_hour.argmin() in (4, 5, 6)
    assert by_hour.argmax() in (12, 13, 14)
    assert np.nanmax(np.abs(np.diff(x))) < 8


def test_nothing_that_is_held_out_is_learned_from(record):
    phase, x, x_next = record.pairs()
    seen = set(record.celsius[record.held_out].tolist())
    assert not seen & (set(x.tolist()) | set(x_next.tolist()) | set(record.days().ravel().tolist()))
    days = record.days()
    both = np.isfinite(days[:, :-1, 0]) & np.isfinite(days[:, 1:, 0])
    assert both.sum() == len(x)
    np.testing.assert_array_equal(np.nonzero(both)[1], phase)
    t = record.origins(PERIOD)
    assert all(record.held_out[s : s + PERIOD + 1].all() for s in t)
    assert np.all(t // WEEK % 5 == 2)


def test_linear_steps_are_found_and_followed():
    rng = np.random.default_rng(0)
    truth = SeasonalAR(np.array([1.0, -2.0]), np.array([0.5, 0.9]), np.array([0.3, 0.6]))
    phase, x = rng.integers(2, size=20_000), rng.normal(size=20_000)
    x_next = truth.offset[phase] + truth.slope[phase] * x + truth.std[phase] * rng.normal(size=20_000)
    found = SeasonalAR.fit(phase, x, x_next, 2)
    np.testing.assert_allclose(found, truth, atol=0.03)
    cloud = np.full(200_000, 0.7)
    for k in range(3):
        j = (1 + k) % 2
        cloud = truth.offset[j] + truth.slope[j] * cloud + truth.std[j] * rng.normal(size=cloud.shape)
        means, stds = truth.ahead(np.array([1]), np.array([0.7]), 3)
        np.testing.assert_allclose([means[0, k], stds[0, k]], [cloud.mean(), cloud.std()], atol=0.01)
    later = np.array([[0.1, 0.2, 0.3]])
    expected = scipy.stats.norm(means, stds).logpdf(later)
    np.testing.assert_allclose(truth.log_prob(np.array([1]), np.array([0.7]), later), expected)


def test_what_a_phase_is_like():
    rng = np.random.default_rng(1)
    phase = np.arange(600) % 3
    x = 5.0 * phase + rng.normal(size=600)
    later = np.array([[5.0, 10.0, np.nan], [0.0, 5.0, 10.0]])
    first = np.array([1, 0])
    found = climatology(phase, x, first, later, 3, kernel=False)
    one = scipy.stats.norm.fit(x[phase == 1])
    np.testing.assert_allclose([found[0, 0], found[1, 1]], scipy.stats.norm(*one).logpdf(5.0))
    assert np.isnan(found[0, 2])
    smooth = climatology(phase, x, first, later, 3, kernel=True)
    np.testing.assert_allclose(smooth[1], found[1], atol=0.3)


def test_errors_of_means_know_that_neighbours_are_alike():
    rng = np.random.default_rng(2)
    block = np.repeat(np.arange(400), 10)
    values = rng.normal(size=400)[block][:, None]
    mean, error = block_mean(values, block)
    np.testing.assert_allclose(mean, values.mean())
    np.testing.assert_allclose(error, 1 / np.sqrt(400), rtol=0.15)
