"""Baselines against Kalman's prediction on a linear system, and their parts against what others compute."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import gaussian_kde, multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from sosmarkov.factor.starts import Mixture
from sosmarkov_bench.baselines import bernstein as bnf
from sosmarkov_bench.baselines import flow, gp, grid, make_baseline, mixtures, wsasos
from sosmarkov_bench.baselines.steps import TrueStep
from sosmarkov_bench.protocol import score, simulate_training, training_data, within_reach
from sosmarkov_bench.systems import AdditiveNoise, Gaussian, System, get_system
from tables import EXHAUSTIVE

A, b = np.array([[0.9, 0.3], [-0.2, 0.8]]), np.array([0.2, -0.1])
STEPS = 3
LINEAR = System(
    name="linear",
    coordinates=("a", "b"),
    initial=Gaussian(np.array([0.5, -0.5]), np.array([[0.3, 0.1], [0.1, 0.2]])),
    dynamics=AdditiveNoise(lambda x: A @ x + b, Gaussian.diagonal(np.zeros(2), [0.1, 0.15])),
    train_trajectories=400,
    test_trajectories=600,
    horizon=STEPS,
)


@pytest.fixture(scope="module")
def data():
    return training_data(simulate_training(LINEAR, 0), STEPS, LINEAR)


@pytest.fixture(scope="module")
def test_states():
    return np.asarray(LINEAR.simulate(jax.random.key(1), LINEAR.test_trajectories, STEPS))


@pytest.fixture(scope="module")
def exact(test_states):
    mean, covariance = LINEAR.initial.mean, LINEAR.initial.covariance
    values = []
    for k in range(STEPS + 1):
        values.append(multivariate_normal(mean, covariance).logpdf(test_states[:, k]).mean())
        mean, covariance = A @ mean + b, A @ covariance @ A.T + LINEAR.dynamics.noise.covariance
    return np.array(values)


# What was learned from N = 400 states with p free numbers costs p / (2 N) nats in the mean, and more than three times
# that once in hundreds: a normal (p = 5) 0.006, two of them (p = 11) 0.014. A grid of cells 1/3 wide leaves out a
# variance of 1/108, which costs less than 0.001. Regression of two outputs on 1,200 pairs (p = 8) costs 0.003 a step,
# and its errors add up over three steps; a Bernstein flow has 80 numbers for p(x_0) alone, smooth in most of them.
ROWS = [
    ("gaussian", {}, 0.02),
    ("mixture", {"components": 2}, 0.04),
    ("ekf", {"dynamics": "true", "components": 1}, 0.02),
    ("grid", {"dynamics": "true", "components": 1, "cells": 24, "bound": 4.0}, 0.02),
    ("wsasos", {"dynamics": "true", "components": 1}, 0.02),
    ("ekf", {"points": 1200, "tuned": 200, "components": 1}, 0.03),
    ("bernstein", {"degree": 8, "epochs": 40, "batch_size": 256}, 0.05),
]
# A flow takes as long to compile as all others to run.
FLOW = {"particles": 1000, "layers": 2, "depth": 1, "hidden": 16, "epochs": 20, "batch_size": 100}
# Its particles (p = 5, N = 1,000) cost 0.003; the rest is what 20 epochs of a small network leave.
ROWS += [("flow", FLOW, 0.08)] * EXHAUSTIVE


@pytest.mark.parametrize(("name", "options", "tolerance"), ROWS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_linear_system_is_predicted_as_kalman_does(data, test_states, exact, name, options, tolerance):
    # Flowjax promotes ranks itself.
    with jax.numpy_rank_promotion("allow" if name == "flow" else "raise"):
        fitted = make_baseline(name, **options).fit(data, seed=0)
    assert fitted.last == STEPS
    assert fitted.mass_error() < 1e-12
    assert fitted.parameters > 0
    assert fitted.training_seconds >= 0 <= fitted.propagation_seconds
    found = score(fitted.log_prob, test_states, fitted.last)
    assert found["finite"]
    gaps = np.array(found["log_likelihood"]) - exact
    # Nothing beats the truth but by the noise of what it learned from.
    assert np.all(np.abs(gaps) < tolerance), gaps
    with pytest.raises(ValueError, match="k from 0 to 3"):
        fitted.log_prob(STEPS + 1, test_states[:, 0])


@pytest.mark.skipif(not EXHAUSTIVE, reason="compiles two flows")
def test_seeds_trained_together_are_those_trained_alone(data):
    trainer = make_baseline("flow", **FLOW | {"epochs": 2}).trainer
    with jax.numpy_rank_promotion("allow"):  # flowjax promotes ranks itself
        together, alone = trainer.train_together(data, [0, 1])[1], trainer.train(data, 1)
    assert together.parameters == alone.parameters
    assert together.notes == alone.notes | {"seeds_at_once": 2}
    leaves = [jax.tree.leaves(eqx.filter(trained.model, eqx.is_array)) for trained in (together, alone)]
    for one, other in zip(*leaves, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


def test_baselines_that_learn_the_same_share_a_model(data):
    ekf, cells = (make_baseline(name, points=50, tuned=20, components=1) for name in ("ekf", "grid"))
    assert ekf.trainer == cells.trainer
    assert ekf.trainer != make_baseline("ekf", points=60, tuned=20, components=1).trainer
    trained = make_baseline("ekf", dynamics="true").trainer.timed(data, 0)
    fitted = make_baseline("ekf", dynamics="true").fit(data, 0, trained)
    assert fitted.training_seconds == trained.seconds


def test_gaussian_processes_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(40, 2)), rng.normal(size=40)
    parameters = np.log([0.7, 1.3, 2.0, 0.1])
    kernel = ConstantKernel(2.0, "fixed") * RBF([0.7, 1.3], "fixed")
    reference = GaussianProcessRegressor(kernel, alpha=0.1 + 1e-6, optimizer=None).fit(z, y)
    loss, _ = gp._negative_log_evidence(jnp.asarray(parameters), jnp.asarray(z), jnp.asarray(y))
    expected = -reference.log_marginal_likelihood_value_ - 20.0 * np.log(2.0 * np.pi)
    np.testing.assert_allclose(float(loss) * 40, expected, rtol=1e-9)
    twice = jnp.asarray([parameters, parameters])
    factors, dual = gp._condition(twice, jnp.asarray(z), jnp.asarray([y, 2.0 * y]))
    step = gp.GaussianProcesses(
        jnp.zeros(2), jnp.ones(2), jnp.zeros(2), jnp.ones(2), jnp.asarray(z), jnp.exp(twice[:, :2]),
        jnp.exp(twice[:, 2]), jnp.exp(twice[:, 3]), factors, dual,
    )  # fmt: skip
    x = np.array([0.3, -0.8])
    mean, std = reference.predict(x[None], return_std=True)
    found = step.mean(jnp.asarray(x)) - x  # x' is x plus what was regressed
    np.testing.assert_allclose(found, [mean[0], 2.0 * mean[0]], rtol=1e-8)
    np.testing.assert_allclose(step.covariance(jnp.asarray(x))[0, 0], std[0] ** 2 + 0.1, rtol=1e-6)


def test_masses_of_cells_match_scipy():
    mean, covariance = np.array([0.3, -0.2]), np.array([[0.5, 0.3], [0.3, 0.4]])
    inner = np.linspace(-1.0, 1.0, 5)
    found = grid.cell_masses(mean[None], covariance[None], inner)
    edges = np.array([-20.0, *inner, 20.0])
    cdf = multivariate_normal(mean, covariance).cdf(np.stack(np.meshgrid(edges, edges, indexing="ij"), -1))
    np.testing.assert_allclose(found.reshape(6, 6), np.diff(np.diff(cdf, axis=0), axis=1), atol=2e-5)
    np.testing.assert_allclose(found.sum(), 1.0, atol=1e-12)


def test_mixtures_and_kernel_estimates_match_scipy():
    rng = np.random.default_rng(1)
    cloud, x = rng.normal(size=(70, 3)) * [1.0, 5.0, 0.1], rng.normal(size=(9, 3)) * [1.0, 5.0, 0.1]
    found = mixtures.mixture_log_prob(flow.kernel_estimate(cloud, 0), x)
    np.testing.assert_allclose(found, gaussian_kde(cloud.T).logpdf(x.T), rtol=1e-9)
    covariances = np.stack([np.cov(cloud[:35].T), np.cov(cloud[35:].T)])
    two = Mixture(np.array([0.3, 0.7]), cloud[:2], covariances)
    parts = [w * multivariate_normal(m, c).pdf(x) for w, m, c in zip(*two, strict=True)]
    np.testing.assert_allclose(mixtures.mixture_log_prob(two, x), np.log(sum(parts)), rtol=1e-9)


def test_a_large_mixture_is_the_one_scikit_learn_finds_from_the_same_start():
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.normal(size=(300, 2)) * [1.0, 0.2], [4.0, 1.0] + rng.normal(size=(200, 2)) * [0.5, 0.3]])
    found, expected = mixtures.fit_large_mixture(x, 2, 0, 60), mixtures.fit_mixture(x, 2, 0)
    order = [np.argsort(part.means[:, 0]) for part in (found, expected)]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours[order[0]], theirs[order[1]], rtol=1e-2, atol=1e-3)
    assert abs(found.weights.sum() - 1.0) < 1e-12


def test_a_bound_learns_from_states_no_method_is_granted(data, test_states, exact):
    fitted = make_baseline("mixture", components=1, fresh=3000, rounds=2).fit(data, seed=0)
    gaps = np.array(score(fitted.log_prob, test_states, STEPS)["log_likelihood"]) - exact
    assert np.all(np.abs(gaps) < 0.01), gaps  # p = 5, N = 3,000: 0.0008 in the mean, and the noise of 600 states
    nobody = training_data({"trajectories": test_states}, STEPS)
    with pytest.raises(ValueError, match="a known system to simulate"):
        make_baseline("mixture", fresh=10).fit(nobody, 0)


def test_components_that_would_be_too_many_end_the_beliefs(data):
    fitted = make_baseline("wsasos", dynamics="true", components=1, most=4).fit(data, seed=0)
    assert fitted.last == 2
    assert "after k = 2" in fitted.notes["stopped"]


def test_components_split_where_the_step_bends(data):
    system = System(
        name="bent",
        coordinates=("a", "b"),
        initial=LINEAR.initial,
        dynamics=AdditiveNoise(lambda x: jnp.stack([x[0], x[1] ** 2]), Gaussian.diagonal(np.zeros(2), 0.1)),
        train_trajectories=1, test_trajectories=1, horizon=1,
    )  # fmt: skip
    before = Mixture(np.ones(1), np.array([[0.2, 0.1]]), np.diag([0.5, 0.3])[None])
    directions = np.random.default_rng(2).normal(size=(500, 2))
    found = wsasos.split(TrueStep(system), before, jnp.asarray(directions))
    weights, means, covariances = map(np.asarray, found)
    np.testing.assert_allclose(np.abs(means[0] - means[1]), [0.0, np.sqrt(0.3)], atol=1e-12)
    away = means - means.mean(0)
    np.testing.assert_allclose(means.mean(0), before.means[0], atol=1e-12)
    np.testing.assert_allclose(weights @ (covariances + away[:, :, None] * away[:, None]).reshape(2, -1),
                               before.covariances.ravel(), atol=1e-12)  # fmt: skip


def test_polynomial_beliefs_solve_chapman_and_kolmogorov():
    degree, rng = 3, np.random.default_rng(3)

    def logits(i):
        shapes = (i, degree), (i, degree + 1, degree)
        return bnf.Coefficients(*(jnp.asarray(2.0 * rng.normal(size=shape)) for shape in shapes))

    model = bnf.Polynomials(bnf.GaussianCDF(np.zeros(2), np.ones(2)), logits(1), logits((degree + 1) ** 2))
    nothing = training_data({"transitions": (rng.normal(size=(3, 2)),) * 2, "initial": rng.normal(size=(3, 2))}, 2)
    beliefs, _ = bnf.Bernstein(degree=degree).propagate(model, nothing, 0)
    # A midpoint rule of its own, from densities that are only evaluated.
    t = (np.arange(60) + 0.5) / 60
    cells = jnp.asarray(np.stack(np.meshgrid(t, t, indexing="ij"), -1).reshape(-1, 2))
    y = jnp.asarray(rng.uniform(size=(5, 2)))
    p = jnp.exp(bnf.log_density(model.initial, cells, jnp.ones((len(cells), 1))))
    np.testing.assert_allclose(p, bnf._polynomial(beliefs.coefficients[0], cells), rtol=1e-9)
    for k in range(2):
        each = [
            jnp.exp(bnf.log_density(model.step, jnp.broadcast_to(one, cells.shape), bnf.given(cells, degree)))
            for one in y
        ]
        expected = [jnp.mean(kernel * p) for kernel in each]
        np.testing.assert_allclose(bnf._polynomial(beliefs.coefficients[k + 1], y), expected, rtol=2e-3)
        p = bnf._polynomial(beliefs.coefficients[k + 1], cells)
        assert abs(beliefs.mass(k + 1) - 1.0) < 1e-12


def test_what_blew_up_is_kept_from_training_and_not_from_scoring():
    trajectories = np.random.default_rng(4).normal(size=(50, 4, 2))
    trajectories[7, 2:] = 1e6, np.nan
    found = training_data({"trajectories": trajectories}, 3)
    assert found.set_aside == 2
    assert len(found.x) == 148
    assert np.isnan(found.trajectories).any(-1).sum() == 2
    assert not within_reach(trajectories[:, 2])[7]
    fitted = make_baseline("gaussian").fit(found, 0)
    told = score(fitted.log_prob, trajectories, 3)
    assert told["blown_up"] == [0, 0, 1, 1]
    assert not told["finite"]
    assert np.isfinite(told["log_likelihood_inside"]).all()


def test_refusals_name_both_sides(data):
    with pytest.raises(ValueError, match="baseline among bernstein.*got 'kalman'"):
        make_baseline("kalman")
    with pytest.raises(ValueError, match="options of 'mixture' among components, fresh, rounds, got size"):
        make_baseline("mixture", size=3)
    wide = training_data({"transitions": (data.x, data.x_next), "initial": data.initial}, 2)
    with pytest.raises(ValueError, match="additive normal noise"):
        make_baseline("ekf", dynamics="true").fit(wide, 0)
    with pytest.raises(ValueError, match="training trajectories"):
        make_baseline("gaussian").fit(wide, 0)
    cartpole = get_system("cartpole")
    four = training_data(simulate_training(cartpole, 0, 0.02), 13, cartpole)
    with pytest.raises(ValueError, match="2 coordinates for a grid, got 4"):
        make_baseline("grid", dynamics="true").fit(four, 0)
    with pytest.raises(ValueError, match="2 coordinates for a Bernstein flow, got 4"):
        make_baseline("bernstein").fit(four, 0)
