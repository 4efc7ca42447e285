"""Forms over a basis: sums of squares, and non-negative linear combinations.

Both are linear in *terms* (functions, or products over unique pairs), which is how they integrate;
a sum of squares is evaluated through its factor, which is why it is never negative.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import Scaled, Signed, log_quadratic, pack, psd_factor, unpack, unpack_coefficients
from sosmarkov.core.stored import require, stored
from sosmarkov.factor.bases import Basis, GaussianBasis, Terms, require_compatible
from sosmarkov.factor.bases.beta import BetaBasis


class Form(eqx.Module):
    """A non-negative function on the basis's domain, zero outside.

    After a reading far from where a belief was, or where a coordinate is fixed, functions differ in size by more than
    doubles do: `log_scale` says by which factors exp(log_scale_i) they are multiplied. None stands for zeros.
    """

    order: ClassVar[int]
    basis: eqx.AbstractVar[Basis]
    log_scale: eqx.AbstractVar[Float[Array, " n"] | None]

    @property
    @abstractmethod
    def coefficients(self) -> Float[Array, " p"]:
        """Coefficients over `basis.terms(order)`."""

    @abstractmethod
    def own_log_value_of(self, f: Signed) -> Float[Array, ""]:
        """`log_value_of` without the form's log_scale."""

    @abstractmethod
    def scale(self, log_factor: Array) -> Form:
        """The form times exp(log_factor)."""

    @abstractmethod
    def times_each(self, factor: Float[Array, " n"]) -> Form:
        """The form with each function f_i replaced by factor_i f_i, by its coefficients."""

    @abstractmethod
    def with_last(self, share: float, height: Float[Array, ""]) -> Form:
        """(1 - share) form + share * height * (last term of its basis)."""

    @abstractmethod
    def kron(self, basis: Basis, factor: Any) -> Form:
        """The form over a basis of all products of functions, f_i of this form times f_j of the factor's."""

    @abstractmethod
    def conditions(self, integrals: Float[Array, " p"]) -> tuple[float, float]:
        """Condition numbers of its coefficients and of some integrals over terms; spreads where they are vectors."""

    @classmethod
    @abstractmethod
    def with_coefficients(cls, basis: Basis, coefficients: Float[Array, " p"]) -> Form:
        """The form of this kind with these coefficients over `basis.terms(order)`."""

    @classmethod
    @abstractmethod
    def free(cls, basis: Basis, numbers: Array) -> Form:
        """The form of this kind that free numbers stand for; further functions of the basis have no part in it."""

    @staticmethod
    @abstractmethod
    def values(coefficients: Float[Array, "*b q"], f: Float[Array, "*b k n"]) -> Float[Array, "*b k"]:
        """Forms of this kind at k points each, from the values of their functions, without a factor of C."""

    def on(self, basis: Basis, log_factor: Float[Array, " n"]) -> Form:
        """The form with each function f_i replaced by exp(log_factor_i) f'_i of another basis."""
        scale = log_factor if self.log_scale is None else self.log_scale + log_factor
        return eqx.tree_at(lambda f: (f.basis, f.log_scale), self, (basis, scale), is_leaf=lambda leaf: leaf is None)

    def shifted(self, log_factor: Float[Array, ""]) -> Form:
        """The form times exp(log_factor), however large or small that is: coefficients stay as they are."""
        return self.on(self.basis, jnp.broadcast_to(log_factor / self.order, (self.basis.size,)))

    def folded(self) -> Form:
        """The same without a log_scale: it goes into the coefficients."""
        if self.log_scale is None:
            return self
        scaled = self.times_each(jnp.exp(self.log_scale))
        return eqx.tree_at(lambda f: f.log_scale, scaled, None)

    def sliced(self, fixed: tuple[int, ...], values: Float[Array, " f"]) -> Form:
        """The form as a function of the other coordinates."""
        basis, factors = self.basis.slice(fixed, values)
        return self.times_each(factors.sign).on(basis, factors.log_abs)

    def times_term(self, factor: Terms) -> Form:
        """The form times one non-negative term of the family: each function takes its `order`-th root of it."""
        root = Terms(self.basis.power(factor.theta, 1.0 / self.order), factor.log_scale / self.order)
        return self.on(*self.basis.times(root))

    @property
    def single(self) -> Terms:
        """The functions, scaled."""
        single = self.basis.terms(1)
        return single if self.log_scale is None else Terms(single.theta, single.log_scale + self.log_scale)

    @property
    def terms(self) -> Terms:
        """What the form is linear in: products of `order` functions."""
        return self.basis.terms(self.order) if self.log_scale is None else self.basis.products(self.single, self.order)

    def log_value_of(self, f: Signed) -> Float[Array, ""]:
        """Log of the form from the values of the basis at a point."""
        scaled = f if self.log_scale is None else Signed(f.log_abs + self.log_scale, f.sign)
        return self.own_log_value_of(scaled)

    def log_value_inside(self, y: Float[Array, " d"]) -> Float[Array, ""]:
        """Log of the form at one point of the domain."""
        return self.log_value_of(self.basis.evaluate(y))

    def log_value(self, y: Float[Array, " d"]) -> Float[Array, ""]:
        """Log of the form at one point, -inf outside the domain."""
        inside = self.basis.inside(y)
        # Outside, an interior point is evaluated and discarded, so that gradients stay finite.
        safe = jnp.where(inside, y, self.basis.interior_point())
        return jnp.where(inside, self.log_value_inside(safe), -jnp.inf)

    def value(self, y: Float[Array, " d"]) -> Float[Array, ""]:
        """The form at one point."""
        return jnp.exp(self.log_value(y))

    def integral(self, lower: Array | None = None, upper: Array | None = None) -> Float[Array, ""]:
        """Integral over the domain or a box within it."""
        return self.coefficients @ self.basis.overlap(self.terms, lower=lower, upper=upper)


def _sound(form: SquaredForm) -> None:
    require(len(form.matrix) == form.basis.size, "as many coefficients as functions in a form")


@stored("basis", "matrix", "factor", check=_sound, read=Form.folded)
class SquaredForm(Form):
    """f(y)^T C f(y) with C = F F^T positive semi-definite: a sum of squares.

    Args:
        basis: The n functions.
        factor: F, shape (n, r).
        matrix: C, shape (n, n), symmetric positive semi-definite; instead of a factor.
    """

    order: ClassVar[int] = 2

    basis: Basis
    matrix: Float[Array, "n n"]
    factor: Float[Array, "n r"]
    log_scale: Float[Array, " n"] | None

    def __init__(self, basis: Basis, factor: ArrayLike | None = None, *, matrix: ArrayLike | None = None):
        if (factor is None) == (matrix is None):
            raise ValueError("Expected either a factor or a matrix of a squared form, got both or neither.")
        self.basis, self.log_scale = basis, None
        n = basis.size
        if factor is not None:
            self.factor = checks.parameter(factor, "factor", (n, None))
            self.matrix = _square(self.factor)
        else:
            self.matrix = checks.parameter(matrix, "matrix", (n, n))  # type: ignore[arg-type]
            self.factor = eqx.filter_jit(psd_factor)(self.matrix)
            _require_semidefinite(self.matrix, self.factor)

    @classmethod
    def gaussian(cls, mean: ArrayLike, std: ArrayLike) -> SquaredForm:
        """The density of independent normals with means and standard deviations of shape (d,)."""
        mean, std = checks.parameter(mean, "mean", (None,)), checks.as_float(std, "std")
        return cls(GaussianBasis(mean[None], jnp.sqrt(2.0) * std[None]), jnp.ones((1, 1)))

    @classmethod
    def beta(cls, alpha: ArrayLike, beta: ArrayLike) -> SquaredForm:
        """The density of independent Beta variables with parameters of shape (d,)."""
        alpha, beta = checks.parameter(alpha, "alpha", (None,)), checks.as_float(beta, "beta")
        return cls(BetaBasis(0.5 * (alpha[None] + 1.0), 0.5 * (beta[None] + 1.0)), jnp.ones((1, 1)))

    @property
    def coefficients(self) -> Float[Array, " p"]:
        """C over unique pairs."""
        return pack(self.matrix)

    def root_of(self, f: Signed) -> Scaled:
        """F^T f, whose squared norm the form is."""
        values, log_scale = f.scaled()
        return Scaled(self.factor.T @ values, log_scale)

    def own_log_value_of(self, f: Signed) -> Float[Array, ""]:
        """log ||F^T f||^2."""
        values, log_scale = f.scaled()
        return log_quadratic(self.matrix, self.factor, values) + 2.0 * log_scale

    def scale(self, log_factor: Array) -> SquaredForm:
        """F exp(log_factor / 2)."""
        return with_matrix(self, self.matrix * jnp.exp(log_factor), self.factor * jnp.exp(0.5 * log_factor))

    def times_each(self, factor: Float[Array, " n"]) -> SquaredForm:
        """Rows of F times the factors."""
        return with_matrix(self, factor[:, None] * self.matrix * factor[None], factor[:, None] * self.factor)

    def with_last(self, share: float, height: Float[Array, ""]) -> SquaredForm:
        """F with one column more."""
        last = jnp.zeros((self.basis.size, 1)).at[-1, 0].set(jnp.sqrt(share * height))
        return SquaredForm(self.basis, jnp.concatenate([math.sqrt(1.0 - share) * self.factor, last], axis=1))

    def kron(self, basis: Basis, factor: SquaredForm) -> SquaredForm:
        """All products of columns."""
        return SquaredForm(basis, jnp.kron(self.factor, factor.factor))

    def conditions(self, integrals: Float[Array, " p"]) -> tuple[float, float]:
        """Of C and of the matrix of the integrals."""
        found = self.matrix, unpack(integrals, math.isqrt(2 * len(integrals)))
        return tuple(float(np.linalg.cond(np.asarray(A))) for A in found)  # type: ignore[return-value]

    @classmethod
    def with_coefficients(cls, basis: Basis, coefficients: Float[Array, " p"]) -> SquaredForm:
        """C from its unique pairs."""
        return cls(basis, matrix=unpack_coefficients(coefficients, basis.size))

    @classmethod
    def free(cls, basis: Basis, numbers: Float[Array, "n r"]) -> SquaredForm:
        """F as it is, and rows of zeros."""
        return cls(basis, jnp.pad(numbers, ((0, basis.size - len(numbers)), (0, 0))))

    @staticmethod
    def values(coefficients: Float[Array, "*b q"], f: Float[Array, "*b k n"]) -> Float[Array, "*b k"]:
        """f^T C f."""
        return jnp.sum((f @ unpack_coefficients(coefficients, f.shape[-1])) * f, axis=-1)


@jax.jit
def _square(factor: Float[Array, "n r"]) -> Float[Array, "n n"]:
    return factor @ factor.T


def with_matrix(form: SquaredForm, matrix: Array, factor: Array) -> SquaredForm:
    """The same basis with another matrix and its factor (no checks: both come from this library)."""
    return eqx.tree_at(lambda f: (f.matrix, f.factor), form, (matrix, factor))


@stored("basis", "weights", check=lambda form: LinearForm(form.basis, form.weights), read=Form.folded)
class LinearForm(Form):
    """c^T f(y) with c >= 0 over non-negative functions.

    Args:
        basis: The n functions, of a non-negative family.
        weights: c, shape (n,), non-negative and not all zero.
    """

    order: ClassVar[int] = 1

    basis: Basis
    weights: Float[Array, " n"]
    log_scale: Float[Array, " n"] | None

    def __init__(self, basis: Basis, weights: ArrayLike):
        require_nonnegative(basis)
        self.basis, self.log_scale = basis, None
        self.weights = checks.parameter(weights, "weights", (basis.size,))
        if checks.is_concrete(self.weights):
            smallest, largest = float(np.min(self.weights)), float(np.max(self.weights))
            if not smallest >= 0:
                raise ValueError(f"Expected weights >= 0 in a linear form, got a smallest of {smallest:g}.")
            if not largest > 0:
                raise ValueError("Expected at least one positive weight in a linear form, got all zero.")

    @property
    def coefficients(self) -> Float[Array, " p"]:
        """The weights."""
        return self.weights

    def own_log_value_of(self, f: Signed) -> Float[Array, ""]:
        """Log of c^T f."""
        values, log_scale = f.scaled()
        return jnp.log(self.weights @ values) + log_scale

    def scale(self, log_factor: Array) -> LinearForm:
        """Weights times exp(log_factor)."""
        return eqx.tree_at(lambda f: f.weights, self, self.weights * jnp.exp(log_factor))

    def times_each(self, factor: Float[Array, " n"]) -> LinearForm:
        """Weights times the factors."""
        return eqx.tree_at(lambda f: f.weights, self, self.weights * factor)

    def with_last(self, share: float, height: Float[Array, ""]) -> LinearForm:
        """The share in the last weight."""
        return LinearForm(self.basis, ((1.0 - share) * self.weights).at[-1].add(share * height))

    def kron(self, basis: Basis, factor: LinearForm) -> LinearForm:
        """All products of weights."""
        return LinearForm(basis, jnp.kron(self.weights, factor.weights))

    def conditions(self, integrals: Float[Array, " p"]) -> tuple[float, float]:
        """How far the weights are apart, and the integrals."""
        return float(self.weights.max() / self.weights.min()), float(integrals.max() / integrals.min())

    @classmethod
    def with_coefficients(cls, basis: Basis, coefficients: Float[Array, " p"]) -> LinearForm:
        """The coefficients are the weights."""
        return cls(basis, coefficients)

    @classmethod
    def free(cls, basis: Basis, numbers: Float[Array, " n"]) -> LinearForm:
        """Logarithms of weights, which stay positive, and weights of zero."""
        return cls(basis, jnp.pad(jnp.exp(numbers), (0, basis.size - len(numbers))))

    @staticmethod
    def values(coefficients: Float[Array, "*b q"], f: Float[Array, "*b k n"]) -> Float[Array, "*b k"]:
        """c^T f."""
        return (f @ coefficients[..., None])[..., 0]


def require_nonnegative(basis: Basis) -> None:
    """Refuse signed functions where sums must stay non-negative."""
    if not basis.nonnegative:
        raise ValueError(
            f"Expected a non-negative family for a linear form, got {basis.family}."
            " Use a squared form (coupling 'kraus' or 'paired')."
        )


def _require_semidefinite(matrix: Array, factor: Array) -> None:
    if not checks.is_concrete(matrix):
        return
    values, F = np.asarray(matrix), np.asarray(factor)
    off, size = float(np.max(np.abs(F @ F.T - values))), float(np.max(np.abs(values)))
    if not off <= 1e-10 * size:
        raise ValueError(
            f"Expected a symmetric positive semi-definite matrix, got one that is {off / size:.3g} (relative)"
            " from any such matrix its pivoted factor finds."
        )


# --- products of two forms ------------------------------------------------------------------------


def multiplied(form: Form, factor: Form) -> Form:
    """The product of two forms of one kind and family, as a form of that kind over all products of their functions."""
    require_alike(form, factor)
    both = form.basis.pairs(form.single, factor.single)
    basis, offset = form.basis.rebuilt(both.theta)
    return form.kron(basis, factor).on(basis, both.log_scale + offset - basis.log_norm())


def require_alike(form: Form, factor: Form) -> None:
    """Refuse a factor with which a form of this kind has no product of its kind."""
    if type(form) is not type(factor):
        got = type(factor).__name__
        raise ValueError(f"Expected a factor of the form's own kind, {type(form).__name__}, got {got}.")
    require_compatible(("the form", form.basis), ("the factor", factor.basis))


def overlap_table(g: Form, h: Form, lower: Array | None = None, upper: Array | None = None) -> Array:
    """E[p, q] = integral of g's term p times h's term q: all that mass and propagation need."""
    return g.basis.overlap(g.terms, h.terms, lower=lower, upper=upper)


@eqx.filter_jit
def product_mass(g: Form, h: Form) -> Float[Array, ""]:
    """int g h."""
    return g.coefficients @ overlap_table(g, h) @ h.coefficients


def same(one: Form, other: Form) -> bool:
    """Whether two forms are equal, as far as their values can be looked at."""
    # A belief of this very process shares its arrays; in a stream of readings nothing else is cheap enough.
    if one is other:
        return True
    if all(a is b for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=False)):
        return jax.tree.structure(one) == jax.tree.structure(other)
    equal = _equal(one, other)
    return not checks.is_concrete(jnp.asarray(equal)) or bool(equal)


_equal = eqx.filter_jit(eqx.tree_equal)
