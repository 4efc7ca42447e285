"""The general coupling f = sum_r (phi^T K_r psi)^2, normalised through T = sum_r K_r M K_r^T."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import Signed, inverse_root_near_identity, pack, unpack, whitener
from sosmarkov.core.stored import stored
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.couplings.base import Coupling, Kernel, raw_triangle, require_rank, require_share, triangle
from sosmarkov.factor.forms import SquaredForm
from sosmarkov.factor.starts import Wanted, kraus_parts


def sound(coupling: Any) -> None:
    """Refuse a stored coupling, plain or driven, that no constructor would have made."""
    require_share(coupling.background)
    require_rank(*coupling.K.shape[-3:])


@stored("K", "raw_factor", "background", check=sound)
class Kraus(Coupling):
    """f = sum_r (phi(x)^T K_r psi(x'))^2 with K and A free.

    A background share e mixes in p_b(x') = g(x') psi_m(x')^2 / int g psi_m^2, which does not depend on x: see
    `Kernel`. With a broad last function of psi, an outlier costs tens of nats.

    Args:
        K: Shape (n, m, R), with m R >= n.
        factor: L_A with A = L_A L_A^T, shape (n, n), lower triangular with a positive diagonal;
            the identity where none is given.
        background: The share e, at least zero and below one, of the last function of psi.
    """

    name: ClassVar[str] = "kraus"
    order: ClassVar[int] = 2
    ranked: ClassVar[bool] = True
    takes_inputs: ClassVar[bool] = True

    K: Float[Array, "n m r"]
    raw_factor: Float[Array, "n n"]
    background: float = eqx.field(static=True)

    def __init__(self, K: ArrayLike, factor: ArrayLike | None = None, *, background: float = 0.0):
        self.background = require_share(background)
        self.K = checks.parameter(K, "K", (None, None, None))
        n, m, rank = self.K.shape
        require_rank(n, m, rank)
        self.raw_factor = raw_triangle(np.eye(n) if factor is None else factor, n, "factor")

    @classmethod
    def start(cls, wanted: Wanted, y: np.ndarray, y_next: np.ndarray) -> tuple[Basis, Basis, Kraus]:
        """phi from all states, psi from the successors, K from the co-occurrence of their components."""
        phi, psi, K, factor = kraus_parts(wanted, y, y_next, np.ones((len(y), 1)))
        return phi, psi, cls(K[0], factor, background=wanted.background)

    @property
    def factor(self) -> Float[Array, "n n"]:
        """L_A."""
        return triangle(self.raw_factor)

    def check(self, phi: Basis, psi: Basis) -> None:
        """K must have one row per function of phi, one column per function of psi."""
        if self.K.shape[:2] != (phi.size, psi.size):
            raise ValueError(f"Expected K of shape ({phi.size}, {psi.size}, R) for these bases, got {self.K.shape}.")

    def normalise(self, phi: Basis, E: Float[Array, "p q"]) -> KrausKernel:
        """S K_r with S T S^T = A, T = sum_r K_r M K_r^T, M = int g psi psi^T.

        S = L_A W with W T W^T = I: the triangular factor of a QR of the stacked K_r M^(1/2), found
        from T itself, so that a nearly singular M (psi with near-duplicates) is no obstacle; what
        rounding leaves is removed by evaluating T again for the result and correcting.
        """
        L_A = self.factor
        M = gram(L_A, E, self.K.shape[1])
        K, left = whitened(self.K, M)
        return KrausKernel(
            g=SquaredForm(phi, L_A), K=K, residual=left, background=self.background, background_mass=M[-1, -1]
        )


def whitened(K: Float[Array, "n m r"], M: Float[Array, "m m"]) -> tuple[Float[Array, "n m r"], Float[Array, ""]]:
    """W K with sum_r (W K_r) M (W K_r)^T = I, and what the last correction still changed."""

    def total(K: Array) -> Array:
        return jnp.einsum("imr,mk,jkr->ij", K, M, K)

    K, left = jnp.einsum("ij,jmr->imr", whitener(total(K)), K), jnp.zeros(())
    for _ in range(2):
        # T of the corrected K is the identity for all parameters: the correction is rounding,
        # a constant to differentiation.
        near_identity = lax.stop_gradient(total(K))
        left = jnp.max(jnp.abs(near_identity - jnp.eye(len(near_identity))))
        K = jnp.einsum("ij,jmr->imr", inverse_root_near_identity(near_identity), K)
    return K, left


def gram(L_A: Float[Array, "n n"], E: Float[Array, "p q"], m: int) -> Float[Array, "m m"]:
    """M = int g psi psi^T from the table of overlaps."""
    return unpack(pack(L_A @ L_A.T) @ E, m)


class KrausKernel(Kernel):
    """Kraus operators of w = L_A^T phi: f = sum_r (w(x)^T K_r psi(x'))^2, sum_r K_r M K_r^T = I.

    L_A is kept apart on purpose: g = ||w||^2 and f then share w, so whatever rounding does to w
    cancels, and the mass of p(. | x) is one to the last digits however badly A is conditioned.
    """

    order: ClassVar[int] = 2
    g: SquaredForm
    K: Float[Array, "n m r"]
    residual: Float[Array, ""]
    background: float = eqx.field(static=True)
    background_mass: Float[Array, ""]

    def own_log_value(self, phi: Signed, psi: Signed) -> Float[Array, ""]:
        """log sum_r (w^T K_r psi)^2."""
        left, right = self.g.root_of(phi), psi.scaled()
        inner = jnp.einsum("n,nmr,m->r", left.values, self.K, right.values)
        return jnp.log(jnp.sum(inner**2)) + 2.0 * (left.log_scale + right.log_scale)

    def own_mass(self, phi: Signed, M: Float[Array, " q"]) -> Float[Array, ""]:
        """w^T (sum_r K_r M K_r^T) w / w^T w."""
        w = self.g.root_of(phi).values
        inner = jnp.einsum("n,nmr->mr", w, self.K)
        return jnp.einsum("mr,mk,kr->", inner, unpack(M, self.K.shape[1]), inner) / (w @ w)

    def own_push(self, P: Float[Array, " p"]) -> Float[Array, " q"]:
        """sum_r K_r^T (L_A^T P L_A) K_r."""
        L_A = self.g.factor
        P_matrix = L_A.T @ unpack(P, L_A.shape[0]) @ L_A
        return pack(jnp.einsum("imr,ij,jkr->mk", self.K, P_matrix, self.K))

    def own_pull(self, M: Float[Array, " q"]) -> Float[Array, " p"]:
        """L_A (sum_r K_r M K_r^T) L_A^T."""
        L_A = self.g.factor
        inner = jnp.einsum("imr,mk,jkr->ij", self.K, unpack(M, self.K.shape[1]), self.K)
        return pack(L_A @ inner @ L_A.T)

    def own_form_from(self, psi: Basis, phi: Signed) -> SquaredForm:
        """The factor (K_r^T w)_r / ||w||: rank R."""
        w = self.g.root_of(phi).values
        return SquaredForm(psi, jnp.einsum("n,nmr->mr", w / jnp.sqrt(w @ w), self.K))
