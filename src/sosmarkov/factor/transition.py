"""The rational-factor transition p(x' | x) = g(x') f(x, x') / g(x)."""

from __future__ import annotations

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import stored
from sosmarkov.factor import sampling
from sosmarkov.factor.bases import Basis, require_compatible
from sosmarkov.factor.couplings import Coupling, Kernel
from sosmarkov.factor.forms import Form
from sosmarkov.factor.step import FactorTransition
from sosmarkov.spaces.transforms import Identity, Transform, to_data, to_model


class NormalisationWarning(UserWarning):
    """A kernel is normalised less exactly than double precision should give; the text says by how much."""


@stored("phi", "psi", "coupling", "transform", derived=("overlap", "kernel"))
class Transition(FactorTransition):
    """A normalised conditional density, in data space.

    p(x' | x) = g(x') f(x, x') / g(x) times the Jacobian of the transform at x', where the coupling's
    normalisation makes int g(x') f(x, x') dx' = g(x) hold for every x.

    Args:
        phi: Basis of g and of f in x, n functions.
        psi: Basis of f in x', m functions of the same family and domain.
        coupling: `Kraus`, `Paired` or `Linear` parameters.
        transform: From data to model space; the identity where none is given.

    Attributes:
        overlap: E[p, q], the integrals of phi's term p times psi's term q.
        kernel: g and f as normalised.
    """

    phi: Basis
    psi: Basis
    coupling: Coupling
    transform: Transform
    overlap: Float[Array, "p q"]
    kernel: Kernel

    def __init__(self, phi: Basis, psi: Basis, coupling: Coupling, transform: Transform | None = None):
        require_compatible(("phi", phi), ("psi", psi))
        coupling.check(phi, psi)
        if transform is None:
            transform = Identity(phi.dim)
        if transform.dim != phi.dim:
            raise ValueError(f"Expected a transform of {phi.dim} coordinates, got one of {transform.dim}.")
        self.phi, self.psi, self.coupling, self.transform = phi, psi, coupling, transform
        self.overlap, self.kernel = _normalise(phi, psi, coupling)
        _report(self.kernel)

    @property
    def g(self) -> Form:
        """The rational factor, in model space."""
        return self.kernel.g

    @property
    def features(self) -> None:
        """No inputs."""
        return

    def at(self, u: Float[Array, " e"] | None) -> Transition:
        """Itself, always."""
        del u
        return self

    def summary(self) -> str:
        """Family and coupling."""
        return f"rational factor, {self.phi.family} functions, {type(self.coupling).__name__} coupling"

    def checked(self, u: ArrayLike | None) -> None:
        """Inputs are refused."""
        if u is not None:
            raise ValueError("Expected no input for a transition that was built without, got one.")

    @property
    def normalisation(self) -> float | None:
        """What the last correction of the kernel still changed."""
        return known_residual(self.kernel.residual)

    def log_prob_model(self, y_next: Float[Array, " d"], y: Float[Array, " d"]) -> Float[Array, ""]:
        """log-density of one pair in model space, without the transform's Jacobian."""
        inside = self.phi.inside(y) & self.phi.inside(y_next)
        safe = self.phi.interior_point()
        y, y_next = jnp.where(inside, y, safe), jnp.where(inside, y_next, safe)
        log_f = self.kernel.log_value(self.phi.evaluate(y), self.psi.evaluate(y_next))
        log_g = self.g.log_value_inside
        return jnp.where(inside, log_g(y_next) + log_f - log_g(y), -jnp.inf)

    def mass(self, x: ArrayLike, u: ArrayLike | None = None) -> Float[Array, ...]:
        """The closed-form integral of p(. | x), one up to rounding, for states of shape (..., d).

        NaN outside the domain, where there is no conditional density.
        """
        self.checked(u)
        x = checks.states(x, self.dim, "x")
        return _mass(self, x.reshape(-1, self.dim)).reshape(x.shape[:-1])

    def form_from(self, y: Float[Array, " d"]) -> Form:
        """h with p(. | x) = g h for one known state in model space."""
        return self.kernel.form_from(self.psi, self.phi.evaluate(y))

    def sample(self, key: PRNGKeyArray, x: ArrayLike, u: ArrayLike | None = None) -> Float[Array, "... d"]:
        """One exact draw of x' for each state in an array of shape (..., d)."""
        self.checked(u)
        x = checks.states(x, self.dim, "x")
        flat = x.reshape(-1, self.dim)
        y, inside = _enter(self, flat)
        if checks.is_concrete(inside) and not np.all(inside):
            outside = int(np.sum(~np.asarray(inside)))
            raise ValueError(
                f"Expected states inside the domain to draw from, got {outside} of {flat.shape[0]} outside"
                f" (model space {self.phi.lower} to {self.phi.upper})."
            )
        return _sample(self, key, y).reshape(x.shape)


def known_residual(residual: Array | None) -> float | None:
    """The largest residual, where its values can be looked at."""
    known = isinstance(residual, jax.Array | np.ndarray) and checks.is_concrete(residual)
    return float(np.max(np.asarray(residual))) if known else None


@eqx.filter_jit
def _normalise(phi: Basis, psi: Basis, coupling: Coupling) -> tuple[Array, Kernel]:
    overlap = phi.overlap(phi.terms(coupling.order), psi.terms(coupling.order))
    return overlap, coupling.normalise(phi, overlap)


def _report(kernel: Kernel) -> None:
    """Say so, outside of tracing, when the normalisation failed or is not converged."""
    leaves = jax.tree.leaves(eqx.filter(kernel, eqx.is_inexact_array))
    if not all(checks.is_concrete(leaf) for leaf in leaves):
        return
    complaint = kernel.complaint()
    if complaint is None:
        return
    if not kernel.finite:
        raise ValueError(complaint)
    warnings.warn(complaint, NormalisationWarning, stacklevel=3)


@eqx.filter_jit
def _mass(transition: Transition, x: Array) -> Array:
    phi, M = transition.phi, transition.g.coefficients @ transition.overlap
    y, _ = to_model(transition.transform, x)

    def one(y: Array) -> Array:
        inside = phi.inside(y)
        y = jnp.where(inside, y, phi.interior_point())
        return jnp.where(inside, transition.form_from(y).coefficients @ M, jnp.nan)

    return jax.vmap(one)(y)


@eqx.filter_jit
def _enter(transition: Transition, x: Array) -> tuple[Array, Array]:
    """States in model space, and which of them lie in the domain."""
    y, _ = to_model(transition.transform, x)
    return y, transition.phi.inside(y)


@eqx.filter_jit
def _sample(transition: Transition, key: Array, y: Array) -> Array:
    return to_data(transition.transform, sampling.draw_each(key, transition.g, transition.form_from, y))
