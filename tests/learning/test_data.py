"""What `fit` makes of what it is given."""

import numpy as np
import pytest

from sosmarkov.data import dataset as d


def test_no_pair_crosses_a_gap_or_a_trajectory():
    trajectories = np.arange(24.0).reshape(3, 4, 2)
    trajectories[1, 2, 0] = np.nan
    found = d.from_trajectories(trajectories)
    expected = [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1), (2, 2)]
    np.testing.assert_array_equal(found.x, [trajectories[i, k] for i, k in expected])
    np.testing.assert_array_equal(found.x_next, [trajectories[i, k + 1] for i, k in expected])
    np.testing.assert_array_equal(found.owner, [i for i, _ in expected])
    assert len(found.initial) == 3
    np.testing.assert_array_equal(found.present[1], [1, 1, 0, 1])


def test_ragged_lists_are_padded_and_the_padding_is_absent():
    found = d.from_trajectories([np.zeros((3, 1)), np.ones((5, 1))])
    assert len(found.x) == 6
    np.testing.assert_array_equal(found.present, [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    np.testing.assert_array_equal(found.initial, [[0.0], [1.0]])
    assert found.horizon == 4


def test_weights_of_trajectories_are_those_of_their_pairs_with_mean_one():
    found = d.from_trajectories(np.zeros((3, 3, 1)), weights=[0.0, 2.0, 4.0])
    np.testing.assert_array_equal(found.weight, [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(found.initial_weight, [0, 1, 2])
    np.testing.assert_array_equal(found.present[2], [2, 2, 2])
    pairs = d.from_pairs(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros((3, 1)), weights=[1.0, 3.0])
    np.testing.assert_array_equal(pairs.weight, [0.5, 1.5])


def test_repeated_pairs_are_counted():
    x = np.array([[0.0], [1.0], [0.0], [2.0]])
    assert d.repeated(d.from_pairs(x, x + 1, x)) == 1


def test_split_keeps_trajectories_whole():
    rng = np.random.default_rng(0)
    data = d.from_trajectories(rng.normal(size=(50, 6, 2)))
    training, held_out = d.split(data, 0.2, seed=3)
    assert not set(training.owner) & set(held_out.owner)
    assert len(set(held_out.owner)) == 10
    assert len(training.x) + len(held_out.x) == 250
    assert len(held_out.trajectories) == len(held_out.initial) == 10
    np.testing.assert_array_equal(held_out.trajectories[:, 0], held_out.initial)


def test_pairs_and_initial_states_are_split_on_their_own():
    x = np.arange(40.0).reshape(-1, 1)
    training, held_out = d.split(d.from_pairs(x, x, x[:10]), 0.1, seed=0)
    assert (len(training.x), len(held_out.x), len(training.initial), len(held_out.initial)) == (36, 4, 9, 1)


def test_extremes_do_not_set_the_scale_and_are_counted():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 2))
    x[:5, 0] = 1e9
    transform = d.robust_standardize(x)
    assert 0.8 < float(transform.std[0]) < 1.2
    data = d.from_pairs(x, x, x)
    kept, count = d.set_aside_extremes(data, transform, 100.0)
    assert count == 5
    assert len(kept.x) == 995
    kept, count = d.set_aside_extremes(d.from_trajectories(x.reshape(100, 10, 2)), transform, 100.0)
    assert count == 5
    np.testing.assert_array_equal(kept.present[0], [0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    assert not np.any(kept.trajectories[0, :5])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: d.from_trajectories(np.zeros((3, 2))), "array \\(N, T, d\\) or a list"),
        (lambda: d.from_trajectories([]), "got an array of shape \\(0,\\)"),
        (lambda: d.from_trajectories(np.zeros((3, 2, 1)), weights=[1.0]), "one weight per trajectory"),
        (lambda: d.from_trajectories(np.zeros((1, 2, 1)), weights=[-1.0]), "weights >= 0"),
        (lambda: d.split(d.from_trajectories(np.zeros((1, 5, 1))), 0.1, 0), "both the training and the held-out"),
        (lambda: d.require_enough(d.from_trajectories(np.tile([[[0.0], [1.0]]], (50, 9, 1))), 10), "distinct"),
        (lambda: d.from_trajectories([np.zeros((2, 1)), np.zeros((2, 2))]), "1 coordinates like the first, got 2"),
        (lambda: d.from_trajectories(np.full((2, 3, 1), np.nan)), "at least one pair"),
        (lambda: d.from_trajectories(np.full((2, 3, 1), np.inf)), "infinite ones in trajectory 0"),
        (lambda: d.from_trajectories("abc"), "Expected trajectories"),
        (lambda: d.from_pairs(np.zeros((2, 1)), np.zeros((3, 1)), np.zeros((2, 1))), "as many x as x_next"),
        (lambda: d.from_pairs(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros((2, 2))), "initial states with 1"),
        (lambda: d.from_pairs([[np.nan]], [[0.0]], [[0.0]]), "finite"),
        (lambda: d.require_enough(d.from_trajectories(np.zeros((2, 3, 1))), 10), "at least 10 transitions"),
        (lambda: d.require_enough(d.from_trajectories(np.ones((9, 9, 1))), 10), "constant ones \\[0\\]"),
    ],
)
def test_bad_data_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
