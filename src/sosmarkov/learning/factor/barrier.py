"""The paper's own training of the Paired form: an eigenvector for R, a log-determinant barrier, a penalty.

`Paired` needs none of it: its A is the Perron vector, in the cone by construction. This is the paper's section
"Constrained training" as written, to reproduce and to compare with. Where the paper leaves a choice open:

- *Which eigenvalue.* "Any positive real eigenvalue" of M = diag(v^Q) E. The largest is the default: it is the
  spectral radius, whose eigenvector is the only one in the cone (Q > 0), so training never leaves the feasible set.
  Another one becomes feasible only when those above it are gone, turned complex or negative.
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

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.numerics import Signed, pair_indices, unpack
from sosmarkov.core.perron import schur_map
from sosmarkov.factor.bases import Basis, BetaBasis
from sosmarkov.factor.bases.parametrise import LEAST_EXPONENT
from sosmarkov.factor.couplings import Paired
from sosmarkov.learning.factor.objectives import Parameters, present_or, weighted_mean
from sosmarkov.learning.factor.plain import Plain
from sosmarkov.learning.loop import TrainingError, stack, unstack
from sosmarkov.learning.task import Phase

# The paper's figures, but for the lower bound.
BOUNDS = (1.0 + LEAST_EXPONENT, 400.0)
REGULARISATION = 1e-4
# The paper's epsilon > 0, which it does not print.
MARGIN = 1e-3


class BoundedBeta(eqx.Module):
    """A `BetaBasis` whose alpha and beta stay between two bounds: low + (high - low) logistic(raw).

    Args:
        basis: Where to begin; shape parameters outside the bounds begin a hundredth of their distance inside.
        bounds: Low and high; low at least 4/5.
    """

    raw_left: Float[Array, "n d"]
    raw_right: Float[Array, "n d"]
    bounds: tuple[float, float] = eqx.field(static=True)

    def __init__(self, basis: BetaBasis, bounds: tuple[float, float] = BOUNDS):
        low, high = map(float, bounds)
        if not BOUNDS[0] <= low < high < math.inf:
            raise ValueError(
                f"Expected finite bounds on alpha and beta with {BOUNDS[0]:g} <= low < high, got {bounds}. Below 3/4"
                " the integrals of four functions diverge; the library asks for 4/5, so that five can be integrated."
            )
        self.bounds = (low, high)
        inside = 0.01 * min(1.0, high - low)
        self.raw_left, self.raw_right = (
            jax.scipy.special.logit((jnp.clip(shape, low + inside, high - inside) - low) / (high - low))
            for shape in (basis.alpha, basis.beta)
        )

    @property
    def shapes(self) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
        """Alpha and beta."""
        low, high = self.bounds
        alpha, beta = (low + (high - low) * jax.nn.sigmoid(raw) for raw in (self.raw_left, self.raw_right))
        return alpha, beta

    @property
    def basis(self) -> BetaBasis:
        """The functions."""
        return BetaBasis(*self.shapes)


class BarrierParameters(eqx.Module):
    """What the paper's training optimises: the basis functions and L, Q = L^T L; R follows from them.

    Args:
        phi: Basis in x. A Beta basis is bounded; other families have neither bounds nor regularisation.
        psi: Basis in x', as many functions.
        L: Shape (n, n), unconstrained.
        bounds: On alpha and beta.
        eigenvalue: Which positive real eigenvalue of M scales Q, counted from the largest, which is number 0.
    """

    phi: BoundedBeta | Basis
    psi: BoundedBeta | Basis
    L: Float[Array, "n n"]
    eigenvalue: int = eqx.field(static=True)

    def __init__(self, phi: Basis, psi: Basis, L: Array, *, bounds: tuple[float, float] = BOUNDS, eigenvalue: int = 0):
        self.eigenvalue = checks.count(eigenvalue, "eigenvalue")
        if not L.shape == (phi.size, psi.size) == (phi.size, phi.size):
            raise ValueError(
                f"Expected L of shape (n, n) for two bases of n functions, got {L.shape} for {phi.size} and {psi.size}."
            )
        self.phi, self.psi = (BoundedBeta(b, bounds) if isinstance(b, BetaBasis) else b for b in (phi, psi))
        self.L = L

    @classmethod
    def start(
        cls,
        phi: Basis,
        psi: Basis,
        coupling: Paired,
        *,
        bounds: tuple[float, float] = BOUNDS,
        eigenvalue: int = 0,
    ) -> BarrierParameters:
        """The same Q as a `Paired` coupling's, as `start_transition` gives it with background zero."""
        if coupling.background > 0:
            raise ValueError(f"Expected a background of zero, got {coupling.background}: the paper's form has none.")
        return cls(phi, psi, coupling.factor.T, bounds=bounds, eigenvalue=eigenvalue)

    @property
    def bases(self) -> tuple[Basis, Basis]:
        """phi and psi."""
        phi, psi = (part.basis if isinstance(part, BoundedBeta) else part for part in (self.phi, self.psi))
        return phi, psi

    @property
    def Q(self) -> Float[Array, "n n"]:
        """L^T L."""
        return self.L.T @ self.L


class Eigen(NamedTuple):
    """An eigenvector of R -> Q o G(R) with Frobenius norm one and a trace of at least zero, and its eigenvalue."""

    R: Float[Array, "n n"]
    eigenvalue: Float[Array, ""]


def eigenvector(Q: Float[Array, "n n"], E: Float[Array, "p p"], number: int = 0) -> Eigen:
    """The R of Lemma 3 for a positive real eigenvalue of M, counted from the largest, differentiable.

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
    # There is at least one, the spectral radius; where there are fewer than asked for, the smallest of them.
    order = jnp.argsort(jnp.where(usable, -values.real, jnp.inf))
    chosen = order[jnp.minimum(number, jnp.sum(usable) - 1)]
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
    margin: float = MARGIN,
) -> Float[Array, ""]:
    """-E log p(y' | y) - L_R + c_reg sum (alpha^2 + beta^2), over weighted pairs as in `transition_loss`.

    Args:
        parameters: What is trained.
        batch: Pairs (y, y', weight) of shapes (B, d), (B, d), (B,).
        barrier: Weight of -L_R; the paper's is one. Zero leaves the likelihood alone.
        regularisation: c_reg; for Beta functions only.
        margin: The paper's epsilon.
    """
    R, log_p = _log_probs(parameters, *batch)
    loss = weighted_mean(-log_p, batch[2]) + barrier * cone_loss(R, margin)
    for part in (parameters.phi, parameters.psi):
        if isinstance(part, BoundedBeta):
            loss = loss + regularisation * sum(jnp.sum(shape**2) for shape in part.shapes)
    return loss


def _log_probs(parameters: BarrierParameters, y: Array, y_next: Array, weight: Array) -> tuple[Array, Array]:
    phi, psi = parameters.bases
    R, value = eigenvector(parameters.Q, phi.overlap(phi.terms(2), psi.terms(2)), parameters.eigenvalue)
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


class BarrierResult(NamedTuple):
    """What the paper's training came to.

    Attributes:
        feasible: Whether R is positive definite.
        message: What was found, in a sentence.
        parts: (phi, psi, coupling) for a `Transition`, or None where infeasible.
        smallest_eigenvalue: Of R, scaled to Frobenius norm one.
        normalisation_error: The largest |int p(. | x) - 1| over all x with the paper's own R, from the spectrum of
            R^(-1/2) (Q o G(R) / lambda) R^(-1/2); infinite where infeasible.
        residual: The largest entry of Q o G(R) / lambda - R, relative to R's.
        distance: The largest entry of R - A, relative to A's, A the Perron vector of `parts`; NaN where infeasible.
    """

    feasible: bool
    message: str
    parts: tuple[Basis, Basis, Paired] | None
    smallest_eigenvalue: float
    normalisation_error: float
    residual: float
    distance: float


def finish(parameters: BarrierParameters) -> BarrierResult:
    """Check what training left: a coupling to go on with, or why there is none."""
    (phi, psi), E, *matrices = _outcome(parameters)
    R, image = (np.asarray(matrix) for matrix in matrices)
    residual = float(np.max(np.abs(image - R)) / np.max(np.abs(R)))
    smallest = float(np.linalg.eigvalsh(R)[0])
    factor = _lower(np.asarray(parameters.L))
    if not (smallest > 0 and np.all(np.diag(factor) > 0)):
        return _infeasible(smallest, residual)
    coupling = Paired(factor)
    gains = np.asarray(scipy.linalg.eigh(image, R, eigvals_only=True))
    error = float(np.max(np.abs(gains - 1.0)))
    A = np.asarray(_perron(coupling, phi, E))
    distance = float(np.max(np.abs(R / np.linalg.norm(R) - A)) / np.max(np.abs(A)))
    message = f"Feasible: smallest eigenvalue of R {smallest:.3g}, int p(.|x) within {error:.2g} of one."
    return BarrierResult(True, message, (phi, psi, coupling), smallest, error, residual, distance)


def _lower(L: np.ndarray) -> np.ndarray:
    """The lower-triangular root of L^T L, without forming it."""
    upper = np.asarray(np.linalg.qr(L, mode="r"))
    return (upper * np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None]).T


def _infeasible(smallest: float, residual: float) -> BarrierResult:
    what = f"R has an eigenvalue of {smallest:.3g}" if smallest <= 0 else "Q is singular"
    message = (
        f"Infeasible: {what}, so g(x) is not positive everywhere and p(x'|x) is no density. Use the largest"
        " eigenvalue (number 0), or objective 'transitions', whose normalisation cannot fail."
    )
    return BarrierResult(False, message, None, smallest, math.inf, residual, math.nan)


@eqx.filter_jit
def _outcome(parameters: BarrierParameters) -> tuple[tuple[Basis, Basis], Array, Array, Array]:
    """Both bases, the overlaps, R and its image Q o G(R) / lambda."""
    phi, psi = parameters.bases
    E = phi.overlap(phi.terms(2), psi.terms(2))
    R, value = eigenvector(parameters.Q, E, parameters.eigenvalue)
    return (phi, psi), E, R, schur_map(parameters.Q, E, R) / value


@eqx.filter_jit
def _perron(coupling: Paired, phi: Basis, E: Array) -> Array:
    A = coupling.normalise(phi, E).g.matrix
    return A / jnp.linalg.norm(A)


class Barrier(Plain):
    """A process by the paper's own training; infeasible results are refused, since they are no densities."""

    def first_phase(self) -> Phase:
        """What is learned from transitions."""
        plain = super().first_phase()
        return plain._replace(name="barrier", loss=barrier_loss, enter=self._begun, leave=self._finished)

    def _begun(self, stacked: Parameters) -> BarrierParameters:
        starts = unstack(stacked, self.settings.members)
        return stack([BarrierParameters.start(*start[:3]) for start in starts])  # type: ignore[arg-type]

    def _finished(self, stacked: Parameters, trained: BarrierParameters) -> Parameters:
        starts, ends = (unstack(part, self.settings.members) for part in (stacked, trained))
        results = [finish(member) for member in ends]
        for member, result in enumerate(results):
            if result.parts is None:
                raise TrainingError(f"Expected a feasible R, got none in member {member}. {result.message}")
        self.chosen["paper_normalisation_error"] = max(result.normalisation_error for result in results)
        parts = [result.parts for result in results if result.parts is not None]
        return stack([Parameters(*part, *start[3:]) for part, start in zip(parts, starts, strict=True)])
