"""Starts: every family with every coupling begins near the data, and training goes down from there."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import ndtr

import oracles
import sosmarkov as sm
from sosmarkov.factor.bases import FAMILIES
from sosmarkov.factor.couplings import COUPLINGS
from sosmarkov.factor.starts import Mixture, project
from sosmarkov.learning.factor.initialise import (
    fit_halves,
    fit_mixture,
    model_space,
    start_initial,
    start_transition,
    wanted_start,
)
from sosmarkov.learning.factor.objectives import Parameters, realise, transition_loss
from tables import EXHAUSTIVE
from tables import FAMILIES as TABLE

# As the library has them, whatever other tests register.
NAMES = list(FAMILIES)
COMBINATIONS = [
    (f, c) for f in NAMES for c in COUPLINGS if FAMILIES[f].basis.nonnegative or not COUPLINGS[c].nonnegative
]
# Each family that `fit` is not tested with once; all of them with SOSMARKOV_EXHAUSTIVE=1.
TRAINED = [
    ("beta", "linear", 2, 1e-3),
    ("exponential", "linear", 1, 0.0),
    ("monomial", "paired", 1, 0.0),
    ("fourier", "kraus", 1, 0.0),
]
if EXHAUSTIVE:
    TRAINED = [(*names, d, share) for names in COMBINATIONS for d, share in ((1, 1e-3), (2, 0.0))]
# Compiling is all that takes time here.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def pairs(family, d, count=200, seed=0):
    """x ~ N(0, I), x' = 0.8 x + 0.6 noise, in the family's model space."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, d))
    x_next = 0.8 * x + 0.6 * rng.normal(size=(count, d))
    return (x, x_next) if model_space(family) == "standardize" else (ndtr(x), ndtr(x_next))


def start(family, coupling, d, background, size=4):
    y, y_next = pairs(family, d)
    wanted = wanted_start(family, coupling, size, rank=2, background=background)
    parts = start_transition(y, y_next, wanted, coupling)
    return Parameters(*parts, *start_initial(y[:80], wanted._replace(size=3), coupling))


@pytest.mark.parametrize(("family", "coupling"), COMBINATIONS)
def test_every_start_fits_together(family, coupling):
    found = start(family, coupling, 2, 0.1)
    assert found.phi.family == found.psi.family == found.start_basis.family == family
    assert found.phi.size == found.psi.size == 4
    assert found.coupling.background == 0.1
    found.coupling.check(found.phi.with_broad(8.0), found.psi.with_broad(8.0))
    # 80 initial states carry 80 // 20 functions at most; three were asked for.
    assert found.start_factor.shape == ((3,) if coupling == "linear" else (3, 3))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(found))


@pytest.mark.parametrize(("family", "coupling", "d", "background"), TRAINED)
def test_training_goes_down_from_a_finite_start(family, coupling, d, background):
    parameters = start(family, coupling, d, background)
    dynamic, static = eqx.partition(parameters, eqx.is_inexact_array)
    optimiser = optax.adam(1e-2)
    batch = (*map(jnp.asarray, pairs(family, d)), jnp.ones(200))

    def step(dynamic, state):
        loss, gradient = jax.value_and_grad(lambda p: transition_loss(eqx.combine(p, static), batch))(dynamic)
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(dynamic, updates), state, loss

    state = optimiser.init(dynamic)
    step = jax.jit(step).lower(dynamic, state).compile(compiler_options=QUICK)
    losses = []
    for _ in range(101):
        dynamic, state, loss = step(dynamic, state)
        losses.append(float(loss))
    assert np.all(np.isfinite(losses))
    # Nothing known about x: the entropy of N(0, 1), which is zero relative to the uniform on (0, 1).
    ignorant = d * (0.5 * np.log(2 * np.pi * np.e) if model_space(family) == "standardize" else 0.0)
    assert losses[0] < ignorant + d
    assert losses[-1] < losses[0] - 0.03
    assert losses[-1] < ignorant - 0.02


def test_the_same_seed_gives_the_same_start():
    once, again = (jax.tree.leaves(start("beta", "kraus", 1, 0.0)) for _ in range(2))
    for a, b in zip(once, again, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("coupling", ["linear", "paired"])
def test_a_start_knows_which_cluster_follows_which(coupling):
    """Two clusters, left with probability 0.2: the joint mixture finds the four pairs, the start the odds."""
    rng = np.random.default_rng(0)
    side = rng.random(600) < 0.5
    after = side ^ (rng.random(600) < 0.2)
    y, y_next = (4.0 * (s - 0.5)[:, None] + 0.3 * rng.normal(size=(600, 1)) for s in (side, after))
    found = start_transition(y, y_next, wanted_start("gaussian", coupling, 4), coupling)
    log_p = sm.Transition(*found).log_prob(np.array([[[-2.0], [2.0]]]), np.array([[[-2.0]], [[2.0]]]))
    odds = np.array([float(log_p[0, 1] - log_p[0, 0]), float(log_p[1, 0] - log_p[1, 1])])
    np.testing.assert_allclose(odds, np.log(0.25), atol=0.5)


# --- what starts are made of ------------------------------------------------------------------------


def moments(density, nodes, weights):
    mass = weights @ density
    mean = (weights * nodes) @ density / mass
    return mean, (weights * nodes**2) @ density / mass - mean**2


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("family", ["gaussian", "beta", "exponential", "monomial"])
def test_powers_of_local_functions_have_the_moments_of_their_components(family, power):
    means, variances = np.array([[0.3], [0.5], [0.8]]), np.array([[0.01], [0.02], [0.005]])
    if family == "monomial":
        means = means + np.array([[0.2], [0.1], [0.0]])  # an exponent above -1/5 has a mean of 4/9 at least
    basis = FAMILIES[family].local(means, variances, power)
    nodes, weights = oracles.gauss_legendre(-2.0, 3.0, 40) if family == "gaussian" else oracles.tanh_sinh(0.0, 1.0, 600)
    values = TABLE[family].function(basis, nodes[:, None]) ** power
    for i in range(3):
        mean, variance = moments(values[:, i], nodes, weights)
        assert mean == pytest.approx(means[i, 0], abs=1e-6)
        if family in ("gaussian", "beta"):
            assert variance == pytest.approx(variances[i, 0], rel=1e-5)


def test_full_local_functions_square_to_their_components():
    covariance = np.array([[[0.5, 0.2], [0.2, 0.3]]])
    basis = FAMILIES["gaussian-full"].local(np.zeros((1, 2)), covariance, 2)
    y = np.array([[0.4, -0.7]])
    expected = np.exp(-0.5 * np.einsum("i,ij,j->", y[0], np.linalg.inv(covariance[0]), y[0]))
    assert TABLE["gaussian-full"].function(basis, y)[0, 0] ** 2 == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("family", ["exponential", "monomial", "fourier"])
@pytest.mark.parametrize("d", [1, 2])
def test_spread_functions_differ_and_begin_with_the_constant_when_asked(family, d):
    nodes, weights = oracles.tensor(*oracles.gauss_legendre(0.0, 1.0, 8), d)
    for constant in (True, False):
        values = TABLE[family].function(FAMILIES[family].spread(6, d, constant), nodes)
        assert (np.ptp(values[:, 0]) < 1e-12) == constant
        gram = values.T @ (weights[:, None] * values)
        scale = 1.0 / np.sqrt(np.diag(gram))
        assert np.linalg.cond(gram * scale[:, None] * scale) < 2e5


def test_projection_finds_the_roots_of_components():
    mixture = Mixture(np.array([0.5, 0.5]), np.array([[0.3], [0.7]]), np.array([[0.02], [0.03]]))
    basis = FAMILIES["fourier"].spread(8, 1, True)
    B = project(basis, mixture, np.random.default_rng(0).random((500, 1)), 0)
    y = np.linspace(0.05, 0.95, 91)[:, None]
    values = TABLE["fourier"].function(basis, y)
    values = values * np.where(np.asarray(basis.frequency)[:, 0] == 0, 1.0, np.sqrt(2.0))  # unit norm on (0, 1)
    np.testing.assert_allclose(values @ B, np.exp(0.5 * mixture.log_components(y)), atol=0.05)


def test_halves_of_a_mixture_of_pairs_have_their_own_covariances():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(500, 2)) @ np.array([[1.0, 0.8], [0.0, 0.5]])
    y_next = y + 0.1 * rng.normal(size=(500, 2))
    for half, data in zip(fit_halves(y, y_next, 1, True, 0), (y, y_next), strict=True):
        np.testing.assert_allclose(half.means[0], data.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(half.covariances[0], np.cov(data.T, bias=True), rtol=1e-3)


def test_a_mixture_is_a_density():
    mixture = fit_mixture(pairs("gaussian", 2)[0], 3, True, 0)
    points, weights = oracles.tensor(*oracles.gauss_legendre(-8.0, 8.0, 8), 2)
    assert weights @ mixture.density(points) == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(mixture.responsibilities(points[:9]).sum(axis=1), 1.0, rtol=1e-12)


# --- broad functions --------------------------------------------------------------------------------


def test_every_family_of_the_library_has_its_line_in_the_test_table():
    assert set(TABLE) == set(NAMES)


@pytest.mark.parametrize("family", NAMES)
def test_a_broad_function_is_added_last(family):
    d = 2
    basis = TABLE[family].make(np.random.default_rng(0), 3, d)
    wider = basis.with_broad(8.0)
    y = TABLE[family].points(np.random.default_rng(1), 5, d)
    values = TABLE[family].function(wider, y)
    expected = np.exp(-0.5 * np.sum(y**2, axis=1) / 64.0) if FAMILIES[family].space == "standardize" else np.ones(5)
    np.testing.assert_allclose(values[:, :3], TABLE[family].function(basis, y), rtol=1e-12)
    np.testing.assert_allclose(values[:, 3], expected, rtol=1e-12)


def test_a_family_without_a_broad_function_says_so():
    class Narrow(sm.GaussianBasis):
        broad = sm.Basis.broad

    with pytest.raises(ValueError, match="background share of zero"):
        Narrow([[0.0]], [[1.0]]).with_broad(8.0)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("wavelet", "kraus"), "got 'wavelet'"),
        (("gausian", "kraus"), "got 'gausian'. Did you mean 'gaussian'?"),
        (("beta", "loose"), "got 'loose'"),
        (("beta", "krauss"), "got 'krauss'. Did you mean 'kraus'?"),
        (("fourier", "linear"), "takes both signs. Use coupling 'kraus' or 'paired'."),
    ],
)
def test_unknown_starts_are_refused(asked, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        wanted_start(*asked, 1)


def test_a_known_initial_state_makes_a_narrow_start():
    basis, factor = start_initial(np.full((40, 1), 0.3), wanted_start("gaussian", "kraus", 1))
    assert float(jnp.exp(basis.log_std[0, 0])) < 1e-3
    assert np.all(np.isfinite(factor))


def test_realise_accepts_a_start_of_a_single_function():
    parameters = start("gaussian", "linear", 1, 0.0, size=1)
    transition, initial = eqx.filter_jit(realise)(parameters)
    assert float(transition.kernel.b @ (transition.g.coefficients @ transition.overlap)) == pytest.approx(
        float(transition.g.weights.sum()), rel=1e-12
    )
    assert isinstance(initial, sm.LinearForm)
