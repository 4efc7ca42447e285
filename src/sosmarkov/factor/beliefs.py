"""Densities that are products of two forms, and what they answer in closed form."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, PRNGKeyArray

from sosmarkov.contracts.belief import Belief, estimated_probability
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import within
from sosmarkov.core.stored import require, stored
from sosmarkov.factor import integrals, sampling
from sosmarkov.factor.bases import Basis, FullGaussianBasis, require_compatible
from sosmarkov.factor.bases.full_sum import Sums, sum_at
from sosmarkov.factor.forms import Form, same
from sosmarkov.factor.integrals import Expansion
from sosmarkov.factor.lines import SumLine, values_at
from sosmarkov.factor.space import Space
from sosmarkov.spaces.transforms import Identity, Transform, to_data, to_model


class DensityBelief(Belief):
    """What the two kinds of density share: integrals of their expansion."""

    transform: eqx.AbstractVar[Transform]

    @abstractmethod
    def expansion(self) -> Expansion:
        """The density in model space as a signed sum."""

    @abstractmethod
    def log_prob_and_loss(self, y: Float[Array, "b d"]) -> tuple[Float[Array, " b"], Bool[Array, " b"]]:
        """log-density of points in model space, without the transform's Jacobian; whether cancellation ate it."""

    @property
    @abstractmethod
    def basis(self) -> Basis:
        """A basis of the density's family."""

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.transform.dim

    def anonymous(self) -> DensityBelief:
        """The same density for compiled programs, without what would make each of them another program."""
        return self.with_columns(None)

    def log_prob(self, x: ArrayLike) -> Float[Array, ...]:
        """log-density at states of shape (..., d); -inf outside the domain, never NaN."""
        x = checks.states(x, self.dim)
        return _log_prob(self.anonymous(), x.reshape(-1, self.dim)).reshape(x.shape[:-1])

    def mass(self) -> Float[Array, ""]:
        """The closed-form integral over all states: one up to rounding."""
        return integrals.mass(self.expansion())

    def mean(self) -> Float[Array, " d"]:
        """E[x]: closed form under affine transforms, Gauss-Legendre in x under a Gaussian CDF."""
        return integrals.mean_and_covariance(self.expansion(), self.transform)[0]

    def covariance(self) -> Float[Array, "d d"]:
        """E[x x^T] - E[x] E[x]^T, as exact as `mean`."""
        return integrals.mean_and_covariance(self.expansion(), self.transform)[1]

    def _moment(self, powers: tuple[int, ...]) -> Float[Array, ""]:
        return integrals.moment(self.expansion(), self.transform, powers)

    def _probability(self, lower: Array, upper: Array) -> Float[Array, ...]:
        space = self.space
        if space.separate or space.on_a_line:
            return _boxes(self.anonymous(), lower, upper)
        if self.dim == 1 and space.gaussian:
            return self._marginal((0,))._probability(lower, upper)
        if not (checks.is_concrete(lower) and checks.is_concrete(upper)):
            raise ValueError(f"Expected known bounds for {space}, got traced ones.")
        bounded = np.flatnonzero(np.any(((lower > -np.inf) | (upper < np.inf)).reshape(-1, self.dim), axis=0))
        if len(bounded) == 0:
            return jnp.broadcast_to(self.mass(), np.broadcast_shapes(lower.shape, upper.shape)[:-1])
        if len(bounded) == 1 and space.gaussian:
            return self._marginal((int(bounded[0]),))._probability(lower[..., bounded], upper[..., bounded])
        if np.all(np.any(lower >= upper, axis=-1)):
            return jnp.zeros(np.broadcast_shapes(lower.shape, upper.shape)[:-1])
        return estimated_probability(self, lower, upper, f"Boxes have no closed form for {space}.")

    def support(self) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """The domain, or the belief's own box, in data space; all of it under a transform that mixes coordinates."""
        if not self.transform.coordinatewise:
            return super().support()
        sum_ = self.expansion()
        ends = integrals.intersection(sum_, jnp.asarray(sum_.basis.lower), jnp.asarray(sum_.basis.upper))
        return self.transform.inverse(ends[0]), self.transform.inverse(ends[1])

    def overlap(self, other: DensityBelief) -> Float[Array, ""]:
        """int p q, in closed form for beliefs of one family under the same affine transform.

        The cost grows with the product of the numbers of terms of both, (P Q)^2 for two of the same size.
        """
        return integrals.overlap(self.expansion(), other.expansion(), self.transform, other.transform)

    def l2_distance(self, other: DensityBelief) -> Float[Array, ""]:
        """(int (p - q)^2)^(1/2), in closed form where `overlap` is.

        To about 1e-8 of the densities' own norms: where rounding leaves less than nothing of the square, zero.
        """
        both = [(self, self), (self, other), (other, other)]
        pp, pq, qq = (one.overlap(two) for one, two in both)
        return jnp.sqrt(jnp.maximum(pp - 2.0 * pq + qq, 0.0))

    @property
    def space(self) -> Space:
        """What is known of it in closed form."""
        return Space(self.basis, self.transform)


def _sound(belief: ProductBelief) -> None:
    require_compatible(("g's basis", belief.g.basis), ("h's basis", belief.h.basis))
    require(type(belief.g) is type(belief.h), "two forms of one kind in a belief")
    require(belief.transform.dim == belief.basis.dim, "a transform of as many coordinates as the belief has")
    ends = [end for end in (belief.lower, belief.upper) if end is not None]
    require(len(ends) != 1, "both ends of a belief's box, or none")
    require(all(len(end) == belief.dim and not np.any(np.isnan(end)) for end in ends), "a box with an end a coordinate")
    for leaf in jax.tree.leaves((belief.g, belief.h, belief.transform)):
        checks.require_finite(leaf, "a belief")


@stored("g", "h", "transform", "lower", "upper", check=_sound, infinite=True)
class ProductBelief(DensityBelief):
    """p(x) = g(x) h(x), two forms over one family, on the domain or on a box in model space."""

    g: Form
    h: Form
    transform: Transform
    lower: Float[Array, " d"] | None = None
    upper: Float[Array, " d"] | None = None

    @property
    def basis(self) -> Basis:
        """The basis of g."""
        return self.g.basis

    @property
    def ends(self) -> tuple[Array, Array] | None:
        """The box it is on, in model space; None for the whole domain."""
        return None if self.lower is None or self.upper is None else (self.lower, self.upper)

    @property
    def parameter_count(self) -> int:
        """Free numbers of h and its basis."""
        basis = eqx.filter(self.h.basis, eqx.is_inexact_array)
        return sum(leaf.size for leaf in jax.tree.leaves(basis)) + self.h.coefficients.size

    def require_of(self, transition: Any) -> None:
        """The factor g must be the transition's own, or it does not divide out."""
        g = getattr(transition, "g", None)
        if g is None or not same(self.g, g):
            raise ValueError("Expected a belief of this process (its factor g divides out), got another process's.")

    def enter(self, transition: Any, reading: Any = None) -> Any:
        """Integrals of h."""
        return transition.enter_product(self, reading)

    def given(self, likelihoods: Any, observation: Array, skipped: tuple[bool, ...]) -> list[tuple[Array, Any]]:
        """Another h, on another box."""
        return likelihoods.products(self, observation, skipped)

    def changed(self, found: tuple[Form, Array | None, Array | None]) -> ProductBelief:
        """With another h on another box; g and the transform are shared, so that the next step knows them again."""
        h, lower, upper = found
        parts = {"g": self.g, "h": h, "transform": self.transform, "lower": lower, "upper": upper}
        return ProductBelief(**parts, names=self.names)

    def facing(self, transition: Any, backward: Array) -> tuple[float, ProductBelief]:
        """h B in the place of h g."""
        return 0.0, eqx.tree_at(lambda b: b.g, self, transition.behind(backward))

    @eqx.filter_jit
    def normalised(self) -> tuple[Float[Array, ""], ProductBelief]:
        """By the scale of h."""
        log_mass = integrals.log_mass(self.expansion())
        return log_mass, eqx.tree_at(lambda b: b.h, self, self.h.shifted(-log_mass))

    def expansion(self) -> Expansion:
        """Outer product of the coefficients of g and h."""
        weights = self.g.coefficients[:, None] * self.h.coefficients
        return Expansion(self.g.basis, self.g.terms, self.h.terms, weights, self.lower, self.upper)

    def log_prob_model(self, y: Float[Array, " d"]) -> Float[Array, ""]:
        """log g + log h in model space, each a squared norm or a sum of positive terms."""
        value = self.g.log_value(y) + self.h.log_value(y)
        return jnp.where(within(y, self.lower, self.upper), value, -jnp.inf)

    def log_prob_and_loss(self, y: Float[Array, "b d"]) -> tuple[Float[Array, " b"], Bool[Array, " b"]]:
        """The same for many points; nothing cancels in it."""
        values = _in_blocks(self.log_prob_model, y, self.g.basis.size + self.h.basis.size)
        return values, jnp.zeros(len(y), dtype=bool)

    def _marginal(self, kept: tuple[int, ...]) -> MarginalBelief:
        belief = self.own_coordinates()
        return MarginalBelief(
            parent=belief,
            kept=kept,
            sum=integrals.marginalise(belief.expansion(), kept),
            transform=belief.transform.select(kept),
        )

    def line(self, coordinate: int) -> SumLine:
        """The others integrated out, the coefficients of h left open."""
        belief = self.own_coordinates()
        g, h = belief.g, belief.h
        weights = jnp.broadcast_to(g.coefficients[:, None], (len(g.coefficients), len(h.coefficients)))
        sum_ = Expansion(g.basis, g.terms, h.terms, weights, belief.lower, belief.upper)
        own = integrals.marginalise(sum_, (coordinate,))
        return SumLine(coefficients=h.coefficients[None], sum=own, transform=belief.transform.select((coordinate,)))

    def line_coefficients(self) -> Float[Array, " q"]:
        """Those of h, where its functions are of the data's own coordinates."""
        return self.own_coordinates().h.coefficients

    def _condition(self, values: dict[int, Any]) -> ProductBelief:
        """Again a product of two forms: each function leaves one of the other coordinates and a number."""
        belief = self.own_coordinates()
        given = jnp.asarray(list(values.values()), dtype=float)
        log_mass, found = _conditioned(belief.with_columns(None), tuple(values), given)
        if checks.is_concrete(log_mass) and not np.isfinite(log_mass):
            raise ValueError(f"Expected values where the belief has a density, got {values}: there is none.")
        return found

    def sample(self, key: PRNGKeyArray, shape: int | Sequence[int] = ()) -> Float[Array, "... d"]:
        """Independent exact draws, shape (*shape, d), by rejection (see `sampling`)."""
        shape = checks.shape(shape)
        y = sampling.draw_many(key, self.g, self.h, math.prod(shape), self.lower, self.upper)
        return to_data(self.transform, y).reshape(*shape, self.dim)

    def own_coordinates(self) -> ProductBelief:
        """The same density in a model space whose coordinates are the data's own: Gaussian kernels are moved."""
        return self if self.transform.coordinatewise else self.in_data_space()

    def in_data_space(self) -> ProductBelief:
        """Gaussian kernels stay Gaussian under affine maps; other families do not stay products."""
        self.space.require("marginal")
        if self.lower is not None:
            raise ValueError("Expected a belief on the whole domain to move to data space, got one on a box.")
        matrix, offset, _ = self.transform.split()
        log_det = self.transform.forward(offset)[1]
        # Unit norm in y is exp(-log_det / 2) of unit norm in x, for each of four functions.
        moved = [_moved(form, matrix, offset) for form in (self.g, self.h)]
        factors = moved[0].order + moved[1].order
        h = moved[1].scale(log_det * (1.0 - 0.5 * factors))
        return ProductBelief(g=moved[0], h=h, transform=Identity(self.dim))


def _moved(form: Any, matrix: Array, offset: Array) -> Form:
    return eqx.tree_at(lambda f: f.basis, form, FullGaussianBasis.pushed(form.basis, matrix, offset))


class MarginalBelief(DensityBelief):
    """A belief with coordinates integrated out: a signed sum whose value is an integral of squares.

    Evaluated term by term with the largest pulled out. Where cancellation leaves no correct digit,
    an error is raised rather than a wrong or negative density returned.
    """

    parent: ProductBelief
    kept: tuple[int, ...] = eqx.field(static=True)
    sum: Expansion
    transform: Transform

    @property
    def basis(self) -> Basis:
        """The sum's."""
        return self.sum.basis

    def anonymous(self) -> MarginalBelief:
        """Whichever coordinates were kept, the same program serves."""
        kept = tuple(range(len(self.kept)))
        return MarginalBelief(parent=self.parent.with_columns(None), kept=kept, sum=self.sum, transform=self.transform)

    def expansion(self) -> Expansion:
        """The sum itself."""
        return self.sum

    def log_prob_and_loss(self, y: Float[Array, "b d"]) -> tuple[Float[Array, " b"], Bool[Array, " b"]]:
        """Log of left(y)^T W right(y), and whether rounding is larger than it."""
        basis, weights = self.sum.basis, self.sum.weights
        inside = basis.inside(y) & within(y, self.sum.lower, self.sum.upper)
        safe = jnp.where(inside[:, None], y, basis.interior_point())
        if not basis.axis_aligned:
            # Marginalised, all products of terms stand on the left.
            left = self.sum.left
            theta = left.theta._replace(offset=left.theta.offset + left.log_scale)
            sums = sum_at(theta, weights[:, 0], safe)
        else:
            sums = _in_blocks(self._sums, safe, sum(weights.shape))
        lost = inside & ~(sums.value > 4.0 * jnp.finfo(y.dtype).eps * sums.size)
        return jnp.where(inside, jnp.log(sums.value) + sums.log_scale, -jnp.inf), lost

    def _sums(self, y: Float[Array, " d"]) -> Sums:
        left, right = (values_at(self.sum.basis, terms, y) for terms in (self.sum.left, self.sum.right))
        value = left.values @ self.sum.weights @ right.values
        size = jnp.abs(left.values) @ jnp.abs(self.sum.weights) @ jnp.abs(right.values)
        return Sums(value, size, left.log_scale + right.log_scale)

    def _marginal(self, kept: tuple[int, ...]) -> MarginalBelief:
        return self.parent._marginal(tuple(self.kept[c] for c in kept))

    def line(self, coordinate: int) -> SumLine:
        """The parent's."""
        return self.parent.line(self.kept[coordinate])

    def _condition(self, values: dict[int, Any]) -> MarginalBelief:
        """The parent given the values, with the coordinates that were dropped integrated out as before."""
        gone = {self.kept[c]: value for c, value in values.items()}
        given = self.parent._condition(dict(sorted(gone.items())))
        # The parent's free coordinates are numbered anew.
        number = {c: i for i, c in enumerate(c for c in range(self.parent.dim) if c not in gone)}
        return given._marginal(tuple(number[c] for i, c in enumerate(self.kept) if i not in values))

    def sample(self, key: PRNGKeyArray, shape: int | Sequence[int] = ()) -> Float[Array, "... d"]:
        """Draws of the parent, their other coordinates left out."""
        return self.parent.sample(key, shape)[..., np.asarray(self.kept)]


@eqx.filter_jit
def _conditioned(belief: ProductBelief, fixed: tuple[int, ...], values: Array) -> tuple[Array, ProductBelief]:
    kept = tuple(c for c in range(belief.dim) if c not in fixed)
    at, _ = belief.transform.select(fixed).forward(values)
    g, h = belief.g.sliced(fixed, at), belief.h.sliced(fixed, at)
    ends = [None if end is None else end[np.asarray(kept)] for end in (belief.lower, belief.upper)]
    sliced = ProductBelief(g=g, h=h, transform=belief.transform.select(kept), lower=ends[0], upper=ends[1])
    log_mass, found = sliced.normalised()
    # A point outside the domain, or outside the box, has no density to condition on.
    ends = belief.basis.lower, belief.basis.upper
    where = np.asarray(fixed)
    inside = jnp.all((at >= ends[0][where]) & (at <= ends[1][where]))
    inside = inside & within(at, *(None if end is None else end[where] for end in (belief.lower, belief.upper)))
    return jnp.where(inside, log_mass, -jnp.inf), found


# Values held at once for a block of points: what a cache takes.
_VALUES = 2**19


def _in_blocks(function: Callable[[Array], Any], y: Float[Array, "b d"], values: int) -> Any:
    """A function of one point at many, in blocks if it takes so many values that they would fill the memory."""
    block = max(1, _VALUES // values)
    return jax.vmap(function)(y) if len(y) <= block else lax.map(function, y, batch_size=block)


@eqx.filter_jit
def _log_prob(belief: DensityBelief, x: Array) -> Array:
    y, log_det = to_model(belief.transform, x)
    values, lost = belief.log_prob_and_loss(y)
    if isinstance(belief, MarginalBelief):
        # Once for all points: each time is a call out of the compiled program.
        values = eqx.error_if(
            values,
            jnp.any(lost),
            "A marginal density is lost to cancellation here: the model's coefficients are too badly"
            " conditioned. See process.check().",
        )
    return values + log_det


@eqx.filter_jit
def _boxes(belief: DensityBelief, lower: Array, upper: Array) -> Array:
    """Probabilities of boxes in data space, each a contraction of a table of 1-D integrals."""
    shape = jnp.broadcast_shapes(lower.shape, upper.shape)
    ends = (jnp.broadcast_to(end, shape).reshape(-1, shape[-1]) for end in (lower, upper))
    low, high = (to_model(belief.transform, end)[0] for end in ends)
    sum_ = belief.expansion()
    return lax.map(lambda ends: integrals.mass_between(sum_, *ends), (low, high)).reshape(shape[:-1])
