"""Lemma 1 and Theorem 1 of the paper, as statements that run."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.factor.bases import Basis, require_compatible
from sosmarkov.factor.forms import SquaredForm


class PlainConditional(eqx.Module):
    """The conditional the paper proves too narrow: f(x, x') = b^T Q b, b_i = phi_i(x) psi_i(x').

    Args:
        phi: Basis in x, n functions.
        psi: Basis in x', n functions.
        factor: L with Q = L L^T, shape (n, r).
    """

    phi: Basis
    psi: Basis
    factor: Float[Array, "n r"]

    def __init__(self, phi: Basis, psi: Basis, factor: ArrayLike):
        require_compatible(("phi", phi), ("psi", psi))
        if phi.size != psi.size:
            raise ValueError(f"Expected as many functions in psi as in phi ({phi.size}), got {psi.size}.")
        self.phi, self.psi = phi, psi
        self.factor = checks.parameter(factor, "factor", (phi.size, None))

    def value(self, y: Float[Array, " d"], y_next: Float[Array, " d"]) -> Float[Array, ""]:
        """||L^T (phi(x) o psi(x'))||^2."""
        b = (self.phi.evaluate(y) * self.psi.evaluate(y_next)).scaled()
        return jnp.sum((self.factor.T @ b.values) ** 2) * jnp.exp(2.0 * b.log_scale)

    def integrate_out(self) -> SquaredForm:
        """Lemma 1: int f dx' = phi^T (Gamma o Q) phi, a sum of squares by the Schur product theorem."""
        return SquaredForm(self.phi, matrix=self.psi.gram() * (self.factor @ self.factor.T))

    def restriction_residual(self, y: ArrayLike) -> Float[Array, ...]:
        """Theorem 1: ||(Gamma o Q)^(1/2) phi(x)|| - 1, zero everywhere for a valid conditional only.

        For states of shape (..., d) in model space.

        phi would have to trace an ellipsoid; generic bases do not, whatever Q is. The rational
        factor g(x') / g(x) of `Transition` removes the restriction.
        """
        return _restriction_residual(self, checks.states(y, self.phi.dim))


@eqx.filter_jit
def _restriction_residual(conditional: PlainConditional, y: Array) -> Array:
    form = conditional.integrate_out()
    flat = y.reshape(-1, y.shape[-1])
    return (jnp.exp(0.5 * jax.vmap(form.log_value)(flat)) - 1.0).reshape(y.shape[:-1])
