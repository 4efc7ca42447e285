"""A network as tensors: what f_i and the integrals of its functions are over unique pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sosmarkov.core.numerics import exp, pack, pair_indices, unpack
from sosmarkov.factor.bases import Basis, Terms, require_compatible
from sosmarkov.factor.forms import SquaredForm
from sosmarkov.networks.conditional import Conditional, ConditionalKernel
from sosmarkov.networks.structure import Structure

# Entries of the largest table that is built: 800 MB in double precision.
MOST_ENTRIES = 10**8


class Model(eqx.Module):
    """Normalised conditionals, and the tensors that exact answers are contractions of, in model space.

    Attributes:
        structure: The graph.
        kernels: One a block.
        grams: M_i = int G_i psi_i psi_i^T, shape (m_i, m_i).
        tables: V_i = int of (a pair of psi_i) (a pair of phi_ci for each child c), shape (q_i, p_c1, p_c2, ...).
        tensors: f_i over (a pair of phi_ij for each parent j, a pair of psi_i), shape (p_1, ..., p_P, q_i).
    """

    structure: Structure = eqx.field(static=True)
    kernels: tuple[ConditionalKernel, ...]
    grams: tuple[Float[Array, "_ _"], ...]
    tables: tuple[Array, ...]
    tensors: tuple[Array, ...]

    def child_factors(self, block: int) -> tuple[SquaredForm, ...]:
        """The factors g_ci that the block's children have in it."""
        edges = self.structure.children(block)
        return tuple(SquaredForm(self.kernels[c].phi[k], self.kernels[c].factors[k]) for c, k in edges)

    def bases(self, block: int) -> tuple[Basis, ...]:
        """What a block is integrated with: psi_i and its children's phi_ci."""
        return _bases(self.structure, self.kernels, block)


def normalise(
    structure: Structure, conditionals: Sequence[Conditional]
) -> tuple[tuple[ConditionalKernel, ...], tuple[Array, ...], tuple[Array, ...]]:
    """Kernels, M_i and V_i (see `Model`): conditionals normalised against the factors children have in their blocks."""
    kernels, grams, tables = [], [], []
    for i, conditional in enumerate(conditionals):
        table = integrals(_bases(structure, conditionals, i))
        M = table
        # The last child's axis is the last one.
        for child, position in reversed(structure.children(i)):
            L = conditionals[child].factors[position]
            M = M @ pack(L @ L.T)
        M = unpack(M, conditional.psi.size)
        kernels.append(conditional.normalise(M))
        grams.append(M)
        tables.append(table)
    return tuple(kernels), tuple(grams), tuple(tables)


@eqx.filter_jit
def make_model(structure: Structure, conditionals: Sequence[Conditional]) -> Model:
    """The tensors of a network, once for all questions."""
    kernels, grams, tables = normalise(structure, conditionals)
    return Model(structure, kernels, grams, tables, tuple(kernel.tensor() for kernel in kernels))


def require_fitting(structure: Structure, conditionals: Sequence[Conditional]) -> None:
    """Refuse bases that do not fit the blocks they are in, and tables too large to build."""
    for i, (name, conditional) in enumerate(zip(structure.names, conditionals, strict=True)):
        named = [(f"psi of {name!r}", conditional.psi)]
        for child, position in structure.children(i):
            named.append((f"phi of {structure.names[child]!r} in {name!r}", conditionals[child].phi[position]))
        require_compatible(*named)
        pairs = [len(pair_indices(basis.size)[0]) for _, basis in named]
        if math.prod(pairs) > MOST_ENTRIES:
            raise ValueError(
                f"Expected at most {MOST_ENTRIES:.0e} integrals over block {name!r}, got"
                f" {' x '.join(map(str, pairs))} = {math.prod(pairs):.1e} for its own functions and its"
                f" {len(pairs) - 1} children's. Use fewer functions there, or fewer children."
            )
        rows = math.prod(conditional.K.shape[:-1])
        if rows**2 > MOST_ENTRIES:
            raise ValueError(
                f"Expected at most {MOST_ENTRIES:.0e} products of coefficients for block {name!r}, got"
                f" ({' x '.join(map(str, conditional.K.shape[:-1]))})^2 = {rows**2:.1e} for its"
                f" {len(conditional.phi)} parents. Use fewer functions there, or fewer parents."
            )


# --- integrals over one block ---------------------------------------------------------------------


def _bases(
    structure: Structure, conditionals: Sequence[Conditional] | Sequence[ConditionalKernel], block: int
) -> tuple[Basis, ...]:
    """What a block is integrated with: psi_i and its children's phi_ci."""
    children = (conditionals[child].phi[position] for child, position in structure.children(block))
    return (conditionals[block].psi, *children)


def integrals(bases: Sequence[Basis], lower: Array | None = None, upper: Array | None = None) -> Array:
    """int of a pair of functions from each basis, shape (p_1, p_2, ...), over the domain or a box; zero if empty."""
    basis, groups = bases[0], [basis.terms(2) for basis in bases]
    if lower is None or upper is None:
        log_abs, sign = basis.log_overlap(*groups)
        return sign * exp(log_abs)
    low, high = jnp.maximum(lower, basis.lower), jnp.minimum(upper, basis.upper)
    empty = jnp.any(low >= high)
    # An empty box is given some harmless ends, and no mass.
    safe = jnp.where(empty, basis.lower, low), jnp.where(empty, basis.upper, high)
    log_abs, sign = basis.log_overlap(*groups, lower=safe[0], upper=safe[1])
    return jnp.where(empty, 0.0, sign * exp(log_abs))


def halves(bases: Sequence[Basis]) -> tuple[Basis, Terms, Terms, tuple[int, ...]]:
    """A basis, two groups of terms whose products are all that is integrated, and the shape of `integrals`.

    The first group are the pairs of the first basis, the second all products of pairs of the others. A block without
    children has one basis only: then both are its functions, and the shape is ().
    """
    basis = bases[0]
    if len(bases) == 1:
        return basis, basis.terms(1), basis.terms(1), ()
    first, second, *others = [basis.terms(2) for basis in bases]
    shape = tuple(len(terms.log_scale) for terms in (first, second, *others))
    for terms in others:
        both = basis.outer(second, terms)
        second = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), both)
    return basis, first, second, shape


def first_moments(bases: Sequence[Basis]) -> Array:
    """`integrals` of y_c times the functions, for each coordinate c, shape (d, p_1, p_2, ...)."""
    basis, left, right, shape = halves(bases)
    found = [basis.power_table(left, right, c) for c in range(basis.dim)]
    if shape:
        return jnp.stack([table.reshape(shape) for table in found])
    rows, columns = pair_indices(basis.size)
    return jnp.stack([table[rows, columns] for table in found])


def pair_values(basis: Basis, y: Float[Array, " d"]) -> tuple[Float[Array, " p"], Float[Array, ""]]:
    """Products of unique pairs of functions at one point, the largest function pulled out as a logarithm."""
    at_y = basis.evaluate(y).scaled()
    rows, columns = pair_indices(basis.size)
    return at_y.values[rows] * at_y.values[columns], 2.0 * at_y.log_scale
