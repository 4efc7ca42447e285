"""Stationary beliefs, spectra, correlation in time, boxes over time, and whole trajectories, against grid chains."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracles
from sosmarkov.inference import stationary
from tables import EXHAUSTIVE, TRANSFORMS, make_process

LOW, HIGH = -0.8, 1.1


@eqx.filter_jit
def on_nodes(process, x):
    """The start and the kernel at all nodes, some hundred rows at once: features of all pairs would fill gigabytes."""
    rows = jax.lax.map(lambda node: process.transition.log_prob(x, node), x, batch_size=200)
    return process.initial.prob(x), jnp.exp(rows)


class Chain:
    """A process on the line, and the same on quadrature nodes, some of them within a box."""

    def __init__(self, family, coupling):
        self.process = make_process(family, coupling, 1, seed=3)
        phi = self.process.transition.phi
        ends = (-14.0, 14.0) if family == "gaussian" else (phi.lower[0], phi.upper[0])
        self.low, self.high = (LOW, HIGH) if family == "gaussian" else (-0.3, 0.9)
        pieces = [
            oracles.gauss_legendre(a, b, 12, 16)
            for a, b in ((ends[0], self.low), (self.low, self.high), (self.high, ends[1]))
        ]
        self.x, self.w = (np.concatenate(part) for part in zip(*pieces, strict=True))
        self.start, self.kernel = map(np.asarray, on_nodes(self.process, jnp.asarray(self.x[:, None])))
        self.inside = (self.x > self.low) & (self.x < self.high)

    def push(self, density):
        return (self.w * density) @ self.kernel


CHAINS = [("gaussian", "kraus"), ("exponential", "linear")] + [("gaussian", "paired")] * EXHAUSTIVE


@pytest.fixture(scope="module", params=CHAINS, ids="-".join)
def chain(request):
    return Chain(*request.param)


def test_stationary_belief_is_the_chains_own(chain):
    found = np.asarray(chain.process.stationary().prob(chain.x[:, None]))
    np.testing.assert_allclose(chain.push(found), found, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(chain.w @ found, 1.0, rtol=1e-11)


def test_timescales_are_the_chains_own(chain):
    values = np.abs(np.linalg.eigvals(chain.kernel * chain.w))
    expected = np.sort(values)[::-1][:4]
    np.testing.assert_allclose(np.abs(chain.process.spectrum()[:4]), expected, rtol=1e-8)
    np.testing.assert_allclose(chain.process.timescales(3), -1.0 / np.log(expected[1:]), rtol=1e-7)


def test_the_mixing_time_bounds_the_total_variation(chain):
    k = chain.process.mixing_time(1e-3)
    assert k >= 1
    target = np.asarray(chain.process.stationary().prob(chain.x[:, None]))
    density = chain.start
    for _ in range(k):
        density = chain.push(density)
    assert 0.5 * chain.w @ np.abs(density - target) <= 1e-3
    # The bound itself, for the belief one step on, lies above the distance and below one.
    beliefs = chain.process.propagate(1)
    C = stationary.stationary_coefficients(chain.process.transition, chain.process.initial)
    bound = chain.process.transition.distance(beliefs.coefficients[0] - C)
    distance = 0.5 * chain.w @ np.abs(np.asarray(beliefs[1].prob(chain.x[:, None])) - target)
    assert distance <= bound * (1 + 1e-9)
    assert bound <= 1.0


def test_autocorrelation_matches_the_chain(chain):
    density = np.asarray(chain.process.stationary().prob(chain.x[:, None]))
    mean = chain.w @ (density * chain.x)
    forward = chain.x - mean
    variance = chain.w @ (density * forward**2)
    expected = []
    for _ in range(4):
        expected.append(chain.w @ (density * (chain.x - mean) * forward) / variance)
        forward = chain.kernel @ (chain.w * forward)
    np.testing.assert_allclose(chain.process.autocorrelation(0, 3), expected, rtol=1e-9, atol=1e-11)


def test_staying_leaving_and_reaching_match_the_chain(chain):
    process, low, high = chain.process, chain.low, chain.high
    density, stayed, reached, outside, hit = chain.start, [], [], chain.start, 0.0
    for _ in range(5):
        density, outside = chain.push(density) * chain.inside, chain.push(outside)
        stayed.append(chain.w @ density)
        hit += chain.w @ (outside * chain.inside)
        reached.append(hit)
        outside = outside * ~chain.inside
    np.testing.assert_allclose(process.stay_probability(low, high, 5), stayed, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(process.reach_probability(low, high, 5), reached, rtol=1e-9, atol=1e-12)
    expected = -np.diff(stayed, prepend=1.0)
    np.testing.assert_allclose(process.exit_probability(low, high, 5), expected, rtol=1e-9, atol=1e-12)


def test_reaching_one_box_before_another(chain):
    # The target is what lies above the box, what is shunned is the box and a little of the target.
    shunned = (chain.x > chain.low) & (chain.x < chain.high)
    target = chain.x > chain.high
    density, hit, expected = chain.start, 0.0, []
    for _ in range(4):
        density = chain.push(density)
        hit += chain.w @ (density * (target & ~shunned))
        expected.append(hit)
        density = density * ~(target | shunned)
    found = chain.process.reach_probability(chain.high, np.inf, 4, avoid=(chain.low, chain.high))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    # What is in both boxes counts as shunned.
    assert np.all(np.asarray(chain.process.reach_probability(chain.low, chain.high, 3, avoid=(-np.inf, np.inf))) == 0.0)


def test_mean_first_passage_matches_the_chain(chain):
    outside = ~chain.inside
    within = (chain.kernel * chain.w)[np.ix_(outside, outside)]
    steps = np.linalg.solve(np.eye(outside.sum()) - within, np.ones(outside.sum()))
    expected = (chain.w * chain.start)[outside] @ steps
    np.testing.assert_allclose(chain.process.mean_first_passage(chain.low, chain.high), expected, rtol=1e-8)
    at = float(chain.x[outside][3])
    found = chain.process.mean_first_passage(chain.low, chain.high, initial=[at])
    np.testing.assert_allclose(found, steps[3], rtol=1e-8)
    assert float(chain.process.mean_first_passage(chain.low, chain.high, initial=[0.5 * (chain.low + chain.high)])) == 0


@pytest.mark.parametrize(
    ("family", "transform"),
    [("gaussian", "standardize"), ("gaussian-full", "affine")] + [("gaussian", "affine")] * EXHAUSTIVE,
)
def test_boxes_in_two_dimensions_and_data_space(family, transform):
    made = TRANSFORMS[transform](np.random.default_rng(3), 2)
    process = make_process(family, "kraus", 2, seed=1, transform=made)
    centre = np.asarray(process.propagate(1)[1].mean())
    # One coordinate is bounded: closed form for every Gaussian kind; two for the axis-aligned.
    box = np.array([[centre[0] - 0.7, -np.inf], [centre[0] + 0.9, np.inf]])
    rules = [
        oracles.gauss_legendre(*box[:, 0], 1, 24),
        (np.linspace(centre[1] - 7.0, centre[1] + 7.0, 50), np.full(50, 14.0 / 49)),
    ]
    if transform == "standardize":
        box[:, 1] = centre[1] - 1.0, centre[1] + 0.5
        rules[1] = oracles.gauss_legendre(*box[:, 1], 1, 24)
    grids = np.meshgrid(*[rule[0] for rule in rules], indexing="ij")
    points = np.stack(grids, axis=-1).reshape(-1, 2)
    weights = np.multiply.outer(*[rule[1] for rule in rules]).ravel()

    @jax.jit
    def column(x_next):
        return jnp.exp(process.transition.log_prob(x_next, jnp.asarray(points)))

    kernel = np.asarray(jax.lax.map(column, jnp.asarray(points), batch_size=128)).T
    density = np.asarray(process.propagate(1)[1].prob(points))
    expected = []
    for _ in range(3):
        expected.append(weights @ density)
        density = (weights * density) @ kernel
    np.testing.assert_allclose(process.stay_probability(*box, 3), expected, rtol=1e-8)


def test_reaching_one_half_plane_before_another():
    # Half-planes that share a corner, on a domain that ends: few nodes resolve it, and pieces end where they do.
    process = make_process("exponential", "linear", 2, seed=1)
    cuts = {0: 0.5, 1: 0.8}
    rules = [[oracles.gauss_legendre(a, b, 1, 12) for a, b in ((-1.0, cut), (cut, 2.0))] for cut in cuts.values()]
    (x, wx), (y, wy) = (tuple(np.concatenate(part) for part in zip(*pair, strict=True)) for pair in rules)
    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    weights = np.multiply.outer(wx, wy).ravel()
    density, kernel = map(np.asarray, on_nodes(process, jnp.asarray(points)))
    target, shunned = points[:, 0] > cuts[0], points[:, 1] > cuts[1]
    hit, expected = 0.0, []
    for _ in range(3):
        density = (weights * density) @ kernel
        hit += weights @ (density * (target & ~shunned))
        expected.append(hit)
        density = density * ~(target | shunned)
    found = process.reach_probability([cuts[0], -np.inf], np.inf, 3, avoid=([-np.inf, cuts[1]], np.inf))
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_probabilities_agree_with_a_million_simulated_trajectories():
    process = make_process("gaussian", "kraus", 1, seed=3)
    # Simulated by inverting distribution functions tabulated by quadrature of the densities: none of our draws.
    rng, count = np.random.default_rng(0), 1_000_000
    x = np.linspace(-12.0, 12.0, 2401)
    start, kernel = map(np.asarray, on_nodes(process, jnp.asarray(x[:, None])))

    def table(density):
        total = np.concatenate([np.zeros((*density.shape[:-1], 1)), np.cumsum(density, axis=-1)], axis=-1)
        middle = 0.5 * (total[..., 1:] + total[..., :-1])
        return middle / total[..., -1:]

    rows = table(kernel)
    states = np.interp(rng.random(count), table(start), x)
    alive, hit, stayed, reached = np.ones(count, bool), np.zeros(count, bool), [], []
    for _ in range(3):
        # Each state moves like the nearest node of the grid.
        order = np.clip(np.rint((states + 12.0) / 0.01).astype(int), 0, 2400)
        share, states = rng.random(count), np.empty(count)
        sorted_ = np.argsort(order, kind="stable")
        for who in np.split(sorted_, np.flatnonzero(np.diff(order[sorted_])) + 1):
            states[who] = np.interp(share[who], rows[order[who[0]]], x)
        inside = (states > LOW) & (states < HIGH)
        alive, hit = alive & inside, hit | inside
        stayed.append(alive.mean())
        reached.append(hit.mean())
    for found, counted in (
        (process.stay_probability(LOW, HIGH, 3), stayed),
        (process.reach_probability(LOW, HIGH, 3), reached),
    ):
        error = np.sqrt(np.array(counted) * (1 - np.array(counted)) / count)
        assert np.all(np.abs(np.asarray(found) - counted) < 4 * error + 1e-4)


# --- whole trajectories ---------------------------------------------------------------------------


def test_likelihood_of_trajectories_integrates_gaps_out(chain):
    process, rng = chain.process, np.random.default_rng(0)
    paths = rng.choice(chain.x[np.abs(chain.x) < 1.0], size=(4, 6, 1))
    paths[1, 2] = np.nan
    paths[2, 0] = paths[2, 3] = paths[2, 4] = np.nan
    paths[3, 5] = np.nan
    at = {float(x): i for i, x in enumerate(chain.x)}
    expected = []
    for path in paths:
        density, total = chain.start, 0.0
        for k, (state,) in enumerate(path):
            if k:
                density = chain.push(density)
            if np.isnan(state):
                continue
            i = at[float(state)]
            total += np.log(density[i])
            # All of the mass at the node, as a density under the rule.
            density = np.where(np.arange(len(chain.x)) == i, 1.0 / chain.w[i], 0.0)
        expected.append(total)
    np.testing.assert_allclose(process.log_likelihood(paths), expected, rtol=1e-9, atol=1e-9)
    ragged = [paths[0][:4], paths[3][:5]]
    np.testing.assert_allclose(process.log_likelihood(ragged)[1], process.log_likelihood(paths[3])[0], rtol=1e-12)


def test_drawn_trajectories_follow_the_process():
    process = make_process("gaussian", "kraus", 1, seed=3)
    drawn = np.asarray(process.sample(jax.random.key(0), 4000, 2))
    assert drawn.shape == (4000, 3, 1)
    chain = Chain("gaussian", "kraus")
    joint = (chain.w * chain.start * chain.x) @ chain.kernel @ (chain.w * chain.x)
    values = drawn[:, 0, 0] * drawn[:, 1, 0]
    assert abs(values.mean() - joint) < 4.5 * values.std() / np.sqrt(4000)
    np.testing.assert_array_equal(drawn, process.sample(jax.random.key(0), 4000, 2))


@pytest.mark.parametrize(
    ("family", "coupling", "d"), [("gaussian-full", "kraus", 2)] + [("gaussian", "kraus", 1)] * EXHAUSTIVE
)
def test_chapman_kolmogorov_check_holds_for_the_processs_own_data_and_not_for_others(family, coupling, d):
    process = make_process(family, coupling, d, seed=3)
    data = np.asarray(process.sample(jax.random.key(0), 3000, 4))
    result = process.ck_test(data, 3, ranges=3)
    assert result.predicted.shape == result.observed.shape == (3, 3, 3)
    np.testing.assert_allclose(result.predicted.sum(axis=2), 1.0, rtol=1e-10)
    away = np.abs(result.predicted - result.observed) / result.standard_error
    assert np.max(away) < 4.5
    shifted = data + np.linspace(0, 3, data.shape[1])[:, None]
    wrong = process.ck_test(shifted, 3, ranges=3)
    assert np.max(np.abs(wrong.predicted - wrong.observed) / (wrong.standard_error + 1e-3)) > 10


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.stay_probability(1.0, 0.0, 3), "lower <= upper"),
        (lambda p: p.stay_probability(0.0, 1.0, 0), "whole number >= 1"),
        (lambda p: p.stay_probability([[0.0]], [[1.0]], 2), "one box"),
        (lambda p: p.mixing_time(0.0), "between 0 and 1"),
        (lambda p: p.timescales(10**6), "at most"),
        (lambda p: p.autocorrelation(1, 2), "between 0 and 0"),
        (lambda p: p.log_likelihood([[[0.0, 1.0]]]), r"shape \(T, 1\)"),
        (lambda p: p.log_likelihood(np.array([[np.inf]])), "finite"),
        (lambda p: p.sample(jax.random.key(0), 0, 1), "whole number >= 1 for count"),
        (lambda p: p.ck_test(np.zeros((2, 3, 1)), 2), "at least 30 stretches"),
        (
            lambda p: make_process("gaussian-full", "kraus", 2, seed=0).stay_probability(0.0, 1.0, 2),
            "bound one coordinate only",
        ),
    ],
)
def test_bad_questions_are_refused(ask, message):
    process = make_process("gaussian", "kraus", 1, seed=0)
    with pytest.raises(ValueError, match=message):
        ask(process)
