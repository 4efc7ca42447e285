"""The paper's own training of the Paired form: an eigenvector for R, a log-determinant barrier, a penalty.

`Paired` needs none of it: its A is the Perron vector, in the cone by construction. This is the paper's section
"Constrained training" as written, to reproduce and to compare with. Where the paper leaves a choice open:

- *Which eigenvalue.* "Any positive real eigenvalue" of M = diag(v^Q) E. The largest is taken: it is the spectral
  radius, whose eigenvector is the only one in the cone (Q > 0), so training never leaves the feasible set. Another one
  becomes feasible only when those above it are gone, turned complex or negative.
- *Scale of R.* An eigenvector has none, and log det R depends on it. R has Frobenius norm one, as eigenvectors are
  returned; basis functions have unit L2 norm.
- *Sign of the penalty.* The loss is printed as -E log p - L_R with L_R = log det R, or else the penalty; the penalty
  must be added, or leaving the cone would be rewarded.
- *Im(lambda + epsilon).* R is real and symmetric by construction (rows (i, j) and (j, i) of M are equal), so the
  imaginary parts are zero.
- *Log p outside the cone*, where g changes sign, is not defined; |g| stands in, so that the loss stays a number.
  It can be far below any likelihood: do not compare losses across the boundary of the cone.
- *Weight of the barrier*: one, as printed, and kept.
- *Bounds* alpha, beta in [0.4, 400]: how they are kept is not said; a logistic function keeps them here. Below 3/4
  the integrals of four functions diverge, and the library asks for 4/5 (five functions), so that is the lower end.
- *Regularisation* c_reg sum (alpha^2 + beta^2) runs over phi and psi.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.core.numerics import Signed, pair_indices, unpack
from sosmarkov.core.perron import schur_map
from sosmarkov.factor.bases import Basis, BetaBasis
from sosmarkov.factor.bases.parametrise import LEAST_EXPONENT
from sosmarkov.factor.couplings import Paired
from sosmarkov.learning.factor.objectives import Parameters, present_or, weighted_mean
from sosmarkov.learning.factor.plain import Plain
from sosmarkov.learning.loop import TrainingError, stack, unstack
from sosmarkov.learning.phases import Phase

# The paper's figures, but for the lower bound.
BOUNDS = (1.0 + LEAST_EXPONENT, 400.0)
REGULARISATION = 1e-4
# The paper's epsilon > 0, which it does not print.
MARGIN = 1e-3


class BoundedBeta(eqx.Module):
    """A `BetaBasis` whose alpha and beta stay between `BOUNDS`: low + (high - low) logistic(raw).

    Args:
        basis: Where to begin; shape parameters outside the bounds begin a hundredth inside.
    """

    raw_left: Float[Array, "n d"]
    raw_right: Float[Array, "n d"]

    def __init__(self, basis: BetaBasis):
        low, high = BOUNDS
        self.raw_left, self.raw_right = (
            jax.scipy.special.logit((jnp.clip(shape, low + 0.01, high - 0.01) - low) / (high - low))
            for shape in (basis.alpha, basis.beta)
        )

    @property
    def shapes(self) -> tuple[Float[Array, "n d"], ...]:
        """Alpha and beta."""
        low, high = BOUNDS
        return tuple(low + (high - low) * jax.nn.sigmoid(raw) for raw in (self.raw_left, self.raw_right))

    @property
    def basis(self) -> BetaBasis:
        """The functions."""
        return BetaBasis(*self.shapes)


class Unbounded(NamedTuple):
    """A basis of another family, which has neither bounds nor regularisation."""

    basis: Basis
    shapes: tuple[Float[Array, "n d"], ...] = ()


class BarrierParameters(NamedTuple):
    """What the paper's training optimises: the basis functions and L, Q = L^T L; R follows from them.

    Attributes:
        phi: Functions of x.
        psi: Functions of x', as many.
        L: Shape (n, n), unconstrained.
    """

    phi: BoundedBeta | Unbounded
    psi: BoundedBeta | Unbounded
    L: Float[Array, "n n"]

    @classmethod
    def start(cls, phi: Any, psi: Any, coupling: Paired) -> BarrierParameters:
        """The same Q as a `Paired` coupling's, as `start_transition` gives it with background zero."""
        free = BoundedBeta if phi.family == BetaBasis.family else Unbounded
        return cls(free(phi), free(psi), coupling.factor.T)

    @property
    def bases(self) -> tuple[Basis, Basis]:
        """phi and psi."""
        return self.phi.basis, self.psi.basis

    @property
    def Q(self) -> Float[Array, "n n"]:
        """L^T L."""
        return self.L.T @ self.L


class Eigen(NamedTuple):
    """An eigenvector of R -> Q o G(R) with Frobenius norm one and a trace of at least zero, and its eigenvalue."""

    R: Float[Array, "n n"]
    eigenvalue: Float[Array, ""]


def eigenvector(Q: Float[Array, "n n"], E: Float[Array, "p p"]) -> Eigen:
    """The R of Lemma 3 for the largest positive real eigenvalue of M, differentiable.

    Works on unique pairs, where M is P x P: the n^2 x n^2 matrix of the paper has the same non-zero eigenvalues. The
    decomposition is a constant to differentiation; one Newton step on (M - lambda) v = 0, v.v fixed, with the
    Jacobian held constant then leaves the pair as it is and carries the exact derivative of both.
    """
    rows, columns = pair_indices(Q.shape[0])
    twice = jnp.where(rows == columns, 1.0, 2.0)
    M = Q[rows, columns][:, None] * E.T * twice[None]
    fixed = lax.stop_gradient(M)
    values, vectors = jnp.linalg.eig(fixed)
    usable = (jnp.abs(values.imag) <= 1e-12 * jnp.abs(values)) & (values.real > 0)
    # There is at least one, the spectral radius.
    chosen = jnp.argmin(jnp.where(usable, -values.real, jnp.inf))
    value, v = values.real[chosen], vectors[:, chosen].real
    v = v / jnp.sqrt(jnp.sum(twice * v**2))
    v = jnp.where(jnp.sum(jnp.where(rows == columns, v, 0.0)) < 0, -v, v)
    size = len(v)
    bordered = jnp.zeros((size + 1, size + 1)).at[:size, :size].set(fixed - value * jnp.eye(size))
    bordered = bordered.at[:size, size].set(-v).at[size, :size].set(twice * v)
    step = jnp.linalg.solve(bordered, jnp.append(value * v - M @ v, 0.0))
    return Eigen(unpack(v + step[:size], Q.shape[0]), value + step[size])


def cone_loss(R: Float[Array, "n n"], margin: float = MARGIN) -> Float[Array, ""]:
    """-L_R of the paper: -log det R inside the cone, sum max(-lambda_i + margin, 0)^2 outside."""
    values = jnp.linalg.eigvalsh(R)
    inside = values[0] > 0
    log_det = jnp.sum(jnp.log(jnp.where(inside, values, 1.0)))
    return jnp.where(inside, -log_det, jnp.sum(jnp.maximum(margin - values, 0.0) ** 2))


def barrier_loss(
    parameters: BarrierParameters,
    batch: tuple[Array, Array, Array],
    *,
    barrier: float | Float[Array, ""] = 1.0,
    regularisation: float | Float[Array, ""] = REGULARISATION,
) -> Float[Array, ""]:
    """-E log p(y' | y) - L_R + c_reg sum (alpha^2 + beta^2), over weighted pairs as in `transition_loss`.

    Args:
        parameters: What is trained.
        batch: Pairs (y, y', weight) of shapes (B, d), (B, d), (B,).
        barrier: Weight of -L_R; the paper's is one. Zero leaves the likelihood alone.
        regularisation: c_reg; for Beta functions only.
    """
    R, log_p = _log_probs(parameters, *batch)
    loss = weighted_mean(-log_p, batch[2]) + barrier * cone_loss(R)
    for part in (parameters.phi, parameters.psi):
        loss = loss + regularisation * sum(jnp.sum(shape**2) for shape in part.shapes)
    return loss


def _log_probs(parameters: BarrierParameters, y: Array, y_next: Array, weight: Array) -> tuple[Array, Array]:
    phi, psi = parameters.bases
    R, value = eigenvector(parameters.Q, phi.overlap(phi.terms(2), psi.terms(2)))
    y, y_next = (present_or(states, weight, phi) for states in (y, y_next))

    def log_g(f: Signed) -> Array:
        values, log_scale = f.scaled()
        return jnp.log(jnp.abs(values @ R @ values)) + 2.0 * log_scale

    def one(y: Array, y_next: Array) -> Array:
        inside = phi.inside(y) & phi.inside(y_next)
        y, y_next = (jnp.where(inside, point, phi.interior_point()) for point in (y, y_next))
        at_y = phi.evaluate(y)
        b, log_scale = (at_y * psi.evaluate(y_next)).scaled()
        log_f = jnp.log(jnp.sum((parameters.L @ b) ** 2)) + 2.0 * log_scale - jnp.log(value)
        return jnp.where(inside, log_g(phi.evaluate(y_next)) + log_f - log_g(at_y), -jnp.inf)

    return R, jax.vmap(one)(y, y_next)


class Feasible(NamedTuple):
    """What the paper's training came to.

    Attributes:
        parts: (phi, psi, coupling) for a `Transition`.
        R: The paper's own normaliser, of Frobenius norm one.
        normalisation_error: The largest |int p(. | x) - 1| over all x with that R, from the spectrum of
            R^(-1/2) (Q o G(R) / lambda) R^(-1/2).
    """

    parts: tuple[Basis, Basis, Paired]
    R: np.ndarray
    normalisation_error: float


def finish(parameters: BarrierParameters) -> Feasible:
    """Check what training left: a coupling to go on with, or a TrainingError on why there is none."""
    bases, *matrices = _outcome(parameters)
    R, image = (np.asarray(matrix) for matrix in matrices)
    smallest, factor = float(np.linalg.eigvalsh(R)[0]), _lower(np.asarray(parameters.L))
    if not (smallest > 0 and np.all(np.diag(factor) > 0)):
        what = f"R has an eigenvalue of {smallest:.3g}" if smallest <= 0 else "Q is singular"
        raise TrainingError(
            f"Expected a feasible R, got none: {what}, so g(x) is not positive everywhere and p(x'|x) is no density."
            " Use objective 'transitions', whose normalisation cannot fail."
        )
    gains = np.asarray(scipy.linalg.eigh(image, R, eigvals_only=True))
    return Feasible((*bases, Paired(factor)), R, float(np.max(np.abs(gains - 1.0))))


def _lower(L: np.ndarray) -> np.ndarray:
    """The lower-triangular root of L^T L, without forming it."""
    upper = np.asarray(np.linalg.qr(L, mode="r"))
    return (upper * np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None]).T


@eqx.filter_jit
def _outcome(parameters: BarrierParameters) -> tuple[tuple[Basis, Basis], Array, Array]:
    """Both bases, R and its image Q o G(R) / lambda."""
    phi, psi = parameters.bases
    E = phi.overlap(phi.terms(2), psi.terms(2))
    R, value = eigenvector(parameters.Q, E)
    return (phi, psi), R, schur_map(parameters.Q, E, R) / value


class Barrier(Plain):
    """A process by the paper's own training; infeasible results are refused, since they are no densities."""

    def first_phase(self) -> Phase:
        """What is learned from transitions."""
        plain = super().first_phase()
        return plain._replace(name="barrier", loss=barrier_loss, enter=self._begun, leave=self._finished)

    def _begun(self, stacked: Parameters) -> BarrierParameters:
        starts = unstack(stacked, self.settings.members)
        return stack([BarrierParameters.start(*start[:3]) for start in starts])

    def _finished(self, stacked: Parameters, trained: BarrierParameters) -> Parameters:
        starts, ends = (unstack(part, self.settings.members) for part in (stacked, trained))
        found = [finish(member) for member in ends]
        self.chosen["paper_normalisation_error"] = max(one.normalisation_error for one in found)
        return stack([Parameters(*one.parts, *start[3:]) for one, start in zip(found, starts, strict=True)])
