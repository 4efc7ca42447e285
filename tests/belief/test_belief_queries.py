"""What a belief answers, against tensor quadrature that evaluates nothing but its density."""

import functools
import itertools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import oracles
import sosmarkov as sm
from tables import COVER, EXHAUSTIVE, TRANSFORMS, make_parts, make_process, make_start

BLOCK = 4096
SHARES = np.array([0.03, 0.9])


class Room(NamedTuple):
    """Where a family lives in data space: the ends of quadrature, an interval within, a value to condition on."""

    low: float
    high: float
    interval: tuple[float, float]
    value: float
    panels: int


ROOMS = {
    "gaussian": Room(-12.0, 12.0, (-1.0, 0.8), 0.4, 12),
    "gaussian-full": Room(-13.0, 13.0, (-1.0, 0.8), 0.4, 13),
    "beta": Room(0.0, 1.0, (0.2, 0.7), 0.35, 0),
    "exponential": Room(-1.0, 2.0, (-0.5, 1.2), 0.7, 4),
    "monomial": Room(0.0, 1.5, (0.3, 1.1), 0.6, 0),
    "fourier": Room(-1.0, 2.0, (-0.5, 1.2), 0.7, 4),
    "standardize": Room(-16.0, 16.0, (-1.0, 1.2), 0.4, 16),
    "affine": Room(-16.0, 16.0, (-1.0, 1.2), 0.4, 16),
    "gaussian_cdf": Room(-14.0, 14.0, (-1.0, 1.2), 0.4, 14),
}
# Beta is asked in two dimensions under a Gaussian CDF below: its incomplete integrals take longest to compile.
CASES = [(*names, 2, "identity") for names in COVER if EXHAUSTIVE or names != ("beta", "paired")]
CASES += [("gaussian", "kraus", 1, "identity"), ("beta", "paired", 1, "identity")]
CASES += [(*names, 1, "identity") for names in COVER if EXHAUSTIVE and names not in (COVER[0], ("beta", "paired"))]
CASES += [
    ("gaussian", "kraus", 2, "standardize"),
    ("gaussian", "kraus", 2, "affine"),
    ("gaussian-full", "kraus", 2, "affine"),
    ("beta", "paired", 2, "gaussian_cdf"),
]
every_case = pytest.mark.parametrize("names", CASES, ids=lambda names: "-".join(map(str, names)))


def powers_of(family, d, transform):
    """Every product of at most four coordinates; a few of them where tests of the family's integrals have the rest."""
    if EXHAUSTIVE or d == 1 or (family, transform) == ("gaussian", "identity"):
        return tuple(powers for powers in itertools.product(range(5), repeat=d) if sum(powers) <= 4)
    return (0, 1), (2, 1), (1, 3)


def conditioned(d):
    """Which coordinates to fix, of two."""
    return [] if d == 1 else [0, 1] if EXHAUSTIVE else [0]


def kept(d):
    """Which coordinates to ask marginals for."""
    return range(d) if EXHAUSTIVE else [d - 1]


def boxes_in(room, d):
    """Lower and upper ends: inside, open on one side or all, beyond the domain, empty."""
    low, high = room.interval
    boxes = [
        [(low, high), (low, high)],
        [(-np.inf, np.inf), (-np.inf, np.inf)],
        [(low, np.inf), (-np.inf, np.inf)],
        [(low, high), (-np.inf, high)],
        [(low, room.high + 5.0), (room.low - 5.0, high)],
        [(low, low), (low, high)],
        [(room.high + 3.0, room.high + 4.0), (low, high)],
    ]
    return np.moveaxis(np.array(boxes)[:, :d], -1, 0)


class Case(NamedTuple):
    """A belief, what it answers, and how to integrate its density."""

    names: tuple
    dim: int
    room: Room
    belief: sm.Belief
    earlier: sm.Belief
    found: dict

    def rule(self, *ends):
        """Nodes and weights on pieces between the ends of the domain, the interval and those given."""
        room = self.room
        cuts = sorted({room.low, *room.interval, room.high, *ends})
        pieces = [oracles.tanh_sinh(*pair, 80) for pair in itertools.pairwise(cuts)]
        if room.panels > 0:
            counts = [1 + int(room.panels * (b - a) / (room.high - room.low)) for a, b in itertools.pairwise(cuts)]
            pairs = zip(itertools.pairwise(cuts), counts, strict=True)
            pieces = [oracles.gauss_legendre(*pair, count, 22) for pair, count in pairs]
        return np.concatenate([nodes for nodes, _ in pieces]), np.concatenate([weights for _, weights in pieces])

    def grid(self, *ends):
        """Points and weights of a tensor rule."""
        return oracles.tensor(*self.rule(*ends), self.dim)

    def mass_between(self, lower, upper, *ends):
        """The density's integral over boxes that begin and end where pieces of the rule do."""
        points, weights = self.grid(*ends)
        mass = weights * density(self.belief, points)
        return np.array([mass @ np.all((points > a) & (points < b), axis=1) for a, b in zip(lower, upper, strict=True)])

    @property
    def exact_boxes(self):
        family, _, d, transform = self.names
        return transform != "affine" and (family != "gaussian-full" or d == 1)


@eqx.filter_jit
def evaluate(belief, points):
    return belief.prob(points)


def density(belief, points):
    """In blocks of one shape, so that one program serves all."""
    padded = np.concatenate([points, np.repeat(points[:1], -len(points) % BLOCK, axis=0)])
    blocks = padded.reshape(-1, BLOCK, points.shape[1])
    return np.concatenate([np.asarray(evaluate(belief, jnp.asarray(block))) for block in blocks])[: len(points)]


@eqx.filter_jit
def ask(parts, transform, start, boxes, nodes, value, powers, exact_boxes):
    """Everything one belief answers, from one program."""
    beliefs = sm.MarkovProcess(sm.Transition(*parts, transform), start).propagate(2)
    belief, d = beliefs[2], beliefs[2].dim
    found = {"moments": jnp.stack([belief.moment(row) for row in powers]), "mass": belief.mass()}
    if exact_boxes:
        found["boxes"] = belief.probability(*boxes)
        found["cdf"] = belief.cdf(boxes[1])
    given = [belief.condition({c: value}) for c in conditioned(d)]
    found["conditionals"] = [
        (belief.prob(lines_through(value, nodes)[c]), one.prob(nodes[:, None]), one.mass(), one.mean())
        for c, one in zip(conditioned(d), given, strict=True)
    ]
    found["marginals"] = []
    for c in kept(d):
        one = belief if d == 1 else belief.marginal([c])
        quantiles = one.quantile(SHARES)
        interval = one.probability(*(end[0, :1] for end in boxes))
        found["marginals"].append((quantiles, one.cdf(quantiles[:, None]), interval))
    return belief, beliefs[1], found


def lines_through(value, nodes):
    """Points with x_c = value, for each of two coordinates."""
    fixed = jnp.full_like(nodes, value)
    return jnp.stack([fixed, nodes], axis=-1), jnp.stack([nodes, fixed], axis=-1)


@functools.cache
def solve(names):
    family, coupling, d, transform = names
    room = ROOMS[family if transform == "identity" else transform]
    parts, start = make_parts(family, coupling, d, seed=2), make_start(family, coupling, d, seed=2)
    case = Case(names, d, room, None, None, {})
    belief, earlier, found = ask(
        parts,
        TRANSFORMS[transform](np.random.default_rng(3), d),
        start,
        [jnp.asarray(end) for end in boxes_in(room, d)],
        jnp.asarray(case.rule()[0]),
        room.value,
        powers_of(family, d, transform),
        case.exact_boxes,
    )
    return case._replace(belief=belief, earlier=earlier, found=found)


@every_case
def test_boxes_match_quadrature(names):
    case = solve(names)
    lower, upper = boxes_in(case.room, case.dim)
    if case.exact_boxes:
        expected = case.mass_between([*lower, *np.full_like(upper, -np.inf)], [*upper, *upper])
        found = np.concatenate([case.found["boxes"], case.found["cdf"]])
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)
        assert found[5] == 0.0
        return
    # One bounded coordinate has a closed form for every family.
    lower, upper = np.full((2, 2), -np.inf), np.full((2, 2), np.inf)
    np.fill_diagonal(lower, case.room.interval[0])
    np.fill_diagonal(upper, case.room.interval[1])
    found = [case.belief.probability(*box) for box in zip(lower, upper, strict=True)]
    np.testing.assert_allclose(found, case.mass_between(lower, upper), rtol=1e-10)


@every_case
def test_moments_match_quadrature(names):
    case = solve(names)
    points, weights = case.grid()
    mass, powers = weights * density(case.belief, points), powers_of(*names[::2], names[3])
    expected, size = (
        np.array([mass @ np.prod(values**row, axis=1) for row in powers]) for values in (points, np.abs(points))
    )
    tolerance = 1e-6 if names[3] == "gaussian_cdf" else 1e-10
    assert np.all(np.abs(np.asarray(case.found["moments"]) - expected) <= tolerance * size)
    np.testing.assert_allclose(mass.sum(), 1.0, rtol=1e-10)
    np.testing.assert_allclose(case.found["mass"], 1.0, rtol=1e-11)


@pytest.mark.parametrize("names", [one for one in CASES if one[2] > 1], ids=lambda names: "-".join(map(str, names)))
def test_conditionals_match_quadrature(names):
    case = solve(names)
    nodes, weights = case.rule()
    for found in case.found["conditionals"]:
        joint, prob, mass, mean = map(np.asarray, found)
        marginal = weights @ joint
        np.testing.assert_allclose(prob * marginal, joint, rtol=1e-10, atol=1e-13 * joint.max())
        np.testing.assert_allclose(mass, 1.0, rtol=1e-11)
        tolerance = 1e-7 if names[3] == "gaussian_cdf" else 1e-10
        size = weights @ (joint * np.abs(nodes)) / marginal
        assert abs(mean[0] - weights @ (joint * nodes) / marginal) < tolerance * size


@every_case
def test_marginal_boxes_and_quantiles_match_quadrature(names):
    case = solve(names)
    for c, (quantiles, shares, interval) in zip(kept(case.dim), case.found["marginals"], strict=True):
        np.testing.assert_allclose(shares, SHARES, rtol=0, atol=1e-12)
        end = float(quantiles[1])
        lower, upper = np.full((2, case.dim), -np.inf), np.full((2, case.dim), np.inf)
        (lower[0, c], upper[0, c]), upper[1, c] = case.room.interval, end
        expected = case.mass_between(lower, upper, end)
        np.testing.assert_allclose([interval, SHARES[1]], expected, rtol=1e-10)


@pytest.mark.parametrize("names", [("gaussian", "kraus", 1, "identity"), ("beta", "paired", 1, "identity")])
def test_quantiles_of_a_line_match_bisection_of_quadrature(names):
    case = solve(names)
    for share, found in zip(SHARES, np.asarray(case.found["marginals"][0][0]), strict=True):

        def away(end, share=share):
            return case.mass_between([[-np.inf]], [[end]], end)[0] - share

        ends = 0.99 * case.room.low + 1e-3, 0.99 * case.room.high
        np.testing.assert_allclose(found, brentq(away, *ends, xtol=1e-13, rtol=1e-13), rtol=1e-9)


# --- where there is no closed form --------------------------------------------------------------------


@pytest.mark.parametrize("names", [("gaussian-full", "kraus", 2, "identity"), ("gaussian", "kraus", 2, "affine")])
def test_boxes_without_a_closed_form_are_estimated_and_say_so(names):
    case = solve(names)
    lower, upper = (np.full(2, end) for end in case.room.interval)
    (expected,) = case.mass_between([lower], [upper])
    with pytest.warns(sm.EstimateWarning, match="standard error"):
        found = float(case.belief.probability(lower, upper))
    error = np.sqrt(expected * (1 - expected) / 65_536)
    assert abs(found - expected) < 5 * error
    assert error < 0.003
    estimate = case.belief.estimate_probability(lower, upper, jax.random.key(1), 20_000)
    assert abs(float(estimate.value) - expected) < 5 * float(estimate.standard_error)


@pytest.mark.parametrize("names", [("gaussian-full", "kraus", 2, "identity"), ("gaussian", "kraus", 2, "affine")])
def test_boxes_at_infinity_are_empty_without_a_closed_form_too(names):
    belief = solve(names).belief
    infinite = np.array([np.inf, np.inf])
    assert float(belief.probability(-infinite, -infinite)) == 0.0
    assert float(belief.probability(infinite, infinite)) == 0.0
    assert float(belief.cdf([-np.inf, 0.5])) == 0.0
    np.testing.assert_allclose(belief.probability(-infinite, infinite), 1.0, rtol=1e-11)


def test_one_dimension_under_an_affine_map_is_exact():
    transform = sm.Affine([0.7], [[1.6]])
    belief = make_process("gaussian", "kraus", 1, seed=2, n=3, transform=transform).initial
    nodes, weights = oracles.gauss_legendre(-20.0, 1.1, 20)
    expected = weights @ density(belief, nodes[:, None])
    np.testing.assert_allclose(belief.cdf([1.1]), expected, rtol=1e-10)
    np.testing.assert_allclose(belief.quantile(expected), 1.1, rtol=1e-9)


# --- three coordinates --------------------------------------------------------------------------------


def test_conditional_of_a_marginal_matches_quadrature():
    belief = make_process("gaussian", "kraus", 3, seed=2, n=3).initial
    given = belief.marginal([2, 0]).condition({0: 0.4})
    nodes, weights = oracles.gauss_legendre(-12.0, 12.0, 12, 22)
    first, second = np.meshgrid(nodes, nodes, indexing="ij")
    points = np.stack([first, second, np.full_like(first, 0.4)], axis=-1).reshape(-1, 3)
    joint = density(belief, points).reshape(len(nodes), -1) @ weights
    expected = joint / (weights @ joint)
    np.testing.assert_allclose(density(given, nodes[:, None]), expected, rtol=1e-9, atol=1e-12 * expected.max())
    np.testing.assert_allclose(given.mean(), [weights @ (expected * nodes)], rtol=1e-10)


# --- two beliefs --------------------------------------------------------------------------------------


@eqx.filter_jit
def compare(parts, start, points):
    beliefs = sm.MarkovProcess(sm.Transition(*parts), start).propagate(3)
    one, other = beliefs[1], beliefs[3]
    return one.overlap(other), one.l2_distance(other), one.l2_distance(one), one.prob(points), other.prob(points)


@pytest.mark.parametrize(("family", "coupling"), COVER)
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


@pytest.mark.parametrize("family", ["gaussian", "gaussian-full", "beta", "exponential", "fourier"])
def test_mode_is_as_likely_as_the_best_point_of_a_fine_grid(family):
    names = next(names for names in CASES if names[0] == family and names[2] == 2)
    case = solve(names)
    best = density(case.belief, grid_of(case, 400)).max()
    mode = np.asarray(case.belief.mode())
    assert mode.shape == (2,)
    assert density(case.belief, mode[None])[0] >= best


@pytest.mark.parametrize("names", [CASES[0], ("exponential", "linear", 2, "identity")])
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
        (lambda b: b.quantile(0.5), "a coordinate"),
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
    belief = solve(("beta", "paired", 2, "identity")).belief
    with pytest.raises(ValueError, match=message):
        ask(belief)


def test_values_outside_a_mixture_are_refused():
    belief = solve(("beta", "paired", 2, "identity")).belief
    with pytest.raises(ValueError, match="has a density"):
        sm.MixtureBelief([belief, belief]).condition({0: 1.5})
