"""Processes under inputs against quadrature chains that only evaluate p(x' | x, u)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracles
import sosmarkov as sm
from tables import EXHAUSTIVE

N, M, RANK, STEPS = 4, 5, 3, 5
NODES, WEIGHTS = oracles.gauss_legendre(-14.0, 14.0, 12)
FEATURES = {
    "bumps": lambda e: sm.Bumps(np.random.default_rng(5).normal(size=(3, e)), np.full(e, 0.8)),
    "network": lambda e: sm.Network(np.zeros(e), np.ones(e), 3, 6, jax.random.key(2)),
    "phases": lambda e: sm.Phases(3),
    "shared phases": lambda e: sm.Phases(5, 2),
}


def make(kind: str, d: int = 1, e: int = 2, background: float = 0.0, seed: int = 0) -> sm.MarkovProcess:
    rng = np.random.default_rng(seed)
    phi, psi = (sm.GaussianBasis(rng.normal(size=(n, d)), 0.8 + rng.random((n, d))) for n in (N, M))
    features = FEATURES[kind](1 if "phases" in kind else e)
    factor = np.tril(rng.normal(size=(N, N)), -1) + np.diag(0.5 + rng.random(N))
    coupling = sm.Driven(features, rng.normal(size=(features.count, N, M, RANK)), factor, background=background)
    transform = sm.Standardize(np.full(d, 0.3), np.full(d, 1.1))
    return sm.MarkovProcess(sm.DrivenTransition(phi, psi, coupling, transform), sm.SquaredForm(psi, np.eye(M)))


def inputs_for(kind: str, steps: int = STEPS) -> np.ndarray:
    if "phases" in kind:
        return (np.arange(steps) + 2.0)[:, None]
    return np.random.default_rng(1).normal(size=(steps, 2))


@eqx.filter_jit
def kernels(process, u):
    x = jnp.asarray(NODES)[:, None]
    return jax.vmap(lambda one: process.transition.log_prob(x[None], x[:, None], one))(u)


def chain(process, inputs) -> tuple[np.ndarray, np.ndarray]:
    """p_0 and p(x' | x, u_k) on nodes."""
    density = np.exp(np.asarray(process.initial.log_prob(NODES[:, None])))
    return density, np.exp(np.asarray(kernels(process, jnp.asarray(inputs))))


@pytest.mark.parametrize("kind", ["bumps", "network", "shared phases"])
@pytest.mark.parametrize("background", [0.0, 1e-3])
def test_every_input_is_normalised(kind, background):
    process = make(kind, background=background)
    rng = np.random.default_rng(3)
    for u in inputs_for(kind) * 30.0 if "phases" not in kind else inputs_for(kind):
        mass = process.transition.mass(3.0 * rng.normal(size=(50, 1)), u)
        np.testing.assert_allclose(mass, 1.0, atol=1e-12)
    _, table = chain(process, inputs_for(kind))
    near = np.abs(NODES) < 4
    np.testing.assert_allclose((table @ WEIGHTS)[:, near], 1.0, atol=1e-9)


@pytest.mark.parametrize("kind", FEATURES)
def test_beliefs_match_a_chain_on_nodes(kind):
    process, inputs = make(kind, background=1e-3), inputs_for(kind)
    density, table = chain(process, inputs)
    beliefs = process.propagate(STEPS, inputs=inputs)
    assert len(beliefs) == STEPS + 1
    for k in range(STEPS):
        density = (WEIGHTS * density) @ table[k]
        np.testing.assert_allclose(beliefs[k + 1].prob(NODES[:, None]), density, atol=1e-9)
        np.testing.assert_allclose(beliefs[k + 1].mass(), 1.0, atol=1e-12)


def test_filter_and_smoother_match_a_grid_with_gaps():
    process, inputs = make("bumps"), inputs_for("bumps")
    readings = np.array([0.2, np.nan, 1.0, -0.5, np.nan, 0.4])[:, None]
    sensor = sm.GaussianSensor([0], 0.6)
    density, table = chain(process, inputs)

    def likelihood(o):
        return np.ones(len(NODES)) if np.isnan(o) else np.exp(-0.5 * ((o - NODES) / 0.6) ** 2) / np.sqrt(0.72 * np.pi)

    forward, evidence = [], 0.0
    for k, o in enumerate(readings[:, 0]):
        density = density if k == 0 else (WEIGHTS * density) @ table[k - 1]
        density = density * likelihood(o)
        evidence += np.log(WEIGHTS @ density)
        density = density / (WEIGHTS @ density)
        forward.append(density)
    after = np.ones(len(NODES))
    smoothed = [forward[-1]]
    for k in range(STEPS - 1, -1, -1):
        after = table[k] @ (WEIGHTS * likelihood(readings[k + 1, 0]) * after)
        both = forward[k] * after
        smoothed.insert(0, both / (WEIGHTS @ both))
    result = process.smooth(readings, sensor=sensor, inputs=inputs)
    np.testing.assert_allclose(result.log_evidence, evidence, atol=1e-9)
    for k in range(STEPS + 1):
        at = NODES[:, None]
        np.testing.assert_allclose(result.filtered.beliefs[k].prob(at), forward[k], atol=1e-8)
        np.testing.assert_allclose(result.beliefs[k].prob(at), smoothed[k], atol=1e-8)
    stream, total = process.initial, 0.0
    for k, o in enumerate(readings):
        stream = stream if k == 0 else process.predict(stream, u=inputs[k - 1])
        stream, found = process.update(stream, o, sensor=sensor)
        total += float(found)
    np.testing.assert_allclose(total, evidence, atol=1e-9)
    drawn = np.asarray(result.sample(jax.random.key(0), 200))[..., 0]
    means = [np.sum(WEIGHTS * NODES * p) for p in smoothed]
    stds = [np.sqrt(np.sum(WEIGHTS * (NODES - m) ** 2 * p)) for m, p in zip(means, smoothed, strict=True)]
    assert np.all(np.abs(drawn.mean(axis=0) - means) < 4 * np.array(stds) / np.sqrt(200))


def test_staying_and_reaching_match_a_chain():
    process, inputs = make("network"), inputs_for("network")
    cut = -0.4, 0.9
    edges = [(-14.0, cut[0]), cut, (cut[1], 14.0)]
    parts = [oracles.gauss_legendre(a, b, 6) for a, b in edges]
    x, w = (np.concatenate(part) for part in zip(*parts, strict=True))
    inside = (x > cut[0]) & (x < cut[1])
    points = jnp.asarray(x)[:, None]
    tables = [np.exp(process.transition.log_prob(points[None], points[:, None], u)) for u in inputs]
    density = np.exp(np.asarray(process.initial.log_prob(points)))
    alive, unhit, stays, reaches, hit = density, density, [], [], 0.0
    for table in tables:
        alive = ((w * alive) @ table) * inside
        stays.append(w @ alive)
        unhit = (w * unhit) @ table
        hit += w @ (unhit * inside)
        reaches.append(hit)
        unhit = unhit * ~inside
    box = [cut[0]], [cut[1]]
    np.testing.assert_allclose(process.stay_probability(*box, STEPS, inputs=inputs), stays, atol=1e-9)
    np.testing.assert_allclose(process.reach_probability(*box, STEPS, inputs=inputs), reaches, atol=1e-9)


@pytest.mark.parametrize("kind", ["bumps"] + ["network"] * EXHAUSTIVE)
def test_gradients_in_the_inputs_match_finite_differences(kind):
    process, inputs = make(kind, d=2, background=1e-3), inputs_for(kind)
    lower, upper = np.array([-1.0, -0.5]), np.array([1.0, 1.5])

    def objective(u):
        belief = process.propagate(STEPS, inputs=u)[STEPS]
        stay = process.stay_probability(lower, upper, STEPS, inputs=u)[-1]
        return belief.probability(lower, upper) + jnp.log(stay) + belief.log_prob(jnp.array([0.3, 0.2]))

    compiled = eqx.filter_jit(objective)
    gradient = eqx.filter_jit(jax.grad(objective))(jnp.asarray(inputs))
    expected = oracles.finite_difference(lambda u: float(compiled(jnp.asarray(u))), inputs)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-8)


def test_likelihood_of_trajectories_integrates_gaps_out():
    process, inputs = make("bumps"), np.random.default_rng(2).normal(size=(3, 3, 2))
    paths = np.random.default_rng(4).normal(size=(3, 4, 1))
    paths[1, 1], paths[2, :2] = np.nan, np.nan
    x = NODES[:, None]

    def p(after, before, u):
        return np.exp(np.asarray(process.transition.log_prob(after, before, u)))

    def expected(path, u):
        if not np.isnan(path).any():
            return process.initial.prob(path[0]) * np.prod([p(path[k + 1], path[k], u[k]) for k in range(3)])
        if np.isnan(path[0, 0]):
            density, table = chain(process, u)
            before = (WEIGHTS * density) @ table[0]
            return (WEIGHTS @ (before * p(path[2], x, u[1]))) * p(path[3], path[2], u[2])
        over = WEIGHTS @ (p(x, path[0], u[0]) * p(path[2], x, u[1]))
        return process.initial.prob(path[0]) * over * p(path[3], path[2], u[2])

    found = np.exp(process.log_likelihood(paths, inputs=inputs))
    np.testing.assert_allclose(found, [expected(*pair) for pair in zip(paths, inputs, strict=True)], rtol=1e-9)


def test_one_input_that_stays_is_an_ordinary_process():
    process = make("bumps")
    u = np.array([0.4, -0.2])
    steady = process.under(u)
    together = process.propagate(4, inputs=np.tile(u, (4, 1)))[4]
    x = np.linspace(-3, 3, 7)[:, None]
    np.testing.assert_allclose(steady.belief_at(4).prob(x), together.prob(x), rtol=1e-10)
    assert steady.check().ok
    assert np.all(np.isfinite(steady.stationary().prob(x)))


def test_time_comes_round_and_counts_from_zero():
    process = make("phases")
    x = np.linspace(-3, 3, 7)[:, None]
    by_default, counted = process.propagate(7)[7], process.propagate(7, inputs=np.arange(7) + 3.0)[7]
    np.testing.assert_allclose(by_default.prob(x), counted.prob(x), rtol=1e-12)
    np.testing.assert_allclose(process.belief_at(7).prob(x), counted.prob(x), rtol=1e-12)
    assert np.max(np.abs(process.propagate(7, inputs=np.arange(7) + 1.0)[7].prob(x) - counted.prob(x))) > 1e-3


def test_draws_follow_the_inputs():
    process, inputs = make("bumps"), inputs_for("bumps")
    drawn = np.asarray(process.sample(jax.random.key(1), 400, STEPS, inputs=inputs))
    beliefs = process.propagate(STEPS, inputs=inputs)
    for k in (1, STEPS):
        std = float(jnp.sqrt(beliefs[k].covariance()[0, 0]))
        assert abs(drawn[:, k, 0].mean() - float(beliefs[k].mean()[0])) < 4 * std / np.sqrt(400)


def test_wrong_inputs_are_refused():
    process = make("bumps")
    for call, message in (
        (lambda: process.propagate(3), r"Expected inputs of shape \(3, 2\)"),
        (lambda: process.propagate(3, inputs=np.zeros((2, 2))), r"got \(2, 2\)"),
        (lambda: process.propagate(1, inputs=[[np.nan, 0.0]]), "finite"),
        (lambda: process.stationary(), r"process.under\(u\)"),
        (lambda: process.predict(process.initial), "Expected an input u"),
        (lambda: process.under([1.0]), r"Expected inputs of shape \(..., 2\)"),
        (lambda: process.under([0.0, 0.0]).propagate(2, inputs=np.zeros((2, 2))), "Expected no inputs"),
        (lambda: make("phases").propagate(2, inputs=[0.5, 1.0]), "whole numbers"),
        (lambda: sm.Phases(2, 3), "at most one kernel for each of 2 phases, got 3"),
        (lambda: sm.Driven(sm.Phases(2), np.zeros((3, 2, 2, 2))), "K"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
