"""What every family shares: functions of unit norm, their products, and one table of overlaps.

A family brings two primitives, `multiply` and `log_integral`, on its own parameters `theta`.
Overlaps of any number of functions, marginals, moments and box integrals are compositions of these.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, PRNGKeyArray

from sosmarkov.core.numerics import Quadrature, Signed, pair_indices, within
from sosmarkov.core.programs import traced_once

Theta = Any


class Terms(eqx.Module):
    """P products of basis functions, exp(log_scale_p) times the family's function of theta_p."""

    theta: Theta
    log_scale: Float[Array, "*p"]

    def __getitem__(self, index: Any) -> Terms:
        """The terms at an index or slice of the leading axis."""
        return jax.tree.map(lambda leaf: leaf[index], self)

    def take(self, where: np.ndarray) -> Terms:
        """The terms at known places: what indexing does too, with a sixth of its tracing."""
        return jax.tree.map(lambda leaf: jnp.take(leaf, where, axis=0), self)


class Expansion(eqx.Module):
    """sum_pq w_pq left_p(y) right_q(y), on the domain or on a box in it."""

    basis: Basis
    left: Terms
    right: Terms
    weights: Float[Array, "p q"]
    lower: Float[Array, " d"] | None = None
    upper: Float[Array, " d"] | None = None

    @property
    def box(self) -> dict[str, Array | None]:
        """The ends to integrate between."""
        return {"lower": self.lower, "upper": self.upper}

    def ends(self, lower: Array | float = -np.inf, upper: Array | float = np.inf) -> tuple[Array, Array]:
        """What a box shares with the domain and with its own box."""
        low, high = jnp.maximum(lower, self.basis.lower), jnp.minimum(upper, self.basis.upper)
        if self.lower is not None and self.upper is not None:
            low, high = jnp.maximum(low, self.lower), jnp.minimum(high, self.upper)
        return low, high

    def inside(self, y: Float[Array, "b d"]) -> tuple[Bool[Array, " b"], Float[Array, "b d"]]:
        """Which points lie where it is defined, and the points with some point of the domain for the others."""
        inside = self.basis.inside(y) & within(y, self.lower, self.upper)
        return inside, jnp.where(inside[:, None], y, self.basis.interior_point())

    def box_of(self, kept: tuple[int, ...]) -> list[Array | None]:
        """Its ends in some coordinates."""
        return [None if end is None else end[np.asarray(kept)] for end in (self.lower, self.upper)]


class Basis(eqx.Module):
    """n functions on a domain in R^d, each of unit L2 norm.

    The norm is fixed because a scale is absorbed by the coefficients of any form over the basis;
    it keeps overlaps near one. Concrete families are final: they add formulas, never override.
    The first array of a family has shape (n, d, ...).
    """

    family: ClassVar[str]
    nonnegative: ClassVar[bool] = True
    # Whether functions are products over coordinates, and whether they are Gaussians.
    axis_aligned: ClassVar[bool] = True
    gaussian: ClassVar[bool] = False

    @property
    def size(self) -> int:
        """Number of functions n."""
        return self._first.shape[0]

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return self._first.shape[1]

    # Where only shapes are asked for, what stands for an array.
    @property
    def _first(self) -> Array | jax.ShapeDtypeStruct:
        return jax.tree.leaves(self)[0]

    @property
    def lower(self) -> np.ndarray:
        """Lower end of the domain per coordinate, shape (d,); a fixed fact, not traced. R^d unless a family says."""
        return np.full(self.dim, -np.inf)

    @property
    def upper(self) -> np.ndarray:
        """Upper end of the domain per coordinate, shape (d,)."""
        return np.full(self.dim, np.inf)

    @abstractmethod
    def natural(self) -> Theta:
        """Parameters of the unscaled functions, a pytree with leading axis n."""

    @abstractmethod
    def multiply(self, left: Theta, right: Theta) -> Theta:
        """Parameters of the pointwise product; leading axes broadcast."""

    @abstractmethod
    def log_abs(self, theta: Theta, y: Float[Array, " d"]) -> tuple[Array, Array]:
        """log|f| and sign of the unscaled functions at one point inside the domain."""

    @abstractmethod
    def log_integral(self, theta: Theta, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """log|I| and sign of the integral over the domain, or over a box within it."""

    @abstractmethod
    def log_pair_table(
        self, left: Terms, right: Terms, lower: Array | None, upper: Array | None
    ) -> tuple[Array, Array]:
        """log|I| and sign of the integral of every product of a left and a right term, shape (P, Q)."""

    @abstractmethod
    def contract_powers(
        self, sum_: Expansion, powers: np.ndarray, observable: Quadrature | None = None
    ) -> Float[Array, " k"]:
        """sum_pq w_pq int prod_c y_c^powers[k, c] left_p right_q dy for each row k of powers.

        With an observable, of a function s of single coordinates in the place of y, by its quadrature rule.
        """

    @abstractmethod
    def power_table(
        self, left: Terms, right: Terms, coordinate: int, observable: Quadrature | None = None
    ) -> Float[Array, "p q"]:
        """int y_c left_p right_q dy (or of s(y_c)) for every pair of terms."""

    @abstractmethod
    def marginalise(self, sum_: Expansion, kept: tuple[int, ...]) -> Expansion:
        """The sum with the other coordinates integrated out, in the same form."""

    @abstractmethod
    def slice(self, fixed: tuple[int, ...], values: Float[Array, " f"]) -> tuple[Basis, Signed]:
        """Functions of the other coordinates, and factors: f_i(y) = factor_i f'_i(y_others) where y_fixed = values."""

    @abstractmethod
    def restrict(self, kept: tuple[int, ...]) -> Basis:
        """The same functions on some coordinates only."""

    def envelope(self) -> tuple[Basis, Terms]:
        """A non-negative family, and its terms that bound |f_i| from above, to sample from: its own where it is one."""
        return self, self.terms(1)

    @abstractmethod
    def sample_term(self, key: PRNGKeyArray, theta: Theta) -> Float[Array, " d"]:
        """One draw from the density proportional to one non-negative product of functions."""

    @abstractmethod
    def inside(self, y: Float[Array, "... d"]) -> Bool[Array, ...]:
        """Whether points lie in the domain."""

    @abstractmethod
    def interior_point(self) -> Float[Array, " d"]:
        """Some point where every function is finite."""

    def broad(self, width: float) -> tuple[Any, ...]:
        """The fields of one function that is far broader than the data, each a number for all of its entries, or all.

        A kernel of this width at the origin of model space on R^d, the constant on a bounded domain.
        """
        del width
        raise ValueError(
            f"Expected a family with a broad function to add for a background, got {self.family}, which has none."
            " Use a background share of zero."
        )

    def rebuilt(self, theta: Theta) -> tuple[Basis, Array]:
        """A basis of functions with these parameters, and the log of a factor each of them has besides, shape (n,)."""
        del theta
        raise ValueError(self._not_closed())

    def power(self, theta: Theta, exponent: float) -> Theta:
        """Parameters of the function to a power."""
        del theta, exponent
        raise ValueError(self._not_closed())

    def project(
        self, left: Terms, right: Terms, H: Float[Array, "k d"]
    ) -> tuple[Float[Array, "k p q"], dict[tuple[int, int], Float[Array, "p q"]]]:
        """Mean and covariance of H y under every product of two terms, by (row, column); of Gaussian families alone."""
        del left, right, H
        raise ValueError(f"Expected a Gaussian family to project, got {self.family}.")

    def _not_closed(self) -> str:
        return (
            f"Expected a family whose products are of the family again, for readings that weigh states smoothly;"
            f" got {self.family}. Use interval readings, or another basis."
        )

    # --- written once -----------------------------------------------------------------------------

    def with_broad(self, width: float) -> Basis:
        """The functions and, as the last, a far broader one: what a background needs."""
        leaves, structure = jax.tree.flatten(self)
        rows = [jnp.full((1, *leaf.shape[1:]), value) for leaf, value in zip(leaves, self.broad(width), strict=True)]
        return jax.tree.unflatten(structure, map(lambda *both: jnp.concatenate(both), leaves, rows))

    def log_norm(self) -> Float[Array, " n"]:
        """Log of the scale that gives each function unit L2 norm: -1/2 log int f^2."""
        theta = self.natural()
        squared, _ = self.log_integral(self.multiply(theta, theta), None, None)
        return -0.5 * squared

    @partial(traced_once, static_argnums=1)
    def terms(self, order: int) -> Terms:
        """The functions themselves (order 1) or their products over unique pairs i <= j (order 2)."""
        return self.products(Terms(self.natural(), self.log_norm()), order)

    def products(self, single: Terms, order: int) -> Terms:
        """Products of `order` of the given terms over unique pairs."""
        if order == 1:
            return single
        rows, columns = pair_indices(single.log_scale.shape[0])
        left, right = single.take(rows), single.take(columns)
        return Terms(self.multiply(left.theta, right.theta), left.log_scale + right.log_scale)

    @traced_once
    def evaluate(self, y: Float[Array, " d"]) -> Signed:
        """All n functions at one point of the domain."""
        log_abs, sign = self.log_abs(self.natural(), y)
        return Signed(log_abs + self.log_norm(), jnp.broadcast_to(sign, log_abs.shape))

    def log_overlap(
        self, *groups: Terms, lower: Array | None = None, upper: Array | None = None
    ) -> tuple[Array, Array]:
        """log|I| and sign of int prod_g t_g(y) dy for every choice of one term from each group.

        Groups of orders o_1, o_2, ... give overlaps of o_1 + o_2 + ... functions: 2 (1 + 1),
        3 (2 + 1), 4 (2 + 2), 5 (2 + 2 + 1), over the domain or over a box.
        """
        if len(groups) == 1:
            log_abs, sign = self.log_integral(groups[0].theta, lower, upper)
            return log_abs + groups[0].log_scale, sign
        first, second, *others = groups
        shape = [group.log_scale.shape[0] for group in (first, *others)]
        for group in others:
            first = self.pairs(first, group)
        tables = self.log_pair_table(first, second, lower, upper)

        def arrange(table: Array) -> Array:
            return jnp.moveaxis(table.reshape(*shape, -1), -1, 1) if table.ndim else table

        return arrange(tables[0]), arrange(tables[1])

    def outer(self, left: Terms, right: Terms) -> Terms:
        """Every product of a left and a right term, shape (P, Q)."""
        left, right = left[:, None], right[None]
        return Terms(self.multiply(left.theta, right.theta), left.log_scale + right.log_scale)

    def pairs(self, left: Terms, right: Terms) -> Terms:
        """The same as one group of P Q terms."""
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.outer(left, right))

    def overlap(self, *groups: Terms, lower: Array | None = None, upper: Array | None = None) -> Array:
        """The table of integrals itself, shape (P_1, P_2, ...)."""
        log_abs, sign = self.log_overlap(*groups, lower=lower, upper=upper)
        return sign * jnp.exp(log_abs)

    def overlap_between(self, left: Terms, right: Terms, lower: Array, upper: Array) -> Float[Array, "p q"]:
        """The table over what a box shares with the domain; zero where that is nothing."""
        low, high = jnp.maximum(lower, self.lower), jnp.minimum(upper, self.upper)
        empty = jnp.any(low >= high)
        # An empty box is given some harmless ends, and no mass.
        safe = jnp.where(empty, self.lower, low), jnp.where(empty, self.upper, high)
        return jnp.where(empty, 0.0, self.overlap(left, right, lower=safe[0], upper=safe[1]))

    def gram(self) -> Float[Array, "n n"]:
        """Gamma_ij = int f_i f_j."""
        single = self.terms(1)
        return self.overlap(single, single)

    def times(self, factor: Terms) -> tuple[Basis, Float[Array, " n"]]:
        """Functions f_i t for one term t of the family, as a basis, and log factors: f_i t = exp(log_factor_i) f'_i."""
        basis, offset = self.rebuilt(self.multiply(self.natural(), factor[None].theta))
        return basis, self.log_norm() + factor.log_scale + offset - basis.log_norm()


def require_compatible(*named: tuple[str, Basis]) -> None:
    """Refuse bases of different families, dimensions or domains: their products have no formula."""
    (first_name, first), *others = named
    for name, basis in others:
        if type(basis) is not type(first):
            raise ValueError(
                f"Expected {name} of the same family as {first_name} ({first.family}),"
                f" got {basis.family}. Products of different families have no closed integral."
            )
        if basis.dim != first.dim:
            raise ValueError(f"Expected {name} with {first.dim} coordinates like {first_name}, got {basis.dim}.")
        same_domain = np.array_equal(basis.lower, first.lower) and np.array_equal(basis.upper, first.upper)
        if not same_domain:
            raise ValueError(
                f"Expected {name} on the domain of {first_name}, {first.lower} to {first.upper},"
                f" got {basis.lower} to {basis.upper}."
            )
