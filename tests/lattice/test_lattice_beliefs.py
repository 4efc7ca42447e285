"""Sums of splines against quadrature of their own density."""

import jax
import numpy as np
import pytest

import sosmarkov as sm
from lattice.lattices import ENDS, belief, broad, grid, line, plane, rule
from sosmarkov.lattice.axis import Axis
from sosmarkov.lattice.beliefs import LatticeBelief
from sosmarkov.lattice.nodes import Nodes


@pytest.mark.parametrize("ends", ENDS)
def test_one_coordinate_against_quadrature(ends):
    b = belief(line(ends))
    x, w = rule(b.nodes.axes[0])
    p = b.prob(x[:, None])
    assert np.all(p >= 0)
    np.testing.assert_allclose(w @ p, 1.0, atol=1e-12)
    np.testing.assert_allclose(b.mean(), [w @ (p * x)], atol=1e-12)
    np.testing.assert_allclose(b.covariance(), [[w @ (p * x**2) - (w @ (p * x)) ** 2]], atol=1e-12)
    for power in range(5):
        np.testing.assert_allclose(b.moment([power]), w @ (p * x**power), rtol=1e-11, atol=1e-12)
    for edge in (-1.0 * b.nodes.axes[0].spacing, 0.0, 1.5):
        np.testing.assert_allclose(b.cdf([edge]), w @ (p * (x < edge)), atol=2e-3)


@pytest.mark.parametrize("ends", ENDS)
def test_boxes_that_end_between_cells(ends):
    b = belief(line(ends))
    u, w = np.polynomial.legendre.leggauss(8)
    edges = np.unique(np.concatenate([[-1.234, 0.777], b.shadow(0).edges()]))
    edges = edges[(edges >= -1.234) & (edges <= 0.777)]
    half = 0.5 * np.diff(edges)[:, None]
    x = 0.5 * (edges[1:] + edges[:-1])[:, None] + half * u
    expected = np.sum(half * w * b.prob(x[..., None]))
    np.testing.assert_allclose(b.probability([-1.234], [0.777]), expected, atol=1e-13)
    assert b.probability(-np.inf, np.inf) == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize("ends", ENDS)
def test_quantiles_are_those_of_the_distribution_function(ends):
    b = belief(line(ends))
    shares = np.array([1e-9, 1e-3, 0.1, 0.5, 0.9, 0.999, 1 - 1e-9])
    x = b.quantile(shares)
    np.testing.assert_allclose(b.cdf(x[:, None]), shares, rtol=1e-12, atol=1e-15)


def test_quantiles_of_shares_that_no_share_of_the_broad_part_reaches():
    nodes = line()
    C = np.zeros(41)
    C[[10, 11, 30]] = 0.25, 0.25, 0.5
    b = LatticeBelief(nodes, broad(nodes), C)
    x = b.quantile([1e-12, 0.25, 0.5, 0.75, 1 - 1e-12])
    np.testing.assert_allclose(b.cdf(x[:, None]), [1e-12, 0.25, 0.5, 0.75, 1 - 1e-12], rtol=1e-6)
    lower, upper = b.support()
    assert lower < x[0] < x[-1] < upper


def test_several_coordinates_against_quadrature():
    b = belief(plane()).with_columns(["angle", "rate"])
    x, w = grid(b.nodes.axes)
    p = w * b.prob(x)
    np.testing.assert_allclose(np.sum(p), 1.0, atol=1e-12)
    np.testing.assert_allclose(b.mean(), p @ x, atol=1e-12)
    away = x - p @ x
    np.testing.assert_allclose(b.covariance(), (p[:, None] * away).T @ away, atol=1e-12)
    np.testing.assert_allclose(b.moment({"angle": 1, "rate": 2}), p @ (x[:, 0] * x[:, 1] ** 2), atol=1e-12)
    own, rate = b.marginal("rate"), np.array([[-0.31], [0.2], [4.0]])
    angle, weights = rule(b.nodes.axes[0])
    for one, density in zip(rate, own.prob(rate), strict=True):
        states = np.stack([angle, np.full_like(angle, one[0])], axis=-1)
        np.testing.assert_allclose(density, weights @ b.prob(states), rtol=1e-12)
        given = b.condition({"rate": one[0]})
        np.testing.assert_allclose(given.prob(angle[:, None]), b.prob(states) / density, rtol=1e-10, atol=1e-14)
        assert given.columns == ("angle",)
    swapped = b.marginal(["rate", "angle"])
    np.testing.assert_allclose(swapped.log_prob(x[:50, ::-1]), b.log_prob(x[:50]), rtol=1e-13)


def test_boxes_of_several_coordinates_and_across_the_cut_of_a_circle():
    b = belief(plane())
    lower, upper = np.array([[-0.4, -np.inf], [-0.4, -1.0]]), np.array([[0.3, 0.2], [0.3, 0.2]])
    x, w = grid(b.nodes.axes)
    found = b.probability(lower, upper)
    inside = [np.all((x > low) & (x < high), axis=1) for low, high in zip(lower, upper, strict=True)]
    np.testing.assert_allclose(found, [w[at] @ b.prob(x[at]) for at in inside], atol=2e-2)
    first = b.probability([0.8, -1.0], [1.0, 0.2]) + b.probability([-1.0, -1.0], [-0.7, 0.2])
    np.testing.assert_allclose(b.probability([0.8, -1.0], [1.3, 0.2]), first, rtol=1e-13)
    np.testing.assert_allclose(b.probability([2.8, -1.0], [3.3, 0.2]), first, rtol=1e-12)
    np.testing.assert_allclose(b.probability([-7.0, -np.inf], [7.0, np.inf]), 1.0, atol=1e-14)
    np.testing.assert_allclose(b.log_prob([2.3, 0.1]), b.log_prob([0.3, 0.1]), rtol=1e-12)


def test_draws_have_the_moments_and_take_any_key():
    b = belief(plane())
    for key in (0, np.random.default_rng(1), jax.random.key(2)):
        x = b.sample(key, (100, 300)).reshape(-1, 2)
        np.testing.assert_allclose(x.mean(axis=0), b.mean(), atol=0.02)
        np.testing.assert_allclose(np.cov(x.T), b.covariance(), atol=0.02)
        assert (
            abs(
                np.mean(np.all((x > [-0.4, -1.0]) & (x < [0.3, 0.2]), axis=1)) - b.probability([-0.4, -1.0], [0.3, 0.2])
            )
            < 0.01
        )
    assert isinstance(b.sample(0, 3), np.ndarray)


@pytest.mark.parametrize("ends", ENDS)
def test_the_mode_is_where_no_state_is_more_likely(ends):
    b = belief(line(ends), seed=3)
    x, _ = rule(b.nodes.axes[0])
    assert b.log_prob(b.mode()) >= np.max(b.log_prob(x[:, None])) - 1e-12


def test_mixtures_of_them_and_others_answer_as_well():
    one, two = belief(line("lower"), 0), belief(line("lower"), 1)
    both = sm.MixtureBelief([one, two], [0.25, 0.75])
    x = np.asarray(both.quantile([0.01, 0.5, 0.99]))
    np.testing.assert_allclose(0.25 * one.cdf(x[:, None]) + 0.75 * two.cdf(x[:, None]), [0.01, 0.5, 0.99], atol=1e-12)
    np.testing.assert_allclose(both.mean(), 0.25 * one.mean() + 0.75 * two.mean(), rtol=1e-13)


def test_shares_that_are_none_are_refused():
    nodes = line()
    with pytest.raises(ValueError, match="add up to one"):
        LatticeBelief(nodes, broad(nodes), np.ones(41))
    with pytest.raises(ValueError, match="41 shares"):
        LatticeBelief(nodes, broad(nodes), np.ones(40) / 40)
    far = Nodes((Axis(0.0, 0.1, 21, "open"), Axis(0.0, 0.1, 20, "open")), np.arange(420))
    corner = LatticeBelief(far, broad(far), np.eye(421)[0])
    with pytest.raises(ValueError, match="has a density"):
        corner.condition({0: 1.9})
