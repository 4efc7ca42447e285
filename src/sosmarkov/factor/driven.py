"""Transitions under inputs: p(x' | x, u), exact and normalised for every u."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import stored
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.couplings import Driven, Features
from sosmarkov.factor.couplings.driven import PhaseTable, Totals
from sosmarkov.factor.couplings.operators import gram
from sosmarkov.factor.forms import Form
from sosmarkov.factor.step import FactorTransition
from sosmarkov.factor.transition import Transition, known_residual
from sosmarkov.spaces.transforms import Transform


@stored("phi", "psi", "coupling", "transform", derived=("overlap", "shared", "some"))
class DrivenTransition(FactorTransition):
    """p(x' | x, u) = g(x') f_u(x, x') / g(x): one transition for every input, all with the same g.

    Args:
        phi: Basis of g and of f in x, n functions.
        psi: Basis of f in x', m functions of the same family and domain.
        coupling: The couplings for all inputs.
        transform: From data to model space; the identity where none is given.
    """

    phi: Basis
    psi: Basis
    coupling: Driven
    transform: Transform
    overlap: Float[Array, "p q"]
    # What normalising under any input needs; where inputs are times of a period, all there is to look up.
    shared: Totals | PhaseTable
    # The transition under one input; what of it depends on the input is replaced by `at`.
    some: Transition

    def __init__(self, phi: Basis, psi: Basis, coupling: Driven, transform: Transform | None = None):
        self.some = Transition(phi, psi, coupling.at(jnp.zeros(coupling.features.dim)), transform)
        self.phi, self.psi, self.coupling, self.transform = phi, psi, coupling, self.some.transform
        self.overlap = self.some.overlap
        M = gram(coupling.factor, self.overlap, psi.size)
        self.shared = coupling.shared(M)

    @property
    def g(self) -> Form:
        """The rational factor, in model space."""
        return self.some.g

    @property
    def features(self) -> Features:
        """How inputs act."""
        return self.coupling.features

    def summary(self) -> str:
        """Family, and how inputs act."""
        features = type(self.features).__name__
        return f"rational factor, {self.phi.family} functions, Kraus coupling under inputs ({features})"

    @property
    def normalisation(self) -> float | None:
        """That of all phases of a period; other inputs have one each, which is not known before they come."""
        return known_residual(self.shared.residual)

    def at(self, u: Float[Array, " e"] | None) -> Transition:
        """The transition under one input, of shape (e,)."""
        given: Array = _required(u)
        # g and the background's mass do not depend on the input.
        kernel = self.shared.kernel(self.some.kernel, self.coupling, given)  # type: ignore[arg-type]
        return eqx.tree_at(lambda t: (t.coupling.K, t.kernel), self.some, (self.coupling.K_at(given), kernel))

    def checked(self, u: ArrayLike | None) -> Array:
        """Inputs, checked."""
        return checks.inputs(_required(u), self.features.dim)

    def under(self, u: ArrayLike | None) -> Transition:
        """The same as an ordinary transition, checked."""
        given = self.checked(u)
        if given.ndim != 1:
            raise ValueError(f"Expected one input of shape ({self.features.dim},), got {given.shape}.")
        return _at(self, given)

    def mass(self, x: ArrayLike, u: ArrayLike | None = None) -> Float[Array, ...]:
        """The closed-form integral of p(. | x, u) for states (..., d) under one input (e,): one up to rounding."""
        return self.under(u).mass(x)

    def sample(self, key: PRNGKeyArray, x: ArrayLike, u: ArrayLike | None = None) -> Float[Array, "... d"]:
        """One exact draw of x' for each state in an array of shape (..., d), all under one input (e,)."""
        return self.under(u).sample(key, x)


def _required(u: Any) -> Any:
    if u is None:
        raise ValueError("Expected an input for a transition that depends on one, got none.")
    return u


@eqx.filter_jit
def _at(dynamics: DrivenTransition, u: Array) -> Transition:
    return Transition(dynamics.phi, dynamics.psi, dynamics.coupling.at(u), dynamics.transform)
