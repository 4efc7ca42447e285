"""Beliefs against quadrature (propagation, mass, moments, marginals) and against an independent simulation."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracles
import sosmarkov as sm
from tables import COVER, EXHAUSTIVE, FAMILIES, TRANSFORMS, make_parts, make_process, make_start

TARGETS = 5


class Answers(NamedTuple):
    """What one process says, every array from one program."""

    belief: sm.Belief
    marginals: list[sm.Belief]
    densities: jax.Array  # of the beliefs at k = 0, ..., 3, at all points
    kernel: jax.Array
    mass: jax.Array
    mean: jax.Array
    covariance: jax.Array


@eqx.filter_jit
def ask(parts, start, points, targets):
    process = sm.MarkovProcess(sm.Transition(*parts), start)
    beliefs = process.propagate(3)
    later = jax.lax.map(lambda C: process.transition.belief(C).prob(points), beliefs.coefficients)
    belief = beliefs[2]
    return Answers(
        belief,
        [belief.marginal(kept) for kept in (*range(belief.dim), [*range(belief.dim)][::-1])],
        jnp.concatenate([process.initial.prob(points)[None], later]),
        jnp.exp(process.transition.log_prob(targets[:, None], points)),
        belief.mass(),
        belief.mean(),
        belief.covariance(),
    )


@eqx.filter_jit
def ask_marginal(marginal, points):
    return marginal.prob(points), marginal.mass(), marginal.mean(), marginal.covariance()


class Case(NamedTuple):
    """The answers of one kind of process, and the rule to check them with."""

    dim: int
    nodes: np.ndarray
    weights: np.ndarray
    points: np.ndarray
    product: np.ndarray
    found: Answers


DIMENSIONS = (1, 2) if EXHAUSTIVE else (2,)


@pytest.fixture(
    scope="module",
    params=[(*names, d) for names in COVER for d in DIMENSIONS],
    ids=lambda case: "-".join(map(str, case)),
)
def case(request):
    family, coupling, d = request.param
    nodes, weights = FAMILIES[family].rule()
    points, product = oracles.tensor(nodes, weights, d)
    # Targets stand among the points: one evaluation of the beliefs serves both sides of the equation.
    targets = FAMILIES[family].points(np.random.default_rng(0), TARGETS, d) * 0.5 + 0.05
    parts, start = make_parts(family, coupling, d, seed=2), make_start(family, coupling, d, seed=2)
    everywhere = jnp.asarray(np.concatenate([points, targets]))
    return Case(d, nodes, weights, points, product, ask(parts, start, everywhere, jnp.asarray(targets)))


def test_chapman_kolmogorov_by_quadrature(case):
    densities = np.asarray(case.found.densities)
    kernel = np.asarray(case.found.kernel)[:, :-TARGETS]
    for k in range(3):
        expected = kernel @ (case.product * densities[k, :-TARGETS])
        np.testing.assert_allclose(densities[k + 1, -TARGETS:], expected, rtol=1e-10)


def test_mass_and_moments_match_quadrature(case):
    density = case.product * np.asarray(case.found.densities)[2, :-TARGETS]
    np.testing.assert_allclose(density.sum(), 1.0, rtol=1e-10)
    np.testing.assert_allclose(case.found.mass, 1.0, rtol=1e-12)
    mean = density @ case.points
    np.testing.assert_allclose(case.found.mean, mean, rtol=1e-9, atol=1e-10)
    covariance = np.einsum("x,xi,xj->ij", density, case.points, case.points) - np.outer(mean, mean)
    np.testing.assert_allclose(case.found.covariance, covariance, rtol=1e-8, atol=1e-10)


def test_marginals_match_quadrature(case):
    density = case.product * np.asarray(case.found.densities)[2, :-TARGETS]
    mean = density @ case.points
    on_grid = density.reshape((len(case.nodes),) * case.dim)
    usable = case.weights > 1e-12
    *single, backwards = case.found.marginals
    for c, marginal in enumerate(single):
        others = tuple(axis for axis in range(case.dim) if axis != c)
        expected = (on_grid.sum(axis=others) / case.weights)[usable]
        prob, mass, marginal_mean, _ = ask_marginal(marginal, jnp.asarray(case.nodes[:, None]))
        found = np.asarray(prob)
        np.testing.assert_allclose(found[usable], expected, rtol=1e-8, atol=1e-10 * expected.max())
        np.testing.assert_allclose(mass, 1.0, rtol=1e-11)
        np.testing.assert_allclose(marginal_mean, mean[[c]], rtol=1e-9, atol=1e-10)
        assert np.all(found >= 0)
    chosen = slice(None, None, len(case.points) // 50)
    swapped = backwards.log_prob(case.points[chosen, ::-1])
    straight = np.log(np.asarray(case.found.densities)[2, :-TARGETS][chosen])
    np.testing.assert_allclose(swapped, straight, rtol=1e-7, atol=1e-6)


@eqx.filter_jit
def ask_in_data_space(parts, transform, start, points):
    """Answers of p_1, densities at points around its mean."""
    belief = sm.MarkovProcess(sm.Transition(*parts, transform), start).propagate(1)[1]
    return belief, belief.mean(), belief.covariance(), belief.prob(points + belief.mean()[None])


@pytest.mark.parametrize(
    ("family", "name"),
    [("gaussian", "standardize"), ("gaussian", "affine"), ("gaussian-full", "affine")]
    + [("gaussian-full", "standardize")] * EXHAUSTIVE,
)
def test_data_space_answers_under_affine_maps_match_quadrature(family, name):
    transform = TRANSFORMS[name](np.random.default_rng(3), 2)
    parts, start = make_parts(family, "kraus", 2, seed=1), make_start(family, "kraus", 2, seed=1)
    nodes, weights = oracles.gauss_legendre(-16.0, 16.0, 16, 22)
    points, product = oracles.tensor(nodes, weights, 2)
    belief, centre, covariance, prob = ask_in_data_space(parts, transform, start, jnp.asarray(points))
    density = product * np.asarray(prob)
    np.testing.assert_allclose(density.sum(), 1.0, rtol=1e-9)
    np.testing.assert_allclose(density @ points, 0.0, atol=1e-9)
    second = np.einsum("x,xi,xj->ij", density, points, points)
    np.testing.assert_allclose(covariance, second, rtol=1e-8, atol=1e-10)
    for c in (0, 1):
        expected = density.reshape(len(nodes), -1).sum(axis=1 - c) / weights
        at = jnp.asarray(nodes[:, None] + np.asarray(centre)[c])
        found, _, mean, variance = ask_marginal(belief.marginal([c]), at)
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-11)
        np.testing.assert_allclose(mean, np.asarray(centre)[[c]], rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(variance, second[c, c][None, None], rtol=1e-8)


@pytest.mark.parametrize("name", ["gaussian_cdf", "chain"])
def test_moments_under_a_gaussian_cdf_match_quadrature_in_data_space(name):
    transform = TRANSFORMS[name](np.random.default_rng(3), 2)
    nodes, weights = oracles.gauss_legendre(-18.0, 18.0, 24)
    points, product = oracles.tensor(nodes, weights, 2)
    parts, start = make_parts("beta", "paired", 2, seed=1), make_start("beta", "paired", 2, seed=1)
    belief, centre, found, prob = ask_in_data_space(parts, transform, start, jnp.asarray(points))
    points = points + np.asarray(centre)
    density = product * np.asarray(prob)
    mean = density @ points
    np.testing.assert_allclose(centre, mean, rtol=1e-7, atol=1e-7)
    covariance = np.einsum("x,xi,xj->ij", density, points, points) - np.outer(mean, mean)
    np.testing.assert_allclose(found, covariance, rtol=1e-6, atol=1e-6)
    if name == "gaussian_cdf":
        expected = density.reshape(len(nodes), -1).sum(axis=1) / weights
        at = nodes[:, None] + np.asarray(centre)[0]
        np.testing.assert_allclose(belief.marginal(0).prob(at), expected, rtol=1e-6, atol=1e-10)
    else:
        with pytest.raises(ValueError, match="Use a standardising transform"):
            belief.marginal(0)


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
