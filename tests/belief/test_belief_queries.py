"""What a belief answers, against tensor quadrature that evaluates nothing but its density."""

import jax
import numpy as np
import pytest
from belief_cases import CASES, SHARES, boxes_in, density, every_case, kept, powers_of, solve
from scipy.optimize import brentq

import oracles
import sosmarkov as sm
from tables import EXHAUSTIVE, make_process


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


@pytest.mark.parametrize(
    "names", [("gaussian", "kraus", 1, "identity")] + [("beta", "paired", 1, "identity")] * EXHAUSTIVE
)
def test_quantiles_of_a_line_match_bisection_of_quadrature(names):
    case = solve(names)
    for share, found in zip(SHARES, np.asarray(case.found["marginals"][0][0]), strict=True):

        def away(end, share=share):
            return case.mass_between([[-np.inf]], [[end]], end)[0] - share

        ends = 0.99 * case.room.low + 1e-3, 0.99 * case.room.high
        np.testing.assert_allclose(found, brentq(away, *ends, xtol=1e-13, rtol=1e-13), rtol=1e-9)


# --- where there is no closed form --------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [("gaussian", "kraus", 2, "affine")] + [("gaussian-full", "kraus", 2, "identity")] * EXHAUSTIVE
)
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
