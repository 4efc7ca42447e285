"""Blocks of several coordinates under transforms, draws, and what is refused."""

import jax
import numpy as np
import pytest
import scipy.stats
from network_cases import M, N, network_of

import sosmarkov as sm
from oracles import gauss_legendre, tensor
from sosmarkov.networks import model


@pytest.fixture(scope="module")
def network():
    """A block of two coordinates and a child of one, standardised, with a background."""
    rng = np.random.default_rng(3)

    def basis(size, dim):
        return sm.GaussianBasis(rng.normal(scale=0.7, size=(size, dim)), rng.uniform(0.7, 1.2, size=(size, dim)))

    conditionals = {
        "u": sm.Conditional(basis(M, 2), rng.normal(size=(M, 2)), background=0.01),
        "v": sm.Conditional(basis(M, 1), rng.normal(size=(N, M, 2)), {"u": basis(N, 2)}, background=0.01),
    }
    transforms = {"u": sm.Standardize([1.0, -2.0], [0.5, 2.0]), "v": sm.Standardize([3.0], [1.5])}
    return sm.BayesianNetwork(conditionals, transforms)


def test_a_block_of_two_coordinates_is_integrated_in_data_space(network):
    nodes, weights = gauss_legendre(-6.0, 6.0, 1, 48)
    points, product = tensor(nodes, weights, 2)
    u, u_weights = np.array([1.0, -2.0]) + np.array([0.5, 2.0]) * points, product * 0.5 * 2.0
    v, v_weights = 3.0 + 1.5 * nodes, 1.5 * weights
    joint = np.asarray(network.prob(np.concatenate(
        [np.repeat(u, len(v), axis=0), np.tile(v, len(u))[:, None]], axis=1
    ))).reshape(len(u), len(v))  # fmt: skip
    np.testing.assert_allclose(u_weights @ joint @ v_weights, 1.0, atol=1e-8)
    np.testing.assert_allclose(network.marginal("v").prob(v[:, None]), u_weights @ joint, atol=1e-8)
    share = u_weights * (joint @ v_weights)
    mean = share @ u
    np.testing.assert_allclose(network.marginal("u").mean(), mean, atol=1e-7)
    np.testing.assert_allclose(
        network.marginal("u").covariance(), (u - mean).T @ (share[:, None] * (u - mean)), atol=1e-7
    )
    np.testing.assert_allclose(network.mean(), [*mean, (u_weights @ joint) @ (v_weights * v)], atol=1e-7)
    box, box_weights = gauss_legendre(-0.5, 1.0, 1, 24)
    grid = np.stack(np.meshgrid(1.0 + 0.5 * box, -2.0 + 2.0 * nodes, indexing="ij"), axis=-1)
    expected = 0.5 * box_weights @ np.asarray(network.marginal("u").prob(grid)) @ (2.0 * weights)
    np.testing.assert_allclose(network.probability({"u": ([0.75, -np.inf], [1.5, np.inf])}), expected, atol=1e-8)
    assert network.log_prob(np.zeros((0, 3))).shape == (0,)


def test_draws_follow_the_exact_distributions(network):
    found = network.sample(jax.random.key(0), (40, 50))
    assert {name: values.shape for name, values in found.items()} == {"u": (40, 50, 2), "v": (40, 50, 1)}
    cdf = network.marginal("v").cdf
    assert scipy.stats.kstest(np.ravel(found["v"]), lambda x: np.asarray(cdf(x[:, None]))).pvalue > 1e-3
    mean, covariance = np.asarray(network.mean()), np.asarray(network.covariance())
    rows = np.concatenate([values.reshape(-1, values.shape[-1]) for values in found.values()], axis=1)
    assert np.all(np.abs(rows.mean(axis=0) - mean) < 4.0 * np.sqrt(np.diag(covariance) / len(rows)))
    np.testing.assert_allclose(
        np.corrcoef(rows.T), covariance / np.sqrt(np.outer(*[np.diag(covariance)] * 2)), atol=0.1
    )


def test_draws_given_a_child_follow_the_exact_conditional(network):
    given = network.condition({"v": 2.0})
    found = given.sample(jax.random.key(1), 2000)["u"]
    for c, ends in ((0, [[0.9, -np.inf], [np.inf, np.inf]]), (1, [[-np.inf, -1.0], [np.inf, np.inf]])):
        expected = float(given.probability(*ends))
        share = np.mean(found[:, c] > ends[0][c])
        assert abs(share - expected) < 4.0 * np.sqrt(expected * (1.0 - expected) / 2000)


def test_draws_of_inner_blocks_use_those_drawn_before():
    diamond = network_of("diamond")
    given = diamond.condition({"d": 0.4, "a": -0.3})
    found = given.sample(jax.random.key(2), 2000)
    rows = np.concatenate([found["b"], found["c"]], axis=1)
    covariance = np.asarray(given.covariance())
    assert np.all(np.abs(rows.mean(axis=0) - given.mean()) < 4.0 * np.sqrt(np.diag(covariance) / 2000))
    expected = covariance / np.sqrt(np.outer(*[np.diag(covariance)] * 2))
    np.testing.assert_allclose(np.corrcoef(rows.T), expected, atol=0.1)


def conditional(parents=(), n=N, m=M, rank=2, dim=1):
    phi = {
        name: sm.GaussianBasis(np.zeros((n, dim)), np.arange(1.0, n + 1)[:, None] * np.ones(dim)) for name in parents
    }
    psi = sm.GaussianBasis(np.zeros((m, dim)), np.arange(1.0, m + 1)[:, None] * np.ones(dim))
    return sm.Conditional(psi, np.random.default_rng(0).normal(size=(*[n] * len(phi), m, rank)), phi)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ({"x": ["y"], "y": ["x"]}, "without cycles, got (x -> y -> x|y -> x -> y)"),
        ({"y": ["x"], "x": []}, "'y' before its parent 'x'. An order that fits is \\['x', 'y'\\]"),
        ({"x": [], "y": ["u"]}, "parents of 'y' among the blocks \\['x', 'y'\\], got \\['u'\\]"),
    ],
)
def test_graphs_that_are_none_are_refused(blocks, message):
    with pytest.raises(ValueError, match=message):
        sm.BayesianNetwork({name: conditional(parents) for name, parents in blocks.items()})


def test_parts_that_do_not_fit_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="m \\* R >= n_1 ... n_P .* rank R of at least 2"):
        conditional(["x"], n=4, m=3, rank=1)
    with pytest.raises(ValueError, match="'y' in 'x' with 1 coordinates"):
        sm.BayesianNetwork({"x": conditional(), "y": conditional(["x"], dim=2)})
    with pytest.raises(ValueError, match="factors of parents among"):
        sm.Conditional(conditional().psi, np.ones((M, 1)), factors={"x": np.eye(2)})
    with pytest.raises(ValueError, match="transforms of blocks among"):
        sm.BayesianNetwork({"x": conditional()}, {"y": sm.Identity(1)})
    with pytest.raises(ValueError, match="transform of 1 coordinates for block 'x', got 2"):
        sm.BayesianNetwork({"x": conditional()}, {"x": sm.Identity(2)})
    monkeypatch.setattr(model, "MOST_ENTRIES", 17)
    with pytest.raises(ValueError, match="integrals over block 'x', got 6 x 3 = 1.8e\\+01"):
        sm.BayesianNetwork({"x": conditional(), "y": conditional(["x"])})
    monkeypatch.setattr(model, "MOST_ENTRIES", 30)
    with pytest.raises(ValueError, match="products of coefficients for block 'y', got \\(2 x 3\\)\\^2 = 3.6e\\+01"):
        sm.BayesianNetwork({"x": conditional(), "y": conditional(["x"])})


def test_questions_that_make_no_sense_are_refused():
    chain = network_of("chain")
    for ask, message in [
        (lambda: chain.marginal("x"), "a block among \\['a', 'b', 'c'\\], got 'x'"),
        (lambda: chain.marginal(["a", "a"]), "each block once"),
        (lambda: chain.marginal([]), "at least one block"),
        (lambda: chain.marginal("a").marginal("b"), "among those left, \\['a'\\], got \\['b'\\]"),
        (lambda: chain.condition({}), "mapping from names to values"),
        (lambda: chain.condition({"a": 0.0, "b": 0.0, "c": 0.0}), "at least one of"),
        (lambda: chain.condition({"a": [[0.0], [1.0]]}), "one value of 'a'"),
        (lambda: chain.log_prob({"a": 0.0}), "values of the blocks \\['a', 'b', 'c'\\], got them of \\['a'\\]"),
        (lambda: chain.log_prob(np.zeros((4, 2))), "3 coordinates on the last axis"),
        (lambda: chain.probability({"a": 0.0}), "pair \\(lower, upper\\) for block 'a'"),
        (lambda: chain.probability({"a": (1.0, 0.0)}), "lower <= upper"),
    ]:
        with pytest.raises(ValueError, match=message):
            ask()
