"""What training starts from, in arrays: components of the data, functions that look like them, how they are tied.

Whatever the family and the coupling, the start aims at p(y, y') = sum w N(y) N'(y') with g near the density of the
states: then f(y, y') = p(y, y') / g(y'), which at a component's mean nu is w N(y) N'(y') / g(nu).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import logsumexp, softmax

from sosmarkov.factor.bases import Basis, Family

# Width of the background functions on R^d, in standard deviations of the data.
BROAD = 8.0
# What the broad functions of a background weigh at the start, beside the mean of the others.
BROAD_WEIGHT = 0.01


class Mixture(NamedTuple):
    """Gaussian components: weights (c,), means (c, d), covariances (c, d) where diagonal, else (c, d, d)."""

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    def log_components(self, y: np.ndarray) -> np.ndarray:
        """Log-densities of the components at points of shape (N, d), shape (N, c)."""
        if self.covariances.ndim == 2:
            # Products of matrices: differences of all points and means would be the largest array there is.
            precision = 1.0 / self.covariances
            square = y**2 @ precision.T - 2.0 * y @ (self.means * precision).T + np.sum(self.means**2 * precision, -1)
            log_det = np.sum(np.log(self.covariances), axis=-1)
        else:
            away = y[:, None] - self.means
            square = np.einsum("nci,cij,ncj->nc", away, np.linalg.inv(self.covariances), away)
            log_det = np.linalg.slogdet(self.covariances)[1]
        return -0.5 * (square + log_det + y.shape[1] * np.log(2.0 * np.pi))

    def responsibilities(self, y: np.ndarray) -> np.ndarray:
        """How likely each component is at points of shape (N, d), shape (N, c)."""
        return softmax(self.log_components(y) + np.log(self.weights), axis=1)

    def density(self, y: np.ndarray) -> np.ndarray:
        """At points of shape (N, d), shape (N,)."""
        return np.exp(self.log_density(y))

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Its logarithm, also where it is zero in doubles."""
        return np.asarray(logsumexp(self.log_components(y) + np.log(self.weights), axis=1))


class Wanted(NamedTuple):
    """What a start is asked to be, and what fits mixtures to data: `Coupling.start` makes phi, psi and itself from it.

    Attributes:
        family: What phi and psi are made of. None: `given` is phi and psi alike.
        given: A basis that is taken as it is.
        size: Functions in each basis, without the broad one of a background.
        rank: Kraus rank; other couplings may have none.
        background: Share of the background; above zero the coupling has room for the broad functions that training
            adds.
        seed: For EM and the signs.
        fit: From points (N, d), how many components, whether these have covariance matrices, and a seed: a mixture.
        fit_halves: The same from states and successors: a mixture of pairs, as its two halves.
    """

    family: Family | None
    given: Basis | None
    size: int
    rank: int
    background: float
    seed: int
    fit: Callable[[np.ndarray, int, bool, int], Mixture]
    fit_halves: Callable[[np.ndarray, np.ndarray, int, bool, int], tuple[Mixture, Mixture]]

    @property
    def full(self) -> bool:
        """Whether components have covariance matrices."""
        return self.family is not None and self.family.full

    def mixture(self, y: np.ndarray, seed: int) -> Mixture:
        """Of points (N, d)."""
        return self.fit(y, self.size, self.full, seed)

    def halves(self, y: np.ndarray, y_next: np.ndarray) -> tuple[Mixture, Mixture]:
        """sum_i w_i N_i(y) N'_i(y') of pairs."""
        return self.fit_halves(y, y_next, self.size, self.full, self.seed)

    def bumps(self, mixture: Mixture, power: int) -> Basis:
        """Functions which to this power look like the components."""
        if self.family is None or self.family.local is None:
            name = "a basis as given" if self.family is None else f"family {self.family.name}"
            raise ValueError(f"Expected a family with functions that look like components, got {name}, which has none.")
        return self.family.local(mixture.means, mixture.covariances, power)

    def functions(self, mixture: Mixture, y: np.ndarray, seed: int) -> tuple[Basis, np.ndarray]:
        """Functions f and coefficients B with (B^T f)_c the root of component c's density: B = I where f are bumps.

        Where a background adds the constant, a spread family leaves it out, and B has a row more for it.
        """
        if self.given is not None:
            return self.given, project(self.given, mixture, y, seed)
        if self.family is None or self.family.spread is None:
            return self.bumps(mixture, 2), np.eye(self.size)
        broad = self.background > 0
        basis = self.family.spread(self.size, y.shape[1], not broad)
        return basis, project(basis.with_broad(BROAD) if broad else basis, mixture, y, seed)


def project(basis: Basis, mixture: Mixture, y: np.ndarray, seed: int) -> np.ndarray:
    """Coefficients B, shape (n, c), with (B^T f)_c close to the root of component c's density.

    Ridge regression at the data and at as many points spread over the domain (twice the data's range where it is
    unbounded), so that B^T f stays small where there are no data.
    """
    rng = np.random.default_rng(seed)
    points = y[rng.choice(len(y), min(len(y), 2000), replace=False)]
    low, high = np.min(y, axis=0), np.max(y, axis=0)
    beyond = 0.5 * (high - low)
    low = np.where(np.isfinite(basis.lower), basis.lower, low - beyond)
    high = np.where(np.isfinite(basis.upper), basis.upper, high + beyond)
    points = np.concatenate([points, low + (high - low) * rng.random(points.shape)])
    values = np.asarray(_evaluate(basis, jnp.asarray(points)))
    targets = np.exp(0.5 * mixture.log_components(points))
    normal = values.T @ values
    ridge = 1e-6 * np.trace(normal) / len(normal)
    return np.linalg.solve(normal + ridge * np.eye(len(normal)), values.T @ targets)


@eqx.filter_jit
def _evaluate(basis: Basis, points: Array) -> Array:
    log_abs, sign = jax.vmap(basis.evaluate)(points)
    return sign * jnp.exp(log_abs)


@eqx.filter_jit
def integrals(basis: Basis) -> Array:
    """int f_i, shape (n,)."""
    return basis.overlap(basis.terms(1))


def kraus_parts(
    wanted: Wanted, y: np.ndarray, y_next: np.ndarray, weights: np.ndarray
) -> tuple[Basis, Basis, np.ndarray, np.ndarray]:
    """phi, psi, one K for each column of weights (N, J) of the pairs, with the same signs, and the factor of A.

    The basis phi from all states, psi from the successors, K from the co-occurrence of responsibilities. phi carries g,
    a factor of every belief, so it has to cover the last states too, which are nobody's predecessor. With random signs
    cross terms cancel on average: f starts near sum_ik J_ik phi_i^2 psi_k^2.
    """
    size, rank, seed = wanted.size, wanted.rank, wanted.seed
    rng = np.random.default_rng(seed)
    states = np.concatenate([y, y_next])
    before, after = wanted.mixture(states, seed), wanted.mixture(y_next, seed + 1)
    phi, B = wanted.functions(before, states, seed)
    psi, B_next = wanted.functions(after, y_next, seed + 1)

    chosen = rng.choice(len(y), min(len(y), 20_000), replace=False)
    ahead, behind = before.responsibilities(y[chosen]), after.responsibilities(y_next[chosen])
    shares = weights[chosen] / np.maximum(weights[chosen].sum(axis=0), 1.0)  # an input never met has next to none
    joint = np.einsum("pj,pc,pe->jce", shares, ahead, behind)
    # Every pair keeps a little: a coefficient at zero has no gradient of its sign.
    joint = 0.98 * joint + 0.02 * joint.sum(2)[:, :, None] * joint.sum(1)[:, None]
    scale = np.sqrt(joint / density_at(before, after.means))
    signs = rng.choice([-1.0, 1.0], size=(size, size, rank))
    K = scale[..., None] * signs / np.sqrt(rank) * (1.0 + 0.1 * rng.normal(size=(size, size, rank)))
    K = np.einsum("ic,gcer,je->gijr", B, K, B_next)
    # Weak random ties: for the broad functions, which have no others, and so that the rows of K are independent
    # where B has fewer columns than rows, without which nothing can be normalised.
    count = size if wanted.background == 0 else size + 1
    ties = 0.01 * np.sqrt(np.mean(K**2)) * rng.normal(size=(count, count, rank))
    factor = root_of(B, before.weights)
    if len(B) < count:
        factor = padded(factor)
        K = np.pad(K, ((0, 0), (0, 1), (0, 1), (0, 0)))
    return phi, psi, K + ties, factor


def squared_start(wanted: Wanted, y: np.ndarray) -> tuple[Basis, Array]:
    """Functions and the factor F of h_0 = ||F^T f||^2, from initial states."""
    mixture = wanted.mixture(y, wanted.seed)
    functions, B = wanted.functions(mixture, y, wanted.seed)
    factor = B * np.sqrt(mixture.weights)
    noise = np.random.default_rng(wanted.seed).normal(size=factor.shape)
    return functions, jnp.asarray(factor + 0.01 * np.max(np.abs(factor), axis=0) * noise)


def linear_start(wanted: Wanted, y: np.ndarray) -> tuple[Basis, Array]:
    """Functions and log w of h_0 = w . f, from initial states."""
    if wanted.given is not None:
        return wanted.given, -jnp.log(wanted.given.size * integrals(wanted.given))
    mixture = wanted.mixture(y, wanted.seed)
    functions = wanted.bumps(mixture, 1)
    return functions, jnp.log(jnp.asarray(mixture.weights)) - jnp.log(integrals(functions))


# By the order of the coupling's form: a form of that kind to begin with.
START_OF_ORDER = {1: linear_start, 2: squared_start}


def root_of(B: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Lower-triangular root of B diag(weights) B^T, kept away from singular."""
    if np.array_equal(B, np.eye(len(B))):
        return np.diag(np.sqrt(weights))
    matrix = (B * weights) @ B.T
    return np.linalg.cholesky(matrix + 1e-3 * np.trace(matrix) / len(matrix) * np.eye(len(matrix)))


def padded(factor: np.ndarray) -> np.ndarray:
    """With a row and a column for the broad function."""
    n = len(factor)
    larger = np.zeros((n + 1, n + 1))
    larger[:n, :n] = factor
    larger[n, n] = np.sqrt(BROAD_WEIGHT * np.mean(np.sum(factor**2, axis=1)))
    return larger


def density_at(mixture: Mixture, points: np.ndarray) -> np.ndarray:
    """A mixture's density to divide by, at the means of components; never too small beside its median.

    Only a divisor in the coefficients training starts from, never a density anyone sees: a component on an outlier,
    where the density is next to nothing, would otherwise have all the weight, and training would begin with it alone.
    """
    density = mixture.density(points)
    return np.maximum(density, 1e-2 * np.median(density))
