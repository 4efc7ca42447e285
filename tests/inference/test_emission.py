"""Learned sensors against a brute-force filter on nodes that only evaluates p(x', o' | x)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracles
import sosmarkov as sm
from sosmarkov.sensors import joint as emission
from tables import EXHAUSTIVE

N, M, Z, RANK, START = 4, 5, 3, 2, 2
NODES, WEIGHTS = oracles.gauss_legendre(-13.0, 13.0, 8, 24)


def make(k: int = 1, background: float = 0.0, seed: int = 0) -> sm.MarkovProcess:
    rng = np.random.default_rng(seed)
    phi, psi = (sm.GaussianBasis(rng.normal(size=(n, 1)), 0.8 + rng.random((n, 1))) for n in (N, M))
    zeta = sm.GaussianBasis(rng.normal(size=(Z, k)), 0.7 + rng.random((Z, k)))
    transform = sm.Standardize([0.3], [1.1])
    sensor = sm.LearnedSensor(zeta, sm.Standardize(np.full(k, -0.2), np.full(k, 0.9)), background=background)
    coupling = sm.Kraus(rng.normal(size=(N, M, Z * RANK)), background=background)
    factor = rng.normal(size=(M, Z * START))
    start = sm.SquaredForm(psi, np.concatenate([factor, 0.01 * np.ones((M, 1))], axis=1) if background else factor)
    return sm.MarkovProcess(sm.Transition(phi, psi, coupling, transform), start, sensor=sensor)


def start_density(process, observation):
    """p(x_0, o_0) on nodes, from the definition: the factor's columns times orthonormal functions of o."""
    sensor, h = process.sensor, process.initial.h
    factor, e = np.asarray(h.factor), sensor.background
    y = (np.asarray(observation) - np.asarray(sensor.transform.mean)) / np.asarray(sensor.transform.std)
    signed = sensor.zeta.evaluate(jnp.asarray(y))
    zeta = np.asarray(signed.sign * jnp.exp(signed.log_abs))
    own = factor[:, :-1] if e else factor
    mixed = np.einsum("iar,a->ir", own.reshape(M, Z, -1), np.asarray(sensor.root) @ zeta)
    if e:
        mixed = np.concatenate([mixed, factor[:, -1:] * zeta[-1]], axis=1)
    x = (NODES - 0.3) / 1.1

    def values(y):
        at = h.basis.evaluate(y)
        return at.sign * jnp.exp(at.log_abs)

    g = np.exp([float(process.transition.g.log_value(jnp.asarray([one]))) for one in x])
    f = np.asarray(jax.vmap(values)(jnp.asarray(x)[:, None]))
    jacobian = 1.1 * np.prod(np.asarray(sensor.transform.std))
    return g * np.sum((f @ mixed) ** 2, axis=1) / jacobian


def joint(process, observation) -> np.ndarray:
    """p(x', o | x) on nodes, rows x."""
    count = len(NODES)
    x, x_next = (jnp.asarray(a.reshape(-1, 1)) for a in np.meshgrid(NODES, NODES, indexing="ij"))
    o = jnp.broadcast_to(jnp.asarray(observation), (count**2, len(observation)))
    found = emission.log_prob(process.sensor, process.transition, x_next, x, o)
    return np.exp(np.asarray(found)).reshape(count, count)


@pytest.mark.parametrize("background", [0.0, 1e-3])
def test_readings_and_states_together_have_mass_one(background):
    process = make(background=background)
    o, w = oracles.gauss_legendre(-12.0, 12.0, 6, 20)
    near = np.flatnonzero(np.abs(NODES) < 3)[::16]
    x = np.repeat(NODES[near], len(NODES))[:, None]
    x_next = np.tile(NODES, len(near))[:, None]
    total = 0.0
    for value, weight in zip(o, w, strict=True):
        reading = jnp.full((len(x), 1), value)
        pairs = jnp.asarray(x_next), jnp.asarray(x), reading
        found = np.exp(emission.log_prob(process.sensor, process.transition, *pairs))
        total = total + weight * found.reshape(len(near), -1) @ WEIGHTS
    np.testing.assert_allclose(total, 1.0, atol=1e-9)
    np.testing.assert_allclose(process.transition.mass(NODES[near][:, None]), 1.0, atol=1e-12)


@pytest.mark.parametrize("background", [0.0] * EXHAUSTIVE + [1e-3])
def test_filter_and_smoother_match_a_grid(background):
    process = make(background=background)
    readings = np.array([0.3, np.nan, 1.0, -0.6])[:, None]
    kernel = np.exp(np.asarray(process.transition.log_prob(NODES[None, :, None], NODES[:, None, None])))
    steps = [kernel if np.isnan(o[0]) else joint(process, o) for o in readings[1:]]
    density, evidence = start_density(process, readings[0]), []
    forward, predicted = [], [np.asarray(process.initial.prob(NODES[:, None]))]
    for k in range(4):
        if k > 0:
            predicted.append((WEIGHTS * density) @ kernel)
            density = (WEIGHTS * density) @ steps[k - 1]
        evidence.append(np.log(WEIGHTS @ density))
        density = density / (WEIGHTS @ density)
        forward.append(density)
    after, smoothed = np.ones(len(NODES)), [forward[-1]]
    for k in range(2, -1, -1):
        after = steps[k] @ (WEIGHTS * after)
        both = forward[k] * after
        smoothed.insert(0, both / (WEIGHTS @ both))
    result, at = process.smooth(readings), NODES[:, None]
    np.testing.assert_allclose(result.filtered.log_evidences, evidence, atol=1e-8)
    for k in range(4):
        np.testing.assert_allclose(result.filtered.predicted[k].prob(at), predicted[k], atol=1e-8)
        np.testing.assert_allclose(result.filtered.beliefs[k].prob(at), forward[k], atol=1e-8)
        np.testing.assert_allclose(result.beliefs[k].prob(at), smoothed[k], atol=1e-8)
    belief = result.filtered.beliefs[0]
    for k in range(1, 4):
        belief, found = process.advance(belief, readings[k])
        np.testing.assert_allclose(found, evidence[k], atol=1e-8)
    np.testing.assert_allclose(belief.prob(at), forward[-1], atol=1e-8)
    drawn = np.asarray(result.sample(jax.random.key(0), 200))[..., 0]
    means = np.array([np.sum(WEIGHTS * NODES * p) for p in smoothed])
    stds = np.sqrt([np.sum(WEIGHTS * (NODES - m) ** 2 * p) for m, p in zip(means, smoothed, strict=True)])
    assert np.all(np.abs(drawn.mean(axis=0) - means) < 4 * stds / np.sqrt(200))


def test_missing_coordinates_of_a_reading_are_integrated_out():
    process = make(k=2, background=1e-3)
    o, w = oracles.gauss_legendre(-12.0, 12.0, 6, 20)
    sensor = process.sensor
    x, x_next = jnp.full((len(o), 1), 0.2), jnp.full((len(o), 1), -0.4)

    def density(second):
        pairs = jnp.stack([jnp.full(len(o), 0.5), second], axis=1)
        return np.exp(np.asarray(emission.log_prob(sensor, process.transition, x_next, x, pairs)))

    partly = density(jnp.full(len(o), jnp.nan))
    np.testing.assert_allclose(partly, w @ density(jnp.asarray(o)), rtol=1e-9)
    nothing = np.exp(emission.log_prob(sensor, process.transition, x_next[:1], x[:1], jnp.full((1, 2), jnp.nan)))
    np.testing.assert_allclose(nothing, np.exp(process.transition.log_prob(x_next[:1], x[:1])), rtol=1e-12)


def test_a_known_state_advances_like_its_joint_density():
    process = make()
    belief, log_evidence = process.advance([0.4], [0.7])
    row = np.exp(np.asarray(emission.log_prob(
        process.sensor, process.transition, jnp.asarray(NODES)[:, None], jnp.full((len(NODES), 1), 0.4),
        jnp.full((len(NODES), 1), 0.7),
    )))  # fmt: skip
    np.testing.assert_allclose(np.exp(log_evidence), WEIGHTS @ row, rtol=1e-9)
    np.testing.assert_allclose(belief.prob(NODES[:, None]), row / (WEIGHTS @ row), atol=1e-9)


def test_what_does_not_fit_is_refused():
    process = make()
    plain = sm.MarkovProcess(process.transition, process.initial)
    for call, message in (
        (lambda: plain.filter([[0.1]]), "Expected a sensor"),
        (lambda: plain.advance([0.1], [0.1]), "learned sensor"),
        (lambda: process.filter([[0.1, 0.2]]), "1 numbers on the last axis"),
        (lambda: process.filter([[0.1]], initial=[0.0]), "own initial belief"),
        (lambda: sm.LearnedSensor(sm.FullGaussianBasis(np.zeros((1, 1)), np.ones((1, 1, 1)))), "family of products"),
        (
            lambda: sm.MarkovProcess(
                process.transition,
                process.initial,
                sensor=sm.LearnedSensor(sm.GaussianBasis(np.arange(4.0)[:, None], np.ones((4, 1)))),
            ),
            "multiple of the sensor's 4",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_narrow_functions_far_apart_have_finite_gradients():
    # Their overlap, exp(-3600), is zero in doubles.
    zeta = sm.GaussianBasis([[-30.0], [30.0]], [[0.5], [0.5]])

    def value(zeta):
        seen = sm.LearnedSensor(zeta).emitted(jnp.asarray([29.0]))
        return jnp.log(seen.N[1, 1]) + seen.log_scale

    gradient = eqx.filter_grad(value)(zeta)
    np.testing.assert_allclose(gradient.mean[:, 0], [0.0, 2 * (29.0 - 30.0) / 0.25], rtol=1e-12, atol=1e-12)
    assert np.all(np.isfinite(gradient.log_std))


def test_a_stream_with_a_learned_sensor_gives_what_the_batch_gives():
    process, readings = make(background=1e-3), np.array([0.3, np.nan, 1.0, -0.6])[:, None]
    whole = process.filter(readings)
    belief, first = process.update(process.initial, readings[0])
    total = float(first)
    for reading in readings[1:]:
        belief, log_evidence = process.advance(belief, reading)
        total += float(log_evidence)
    np.testing.assert_allclose(total, whole.log_evidence, rtol=1e-11)
    np.testing.assert_allclose(belief.mean(), whole.beliefs[-1].mean(), rtol=1e-10)
    with pytest.raises(ValueError, match=r"process.advance\(belief, observation\)"):
        process.update(belief, readings[2], sensor=process.sensor)


def test_a_mixture_advances_like_the_mixture_of_its_members():
    process, reading = make(background=1e-3), [0.7]
    members = [process.propagate(1)[1], sm.KnownState([0.4]), process.propagate(3)[3]]
    weights = np.array([0.2, 0.5, 0.3])
    found = process.advance(sm.MixtureBelief(members, weights), reading)
    each = [process.advance(member, reading) for member in members]
    evidence = np.exp([float(one.log_evidence) for one in each])
    np.testing.assert_allclose(found.log_evidence, np.log(weights @ evidence), rtol=1e-12)
    x = np.linspace(-3, 3, 11)[:, None]
    expected = (weights * evidence) @ np.stack([one.belief.prob(x) for one in each]) / (weights @ evidence)
    np.testing.assert_allclose(found.belief.prob(x), expected, rtol=1e-10)
