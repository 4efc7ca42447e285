"""Learning from readings: gradients by finite differences, evidence by a filter on nodes, Kalman and AR beside it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import oracles
import sosmarkov as sm
from sosmarkov.data.dataset import Paths, from_paths
from sosmarkov.factor.readings import Likelihoods
from sosmarkov.learning.factor import latent
from sosmarkov.learning.factor.objectives import Parameters, realise
from sosmarkov.learning.factor.readings import WORTH, FilterLoss, ReadParameters, gain_of_a_mixture

PERIOD, KEPT, NOISE, READ = 5, 0.8, 0.6, 0.4
TURN = 2 * np.pi / PERIOD
A = KEPT * np.array([[np.cos(TURN), -np.sin(TURN)], [np.sin(TURN), np.cos(TURN)]])
SPREAD = NOISE**2 / (1 - KEPT**2)


def simulate(count, length, seed):
    """Readings of the first coordinate of x' = A x + noise, stationary, shape (count, length, 1)."""
    rng = np.random.default_rng(seed)
    x = [np.sqrt(SPREAD) * rng.normal(size=(count, 2))]
    for _ in range(length - 1):
        x.append(x[-1] @ A.T + NOISE * rng.normal(size=(count, 2)))
    x = np.stack(x, axis=1)
    return x, x[..., :1] + READ * rng.normal(size=(*x.shape[:2], 1))


def autoregressive(readings, new, order):
    """Mean log-density of new readings given `order` before them, by least squares."""

    def design(o):
        rows = [o[:, order - 1 - j : o.shape[1] - 1 - j, 0].ravel() for j in range(order)]
        return np.stack([*rows, np.ones_like(rows[0])], axis=1), o[:, order:, 0].ravel()

    D, y = design(readings)
    slope = np.linalg.lstsq(D, y, rcond=None)[0]
    variance = np.var(y - D @ slope)
    D, y = design(new)
    return np.mean(-0.5 * ((y - D @ slope) ** 2 / variance + np.log(2 * np.pi * variance)))


def kalman(model, readings):
    """Log p(o_0, ..., o_(T-1)) of one sequence, from its joint normal distribution: no recursion."""
    length, dim = len(readings), len(model.a)
    mean, cov = [model.m], np.zeros((length, length, dim, dim))
    cov[0, 0] = model.P
    for k in range(1, length):
        mean.append(model.A @ mean[-1] + model.a)
        for j in range(k):
            cov[k, j] = model.A @ cov[k - 1, j]
            cov[j, k] = cov[k, j].T
        cov[k, k] = model.A @ cov[k - 1, k - 1] @ model.A.T + model.Q
    total = np.einsum("a,ijab,b->ij", model.C[0], cov, model.C[0]) + model.R[0] * np.eye(length)
    away = readings[:, 0] - np.asarray(mean) @ model.C[0] - model.c[0]
    there = ~np.isnan(away)
    total, away = total[np.ix_(there, there)], away[there]
    return -0.5 * (away @ np.linalg.solve(total, away) + np.linalg.slogdet(2 * np.pi * total)[1])


def truth():
    return latent.Linear(
        A, np.zeros(2), NOISE**2 * np.eye(2), np.array([[1.0, 0.0]]), np.zeros(1), np.array([READ**2]), np.zeros(2),
        SPREAD * np.eye(2),
    )  # fmt: skip


@pytest.fixture(scope="module")
def small():
    """One coordinate, three functions and a background, three readings of two sequences, one of them missing."""
    rng = np.random.default_rng(0)
    basis = sm.FullGaussianBasis(rng.normal(size=(3, 1)), 0.5 + rng.random((3, 1, 1)))
    coupling = sm.Kraus(rng.normal(size=(4, 4, 2)), background=1e-2)
    process = Parameters(basis, basis, coupling, basis, jnp.asarray(rng.normal(size=(3, 2))))
    parameters = ReadParameters(process, sm.LinearSensor([[0.8]], [0.5], offset=0.1), sm.Identity(1))
    readings = rng.normal(size=(2, 3, 1))
    readings[1, 1] = np.nan
    return parameters, (jnp.asarray(rng.normal(size=(2, 3, 1))), jnp.ones((2, 3)), jnp.asarray(readings))


@pytest.fixture(scope="module")
def graded(small):
    return eqx.filter_jit(eqx.filter_value_and_grad(FilterLoss(True, True)))


def test_the_gradient_of_scores_and_evidence_is_that_of_finite_differences(small, graded):
    parameters, batch = small
    _, gradient = graded(parameters, batch)
    rng = np.random.default_rng(1)
    arrays, static = eqx.partition(parameters, eqx.is_inexact_array)
    trained = (arrays.process, arrays.sensor)
    way = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), trained)

    def at(t):
        moved = jax.tree.map(lambda leaf, step: leaf + t * step, trained, way)
        return float(graded(eqx.combine(ReadParameters(*moved, arrays.transform), static), batch)[0])

    slope = sum(
        float(jnp.sum(a * b))
        for a, b in zip(jax.tree.leaves((gradient.process, gradient.sensor)), jax.tree.leaves(way), strict=True)
    )
    h = 1e-4
    expected = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
    np.testing.assert_allclose(slope, expected, rtol=1e-7)
    assert abs(slope) > 1e-2


def test_scores_and_evidence_are_those_of_a_filter_on_nodes(small, graded):
    parameters, (states, present, readings) = small
    nodes, weights = oracles.gauss_legendre(-45.0, 45.0, 45, 12)
    transition, start = realise(parameters.process)
    process = sm.MarkovProcess(transition, start)
    kernel = np.exp(np.asarray(process.transition.log_prob(nodes[None, :, None], nodes[:, None, None])))

    def normal(o, x):
        return np.exp(-0.5 * ((o - 0.8 * x - 0.1) / 0.5) ** 2) / (0.5 * np.sqrt(2 * np.pi))

    evidence, score = [], []
    for y, o in zip(np.asarray(states)[..., 0], np.asarray(readings)[..., 0], strict=True):
        belief = np.exp(np.asarray(process.initial.log_prob(nodes[:, None])))
        here = np.exp(float(process.initial.log_prob(y[:1])))
        for k in range(3):
            if k > 0:
                at = np.exp(np.asarray(process.transition.log_prob(y[k : k + 1], nodes[:, None])))
                here, belief = (weights * belief) @ at, (weights * belief) @ kernel
            likelihood = np.ones_like(nodes) if np.isnan(o[k]) else normal(o[k], nodes)
            mass = np.sum(weights * belief * likelihood)
            score.append(np.log(here * (1.0 if np.isnan(o[k]) else normal(o[k], y[k])) / mass))
            evidence += [] if np.isnan(o[k]) else [np.log(mass)]
            belief = belief * likelihood / mass
    found, _ = graded(parameters, (states, present, readings))
    np.testing.assert_allclose(float(found), -np.mean(evidence) - np.mean(score), rtol=1e-9)


def test_the_linear_start_has_kalmans_evidence_and_improves_it():
    _, readings = simulate(60, 24, 0)
    readings[:10, 4:6] = np.nan
    model = latent.canonical_start(readings, 2, None)
    evidences = [latent.smoothed(model, readings).log_evidence]
    np.testing.assert_allclose(evidences[0], sum(kalman(model, one) for one in readings), rtol=1e-9)
    for _ in range(3):
        model = latent.improved(model, readings, free=True)
        evidences.append(latent.smoothed(model, readings).log_evidence)
    assert np.all(np.diff(evidences) > 0)


def test_a_linear_sensor_reads_what_its_formula_says():
    rng = np.random.default_rng(2)
    H, std, offset, x = rng.normal(size=(3, 2)), np.array([0.4, 0.7, 0.9]), rng.normal(size=3), rng.normal(size=2)
    sensor, transform = sm.LinearSensor(H, std, offset=offset), sm.Standardize([0.3, -1.0], [2.0, 0.5])
    basis = sm.FullGaussianBasis(np.zeros((1, 2)), np.eye(2)[None])
    for o in (np.array([0.3, -1.0, 0.8]), np.array([np.nan, 0.4, np.nan])):
        found = Likelihoods(sensor, transform, basis).log_prob(jnp.asarray(o), jnp.asarray(x))
        expected = scipy.stats.norm(H @ x + offset, std).logpdf(o)
        np.testing.assert_allclose(float(found), np.nansum(expected), rtol=1e-10)


def test_a_bent_sensor_is_told_from_a_straight_one():
    rng = np.random.default_rng(3)
    y = rng.normal(size=(400, 2, 1))
    gains = []
    for o in (2.0 * y + 1.0, np.abs(y)):
        data = from_paths(Paths(y, np.ones((400, 2)), o + 0.2 * rng.normal(size=y.shape)))
        training, held_out = data.split(0.2, 0)
        gains.append(gain_of_a_mixture(training, held_out, 0))
    assert gains[0] < 0.1
    assert gains[1] > 2 * WORTH


@pytest.fixture(scope="module")
def fitted():
    _, readings = simulate(150, 16, 0)
    readings[:10, 4:6] = np.nan
    return sm.fit(observations=readings, dim=2, size=6, steps=100, progress=False), readings


def test_readings_alone_give_the_period_and_nearly_kalmans_evidence(fitted):
    process, training = fitted
    _, new = simulate(60, 16, 1)
    found = float(jnp.mean(jax.vmap(lambda o: process.filter(o).log_evidence)(jnp.asarray(new)))) / 16
    best = np.mean([kalman(truth(), one) for one in new]) / 16
    assert best - 0.1 < found < best + 0.02
    assert found > autoregressive(training[10:], new, 1)
    spectrum = process.spectrum()
    turning = spectrum[np.abs(spectrum.imag) > 1e-6][0]
    assert abs(2 * np.pi / abs(np.angle(turning)) - PERIOD) < 0.5
    phases = {phase.name: phase for phase in process.history.phases}
    assert list(phases) == ["transitions", "initial", "evidence"]
    assert np.all(phases["evidence"].held_out[0] > phases["evidence"].best)


def test_nonsense_is_refused():
    _, readings = simulate(20, 12, 0)
    for options, message in (
        ({}, "Expected dim"),
        ({"dim": 0}, "dim"),
        ({"dim": 2, "sensor": "joint"}, "sensor 'linear'"),
        ({"dim": 2, "sensor": sm.IntervalSensor([0], width=0.1)}, "Gaussian sensor of linear"),
        ({"dim": 2, "basis": "gaussian"}, "for: basis"),
        ({"dim": 2, "inputs": np.zeros((20, 11, 1))}, "for: inputs"),
        ({"dim": 9}, "at least 27 readings"),
    ):
        with pytest.raises(ValueError, match=message):
            sm.fit(observations=readings, progress=False, **options)
    with pytest.raises(ValueError, match="Cut a long one"):
        sm.fit(observations=readings[:1], dim=2, progress=False)
