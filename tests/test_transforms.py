"""Transforms against numerical Jacobians, and their inverses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sosmarkov as sm
from tables import TRANSFORMS


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("d", [1, 3])
def test_inverse_and_log_determinant(name, d):
    rng = np.random.default_rng(0)
    transform = TRANSFORMS[name](rng, d)
    for x in jnp.asarray(rng.normal(size=(5, d))):
        y, log_det = transform.forward(x)
        np.testing.assert_allclose(transform.inverse(y), x, rtol=1e-9, atol=1e-9)
        step = 1e-6
        columns = [
            (transform.forward(x + step * e)[0] - transform.forward(x - step * e)[0]) / (2 * step) for e in np.eye(d)
        ]
        assert abs(np.linalg.slogdet(np.stack(columns, axis=1))[1] - log_det) < 1e-6


@pytest.mark.parametrize("name", TRANSFORMS)
def test_split_rebuilds_the_inverse(name):
    rng = np.random.default_rng(1)
    transform = TRANSFORMS[name](rng, 2)
    matrix, offset, inner = transform.split()
    y = rng.uniform(0.1, 0.9, 2)
    if inner is not None:
        s = [np.interp(y[c], inner.nodes[:, c], inner.values[:, c]) for c in range(2)]
        np.testing.assert_allclose(inner.weights.sum(axis=0), 1.0, rtol=1e-12)
        tolerance = 1e-2
    else:
        s, tolerance = y, 1e-12
    np.testing.assert_allclose(matrix @ np.asarray(s) + offset, transform.inverse(jnp.asarray(y)), rtol=tolerance)


def test_fitted_transforms_standardise_and_whiten():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(4000, 3)) @ rng.normal(size=(3, 3)) + 5.0
    y, _ = jax.vmap(sm.Standardize.fit(x).forward)(x)
    np.testing.assert_allclose(np.mean(y, axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.std(y, axis=0), 1.0, rtol=1e-12)
    y, _ = jax.vmap(sm.Affine.whiten(x).forward)(x)
    np.testing.assert_allclose(np.cov(y.T, bias=True), np.eye(3), atol=1e-10)
    u, _ = jax.vmap(sm.GaussianCDF.fit(x).forward)(x)
    assert np.all((np.asarray(u) > 0) & (np.asarray(u) < 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sm.Standardize([0.0], [-1.0]), "positive"),
        (lambda: sm.Standardize([0.0, 1.0], [1.0]), "shape"),
        (lambda: sm.Affine([0.0, 0.0], [[1.0, 2.0], [2.0, 4.0]]), "invertible"),
        (lambda: sm.Standardize.fit([[1.0, 2.0], [1.0, 3.0]]), "constant coordinates \\[0\\]"),
        (lambda: sm.Affine.whiten([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]), "full rank"),
        (lambda: sm.GaussianCDF.fit([[1.0, np.nan], [1.0, 3.0]]), "finite"),
        (lambda: sm.Standardize.fit([[1.0, 2.0]]), "two points"),
        (lambda: sm.Chain([]), "at least one"),
        (lambda: sm.Chain([sm.Identity(1), sm.Identity(2)]), "one dimension"),
        (lambda: sm.Affine([0.0, 0.0], np.eye(2)).select((0,)), "coordinate-wise"),
        (lambda: sm.Chain([sm.GaussianCDF([0.0], [1.0]), sm.Standardize([0.0], [1.0])]).split(), "ends with"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
