"""The paper's coupling f = b^T Q b, normalised by the Perron vector of A -> Q o G(A)."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import Signed, pack, unpack
from sosmarkov.core.perron import PerronResult, perron
from sosmarkov.core.stored import stored
from sosmarkov.factor.background import Background, require_share
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.couplings.base import Coupling, Kernel, raw_triangle, require_pairs, triangle
from sosmarkov.factor.forms import SquaredForm
from sosmarkov.factor.starts import Mixture, Wanted, density_at, padded, root_of


def _sound(coupling: Paired) -> None:
    require_share(coupling.background)
    checks.count(coupling.max_iterations, "max_iterations", 1)


@stored("raw_factor", "max_iterations", "background", check=_sound)
class Paired(Coupling):
    """The paper's f = b^T Q b, b_i = phi_i(x) psi_i(x'), Q = L L^T > 0; A is Q's Perron vector.

    Args:
        factor: L, shape (n, n), lower triangular with a positive diagonal.
        max_iterations: When the power iteration gives up (and says so).
        background: The share e, at least zero and below one, of p_b(x') = g(x') psi_n(x')^2 / int g psi_n^2, which
            does not depend on x: see `Background`. Its coupling g(x) psi_n(x')^2 / int g psi_n^2 is a sum of squares
            over phi_i(x) psi_n(x'), which b^T Q b does not contain: with a share above zero the form is the paper's
            and one term more. It is normalised by the same g, so A remains Q's Perron vector.
    """

    name: ClassVar[str] = "paired"
    order: ClassVar[int] = 2

    raw_factor: Float[Array, "n n"]
    max_iterations: int = eqx.field(static=True)
    background: float = eqx.field(static=True)

    def __init__(self, factor: ArrayLike, *, max_iterations: int = 20_000, background: float = 0.0):
        self.background = require_share(background)
        factor = checks.as_float(factor, "factor")
        self.raw_factor = raw_triangle(factor, factor.shape[0] if factor.ndim else 0, "factor")
        self.max_iterations = checks.count(max_iterations, "max_iterations", least=1)

    @classmethod
    def start(cls, wanted: Wanted, y: np.ndarray, y_next: np.ndarray) -> tuple[Basis, Basis, Paired]:
        """phi_i and psi_i from component i of a mixture of pairs; A is Q's own.

        Q is diagonal, from the weights, where phi_i psi_i is the root of a component, else from their projection.
        """
        size, background, rng = wanted.size, wanted.background, np.random.default_rng(wanted.seed)
        if wanted.given is not None:
            noise = np.tril(rng.normal(size=(size, size)), -1)
            return wanted.given, wanted.given, cls(np.eye(size) + 0.05 * noise, background=background)
        before, after = wanted.halves(y, y_next)
        if wanted.family is None or wanted.family.spread is None:
            phi, psi, B = wanted.bumps(before, 2), wanted.bumps(after, 2), np.eye(size)
        else:
            d, halves = y.shape[1], zip(before[1:], after[1:], strict=True)
            pairs = Mixture(before.weights, *(np.concatenate(half, axis=1) for half in halves))
            joint, B = wanted.functions(pairs, np.concatenate([y, y_next], axis=1), wanted.seed)
            phi, psi = joint.restrict(tuple(range(d))), joint.restrict(tuple(range(d, 2 * d)))
        factor = root_of(B, before.weights / density_at(before, after.means))
        noise = np.tril(rng.normal(size=factor.shape), -1)
        factor = factor + 0.05 * np.sqrt(np.mean(np.diag(factor) ** 2)) * noise
        if background > 0 and len(B) == size:
            factor = padded(factor)
        return phi, psi, cls(factor, background=background)

    @property
    def factor(self) -> Float[Array, "n n"]:
        """L."""
        return triangle(self.raw_factor)

    def check(self, phi: Basis, psi: Basis) -> None:
        """One function of psi for each of phi."""
        require_pairs(self.raw_factor.shape[0], phi, psi)

    def normalise(self, phi: Basis, E: Float[Array, "p q"]) -> PairedKernel:
        """A = Q o G(A) / lambda; then f uses Q / lambda."""
        L = self.factor
        result: PerronResult = perron(L @ L.T, E, self.max_iterations)  # type: ignore[assignment]
        g = SquaredForm(phi, matrix=result.A)
        scaled = L / jnp.sqrt(result.eigenvalue)
        return PairedKernel(
            g=g,
            factor=scaled,
            residual=result.residual,
            perron=result,
            background=Background(self.background, g.coefficients @ E[:, -1]),
        )


class PairedKernel(Kernel):
    """Q scaled to Perron eigenvalue one, with its eigenvector as g."""

    g: SquaredForm
    factor: Float[Array, "n n"]
    residual: Float[Array, ""]
    perron: PerronResult
    background: Background

    @property
    def Q(self) -> Float[Array, "n n"]:
        """L L^T."""
        return self.factor @ self.factor.T

    def own_log_value(self, phi: Signed, psi: Signed) -> Float[Array, ""]:
        """log ||L^T (phi o psi)||^2."""
        b = (phi * psi).scaled()
        return jnp.log(jnp.sum((self.factor.T @ b.values) ** 2)) + 2.0 * b.log_scale

    def own_push(self, P: Float[Array, " p"]) -> Float[Array, " q"]:
        """Q o P, its own adjoint."""
        return pack(self.Q * unpack(P, self.factor.shape[0]))

    def own_form_from(self, psi: Basis, phi: Signed) -> SquaredForm:
        """The factor diag(phi) L / sqrt(g)."""
        values = phi.scaled().values
        root_g = jnp.linalg.norm(self.g.factor.T @ values)
        return SquaredForm(psi, (values / root_g)[:, None] * self.factor)

    def own_gains(self, M: Float[Array, " q"]) -> np.ndarray:
        """The spectrum of A^(-1/2) (Q o M) A^(-1/2), where A has not vanished."""
        integrated = np.asarray(self.Q * unpack(M, len(self.factor)))
        F = np.asarray(self.g.factor)
        inverse = np.linalg.pinv(F[:, np.any(F != 0, axis=0)])
        return np.linalg.eigvalsh(inverse @ integrated @ inverse.T)

    @property
    def iterations(self) -> int:
        """Power iterations."""
        return int(self.perron.iterations)

    @property
    def converged(self) -> bool:
        """Whether the power iteration's stopping rule was met."""
        return bool(self.perron.converged)

    def complaint(self) -> str | None:
        """That the power iteration gave up, before anything else."""
        if self.converged or not self.finite:
            return super().complaint()
        return (
            f"The power iteration for the Perron vector has not converged after {self.iterations} steps: the last"
            f" one still changed it by {float(self.residual):.2g}. Raise max_iterations; a process that hardly mixes,"
            " or near-duplicate functions, are the usual causes."
        )
