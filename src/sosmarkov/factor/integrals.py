"""Integrals of a density written as a signed sum of products of terms: mass, boxes, moments, marginals, overlaps."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from sosmarkov.core.checks import is_concrete
from sosmarkov.core.numerics import finite_top
from sosmarkov.factor.bases import FullGaussianBasis, Terms, require_compatible
from sosmarkov.factor.bases.base import Expansion
from sosmarkov.factor.space import Space
from sosmarkov.spaces.transforms import Transform

_MOST_PAIRS = 2 * 10**10


@eqx.filter_jit
def mass(sum_: Expansion) -> Float[Array, ""]:
    """The integral of all of it."""
    return jnp.sum(sum_.weights * sum_.basis.overlap(sum_.left, sum_.right, **sum_.box))


def log_mass(sum_: Expansion) -> Float[Array, ""]:
    """The logarithm of the mass, where the mass itself may be none that a double can hold."""
    log_abs, sign = sum_.basis.log_overlap(sum_.left, sum_.right, **sum_.box)
    top = finite_top(log_abs)
    return jnp.log(jnp.sum(sum_.weights * sign * jnp.exp(log_abs - top))) + top


def mass_between(sum_: Expansion, lower: Float[Array, " d"], upper: Float[Array, " d"]) -> Float[Array, ""]:
    """The integral over what a box shares with the domain and with the sum's own box."""
    return jnp.sum(sum_.weights * sum_.basis.overlap_between(sum_.left, sum_.right, *sum_.ends(lower, upper)))


@eqx.filter_jit
def mean_and_covariance(sum_: Expansion, transform: Transform) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """E[x] and Cov[x] in data space."""
    d = sum_.basis.dim
    matrix, offset, inner = transform.split(sum_.lower, sum_.upper)
    rows, columns = np.triu_indices(d)
    powers = np.concatenate([np.eye(d, dtype=int), np.eye(d, dtype=int)[rows] + np.eye(d, dtype=int)[columns]])
    values = sum_.basis.contract_powers(sum_, powers, inner)
    first = values[:d]
    second = jnp.zeros((d, d)).at[rows, columns].set(values[d:]).at[columns, rows].set(values[d:])
    centred = second - jnp.outer(first, first)
    return matrix @ first + offset, matrix @ centred @ matrix.T


@eqx.filter_jit
def moment(sum_: Expansion, transform: Transform, powers: tuple[int, ...]) -> Float[Array, ""]:
    """E[prod_c x_c^powers_c]: x is affine in s(y), so the product is a polynomial in s."""
    matrix, offset, inner = transform.split(sum_.lower, sum_.upper)
    d = sum_.basis.dim
    polynomial: dict[tuple[int, ...], Array | float] = {(0,) * d: 1.0}
    for c in np.repeat(np.arange(d), powers):
        reached = [c] if transform.coordinatewise else range(d)
        longer: dict[tuple[int, ...], Array | float] = {}
        for exponents, coefficient in polynomial.items():
            longer[exponents] = longer.get(exponents, 0.0) + coefficient * offset[c]
            for e in reached:
                raised = tuple(p + (e == i) for i, p in enumerate(exponents))
                longer[raised] = longer.get(raised, 0.0) + coefficient * matrix[c, e]
        polynomial = longer
    rows = np.array(list(polynomial))
    values = sum_.basis.contract_powers(sum_, rows, inner)
    return values @ jnp.stack([jnp.asarray(coefficient) for coefficient in polynomial.values()])


def marginalise(sum_: Expansion, kept: tuple[int, ...]) -> Expansion:
    """The sum with all but some coordinates integrated out."""
    if not sum_.basis.axis_aligned:
        # Which coordinates are kept is data here: one program, which takes long to compile, serves all of them.
        order = [*kept, *(c for c in range(sum_.basis.dim) if c not in kept)]
        sum_, kept = _reordered(sum_, sum_.basis, jnp.asarray(order)), tuple(range(len(kept)))
    return _marginalise(sum_, kept)


@eqx.filter_jit
def _reordered(sum_: Expansion, basis: Any, order: Int[Array, " d"]) -> Expansion:
    """A sum of Gaussians over the same coordinates in another order."""
    by = (slice(None), order[:, None], order)

    def turned(terms: Terms) -> Terms:
        theta = terms.theta
        return Terms(theta._replace(precision=theta.precision[by], mean=theta.mean[:, order]), terms.log_scale)

    turned_basis = FullGaussianBasis(basis.mean[:, order], basis.covariance[by])
    return Expansion(turned_basis, turned(sum_.left), turned(sum_.right), sum_.weights, sum_.lower, sum_.upper)


@eqx.filter_jit
def _marginalise(sum_: Expansion, kept: tuple[int, ...]) -> Expansion:
    return sum_.basis.marginalise(sum_, kept)


def overlap(one: Expansion, other: Expansion, transform: Transform, other_transform: Transform) -> Float[Array, ""]:
    """int p q in data space, for two sums under the same affine transform."""
    require_compatible(("the belief", one.basis), ("the other belief", other.basis))
    Space(one.basis, transform).require("overlap")
    same = eqx.filter_jit(eqx.tree_equal)(transform, other_transform)
    if is_concrete(jnp.asarray(same)) and not same:
        raise ValueError(
            "Expected two beliefs under the same affine transform for an overlap in closed form, got different ones."
            " Average other.prob over draws of this belief instead."
        )
    pairs = one.weights.size * other.weights.size
    if pairs > _MOST_PAIRS:
        raise ValueError(
            f"Expected at most {_MOST_PAIRS:.0e} products of terms for an overlap in closed form, got {pairs:.0e}."
            " Average other.prob over draws of this belief instead."
        )
    return _overlap(one, other, transform)


@eqx.filter_jit
def _overlap(one: Expansion, other: Expansion, transform: Transform) -> Array:
    basis, box = one.basis, {}
    if one.lower is not None or other.lower is not None:
        low, high = other.ends(*one.ends())
        box = {"lower": low, "upper": jnp.maximum(low, high)}
    columns = basis.pairs(one.left, one.right)

    def row(inputs: tuple[Terms, Array]) -> Array:
        term, weights = inputs
        rows = basis.pairs(term[None], other.right)
        return weights @ basis.overlap(rows, columns, **box) @ one.weights.reshape(-1)

    total = jnp.sum(lax.map(row, (other.left, other.weights)))
    return total * jnp.exp(transform.forward(transform.split().offset)[1])
