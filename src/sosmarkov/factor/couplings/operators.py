"""Kraus operators: sums of squares over two points, and all that is linear in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.core.numerics import Scaled, Signed, inverse_root_near_identity, pack, unpack, whitener


class Operators(NamedTuple):
    """f(x, x') = sum_r (w(x)^T S K_r psi(x'))^2 with w = L^T phi, under any weights.

    What weighs is applied to the smallest thing that takes it: in training there is a weight for every pair.

    Attributes:
        K: K_r, shape (n, m, r); under b, shape (j, n, m, r); under N, r stands for all pairs (z, r), z outer.
        L: The left factor, shape (n, n); None where only w is asked about.
        S: What normalises K between w and it, shape (n, n); None for the identity.
        b: K_r = sum_j b_j K_jr; None where K is one.
        N: Of a reading: f = sum_ab N_ab sum_r (w^T S K_ar psi) (w^T S K_br psi), shape (z, z); None where all are one.
    """

    K: Array
    L: Float[Array, "n n"] | None = None
    S: Float[Array, "n n"] | None = None
    b: Float[Array, " j"] | None = None
    N: Float[Array, "z z"] | None = None

    @property
    def whole(self) -> Float[Array, "n m r"]:
        """K_r under b."""
        return self.K if self.b is None else jnp.einsum("j,jnmr->nmr", self.b, self.K)

    @property
    def left(self) -> Float[Array, "n n"]:
        """L S."""
        assert self.L is not None
        return self.L if self.S is None else self.L @ self.S

    def w(self, phi: Signed) -> Scaled:
        """L^T phi, whose squared norm g is."""
        assert self.L is not None
        at_y = phi.scaled()
        return Scaled(self.L.T @ at_y.values, at_y.log_scale)

    def after(self, w: Float[Array, " n"]) -> Float[Array, "m r"]:
        """K_r^T S^T w."""
        w = w if self.S is None else self.S.T @ w
        if self.b is None:
            return jnp.einsum("n,nmr->mr", w, self.K)
        return jnp.einsum("j,jmr->mr", self.b, jnp.einsum("n,jnmr->jmr", w, self.K))

    def weighed(self, of: Float[Array, "*n r"]) -> Float[Array, "*n r"]:
        """The last axis under N."""
        if self.N is None:
            return of
        return jnp.einsum("ab,...br->...ar", self.N, of.reshape(*of.shape[:-1], len(self.N), -1)).reshape(of.shape)

    def log_value(self, w: Scaled, psi: Signed) -> Float[Array, ""]:
        """log f, as a sum of squares where nothing weighs: never NaN."""
        at_next = psi.scaled()
        if self.b is None and self.S is None:
            inner = jnp.einsum("n,nmr,m->r", w.values, self.K, at_next.values)
        else:
            inner = jnp.einsum("mr,m->r", self.after(w.values), at_next.values)
        return jnp.log(jnp.sum(inner * self.weighed(inner))) + 2.0 * (w.log_scale + at_next.log_scale)

    def factor(self, w: Float[Array, " n"]) -> Float[Array, "m r"]:
        """F with f(x, .) / ||w||^2 = ||F^T psi||^2, K_r^T S^T w / ||w||; of a reading where N is a root^T of it."""
        return self.weighed(self.after(w / jnp.sqrt(w @ w)))

    def known(self, w: Float[Array, " n"]) -> Float[Array, " q"]:
        """Coefficients of f(x, .) / ||w||^2."""
        F = self.after(w / jnp.sqrt(w @ w))
        return pack(self.weighed(F) @ F.T)

    def push(self, P: Float[Array, " p"]) -> Float[Array, " q"]:
        """sum_r K_r^T (S^T L^T P L S) K_r."""
        left, K = self.left, self.whole
        return pack(jnp.einsum("imr,ij,jkr->mk", self.weighed(K), left.T @ unpack(P, len(left)) @ left, K))

    def pull(self, M: Float[Array, " q"]) -> Float[Array, " p"]:
        """The adjoint of `push`: L S (sum_r K_r M K_r^T) S^T L^T."""
        left, K = self.left, self.whole
        return pack(left @ totals(self.weighed(K), unpack(M, K.shape[1]), K) @ left.T)

    def normal(self) -> Float[Array, "n m r"]:
        """S K_r under b: what the sums of `gains` and `amplification` are over."""
        return self.whole if self.S is None else jnp.einsum("ij,jmr->imr", self.S, self.whole)

    def gains(self, M: Float[Array, "m m"]) -> np.ndarray:
        """Values of int f g dx' / ||w||^2, which is a weighted mean of these for every w; M = int g psi psi^T."""
        K = self.normal()
        return np.linalg.eigvalsh(np.asarray(totals(K, M, K)))

    def amplification(self, M: Float[Array, "m m"]) -> float:
        """Largest diagonal entry of sum_r |K_r| |M| |K_r|^T."""
        K = jnp.abs(self.normal())
        return float(jnp.max(jnp.einsum("imr,mk,ikr->i", K, jnp.abs(M), K)))


def totals(left: Float[Array, "n m r"], M: Float[Array, "m m"], right: Float[Array, "k m r"]) -> Float[Array, "n k"]:
    """sum_r K_r M K'_r^T."""
    return jnp.einsum("imr,mk,jkr->ij", left, M, right)


def whitened(K: Float[Array, "n m r"], M: Float[Array, "m m"]) -> tuple[Float[Array, "n m r"], Float[Array, ""]]:
    """W K with sum_r (W K_r) M (W K_r)^T = I, and what the last correction still changed."""

    def times(W: Array, K: Array) -> Array:
        return jnp.einsum("ij,jmr->imr", W, K)

    return corrected(times(whitener(totals(K, M, K)), K), lambda K: totals(K, M, K), times)


def corrected(
    X: Array, total: Callable[[Array], Array], times: Callable[[Array, Array], Array]
) -> tuple[Array, Float[Array, ""]]:
    """W X with total(W X) = I for an X where it is the identity up to rounding, and what the last W still changed."""
    left = jnp.zeros(())
    for _ in range(2):
        # The total is the identity for all parameters: what rounding left of it is a constant to differentiation.
        near_identity = lax.stop_gradient(total(X))
        left = jnp.max(jnp.abs(near_identity - jnp.eye(len(near_identity))))
        X = times(inverse_root_near_identity(near_identity), X)
    return X, left


def gram(L: Float[Array, "n n"], E: Float[Array, "p q"], m: int) -> Float[Array, "m m"]:
    """M = int g psi psi^T from the table of overlaps, g = ||L^T phi||^2."""
    return unpack(pack(L @ L.T) @ E, m)


def require_rank(n: int, m: int, rank: int) -> None:
    """Refuse a K of shape (n, m, R) that no matrix can normalise."""
    if m * rank < n:
        raise ValueError(
            f"Expected m * R >= n so that the kernel can be normalised, got n = {n}, m = {m}, R = {rank}."
            f" Use a rank R of at least {-(-n // m)}."
        )
