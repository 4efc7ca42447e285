"""The linear coupling f = sum_i b_i phi_i psi_i over non-negative functions."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import Signed
from sosmarkov.core.stored import stored
from sosmarkov.factor.background import Background, require_share
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.couplings.base import Coupling, Kernel, require_pairs
from sosmarkov.factor.forms import LinearForm, require_nonnegative
from sosmarkov.factor.starts import BROAD, BROAD_WEIGHT, Wanted, integrals


@stored("log_weights", "background", check=lambda coupling: require_share(coupling.background))
class Linear(Coupling):
    """f = sum_i b_i phi_i(x) psi_i(x') over non-negative functions, g = a . phi, a > 0 free.

    Args:
        weights: a, shape (n,), positive.
        background: The share e, at least zero and below one, of p_b(x') = g(x') psi_n(x') / int g psi_n, which
            does not depend on x: see `Background`.
    """

    name: ClassVar[str] = "linear"
    order: ClassVar[int] = 1
    nonnegative: ClassVar[bool] = True
    most: ClassVar[int | None] = 100

    log_weights: Float[Array, " n"]
    background: float = eqx.field(static=True)

    def __init__(self, weights: ArrayLike, *, background: float = 0.0):
        self.background = require_share(background)
        weights = checks.parameter(weights, "weights", (None,))
        checks.require_positive(weights, "weights")
        self.log_weights = jnp.log(weights)

    @classmethod
    def start(cls, wanted: Wanted, y: np.ndarray, y_next: np.ndarray) -> tuple[Basis, Basis, Linear]:
        """phi_i and psi_i from component i of a mixture of pairs, a_i = w_i / int phi_i: g is that of the states."""
        if wanted.given is not None:
            weights = 1.0 / (wanted.size * np.asarray(integrals(wanted.given)))
            return wanted.given, wanted.given, cls(weights, background=wanted.background)
        before, after = wanted.halves(y, y_next)
        phi, psi = wanted.bumps(before, 1), wanted.bumps(after, 1)
        weights, masses = before.weights, integrals(phi)
        if wanted.background > 0:
            weights = np.append(weights, BROAD_WEIGHT * weights.mean())
            masses = integrals(phi.with_broad(BROAD))
        return phi, psi, cls(weights / np.asarray(masses), background=wanted.background)

    def check(self, phi: Basis, psi: Basis) -> None:
        """Non-negative functions, one of psi for each of phi."""
        require_nonnegative(phi)
        require_pairs(self.log_weights.shape[0], phi, psi)

    def normalise(self, phi: Basis, E: Float[Array, "p q"]) -> LinearKernel:
        """b_i = a_i / (Omega^T a)_i with Omega = int phi psi^T."""
        weights = jnp.exp(self.log_weights)
        M = weights @ E
        background = Background(self.background, M[-1])
        return LinearKernel(g=LinearForm(phi, weights), b=weights / M, residual=jnp.zeros(()), background=background)


class LinearKernel(Kernel):
    """A finite Markov chain over i: gate a_i phi_i(x) / g(x), emission g psi_i b_i / a_i."""

    g: LinearForm
    b: Float[Array, " n"]
    residual: Float[Array, ""]
    background: Background

    def own_log_value(self, phi: Signed, psi: Signed) -> Float[Array, ""]:
        """log sum_i b_i phi_i psi_i."""
        products = (phi * psi).scaled()
        return jnp.log(self.b @ products.values) + products.log_scale

    def own_push(self, P: Float[Array, " p"]) -> Float[Array, " q"]:
        """b o P, its own adjoint."""
        return self.b * P

    def own_form_from(self, psi: Basis, phi: Signed) -> LinearForm:
        """b o phi / g."""
        values = phi.scaled().values
        return LinearForm(psi, self.b * values / (self.g.weights @ values))

    def own_gains(self, M: Float[Array, " q"]) -> np.ndarray:
        """b o M / a: what each function's share becomes."""
        return np.asarray(self.b * M / self.g.weights)
