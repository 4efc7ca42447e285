"""Filters and smoothers on lattices against Kalman's, and against filters on fine grids."""

from functools import cache

import numpy as np
import pytest

import sosmarkov as sm
from lattice.lattices import belief, grid, line, plane, rule, stretched
from sosmarkov.lattice.axis import Axis
from sosmarkov.lattice.nodes import Nodes

LOG_2PI = np.log(2.0 * np.pi)


def log_normal(o, x, std):
    return -0.5 * ((o - x) / std) ** 2 - 0.5 * LOG_2PI - np.log(std)


def normal(o, x, std):
    return np.exp(log_normal(o, x, std))


def kalman(F, Q, H, R, m, P, readings):
    """Evidence, filtered and smoothed means and covariances, written out."""
    log_evidence, filtered, predicted = 0.0, [], []
    for k, o in enumerate(readings):
        if k:
            m, P = F @ m, F @ P @ F.T + Q
        predicted.append((m, P))
        S, r = H @ P @ H.T + R, o - H @ m
        log_evidence += -0.5 * (r @ np.linalg.solve(S, r) + np.linalg.slogdet(2.0 * np.pi * S)[1])
        K = P @ H.T @ np.linalg.inv(S)
        m, P = m + K @ r, P - K @ H @ P
        filtered.append((m, P))
    smoothed = [filtered[-1]]
    for (m, P), (m_next, P_next) in zip(filtered[-2::-1], predicted[:0:-1], strict=True):
        G = P @ F.T @ np.linalg.inv(P_next)
        later = smoothed[-1]
        smoothed.append((m + G @ (later[0] - m_next), P + G @ (later[1] - P_next) @ G.T))
    return log_evidence, filtered, smoothed[::-1]


@pytest.mark.parametrize("oblique", [False, True])
def test_a_linear_gaussian_system_against_kalman(oblique):
    F, Q = np.array([[0.9, 0.2], [-0.2, 0.8]]), np.array([[0.09, 0.02], [0.02, 0.08]])
    H = np.array([[1.0, 0.5]]) if oblique else np.array([[1.0, 0.0]])
    sensor = sm.LinearSensor(H, 0.3) if oblique else sm.GaussianSensor(0, 0.3)
    rng = np.random.default_rng(0)
    x = [np.array([0.4, -0.2])]
    for _ in range(7):
        x.append(F @ x[-1] + rng.multivariate_normal(np.zeros(2), Q))
    readings = np.array(x) @ H.T + 0.3 * rng.standard_normal((8, 1))
    m, P = np.array([0.2, 0.1]), 0.1 * np.eye(2)
    exact, filtered, smoothed = kalman(F, Q, H, np.array([[0.09]]), m, P, readings)
    missed = []
    for count in (17, 26):
        h = 4.48 / (count - 1)
        nodes = Nodes([Axis(-2.24, h, count, "open")] * 2, np.arange(count**2))
        p = sm.MarkovProcess(stretched(nodes, F, Q, 0.0), sm.GaussianBelief(m, P))
        found = p.smooth(readings, sensor=sensor)
        missed.append(abs(found.log_evidence - exact))
        for k in (0, 3, 7):
            for b, (mean, covariance) in ((found.filtered.beliefs[k], filtered[k]), (found.beliefs[k], smoothed[k])):
                np.testing.assert_allclose(b.mean(), mean, atol=0.02 if count == 17 else 0.005)
                np.testing.assert_allclose(b.covariance(), covariance, atol=0.01 if count == 17 else 0.003)
                np.testing.assert_allclose(b.mass(), 1.0, atol=1e-9)
    # At a spacing of the noise's deviation, and finer.
    assert missed[0] < 1e-3 * abs(exact) * 5
    assert missed[1] < 0.5 * missed[0]


@cache
def on_a_line(ends):
    """A process, places, weights, and p(x' | x) between them."""
    nodes = line(ends, 30, 0.2)
    p = sm.MarkovProcess(stretched(nodes, 0.9, 0.1, 1e-2), belief(nodes))
    x, w = rule(nodes.axes[0], 8, parts=2)
    return p, x, w, np.exp(p.transition.log_prob(x[None, :, None], x[:, None, None]))


def on_a_grid(ends, readings, likelihood):
    """Evidences, filtered and smoothed weights on places, by sums alone."""
    p, x, w, kernel = on_a_line(ends)
    now, found, evidences = w * p.initial.prob(x[:, None]), [], []
    for k, o in enumerate(readings):
        if k:
            now = w * (now @ kernel)
        now = now * likelihood(o, x)
        evidences.append(np.sum(now))
        now = now / evidences[-1]
        found.append(now)
    behind, smoothed = np.ones(len(x)), [found[-1]]
    for k in range(len(readings) - 1, 0, -1):
        behind = (kernel * w) @ (likelihood(readings[k], x) * behind) / evidences[k]
        smoothed.append(found[k - 1] * behind)
    return x, np.log(evidences), found, smoothed[::-1]


CASES = {
    "gaussian": (sm.GaussianSensor(0, 0.11, gain=2.0, offset=0.3), lambda o, x: normal(o, 2.0 * x + 0.3, 0.11)),
    "mixture": (
        sm.MixtureSensor([sm.GaussianSensor(0, 0.2), sm.GaussianSensor(0, 1.5)], [0.9, 0.1]),
        lambda o, x: 0.9 * normal(o, x, 0.2) + 0.1 * normal(o, x, 1.5),
    ),
    "range": (
        sm.FunctionSensor(lambda o, x: log_normal(o[0], np.abs(x[:, 0] - 0.7), 0.3)),
        lambda o, x: normal(o, np.abs(x - 0.7), 0.3),
    ),
    "square": (
        sm.FunctionSensor(lambda o, x: log_normal(o[0], x[:, 0] ** 2, 0.2)),
        lambda o, x: normal(o, x**2, 0.2),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ends", ["open", "lower"])
def test_one_coordinate_against_sums_on_a_grid(case, ends):
    sensor, likelihood = CASES[case]
    p, readings = on_a_line(ends)[0], np.array([[0.5], [0.9], [0.4], [1.1]])
    # The range has a kink between the ends of parts of cells: sums are less exact there.
    atol = 1e-5 if case == "range" else 1e-9
    x, log_evidences, filtered, smoothed = on_a_grid(ends, readings[:, 0], likelihood)
    found = p.smooth(readings, sensor=sensor)
    np.testing.assert_allclose(found.filtered.log_evidences, log_evidences, atol=atol)
    for beliefs, expected in ((found.filtered.beliefs, filtered), (found.beliefs, smoothed)):
        for k in range(4):
            b, mean = beliefs[k], expected[k] @ x
            np.testing.assert_allclose(b.mean(), [mean], atol=atol)
            np.testing.assert_allclose(b.covariance(), [[expected[k] @ (x - mean) ** 2]], atol=atol)
            np.testing.assert_allclose(b.mass(), 1.0, atol=1e-9)
            share = np.array([0.05, 0.5, 0.95])
            np.testing.assert_allclose(b.cdf(b.quantile(share)[:, None]), share, atol=1e-12)


def test_intervals_against_boxes():
    nodes = line(count=30, spacing=0.2)
    p = sm.MarkovProcess(stretched(nodes, 0.9, 0.1, 1e-2), belief(nodes))
    readings = np.array([[[-0.33, 0.71]], [[0.1, np.inf]], [[np.nan, np.nan]]])
    found = p.filter(readings, sensor=sm.IntervalSensor(0))
    first = p.initial.probability([-0.33], [0.71])
    np.testing.assert_allclose(found.log_evidences[0], np.log(first), rtol=1e-12)
    stayed = p.reach_probability([0.1], [np.inf], 1, initial=found.beliefs[0])
    np.testing.assert_allclose(found.log_evidences[1], np.log(stayed[0]), rtol=1e-10)
    assert found.log_evidences[2] == 0.0
    np.testing.assert_allclose(found.beliefs[1].cdf([0.1]), 0.0, atol=1e-15)
    np.testing.assert_allclose(found.beliefs[0].cdf([0.2]), p.initial.probability([-0.33], [0.2]) / first, rtol=1e-12)
    rounded = p.filter([[0.19]], sensor=sm.IntervalSensor(0, width=1.04))
    np.testing.assert_allclose(rounded.log_evidence, np.log(first), rtol=1e-12)


def test_a_reading_far_off_or_very_narrow_keeps_its_digits():
    nodes = line(count=30, spacing=0.2)
    own = belief(nodes, share=0.0)
    p = sm.MarkovProcess(stretched(nodes, 0.9, 0.1, 0.0), own)
    far = p.update(own, [40.0], sensor=sm.GaussianSensor(0, 0.05))
    # Most of what is left lies at the end of the support, where the last spline is a square.
    assert far.log_evidence == pytest.approx(-0.5 * ((40.0 - 3.2) / 0.05) ** 2, rel=1e-3)
    np.testing.assert_allclose(far.belief.mean(), own.support()[1], atol=1e-3)
    narrow = p.update(own, [0.123], sensor=sm.GaussianSensor(0, 1e-6))
    np.testing.assert_allclose(narrow.log_evidence, own.log_prob([0.123]), atol=1e-6)
    np.testing.assert_allclose(narrow.belief.mean(), [0.123], atol=1e-9)
    np.testing.assert_allclose(narrow.belief.covariance(), [[1e-12]], rtol=1e-5)
    with pytest.raises(ValueError, match="possible under the process"):
        p.update(own, [[50.0, 60.0]], sensor=sm.IntervalSensor(0))


@pytest.fixture(scope="module")
def turning():
    nodes = plane()
    return sm.MarkovProcess(stretched(nodes, np.diag([1.0, 0.8]), 0.03 * np.eye(2), 1e-2), belief(nodes))


def test_range_and_bearing_in_two_coordinates_against_sums(turning):
    place = np.array([0.2, -2.5])

    def log(o, x):
        away = x - place
        bearing = np.arctan2(away[:, 1], away[:, 0])
        return log_normal(o[0], np.hypot(*away.T), 0.3) + log_normal(o[1], bearing, 0.2)

    sensor, o = sm.FunctionSensor(log, 2), np.array([2.4, 1.5])
    found = turning.update(turning.initial, o, sensor=sensor)
    x, w = grid(turning.transition.nodes.axes, 8)
    own = w * turning.initial.prob(x) * np.exp(log(o, x))
    np.testing.assert_allclose(found.log_evidence, np.log(np.sum(own)), atol=1e-8)
    b, own = found.belief, own / np.sum(own)
    np.testing.assert_allclose(b.mean(), own @ x, atol=1e-8)
    away = x - own @ x
    np.testing.assert_allclose(b.covariance(), (own[:, None] * away).T @ away, atol=1e-8)
    np.testing.assert_allclose(b.prob(x[:5]), (own / w)[:5], rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(b.moment([1, 2]), own @ (x[:, 0] * x[:, 1] ** 2), atol=1e-8)
    inside = np.all((x > [-0.2, -0.375]) & (x < [0.4, 0.375]), axis=1)
    np.testing.assert_allclose(b.probability([-0.2, -0.375], [0.4, 0.375]), np.sum(own[inside]), atol=1e-8)
    np.testing.assert_allclose(b.probability([0.8, -np.inf], [1.3, np.inf]),
                               np.sum(own[(x[:, 0] > 0.8) | (x[:, 0] < -0.7)]), atol=1e-8)  # fmt: skip
    np.testing.assert_allclose(b.marginal(1).mean(), (own @ x)[1:], atol=1e-8)
    given = b.condition({1: 0.1})
    line_, weights = rule(turning.transition.nodes.axes[0], 8)
    states = np.stack([line_, np.full_like(line_, 0.1)], axis=-1)
    slice_ = weights * b.prob(states)
    np.testing.assert_allclose(given.prob(line_[:, None]) * np.sum(slice_), b.prob(states), rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(b.marginal(1).prob([0.1]), np.sum(slice_), rtol=1e-7)
    drawn = b.sample(0, 50_000)
    np.testing.assert_allclose(drawn.mean(axis=0), b.mean(), atol=0.02)
    np.testing.assert_allclose(np.cov(drawn.T), b.covariance(), atol=0.02)
    best = b.mode()
    assert b.log_prob(best) >= np.max(b.log_prob(x)) - 1e-10
    later = turning.predict(b)
    kernel = np.exp(turning.transition.log_prob(x[:3], x[:, None]))
    np.testing.assert_allclose(later.prob(x[:3]), own @ kernel, rtol=1e-7)


def test_an_angle_is_read_all_the_way_round(turning):
    sensor = sm.GaussianSensor(0, 0.1)
    for o in (0.97, -1.03, 2.97):
        found = turning.update(turning.initial, [o], sensor=sensor)
        x, w = grid(turning.transition.nodes.axes, 8)
        likelihood = sum(normal(0.97, x[:, 0] + turn, 0.1) for turn in (-4.0, -2.0, 0.0, 2.0))
        own = w * turning.initial.prob(x) * likelihood
        np.testing.assert_allclose(found.log_evidence, np.log(np.sum(own)), atol=1e-9)
        np.testing.assert_allclose(found.belief.probability([0.9, -np.inf], [1.1, np.inf]),
                                   np.sum(own[np.abs(x[:, 0]) > 0.9]) / np.sum(own), atol=1e-9)  # fmt: skip


def test_a_function_and_the_sensor_it_copies_agree(turning):
    rng = np.random.default_rng(0)
    readings = np.stack([rng.uniform(-0.9, 0.9, 5), 0.3 * rng.standard_normal(5)], axis=1)
    readings[2, 1] = np.nan
    readings[3] = np.nan

    def log(o, x):
        z = (o - x) / [0.3, 0.2]
        there = ~np.isnan(o)
        return np.sum((-0.5 * z**2 - np.log([0.3, 0.2]) - 0.5 * LOG_2PI)[:, there], axis=1)

    nodes = Nodes(line(count=16, spacing=0.3).axes * 2, np.arange(256))
    p = sm.MarkovProcess(stretched(nodes, 0.8 * np.eye(2), 0.15 * np.eye(2), 1e-3), [0.2, -0.1])
    one = p.smooth(readings, sensor=sm.GaussianSensor([0, 1], [0.3, 0.2]))
    two = p.smooth(readings, sensor=sm.FunctionSensor(log, 2))
    np.testing.assert_allclose(one.filtered.log_evidences, two.filtered.log_evidences, atol=1e-10)
    assert one.filtered.log_evidences[3] == 0.0
    for k in range(5):
        np.testing.assert_allclose(one.beliefs[k].mean(), two.beliefs[k].mean(), atol=1e-9)
        np.testing.assert_allclose(one.filtered.beliefs[k].mean(), two.filtered.beliefs[k].mean(), atol=1e-9)
    assert max(two.beliefs.reader.reached) < 1e-10
    paths = one.sample(0, 3000)
    np.testing.assert_allclose(paths.mean(axis=0)[1:], one.beliefs.means()[1:], atol=0.03)
    np.testing.assert_allclose(np.var(paths[:, 2], axis=0), np.diag(one.beliefs[2].covariance()), rtol=0.1)
    np.testing.assert_allclose(np.mean(paths[:, 1, 0] * paths[:, 2, 0]) - paths[:, 1, 0].mean() * paths[:, 2, 0].mean(),
                               _lag(readings), atol=0.006)  # fmt: skip


def _lag(readings):
    """Cov(x_1, x_2 | all readings) of the first coordinate, which moves and is read by itself, by Kalman's smoother."""
    F, Q, R, filtered, predicted = 0.8, 0.15, 0.09, [], []
    m, P = 0.2, 0.0
    for k, o in enumerate(readings[:, 0]):
        if k:
            m, P = F * m, F * P * F + Q
        predicted.append((m, P))
        if not np.isnan(o):
            K = P / (P + R)
            m, P = m + K * (o - m), P - K * P
        filtered.append((m, P))
    smoothed = [filtered[-1][1]]
    for k in range(len(readings) - 2, -1, -1):
        G = filtered[k][1] * F / predicted[k + 1][1]
        smoothed.append(filtered[k][1] + G**2 * (smoothed[-1] - predicted[k + 1][1]))
    smoothed = smoothed[::-1]
    return filtered[1][1] * F / predicted[2][1] * smoothed[2]


def test_known_starts_and_mixtures_are_filtered_and_smoothed():
    nodes = line(count=30, spacing=0.2)
    transition = stretched(nodes, 0.9, 0.1, 1e-2)
    sensor, readings = sm.GaussianSensor(0, 0.3), np.array([[0.3], [0.5], [0.1]])
    both = sm.MixtureBelief([sm.KnownState([0.4]), sm.KnownState([-0.8])], [0.5, 0.5])
    p = sm.MarkovProcess(transition, both)
    found = p.smooth(readings, sensor=sensor)
    evidences = []
    for state in (0.4, -0.8):
        one = p.filter(readings, sensor=sensor, initial=[state])
        evidences.append(float(one.log_evidence))
    weights = np.exp(evidences - np.max(evidences))
    np.testing.assert_allclose(found.log_evidence, np.log(0.5 * np.sum(np.exp(evidences))), rtol=1e-12)
    expected = weights @ [0.4, -0.8] / np.sum(weights)
    np.testing.assert_allclose(np.asarray(found.beliefs[0].mean()), [expected], atol=1e-12)
    later = p.advance(p.update(p.initial, [0.3], sensor=sensor).belief, [0.5], sensor=sensor)
    np.testing.assert_allclose(later.log_evidence, found.filtered.log_evidences[1], rtol=1e-10)
    np.testing.assert_allclose(later.belief.mean(), found.filtered.beliefs[1].mean(), atol=1e-12)


def test_an_ensemble_mixes_them():
    nodes = line(count=30, spacing=0.2)
    members = [sm.MarkovProcess(stretched(nodes, F, 0.1, 1e-2), belief(nodes)) for F in (0.9, 0.5)]
    both = sm.Ensemble(members)
    beliefs = [member.propagate(3)[3] for member in members]
    expected = np.mean([b.mean() for b in beliefs], axis=0)
    np.testing.assert_allclose(both.propagate(3)[3].mean(), expected, rtol=1e-12)
    readings = np.array([[0.3], [0.5]])
    logs = [float(member.filter(readings, sensor=sm.GaussianSensor(0, 0.3)).log_evidence) for member in members]
    found = both.filter(readings, sensor=sm.GaussianSensor(0, 0.3)).log_evidence
    np.testing.assert_allclose(found, np.log(np.mean(np.exp(logs))), rtol=1e-10)


def test_sensors_that_say_nothing_of_states_are_refused():
    nodes = line()
    p = sm.MarkovProcess(stretched(nodes, 0.9, 0.1), belief(nodes))
    with pytest.raises(ValueError, match="for each of"):
        p.update(p.initial, [0.1], sensor=sm.FunctionSensor(lambda o, x: np.zeros((len(x), 1))))
    with pytest.raises(ValueError, match="lattice form"):
        sm.FunctionSensor(lambda o, x: x[:, 0]).reading(None, None, None)
