"""Beliefs beside each other, their modes and draws, mixtures, known states, and questions that are refused."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from belief_cases import CASES, ROOMS, Case, boxes_in, density, solve

import sosmarkov as sm
from tables import COVER, EXHAUSTIVE, make_parts, make_process, make_start


@eqx.filter_jit
def compare(parts, start, points):
    beliefs = sm.MarkovProcess(sm.Transition(*parts), start).propagate(3)
    one, other = beliefs[1], beliefs[3]
    return one.overlap(other), one.l2_distance(other), one.l2_distance(one), one.prob(points), other.prob(points)


@pytest.mark.parametrize(("family", "coupling"), COVER if EXHAUSTIVE else COVER[::2])
def test_overlap_and_distance_match_quadrature(family, coupling):
    d = 2 if family == "gaussian" or EXHAUSTIVE else 1
    case = Case((family, coupling, d, "identity"), d, ROOMS[family], None, None, {})
    parts, start = make_parts(family, coupling, d, seed=4, n=3), make_start(family, coupling, d, seed=4)
    points, weights = case.grid()
    overlap, distance, none, *both = map(np.asarray, compare(parts, start, jnp.asarray(points)))
    np.testing.assert_allclose(overlap, weights @ (both[0] * both[1]), rtol=1e-10)
    expected = np.sqrt(weights @ (both[0] - both[1]) ** 2)
    np.testing.assert_allclose(distance, expected, rtol=1e-8)
    assert none < 1e-7


def test_distance_of_nearly_equal_beliefs_is_a_number():
    beliefs = make_process("gaussian", "kraus", 1, seed=4, n=3).propagate(60)
    found = [float(beliefs[k].l2_distance(beliefs[k + 1])) for k in (30, 40, 50, 59)]
    assert np.all(np.isfinite(found))
    assert np.all(np.asarray(found) < 1e-6)


def grid_of(case, count):
    axes = [np.linspace(max(case.room.low, -6.0), min(case.room.high, 6.0), count + 2)[1:-1]] * case.dim
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, case.dim)


@pytest.mark.parametrize("family", ["gaussian", "beta"] + ["fourier", "gaussian-full", "exponential"] * EXHAUSTIVE)
def test_mode_is_as_likely_as_the_best_point_of_a_fine_grid(family):
    names = next(names for names in CASES if names[0] == family and names[2] == 2)
    case = solve(names)
    best = density(case.belief, grid_of(case, 400)).max()
    mode = np.asarray(case.belief.mode())
    assert mode.shape == (2,)
    assert density(case.belief, mode[None])[0] >= best


@pytest.mark.parametrize("names", [CASES[0]] * EXHAUSTIVE + [("exponential", "linear", 2, "identity")])
def test_entropy_and_divergence_match_quadrature(names):
    case = solve(names)
    points, weights = case.grid()
    now, before = density(case.belief, points), density(case.earlier, points)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -weights @ np.where(now > 0, now * np.log(now), 0.0)
        divergence = weights @ np.where((now > 0) & (before > 0), now * np.log(now / before), 0.0)
    found = case.belief.entropy(jax.random.key(0), 20_000), case.belief.kl(case.earlier, jax.random.key(1), 20_000)
    for estimate, expected in zip(found, (entropy, divergence), strict=True):
        assert abs(float(estimate.value) - expected) < 4.5 * float(estimate.standard_error)
        assert float(estimate.standard_error) < 0.02


# --- scipy's names ------------------------------------------------------------------------------------


def test_scipy_names_give_the_same_answers():
    case = solve(CASES[0])
    belief, same = case.belief, case.belief.to_scipy()
    x = np.random.default_rng(0).normal(size=(4, 3, 2))
    for found, expected in [
        (same.logpdf(x), belief.log_prob(x)),
        (same.pdf(x), belief.prob(x)),
        (same.cdf(x), belief.cdf(x)),
        (same.mean(), belief.mean()),
        (same.cov(), belief.covariance()),
    ]:
        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(found, expected)
    drawn = same.rvs(size=(3, 5), random_state=7)
    assert drawn.shape == (3, 5, 2)
    np.testing.assert_array_equal(drawn, same.rvs(size=(3, 5), random_state=7))
    assert not np.array_equal(drawn, same.rvs(size=(3, 5), random_state=8))
    assert same.rvs().shape == (1, 2)
    line = solve(("gaussian", "kraus", 1, "identity")).belief.to_scipy()
    low, high = line.interval(0.8)
    np.testing.assert_allclose([low, high], line.ppf([0.1, 0.9]), rtol=1e-14)
    np.testing.assert_allclose(line.cdf(line.ppf([0.1, 0.9])[:, None]), [0.1, 0.9], atol=1e-12)


# --- mixtures -----------------------------------------------------------------------------------------


def test_mixtures_match_quadrature_of_the_averaged_density():
    case = solve(CASES[0])
    mixture = sm.MixtureBelief([case.belief, case.earlier], [1.5, 3.5])
    points, weights = case.grid()
    average = 0.3 * density(case.belief, points) + 0.7 * density(case.earlier, points)
    mass = weights * average
    chosen = slice(None, None, len(points) // 99)
    usable = average[chosen] > 1e-200
    np.testing.assert_allclose(mixture.log_prob(points[chosen])[usable], np.log(average[chosen][usable]), rtol=1e-10)
    mean = mass @ points
    np.testing.assert_allclose(mixture.mean(), mean, rtol=1e-9, atol=1e-11)
    second = np.einsum("x,xi,xj->ij", mass, points, points)
    np.testing.assert_allclose(mixture.covariance(), second - np.outer(mean, mean), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(mixture.moment([2, 1]), mass @ (points[:, 0] ** 2 * points[:, 1]), rtol=1e-9)
    np.testing.assert_allclose(mixture.mass(), 1.0, rtol=1e-11)
    lower, upper = (end[0] for end in boxes_in(case.room, 2))
    expected = mass @ np.all((points > lower) & (points < upper), axis=1)
    np.testing.assert_allclose(mixture.probability(lower, upper), expected, rtol=1e-10)
    nodes, node_weights = case.rule()
    on_grid = average.reshape(len(nodes), -1)
    marginal = density(mixture.marginal([1]), nodes[:, None])
    np.testing.assert_allclose(marginal, node_weights @ on_grid, rtol=1e-9, atol=1e-12)
    line = np.stack([nodes, np.full_like(nodes, 0.4)], axis=-1)
    joint = 0.3 * density(case.belief, line) + 0.7 * density(case.earlier, line)
    expected = joint / (node_weights @ joint)
    given = mixture.condition({1: 0.4})
    np.testing.assert_allclose(density(given, nodes[:, None]), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(given.mean(), [node_weights @ (expected * nodes)], rtol=1e-9)


def test_mixture_given_a_value_that_one_member_excludes_is_the_other_member():
    process = make_process("gaussian", "kraus", 2, seed=2, n=3)
    sensor = sm.IntervalSensor([0])
    left, right = (process.update(process.initial, [ends], sensor=sensor).belief for ends in ([-5.0, 0.0], [0.0, 5.0]))
    given = sm.MixtureBelief([left, right]).condition({0: 0.5})
    x = np.linspace(-2.0, 2.0, 7)[:, None]
    np.testing.assert_allclose(given.log_prob(x), right.condition({0: 0.5}).log_prob(x), rtol=1e-10)


# --- known states -------------------------------------------------------------------------------------


def test_known_states_answer_by_comparison():
    belief = sm.KnownState([0.5, -2.0])
    lower = np.array([[0.0, -3.0], [0.6, -3.0], [-np.inf, -np.inf], [0.5, -3.0]])
    upper = np.array([[1.0, 0.0], [1.0, 0.0], [np.inf, np.inf], [1.0, 0.0]])
    np.testing.assert_array_equal(belief.probability(lower, upper), [1.0, 0.0, 1.0, 0.0])
    np.testing.assert_array_equal(belief.cdf([[0.5, -2.0], [0.4, 0.0], [np.inf, np.inf]]), [1.0, 0.0, 1.0])
    assert float(belief.moment([2, 1])) == 0.25 * -2.0
    assert float(belief.moment([0, 3])) == -8.0
    assert float(belief.moment([0, 0])) == 1.0
    drawn = belief.sample(jax.random.key(0), (3, 2))
    np.testing.assert_array_equal(drawn, np.broadcast_to([0.5, -2.0], (3, 2, 2)))
    np.testing.assert_array_equal(belief.quantile([0.2, 0.8], coordinate=1), [-2.0, -2.0])


def test_mixture_of_known_states_counts_a_state_at_the_end():
    mixture = sm.MixtureBelief([sm.KnownState([0.5]), sm.KnownState([2.0])])
    np.testing.assert_array_equal(mixture.cdf([[0.4], [0.5], [2.0]]), [0.0, 0.5, 1.0])


# --- bad questions ------------------------------------------------------------------------------------


@functools.cache
def on_unit_square():
    return make_process("beta", "paired", 2, seed=2, n=3).initial


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda b: b.probability([0.0, 0.5], [1.0, 0.2]), "lower <= upper"),
        (lambda b: b.probability([0.0, np.nan], [1.0, 1.0]), "NaN"),
        (lambda b: b.probability([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]), "2 coordinates"),
        (lambda b: b.cdf([0.5, np.nan]), "NaN"),
        (lambda b: b.condition({0: 0.5, 1: 0.5}), "left free"),
        (lambda b: b.condition({}), "mapping"),
        (lambda b: b.condition({2: 0.5}), "between 0 and 1, got 2"),
        (lambda b: b.condition({0: np.nan}), "finite"),
        (lambda b: b.condition({0: 1.5}), "has a density"),
        (lambda b: b.condition({0: -0.5}), "has a density"),
        (lambda b: b.moment([3, 2]), "sum of at most 4"),
        (lambda b: b.moment([1]), "2 powers"),
        (lambda b: b.moment([-1, 1]), "whole number"),
        (lambda b: b.quantile(0.0, coordinate=0), "strictly between 0 and 1"),
        (lambda b: b.quantile([0.5, 1.0], coordinate=0), "strictly between 0 and 1"),
        (lambda b: b.quantile(0.5, coordinate=2), "between 0 and 1, got 2"),
        (lambda b: b.marginal([0]).quantile(0.5, coordinate=1), "between 0 and 0, got 1"),
        (lambda b: b.overlap(make_process("gaussian", "kraus", 2, seed=0).initial), "same family"),
        (lambda b: b.kl(sm.KnownState([0.5]), jax.random.key(0)), "over 2 coordinates"),
        (lambda b: sm.MixtureBelief([]), "at least one"),
        (lambda b: sm.MixtureBelief([b, sm.KnownState([0.5])]), "one dimension"),
        (lambda b: sm.MixtureBelief([b, b], [1.0, -1.0]), "weights >= 0"),
        (lambda b: sm.KnownState([0.5, 0.5]).condition({0: 0.5}), "known state"),
    ],
)
def test_bad_questions_are_refused(ask, message):
    belief = on_unit_square()
    with pytest.raises(ValueError, match=message):
        ask(belief)


def test_values_outside_a_mixture_are_refused():
    belief = on_unit_square()
    with pytest.raises(ValueError, match="has a density"):
        sm.MixtureBelief([belief, belief]).condition({0: 1.5})
