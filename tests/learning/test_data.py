"""What `fit` makes of what it is given, by loops that do the same one state at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sosmarkov as sm
from sosmarkov.data import dataset as d
from sosmarkov.data import enough, gather
from sosmarkov.data.given import as_list, consecutive, padded, unbroken


@st.composite
def trajectories(draw):
    """A few of different lengths, with gaps."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    lengths = draw(st.lists(st.integers(1, 6), min_size=2, max_size=6))
    parts = [rng.normal(size=(length, 2)) for length in lengths]
    for part in parts:
        part[rng.random(len(part)) < 0.25, rng.integers(2)] = np.nan
    return parts


def by_hand(parts):
    """Pairs (i, k) of neighbours that are there, and the trajectories whose first state is."""
    pairs, starts = [], []
    for i, part in enumerate(parts):
        there = [not any(np.isnan(value) for value in row) for row in part]
        pairs += [(i, k) for k in range(len(part) - 1) if there[k] and there[k + 1]]
        starts += [i] if there[0] else []
    return pairs, starts


@settings(max_examples=60, deadline=None)
@given(trajectories())
def test_pairs_starts_and_padding_are_those_of_a_loop(parts):
    pairs, starts = by_hand(parts)
    if not pairs:
        with pytest.raises(ValueError, match="at least one pair"):
            d.from_trajectories(parts)
        return
    found = d.from_trajectories(parts)
    np.testing.assert_array_equal(found.pairs.x, [parts[i][k] for i, k in pairs])
    np.testing.assert_array_equal(found.pairs.x_next, [parts[i][k + 1] for i, k in pairs])
    np.testing.assert_array_equal(found.pairs.owner, [i for i, _ in pairs])
    np.testing.assert_array_equal(found.starts.owner, starts)
    np.testing.assert_array_equal(found.starts.x.reshape(-1, 2), [parts[i][0] for i in starts] or np.zeros((0, 2)))
    assert found.horizon == max(map(len, parts)) - 1
    for i, part in enumerate(parts):
        for k in range(found.horizon + 1):
            there = k < len(part) and not np.isnan(part[k]).any()
            assert found.paths.present[i, k] == float(there)
            np.testing.assert_array_equal(found.paths.states[i, k], part[k] if there else np.zeros(2))
    x, x_next, _ = consecutive(parts)
    np.testing.assert_array_equal(x, found.pairs.x)
    np.testing.assert_array_equal(x_next, found.pairs.x_next)


@settings(max_examples=60, deadline=None)
@given(trajectories(), st.integers(1, 4))
def test_stretches_without_a_gap_are_those_of_a_loop(parts, steps):
    states = padded(parts)
    i, k = unbroken(~np.isnan(states).any(axis=2), steps)
    expected = [
        (row, begin)
        for row in range(len(states))
        for begin in range(states.shape[1] - steps)
        if not np.isnan(states[row, begin : begin + steps + 1]).any()
    ]
    assert list(zip(i.tolist(), k.tolist(), strict=True)) == expected


def test_inputs_and_readings_stay_with_their_pairs():
    rng = np.random.default_rng(1)
    parts = [rng.normal(size=(length, 2)) for length in (4, 6, 3)]
    u, o = [rng.normal(size=len(part) - 1) for part in parts], [rng.normal(size=(len(part), 1)) for part in parts]
    parts[1][2] = np.nan
    found = d.from_trajectories(parts, inputs=u, observations=o)
    pairs, starts = by_hand(parts)
    np.testing.assert_array_equal(found.pairs.u[:, 0], [u[i][k] for i, k in pairs])
    np.testing.assert_array_equal(found.pairs.reading, [o[i][k + 1] for i, k in pairs])
    np.testing.assert_array_equal(found.starts.reading, [o[i][0] for i in starts])
    assert [a.shape for a in found.paths.batch(2)] == [(3, 3, 2), (3, 3), (3, 3, 1), (3, 2, 1)]


def test_weights_of_trajectories_are_those_of_their_pairs_with_mean_one():
    found = d.from_trajectories(np.zeros((3, 3, 1)), weights=[0.0, 2.0, 4.0])
    np.testing.assert_array_equal(found.pairs.weight, [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(found.starts.weight, [0, 1, 2])
    np.testing.assert_array_equal(found.paths.present[2], [2, 2, 2])
    pairs = d.from_pairs(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros((3, 1)), weights=[1.0, 3.0])
    np.testing.assert_array_equal(pairs.pairs.weight, [0.5, 1.5])


def test_repeated_pairs_are_counted():
    x = np.array([[0.0], [1.0], [0.0], [2.0]])
    assert enough.repeated(d.from_pairs(x, x + 1, x)) == 1


@pytest.mark.parametrize("read", [False, True])
def test_split_keeps_trajectories_whole_and_repeats(read):
    rng = np.random.default_rng(0)
    states = rng.normal(size=(50, 6, 2))
    data = d.from_trajectories(states, observations=states[..., :1] if read else None)
    training, held_out = data.split(0.2, seed=3)
    drawn = np.random.default_rng(3).permutation(50)
    # With readings rows come in the order drawn: the batches of such fits depend on it.
    order = (lambda rows: rows) if read else np.sort
    np.testing.assert_array_equal(held_out.paths.states, states[order(drawn[:10])])
    np.testing.assert_array_equal(training.paths.states, states[order(drawn[10:])])
    for part in (training, held_out):
        np.testing.assert_array_equal(part.pairs.x, part.paths.states[:, :-1].reshape(-1, 2))
        np.testing.assert_array_equal(part.starts.x, part.paths.states[:, 0])
        if read:
            np.testing.assert_array_equal(part.pairs.reading, part.pairs.x_next[:, :1])


def test_pairs_and_initial_states_are_split_on_their_own():
    x = np.arange(40.0).reshape(-1, 1)
    training, held_out = d.from_pairs(x, x, x[:10]).split(0.1, seed=0)
    rng = np.random.default_rng(0)
    first, second = rng.permutation(40)[:4], rng.permutation(10)[:1]
    np.testing.assert_array_equal(held_out.pairs.x[:, 0], np.sort(first))
    np.testing.assert_array_equal(held_out.starts.x[:, 0], np.sort(second))
    assert (len(training.pairs.x), len(training.starts.x)) == (36, 9)


def test_extremes_do_not_set_the_scale_and_are_counted():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 2))
    x[:5, 0] = 1e9
    transform = d.robust_standardize(x)
    assert 0.8 < float(transform.std[0]) < 1.2
    kept, count = d.from_pairs(x, x, x).within(transform, 100.0)
    assert count == 5
    assert len(kept.pairs.x) == 995
    kept, count = d.from_trajectories(x.reshape(100, 10, 2)).within(transform, 100.0)
    assert count == 5
    np.testing.assert_array_equal(kept.paths.present[0], [0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    assert not np.any(kept.paths.states[0, :5])


def test_a_map_leaves_missing_states_zero():
    states = np.arange(12.0).reshape(2, 3, 2)
    states[1, 1] = np.nan
    found = d.from_trajectories(states).mapped(lambda x: x + 1.0)
    np.testing.assert_array_equal(found.paths.states[1], [states[1, 0] + 1.0, np.zeros(2), states[1, 2] + 1.0])
    np.testing.assert_array_equal(found.pairs.x_next, states[0, 1:] + 1.0)


def test_readings_are_scaled_with_extreme_states_missing_and_counted():
    rng = np.random.default_rng(2)
    states, readings = rng.normal(3.0, 2.0, size=(60, 5, 1)), rng.normal(-1.0, 4.0, size=(60, 5, 1))
    states[4, 2] = 1e8
    found, scale, scale_o, lost = d.scaled(d.from_trajectories(states, observations=readings), keep=False)
    assert lost == 2
    assert found.paths.present[4].tolist() == [1, 1, 0, 1, 1]
    assert len(found.pairs.x) == 60 * 4 - 2
    np.testing.assert_allclose(found.paths.readings, (readings - readings.mean()) / readings.std(), rtol=1e-12)
    np.testing.assert_allclose(found.starts.x, (states[:, 0] - scale.mean[None]) / scale.std[None], rtol=1e-12)
    np.testing.assert_allclose(scale_o.std, [readings.std()], rtol=1e-12)


# One long series ------------------------------------------------------------------------------------------------------


def walk(length, seed=0):
    rng = np.random.default_rng(seed)
    x = [0.0]
    for _ in range(length - 1):
        x.append(0.8 * x[-1] + rng.normal())
    return np.array(x)


SERIES = {
    "(T,)": lambda x: x,
    "list of numbers": list,
    "(T, 1)": lambda x: x[:, None],
    "(1, T, 1)": lambda x: x[None, :, None],
    "[(T, 1)]": lambda x: [x[:, None]],
    "[(T,)]": lambda x: [x],
}


@pytest.mark.parametrize("shape", SERIES)
def test_a_long_series_is_the_pairs_in_it(shape):
    x = walk(30)
    x[[4, 11]] = np.nan
    found = gather.gather(gather.open_source(SERIES[shape](x)))
    pairs = [k for k in range(29) if not np.isnan(x[k]) and not np.isnan(x[k + 1])]
    np.testing.assert_array_equal(found.pairs.x[:, 0], x[pairs])
    np.testing.assert_array_equal(found.pairs.x_next[:, 0], x[[k + 1 for k in pairs]])
    np.testing.assert_array_equal(found.starts.x[:, 0], [value for value in x if not np.isnan(value)])
    assert not found.whole


def test_an_array_of_two_dimensions_is_one_trajectory():
    assert [part.shape for part in as_list(np.zeros((5, 2)))] == [(5, 2)]
    assert np.shape(as_list(np.zeros((3, 5, 2)))) == (3, 5, 2)
    assert [part.shape for part in as_list([np.zeros((5, 2)), np.zeros((4, 2))])] == [(5, 2), (4, 2)]


@pytest.mark.parametrize("shape", [(29,), (29, 1), (1, 29, 1), (1, 29)])
def test_inputs_of_a_series_need_not_be_known_beside_a_gap(shape):
    x, u = walk(30), np.arange(29.0)
    x[10], u[9:11] = np.nan, np.nan
    found = gather.gather(gather.open_source(x), inputs=u.reshape(shape))
    np.testing.assert_array_equal(found.pairs.u[:, 0], [k for k in range(29) if k not in (9, 10)])
    times = gather.gather(gather.open_source(x), period=7)
    np.testing.assert_array_equal(times.pairs.u[:, 0], found.pairs.u[:, 0])


def test_a_series_gives_the_process_of_its_pairs():
    x = walk(300)
    options = {"size": 4, "steps": 5, "objective": "transitions", "progress": False}
    one = sm.fit(x, **options)
    other = sm.fit(transitions=(x[:-1, None], x[1:, None]), initial=x[:, None], **options)
    at = np.linspace(-2.0, 2.0, 5)[:, None]
    np.testing.assert_array_equal(one.transition.log_prob(at, at), other.transition.log_prob(at, at))


# What is refused ------------------------------------------------------------------------------------------------------


def test_columns_that_others_determine_are_named():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    x = np.column_stack([x[:, 0], 2.0 * x[:, 0] - 7.0, x[:, 1], x[:, 2], 0.5 * x[:, 1] - x[:, 2] + 3.0])
    assert enough.collinear(x, ["a", "b", "c", "d", "e"]) == [
        "'b', a linear function of 'a'",
        "'e', a linear function of 'c' and 'd'",
    ]
    with pytest.raises(ValueError, match="got 'x1', a linear function of 'x0'; 'x4', a linear function of"):
        sm.fit(x.reshape(20, 10, 5), progress=False)
    with pytest.raises(ValueError, match="got 'q', a linear function of 'p'"):
        sm.fit(x[:, :2], columns=["p", "q"], progress=False)


def test_columns_that_are_nearly_alike_or_share_an_extreme_row_are_taken():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 1))
    assert not enough.collinear(np.hstack([x, x + 1e-7 * rng.normal(size=x.shape)]), ["a", "b"])
    both = rng.normal(size=(500, 2))
    both[0] = 1e30
    assert not enough.collinear(both, ["a", "b"])
    # Numbers far from zero carry more rounding than their spread.
    assert enough.collinear(np.hstack([x + 1e7, 3.0 * (x + 1e7)]), ["a", "b"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: d.from_trajectories(np.zeros((3, 2, 1, 1))), "array \\(N, T, d\\), a list"),
        (lambda: d.from_trajectories([]), "got an array of shape \\(0,\\)"),
        (lambda: d.from_trajectories(np.zeros((3, 2, 1)), weights=[1.0]), "one weight per trajectory"),
        (lambda: d.from_trajectories(np.zeros((1, 2, 1)), weights=[-1.0]), "weights >= 0"),
        (lambda: d.from_trajectories(np.zeros((1, 5, 1))).split(0.1, 0), "both the training and the held-out"),
        (lambda: enough.require_enough(d.from_trajectories(np.tile([[[0.0], [1.0]]], (50, 9, 1))), 10), "distinct"),
        (lambda: d.from_trajectories([np.zeros((2, 1)), np.zeros((2, 2))]), "1 coordinates like the first, got 2"),
        (lambda: d.from_trajectories(np.full((2, 3, 1), np.nan)), "at least one pair"),
        (lambda: d.from_trajectories(np.full((2, 3, 1), np.inf)), "infinite ones in trajectory 0"),
        (lambda: d.from_series([np.array([[0.0], [np.inf]])]), "infinite ones in trajectory 0"),
        (lambda: d.from_trajectories("abc"), "Expected trajectories"),
        (lambda: d.from_pairs(np.zeros((2, 1)), np.zeros((3, 1)), np.zeros((2, 1))), "as many x as x_next"),
        (lambda: d.from_pairs(np.zeros((2, 1)), np.zeros((2, 1)), np.zeros((2, 2))), "initial states with 1"),
        (lambda: d.from_pairs([[np.nan]], [[0.0]], [[0.0]]), "finite"),
        (lambda: enough.require_enough(d.from_trajectories(np.zeros((2, 3, 1))), 10), "at least 10 transitions"),
        (lambda: enough.require_enough(d.from_trajectories(np.ones((9, 9, 1))), 10), "constant ones \\[0\\]"),
        (lambda: sm.fit(walk(99), observations=walk(99), progress=False), "two trajectories or more"),
        (lambda: sm.fit(walk(99), inputs=walk(99), progress=False), "shape \\(98, 1\\) for trajectory 0"),
    ],
)
def test_bad_data_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
