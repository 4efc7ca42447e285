"""Exact draws from a network, block by block.

Each block is drawn from its exact conditional given what is known, by rejection: the conditional is a signed sum of
products of functions, and the sum with absolute coefficients lies above it and is a mixture one can draw from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, PRNGKeyArray

from sosmarkov.core import checks
from sosmarkov.core.programs import few_lengths
from sosmarkov.factor.bases import Basis, Terms
from sosmarkov.factor.forms import SquaredForm
from sosmarkov.networks.conditional import ConditionalKernel
from sosmarkov.networks.contract import Question, contract
from sosmarkov.networks.model import Model, halves, pair_values

_CHUNK = 2048
# Entries of the tables that draws of one chunk hold, each its own.
_MOST_HELD = 2**24
_LEAST_ACCEPTANCE = 1e-6


def draw(
    model: Model, key: PRNGKeyArray, count: int, kept: tuple[int, ...], fixed: dict[int, Array]
) -> dict[int, Float[Array, "n _"]]:
    """Draws of the kept blocks given the fixed ones, in model space, by position.

    Where all parents of the fixed blocks are fixed, blocks are drawn from their own conditionals, parents first.
    Otherwise each kept block is drawn given the fixed ones and those drawn before it, the rest integrated out.
    """
    if not checks.is_concrete(model.grams[0]):
        raise ValueError("Expected known numbers to draw from a network, got traced ones. Draw outside of jit.")
    for kernel in model.kernels:
        if not kernel.psi.nonnegative:
            raise ValueError(
                f"Expected non-negative functions to draw from a network, got family {kernel.psi.family}."
                " Use Gaussian ones."
            )
    parents = model.structure.parents
    if all(j in fixed for i in fixed for j in parents[i]):
        order, one = _with_ancestors(parents, kept, fixed), _given_parents
    else:
        order, one = sorted(kept), _given_all
    chunk = min(_chunk(model, order), few_lengths(count, 16))
    found = []
    for begin in range(0, count, chunk):
        points = dict(fixed)
        for i in order:
            points[i] = one(model, jax.random.fold_in(jax.random.fold_in(key, begin), i), i, points, chunk)
        found.append({i: np.asarray(points[i]) for i in kept})
    return {i: jnp.asarray(np.concatenate([part[i] for part in found])[:count]) for i in kept}


def _with_ancestors(parents: tuple[tuple[int, ...], ...], kept: tuple[int, ...], fixed: dict[int, Array]) -> list[int]:
    needed, waiting = set(), list(kept)
    while waiting:
        i = waiting.pop()
        if i not in needed and i not in fixed:
            needed.add(i)
            waiting += parents[i]
    return sorted(needed)


def _chunk(model: Model, order: list[int]) -> int:
    held = max(model.tables[i].size for i in order)
    return 1 << max(4, min(_CHUNK, _MOST_HELD // held).bit_length() - 1)


def _require_accepted(model: Model, block: int, acceptance: Array) -> None:
    least = float(np.min(acceptance))
    if not least > _LEAST_ACCEPTANCE:
        raise ValueError(
            f"Expected draws of block {model.structure.names[block]!r} that are kept more often than"
            f" {_LEAST_ACCEPTANCE:g}, got {least:.1g}: its terms cancel too much. Draw from the whole network and"
            " weigh the draws by the conditional density of the fixed values."
        )


# --- given the parents: f_i G_i -------------------------------------------------------------------


class _Block(eqx.Module):
    """What draws of one block need, without its place in the network: blocks of one shape share a program."""

    kernel: ConditionalKernel
    factors: tuple[SquaredForm, ...]
    table: Array

    def envelope(self) -> Float[Array, "q p"]:
        """The mass of each term of the mixture above G_i psi_q, all children's pairs in one axis."""
        weights = jnp.ones(1)
        for factor in self.factors:
            weights = (weights[:, None] * jnp.abs(factor.coefficients)[None]).reshape(-1)
        return self.table.reshape(len(self.table), -1) * weights[None]


def _given_parents(model: Model, key: PRNGKeyArray, i: int, points: dict[int, Array], count: int) -> Array:
    """One draw of p(x_i | parents) for each row of the parents' points, shape (count, d)."""
    parents = tuple(_rows(points[j], count) for j in model.structure.parents[i])
    block = _Block(model.kernels[i], model.child_factors(i), model.tables[i])
    h, acceptance = _forms(block, parents, count)
    _require_accepted(model, i, acceptance)
    return _draw_given_parents(block, jax.random.split(key, count), h, parents)


def _rows(y: Array, count: int) -> Array:
    return y if y.ndim == 2 else jnp.broadcast_to(y, (count, len(y)))


@eqx.filter_jit
def _forms(block: _Block, parents: tuple[Array, ...], count: int) -> tuple[Array, Array]:
    """Coefficients of h for each row, and how often a proposal is kept."""
    form = block.kernel.form_from
    h = jax.vmap(form)(parents) if parents else jnp.broadcast_to(form(()), (count, len(block.table)))
    return h, 1.0 / (jnp.abs(h) @ jnp.sum(block.envelope(), axis=1))


@eqx.filter_jit
def _draw_given_parents(block: _Block, keys: Array, h: Array, parents: tuple[Array, ...]) -> Array:
    psi = block.kernel.psi
    left, right = _groups((psi, *(factor.basis for factor in block.factors)))
    cumulative = jnp.cumsum(block.envelope(), axis=1)

    def propose(key: PRNGKeyArray, h: Array, parents: tuple[Array, ...]) -> tuple[Array, Array]:
        inner, three = jax.random.split(key)
        u = jax.random.uniform(three, (3,))
        q = _pick(u[0], jnp.cumsum(jnp.abs(h) * cumulative[:, -1]))
        y = _sample_product(inner, psi, left[q], right, _pick(u[1], cumulative[q]))
        log_density, log_bound = block.kernel.log_prob(jnp.zeros(()), parents, y), _log_sum(psi, jnp.abs(h), y)
        for factor in block.factors:
            log_density = log_density + factor.log_value_inside(y)
            log_bound = log_bound + _log_sum(factor.basis, jnp.abs(factor.coefficients), y)
        return jnp.log(u[2]) < log_density - log_bound, y

    def one(key: PRNGKeyArray, h: Array, parents: tuple[Array, ...]) -> Array:
        return _until_kept(key, lambda key: propose(key, h, parents), psi)

    return jax.vmap(one)(keys, h, parents)


def _log_sum(basis: Basis, weights: Array, y: Array) -> Array:
    values, log_scale = pair_values(basis, y)
    return jnp.log(weights @ values) + log_scale


# --- given any blocks: the network contracted but for one block -----------------------------------


def _given_all(model: Model, key: PRNGKeyArray, block: int, points: dict[int, Array], count: int) -> Array:
    """One draw of p(x_i | all points) for each of their rows, shape (count, d)."""
    E, acceptance = _environment(model, block, points)
    _require_accepted(model, block, acceptance)
    return _draw_given_all(model.bases(block), model.tables[block], jax.random.split(key, count), E)


@eqx.filter_jit
def _environment(model: Model, block: int, points: dict[int, Array]) -> tuple[Array, Array]:
    """Coefficients of the block's conditional up to scale, shape (q, p) or (Z, q, p), and how often one is kept."""
    E = contract(model, Question(points, opened=(block,))).value
    table = model.tables[block]
    E = E.reshape(*E.shape[: E.ndim - table.ndim], len(table), -1)
    mass = E * lax.broadcast_to_rank(table.reshape(len(table), -1), E.ndim)
    return E, jnp.sum(mass, axis=(-2, -1)) / jnp.sum(jnp.abs(mass), axis=(-2, -1))


@eqx.filter_jit
def _draw_given_all(bases: tuple[Basis, ...], table: Array, keys: Array, E: Array) -> Array:
    left, right = _groups(bases)
    table = table.reshape(E.shape[-2:])

    def one(key: PRNGKeyArray, E: Float[Array, "q p"]) -> Array:
        cumulative = jnp.cumsum((jnp.abs(E) * table).reshape(-1))

        def propose(key: PRNGKeyArray) -> tuple[Array, Array]:
            inner, two = jax.random.split(key)
            u = jax.random.uniform(two, (2,))
            q, p = jnp.divmod(_pick(u[0], cumulative), table.shape[1])
            y = _sample_product(inner, bases[0], left[q], right, p)
            at_left, at_right = pair_values(bases[0], y)[0], jnp.ones(1)
            for phi in bases[1:]:
                at_right = (at_right[:, None] * pair_values(phi, y)[0][None]).reshape(-1)
            value, bound = at_left @ E @ at_right, at_left @ jnp.abs(E) @ at_right
            return u[1] * bound < value, y

        return _until_kept(key, propose, bases[0])

    return jax.vmap(one, in_axes=(0, 0 if E.ndim == 3 else None))(keys, E)


# --- shared ---------------------------------------------------------------------------------------


def _groups(bases: tuple[Basis, ...]) -> tuple[Terms, Terms | None]:
    """Pairs of psi, and all products of pairs of the children's functions, if there are any."""
    return (bases[0].terms(2), None) if len(bases) == 1 else halves(bases)[1:3]


def _sample_product(key: PRNGKeyArray, basis: Basis, left: Terms, right: Terms | None, p: Array) -> Array:
    theta = left.theta if right is None else basis.multiply(left.theta, right[p].theta)
    return basis.sample_term(key, theta)


def _pick(u: Float[Array, ""], cumulative: Float[Array, " p"]) -> Array:
    found = jnp.searchsorted(cumulative, u * cumulative[-1], side="right")
    return jnp.minimum(found, cumulative.size - 1)  # u = 1 - eps may round up to the total


def _until_kept(
    key: PRNGKeyArray, propose: Callable[[PRNGKeyArray], tuple[Bool[Array, ""], Array]], basis: Basis
) -> Array:
    def again(state: Any) -> Any:
        key, this = jax.random.split(state[0])
        return key, *propose(this)

    return lax.while_loop(lambda state: ~state[1], again, (key, jnp.asarray(False), basis.interior_point()))[2]
