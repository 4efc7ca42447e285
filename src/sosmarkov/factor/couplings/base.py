"""What couplings share: free parameters on one side, a normalised kernel on the other.

A coupling holds free parameters. `normalise` turns them into a `Kernel`: the factor g and an f that fulfil
int g(x') f(x, x') dx' = g(x) for every x, without penalties, projections or constants added.
"""

from __future__ import annotations

import math
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
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.forms import Form, LinearForm, SquaredForm
from sosmarkov.factor.starts import Wanted


class Kernel(eqx.Module):
    """A normalised coupling. `P` and `C` are coefficients over terms (vectors over unique pairs).

    A background share e mixes in a density that does not depend on x, for honest tails:

        p(x' | x) = (1 - e) p_own(x' | x) + e g(x') t(x') / int g t,

    t the last term of psi (psi_m^2, or psi_m for the linear coupling). As g(x) divides out, its coupling is
    f_b = g(x) t(x') / int g t, of the family's own form: normalisation, beliefs and their propagation stay exact
    whatever the coupling is. Each kind states its own part; the mixture is written once, here.
    """

    order: ClassVar[int]
    g: eqx.AbstractVar[Form]
    # What the last step of the normalisation still changed, relative to one.
    residual: eqx.AbstractVar[Float[Array, ""]]
    background: eqx.AbstractVar[float]
    background_mass: eqx.AbstractVar[Float[Array, ""]]

    @abstractmethod
    def own_log_value(self, phi: Signed, psi: Signed) -> Float[Array, ""]:
        """log f(x, x') of the coupling itself from the bases at the two points."""

    @abstractmethod
    def own_push(self, P: Float[Array, " p"]) -> Float[Array, " q"]:
        """`push` without the background."""

    @abstractmethod
    def own_pull(self, M: Float[Array, " q"]) -> Float[Array, " p"]:
        """`pull` without the background."""

    @abstractmethod
    def own_mass(self, phi: Signed, M: Float[Array, " q"]) -> Float[Array, ""]:
        """`mass` without the background."""

    @abstractmethod
    def own_form_from(self, psi: Basis, phi: Signed) -> Form:
        """`form_from` without the background."""

    # --- written once -----------------------------------------------------------------------------

    def log_value(self, phi: Signed, psi: Signed) -> Float[Array, ""]:
        """log f(x, x') from the bases at the two points."""
        log_f = self.own_log_value(phi, psi)
        if self.background == 0:
            return log_f
        log_b = self.g.log_value_of(phi) + self.order * psi.log_abs[-1] - jnp.log(self.background_mass)
        return jnp.logaddexp(math.log1p(-self.background) + log_f, math.log(self.background) + log_b)

    def push(self, P: Float[Array, " p"]) -> Float[Array, " q"]:
        """The belief's next coefficients from P = int (phi phi^T) h, or int phi h."""
        C = self.own_push(P)
        if self.background == 0:
            return C
        # The belief's mass, all of which reaches the background with its share.
        mass = self.g.coefficients @ P
        return ((1.0 - self.background) * C).at[-1].add(self.background * mass / self.background_mass)

    def pull(self, M: Float[Array, " q"]) -> Float[Array, " p"]:
        """The adjoint of `push`: coefficients in x of int f(x, x') (form of x') dx'."""
        inner = self.own_pull(M)
        if self.background == 0:
            return inner
        return (1.0 - self.background) * inner + self.background * M[-1] / self.background_mass * self.g.coefficients

    def mass(self, phi: Signed, M: Float[Array, " q"]) -> Float[Array, ""]:
        """int g(x') f(x, x') dx' / g(x) from phi at x and M = int g (psi psi^T), or int g psi."""
        share = self.own_mass(phi, M)
        if self.background == 0:
            return share
        return (1.0 - self.background) * share + self.background * M[-1] / self.background_mass

    def form_from(self, psi: Basis, phi: Signed) -> Form:
        """h(x') = f(x, x') / g(x) for a known x, from phi there."""
        own = self.own_form_from(psi, phi)
        if self.background == 0:
            return own
        return mix_last(own, self.background, 1.0 / self.background_mass)


def mix_last(form: Form, share: float, height: Float[Array, ""]) -> Form:
    """(1 - share) form + share * height * (last term of its basis), as a form of the same kind."""
    if isinstance(form, LinearForm):
        return LinearForm(form.basis, ((1.0 - share) * form.weights).at[-1].add(share * height))
    assert isinstance(form, SquaredForm)
    last = jnp.zeros((form.basis.size, 1)).at[-1, 0].set(jnp.sqrt(share * height))
    return SquaredForm(form.basis, jnp.concatenate([math.sqrt(1.0 - share) * form.factor, last], axis=1))


def require_rank(n: int, m: int, rank: int) -> None:
    """Refuse a K of shape (n, m, R) that no matrix can normalise."""
    if m * rank < n:
        raise ValueError(
            f"Expected m * R >= n so that the kernel can be normalised, got n = {n}, m = {m}, R = {rank}."
            f" Use a rank R of at least {-(-n // m)}."
        )


def require_share(background: float) -> float:
    """A background share, or a ValueError."""
    if not 0.0 <= background < 1.0:
        raise ValueError(f"Expected a background share of at least 0 and below 1, got {background}.")
    return float(background)


class Coupling(eqx.Module):
    """Free parameters of f (and, for Kraus, of g), and the background share (see `Kernel`).

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
