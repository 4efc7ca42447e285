"""Sums of Gaussians in tiles, of which most cannot change a digit, against plain sums of logarithms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from sosmarkov.factor.bases import full_sum
from sosmarkov.factor.bases.full_table import FullTheta

TERMS = 300


@pytest.fixture
def theta(monkeypatch):
    monkeypatch.setattr(full_sum, "_TILE", 2**9)  # sixteen terms at a time
    rng = np.random.default_rng(0)
    root = rng.normal(size=(TERMS, 2, 2))
    precision = root @ np.swapaxes(root, 1, 2) + np.eye(2)
    parts = precision, 2.0 * rng.normal(size=(TERMS, 2)), -rng.exponential(60.0, TERMS)
    return FullTheta(*map(jnp.asarray, parts))


def exponents(theta, y):
    away = y[None] - np.asarray(theta.mean)[:, None]
    return np.asarray(theta.offset)[:, None] - 0.5 * np.einsum("tbi,tij,tbj->tb", away, theta.precision, away)


def test_sums_are_those_of_all_terms_near_and_far(theta):
    rng = np.random.default_rng(1)
    weights = rng.normal(size=TERMS)
    weights[5] = 0.0
    for y in (3.0 * rng.normal(size=(32, 2)), 60.0 + rng.normal(size=(32, 2))):
        found = full_sum.sum_at(theta, jnp.asarray(weights), jnp.asarray(y))
        each = exponents(theta, y)
        size = logsumexp(each, b=np.abs(weights)[:, None], axis=0)
        np.testing.assert_allclose(np.log(found.size) + found.log_scale, size, rtol=1e-14, atol=1e-13)
        value = np.sum(weights[:, None] * np.exp(each - size), axis=0)
        np.testing.assert_allclose(found.value / found.size, value, atol=1e-14)


def test_slopes_are_those_of_all_terms(theta):
    weights, y = np.random.default_rng(2).random(TERMS), np.random.default_rng(3).normal(size=(32, 2))

    def total(y):
        found = full_sum.sum_at(theta, jnp.asarray(weights), y)
        return jnp.sum(jnp.log(found.value) + found.log_scale)

    each = exponents(theta, y)
    share = np.exp(each - logsumexp(each, b=weights[:, None], axis=0)) * weights[:, None]
    away = y[None] - np.asarray(theta.mean)[:, None]
    expected = -np.einsum("tb,tij,tbj->bi", share, theta.precision, away)
    np.testing.assert_allclose(jax.grad(total)(jnp.asarray(y)), expected, rtol=1e-11, atol=1e-13)
