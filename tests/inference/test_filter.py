"""Filtering and smoothing against a brute-force filter on quadrature nodes that only evaluates densities."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import oracles
import sosmarkov as sm
from tables import EXHAUSTIVE, FAMILIES, TRANSFORMS, make_process

TIMES = 7


class Case(NamedTuple):
    """A process, a sensor, readings of it, and their likelihood by an independent formula."""

    process: sm.MarkovProcess
    sensor: sm.Sensor
    observations: np.ndarray
    likelihood: object  # of one reading and states of shape (N, d) to (N,)
    rule: tuple


def normal(o, x, std):
    return np.where(np.isnan(o), 1.0, np.exp(-0.5 * ((o - x) / std) ** 2) / (std * np.sqrt(2 * np.pi)))


def gaussian_line():
    sensor = sm.GaussianSensor([0], 0.7, gain=1.3, offset=0.2)
    observations = np.array([0.5, 1.5, np.nan, -2.0, 0.1, np.nan, 1.0])[:, None]
    process = make_process("gaussian", "kraus", 1, seed=3)
    return Case(
        process, sensor, observations, lambda o, x: normal(o[0], 1.3 * x[:, 0] + 0.2, 0.7), FAMILIES["gaussian"].rule()
    )


def both_coordinates(family, coupling, transform):
    made = TRANSFORMS[transform](np.random.default_rng(3), 2)
    process = make_process(family, coupling, 2, seed=1, transform=made)
    observations = np.random.default_rng(0).normal(size=(TIMES, 2)) + [0.3, -0.2]
    observations[0] = np.nan
    observations[2, 0] = np.nan
    observations[4, 1] = np.nan
    std = (0.6, 0.9)
    # In data space, around where the transform puts the process.
    centre = np.asarray(process.propagate(1)[1].mean())
    return Case(
        process,
        sm.GaussianSensor([1, 0], std),
        observations + centre[::-1],
        lambda o, x: normal(o[0], x[:, 1], std[0]) * normal(o[1], x[:, 0], std[1]),
        # The trapezoidal rule: to rounding for smooth functions that vanish at both ends.
        tuple((np.linspace(c - 7.0, c + 7.0, 50), np.full(50, 14.0 / 49)) for c in centre),
    )


def intervals(family, coupling, width=None):
    process = make_process(family, coupling, 1, seed=2)
    nodes, _ = FAMILIES[family].rule()
    low, high = np.quantile(nodes, [0.4, 0.7])
    ends = np.array([[low, high], [-np.inf, high], [np.nan, np.nan], [low, np.inf], [0.5 * (low + high), high]])
    if width is not None:
        ends = np.stack([ends[:, 0].clip(low) - width / 2, ends[:, 0].clip(low) + width / 2], axis=1)
    observations = ends[:, None] if width is None else ends.mean(axis=1)[:, None]

    # Nodes within the pieces that the ends cut the domain into, so that the rule is exact for indicators.
    domain = (
        (-13.0, 13.0) if family == "gaussian" else (process.transition.phi.lower[0], process.transition.phi.upper[0])
    )
    cuts = np.unique(np.concatenate([domain, ends[np.isfinite(ends)]]))
    pieces = [oracles.gauss_legendre(a, b, 8) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    rule = tuple(np.concatenate(part) for part in zip(*pieces, strict=True))

    def likelihood(o, x):
        a, b = o[0] if width is None else (o[0] - width / 2, o[0] + width / 2)
        return np.ones(len(x)) if np.isnan(a) else ((x[:, 0] > a) & (x[:, 0] < b)).astype(float)

    return Case(process, sm.IntervalSensor(0, width=width), observations, likelihood, rule)


def outliers():
    case = gaussian_line()
    sensor = sm.MixtureSensor([sm.GaussianSensor(0, 0.4), sm.GaussianSensor(0, 3.0)], [0.9, 0.1])

    def likelihood(o, x):
        return 0.9 * normal(o[0], x[:, 0], 0.4) + 0.1 * normal(o[0], x[:, 0], 3.0)

    return case._replace(sensor=sensor, likelihood=likelihood)


def factor():
    process = make_process("beta", "paired", 1, seed=2)
    sensor = sm.FactorSensor(lambda o: sm.SquaredForm(sm.BetaBasis(1.0 + o[None], 2.0 - 0.5 * o[None]), jnp.eye(1)), 1)
    observations = np.array([0.5, 0.2, np.nan, 1.5])[:, None]
    nodes, weights = oracles.tanh_sinh(0.0, 1.0)

    def likelihood(o, x):
        if np.isnan(o[0]):
            return np.ones(len(x))
        f = nodes ** o[0] * (1 - nodes) ** (1.0 - 0.5 * o[0])
        return (x[:, 0] ** o[0] * (1 - x[:, 0]) ** (1.0 - 0.5 * o[0])) ** 2 / (weights @ f**2)

    return Case(process, sensor, observations, likelihood, (nodes, weights))


CASES = {
    "gaussian-line": gaussian_line,
    "gaussian-kraus-standardize": lambda: both_coordinates("gaussian", "kraus", "standardize"),
    "gaussian-linear-identity": lambda: both_coordinates("gaussian", "linear", "identity"),
    "gaussian-full-paired-affine": lambda: both_coordinates("gaussian-full", "paired", "affine"),
    "interval-gaussian": lambda: intervals("gaussian", "kraus"),
    "interval-exponential-linear": lambda: intervals("exponential", "linear"),
    "interval-fourier-rounded": lambda: intervals("fourier", "kraus-background", width=0.8),
    "outliers": outliers,
    "factor-beta": factor,
}


def brute_force(case):
    """Filtered and smoothed densities at the nodes, and the log-evidence."""
    d = case.process.dim
    if isinstance(case.rule[0], tuple):
        grids = np.meshgrid(*[rule[0] for rule in case.rule], indexing="ij")
        points = np.stack(grids, axis=-1).reshape(-1, d)
        weights = np.multiply.outer(*[rule[1] for rule in case.rule]).ravel()
    else:
        points, weights = oracles.tensor(*case.rule, d)

    @jax.jit
    def column(x_next):
        return jnp.exp(case.process.transition.log_prob(x_next, jnp.asarray(points)))

    kernel = np.asarray(jax.lax.map(column, jnp.asarray(points), batch_size=256)).T
    density = np.asarray(case.process.initial.prob(points))
    likelihoods = [case.likelihood(o, points) for o in case.observations]
    filtered, log_evidence = [], 0.0
    for k, likelihood in enumerate(likelihoods):
        if k:
            density = (weights * filtered[-1]) @ kernel
        joint = density * likelihood
        evidence = weights @ joint
        log_evidence += np.log(evidence)
        filtered.append(joint / evidence)
    message, smoothed = np.ones(len(points)), []
    for k in range(len(likelihoods) - 1, -1, -1):
        joint = filtered[k] * message
        smoothed.append(joint / (weights @ joint))
        message = kernel @ (weights * likelihoods[k] * message)
        message /= message.max()
    return points, filtered, smoothed[::-1], log_evidence


# One of each kind of sensor, family and coupling; the others mostly repeat compilation.
SOME = ["gaussian-line", "gaussian-kraus-standardize", "interval-exponential-linear"]


@pytest.fixture(scope="module", params=CASES if EXHAUSTIVE else [*SOME, "outliers", "factor-beta"])
def case(request):
    return CASES[request.param]()


def test_filter_and_smoother_match_a_brute_force_filter(case):
    points, filtered, smoothed, log_evidence = brute_force(case)
    result = case.process.smooth(case.observations, sensor=case.sensor)
    np.testing.assert_allclose(result.log_evidence, log_evidence, rtol=1e-9, atol=1e-9)
    chosen = slice(None, None, max(1, len(points) // 400))
    for k in (0, 2, len(filtered) - 1):
        for found, expected in ((result.filtered.beliefs[k], filtered[k]), (result.beliefs[k], smoothed[k])):
            np.testing.assert_allclose(
                found.prob(points[chosen]), expected[chosen], rtol=1e-8, atol=1e-9 * expected.max()
            )
            np.testing.assert_allclose(found.mass(), 1.0, rtol=1e-11)


def test_means_and_covariances_of_all_steps_match_a_brute_force_filter():
    case = outliers()
    points, filtered, smoothed, _ = brute_force(case)
    mass, x = case.rule[1], points[:, 0]
    result = case.process.smooth(case.observations, sensor=case.sensor)
    for beliefs, densities in ((result.filtered.beliefs, filtered), (result.beliefs, smoothed)):
        mean = np.array([mass @ (density * x) for density in densities])
        second = np.array([mass @ (density * x**2) for density in densities])
        np.testing.assert_allclose(beliefs.means()[:, 0], mean, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(beliefs.covariances()[:, 0, 0], second - mean**2, rtol=1e-8, atol=1e-9)
    known = case.process.filter(case.observations, sensor=case.sensor, initial=[0.3])
    np.testing.assert_allclose(known.beliefs.means()[0], [0.3])
    np.testing.assert_allclose(known.beliefs.means()[2], known.beliefs[2].mean(), rtol=1e-12)


@pytest.mark.parametrize("name", list(CASES) if EXHAUSTIVE else ["gaussian-line", "outliers", "interval-gaussian"])
def test_streaming_gives_what_the_batch_gives(name):
    case = CASES[name]()
    whole = case.process.filter(case.observations, sensor=case.sensor)
    belief, total = case.process.initial, 0.0
    for k, observation in enumerate(case.observations):
        if k:
            belief = case.process.predict(belief)
        belief, log_evidence = case.process.update(belief, observation, sensor=case.sensor)
        total += float(log_evidence)
    np.testing.assert_allclose(total, whole.log_evidence, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(belief.mean(), whole.beliefs[-1].mean(), rtol=1e-9, atol=1e-9)


def in_logarithms(belief, reading, std, nodes):
    """Log p(o) and E[x | o] by a sum over nodes that only evaluates log-densities: nothing underflows."""
    log_values = np.asarray(belief.log_prob(nodes[:, None])) - 0.5 * ((reading - nodes) / std) ** 2
    weights = np.exp(log_values - log_values.max())
    total = np.log(weights.sum() * (nodes[1] - nodes[0])) + log_values.max()
    return total - np.log(std * np.sqrt(2 * np.pi)), weights @ nodes / weights.sum()


# Functions fill their blocks or do not: 15 pairs in 8 blocks, 120 in 8.
@pytest.mark.parametrize(("n", "reading"), [(5, 30.0), (5, 100.0), (15, 100.0)])
def test_a_reading_far_from_every_state_keeps_its_evidence(n, reading):
    process, sensor = make_process("gaussian", "kraus", 1, seed=3, n=n), sm.GaussianSensor(0, 0.5)
    whole = process.filter([[0.3], [reading], [0.0]], sensor=sensor)
    log_evidence, mean = in_logarithms(whole.predicted[1], reading, 0.5, np.linspace(-10.0, 120.0, 130_001))
    np.testing.assert_allclose(whole.log_evidences[1], log_evidence, rtol=1e-11)
    after = process.update(whole.predicted[1], [reading], sensor=sensor)
    np.testing.assert_allclose(after.log_evidence, log_evidence, rtol=1e-11)
    np.testing.assert_allclose(after.belief.mean(), [mean], rtol=1e-9)
    np.testing.assert_allclose(after.belief.mass(), 1.0, rtol=1e-11)
    np.testing.assert_allclose(whole.beliefs.means()[1], [mean], rtol=1e-9)
    drawn = np.asarray(after.belief.sample(jax.random.key(0), 2000))
    assert abs(drawn.mean() - mean) < 5 * drawn.std() / np.sqrt(2000)
    np.testing.assert_allclose(process.predict(after.belief).mean(), whole.predicted[2].mean(), rtol=1e-9)


def test_drawn_trajectories_follow_the_smoothed_beliefs():
    case, count = outliers(), 800
    result = case.process.smooth(case.observations, sensor=case.sensor)
    drawn = np.asarray(result.sample(jax.random.key(0), count))
    assert drawn.shape == (count, len(case.observations), 1)
    # Brute force on the nodes: moments of every state, and of neighbours.
    points, filtered, smoothed, _ = brute_force(case)
    weights, x = case.rule[1], points[:, 0]
    kernel = np.exp(np.asarray(case.process.transition.log_prob(points[None], points[:, None])))
    for k, density in enumerate(smoothed):
        mean, second = weights @ (density * x), weights @ (density * x**2)
        std = np.sqrt(second - mean**2)
        assert abs(drawn[:, k].mean() - mean) < 4.5 * std / np.sqrt(count)
        assert abs(drawn[:, k].std() - std) < 0.1 * std
    joint = filtered[3][:, None] * kernel * (smoothed[4] / ((weights * filtered[3]) @ kernel))[None]
    product = np.einsum("a,a,ab,b,b->", weights, x, joint, weights, x)
    values = drawn[:, 3, 0] * drawn[:, 4, 0]
    assert abs(values.mean() - product) < 4.5 * values.std() / np.sqrt(count)


def test_trajectories_drawn_under_interval_readings_lie_in_them():
    case = intervals("gaussian", "kraus")
    drawn = np.asarray(case.process.smooth(case.observations, sensor=case.sensor).sample(jax.random.key(0), 50))
    low, high = np.nan_to_num(case.observations[:, 0].T, nan=np.inf)
    low = np.where(low == np.inf, -np.inf, low)
    assert np.all((drawn[..., 0] > low) & (drawn[..., 0] < high))


def test_many_sequences_at_once():
    case = gaussian_line()
    many = jnp.stack([jnp.asarray(case.observations) + shift for shift in (0.0, 0.5, -1.0)])

    many = many.at[1, 3].set(100.0)  # far off
    filtered = eqx.filter_jit(lambda observations: case.process.filter(observations, sensor=case.sensor))
    found = jax.vmap(filtered)(many)
    assert found.log_evidence.shape == (3,)
    assert np.all(np.asarray(found.log_evidences)[:, [2, 5]] == 0.0)  # missing
    np.testing.assert_allclose(found.log_evidence, [float(filtered(one).log_evidence) for one in many], rtol=1e-12)


def test_a_known_start_is_filtered_too():
    case = gaussian_line()
    result = case.process.filter(case.observations, sensor=case.sensor, initial=[0.4])
    first = float(np.log(case.likelihood(case.observations[0], np.array([[0.4]])))[0])
    np.testing.assert_allclose(result.log_evidences[0], first, rtol=1e-12)
    x = np.linspace(-3, 3, 9)[:, None]
    prior = np.exp(np.asarray(case.process.transition.log_prob(x, [0.4])))
    np.testing.assert_allclose(result.predicted[1].prob(x), prior, rtol=1e-10)


def bump(width):
    """A likelihood that is a form: a normal density to the power of one half, squared."""
    return sm.FactorSensor(
        lambda o: sm.SquaredForm(sm.GaussianBasis(o[:1, None], jnp.full((1, 1), width)), jnp.eye(1)), 2
    )


def test_factors_that_are_missing_leave_the_belief_as_it_is():
    process = make_process("gaussian", "kraus", 1, seed=3)
    readings = np.array([[0.3, 0.0], [np.nan, 0.0], [0.0, 0.0]])
    for result in (process.filter(readings, sensor=bump(1.0)), process.smooth(readings, sensor=bump(1.0))):
        np.testing.assert_allclose(result.beliefs.means(), [one.mean() for one in result.beliefs], rtol=1e-10)
    filtered = process.filter(readings, sensor=bump(1.0))
    np.testing.assert_allclose(filtered.beliefs.means()[1], filtered.predicted[1].mean(), rtol=1e-12)


def test_a_reading_that_only_one_part_of_a_mixture_can_use():
    # A factor needs all its numbers, a Gaussian sensor makes do with some: one part says nothing, one does.
    process = make_process("gaussian", "kraus", 2, seed=3)
    likelihood = lambda o: sm.SquaredForm(sm.GaussianBasis(o[None], jnp.ones((1, 2))), jnp.eye(1))  # noqa: E731
    sensor = sm.MixtureSensor([sm.FactorSensor(likelihood, 2), sm.GaussianSensor([0, 1], 0.7)], [0.4, 0.6])
    belief, reading = process.propagate(1)[1], np.array([0.5, np.nan])
    after = process.update(belief, reading, sensor=sensor)
    nodes, weights = oracles.tensor(*oracles.gauss_legendre(-12.0, 12.0, 6, 22), 2)
    density = np.asarray(belief.prob(nodes)) * (0.4 + 0.6 * normal(reading[0], nodes[:, 0], 0.7))
    evidence = weights @ density
    np.testing.assert_allclose(after.log_evidence, np.log(evidence), rtol=1e-10)
    np.testing.assert_allclose(after.belief.mean(), weights @ (density[:, None] * nodes) / evidence, rtol=1e-9)
    filtered = process.filter([[np.nan, np.nan], reading], sensor=sensor)
    np.testing.assert_allclose(filtered.log_evidences[1], np.log(evidence), rtol=1e-10)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.filter([[0.0, 1.0]], sensor=sm.GaussianSensor(0, 1.0)), r"last axes \(1,\)"),
        (lambda p: p.filter([[np.inf]], sensor=sm.GaussianSensor(0, 1.0)), "infinite"),
        (lambda p: p.filter(np.zeros((0, 1)), sensor=sm.GaussianSensor(0, 1.0)), "at least one"),
        (lambda p: p.filter([[0.0]], sensor=sm.GaussianSensor(3, 1.0)), "between 0 and 0"),
        (lambda p: p.filter(np.zeros((4, 5, 1)), sensor=sm.GaussianSensor(0, 1.0)), r"\(T, 1\).*vmap"),
        (lambda p: p.filter([[0.0, 1.0]], sensor=sm.IntervalSensor(0)), r"\(T, 1, 2\)"),
        (lambda p: p.update(p.initial, [[0.0], [1.0]], sensor=sm.GaussianSensor(0, 1.0)), r"one reading of shape \(1,"),
        (
            lambda p: p.filter(
                [[0.0]], sensor=sm.FactorSensor(lambda o: sm.LinearForm(p.transition.psi, jnp.ones(5)), 1)
            ),
            "the form's own kind",
        ),
        (lambda p: p.filter([[0.5]], sensor=factor().sensor), "same family"),
        (lambda p: sm.GaussianSensor(-1, 1.0), "counted from 0"),
        (lambda p: sm.MixtureSensor([sm.GaussianSensor(0, 1.0), sm.IntervalSensor(0)], [0.5, 0.5]), "same shape"),
        (lambda p: sm.GaussianSensor(0, 0.0), "positive"),
        (lambda p: sm.GaussianSensor([0, 0], 1.0), "distinct"),
        (lambda p: sm.GaussianSensor(0, 1.0, gain=0.0), "not zero"),
        (lambda p: sm.IntervalSensor(0).check([[[1.0, 0.0]]]), "lower < upper"),
        (lambda p: sm.IntervalSensor(0).check([[[np.nan, 0.0]]]), "both ends or none"),
        (lambda p: sm.IntervalSensor(0, width=-1.0), "positive width"),
        (lambda p: sm.MixtureSensor([], []), "one or more"),
        (
            lambda p: make_process("beta", "paired", 1, seed=0).filter([[0.5]], sensor=sm.GaussianSensor(0, 1.0)),
            "Gaussian basis under an affine transform",
        ),
        (
            lambda p: make_process("gaussian-full", "kraus", 2, seed=0).filter(
                [[[0.0, 1.0]]], sensor=sm.IntervalSensor(0)
            ),
            "family of products",
        ),
        (
            lambda p: make_process("beta", "paired", 1, seed=0).filter([[[2.0, 3.0]]], sensor=sm.IntervalSensor(0)),
            "probability zero",
        ),
    ],
)
def test_bad_readings_are_refused(ask, message):
    process = make_process("gaussian", "kraus", 1, seed=0)
    with pytest.raises(ValueError, match=message):
        ask(process)


def test_a_reading_changes_no_known_state_and_has_its_evidence():
    process = make_process("gaussian", "kraus", 1, seed=0)
    found = process.update(sm.KnownState([0.25]), [0.7], sensor=sm.GaussianSensor(0, 0.5))
    np.testing.assert_array_equal(found.belief.mean(), [0.25])
    expected = scipy.stats.norm(0.25, 0.5).logpdf(0.7)
    np.testing.assert_allclose(found.log_evidence, expected, rtol=1e-12)
