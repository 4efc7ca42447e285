"""What couplings share: free parameters on one side, a normalised kernel on the other.

A coupling holds free parameters. `normalise` turns them into a `Kernel`: the factor g and an f that fulfil
int g(x') f(x, x') dx' = g(x) for every x, without penalties, projections or constants added.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import Signed
from sosmarkov.factor.background import Background
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.forms import Form
from sosmarkov.factor.starts import Wanted

# Beyond this the kernel is said to be badly conditioned.
_RESIDUAL_TO_REPORT = 1e-9


class Kernel(eqx.Module):
    """A normalised coupling. `P` and `C` are coefficients over terms (vectors over unique pairs).

    A background share mixes in a density that does not depend on x (see `Background`), t the last term of psi
    (psi_m^2, or psi_m for the linear coupling). Its coupling is of the family's own form: normalisation, beliefs and
    their propagation stay exact whatever the coupling is. Each kind states its own part; the mixture is written once.
    """

    g: eqx.AbstractVar[Form]
    # What the last step of the normalisation still changed, relative to one.
    residual: eqx.AbstractVar[Float[Array, ""]]
    background: eqx.AbstractVar[Background]

    @abstractmethod
    def own_log_value(self, phi: Signed, psi: Signed) -> Float[Array, ""]:
        """log f(x, x') of the coupling itself from the bases at the two points."""

    @abstractmethod
    def own_push(self, P: Float[Array, " p"]) -> Float[Array, " q"]:
        """`push` without the background."""

    @abstractmethod
    def own_form_from(self, psi: Basis, phi: Signed) -> Form:
        """`form_from` without the background."""

    @abstractmethod
    def own_gains(self, M: Float[Array, " q"]) -> np.ndarray:
        """`gains` without the background."""

    # --- what a kind may say of itself ------------------------------------------------------------

    def own_pull(self, M: Float[Array, " q"]) -> Float[Array, " p"]:
        """`pull` without the background; the same map where that is its own adjoint."""
        return self.own_push(M)

    def seen(self, N: Float[Array, "z z"], broad: Float[Array, ""]) -> Kernel:
        """The kernel of x' together with what is read there: N of `Operators`, and the background's density of it."""
        del N, broad
        raise ValueError("Expected a Kraus coupling for a process with a learned sensor, got another.")

    @property
    def rank(self) -> int | None:
        """Of K; None where there is none."""
        return None

    @property
    def iterations(self) -> int:
        """Steps its normalisation took; zero where it is in closed form."""
        return 0

    @property
    def converged(self) -> bool:
        """Whether these were enough."""
        return True

    def amplification(self, M: Float[Array, " q"]) -> float:
        """How much rounding of M is magnified; one where no cancellation takes place."""
        del M
        return 1.0

    def complaint(self) -> str | None:
        """What whoever made it must know: that it is not finite, or not normalised to the last digits."""
        if not self.finite:
            return (
                "Expected parameters whose kernel can be normalised in double precision, got a singular"
                " system: rows of K that are dependent once near-duplicate functions of psi are counted"
                " once (raise the rank R, spread psi), or functions too far apart to overlap."
            )
        if self.residual <= _RESIDUAL_TO_REPORT:
            return None
        return (
            f"The kernel is badly conditioned: p(.|x) integrates to one within about {float(self.residual):.2g} only."
            " Raise the rank R, or spread near-duplicate functions of psi."
        )

    # --- written once -----------------------------------------------------------------------------

    @property
    def finite(self) -> bool:
        """Whether there is a kernel at all."""
        return all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(eqx.filter(self, eqx.is_inexact_array)))

    def log_value(self, phi: Signed, psi: Signed) -> Float[Array, ""]:
        """log f(x, x') from the bases at the two points."""
        own = self.own_log_value(phi, psi)
        return self.background.log(own, lambda: self.g.log_value_of(phi) + self.g.order * psi.log_abs[-1])

    def push(self, P: Float[Array, " p"]) -> Float[Array, " q"]:
        """The belief's next coefficients from P = int (phi phi^T) h, or int phi h."""
        # The belief's mass, all of which reaches the background with its share.
        return self.background.push(self.own_push(P), lambda: self.g.coefficients @ P)

    def pull(self, M: Float[Array, " q"]) -> Float[Array, " p"]:
        """The adjoint of `push`: coefficients in x of int f(x, x') (form of x') dx'."""
        return self.background.pull(self.own_pull(M), M[-1], self.g)

    def form_from(self, psi: Basis, phi: Signed) -> Form:
        """h(x') = f(x, x') / g(x) for a known x, from phi there."""
        return self.background.form(self.own_form_from(psi, phi))

    def known(self, psi: Basis, phi: Signed) -> Float[Array, " q"]:
        """The coefficients of `form_from`."""
        return self.form_from(psi, phi).coefficients

    def gains(self, M: Float[Array, " q"]) -> np.ndarray:
        """Values that int p(. | x) can take: it is a weighted mean of these for every x."""
        return np.asarray(self.background.gains(self.own_gains(M), M[-1]))

    def conditions(self, M: Float[Array, " q"]) -> tuple[float, float]:
        """Condition numbers of g and of M = int g psi psi^T; spreads where they are vectors."""
        return self.g.conditions(M)


class Coupling(eqx.Module):
    """Free parameters of f (and, for Kraus, of g), and the background share (see `Background`).

    Attributes:
        name: What `fit` calls it.
        order: Of the forms g and h: 1 for linear ones, 2 for squared ones.
        ranked: Whether it has a rank.
        takes_inputs: Whether it is the one under each input where there are any.
        nonnegative: Whether it needs functions that are.
        most: Beyond how many functions none ever helped, whatever the family; None: as the family says.
    """

    name: ClassVar[str]
    order: ClassVar[int]
    ranked: ClassVar[bool] = False
    takes_inputs: ClassVar[bool] = False
    nonnegative: ClassVar[bool] = False
    most: ClassVar[int | None] = None
    background: eqx.AbstractVar[float]

    @classmethod
    @abstractmethod
    def start(cls, wanted: Wanted, y: np.ndarray, y_next: np.ndarray) -> tuple[Basis, Basis, Coupling]:
        """phi, psi and the coupling to begin training with, from pairs in model space, shape (N, d) each."""

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
        values = np.asarray(factor)
        if np.any(np.triu(values, 1) != 0):
            raise ValueError(f"Expected a lower-triangular {name}, got entries above the diagonal.")
        checks.require_positive(np.diagonal(values), f"the diagonal of {name}")
    return _raw_triangle(factor)


@jax.jit
def _raw_triangle(factor: Float[Array, "n n"]) -> Float[Array, "n n"]:
    return jnp.tril(factor, -1) + jnp.diag(jnp.log(jnp.diagonal(factor)))


def require_pairs(n: int, phi: Basis, psi: Basis) -> None:
    """Refuse bases without one function of psi for each of phi."""
    if not n == phi.size == psi.size:
        raise ValueError(
            f"Expected as many functions in phi and in psi as coefficients ({n}),"
            f" got {phi.size} and {psi.size}. The Kraus coupling joins bases of different sizes."
        )
