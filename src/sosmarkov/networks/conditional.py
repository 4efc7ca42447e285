"""One conditional of a network in rational-factor form, free and normalised."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import Scaled, Signed, pack
from sosmarkov.core.stored import require, stored
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.couplings.base import raw_triangle, require_share, triangle
from sosmarkov.factor.couplings.kraus import whitened


def _sound(conditional: Conditional) -> None:
    require_share(conditional.background)
    sizes, shape = conditional.sizes, conditional.K.shape
    require(len(conditional.parents) == len(sizes), "one basis for each parent")
    require(shape[:-1] == (*sizes, conditional.psi.size), "a K that fits the bases of a conditional")
    require(shape[-2] * shape[-1] >= math.prod(sizes), "a rank with which a conditional can be normalised")
    factors = [factor.shape for factor in conditional.raw_factors]
    require(factors == [(n, n) for n in sizes], "one square factor for each parent")


@stored(check=_sound)
class Conditional(eqx.Module):
    """The free parameters of p(x | parents) = G(x) f(parents, x) / prod_j g_j(x_j).

    g_j = phi_j^T A_j phi_j is the conditional's factor in its parent j, A_j = L_j L_j^T; G is the product of the
    factors that the block's children have in it, one where it has none; and with w_j = L_j^T phi_j(x_j)

        f = sum_r (sum_abc... w_1a w_2b ... K_ab...cr psi_c(x))^2

    In the product of all conditionals of a network every factor stands once above and once below.

    Args:
        psi: Basis in x, m functions.
        K: Shape (n_1, ..., n_P, m, R) with m R >= n_1 ... n_P; (m, R) for a block without parents.
        parents: From the parents' names to bases in them, n_j functions each.
        factors: L_j by name, shape (n_j, n_j), lower triangular with a positive diagonal; the identity where absent.
        background: The share e of a density that does not depend on the parents, G psi_m^2 / int G psi_m^2, for
            honest tails where the last function of psi is broad; at least zero and below one.
    """

    psi: Basis
    phi: tuple[Basis, ...]
    K: Float[Array, "*n m r"]
    raw_factors: tuple[Float[Array, "_ _"], ...]
    parents: tuple[str, ...] = eqx.field(static=True)
    background: float = eqx.field(static=True)

    def __init__(
        self,
        psi: Basis,
        K: ArrayLike,
        parents: Mapping[str, Basis] | None = None,
        *,
        factors: Mapping[str, ArrayLike] | None = None,
        background: float = 0.0,
    ):
        parents, factors = dict(parents or {}), dict(factors or {})
        self.psi, self.phi, self.parents = psi, tuple(parents.values()), tuple(parents)
        self.background = require_share(background)
        self.K = checks.parameter(K, "K", (*(phi.size for phi in self.phi), psi.size, None))
        strangers = [name for name in factors if name not in parents]
        if strangers:
            raise ValueError(f"Expected factors of parents among {list(parents)}, got them of {strangers}.")
        self.raw_factors = tuple(
            raw_triangle(factors.get(name, np.eye(phi.size)), phi.size, f"the factor of {name!r}")
            for name, phi in parents.items()
        )
        rows, (m, rank) = math.prod(self.sizes), self.K.shape[-2:]
        if m * rank < rows:
            raise ValueError(
                f"Expected m * R >= n_1 ... n_P so that the conditional can be normalised, got m = {m}, R = {rank} and"
                f" {' x '.join(map(str, self.sizes))} = {rows}. Use a rank R of at least {-(-rows // m)}, or fewer"
                " functions in the parents."
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """n_1, ..., n_P."""
        return tuple(phi.size for phi in self.phi)

    @property
    def factors(self) -> tuple[Float[Array, "_ _"], ...]:
        """L_1, ..., L_P."""
        return tuple(triangle(raw) for raw in self.raw_factors)

    def normalise(self, M: Float[Array, "m m"]) -> ConditionalKernel:
        """W K with sum_r (W K_r) M (W K_r)^T = I, from M = int G psi psi^T.

        As in the Kraus coupling: int G f dx is then ||w_1 (x) ... (x) w_P||^2 = prod_j g_j, for every value of the
        parents. What rounding leaves is removed by evaluating the sum again for the result and correcting.
        """
        K, residual = whitened(self.K.reshape(-1, *self.K.shape[-2:]), M)
        return ConditionalKernel(
            self.psi, self.phi, K.reshape(self.K.shape), self.factors, M[-1, -1], residual, self.background
        )


class ConditionalKernel(eqx.Module):
    """A normalised conditional: `Conditional` with sum_r K_r M K_r^T = I, K_r as (n_1 ... n_P) x m matrices.

    The background is a mixture within f, (1 - e) f_own + e prod_j g_j psi_m^2 / int G psi_m^2: again a sum of squares.
    """

    psi: Basis
    phi: tuple[Basis, ...]
    K: Float[Array, "*n m r"]
    factors: tuple[Float[Array, "_ _"], ...]
    background_mass: Float[Array, ""]
    residual: Float[Array, ""]
    background: float = eqx.field(static=True)

    def w(self, parents: tuple[Array, ...]) -> tuple[Scaled, ...]:
        """w_j = L_j^T phi_j(y_j) at one point of every parent, each of shape (n_j,)."""
        found = []
        for phi, L, y in zip(self.phi, self.factors, parents, strict=True):
            at_y = phi.evaluate(y).scaled()
            found.append(Scaled(L.T @ at_y.values, at_y.log_scale))
        return tuple(found)

    def log_value(self, parents: tuple[Array, ...], y: Float[Array, " d"]) -> Float[Array, ""]:
        """log f at one point, each parent of shape (d_j,), as a sum of squares: never NaN."""
        return self._log_value(self.w(parents), self.psi.evaluate(y))

    def log_prob(self, G: Array, parents: tuple[Array, ...], y: Float[Array, " d"]) -> Float[Array, ""]:
        """log p(y | parents) from log G(y)."""
        w = self.w(parents)
        return G + self._log_value(w, self.psi.evaluate(y)) - _log_square(w)

    def _log_value(self, w: tuple[Scaled, ...], psi: Signed) -> Float[Array, ""]:
        at_y = psi.scaled()
        inner = jnp.einsum("...mr,m->...r", self.K, at_y.values)
        for one in w:
            inner = jnp.tensordot(one.values, inner, axes=1)
        log_scale = at_y.log_scale + sum(one.log_scale for one in w)
        log_f = jnp.log(jnp.sum(inner**2)) + 2.0 * log_scale
        if self.background == 0:
            return log_f
        log_b = _log_square(w) + 2.0 * psi.log_abs[-1] - jnp.log(self.background_mass)
        return jnp.logaddexp(math.log1p(-self.background) + log_f, math.log(self.background) + log_b)

    def form_from(self, parents: tuple[Array, ...]) -> Float[Array, " q"]:
        """Coefficients over pairs of psi of h(x) = f(parents, x) / prod_j g_j, for known parents."""
        inner = self.K
        for one in self.w(parents):
            inner = jnp.tensordot(one.values / jnp.linalg.norm(one.values), inner, axes=1)
        own = pack(inner @ inner.T)
        if self.background == 0:
            return own
        return ((1.0 - self.background) * own).at[-1].add(self.background / self.background_mass)

    def tensor(self) -> Float[Array, "*p q"]:
        """f as coefficients over unique pairs of every phi_j and of psi, shape (p_1, ..., p_P, q)."""
        K = self.K
        for axis, L in enumerate(self.factors):
            K = jnp.moveaxis(jnp.tensordot(L, K, axes=(1, axis)), 0, axis)
        flat = K.reshape(-1, K.shape[-1])
        squares = (flat @ flat.T).reshape(*K.shape[:-1], *K.shape[:-1])
        own = _pack_all(squares, len(self.phi) + 1)
        if self.background == 0:
            return own
        share = jnp.asarray(self.background / self.background_mass)
        for L in self.factors:
            share = share[..., None] * pack(L @ L.T)
        return ((1.0 - self.background) * own).at[..., -1].add(share)

    def gains(self, M: Float[Array, "m m"]) -> np.ndarray:
        """Values that int p(x | parents) dx can take: it is a weighted mean of these for all parents."""
        K = self.K.reshape(-1, *self.K.shape[-2:])
        total = np.asarray(jnp.einsum("imr,mk,jkr->ij", K, M, K))
        own = np.linalg.eigvalsh(total)
        return (1.0 - self.background) * own + self.background * float(M[-1, -1] / self.background_mass)


def _log_square(w: tuple[Scaled, ...]) -> Any:
    """log prod_j ||w_j||^2; zero for a block without parents."""
    return sum((jnp.log(one.values @ one.values) + 2.0 * one.log_scale for one in w), jnp.zeros(()))


def _pack_all(squares: Array, groups: int) -> Array:
    """Coefficients over unique pairs of each of the groups, from shape (n_1, n_2, ..., n_1, n_2, ...)."""
    for left in range(groups, 0, -1):
        # The first of the rows' axes meets the first of the columns'; their pairs go to the end.
        squares = pack(jnp.moveaxis(squares, (0, left), (-2, -1)))
    return squares
