"""Families whose functions are products over coordinates: d-dimensional integrals from 1-D ones.

A family states its formulas for arrays of shape (..., d), one entry a coordinate. Here they become
functions on R^d: logarithms add up and signs multiply over coordinates.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, PRNGKeyArray

from sosmarkov.core.numerics import Quadrature, Signed, finite_top
from sosmarkov.factor.bases.base import Basis, Expansion, Terms, Theta


class ProductBasis(Basis):
    """n functions f_i(y) = prod_c f_ic(y_c)."""

    @abstractmethod
    def log_abs_1d(self, theta: Theta, y: Array) -> tuple[Array, Array]:
        """log|f| and sign per coordinate, y broadcast against theta."""

    @abstractmethod
    def log_integral_1d(self, theta: Theta, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """log|int f| and sign per coordinate, over the domain or between bounds inside it."""

    @abstractmethod
    def log_moment_1d(self, theta: Theta, power: int, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """log|int y^power f dy| and sign per coordinate, over the domain or between bounds, power up to 4."""

    @abstractmethod
    def sample_1d(self, key: PRNGKeyArray, theta: Theta) -> Float[Array, " d"]:
        """One draw per coordinate from the density proportional to f >= 0."""

    def log_abs(self, theta: Theta, y: Float[Array, " d"]) -> tuple[Array, Array]:
        """See `Basis.log_abs`."""
        return _over_coordinates(*self.log_abs_1d(theta, y))

    def log_integral(self, theta: Theta, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """See `Basis.log_integral`."""
        return _over_coordinates(*self.log_integral_1d(theta, *self.bounds(lower, upper)))

    def bounds(self, lower: Array | None, upper: Array | None) -> tuple[Array | None, Array | None]:
        """The ends to integrate between; None for the whole domain of a family that needs no ends."""
        return lower, upper

    def log_pair_table(
        self, left: Terms, right: Terms, lower: Array | None, upper: Array | None
    ) -> tuple[Array, Array]:
        """See `Basis.log_pair_table`: one coordinate at a time, so that (P, Q) numbers are all it holds."""

        def one(theta: tuple[Theta, Theta], ends: tuple[Array | None, Array | None]) -> tuple[Array, Array]:
            left, right = theta
            rows, columns = jax.tree.map(lambda leaf: leaf[:, None], left), jax.tree.map(lambda leaf: leaf[None], right)
            log_abs, sign = self.log_integral_1d(self.multiply(rows, columns), *ends)
            return log_abs[..., 0], sign[..., 0] if sign.ndim else sign

        def add(carry: tuple[Array, Array], inputs: Any) -> tuple[tuple[Array, Array], None]:
            # Recomputed for gradients instead of stored: cheaper than the memory traffic.
            log_abs, sign = jax.checkpoint(one)(*inputs)
            return (carry[0] + log_abs, carry[1] * sign), None

        # Coordinates lead, and each keeps an axis of length one in its place.
        thetas = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0)[:, :, None], (left.theta, right.theta))
        ends = jax.tree.map(lambda end: jnp.asarray(end)[:, None], self.bounds(lower, upper))
        scale = left.log_scale[:, None] + right.log_scale[None]
        sign = jnp.ones(() if self.nonnegative else scale.shape)
        return lax.scan(add, (scale, sign), (thetas, ends))[0]

    def sample_term(self, key: PRNGKeyArray, theta: Theta) -> Float[Array, " d"]:
        """See `Basis.sample_term`."""
        return self.sample_1d(key, theta)

    def inside(self, y: Float[Array, "... d"]) -> Bool[Array, ...]:
        """See `Basis.inside`."""
        lower, upper = (lax.broadcast_to_rank(end, y.ndim) for end in (self.lower, self.upper))
        return jnp.all((y >= lower) & (y <= upper), axis=-1)

    def select(self, terms: Terms, kept: tuple[int, ...]) -> Terms:
        """The factors of the terms that belong to the kept coordinates."""
        where = np.asarray(kept)
        axis = terms.log_scale.ndim
        theta = jax.tree.map(lambda leaf: jnp.take(leaf, where, axis=axis), terms.theta)
        return Terms(theta, terms.log_scale)

    def marginalise(self, sum_: Expansion, kept: tuple[int, ...]) -> Expansion:
        """See `Basis.marginalise`: the dropped coordinates leave a number per pair of terms."""
        left, right, weights = sum_.left, sum_.right, sum_.weights
        dropped = tuple(c for c in range(self.dim) if c not in kept)
        if dropped:
            unscaled = [Terms(self.select(t, dropped).theta, jnp.zeros_like(t.log_scale)) for t in (left, right)]
            lower, upper = sum_.box_of(dropped)
            log_abs, sign = self.restrict(dropped).log_overlap(*unscaled, lower=lower, upper=upper)
            # All may be smaller than doubles go, where terms were scaled up to make good for it.
            top = finite_top(log_abs)
            weights = weights * sign * jnp.exp(log_abs - top)
            right = Terms(right.theta, right.log_scale + top)
        parts = self.select(left, kept), self.select(right, kept), weights
        return Expansion(self.restrict(kept), *parts, *sum_.box_of(kept))

    def restrict(self, kept: tuple[int, ...]) -> ProductBasis:
        """The functions on some coordinates: one entry a coordinate leads to a function's factor there."""
        return jax.tree.map(lambda leaf: leaf[:, np.asarray(kept)], self)

    def slice(self, fixed: tuple[int, ...], values: Float[Array, " f"]) -> tuple[Basis, Signed]:
        """See `Basis.slice`: the fixed coordinates leave a number per function."""
        basis = self.restrict(tuple(c for c in range(self.dim) if c not in fixed))
        at_fixed = self.select(Terms(self.natural(), self.log_norm()), fixed)
        log_abs, sign = _over_coordinates(*self.log_abs_1d(at_fixed.theta, values))
        log_abs = log_abs + at_fixed.log_scale - basis.log_norm()
        return basis, Signed(log_abs, jnp.broadcast_to(sign, log_abs.shape))

    def contract_powers(
        self, sum_: Expansion, powers: np.ndarray, observable: Quadrature | None = None
    ) -> Float[Array, " k"]:
        """See `Basis.contract_powers`: tables of 1-D integrals, one a power and coordinate, multiplied."""
        left, right, weights = sum_.left, sum_.right, sum_.weights
        tables = [self._moments(left, right, p, observable, **sum_.box) for p in range(int(powers.max()) + 1)]
        log_abs = jnp.stack([jnp.moveaxis(log, -1, 0) for log, _ in tables])
        signs = [jnp.broadcast_to(sign, log.shape) for log, sign in tables]
        sign = jnp.stack([jnp.moveaxis(table, -1, 0) for table in signs])
        scale, every = left.log_scale[:, None] + right.log_scale[None], np.arange(self.dim)

        def integral(row: Array) -> Array:
            total = jnp.exp(jnp.sum(log_abs[row, every], axis=0) + scale)
            return jnp.sum(weights * jnp.prod(sign[row, every], axis=0) * total)

        return lax.map(integral, jnp.asarray(powers))

    def power_table(
        self, left: Terms, right: Terms, coordinate: int, observable: Quadrature | None = None
    ) -> Float[Array, "p q"]:
        """See `Basis.power_table`."""
        log_abs, sign = self._moments(left, right, 0, observable)
        first, first_sign = self._moments(left, right, 1, observable)
        log_abs = log_abs.at[..., coordinate].set(first[..., coordinate])
        sign = jnp.broadcast_to(sign, log_abs.shape)
        sign = sign.at[..., coordinate].set(jnp.broadcast_to(first_sign, log_abs.shape)[..., coordinate])
        total, sign = _over_coordinates(log_abs, sign)
        return sign * jnp.exp(total + left.log_scale[:, None] + right.log_scale[None])

    def _moments(
        self,
        left: Terms,
        right: Terms,
        power: int,
        observable: Quadrature | None,
        lower: Array | None = None,
        upper: Array | None = None,
    ) -> tuple[Array, Array]:
        """Tables of 1-D integrals of y^power, or of an observable's, shape (P, Q, d)."""
        if observable is not None and power > 0:
            return self._quadrature(left.theta, right.theta, observable, power)
        theta, ends = self.outer(left, right).theta, self.bounds(lower, upper)
        return self.log_integral_1d(theta, *ends) if power == 0 else self.log_moment_1d(theta, power, *ends)

    def _quadrature(self, left: Theta, right: Theta, observable: Quadrature, power: int) -> tuple[Array, Array]:
        """Tables of int s(y)^power f_p f_q per coordinate, by matrix products over the nodes."""

        def at_nodes(theta: Theta) -> Array:
            def one(y: Array) -> Array:
                log_abs, sign = self.log_abs_1d(theta, y)
                return sign * jnp.exp(log_abs)

            return jax.vmap(one)(observable.nodes)

        weight = observable.weights * observable.values**power
        table = jnp.einsum("tpd,td,tqd->pqd", at_nodes(left), weight, at_nodes(right))
        return log_and_sign(table)


def log_and_sign(value: Array) -> tuple[Array, Array]:
    """log|v| and sign(v), with v = 0 giving (-inf, 0) and no NaN in the gradient."""
    zero = value == 0
    log_abs = jnp.log(jnp.abs(jnp.where(zero, 1.0, value)))
    return jnp.where(zero, -jnp.inf, log_abs), jnp.sign(value)


def shifted_moment(centre: Array, scale: Array, moments: list[Array]) -> Array:
    """E[(centre + scale t)^p] from E[t^0], ..., E[t^p]."""
    power = len(moments) - 1
    return sum(  # type: ignore[return-value]
        math.comb(power, j) * centre ** (power - j) * scale**j * moment for j, moment in enumerate(moments)
    )


def positive(log_abs: Array) -> tuple[Array, Array]:
    """A positive quantity in the (log, sign) form the tables use; one sign stands for all."""
    return log_abs, jnp.ones(())


def _over_coordinates(log_abs: Array, sign: Array) -> tuple[Array, Array]:
    """The product over the last axis."""
    return jnp.sum(log_abs, axis=-1), jnp.prod(sign, axis=-1) if sign.ndim else sign
