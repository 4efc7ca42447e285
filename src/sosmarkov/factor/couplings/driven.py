"""Couplings that depend on an input u: K(u) = sum_j b_j(u) K_j, normalised for every u under one shared g.

p(x' | x, u) = g(x') sum_r (phi(x)^T S(u) K_r(u) psi(x'))^2 / g(x). As g does not depend on u, beliefs under any
sequence of inputs stay products g h_k, and are differentiable in the inputs.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import whitener
from sosmarkov.core.stored import require, stored
from sosmarkov.factor.background import require_share
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.couplings.base import raw_triangle, triangle
from sosmarkov.factor.couplings.features import Features
from sosmarkov.factor.couplings.kraus import Kraus, KrausKernel, sound
from sosmarkov.factor.couplings.operators import corrected, require_rank
from sosmarkov.factor.starts import Wanted, kraus_parts


def _sound(coupling: Driven) -> None:
    sound(coupling)
    require(len(coupling.K) == coupling.features.count, "as many K as features")


@stored(check=_sound)
class Driven(eqx.Module):
    """Kraus couplings for every input: K(u) = sum_j b_j(u) K_j.

    Args:
        features: What gives b(u), J weights.
        K: Shape (J, n, m, R), with m R >= n.
        factor: L_A with A = L_A L_A^T, shape (n, n), as for `Kraus`; shared by all inputs.
        background: As for `Kraus`.
    """

    name: ClassVar[str] = "driven"
    order: ClassVar[int] = 2

    features: Features
    K: Float[Array, "j n m r"]
    raw_factor: Float[Array, "n n"]
    background: float = eqx.field(static=True)

    def __init__(self, features: Features, K: ArrayLike, factor: ArrayLike | None = None, *, background: float = 0.0):
        self.features, self.background = features, require_share(background)
        self.K = checks.parameter(K, "K", (features.count, None, None, None))
        _, n, m, rank = self.K.shape
        require_rank(n, m, rank)
        self.raw_factor = raw_triangle(np.eye(n) if factor is None else factor, n, "factor")

    @classmethod
    def start(
        cls, wanted: Wanted, y: np.ndarray, y_next: np.ndarray, features: Features, u: np.ndarray
    ) -> tuple[Basis, Basis, Driven]:
        """phi, psi and the couplings to begin with, from pairs and the inputs of each, shape (N, e)."""
        phi, psi, K, factor = kraus_parts(wanted, y, y_next, features.shares(u))
        if len(K) < features.count:
            noise = np.random.default_rng(wanted.seed).normal(size=(features.count - len(K), *K.shape[1:]))
            K = np.concatenate([K, 0.1 * np.sqrt(np.mean(K**2)) * noise])
        return phi, psi, cls(features, K, factor, background=wanted.background)

    @property
    def factor(self) -> Float[Array, "n n"]:
        """L_A."""
        return triangle(self.raw_factor)

    def K_at(self, u: Float[Array, " e"]) -> Float[Array, "n m r"]:
        """K(u), before it is normalised."""
        return jnp.einsum("j,jnmr->nmr", self.features(u), self.K)

    def at(self, u: Float[Array, " e"]) -> Kraus:
        """The coupling under one input."""
        return Kraus(self.K_at(u), self.factor, background=self.background)

    def shared(self, M: Float[Array, "m m"]) -> Totals | PhaseTable:
        """What normalising under any input needs, made once; M = int g psi psi^T."""
        if self.features.period is None:
            return Totals(jnp.einsum("jamr,mk,lbkr->jlab", self.K, M, self.K))
        K = jax.vmap(self.K_at)(jnp.arange(float(self.features.period))[:, None])
        return PhaseTable(K, *jax.vmap(_normaliser)(jnp.einsum("tamr,mk,tbkr->tab", K, M, K)))


class Totals(eqx.Module):
    """sum_r K_jr M K_lr^T for all j and l, of which T(u) = sum_jl b_j b_l (.)_jl is made."""

    # Every input's kernel has one of its own.
    residual: ClassVar[None] = None

    values: Float[Array, "j j n n"]

    def kernel(self, some: KrausKernel, coupling: Driven, u: Float[Array, " e"]) -> KrausKernel:
        """The normalised kernel under one input, at the cost of normalising an n x n matrix."""
        b = coupling.features(u)
        S, left = _normaliser(jnp.einsum("j,l,jlab->ab", b, b, self.values))
        return KrausKernel(g=some.g, K=coupling.K, residual=left, background=some.background, S=S, b=b)


class PhaseTable(eqx.Module):
    """K(t) and what normalises it for t = 0, ..., T - 1: made once, whatever number of pairs it is asked for."""

    K: Float[Array, "t n m r"]
    S: Float[Array, "t n n"]
    residual: Float[Array, " t"]

    def kernel(self, some: KrausKernel, coupling: Driven, u: Float[Array, " e"]) -> KrausKernel:
        """The normalised kernel at one time, looked up."""
        del coupling
        phase = jnp.mod(jnp.round(u[0]), len(self.K)).astype(int)
        return KrausKernel(
            g=some.g, K=self.K[phase], residual=self.residual[phase], background=some.background, S=self.S[phase]
        )


def _normaliser(T: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, ""]]:
    """S with S T S^T = I, and how far it was from that before the last correction."""
    return corrected(whitener(T), lambda S: S @ T @ S.T, jnp.matmul)
