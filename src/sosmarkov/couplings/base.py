"""What couplings share: free parameters on one side, a normalised kernel on the other.

A coupling holds free parameters. `normalise` turns them into a `Kernel`: the factor g and an f that fulfil
int g(x') f(x, x') dx' = g(x) for every x, without penalties, projections or constants added.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sosmarkov import checks
from sosmarkov.bases import Basis
from sosmarkov.checks import ArrayLike
from sosmarkov.forms import Form
from sosmarkov.numerics import (
    Signed,
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


def require_pairs(n: int, phi: Basis, psi: Basis) -> None:
    """Refuse bases without one function of psi for each of phi."""
    if not n == phi.size == psi.size:
        raise ValueError(
            f"Expected as many functions in phi and in psi as coefficients ({n}),"
            f" got {phi.size} and {psi.size}. The Kraus coupling joins bases of different sizes."
        )
