"""The general coupling f = sum_r (phi^T K_r psi)^2, normalised through T = sum_r K_r M K_r^T."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import Signed, unpack
from sosmarkov.core.stored import stored
from sosmarkov.factor.background import Background, require_share
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.couplings.base import Coupling, Kernel, raw_triangle, triangle
from sosmarkov.factor.couplings.operators import Operators, gram, require_rank, whitened
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
    `Background`. With a broad last function of psi, an outlier costs tens of nats.

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
        background = Background(self.background, M[-1, -1])
        return KrausKernel(g=SquaredForm(phi, L_A), K=K, residual=left, background=background)


class KrausKernel(Kernel):
    """Kraus operators of w = L_A^T phi: f = sum_r (w(x)^T S K_r psi(x'))^2, sum_r S K_r M K_r^T S^T = I.

    L_A is kept apart on purpose: g = ||w||^2 and f then share w, so whatever rounding does to w
    cancels, and the mass of p(. | x) is one to the last digits however badly A is conditioned.

    Attributes:
        g: ||L_A^T phi||^2.
        K: Shape (n, m, R), normalised; with S and b (J, n, m, R), as they are for every input.
        residual: See `Kernel`.
        background: See `Kernel`.
        S: What normalises K under one input, shape (n, n); None where K is normalised.
        b: The weights of the K_j under one input, shape (J,); None where there is one K.
        N: Of what is read of x', shape (z, z); None where nothing is.
    """

    g: SquaredForm
    K: Float[Array, "n m r"] | Float[Array, "j n m r"]
    residual: Float[Array, ""]
    background: Background
    S: Float[Array, "n n"] | None = None
    b: Float[Array, " j"] | None = None
    N: Float[Array, "z z"] | None = None

    def seen(self, N: Float[Array, "z z"], broad: Float[Array, ""]) -> KrausKernel:
        """K under what is read."""
        background = Background(self.background.share, self.background.mass, broad)
        return KrausKernel(g=self.g, K=self.K, residual=self.residual, background=background, S=self.S, b=self.b, N=N)

    @property
    def rank(self) -> int:
        """R."""
        return self.K.shape[-1]

    @property
    def operators(self) -> Operators:
        """K behind L_A and S, weighed."""
        return Operators(self.K, self.g.factor, self.S, self.b, self.N)

    def own_log_value(self, phi: Signed, psi: Signed) -> Float[Array, ""]:
        """log sum_r (w^T S K_r psi)^2."""
        return self.operators.log_value(self.operators.w(phi), psi)

    def own_push(self, P: Float[Array, " p"]) -> Float[Array, " q"]:
        """sum_r K_r^T (S^T L_A^T P L_A S) K_r."""
        return self.operators.push(P)

    def own_pull(self, M: Float[Array, " q"]) -> Float[Array, " p"]:
        """L_A S (sum_r K_r M K_r^T) S^T L_A^T."""
        return self.operators.pull(M)

    def own_form_from(self, psi: Basis, phi: Signed) -> SquaredForm:
        """The factor (K_r^T S^T w)_r / ||w||: rank R."""
        return SquaredForm(psi, self.operators.factor(self.operators.w(phi).values))

    def known(self, psi: Basis, phi: Signed) -> Float[Array, " q"]:
        """The same where what is read weighs the squares, and no factor is known."""
        del psi
        return self.background.push(self.operators.known(self.operators.w(phi).values), lambda: 1.0)

    def own_gains(self, M: Float[Array, " q"]) -> np.ndarray:
        """The spectrum of sum_r S K_r M K_r^T S^T."""
        return self.operators.gains(unpack(M, self.K.shape[-2]))

    def amplification(self, M: Float[Array, " q"]) -> float:
        """Large where K resolves differences of near-duplicate functions."""
        return self.operators.amplification(unpack(M, self.K.shape[-2]))
