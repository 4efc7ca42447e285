"""Beliefs: densities that are products of two forms, and what they answer in closed form."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sosmarkov import checks
from sosmarkov.bases import Basis, FullGaussianBasis, GaussianBasis, Terms, require_compatible
from sosmarkov.checks import ArrayLike
from sosmarkov.forms import Form, LinearForm, SquaredForm, product_mass
from sosmarkov.numerics import Signed
from sosmarkov.transforms import Identity, Transform, to_model


class Belief(eqx.Module):
    """A probability density over states, in data space."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of coordinates."""

    @abstractmethod
    def log_prob(self, x: ArrayLike) -> Float[Array, ...]:
        """log-density at states of shape (..., d); -inf outside the domain, never NaN."""

    @abstractmethod
    def mass(self) -> Float[Array, ""]:
        """The closed-form integral over all states: one up to rounding."""

    @abstractmethod
    def mean(self) -> Float[Array, " d"]:
        """E[x]."""

    @abstractmethod
    def covariance(self) -> Float[Array, "d d"]:
        """E[x x^T] - E[x] E[x]^T."""

    @abstractmethod
    def marginal(self, coordinates: Sequence[int] | int) -> Belief:
        """The belief over some coordinates, in the order given."""

    def prob(self, x: ArrayLike) -> Float[Array, ...]:
        """Density at states of shape (..., d)."""
        return jnp.exp(self.log_prob(x))


class Expansion(eqx.Module):
    """sum_pq w_pq left_p(y) right_q(y): the belief as a signed sum, for integrals."""

    basis: Basis
    left: Terms
    right: Terms
    weights: Float[Array, "p q"]


class DensityBelief(Belief):
    """What the two kinds of density share: integrals of their expansion."""

    transform: eqx.AbstractVar[Transform]

    @abstractmethod
    def expansion(self) -> Expansion:
        """The density in model space as a signed sum."""

    @abstractmethod
    def log_prob_model(self, y: Float[Array, " d"]) -> Float[Array, ""]:
        """log-density of one point in model space, without the transform's Jacobian."""

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.transform.dim

    def log_prob(self, x: ArrayLike) -> Float[Array, ...]:
        """log-density at states of shape (..., d); -inf outside the domain, never NaN."""
        x = checks.states(x, self.dim)
        return _log_prob(self, x.reshape(-1, self.dim)).reshape(x.shape[:-1])

    def mass(self) -> Float[Array, ""]:
        """The closed-form integral over all states: one up to rounding."""
        return _mass(self)

    def mean(self) -> Float[Array, " d"]:
        """E[x]: closed form under affine transforms, Gauss-Legendre in x under a Gaussian CDF."""
        return _moments(self)[0]

    def covariance(self) -> Float[Array, "d d"]:
        """E[x x^T] - E[x] E[x]^T, as exact as `mean`."""
        return _moments(self)[1]

    def marginal(self, coordinates: Sequence[int] | int) -> Belief:
        """The belief over some coordinates, in the order given.

        Closed form for every family under coordinate-wise transforms (identity, standardise,
        Gaussian CDF and chains of these), and for Gaussian families under any affine map.
        """
        kept = checks.coordinates(coordinates, self.dim)
        belief = self if self.transform.coordinatewise else self.in_data_space()
        return MarginalBelief(sum=_marginalise(belief, kept), transform=belief.transform.select(kept))

    @abstractmethod
    def in_data_space(self) -> DensityBelief:
        """The same density with its Gaussian kernels moved to data space, where coordinates are its own."""


class ProductBelief(DensityBelief):
    """p(x) = g(x) h(x), two forms over one family."""

    g: Form
    h: Form
    transform: Transform

    def expansion(self) -> Expansion:
        """Outer product of the coefficients of g and h."""
        weights = self.g.coefficients[:, None] * self.h.coefficients
        return Expansion(self.g.basis, self.g.terms, self.h.terms, weights)

    def log_prob_model(self, y: Float[Array, " d"]) -> Float[Array, ""]:
        """Log g + log h, each a squared norm or a sum of positive terms."""
        return self.g.log_value(y) + self.h.log_value(y)

    def in_data_space(self) -> ProductBelief:
        """Gaussian kernels stay Gaussian under affine maps; other families do not stay products."""
        matrix, offset, inner = self.transform.split()
        bases = self.g.basis, self.h.basis
        if inner is not None or not all(isinstance(b, (GaussianBasis, FullGaussianBasis)) for b in bases):
            raise ValueError(
                "Expected a coordinate-wise transform, or Gaussian functions under an affine one, for a"
                f" marginal in closed form; got family {self.g.basis.family} under {self.transform}."
                " Use a standardising transform."
            )
        log_det = self.transform.forward(offset)[1]
        # Unit norm in y is exp(-log_det / 2) of unit norm in x, for each of four functions.
        moved = [_moved(form, matrix, offset) for form in (self.g, self.h)]
        factors = moved[0].order + moved[1].order
        h = moved[1].scale(log_det * (1.0 - 0.5 * factors))
        return ProductBelief(g=moved[0], h=h, transform=Identity(self.dim))


def _moved(form: Form, matrix: Array, offset: Array) -> Form:
    basis = form.basis
    assert isinstance(basis, (GaussianBasis, FullGaussianBasis))
    return eqx.tree_at(lambda f: f.basis, form, FullGaussianBasis.pushed(basis, matrix, offset))


class MarginalBelief(DensityBelief):
    """A belief with coordinates integrated out: a signed sum whose value is an integral of squares.

    Evaluated term by term with the largest pulled out. Where cancellation leaves no correct digit,
    an error is raised rather than a wrong or negative density returned.
    """

    sum: Expansion
    transform: Transform

    def expansion(self) -> Expansion:
        """The sum itself."""
        return self.sum

    def log_prob_model(self, y: Float[Array, " d"]) -> Float[Array, ""]:
        """Log of left(y)^T W right(y)."""
        basis, left, right, weights = self.sum.basis, self.sum.left, self.sum.right, self.sum.weights
        inside = basis.inside(y)
        safe = jnp.where(inside, y, basis.interior_point())
        values = []
        for terms in (left, right):
            log_abs, sign = basis.log_abs(terms.theta, safe)
            values.append(Signed(log_abs + terms.log_scale, sign).scaled())
        total = values[0].values @ weights @ values[1].values
        size = jnp.abs(values[0].values) @ jnp.abs(weights) @ jnp.abs(values[1].values)
        rounding = 4.0 * jnp.finfo(total.dtype).eps * size
        total = eqx.error_if(
            total,
            inside & ~(total > rounding),
            "A marginal density is lost to cancellation here: the model's coefficients are too badly"
            " conditioned. See process.check().",
        )
        log_value = jnp.log(total) + values[0].log_scale + values[1].log_scale
        return jnp.where(inside, log_value, -jnp.inf)

    def in_data_space(self) -> DensityBelief:
        """Marginals are taken with coordinate-wise transforms only, so there is nothing to do."""
        return self


class KnownState(Belief):
    """A state known exactly: all mass at one point, no density.

    Args:
        state: Shape (d,), in data space.
    """

    state: Float[Array, " d"]

    def __init__(self, state: ArrayLike):
        self.state = checks.parameter(state, "state", (None,))

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.state.shape[0]

    def log_prob(self, x: ArrayLike) -> Float[Array, ...]:
        """Refused: a point mass has no density."""
        raise ValueError("Expected a belief with a density, got a known state. Ask a later belief.")

    def mass(self) -> Float[Array, ""]:
        """One."""
        return jnp.ones(())

    def mean(self) -> Float[Array, " d"]:
        """The state."""
        return self.state

    def covariance(self) -> Float[Array, "d d"]:
        """Zero."""
        return jnp.zeros((self.dim, self.dim))

    def marginal(self, coordinates: Sequence[int] | int) -> KnownState:
        """The known coordinates."""
        return KnownState(self.state[jnp.asarray(checks.coordinates(coordinates, self.dim))])


def initial_belief(g: Form, h: Form, transform: Transform) -> ProductBelief:
    """p_0 = g h_0, with h_0 scaled so that the mass is exactly one.

    Args:
        g: The transition's factor.
        h: A form of the same kind over a basis of its own, of g's family and domain.
        transform: The transition's.
    """
    require_compatible(("g's basis", g.basis), ("the initial basis", h.basis))
    if type(h) is not type(g):
        kinds = {SquaredForm: "a squared form", LinearForm: "a linear form"}
        raise ValueError(f"Expected {kinds[type(g)]} for the initial belief, got {kinds[type(h)]}.")
    mass, scaled = _normalised(g, h)
    if checks.is_concrete(mass) and not 0 < float(mass) < math.inf:
        raise ValueError(f"Expected an initial form that overlaps with the factor g, got mass {float(mass):g}.")
    return ProductBelief(g=g, h=scaled, transform=transform)


@eqx.filter_jit
def _normalised(g: Form, h: Form) -> tuple[Array, Form]:
    """Int g h, and h divided by it."""
    mass = product_mass(g, h)
    return mass, h.scale(-jnp.log(mass))


@eqx.filter_jit
def _log_prob(belief: DensityBelief, x: Array) -> Array:
    y, log_det = to_model(belief.transform, x)
    return jax.vmap(belief.log_prob_model)(y) + log_det


@eqx.filter_jit
def _mass(belief: DensityBelief) -> Array:
    sum_ = belief.expansion()
    return jnp.sum(sum_.weights * sum_.basis.overlap(sum_.left, sum_.right))


@eqx.filter_jit
def _moments(belief: DensityBelief) -> tuple[Array, Array]:
    sum_ = belief.expansion()
    matrix, offset, inner = belief.transform.split()
    first, second = sum_.basis.contract_moments(sum_.left, sum_.right, sum_.weights, inner)
    centred = second - jnp.outer(first, first)
    return matrix @ first + offset, matrix @ centred @ matrix.T


@eqx.filter_jit
def _marginalise(belief: DensityBelief, kept: tuple[int, ...]) -> Expansion:
    sum_ = belief.expansion()
    left, right, weights = sum_.basis.marginalise(sum_.left, sum_.right, sum_.weights, kept)
    return Expansion(sum_.basis.restrict(kept), left, right, weights)
