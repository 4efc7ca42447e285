"""One line a family, coupling and transform: every property is tested over these tables."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import numpy as np
import pytest

import oracles
import sosmarkov as sm
from sosmarkov.factor.bases import FAMILIES as LIBRARY

Rng = np.random.Generator


class Family(NamedTuple):
    """How to make a random basis, its functions by an independent formula, and a quadrature rule."""

    make: Callable[[Rng, int, int], sm.Basis]
    function: Callable[[sm.Basis, np.ndarray], np.ndarray]
    rule: Callable[[], tuple[np.ndarray, np.ndarray]]
    points: Callable[[Rng, int, int], np.ndarray]


def _random_covariance(rng: Rng, n: int, d: int) -> np.ndarray:
    root = 0.3 / np.sqrt(d) * rng.normal(size=(n, d, d)) + np.eye(d) * (0.6 + 0.6 * rng.random((n, 1, 1)))
    return root @ np.swapaxes(root, 1, 2) + 0.2 * np.eye(d)


@eqx.filter_jit
def _read(basis: sm.Basis, *names: str) -> list:
    """Parameters as users know them, from one program: the properties compute them."""
    return [getattr(basis, name) for name in names]


def _gaussian(basis: sm.GaussianBasis, y: np.ndarray) -> np.ndarray:
    z = (y[:, None] - np.asarray(basis.mean)) / np.exp(np.asarray(basis.log_std))
    return np.exp(-0.5 * np.sum(z**2, axis=-1))


def _full(basis: sm.FullGaussianBasis, y: np.ndarray) -> np.ndarray:
    away = y[:, None] - np.asarray(basis.mean)
    inverse = np.linalg.inv(*_read(basis, "covariance"))
    return np.exp(-0.5 * np.einsum("xni,nij,xnj->xn", away, inverse, away))


def _beta(basis: sm.BetaBasis, y: np.ndarray) -> np.ndarray:
    y, (alpha, beta) = y[:, None], map(np.asarray, _read(basis, "alpha", "beta"))
    return np.prod(y ** (alpha - 1) * (1 - y) ** (beta - 1), axis=-1)


def _fourier(basis: sm.FourierBasis, y: np.ndarray) -> np.ndarray:
    return np.prod(np.cos(y[:, None] * np.asarray(basis.frequency) + np.asarray(basis.phase)), axis=-1)


def _spread(d: int) -> float:
    # Widths grow with the dimension so that random functions still overlap.
    return 1.0 + 0.1 * d


FAMILIES = {
    "gaussian": Family(
        lambda rng, n, d: sm.GaussianBasis(rng.normal(size=(n, d)), _spread(d) * (0.5 + rng.random((n, d)))),
        _gaussian,
        lambda: oracles.gauss_legendre(-12.0, 12.0, 12, 22),
        lambda rng, count, d: 3.0 * rng.normal(size=(count, d)),
    ),
    "gaussian-full": Family(
        lambda rng, n, d: sm.FullGaussianBasis(
            rng.normal(size=(n, d)), _spread(d) ** 2 * _random_covariance(rng, n, d)
        ),
        _full,
        lambda: oracles.gauss_legendre(-13.0, 13.0, 13, 22),
        lambda rng, count, d: 3.0 * rng.normal(size=(count, d)),
    ),
    "beta": Family(
        lambda rng, n, d: sm.BetaBasis(1.0 + 4.0 * rng.random((n, d)), 1.0 + 4.0 * rng.random((n, d))),
        _beta,
        lambda: oracles.tanh_sinh(0.0, 1.0),
        lambda rng, count, d: rng.random((count, d)),
    ),
    "exponential": Family(
        lambda rng, n, d: sm.ExponentialBasis(2.0 * rng.normal(size=(n, d)), -1.0, 2.0),
        lambda basis, y: np.exp(y @ np.asarray(basis.rate).T),
        lambda: oracles.gauss_legendre(-1.0, 2.0, 4),
        lambda rng, count, d: rng.uniform(-1.0, 2.0, (count, d)),
    ),
    "monomial": Family(
        lambda rng, n, d: sm.MonomialBasis(-0.15 + 5.0 * rng.random((n, d)), 0.0, 1.5),
        lambda basis, y: np.prod(y[:, None] ** np.asarray(*_read(basis, "exponent")), axis=-1),
        lambda: oracles.tanh_sinh(0.0, 1.5),
        lambda rng, count, d: rng.uniform(0.0, 1.5, (count, d)),
    ),
    "fourier": Family(
        lambda rng, n, d: sm.FourierBasis(
            2.0 * rng.normal(size=(n, d)) * (np.arange(n) > 0)[:, None],
            2.0 * rng.normal(size=(n, d)) * (np.arange(n) > 0)[:, None],
            -1.0,
            2.0,
        ),
        _fourier,
        lambda: oracles.gauss_legendre(-1.0, 2.0, 4),
        lambda rng, count, d: rng.uniform(-1.0, 2.0, (count, d)),
    ),
}


def _triangle(rng: Rng, n: int) -> np.ndarray:
    return np.tril(0.5 * rng.normal(size=(n, n)), -1) + np.diag(0.5 + rng.random(n))


COUPLINGS = {
    "kraus": lambda rng, n, m: sm.Kraus(rng.normal(size=(n, m, 4)), _triangle(rng, n)),
    "kraus-background": lambda rng, n, m: sm.Kraus(rng.normal(size=(n, m, 4)), _triangle(rng, n), background=0.2),
    "paired": lambda rng, n, m: sm.Paired(_triangle(rng, n)),
    "linear": lambda rng, n, m: sm.Linear(0.1 + rng.random(n)),
}

SIGNED = {name for name, family in LIBRARY.items() if not family.basis.nonnegative}
COMBINATIONS = [
    (family, coupling)
    for family in FAMILIES
    for coupling in COUPLINGS
    if not (family in SIGNED and coupling == "linear")
    and not (coupling == "kraus-background" and family not in ("gaussian", "fourier"))
]

# The smallest list with every family and every coupling in it. A property is as true for the rest of the
# product, which would mostly repeat compilation: with SOSMARKOV_EXHAUSTIVE=1 in the environment
# (`make exhaustive`) COVER is the whole product.
EXHAUSTIVE = os.environ.get("SOSMARKOV_EXHAUSTIVE") == "1"
# Examples that train more than once; what they do has smaller tests of its own.
only_exhaustive = pytest.mark.skipif(not EXHAUSTIVE, reason="a long example: `make exhaustive` runs it")
COVER = [
    ("gaussian", "kraus"),
    ("gaussian-full", "kraus"),
    ("beta", "paired"),
    ("exponential", "linear"),
    ("monomial", "paired"),
    ("fourier", "kraus-background"),
]
COVER = COMBINATIONS if EXHAUSTIVE else COVER


def _affine(rng: Rng, d: int) -> sm.Affine:
    return sm.Affine(rng.normal(size=d), np.eye(d) + 0.3 * rng.normal(size=(d, d)))


TRANSFORMS = {
    "identity": lambda rng, d: sm.Identity(d),
    "standardize": lambda rng, d: sm.Standardize(rng.normal(size=d), 0.5 + rng.random(d)),
    "affine": _affine,
    "gaussian_cdf": lambda rng, d: sm.GaussianCDF(rng.normal(size=d), 0.5 + rng.random(d)),
    "chain": lambda rng, d: sm.Chain([_affine(rng, d), sm.GaussianCDF(np.zeros(d), 1.0 + rng.random(d))]),
}


def make_parts(family: str, coupling: str, d: int, seed: int, n: int = 5) -> tuple:
    """Two random bases of n functions and a coupling."""
    rng = np.random.default_rng(seed)
    make = FAMILIES[family].make
    return make(rng, n, d), make(rng, n, d), COUPLINGS[coupling](rng, n, n)


def make_transition(
    family: str, coupling: str, d: int, seed: int, n: int = 5, transform: sm.Transform | None = None
) -> sm.Transition:
    """A random transition of n functions in and out."""
    return sm.Transition(*make_parts(family, coupling, d, seed, n), transform)


def make_start(family: str, coupling: str, d: int, seed: int) -> sm.Form:
    """A random form to start from, of the coupling's kind, on a basis of three functions of its own."""
    rng = np.random.default_rng(seed + 10_000)
    basis = FAMILIES[family].make(rng, 3, d)
    if coupling == "linear":
        return sm.LinearForm(basis, 0.1 + rng.random(3))
    return sm.SquaredForm(basis, _triangle(rng, 3))


def make_process(
    family: str, coupling: str, d: int, seed: int, n: int = 5, transform: sm.Transform | None = None
) -> sm.MarkovProcess:
    """A random process."""
    start = make_start(family, coupling, d, seed)
    return sm.MarkovProcess(make_transition(family, coupling, d, seed, n, transform), start)
