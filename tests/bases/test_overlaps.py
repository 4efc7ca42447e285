"""Every integral a family offers, against quadrature of independently written functions."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracles
import sosmarkov as sm
from sosmarkov.factor.bases.base import Expansion
from tables import EXHAUSTIVE, FAMILIES

N = 3
ROWS, COLUMNS = np.triu_indices(N)
W = np.random.default_rng(1).normal(size=(len(ROWS), len(ROWS)))
# Every product of at most four factors.
POWERS = {
    1: np.arange(5)[:, None],
    2: np.array([(a, b) for a in range(5) for b in range(5 - a)]),
}
KEPT = {1: ((0,),), 2: ((0,), (1,), (1, 0))}


def pairs(f):
    return f[:, ROWS] * f[:, COLUMNS]


class Case(NamedTuple):
    """A basis of one family, a quadrature rule, and the functions at its nodes by the independent formula."""

    name: str
    dim: int
    basis: sm.Basis
    points: np.ndarray
    weights: np.ndarray
    norm: np.ndarray
    f: np.ndarray
    found: dict

    def function(self, y):
        return FAMILIES[self.name].function(self.basis, y) / self.norm

    def boxed(self):
        """Points and weights of a rule on the box."""
        rules = [oracles.gauss_legendre(low, high, 8) for low, high in zip(*box(self.points), strict=True)]
        grid = np.stack(np.meshgrid(*[r[0] for r in rules], indexing="ij"), axis=-1).reshape(-1, self.dim)
        return grid, rules[0][1] if self.dim == 1 else np.multiply.outer(rules[0][1], rules[1][1]).ravel()


def box(points):
    return np.quantile(points, 0.35, axis=0), np.quantile(points, 0.7, axis=0)


@eqx.filter_jit
def ask(basis, points, low, high):
    """Every answer from one program."""
    one, two = basis.terms(1), basis.terms(2)
    found = {
        "values": jax.vmap(basis.evaluate)(points),
        "overlaps": [basis.overlap(*groups) for groups in ((one, one), (two, one), (two, two), (two, two, one))],
        "moments": basis.contract_powers(Expansion(basis, two, two, jnp.asarray(W)), POWERS[basis.dim]),
    }
    if basis.family != "gaussian-full" or basis.dim == 1:
        found["box"] = basis.overlap(two, two, lower=low, upper=high)
    if basis.family != "gaussian-full":
        boxed = Expansion(basis, two, two, jnp.asarray(W), low, high)
        found["box moments"] = basis.contract_powers(boxed, POWERS[basis.dim])
    found["marginals"] = [
        basis.marginalise(Expansion(basis, two, two, jnp.asarray(W)), kept) for kept in KEPT[basis.dim]
    ]
    return found


@pytest.fixture(
    scope="module",
    params=[(name, d) for name in FAMILIES for d in ((1, 2) if EXHAUSTIVE or name == "beta" else (2,))],
    ids=lambda case: f"{case[0]}-{case[1]}",
)
def case(request):
    name, d = request.param
    family = FAMILIES[name]
    basis = family.make(np.random.default_rng(0), N, d)
    points, weights = oracles.tensor(*family.rule(), d)
    f = family.function(basis, points)
    norm = np.sqrt(weights @ f**2)
    some = points[:: max(1, len(points) // 500)]
    return Case(name, d, basis, points, weights, norm, f / norm, ask(basis, *map(jnp.asarray, (some, *box(points)))))


def test_functions_match_their_formula_with_unit_norm(case):
    log_abs, sign = (np.asarray(part) for part in case.found["values"])
    expected = case.f[:: max(1, len(case.points) // 500)]
    np.testing.assert_allclose(sign * np.exp(log_abs), expected, rtol=1e-11, atol=1e-300)


def test_overlaps_of_two_to_five_functions_match_quadrature(case):
    f, w, two = case.f, case.weights, pairs(case.f)
    expected = [
        np.einsum("x,xi,xj->ij", w, f, f),
        np.einsum("x,xp,xi->pi", w, two, f),
        np.einsum("x,xp,xq->pq", w, two, two, optimize=True),
        np.einsum("x,xp,xq,xi->pqi", w, two, two, f, optimize=True),
    ]
    for found, table in zip(case.found["overlaps"], expected, strict=True):
        np.testing.assert_allclose(found, table, rtol=1e-10, atol=1e-12 * np.max(np.abs(table)))


def test_overlaps_over_boxes_match_quadrature(case):
    if case.name == "gaussian-full" and case.dim > 1:
        with pytest.raises(ValueError, match="axis-aligned"):
            case.basis.overlap(case.basis.terms(1), lower=jnp.zeros(case.dim), upper=jnp.ones(case.dim))
        return
    grid, weights = case.boxed()
    two = pairs(case.function(grid))
    expected = np.einsum("x,xp,xq->pq", weights, two, two, optimize=True)
    np.testing.assert_allclose(case.found["box"], expected, rtol=1e-9, atol=1e-12 * np.max(np.abs(expected)))


def monomials(points):
    return np.prod(points[:, None] ** POWERS[points.shape[1]], axis=-1)


def test_moments_up_to_the_fourth_match_quadrature(case):
    two = pairs(case.f)
    density = np.sum((two @ W) * two, axis=1) * case.weights
    powers = monomials(case.points)
    scale = np.abs(density) @ np.abs(powers)
    assert np.all(np.abs(case.found["moments"] - density @ powers) < 1e-11 * scale)


def test_moments_over_boxes_match_quadrature(case):
    if case.name == "gaussian-full":
        two, low = case.basis.terms(2), jnp.zeros(case.dim)
        with pytest.raises(ValueError, match="axis-aligned"):
            case.basis.contract_powers(
                Expansion(case.basis, two, two, jnp.asarray(W), low, low + 1.0), POWERS[case.dim]
            )
        return
    grid, weights = case.boxed()
    two = pairs(case.function(grid))
    density = np.sum((two @ W) * two, axis=1) * weights
    powers = monomials(grid)
    scale = np.abs(density) @ np.abs(powers)
    assert np.all(np.abs(case.found["box moments"] - density @ powers) < 1e-11 * scale)


@eqx.filter_jit
def reduced_values(sum_, points):
    """sum_pq w_pq left_p right_q at points."""

    def value(y):
        values = []
        for terms in (sum_.left, sum_.right):
            log_abs, sign = sum_.basis.log_abs(terms.theta, y)
            values.append(sign * jnp.exp(log_abs + terms.log_scale))
        return values[0] @ sum_.weights @ values[1]

    return jax.vmap(value)(points)


def test_marginalised_terms_match_quadrature(case):
    line = np.quantile(case.points[:, 0], np.linspace(0.3, 0.7, 8))
    nodes, node_weights = FAMILIES[case.name].rule()
    for kept, sum_ in zip(KEPT[case.dim], case.found["marginals"], strict=True):
        at = np.stack([line, 0.7 * line], axis=1)[:, : len(kept)]
        found = np.asarray(reduced_values(sum_, jnp.asarray(at)))
        for y, value in zip(at, found, strict=True):
            if len(kept) < case.dim:
                full, weights = np.zeros((len(nodes), 2)), node_weights
                full[:, kept[0]], full[:, 1 - kept[0]] = y, nodes
            else:
                full, weights = y[None, np.argsort(kept)], np.ones(1)
            two = pairs(case.function(full))
            expected = W * np.einsum("x,xp,xq->pq", weights, two, two)
            np.testing.assert_allclose(value, expected.sum(), rtol=1e-9, atol=1e-12 * np.abs(expected).sum())


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_of_tables_match_finite_differences(name):
    rng = np.random.default_rng(3)
    family = FAMILIES[name]
    phi, psi = family.make(rng, 2, 2), family.make(rng, 3, 2)
    weights = jnp.asarray(rng.normal(size=(3, 6)))
    leaves, structure = jax.tree.flatten((phi, psi))

    @jax.jit
    @jax.value_and_grad
    def total(leaves):
        phi, psi = jax.tree.unflatten(structure, leaves)
        return jnp.sum(weights * phi.overlap(phi.terms(2), psi.terms(2)))

    oracles.assert_gradients(lambda leaves: total(leaves)[0], leaves, total(leaves)[1], atol=1e-7)


@eqx.filter_jit
def draw(basis, key):
    """Draws from the square of a product of two functions, and its mean and second moments."""
    positive, terms = basis.envelope()
    theta = jax.tree.map(lambda leaf: leaf[0], positive.multiply(terms.theta, terms.theta))
    one = jax.tree.map(lambda leaf: leaf[:1], positive.products(terms, 1))
    sum_ = Expansion(positive, one, one, 1.0 / positive.overlap(one, one))
    moments = positive.contract_powers(sum_, np.array([[1, 0], [0, 1], [2, 0], [0, 2]]))
    return jax.vmap(lambda key: positive.sample_term(key, theta))(jax.random.split(key, 40_000)), moments


@pytest.mark.parametrize("name", FAMILIES)
def test_draws_from_a_product_have_its_moments(name):
    draws, moments = draw(FAMILIES[name].make(np.random.default_rng(5), 2, 2), jax.random.key(0))
    mean, variance = np.asarray(moments[:2]), np.asarray(moments[2:]) - np.asarray(moments[:2]) ** 2
    assert np.all(np.abs(np.mean(draws, axis=0) - mean) < 4.5 * np.sqrt(variance / 40_000))
    np.testing.assert_allclose(np.var(draws, axis=0), variance, rtol=0.05)
