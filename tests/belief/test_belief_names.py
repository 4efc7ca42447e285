"""Coordinates by the names of their columns, wherever a coordinate is taken."""

import numpy as np
import pytest

import sosmarkov as sm
from tables import make_process

COLUMNS = ("angle", "rate", "wind")


@pytest.fixture(scope="module")
def process():
    return make_process("gaussian", "kraus", 3, seed=2, n=3).with_columns(COLUMNS)


@pytest.fixture(scope="module")
def belief(process):
    return process.propagate(2)[2]


def test_beliefs_know_the_names_of_their_coordinates(process, belief):
    assert process.initial.columns == belief.columns == process.belief_at(2).columns == COLUMNS
    assert process.stationary().columns == process.predict(belief).columns == COLUMNS
    assert belief.marginal([2, 0]).columns == ("wind", "angle")
    assert belief.condition({1: 0.1}).columns == ("angle", "wind")
    assert belief.marginal(["wind", "angle"]).condition({"wind": 0.2}).columns == ("angle",)
    assert sm.Ensemble([process, process]).propagate(1)[1].marginal("rate").columns == ("rate",)
    assert make_process("gaussian", "kraus", 2, seed=2, n=3).initial.marginal(1).columns == ("x1",)


def test_readings_leave_the_names(process):
    sensor = sm.GaussianSensor(["rate"], 0.3)
    readings = [[0.2], [np.nan], [-0.1]]
    found = process.filter(readings, sensor=sensor)
    counted = process.filter(readings, sensor=sm.GaussianSensor([1], 0.3))
    np.testing.assert_array_equal(found.log_evidences, counted.log_evidences)
    assert {one.columns for one in found.beliefs} == {COLUMNS}
    smoothed = process.smooth(readings, sensor=sm.MixtureSensor([sensor, sm.GaussianSensor("rate", 2.0)], [0.9, 0.1]))
    assert smoothed.beliefs[1].columns == COLUMNS
    box = process.update(process.initial, [[0.0, 1.0]], sensor=sm.IntervalSensor("wind")).belief
    np.testing.assert_allclose(box.probability({"wind": (0, 1)}), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("named", "counted"),
    [
        (lambda b: b.marginal(["rate"]).mean(), lambda b: b.marginal([1]).mean()),
        (lambda b: b.marginal("rate").mean(), lambda b: b.marginal(1).mean()),
        (lambda b: b.condition({"wind": 0.3, "angle": 0.1}).mean(), lambda b: b.condition({0: 0.1, 2: 0.3}).mean()),
        (lambda b: b.moment({"wind": 2, "angle": 1}), lambda b: b.moment([1, 0, 2])),
        (lambda b: b.quantile(0.2, "rate"), lambda b: b.quantile(0.2, 1)),
        (
            lambda b: b.probability({"wind": (0, 1), "angle": (-1, np.inf)}),
            lambda b: b.probability([-1, -np.inf, 0], [np.inf, np.inf, 1]),
        ),
        (lambda b: b.probability({"rate": ([0, 1], 2)})[1], lambda b: b.probability([-9e9, 1, -9e9], [9e9, 2, 9e9])),
        (lambda b: b.probability({}), lambda b: b.mass()),
        (lambda b: b.cdf({"wind": 0.4}), lambda b: b.cdf([np.inf, np.inf, 0.4])),
    ],
)
def test_a_name_is_as_good_as_an_index(belief, named, counted):
    np.testing.assert_allclose(named(belief), counted(belief), rtol=1e-12)
    mixture = sm.MixtureBelief([belief, belief])
    np.testing.assert_allclose(named(mixture), counted(belief), rtol=1e-12)


def test_known_states_start_by_name(process):
    given, listed = {"wind": 0.2, "angle": -0.1, "rate": 0}, [-0.1, 0.0, 0.2]
    x = np.zeros(3)
    np.testing.assert_array_equal(process.propagate(1, initial=given)[0].mean(), listed)
    expected = process.propagate(1, initial=listed)[1].log_prob(x)
    np.testing.assert_array_equal(process.propagate(1, initial=given)[1].log_prob(x), expected)
    np.testing.assert_array_equal(process.predict(given).log_prob(x), expected)
    np.testing.assert_allclose(process.belief_at(1, initial=given).log_prob(x), expected, rtol=1e-12)
    assert sm.Ensemble([process]).propagate(1, initial=given)[1].columns == COLUMNS
    assert sm.MarkovProcess(process.transition, given, columns=COLUMNS).initial.columns == COLUMNS


def test_boxes_over_time_are_given_by_name(process):
    box, low, high = {"angle": (-1, 1)}, [-1, -np.inf, -np.inf], [1, np.inf, np.inf]
    np.testing.assert_array_equal(process.stay_probability(box, steps=2), process.stay_probability(low, high, 2))
    np.testing.assert_array_equal(process.exit_probability(box, steps=2), process.exit_probability(low, high, 2))
    np.testing.assert_array_equal(
        process.reach_probability({"wind": (0, 1)}, steps=2, avoid=box),
        process.reach_probability([-np.inf, -np.inf, 0], [np.inf, np.inf, 1], 2, avoid=(low, high)),
    )
    np.testing.assert_array_equal(process.mean_first_passage(box), process.mean_first_passage(low, high))


def test_checks_over_time_take_names(process):
    np.testing.assert_array_equal(process.autocorrelation("rate", 2), process.autocorrelation(1, 2))
    paths = np.random.default_rng(0).normal(size=(40, 4, 3))
    assert process.ck_test(paths, 2, coordinate="wind").coordinate == 2


def test_names_survive_a_file_and_leave_it_as_it_was(process, tmp_path):
    process.save(tmp_path / "one.sosm")
    loaded = sm.load(tmp_path / "one.sosm")
    assert loaded.initial.columns == loaded.propagate(1)[1].columns == COLUMNS
    assert loaded.with_columns(["a", "b", "c"]).propagate(1)[1].columns == ("a", "b", "c")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p, b: b.marginal(["angel"]), "among .*, got 'angel'. Did you mean 'angle'"),
        (lambda p, b: b.quantile(0.5, "nothing"), "among .*, got 'nothing'.$"),
        (lambda p, b: b.marginal(["angle", 0]), "distinct"),
        (lambda p, b: b.probability({"angle": 1}), "pair"),
        (lambda p, b: b.probability({"angle": (0, 1)}, 2), "alone"),
        (lambda p, b: b.probability([0, 0, 0]), "lower ends alone"),
        (lambda p, b: b.probability({"angle": (1, 0)}), "lower <= upper"),
        (lambda p, b: p.propagate(1, initial={"angle": 1.0}), r"none for \['rate', 'wind'\]"),
        (lambda p, b: p.propagate(1, initial={}), "none for"),
        (lambda p, b: p.stay_probability({"angle": (0, 1)}), "for steps"),
        (lambda p, b: p.filter([[0.1]], sensor=sm.GaussianSensor(["rat"], 0.1)), "Did you mean 'rate'"),
        (lambda p, b: sm.GaussianSensor(["rate", "rate"], 0.1), "distinct"),
    ],
)
def test_what_is_no_coordinate_is_refused(process, belief, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(process, belief)
