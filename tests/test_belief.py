"""Beliefs: mass, moments and marginals against quadrature and against an independent simulation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracles
import sosmarkov as sm
from tables import BRIEF, FAMILIES, TRANSFORMS, make_process


@pytest.mark.parametrize(("family", "coupling"), BRIEF)
def test_mass_moments_and_marginals_match_quadrature(family, coupling):
    belief = make_process(family, coupling, 2, seed=1).propagate(2)[2]
    nodes, weights = FAMILIES[family].rule()
    points, product = oracles.tensor(nodes, weights, 2)
    density = product * np.asarray(belief.prob(points))
    np.testing.assert_allclose(density.sum(), 1.0, rtol=1e-10)
    np.testing.assert_allclose(belief.mass(), 1.0, rtol=1e-12)
    mean = density @ points
    np.testing.assert_allclose(belief.mean(), mean, rtol=1e-9, atol=1e-10)
    covariance = np.einsum("x,xi,xj->ij", density, points, points) - np.outer(mean, mean)
    np.testing.assert_allclose(belief.covariance(), covariance, rtol=1e-8, atol=1e-10)
    on_grid = density.reshape(len(nodes), len(nodes))
    for c in (0, 1):
        marginal = belief.marginal(c)
        expected = on_grid.sum(axis=1 - c) / weights
        found = np.asarray(marginal.prob(nodes[:, None]))
        usable = weights > 1e-12
        np.testing.assert_allclose(found[usable], expected[usable], rtol=1e-8, atol=1e-10 * expected[usable].max())
        np.testing.assert_allclose(marginal.mass(), 1.0, rtol=1e-11)
        np.testing.assert_allclose(marginal.mean(), mean[[c]], rtol=1e-9, atol=1e-10)
        assert np.all(found >= 0)
    swapped = belief.marginal([1, 0])
    chosen = points[:: len(points) // 50]
    np.testing.assert_allclose(swapped.log_prob(chosen[:, ::-1]), belief.log_prob(chosen), rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize("family", ["gaussian", "gaussian-full"])
@pytest.mark.parametrize("name", ["standardize", "affine"])
def test_data_space_answers_under_affine_maps_match_quadrature(family, name):
    transform = TRANSFORMS[name](np.random.default_rng(3), 2)
    belief = make_process(family, "kraus", 2, seed=1, transform=transform).propagate(1)[1]
    centre = np.asarray(belief.mean())
    nodes, weights = oracles.gauss_legendre(-16.0, 16.0, 20)
    points, product = oracles.tensor(nodes, weights, 2)
    density = product * np.asarray(belief.prob(points + centre))
    np.testing.assert_allclose(density.sum(), 1.0, rtol=1e-9)
    np.testing.assert_allclose(density @ points, 0.0, atol=1e-9)
    second = np.einsum("x,xi,xj->ij", density, points, points)
    np.testing.assert_allclose(belief.covariance(), second, rtol=1e-8, atol=1e-10)
    for c in (0, 1):
        marginal = belief.marginal([c])
        expected = density.reshape(len(nodes), -1).sum(axis=1 - c) / weights
        found = marginal.prob(nodes[:, None] + centre[c])
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-11)
        np.testing.assert_allclose(marginal.covariance(), second[[c], [c]][None], rtol=1e-8)


@pytest.mark.parametrize("name", ["gaussian_cdf", "chain"])
def test_moments_under_a_gaussian_cdf_match_quadrature_in_data_space(name):
    transform = TRANSFORMS[name](np.random.default_rng(3), 2)
    belief = make_process("beta", "paired", 2, seed=1, transform=transform).propagate(1)[1]
    nodes, weights = oracles.gauss_legendre(-18.0, 18.0, 24)
    points, product = oracles.tensor(nodes, weights, 2)
    density = product * np.asarray(belief.prob(points))
    mean = density @ points
    np.testing.assert_allclose(belief.mean(), mean, rtol=1e-7, atol=1e-7)
    covariance = np.einsum("x,xi,xj->ij", density, points, points) - np.outer(mean, mean)
    np.testing.assert_allclose(belief.covariance(), covariance, rtol=1e-6, atol=1e-6)
    if name == "gaussian_cdf":
        expected = density.reshape(len(nodes), -1).sum(axis=1) / weights
        np.testing.assert_allclose(belief.marginal(0).prob(nodes[:, None]), expected, rtol=1e-6, atol=1e-10)
    else:
        with pytest.raises(ValueError, match="Use a standardising transform"):
            belief.marginal(0)


def test_six_dimensional_answers_match_a_million_independent_draws():
    # The kernel is simulated without any closed form: pairs (x1, x2) of plain normal draws, weighted by
    # p1(x1) p(x2 | x1) / q(x1, x2), follow the process at k = 2; only densities are evaluated.
    process = make_process("gaussian", "kraus", 6, seed=5, n=6)
    beliefs = process.propagate(2)
    rng = np.random.default_rng(0)
    count, width = 100_000, 1.9
    weights, states = [], []
    for _ in range(10):
        x = width * rng.normal(size=(count, 2, 6))
        log_q = -0.5 * np.sum((x / width) ** 2, axis=(1, 2)) - 12 * np.log(width * np.sqrt(2 * np.pi))
        log_p = np.asarray(process.transition.log_prob(x[:, 1], x[:, 0]))
        weights.append(np.exp(log_p + np.asarray(beliefs[1].log_prob(x[:, 0])) - log_q))
        states.append(x[:, 1])
    w, x = np.concatenate(weights), np.concatenate(states)

    def agrees(values, expected):
        """The weighted mean within 4.5 standard errors, for the whole array of values."""
        estimate = np.tensordot(w, values, axes=1) / w.sum()
        error = np.sqrt(np.tensordot(w**2, (values - estimate) ** 2, axes=1)) / w.sum()
        assert np.all(np.abs(estimate - expected) < 4.5 * error)
        assert np.all(error < 0.05)

    assert abs(np.mean(w) - 1.0) < 4.5 * np.std(w) / np.sqrt(len(w))
    mean, covariance = np.asarray(beliefs[2].mean()), np.asarray(beliefs[2].covariance())
    agrees(x, mean)
    centred = x - mean
    agrees(centred[:, :, None] * centred[:, None, :], covariance)
    nodes, node_weights = oracles.gauss_legendre(-0.7, 0.7, 1)
    points, product = oracles.tensor(nodes, node_weights, 2)
    for kept in ([2, 4], [5, 0]):
        inside = np.all(np.abs(x[:, kept]) < 0.7, axis=1).astype(float)
        agrees(inside, product @ np.asarray(beliefs[2].marginal(kept).prob(points)))


def test_known_state():
    process = make_process("gaussian", "kraus", 2, seed=0)
    belief = sm.KnownState([0.5, -1.0])
    assert float(belief.mass()) == 1.0
    np.testing.assert_array_equal(belief.mean(), [0.5, -1.0])
    np.testing.assert_array_equal(belief.covariance(), np.zeros((2, 2)))
    np.testing.assert_array_equal(belief.marginal([1]).mean(), [-1.0])
    with pytest.raises(ValueError, match="known state"):
        belief.log_prob([0.0, 0.0])
    beliefs = process.propagate(1, initial=[0.5, -1.0])
    x = np.random.default_rng(0).normal(size=(20, 2))
    expected = process.transition.log_prob(x, [0.5, -1.0])
    np.testing.assert_allclose(beliefs[1].log_prob(x), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.initial.log_prob(np.zeros(3)), "2 coordinates"),
        (lambda p: p.initial.log_prob([[np.nan, 0.0]]), "finite"),
        (lambda p: p.initial.marginal([2]), "between 0 and 1, got 2"),
        (lambda p: p.initial.marginal([0, 0]), "distinct"),
        (lambda p: p.initial.marginal([]), "at least one coordinate"),
        (lambda p: p.propagate(-1), "whole number >= 0 for steps, got -1"),
        (lambda p: p.belief_at(True), "whole number"),
        (lambda p: p.propagate(1, initial=[0.0]), "over 2 coordinates, got 1"),
        (lambda p: p.propagate(1, initial=[0.0, np.nan]), "finite"),
        (
            lambda p: p.propagate(1, initial=make_process("gaussian", "kraus", 2, seed=9).initial),
            "another process",
        ),
        (lambda p: p.propagate(1, initial=p.initial.marginal([1, 0])), "MarginalBelief"),
        (
            lambda p: sm.MarkovProcess(p.transition, sm.SquaredForm.beta([1.0, 1.0], [1.0, 1.0])),
            "same family",
        ),
        (
            lambda p: sm.MarkovProcess(p.transition, sm.LinearForm(p.transition.psi, np.ones(5))),
            "a squared form",
        ),
        (
            lambda p: sm.MarkovProcess(p.transition, sm.SquaredForm.gaussian([1e9, 0.0], [1.0, 1.0])),
            "overlaps",
        ),
    ],
)
def test_bad_questions_are_refused(ask, message):
    process = make_process("gaussian", "kraus", 2, seed=0)
    with pytest.raises(ValueError, match=message):
        ask(process)


def test_known_state_outside_the_domain_is_refused():
    process = make_process("beta", "paired", 1, seed=0)
    with pytest.raises(ValueError, match="inside the domain"):
        process.propagate(1, initial=[1.5])


def test_beliefs_can_be_traced_and_differentiated():
    process = make_process("gaussian", "kraus", 1, seed=0)

    @jax.jit
    def log_density_after(state):
        return process.propagate(3, initial=sm.KnownState(state))[3].log_prob(jnp.zeros(1))

    at = jnp.asarray([0.3])
    gradient = jax.grad(log_density_after)(at)[0]
    step = 1e-5
    expected = (log_density_after(at + step) - log_density_after(at - step)) / (2 * step)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)
