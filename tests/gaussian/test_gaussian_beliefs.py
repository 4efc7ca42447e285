"""Gaussian mixtures asked everything a belief answers: against scipy, quadrature and definitions."""

import itertools
import tempfile

import jax
import mpmath
import numpy as np
import pytest
from kalman import covariance, moments
from scipy import stats
from scipy.optimize import brentq
from scipy.special import ndtr

import oracles
import sosmarkov as sm

RNG = np.random.default_rng(5)
WEIGHTS = np.array([0.5, 0.3, 0.2])


def make(d, m=3, seed=0):
    rng = np.random.default_rng(seed)
    means, P = 1.5 * rng.normal(size=(m, d)), np.array([covariance(rng, d) for _ in range(m)])
    return sm.GaussianBelief(means, P, WEIGHTS[:m]), means, P


def density(belief, x):
    parts = zip(belief.weights, belief.means, belief.covariances, strict=True)
    return sum(w * stats.multivariate_normal(m, P).pdf(x) for w, m, P in parts)


@pytest.mark.parametrize("d", [1, 2, 4])
def test_densities_are_scipys(d):
    belief, _, _ = make(d)
    x = 2.0 * RNG.normal(size=(3, 5, d))
    np.testing.assert_allclose(belief.prob(x), density(belief, x), rtol=1e-12)
    assert type(belief.log_prob(x)) is np.ndarray
    # Far off there are digits of the logarithm, where the density has none.
    far = belief.log_prob(np.full(d, 200.0))
    parts = zip(belief.means, belief.covariances, strict=True)
    each = [stats.multivariate_normal(m, P).logpdf(np.full(d, 200.0)) for m, P in parts]
    np.testing.assert_allclose(far, max(each + np.log(WEIGHTS)), rtol=1e-12)
    assert belief.log_prob(np.full(d, 1e200)) == -np.inf


@pytest.mark.parametrize("d", [1, 2])
def test_moments_against_quadrature(d):
    belief, means, P = make(d)
    nodes, weights = oracles.tensor(*oracles.gauss_legendre(-14, 14, 40, 12), d)
    p = weights * density(belief, nodes).reshape(-1)
    for powers in itertools.product(range(5), repeat=d):
        if 0 < sum(powers) <= 4:
            expected = p @ np.prod(nodes**powers, axis=1)
            np.testing.assert_allclose(belief.moment(powers), expected, rtol=1e-11, atol=1e-12)
    mean, cov = moments(WEIGHTS, means, P)
    np.testing.assert_allclose(belief.mean(), mean, rtol=1e-13)
    np.testing.assert_allclose(belief.covariance(), cov, rtol=1e-12)
    assert belief.mass() == pytest.approx(1.0, abs=1e-15)


def test_marginals_and_conditionals_by_bayes_rule():
    belief, _, _ = make(3)
    marginal = belief.marginal([2, 0])
    x, w = oracles.gauss_legendre(-14, 14, 40, 12)
    for at in RNG.normal(size=(3, 2)):
        states = np.stack([np.full(len(x), at[1]), x, np.full(len(x), at[0])], axis=1)
        np.testing.assert_allclose(marginal.prob(at), w @ belief.prob(states), rtol=1e-11)
    found = belief.condition({1: 0.3, 2: -0.4})
    states = np.stack([x, np.full(len(x), 0.3), np.full(len(x), -0.4)], axis=1)
    expected = belief.prob(states) / (w @ belief.prob(states))
    np.testing.assert_allclose(found.prob(x[:, None]), expected, rtol=1e-11, atol=1e-30)
    assert found.columns == ("x0",)
    assert belief.with_columns(["a", "b", "c"]).condition({"b": 0.3}).columns == ("a", "c")


def test_boxes_of_one_coordinate_keep_their_digits():
    belief = sm.GaussianBelief([0.0], [[1.0]])
    mpmath.mp.dps = 50
    ends = [(8.0, 9.0), (-np.inf, -30.0), (-1e-9, 1e-9), (-40.0, 0.5), (10.0, np.inf), (1.0, 1.0 + 1e-8), (-37, -36.9)]
    for low, high in ends:
        near = (-high, -low) if low > 0 else (low, high)
        expected = mpmath.ncdf(near[1]) - mpmath.ncdf(near[0])
        np.testing.assert_allclose(belief.probability([low], [high]), float(expected), rtol=2e-13)
    assert belief.probability([1.0], [1.0]) == 0.0


@pytest.mark.parametrize("d", [2, 3])
def test_boxes_of_several_coordinates(d):
    belief, _, _ = make(d, seed=d)
    low, high = np.full(d, -0.8), np.linspace(0.7, 1.3, d)
    nodes, weights = oracles.tensor(*oracles.gauss_legendre(0.0, 1.0, 4, 16), d)
    inside = low + nodes * (high - low)
    expected = weights @ density(belief, inside) * np.prod(high - low)
    np.testing.assert_allclose(belief.probability(low, high), expected, rtol=1e-11)
    # What is bounded on one side alone, and the other way round.
    half = belief.probability(low, np.full(d, np.inf))
    signs = itertools.product([0, 1], repeat=d)
    total = sum((-1) ** sum(s) * belief.cdf(np.where(s, low, np.inf)) for s in signs)
    np.testing.assert_allclose(half, total, rtol=1e-10)
    boxes = belief.probability(np.stack([low, low - 1]), np.stack([high, high + 1]))
    np.testing.assert_allclose(boxes[0], expected, rtol=1e-11)
    np.testing.assert_allclose(belief.probability({0: (-0.8, 0.7)}), belief.marginal(0).probability(-0.8, 0.7))


@pytest.mark.parametrize("rho", [0.3, -0.9, 0.999, -0.9999999])
def test_quadrants(rho):
    belief = sm.GaussianBelief([0.0, 0.0], [[1.0, rho], [rho, 1.0]])
    np.testing.assert_allclose(belief.cdf([0.0, 0.0]), 0.25 + np.arcsin(rho) / (2 * np.pi), rtol=1e-10)


@pytest.mark.parametrize("r", [(0.5, 0.3, -0.2), (0.99, 0.98, 0.995), (-0.9, 0.5, -0.6), (0.0, 0.5, 0.0)])
def test_octants(r):
    a, b, c = r
    belief = sm.GaussianBelief(np.zeros(3), [[1, a, b], [a, 1, c], [b, c, 1]])
    np.testing.assert_allclose(belief.cdf(np.zeros(3)), 0.125 + np.arcsin(r).sum() / (4 * np.pi), rtol=1e-10)


def test_many_coordinates_say_how_well_they_were_integrated():
    # Equal correlations one half: all of d + 1 exchangeable differences, P(all negative) = 1 / (d + 1).
    d = 5
    belief = sm.GaussianBelief(np.zeros(d), 0.5 * np.eye(d) + 0.5)
    with pytest.warns(sm.EstimateWarning, match="standard error of up to"):
        found = belief.cdf(np.zeros(d))
    np.testing.assert_allclose(found, 1 / 6, rtol=1e-5)
    # Coordinates that do not hang together are closed.
    apart = sm.GaussianBelief(np.zeros(6), np.kron(np.eye(3), [[1, 0.5], [0.5, 1]]))
    np.testing.assert_allclose(apart.cdf(np.zeros(6)), (0.25 + np.arcsin(0.5) / (2 * np.pi)) ** 3, rtol=1e-11)


def test_quantiles_to_the_last_digits():
    belief, means, P = make(2)
    shares = np.array([1e-12, 0.01, 0.4, 0.5, 0.9, 1 - 1e-9])
    found = belief.quantile(shares)
    for c in range(2):
        std = np.sqrt(P[:, c, c])
        for share, x in zip(shares, found[:, c], strict=True):
            below = WEIGHTS @ ndtr((x - means[:, c]) / std)
            above = WEIGHTS @ ndtr(-(x - means[:, c]) / std)
            near = (below, share) if share < 0.5 else (above, 1 - share)
            np.testing.assert_allclose(*near, rtol=1e-12)
    root = brentq(lambda x: WEIGHTS @ ndtr((x - means[:, 1]) / np.sqrt(P[:, 1, 1])) - 0.4, -9, 9, xtol=1e-14)
    np.testing.assert_allclose(belief.quantile(0.4, 1), root, rtol=1e-12)
    one = sm.GaussianBelief([1.0], [[4.0]])
    np.testing.assert_allclose(one.quantile([0.025, 0.975]), stats.norm(1, 2).ppf([0.025, 0.975]), rtol=1e-14)
    # Members far apart: between them the distribution function is flat.
    two = sm.GaussianBelief([[-1e6], [1e6]], [[[1.0]], [[1e-4]]], [0.25, 0.75])
    np.testing.assert_allclose(two.quantile(0.25 - 1e-3), stats.norm(-1e6, 1).ppf(1 - 0.004), rtol=1e-13)
    # As a member of a mixture with others its line serves.
    blend = sm.MixtureBelief([belief, sm.GaussianBelief([0.0, 0.0], np.eye(2))], [0.5, 0.5])
    x = np.asarray(blend.quantile(0.3, 0))
    mass = 0.5 * WEIGHTS @ ndtr((x - means[:, 0]) / np.sqrt(P[:, 0, 0])) + 0.5 * ndtr(x)
    np.testing.assert_allclose(mass, 0.3, rtol=1e-12)


def test_modes_are_the_highest_of_all_hills():
    belief, _, _ = make(2)
    nodes, _ = oracles.tensor(np.linspace(-5, 5, 801), np.ones(801), 2)
    best = nodes[np.argmax(belief.log_prob(nodes))]
    found = belief.mode()
    assert belief.log_prob(found) >= belief.log_prob(best)
    np.testing.assert_allclose(found, best, atol=0.02)
    slope = oracles.finite_difference(lambda x: float(belief.log_prob(x)), found)
    np.testing.assert_allclose(slope, 0.0, atol=1e-8)
    np.testing.assert_array_equal(sm.GaussianBelief([1.0, 2.0], np.eye(2)).mode(), [1.0, 2.0])


def test_draws_by_a_key_a_seed_or_a_generator():
    belief, means, P = make(2)
    x = belief.sample(7, 20_000)
    np.testing.assert_array_equal(x, belief.sample(7, 20_000))
    np.testing.assert_array_equal(x, belief.sample(np.random.default_rng(7), 20_000))
    key = jax.random.key(3)
    np.testing.assert_array_equal(belief.sample(key, (4, 5)), belief.sample(key, (4, 5)))
    assert belief.sample(jax.random.PRNGKey(3), ()).shape == (2,)
    np.testing.assert_array_equal(belief.sample(jax.random.PRNGKey(3), 3), belief.sample(key, 3))
    error = 5 * np.sqrt(np.diag(belief.covariance()) / len(x))
    assert np.all(np.abs(x.mean(0) - belief.mean()) < error)
    # Marginally uniform under its own distribution function.
    below = belief.marginal(0).cdf(x[:, :1])
    assert stats.kstest(below, "uniform").pvalue > 1e-3
    for wrong in (1.5, -1, "a", True, jax.random.split(key, 2), None):
        with pytest.raises(ValueError, match=r"Expected .*key"):
            belief.sample(wrong, 3)


def test_others_questions_go_through():
    belief, _, _ = make(2)
    assert float(belief.entropy(0, 4000).value) == pytest.approx(
        -float(np.mean(belief.log_prob(belief.sample(1, 4000)))), abs=0.1
    )
    assert abs(float(belief.kl(belief, 0, 100).value)) < 1e-12
    low, high = belief.support()
    np.testing.assert_array_equal([low, high], [[-np.inf] * 2, [np.inf] * 2])
    assert belief.parameter_count == 2 + 6 + 9
    assert belief.to_scipy().rvs(3, random_state=0).shape == (3, 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([0.0, 0.0], [[1.0]]), "means of shape"),
        (([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]), "positive definite, got a smallest eigenvalue of -1"),
        (([0.0, 0.0], [[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
        (([[0.0], [1.0]], [[[1.0]], [[1.0]]], [1.0, -1.0]), "weights >= 0"),
        (([np.nan], [[1.0]]), "finite"),
    ],
)
def test_what_is_no_gaussian_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        sm.GaussianBelief(*arguments)


def test_other_forms_refuse_to_start_from_a_gaussian_and_it_from_theirs():
    from tables import make_process

    factor = make_process("gaussian", "kraus-background", 1, seed=3)
    linear = sm.MarkovProcess(sm.GaussianTransition([[0.5]], [0.0], [[1.0]]), [0.0])
    with pytest.raises(ValueError, match="GaussianBelief, which the gaussian form takes"):
        factor.propagate(2, initial=sm.GaussianBelief([0.0], [[1.0]]))
    with pytest.raises(ValueError, match="another process's"):
        linear.propagate(2, initial=factor.initial)


def test_a_saved_process_has_the_same_answers():
    belief, _, _ = make(2)
    process = sm.MarkovProcess(
        sm.GaussianTransition(0.5 * np.eye(2), [0.0, 1.0], np.eye(2), [[1.0], [0.5]]), belief, columns=["a", "b"]
    )
    seasonal = sm.MarkovProcess(sm.GaussianTransition(0.5 * np.ones((3, 1, 1)), [0.0], [[1.0]]), [0.5])
    with tempfile.TemporaryDirectory() as folder:
        for one, inputs in ((process, np.ones((3, 1))), (seasonal, None)):
            one.save(f"{folder}/one.sosm")
            found = sm.load(f"{folder}/one.sosm")
            assert type(found.transition.F) is np.ndarray
            assert found.columns == one.columns
            a, b = (each.propagate(3, inputs=inputs).means() for each in (found, one))
            np.testing.assert_array_equal(a, b)
