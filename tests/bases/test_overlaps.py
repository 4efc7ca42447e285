"""Every integral a family offers, against quadrature of independently written functions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracles
from tables import FAMILIES

N = 3


def setting(name, d, seed=0):
    family = FAMILIES[name]
    rng = np.random.default_rng(seed)
    basis = family.make(rng, N, d)
    points, weights = oracles.tensor(*family.rule(), d)
    values = family.function(basis, points)
    values = values / np.sqrt(weights @ values**2)
    return basis, points, weights, values


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("d", [1, 2])
def test_functions_match_their_formula_with_unit_norm(name, d):
    basis, points, _, values = setting(name, d)
    chosen = slice(None, None, max(1, len(points) // 500))
    found = jax.jit(jax.vmap(basis.evaluate))(points[chosen])
    np.testing.assert_allclose(found.sign * np.exp(found.log_abs), values[chosen], rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("d", [1, 2])
def test_overlaps_of_two_to_five_functions_match_quadrature(name, d):
    basis, _, weights, f = setting(name, d)
    one, two = eqx.filter_jit(lambda b: (b.terms(1), b.terms(2)))(basis)
    rows, columns = np.triu_indices(N)
    pairs = f[:, rows] * f[:, columns]
    cases = [
        ((one, one), np.einsum("x,xi,xj->ij", weights, f, f)),
        ((two, one), np.einsum("x,xp,xi->pi", weights, pairs, f)),
        ((two, two), np.einsum("x,xp,xq->pq", weights, pairs, pairs)),
        ((two, two, one), np.einsum("x,xp,xq,xi->pqi", weights, pairs, pairs, f)),
    ]
    for groups, expected in cases:
        scale = np.max(np.abs(expected))
        found = eqx.filter_jit(lambda groups: basis.overlap(*groups))(groups)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12 * scale)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "gaussian-full"])
@pytest.mark.parametrize("d", [1, 2])
def test_overlaps_over_boxes_match_quadrature(name, d):
    basis, points, weights, f = setting(name, d)
    low, high = np.quantile(points, 0.35, axis=0), np.quantile(points, 0.7, axis=0)
    rules = [oracles.gauss_legendre(low[c], high[c], 8) for c in range(d)]
    grid = np.stack(np.meshgrid(*[r[0] for r in rules], indexing="ij"), axis=-1).reshape(-1, d)
    box_weights = rules[0][1] if d == 1 else np.multiply.outer(rules[0][1], rules[1][1]).ravel()
    values = FAMILIES[name].function(basis, grid)
    norm = np.sqrt(weights @ FAMILIES[name].function(basis, points) ** 2)
    values = values / norm
    rows, columns = np.triu_indices(N)
    pairs = values[:, rows] * values[:, columns]
    expected = np.einsum("x,xp,xq->pq", box_weights, pairs, pairs)
    found = eqx.filter_jit(lambda b, low, high: b.overlap(b.terms(2), b.terms(2), lower=low, upper=high))(
        basis, jnp.asarray(low), jnp.asarray(high)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12 * np.max(np.abs(expected)))


@pytest.mark.parametrize("name", FAMILIES)
def test_moments_match_quadrature(name):
    basis, points, weights, f = setting(name, 2)
    rows, columns = np.triu_indices(N)
    pairs = f[:, rows] * f[:, columns]
    w = np.random.default_rng(1).normal(size=(len(rows), len(rows)))
    density = np.einsum("xp,pq,xq->x", pairs, w, pairs) * weights
    first, second = eqx.filter_jit(lambda b, w: b.contract_moments(b.terms(2), b.terms(2), w))(basis, jnp.asarray(w))
    scale = np.sum(np.abs(density))
    np.testing.assert_allclose(first, density @ points, rtol=1e-9, atol=1e-11 * scale)
    np.testing.assert_allclose(second, np.einsum("x,xi,xj->ij", density, points, points), rtol=1e-9, atol=1e-11 * scale)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("kept", [(0,), (1,), (1, 0)])
def test_marginalised_terms_match_quadrature(name, kept):
    basis, points, weights, f = setting(name, 2)
    rows, columns = np.triu_indices(N)
    w = np.random.default_rng(1).normal(size=(len(rows), len(rows)))
    left, right, reduced = eqx.filter_jit(lambda b, w: b.marginalise(b.terms(2), b.terms(2), w, kept))(
        basis, jnp.asarray(w)
    )
    rest = basis.restrict(kept)
    line = np.quantile(points[:, 0], np.linspace(0.3, 0.7, 8))

    @jax.jit
    def value(y):
        values = []
        for terms in (left, right):
            log_abs, sign = rest.log_abs(terms.theta, y)
            values.append(sign * jnp.exp(log_abs + terms.log_scale))
        return values[0] @ reduced @ values[1]

    nodes, node_weights = FAMILIES[name].rule()
    norm = np.sqrt(weights @ FAMILIES[name].function(basis, points) ** 2)
    for y in line:
        if len(kept) == 1:
            full = np.zeros((len(nodes), 2))
            full[:, kept[0]], full[:, 1 - kept[0]] = y, nodes
            at, expected_weights = jnp.asarray([y]), node_weights
        else:
            full, at, expected_weights = np.array([[0.7 * y, y]]), jnp.asarray([y, 0.7 * y]), np.ones(1)
        g = FAMILIES[name].function(basis, full) / norm
        pairs = g[:, rows] * g[:, columns]
        terms = np.einsum("x,xp,pq,xq->pq", expected_weights, pairs, w, pairs)
        np.testing.assert_allclose(value(at), terms.sum(), rtol=1e-9, atol=1e-12 * np.abs(terms).sum())


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_of_tables_match_finite_differences(name):
    rng = np.random.default_rng(3)
    family = FAMILIES[name]
    phi, psi = family.make(rng, 2, 2), family.make(rng, 3, 2)
    weights = jnp.asarray(rng.normal(size=(3, 6)))
    leaves, structure = jax.tree.flatten((phi, psi))

    def total(leaves):
        phi, psi = jax.tree.unflatten(structure, leaves)
        return jnp.sum(weights * phi.overlap(phi.terms(2), psi.terms(2)))

    oracles.assert_gradients(jax.jit(total), leaves, jax.jit(jax.grad(total))(leaves), atol=1e-7)


@pytest.mark.parametrize("name", FAMILIES)
def test_draws_from_a_product_have_its_moments(name):
    rng = np.random.default_rng(5)
    basis, terms = FAMILIES[name].make(rng, 2, 2).envelope()
    theta = jax.tree.map(lambda leaf: leaf[0], basis.multiply(terms.theta, terms.theta))
    draws = jax.jit(jax.vmap(lambda key: basis.sample_term(key, theta)))(jax.random.split(jax.random.key(0), 40_000))
    one = jax.tree.map(lambda leaf: leaf[:1], basis.products(terms, 1))
    mass = basis.overlap(one, one)
    mean, second = basis.contract_moments(one, one, 1.0 / mass)
    spread = np.sqrt(np.diag(second - np.outer(mean, mean)) / 40_000)
    assert np.all(np.abs(np.mean(draws, axis=0) - mean) < 4.5 * spread)
    np.testing.assert_allclose(np.var(draws, axis=0), np.diag(second) - mean**2, rtol=0.05)
