"""Every verb takes the same starts: each against a chain on nodes that only evaluates densities."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracles
import sosmarkov as sm
from tables import EXHAUSTIVE, make_process

CUTS = (-14.0, -1.5, -0.8, 0.6, 1.1, 14.0)
PARTS = [oracles.gauss_legendre(a, b, 8, 14) for a, b in zip(CUTS[:-1], CUTS[1:], strict=True)]
X, W = (np.concatenate(part) for part in zip(*PARTS, strict=True))
LOW, HIGH, STEPS, STD = -0.8, 1.1, 3, 0.7
READINGS = np.array([0.4, np.nan, -0.6, 0.9])
INSIDE = (X > LOW) & (X < HIGH)
SENSOR = sm.GaussianSensor(0, STD)


def likelihood(o, x):
    return np.ones(np.shape(x)) if np.isnan(o) else np.exp(-0.5 * ((o - x) / STD) ** 2) / (STD * np.sqrt(2 * np.pi))


class Oracle(NamedTuple):
    """A start as a density on the nodes, with the mass it has there, and points of the mass that is left."""

    density: np.ndarray
    points: tuple[tuple[float, float], ...] = ()

    def step(self, kernel, row):
        """The density one step on."""
        return (W * self.density) @ kernel + sum(w * row(x) for w, x in self.points)

    def expect(self, f):
        return W @ (self.density * f(X)) + sum(w * float(f(np.array(x))) for w, x in self.points)

    def times(self, f):
        """What is left under a factor, not normalised."""
        return Oracle(self.density * f(X), tuple((w * float(f(np.array(x))), x) for w, x in self.points))

    def over(self, mass):
        return Oracle(self.density / mass, tuple((w / mass, x) for w, x in self.points))


@pytest.fixture(scope="module")
def process():
    return make_process("gaussian", "kraus-background", 1, seed=3)


@pytest.fixture(scope="module")
def grid(process):
    """The kernel on the nodes, and a row of it from anywhere."""
    at = jnp.asarray(X[:, None])
    kernel = np.exp(np.asarray(process.transition.log_prob(at[None], at[:, None])))
    return kernel, lambda x: np.exp(np.asarray(process.transition.log_prob(at, jnp.asarray([x]))))


def on_nodes(belief):
    return np.asarray(belief.prob(X[:, None]))


def starts(process):
    """Name to what the verbs are given, and the same for the oracle."""
    later, form = process.propagate(2)[2], sm.SquaredForm.gaussian([0.2], [0.9])
    boxed = process.update(later, [[-1.5, 0.6]], sensor=sm.IntervalSensor(0)).belief
    within = on_nodes(later) * ((X > -1.5) & (X < 0.6))
    product = on_nodes(sm.MarkovProcess(process.transition, form).initial)
    mixture = sm.MixtureBelief([later, boxed, sm.KnownState([0.3])], [0.5, 0.2, 0.3])
    parts = 0.5 * on_nodes(later) + 0.2 * within / (W @ within)
    nested = sm.MixtureBelief([mixture, process.initial], [0.6, 0.4])
    return {
        "own": (None, Oracle(on_nodes(process.initial))),
        "belief": (later, Oracle(on_nodes(later))),
        "box": (boxed, Oracle(within / (W @ within))),
        "form": (form, Oracle(product)),
        "state": ([0.3], Oracle(np.zeros(len(X)), ((1.0, 0.3),))),
        "mixture": (mixture, Oracle(parts, ((0.3, 0.3),))),
        "mixture of a mixture": (nested, Oracle(0.6 * parts + 0.4 * on_nodes(process.initial), ((0.18, 0.3),))),
    }


# The last has the others in it.
ALL = ["own", "belief", "box", "mixture"] * EXHAUSTIVE + ["form", "state", "mixture of a mixture"]


@pytest.fixture(scope="module", params=ALL)
def start(request, process):
    return starts(process)[request.param]


def test_propagation(process, grid, start):
    given, oracle = start
    density = oracle.step(*grid)
    beliefs = process.propagate(STEPS, initial=given)
    one = process.predict(process.initial if given is None else given)
    np.testing.assert_allclose(on_nodes(one), density, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(beliefs[0].mean(), [oracle.expect(lambda x: x)], rtol=1e-9, atol=1e-10)
    for k in range(1, STEPS + 1):
        np.testing.assert_allclose(on_nodes(beliefs[k]), density, rtol=1e-8, atol=1e-10)
        density = (W * density) @ grid[0]
    np.testing.assert_allclose(on_nodes(process.belief_at(STEPS, initial=given)), on_nodes(beliefs[STEPS]), rtol=1e-8)


def test_filtering_and_smoothing(process, grid, start):
    given, oracle = start
    found = process.smooth(READINGS[:, None], sensor=SENSOR, initial=given)
    now, evidences, filtered = oracle, [], []
    for k, o in enumerate(READINGS):
        now = Oracle(now.step(*grid)) if k else now
        now = now.times(lambda x, o=o: likelihood(o, x))
        evidences.append(np.log(now.expect(np.ones_like)))
        now = now.over(np.exp(evidences[-1]))
        filtered.append(now)
    np.testing.assert_allclose(found.filtered.log_evidences, evidences, rtol=1e-9, atol=1e-9)
    means = [one.expect(lambda x: x) for one in filtered]
    np.testing.assert_allclose(found.filtered.beliefs.means()[:, 0], means, atol=1e-8)
    # What later readings are worth, at the nodes and at the points of the start.
    worth, at_points = np.ones(len(X)), {x: 1.0 for _, x in oracle.points}
    for k in range(len(READINGS) - 1, 0, -1):
        inner = W * likelihood(READINGS[k], X) * worth
        worth, at_points = grid[0] @ inner, {x: grid[1](x) @ inner for x in at_points}
    first = filtered[0]
    weighed = Oracle(first.density * worth, tuple((w * at_points[x], x) for w, x in first.points))
    mean = weighed.expect(lambda x: x) / weighed.expect(np.ones_like)
    np.testing.assert_allclose(found.beliefs[0].mean(), [mean], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.beliefs.means()[0], [mean], rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.beliefs[-1].mean(), means[-1:], rtol=1e-8, atol=1e-9)
    drawn = np.asarray(found.sample(jax.random.key(0), 200))
    assert abs(drawn[:, 0].mean() - mean) < 5 * drawn[:, 0].std() / np.sqrt(200) + 1e-12


def test_streams(process, grid, start):
    given, oracle = start
    given = process.initial if given is None else given
    after = process.update(given, READINGS[:1], sensor=SENSOR)
    left = oracle.times(lambda x: likelihood(READINGS[0], x))
    evidence = left.expect(np.ones_like)
    np.testing.assert_allclose(after.log_evidence, np.log(evidence), rtol=1e-9)
    np.testing.assert_allclose(after.belief.mean(), [left.over(evidence).expect(lambda x: x)], rtol=1e-8, atol=1e-9)
    next_ = Oracle(left.over(evidence).step(*grid)).times(lambda x: likelihood(READINGS[2], x))
    found = process.advance(after.belief, READINGS[2:3], sensor=SENSOR)
    np.testing.assert_allclose(found.log_evidence, np.log(next_.expect(np.ones_like)), rtol=1e-9)


def test_boxes_over_time(process, grid, start):
    given, oracle = start
    alive = unhit = oracle.step(*grid)
    stayed, reached, hit = [], [], 0.0
    for _ in range(STEPS):
        alive, hit = alive * INSIDE, hit + W @ (unhit * INSIDE)
        stayed.append(W @ alive)
        reached.append(hit)
        alive, unhit = (W * alive) @ grid[0], (W * unhit * ~INSIDE) @ grid[0]
    np.testing.assert_allclose(process.stay_probability(LOW, HIGH, STEPS, initial=given), stayed, rtol=1e-8)
    np.testing.assert_allclose(process.reach_probability(LOW, HIGH, STEPS, initial=given), reached, rtol=1e-8)
    inner = (grid[0] * W)[np.ix_(~INSIDE, ~INSIDE)]
    steps = np.linalg.solve(np.eye(len(inner)) - inner, np.ones(len(inner)))
    from_points = {x: 1.0 + (W * grid[1](x))[~INSIDE] @ steps for _, x in oracle.points if not LOW < x < HIGH}
    expected = (W * oracle.density)[~INSIDE] @ steps + sum(w * from_points.get(x, 0.0) for w, x in oracle.points)
    found = process.mean_first_passage(LOW, HIGH, initial=given)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-12)


def test_mixing_and_draws(process, grid, start):
    given, oracle = start
    k, target = process.mixing_time(1e-2, initial=given), on_nodes(process.stationary())
    density = oracle.step(*grid)
    for _ in range(k - 1):
        density = (W * density) @ grid[0]
    assert 0.5 * W @ np.abs(density - target) <= 1e-2
    drawn = np.asarray(process.sample(jax.random.key(0), 500, 1, initial=given))[..., 0]
    density = oracle.step(*grid)
    mean = W @ (density * X)
    std = np.sqrt(W @ (density * (X - mean) ** 2))
    assert abs(drawn[:, 1].mean() - mean) < 4.5 * std / np.sqrt(500)
    assert abs(drawn[:, 0].mean() - oracle.expect(lambda x: x)) < 4.5 * drawn[:, 0].std() / np.sqrt(500) + 1e-12


VERBS = {
    "propagate": lambda p, start: p.propagate(2, initial=start),
    "belief_at": lambda p, start: p.belief_at(2, initial=start),
    "sample": lambda p, start: p.sample(jax.random.key(0), 2, 2, initial=start),
    "filter": lambda p, start: p.filter([[0.1]], sensor=SENSOR, initial=start),
    "smooth": lambda p, start: p.smooth([[0.1]], sensor=SENSOR, initial=start),
    "predict": lambda p, start: p.predict(start),
    "update": lambda p, start: p.update(start, [0.1], sensor=SENSOR),
    "advance": lambda p, start: p.advance(start, [0.1], sensor=SENSOR),
    "mixing_time": lambda p, start: p.mixing_time(0.1, initial=start),
    "stay_probability": lambda p, start: p.stay_probability(0, 1, 2, initial=start),
    "exit_probability": lambda p, start: p.exit_probability(0, 1, 2, initial=start),
    "reach_probability": lambda p, start: p.reach_probability(0, 1, 2, initial=start),
    "mean_first_passage": lambda p, start: p.mean_first_passage(0, 1, initial=start),
}


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_no_start_is_refused_in_one_text(process, verb):
    other = make_process("gaussian", "kraus", 1, seed=4)
    two = make_process("gaussian", "kraus", 2, seed=4)
    marginal = two.propagate(1)[1].marginal([0])
    for start, message in (
        (marginal, "Expected a belief of this process, a known state, or a mixture of these to start from"),
        (sm.MixtureBelief([process.initial, marginal]), "Expected a belief of this process, a known state, or"),
        (other.initial, "its factor g divides out"),
        ([0.0, 1.0], "over 1 coordinates, got 2"),
    ):
        with pytest.raises(ValueError, match=message):
            VERBS[verb](process, start)
