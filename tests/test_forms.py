"""Forms, and the paper's Lemma 1 and Theorem 1 as statements that run."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import oracles
import sosmarkov as sm
from tables import FAMILIES, SIGNED


@eqx.filter_jit
def ask(form, y):
    """Values at points and the integral, from one program."""
    return jax.vmap(form.value)(y), form.integral()


@eqx.filter_jit
def log_values(form, y):
    return jax.vmap(form.log_value)(y)


@pytest.mark.parametrize("name", FAMILIES)
def test_squared_form_value_and_integral(name):
    rng = np.random.default_rng(0)
    family = FAMILIES[name]
    basis = family.make(rng, 4, 1)
    factor = rng.normal(size=(4, 2))
    form = sm.SquaredForm(basis, factor)
    nodes, weights = family.rule()
    values = family.function(basis, nodes[:, None])
    values = values / np.sqrt(weights @ values**2)
    expected = np.sum((values @ factor) ** 2, axis=1)
    found, integral = ask(form, jnp.asarray(nodes[:, None]))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-13 * expected.max())
    assert np.all(np.asarray(found) >= 0)
    np.testing.assert_allclose(integral, weights @ expected, rtol=1e-11)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in SIGNED])
def test_linear_form_value_and_integral(name):
    rng = np.random.default_rng(0)
    family = FAMILIES[name]
    basis = family.make(rng, 4, 1)
    form = sm.LinearForm(basis, rng.random(4))
    nodes, weights = family.rule()
    values, integral = ask(form, jnp.asarray(nodes[:, None]))
    np.testing.assert_allclose(integral, weights @ np.asarray(values), rtol=1e-11)


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_a_form_from_a_matrix_of_any_rank_is_the_form_from_its_factor(rank):
    rng = np.random.default_rng(1)
    basis = FAMILIES["gaussian"].make(rng, 5, 2)
    factor = rng.normal(size=(5, rank)) * 10.0 ** rng.uniform(-6, 6, size=(5, 1))
    by_factor, by_matrix = sm.SquaredForm(basis, factor), sm.SquaredForm(basis, matrix=factor @ factor.T)
    y = jnp.asarray(rng.normal(size=(50, 2)))
    found = log_values(by_matrix, y)
    np.testing.assert_allclose(found, log_values(by_factor, y), rtol=1e-7, atol=1e-7)
    assert not np.any(np.isnan(found))


def test_gradient_of_a_form_from_a_singular_matrix_is_finite_and_right():
    basis = FAMILIES["gaussian"].make(np.random.default_rng(2), 3, 1)
    v = np.array([1.0, -2.0, 0.5])
    y = jnp.asarray([0.3])

    def log_value(entries):
        C = jnp.zeros((3, 3)).at[np.tril_indices(3)].set(entries)
        C = C + C.T - jnp.diag(jnp.diagonal(C))
        return sm.SquaredForm(basis, matrix=C).log_value(y)

    singular = np.outer(v, v)[np.tril_indices(3)]
    gradient = jax.jit(jax.grad(log_value))(jnp.asarray(singular))
    f = eqx.filter_jit(lambda basis: basis.evaluate(y))(basis)
    values = np.asarray(f.sign) * np.exp(f.log_abs)
    outer = np.outer(values, values)
    expected = (2 * outer - np.diag(np.diag(outer)))[np.tril_indices(3)] / (values @ v) ** 2
    np.testing.assert_allclose(gradient, expected, rtol=1e-10)


def test_gaussian_and_beta_products_are_the_densities_they_name():
    x = np.random.default_rng(3).random((20, 2))
    normal = sm.SquaredForm.gaussian([0.2, -1.0], [0.5, 2.0])
    expected = scipy.stats.norm([0.2, -1.0], [0.5, 2.0]).logpdf(x).sum(axis=1)
    np.testing.assert_allclose(log_values(normal, jnp.asarray(x)), expected, rtol=1e-12, atol=1e-12)
    beta = sm.SquaredForm.beta([2.0, 3.5], [1.0, 4.0])
    expected = scipy.stats.beta([2.0, 3.5], [1.0, 4.0]).logpdf(x).sum(axis=1)
    np.testing.assert_allclose(log_values(beta, jnp.asarray(x)), expected, rtol=1e-11, atol=1e-11)


def conditional(seed=0):
    rng = np.random.default_rng(seed)
    make = FAMILIES["gaussian"].make
    return sm.PlainConditional(make(rng, 4, 1), make(rng, 4, 1), np.tril(rng.normal(size=(4, 4))))


def test_lemma_1_integrating_out_leaves_a_sum_of_squares():
    plain = conditional()
    form = plain.integrate_out()
    assert np.linalg.eigvalsh(np.asarray(form.matrix))[0] >= -1e-14
    nodes, weights = oracles.gauss_legendre(-14.0, 14.0, 14)
    x, y = jnp.asarray([[-1.0], [0.2], [2.0]]), jnp.asarray(nodes[:, None])
    found, _ = ask(form, x)
    f = eqx.filter_jit(lambda plain: jax.vmap(lambda x: jax.vmap(lambda y: plain.value(x, y))(y))(x))(plain)
    np.testing.assert_allclose(found, np.asarray(f) @ weights, rtol=1e-11)


def test_theorem_1_a_plain_conditional_is_not_normalised_and_no_scale_mends_it():
    plain = conditional()
    x = np.linspace(-2, 2, 41)[:, None]
    norms = np.asarray(plain.restriction_residual(x)) + 1.0
    # phi would have to run along an ellipsoid: its norm varies instead, by far more than rounding.
    assert norms.max() / norms.min() > 1.5
    # With a partition of unity it does: constant functions satisfy the theorem's condition.
    flat = sm.ExponentialBasis(np.zeros((1, 1)), 0.0, 1.0)
    constant = sm.PlainConditional(flat, flat, np.ones((1, 1)))
    np.testing.assert_allclose(constant.restriction_residual(np.linspace(0, 1, 5)[:, None]), 0.0, atol=1e-14)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b: sm.SquaredForm(b), "either a factor or a matrix"),
        (lambda b: sm.SquaredForm(b, np.ones((3, 1))), r"factor of shape \(4, any >= 1\), got \(3, 1\)"),
        (lambda b: sm.SquaredForm(b, matrix=-np.eye(4)), "positive semi-definite"),
        (lambda b: sm.SquaredForm(b, matrix=np.diag([1.0, 1.0, 1.0, -0.1])), "positive semi-definite"),
        (lambda b: sm.SquaredForm(b, [["a"] * 4] * 4), "Expected numbers for factor"),
        (lambda b: sm.LinearForm(b, [1.0, -1.0, 0.0, 0.0]), "weights >= 0"),
        (lambda b: sm.LinearForm(b, np.zeros(4)), "at least one positive"),
        (lambda b: sm.LinearForm(b, [1.0, np.inf, 0.0, 0.0]), "finite"),
    ],
)
def test_bad_input_is_refused(make, message):
    basis = FAMILIES["gaussian"].make(np.random.default_rng(0), 4, 2)
    with pytest.raises(ValueError, match=message):
        make(basis)
