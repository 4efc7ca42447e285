"""One conditional of a network in rational-factor form, free and normalised."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import Scaled, Signed, pack
from sosmarkov.core.stored import require, stored
from sosmarkov.factor.background import Background, require_share
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.couplings.base import raw_triangle, triangle
from sosmarkov.factor.couplings.operators import Operators, whitened


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
        K, residual = whitened(_rows(self.K), M)
        background = Background(self.background, M[-1, -1])
        return ConditionalKernel(self.psi, self.phi, K.reshape(self.K.shape), self.factors, background, residual)


class ConditionalKernel(eqx.Module):
    """A normalised conditional: `Conditional` with sum_r K_r M K_r^T = I, K_r as (n_1 ... n_P) x m matrices.

    The background is a mixture within f, (1 - e) f_own + e prod_j g_j psi_m^2 / int G psi_m^2: again a sum of squares.
    """

    psi: Basis
    phi: tuple[Basis, ...]
    K: Float[Array, "*n m r"]
    factors: tuple[Float[Array, "_ _"], ...]
    background: Background
    residual: Float[Array, ""]

    @property
    def operators(self) -> Operators:
        """K_r of w = w_1 (x) ... (x) w_P."""
        return Operators(_rows(self.K))

    def w(self, parents: tuple[Array, ...]) -> Scaled:
        """w_1 (x) ... (x) w_P, w_j = L_j^T phi_j(y_j), at one point of every parent, shape (n_1 ... n_P,)."""
        values, log_scale = jnp.ones(1), jnp.zeros(())
        for phi, L, y in zip(self.phi, self.factors, parents, strict=True):
            at_y = phi.evaluate(y).scaled()
            values, log_scale = (values[:, None] * (L.T @ at_y.values)[None]).reshape(-1), log_scale + at_y.log_scale
        return Scaled(values, log_scale)

    def log_value(self, parents: tuple[Array, ...], y: Float[Array, " d"]) -> Float[Array, ""]:
        """log f at one point, each parent of shape (d_j,), as a sum of squares: never NaN."""
        return self._log_value(self.w(parents), self.psi.evaluate(y))

    def log_prob(self, G: Array, parents: tuple[Array, ...], y: Float[Array, " d"]) -> Float[Array, ""]:
        """log p(y | parents) from log G(y)."""
        w = self.w(parents)
        return G + self._log_value(w, self.psi.evaluate(y)) - _log_square(w)

    def _log_value(self, w: Scaled, psi: Signed) -> Float[Array, ""]:
        own = self.operators.log_value(w, psi)
        return self.background.log(own, lambda: _log_square(w) + 2.0 * psi.log_abs[-1])

    def form_from(self, parents: tuple[Array, ...]) -> Float[Array, " q"]:
        """Coefficients over pairs of psi of h(x) = f(parents, x) / prod_j g_j, for known parents."""
        return self.background.push(self.operators.known(self.w(parents).values), lambda: 1.0)

    def tensor(self) -> Float[Array, "*p q"]:
        """f as coefficients over unique pairs of every phi_j and of psi, shape (p_1, ..., p_P, q)."""
        K = self.K
        for axis, L in enumerate(self.factors):
            K = jnp.moveaxis(jnp.tensordot(L, K, axes=(1, axis)), 0, axis)
        flat = K.reshape(-1, K.shape[-1])
        squares = (flat @ flat.T).reshape(*K.shape[:-1], *K.shape[:-1])
        own = _pack_all(squares, len(self.phi) + 1)
        g = (pack(L @ L.T) for L in self.factors)
        return self.background.push(own, lambda: reduce(jnp.multiply.outer, g, jnp.ones(())))

    def gains(self, M: Float[Array, "m m"]) -> np.ndarray:
        """Values that int p(x | parents) dx can take: it is a weighted mean of these for all parents."""
        return np.asarray(self.background.gains(self.operators.gains(M), M[-1, -1]))


def _rows(K: Float[Array, "*n m r"]) -> Float[Array, "n m r"]:
    """The axes of all parents as one."""
    return K.reshape(-1, *K.shape[-2:])


def _log_square(w: Scaled) -> Float[Array, ""]:
    """log prod_j ||w_j||^2."""
    return jnp.log(w.values @ w.values) + 2.0 * w.log_scale


def _pack_all(squares: Array, groups: int) -> Array:
    """Coefficients over unique pairs of each of the groups, from shape (n_1, n_2, ..., n_1, n_2, ...)."""
    for left in range(groups, 0, -1):
        # The first of the rows' axes meets the first of the columns'; their pairs go to the end.
        squares = pack(jnp.moveaxis(squares, (0, left), (-2, -1)))
    return squares
