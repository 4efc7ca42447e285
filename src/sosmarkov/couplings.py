"""Three couplings f(x, x') >= 0, each normalised exactly: int g(x') f(x, x') dx' = g(x).

A coupling holds free parameters. `normalise` turns them into a `Kernel`: the factor g and an f that
fulfil the equation for every x, without penalties, projections or constants added.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from sosmarkov import checks
from sosmarkov.bases import Basis
from sosmarkov.checks import ArrayLike
from sosmarkov.forms import Form, LinearForm, SquaredForm, require_nonnegative
from sosmarkov.numerics import (
    PerronResult,
    Scaled,
    Signed,
    inverse_root_near_identity,
    log_quadratic,
    pack,
    perron,
    psd_factor,
    unpack,
    unpack_coefficients,
    whitener,
)


class Kernel(eqx.Module):
    """A normalised coupling. `P` and `C` are coefficients over terms (vectors over unique pairs)."""

    order: ClassVar[int]
    g: eqx.AbstractVar[Form]
    # What the last step of the normalisation still changed, relative to one.
    residual: eqx.AbstractVar[Float[Array, ""]]

    @abstractmethod
    def log_value(self, phi: Signed, psi: Signed) -> Float[Array, ""]:
        """Log f(x, x') from the bases at the two points."""

    @abstractmethod
    def push(self, P: Float[Array, " p"]) -> Float[Array, " q"]:
        """The belief's next coefficients from P = int (phi phi^T) h, or int phi h."""

    @abstractmethod
    def pull(self, M: Float[Array, " q"]) -> Float[Array, " p"]:
        """The adjoint of `push`: coefficients in x of int f(x, x') (form of x') dx'."""

    @abstractmethod
    def form(self, psi: Basis, coefficients: Float[Array, " q"]) -> Form:
        """The form h over psi with these coefficients."""

    @abstractmethod
    def form_from(self, psi: Basis, phi: Signed) -> Form:
        """h(x') = f(x, x') / g(x) for a known x, from phi there."""

    @abstractmethod
    def mass(self, phi: Signed, M: Float[Array, " q"]) -> Float[Array, ""]:
        """Int g(x') f(x, x') dx' / g(x) from phi at x and M = int g (psi psi^T), or int g psi."""


class Coupling(eqx.Module):
    """Free parameters of f (and, for Kraus, of g)."""

    name: ClassVar[str]
    order: ClassVar[int]

    @abstractmethod
    def check(self, phi: Basis, psi: Basis) -> None:
        """Refuse bases this coupling cannot join."""

    @abstractmethod
    def normalise(self, phi: Basis, E: Float[Array, "p q"]) -> Kernel:
        """The kernel, from the table E of overlaps of phi's terms with psi's."""


# --- Kraus ----------------------------------------------------------------------------------------


class Kraus(Coupling):
    """f = sum_r (phi(x)^T K_r psi(x'))^2 with K and A free.

    Args:
        K: Shape (n, m, R), with m R >= n.
        factor: L_A with A = L_A L_A^T, shape (n, n), lower triangular with a positive diagonal;
            the identity where none is given.
    """

    name: ClassVar[str] = "kraus"
    order: ClassVar[int] = 2

    K: Float[Array, "n m r"]
    raw_factor: Float[Array, "n n"]

    def __init__(self, K: ArrayLike, factor: ArrayLike | None = None):
        self.K = checks.parameter(K, "K", (None, None, None))
        n, m, rank = self.K.shape
        if m * rank < n:
            raise ValueError(
                f"Expected m * R >= n so that the kernel can be normalised, got n = {n}, m = {m}, R = {rank}."
                f" Use a rank R of at least {-(-n // m)}."
            )
        self.raw_factor = raw_triangle(jnp.eye(n) if factor is None else factor, n, "factor")

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
        M = unpack(pack(L_A @ L_A.T) @ E, self.K.shape[1])

        def total(K: Array) -> Array:
            return jnp.einsum("imr,mk,jkr->ij", K, M, K)

        K = jnp.einsum("ij,jmr->imr", whitener(total(self.K)), self.K)
        left = jnp.zeros(())
        for _ in range(2):
            # T of the corrected K is the identity for all parameters: the correction is rounding,
            # a constant to differentiation.
            near_identity = lax.stop_gradient(total(K))
            left = jnp.max(jnp.abs(near_identity - jnp.eye(len(near_identity))))
            K = jnp.einsum("ij,jmr->imr", inverse_root_near_identity(near_identity), K)
        return KrausKernel(g=SquaredForm(phi, L_A), K=K, residual=left)


class KrausKernel(Kernel):
    """Kraus operators of w = L_A^T phi: f = sum_r (w(x)^T K_r psi(x'))^2, sum_r K_r M K_r^T = I.

    L_A is kept apart on purpose: g = ||w||^2 and f then share w, so whatever rounding does to w
    cancels, and the mass of p(. | x) is one to the last digits however badly A is conditioned.
    """

    order: ClassVar[int] = 2
    g: SquaredForm
    K: Float[Array, "n m r"]
    residual: Float[Array, ""]

    def _w(self, phi: Signed) -> Scaled:
        at_x = phi.scaled()
        return Scaled(self.g.factor.T @ at_x.values, at_x.log_scale)

    def log_value(self, phi: Signed, psi: Signed) -> Float[Array, ""]:
        """Log sum_r (w^T K_r psi)^2."""
        left, right = self._w(phi), psi.scaled()
        inner = jnp.einsum("n,nmr,m->r", left.values, self.K, right.values)
        return jnp.log(jnp.sum(inner**2)) + 2.0 * (left.log_scale + right.log_scale)

    def mass(self, phi: Signed, M: Float[Array, " q"]) -> Float[Array, ""]:
        """w^T (sum_r K_r M K_r^T) w / w^T w."""
        w = self._w(phi).values
        inner = jnp.einsum("n,nmr->mr", w, self.K)
        return jnp.einsum("mr,mk,kr->", inner, unpack(M, self.K.shape[1]), inner) / (w @ w)

    def push(self, P: Float[Array, " p"]) -> Float[Array, " q"]:
        """sum_r K_r^T (L_A^T P L_A) K_r."""
        L_A = self.g.factor
        P_matrix = L_A.T @ unpack(P, L_A.shape[0]) @ L_A
        return pack(jnp.einsum("imr,ij,jkr->mk", self.K, P_matrix, self.K))

    def pull(self, M: Float[Array, " q"]) -> Float[Array, " p"]:
        """L_A (sum_r K_r M K_r^T) L_A^T."""
        L_A = self.g.factor
        inner = jnp.einsum("imr,mk,jkr->ij", self.K, unpack(M, self.K.shape[1]), self.K)
        return pack(L_A @ inner @ L_A.T)

    def form(self, psi: Basis, coefficients: Float[Array, " q"]) -> SquaredForm:
        """psi^T C psi."""
        return SquaredForm(psi, matrix=unpack_coefficients(coefficients, psi.size))

    def form_from(self, psi: Basis, phi: Signed) -> SquaredForm:
        """The factor (K_r^T w)_r / ||w||: rank R."""
        w = self._w(phi).values
        return SquaredForm(psi, jnp.einsum("n,nmr->mr", w / jnp.sqrt(w @ w), self.K))


# --- Paired ---------------------------------------------------------------------------------------


class Paired(Coupling):
    """The paper's f = b^T Q b, b_i = phi_i(x) psi_i(x'), Q = L L^T > 0; A is Q's Perron vector.

    Args:
        factor: L, shape (n, n), lower triangular with a positive diagonal.
        max_iterations: When the power iteration gives up (and says so).
    """

    name: ClassVar[str] = "paired"
    order: ClassVar[int] = 2

    raw_factor: Float[Array, "n n"]
    max_iterations: int = eqx.field(static=True)

    def __init__(self, factor: ArrayLike, *, max_iterations: int = 20_000):
        factor = checks.as_float(factor, "factor")
        self.raw_factor = raw_triangle(factor, factor.shape[0] if factor.ndim else 0, "factor")
        self.max_iterations = checks.count(max_iterations, "max_iterations", least=1)

    @property
    def factor(self) -> Float[Array, "n n"]:
        """L."""
        return triangle(self.raw_factor)

    def check(self, phi: Basis, psi: Basis) -> None:
        """One function of psi for each of phi."""
        _require_pairs(self.raw_factor.shape[0], phi, psi)

    def normalise(self, phi: Basis, E: Float[Array, "p q"]) -> PairedKernel:
        """A = Q o G(A) / lambda; then f uses Q / lambda."""
        L = self.factor
        result: PerronResult = perron(L @ L.T, E, self.max_iterations)  # type: ignore[assignment]
        g = SquaredForm(phi, matrix=result.A)
        scaled = L / jnp.sqrt(result.eigenvalue)
        return PairedKernel(g=g, factor=scaled, residual=result.residual, perron=result)


class PairedKernel(Kernel):
    """Q scaled to Perron eigenvalue one, with its eigenvector as g."""

    order: ClassVar[int] = 2
    g: SquaredForm
    factor: Float[Array, "n n"]
    residual: Float[Array, ""]
    perron: PerronResult

    @property
    def Q(self) -> Float[Array, "n n"]:
        """L L^T."""
        return self.factor @ self.factor.T

    def log_value(self, phi: Signed, psi: Signed) -> Float[Array, ""]:
        """Log ||L^T (phi o psi)||^2."""
        b = (phi * psi).scaled()
        return jnp.log(jnp.sum((self.factor.T @ b.values) ** 2)) + 2.0 * b.log_scale

    def push(self, P: Float[Array, " p"]) -> Float[Array, " q"]:
        """Q o P."""
        return pack(self.Q * unpack(P, self.factor.shape[0]))

    def pull(self, M: Float[Array, " q"]) -> Float[Array, " p"]:
        """Q o M."""
        return pack(self.Q * unpack(M, self.factor.shape[0]))

    def form(self, psi: Basis, coefficients: Float[Array, " q"]) -> SquaredForm:
        """psi^T C psi."""
        return SquaredForm(psi, matrix=unpack_coefficients(coefficients, psi.size))

    def form_from(self, psi: Basis, phi: Signed) -> SquaredForm:
        """The factor diag(phi) L / sqrt(g)."""
        values = phi.scaled().values
        root_g = jnp.linalg.norm(self.g.factor.T @ values)
        return SquaredForm(psi, (values / root_g)[:, None] * self.factor)

    def mass(self, phi: Signed, M: Float[Array, " q"]) -> Float[Array, ""]:
        """phi^T (Q o M) phi / phi^T A phi."""
        values = phi.scaled().values
        integrated = self.Q * unpack(M, self.factor.shape[0])
        ratio = log_quadratic(integrated, psd_factor(integrated), values)
        return jnp.exp(ratio - log_quadratic(self.g.matrix, self.g.factor, values))


# --- Linear ---------------------------------------------------------------------------------------


class Linear(Coupling):
    """f = sum_i b_i phi_i(x) psi_i(x') over non-negative functions, g = a . phi, a > 0 free.

    Args:
        weights: a, shape (n,), positive.
    """

    name: ClassVar[str] = "linear"
    order: ClassVar[int] = 1

    log_weights: Float[Array, " n"]

    def __init__(self, weights: ArrayLike):
        weights = checks.parameter(weights, "weights", (None,))
        checks.require_positive(weights, "weights")
        self.log_weights = jnp.log(weights)

    def check(self, phi: Basis, psi: Basis) -> None:
        """Non-negative functions, one of psi for each of phi."""
        require_nonnegative(phi)
        _require_pairs(self.log_weights.shape[0], phi, psi)

    def normalise(self, phi: Basis, E: Float[Array, "p q"]) -> LinearKernel:
        """b_i = a_i / (Omega^T a)_i with Omega = int phi psi^T."""
        weights = jnp.exp(self.log_weights)
        return LinearKernel(g=LinearForm(phi, weights), b=weights / (weights @ E), residual=jnp.zeros(()))


class LinearKernel(Kernel):
    """A finite Markov chain over i: gate a_i phi_i(x) / g(x), emission g psi_i b_i / a_i."""

    order: ClassVar[int] = 1
    g: LinearForm
    b: Float[Array, " n"]
    residual: Float[Array, ""]

    def log_value(self, phi: Signed, psi: Signed) -> Float[Array, ""]:
        """Log sum_i b_i phi_i psi_i."""
        products = (phi * psi).scaled()
        return jnp.log(self.b @ products.values) + products.log_scale

    def push(self, P: Float[Array, " p"]) -> Float[Array, " q"]:
        """B o P."""
        return self.b * P

    def pull(self, M: Float[Array, " q"]) -> Float[Array, " p"]:
        """B o M."""
        return self.b * M

    def form(self, psi: Basis, coefficients: Float[Array, " q"]) -> LinearForm:
        """C . psi."""
        return LinearForm(psi, coefficients)

    def form_from(self, psi: Basis, phi: Signed) -> LinearForm:
        """B o phi / g."""
        values = phi.scaled().values
        return LinearForm(psi, self.b * values / (self.g.weights @ values))

    def mass(self, phi: Signed, M: Float[Array, " q"]) -> Float[Array, ""]:
        """(b o M) . phi / a . phi."""
        values = phi.scaled().values
        return (self.b * M) @ values / (self.g.weights @ values)


# --- shared ---------------------------------------------------------------------------------------


def triangle(raw: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Lower-triangular matrix with a positive diagonal from free numbers."""
    return jnp.tril(raw, -1) + jnp.diag(jnp.exp(jnp.diagonal(raw)))


def raw_triangle(factor: ArrayLike, n: int, name: str) -> Float[Array, "n n"]:
    """The free numbers `triangle` maps to this factor."""
    factor = checks.parameter(factor, name, (n, n))
    if checks.is_concrete(factor):
        if not bool(jnp.all(jnp.triu(factor, 1) == 0)):
            raise ValueError(f"Expected a lower-triangular {name}, got entries above the diagonal.")
        checks.require_positive(jnp.diagonal(factor), f"the diagonal of {name}")
    return jnp.tril(factor, -1) + jnp.diag(jnp.log(jnp.diagonal(factor)))


def _require_pairs(n: int, phi: Basis, psi: Basis) -> None:
    if not n == phi.size == psi.size:
        raise ValueError(
            f"Expected as many functions in phi and in psi as coefficients ({n}),"
            f" got {phi.size} and {psi.size}. The Kraus coupling joins bases of different sizes."
        )
