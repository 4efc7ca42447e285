"""The Perron vector that normalises the paper's coupling: in the cone, the paper's own where that exists."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracles
import sosmarkov as sm
from sosmarkov.core.perron import perron
from tables import FAMILIES


def random_paired(seed, n=4):
    rng = np.random.default_rng(seed)
    make = FAMILIES["beta"].make
    L = np.tril(rng.normal(size=(n, n)), -1) + np.diag(np.exp(rng.normal(size=n)))
    return make(rng, n, 1), make(rng, n, 1), L


def test_perron_vector_is_positive_definite_for_a_thousand_draws():
    rng = np.random.default_rng(0)
    shapes = 1.0 + 4.0 * rng.random((4, 1000, 4, 1))
    L = np.tril(rng.normal(size=(1000, 4, 4)), -1) + np.eye(4) * np.exp(rng.normal(size=(1000, 1, 4)))

    @jax.jit
    @jax.vmap
    def solve(alpha, beta, alpha_next, beta_next, L):
        phi, psi = sm.BetaBasis(alpha, beta), sm.BetaBasis(alpha_next, beta_next)
        return perron(L @ L.T, phi.overlap(phi.terms(2), psi.terms(2)), 20_000)

    result = solve(*jnp.asarray(shapes), jnp.asarray(L))
    assert bool(np.all(result.converged))
    smallest = np.linalg.eigvalsh(np.asarray(result.A))[:, 0]
    assert np.all(smallest > 0)


@pytest.mark.parametrize("seed", range(5))
def test_perron_vector_is_the_papers_eigenvector_where_that_is_feasible(seed):
    phi, psi, L = random_paired(seed)
    transition = sm.Transition(phi, psi, sm.Paired(L))
    nodes, weights = FAMILIES["beta"].rule()
    values = []
    for basis in (phi, psi):
        f = FAMILIES["beta"].function(basis, nodes[:, None])
        values.append(f / np.sqrt(weights @ f**2))
    feasible = oracles.paper_recipe(L @ L.T, oracles.dense_table(*values, weights))
    # The cone has one eigenvector inside: the paper's search over eigenvalues can end nowhere else.
    assert len(feasible) == 1
    eigenvalue, R = feasible[0]
    found = transition.kernel
    np.testing.assert_allclose(found.perron.eigenvalue, eigenvalue, rtol=1e-10)
    np.testing.assert_allclose(found.g.matrix, R, rtol=1e-8, atol=1e-9)


def test_perron_vector_of_a_process_that_hardly_mixes():
    # Two groups of functions, alike and far apart: the second eigenvalue is 1e-3 below the first.
    rng = np.random.default_rng(0)
    means = np.tile(0.5 * rng.normal(size=(3, 1)), (2, 1)) + np.repeat([0.0, 4.0], 3)[:, None]
    basis = sm.GaussianBasis(means, np.ones((6, 1)))
    E = basis.overlap(basis.terms(2), basis.terms(2))
    L = np.kron(np.eye(2), np.tril(0.3 * rng.normal(size=(3, 3)), -1) + np.eye(3))

    @jax.jit
    def solve(L):
        return perron(L @ L.T, E, 600)

    result = solve(jnp.asarray(L))
    rows, columns = np.triu_indices(6)
    table = np.where(rows == columns, 1.0, 2.0)[:, None] * np.asarray(E) * (L @ L.T)[rows, columns]
    values, vectors = np.linalg.eig(table.T)
    order = np.argsort(-values.real)
    assert 1e-4 < 1.0 - values.real[order[1]] / values.real[order[0]] < 3e-3
    expected = np.zeros((6, 6))
    expected[rows, columns] = expected[columns, rows] = vectors[:, order[0]].real
    assert bool(result.converged)
    assert 400 < int(result.iterations) < 460
    np.testing.assert_allclose(result.A, expected * 6 / np.trace(expected), rtol=1e-6, atol=1e-6)

    direction = np.tril(rng.normal(size=(6, 6)))
    step = 1e-7
    slope = (solve(L + step * direction).A - solve(L - step * direction).A) / (2 * step)
    found = jax.jacrev(lambda t: solve(L + t * direction).A)(0.0)
    np.testing.assert_allclose(found, slope, rtol=1e-4, atol=1e-5 * np.max(np.abs(slope)))


def test_power_iteration_says_when_it_has_not_converged():
    phi, psi, L = random_paired(0)
    with pytest.warns(sm.NormalisationWarning, match="has not converged after 3 steps"):
        transition = sm.Transition(phi, psi, sm.Paired(L, max_iterations=3))
    report = sm.MarkovProcess(transition, sm.SquaredForm.beta([2.0], [2.0])).check()
    assert not report.converged
    assert not report.ok
    assert report.normalisation_error > 1e-10
    assert "NOT converged" in str(report)


def test_power_iteration_converges_on_near_duplicates():
    rng = np.random.default_rng(0)
    basis = sm.GaussianBasis(1e-3 * rng.normal(size=(8, 1)), np.ones((8, 1)))
    L = np.tril(rng.normal(size=(8, 8)), -1) + np.eye(8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        transition = sm.Transition(basis, basis, sm.Paired(L))
    assert np.max(np.abs(transition.mass(3 * rng.normal(size=(1000, 1))) - 1.0)) < 1e-9
