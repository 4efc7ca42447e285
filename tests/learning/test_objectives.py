"""Objectives: weighted means that grids confirm, exact background shares, and the paper's own training."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import ndtr

import oracles
import sosmarkov as sm
from sosmarkov.core.perron import perron
from sosmarkov.learning.factor.barrier import (
    BarrierParameters,
    BoundedBeta,
    barrier_loss,
    cone_loss,
    eigenvector,
    finish,
)
from sosmarkov.learning.factor.initialise import start_transition, wanted_start
from sosmarkov.learning.factor.objectives import (
    BeliefLoss,
    Parameters,
    Start,
    initial_loss,
    realise,
    transition_loss,
    weighted_mean,
)
from sosmarkov.learning.loop import TrainingError
from tables import FAMILIES, make_parts

SHARE = 0.2
# The Kraus coupling's background is tested with the transitions.
CASES = [("exponential", "paired"), ("exponential", "linear")]
# Compiling is all that takes time here.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def quick(function, *examples):
    """The function compiled for arguments like these, hastily."""
    arrays, rest = eqx.partition(examples, eqx.is_array)
    compiled = jax.jit(lambda given: function(*eqx.combine(given, rest))).lower(arrays)
    compiled = compiled.compile(compiler_options=QUICK)
    return lambda *given: compiled(eqx.filter(given, eqx.is_array))


def make(family, coupling, background):
    """Random parameters of three functions and a broad one in one dimension."""
    phi, psi, _ = make_parts(family, coupling, 1, seed=0, n=3)
    rng = np.random.default_rng(1)
    if coupling == "paired":
        joined = sm.Paired(np.tril(0.3 * rng.normal(size=(4, 4)), -1) + np.eye(4), background=background)
    else:
        joined = sm.Linear(0.2 + rng.random(4), background=background)
    factor = rng.normal(size=2) if coupling == "linear" else rng.normal(size=(2, 2))
    basis = FAMILIES[family].make(rng, 2, 1)
    if background == 0:
        phi, psi = phi.with_broad(8.0), psi.with_broad(8.0)
    return Parameters(phi, psi, joined, basis, jnp.asarray(factor))


def densities(parameters, points):
    """P(y' | y) between all points, p_0 and g at them: all that the references below use."""

    def evaluate(parameters, points):
        transition, start = realise(parameters)
        pairs = jax.vmap(jax.vmap(transition.log_prob_model, (0, None)), (None, 0))(points, points)
        log_g = jax.vmap(transition.g.log_value)(points)
        densities = jnp.exp(pairs), jnp.exp(log_g + jax.vmap(start.log_value)(points)), jnp.exp(log_g)
        # The kernel's other faces, which have to agree with these: h from a known state, closed masses, the adjoint.
        known = jnp.exp(log_g + jax.vmap(transition.form_from(points[0]).log_value)(points))
        kernel, M = transition.kernel, transition.g.coefficients @ transition.overlap
        masses = jax.vmap(lambda y: transition.form_from(y).coefficients @ M)(points)
        P, Q = (jnp.cos(jnp.arange(len(vector))) for vector in (transition.g.coefficients, M))
        return *densities, known, masses, jnp.stack([kernel.push(P) @ Q, P @ kernel.pull(Q)])

    return [np.asarray(part) for part in quick(evaluate, parameters, points)(parameters, points)]


class Case:
    """A process with a background, its densities at the nodes of a quadrature rule and at twelve states."""

    def __init__(self, family, coupling):
        self.parameters, self.bare = make(family, coupling, SHARE), make(family, coupling, 0.0)
        self.linear = coupling == "linear"
        nodes, self.weights = FAMILIES[family].rule()
        self.states = FAMILIES[family].points(np.random.default_rng(2), 12, 1)
        self.points = np.concatenate([nodes[:, None], self.states])
        self.count = len(nodes)
        self.kernel, self.initial, self.g, *self.faces = densities(self.parameters, jnp.asarray(self.points))
        self.broad = FAMILIES[family].function(self.parameters.psi.with_broad(8.0), self.points)[:, -1]
        batch = (jnp.zeros((4, 3, 1)), jnp.zeros((4, 3)))
        # The gradient of one coupling is enough to see what missing states do to it.
        compiled = quick(_value_and_gradient if self.linear else _value, self.parameters, batch)
        self.loss = lambda *batch: compiled(self.parameters, tuple(map(jnp.asarray, batch)))


def _value(parameters, batch):
    return BeliefLoss(0.5)(parameters, batch), None


_value_and_gradient = eqx.filter_value_and_grad(lambda parameters, batch: _value(parameters, batch)[0])


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request):
    return Case(*request.param)


def test_a_background_has_exactly_its_share(case):
    """P = (1 - e) p_own + e g t / int g t, in the transition and in p_0, and both have mass one."""
    n, w = case.count, case.weights
    np.testing.assert_allclose(case.kernel[:, :n] @ w, 1.0, atol=1e-9)
    assert w @ case.initial[:n] == pytest.approx(1.0, abs=1e-9)
    term = case.g * (case.broad if case.linear else case.broad**2)
    background = term / (w @ term[:n])
    # The same coefficients and functions without the share are what the rest consists of.
    kernel, initial, *_ = densities(case.bare, jnp.asarray(case.points))
    np.testing.assert_allclose(case.kernel, (1 - SHARE) * kernel + SHARE * background, rtol=1e-9)
    np.testing.assert_allclose(case.initial, (1 - SHARE) * initial + SHARE * background, rtol=1e-9)


def test_every_face_of_a_kernel_knows_its_background(case):
    known, masses, (pushed, pulled) = case.faces
    np.testing.assert_allclose(known, case.kernel[0], rtol=1e-9)
    np.testing.assert_allclose(masses, 1.0, atol=1e-12)
    assert pushed == pytest.approx(pulled, rel=1e-12)


PRESENT = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [2.0, 0.5, 1.0], [0.0, 1.0, 1.0]])


def grid_belief_loss(case):
    """-log p_k(y_k) by a chain on the grid, plus half the transition loss of pair (row, row % 2)."""
    n, at = case.count, case.count + np.arange(12).reshape(4, 3)
    density, log_p = case.initial, np.zeros((4, 3))
    for k in range(3):
        log_p[:, k] = np.log(density[at[:, k]])
        density = (case.weights * density[:n]) @ case.kernel[:n]
    weight = np.array([PRESENT[row, row % 2] * PRESENT[row, row % 2 + 1] for row in range(4)])
    pairs = np.log([case.kernel[at[row, row % 2], at[row, row % 2 + 1]] for row in range(4)])
    return -np.sum(PRESENT * log_p) / PRESENT.sum() - 0.5 * np.sum(weight * pairs) / weight.sum()


def test_belief_loss_is_the_mean_over_present_states_of_a_grid_chain(case):
    states = case.states.reshape(4, 3, 1).copy()
    states[PRESENT == 0] = 0.0
    value, gradient = case.loss(states, PRESENT)
    assert float(value) == pytest.approx(grid_belief_loss(case), rel=1e-9)
    # What the place of a missing state holds does not matter, not even to the gradient.
    states[PRESENT == 0] = np.nan
    other, other_gradient = case.loss(states, PRESENT)
    assert float(other) == float(value)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(other_gradient), strict=True):
        assert np.all(np.isfinite(a))
        np.testing.assert_array_equal(a, b)


def test_without_any_pair_the_transition_part_is_zero(case):
    alone = np.zeros((4, 3))
    alone[:, 0] = 1.0
    value, gradient = case.loss(case.states.reshape(4, 3, 1), alone)
    expected = -np.mean(np.log(case.initial[case.count + np.arange(0, 12, 3)]))
    assert float(value) == pytest.approx(expected, rel=1e-9)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


def test_weighted_mean():
    values, weights = jnp.asarray([1.0, 5.0, jnp.inf]), jnp.asarray([3.0, 1.0, 0.0])
    assert float(weighted_mean(values, weights)) == 2.0
    assert float(weighted_mean(values, jnp.zeros(3))) == 0.0


def test_the_initial_phase_leaves_the_transition_alone():
    parameters = make("exponential", "linear", SHARE)
    batch = (jnp.asarray([[0.3], [1.0]]), jnp.asarray([1.0, 2.0]))
    transition, start = eqx.filter_jit(realise)(parameters)
    fixed = Start(transition.g, parameters.start_basis, parameters.start_factor, SHARE)
    value, gradient = quick(eqx.filter_value_and_grad(initial_loss), fixed, batch)(fixed, batch)
    log_p = [float(transition.g.log_value(y) + start.log_value(y)) for y in batch[0]]
    assert float(value) == pytest.approx(-(log_p[0] + 2 * log_p[1]) / 3, rel=1e-12)
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(gradient.g))
    assert all(np.any(leaf != 0) for leaf in jax.tree.leaves(gradient[1:3]))


# --- the paper's training ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem():
    """A rotation with noise on the unit square, five Beta functions."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    x_next = 0.8 * x @ np.array([[0.8, -0.6], [0.6, 0.8]]) + 0.6 * rng.normal(size=x.shape)
    y, y_next = ndtr(x), ndtr(x_next)
    parts = start_transition(y, y_next, wanted_start("beta", "paired", 5), "paired")
    return parts, (jnp.asarray(y), jnp.asarray(y_next), jnp.ones(300))


@pytest.fixture(scope="module")
def loss(problem):
    """The paper's loss and its gradient, of parameters and of the weights of barrier and regularisation."""
    parts, batch = problem

    def value(parameters, barrier, regularisation):
        return barrier_loss(parameters, batch, barrier=barrier, regularisation=regularisation)

    example = (BarrierParameters.start(*parts), jnp.zeros(()), jnp.zeros(()))
    compiled = quick(eqx.filter_value_and_grad(value), *example)
    return lambda parameters, barrier, reg: compiled(parameters, jnp.asarray(barrier), jnp.asarray(reg))


def random_pair(n, seed):
    rng = np.random.default_rng(seed)
    nodes, weights = oracles.gauss_legendre(0.0, 1.0, 4)
    exponents = 3.0 * rng.random((2, n, 2))
    phi, psi = (nodes[:, None] ** e[:, 0] * (1 - nodes[:, None]) ** e[:, 1] for e in exponents)
    dense = oracles.dense_table(phi, psi, weights)
    L = rng.normal(size=(n, n)) + 2.0 * np.eye(n)
    rows, columns = np.triu_indices(n)
    unique = rows * n + columns
    return L.T @ L, dense, jnp.asarray(dense[np.ix_(unique, unique)])


def test_the_eigenvector_is_the_papers_and_the_perron_vector():
    Q, dense, E = random_pair(4, 0)
    found = jax.jit(eigenvector)(jnp.asarray(Q), E)
    feasible = oracles.paper_recipe(Q, dense)
    assert len(feasible) == 1
    value, R = feasible[0]
    assert float(found.eigenvalue) == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(found.R, R / np.linalg.norm(R), atol=1e-10)
    A = np.asarray(perron(jnp.asarray(Q), E, 10_000).A)
    np.testing.assert_allclose(found.R, A / np.linalg.norm(A), atol=1e-10)


def test_the_eigenvector_has_the_right_derivative():
    Q, _, E = random_pair(3, 1)
    rng = np.random.default_rng(2)
    by = jnp.asarray(rng.normal(size=(3, 3)))

    @jax.jit
    def value(Q):
        R, eigenvalue = eigenvector(0.5 * (Q + Q.T), E)
        return jnp.sum(by * R) + 0.3 * eigenvalue

    expected = oracles.finite_difference(lambda Q: float(value(jnp.asarray(Q))), np.array(Q), 1e-6)
    np.testing.assert_allclose(jax.grad(value)(jnp.asarray(Q)), expected, rtol=1e-5, atol=1e-7)


def test_cone_loss_is_a_barrier_inside_and_a_penalty_outside():
    at = jax.jit(jax.value_and_grad(lambda t: cone_loss(jnp.diag(jnp.stack([0.5, t])), margin=0.1)))
    np.testing.assert_allclose(at(0.2), (-np.log(0.1), -5.0), rtol=1e-12)
    np.testing.assert_allclose(at(-0.2), (0.3**2, -0.6), rtol=1e-12)  # downhill is back into the cone


def test_bounds_hold_whatever_is_trained():
    part = BoundedBeta(sm.BetaBasis([[0.9, 30.0]], [[2.0, 1000.0]]))
    np.testing.assert_allclose(part.shapes[0], [[0.9, 30.0]], rtol=1e-9)
    far = eqx.tree_at(lambda p: (p.raw_left, p.raw_right), part, (part.raw_left - 20.0, part.raw_right + 50.0))
    assert np.all(far.shapes[0] > 0.8)
    assert np.all(far.shapes[1] <= 400.0)


def test_regularisation_is_the_papers(problem, loss):
    parts, _ = problem
    parameters = BarrierParameters.start(*parts)
    difference = float(loss(parameters, 0.0, 1e-2)[0] - loss(parameters, 0.0, 0.0)[0])
    squares = sum(float(jnp.sum(shape**2)) for basis in parts[:2] for shape in (basis.alpha, basis.beta))
    assert difference == pytest.approx(1e-2 * squares, rel=1e-6)


@pytest.fixture(scope="module")
def trained(problem, loss):
    """Sixty steps with the paper's loss, and sixty with the likelihood alone, from one start."""
    start = BarrierParameters.start(*problem[0])
    return [_descend(lambda p, w=weights: loss(p, *w), start) for weights in ((1.0, 1e-4), (0.0, 0.0))]


def _descend(value_and_gradient, parameters):
    dynamic, static = eqx.partition(parameters, eqx.is_inexact_array)
    optimiser = optax.adam(1e-2)
    update = jax.jit(optimiser.update)
    state, values = optimiser.init(dynamic), []
    for _ in range(60):
        value, gradient = value_and_gradient(eqx.combine(dynamic, static))
        updates, state = update(gradient, state)
        dynamic = jax.tree.map(jnp.add, dynamic, updates)
        values.append(float(value))
    return eqx.combine(dynamic, static), values


def test_the_papers_training_stays_feasible_and_normalised(trained):
    parameters, values = trained[0]
    assert np.all(np.isfinite(values))
    assert values[-1] < values[0] - 0.1
    result = finish(parameters)
    assert np.linalg.eigvalsh(result.R)[0] > 0.05
    assert result.normalisation_error < 1e-12
    # The paper's R is the Perron vector, the normaliser of the coupling that is kept.
    A = np.asarray(sm.Transition(*result.parts).kernel.g.matrix)
    np.testing.assert_allclose(result.R, A / np.linalg.norm(A), atol=1e-10)
    # By quadrature, from the functions' own formula.
    phi, psi, _ = result.parts
    kernel = sm.Transition(*result.parts).kernel
    nodes, weights = oracles.tensor(*oracles.tanh_sinh(0.0, 1.0, 80), 2)
    states = np.array([[0.2, 0.7], [0.9, 0.1]])
    phis, psis = (_unit(basis, nodes, weights) for basis in (phi, psi))
    at_nodes, at_states = phis(nodes), phis(states)
    g, g_at = (np.einsum("xi,ij,xj->x", f, kernel.g.matrix, f) for f in (at_nodes, at_states))
    f = np.sum(np.square((at_states[:, None] * psis(nodes)) @ np.asarray(kernel.factor)), axis=-1)
    np.testing.assert_allclose((f * g / g_at[:, None]) @ weights, 1.0, atol=1e-7)


def _unit(basis, nodes, weights):
    function = FAMILIES["beta"].function
    norm = np.sqrt(weights @ function(basis, nodes) ** 2)
    return lambda y: function(basis, y) / norm


def test_the_likelihood_is_that_of_the_perron_way_and_the_barrier_costs_some(problem, trained, loss):
    parts, batch = problem
    by_perron = quick(lambda p: transition_loss(p, batch), Parameters(*parts, parts[0], jnp.eye(5)))
    (paper, _), (free, values) = trained
    for parameters in (BarrierParameters.start(*parts), paper, free):
        own = Parameters(*finish(parameters).parts, parts[0], jnp.eye(5))
        assert float(loss(parameters, 0.0, 0.0)[0]) == pytest.approx(float(by_perron(own)), rel=1e-9)
    # The barrier holds R near a multiple of the identity; without it nothing leaves the cone either.
    assert values[-1] < float(loss(paper, 0.0, 0.0)[0]) - 0.02 < values[0]
    smallest = [np.linalg.eigvalsh(finish(parameters).R)[0] for parameters in (paper, free)]
    assert smallest[0] > smallest[1] > 0


def test_a_singular_q_is_refused(problem):
    start = BarrierParameters.start(*problem[0])
    with pytest.raises(TrainingError, match="Expected a feasible R"):
        finish(start._replace(L=jnp.zeros((5, 5)).at[0].set(1.0)))
