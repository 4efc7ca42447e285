"""Where training starts: mixtures fitted to the data, and how often their components follow each other.

Whatever the family and the coupling, the start aims at p(y, y') = sum w N(y) N'(y') with g near the density of the
states: then f(y, y') = p(y, y') / g(y'), which at a component's mean nu is w N(y) N'(y') / g(nu).
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sosmarkov.factor.bases import Basis
from sosmarkov.factor.couplings import Coupling, Driven, Features, Kraus, Linear, Network, Paired
from sosmarkov.learning.factor.mixtures import (
    SPREAD,
    Mixture,
    fit_halves,
    fit_mixture,
    local_basis,
    project,
    spread_basis,
)
from sosmarkov.learning.factor.objectives import BROAD

FAMILIES = ("gaussian", "gaussian-full", "beta", "exponential", "monomial", "fourier")
COUPLINGS = ("kraus", "paired", "linear")
# What the broad functions of a background weigh at the start, beside the mean of the others.
BROAD_WEIGHT = 0.01


def model_space(basis: str | Basis) -> str:
    """The kind of transform a family of functions, or a basis, needs.

    "standardize" for functions on R^d; "gaussian_cdf" for those on (0, 1)^d, which also makes the data nearly
    uniform there: what a family spread over its domain represents best.
    """
    if isinstance(basis, Basis):
        if np.all(np.isinf(basis.lower)) and np.all(np.isinf(basis.upper)):
            return "standardize"
        if np.all(basis.lower == 0) and np.all(basis.upper == 1):
            return "gaussian_cdf"
        raise ValueError(
            "Expected a transform with a basis that lives neither on R^d nor on (0, 1)^d, got none for one from"
            f" {basis.lower} to {basis.upper}. Give a transform to there."
        )
    _require_known(basis)
    return "standardize" if basis.startswith("gaussian") else "gaussian_cdf"


def start_transition(
    y: np.ndarray,
    y_next: np.ndarray,
    *,
    basis: str | Basis,
    coupling: str,
    size: int,
    rank: int,
    background: float,
    seed: int,
    features: Features | None = None,
    u: np.ndarray | None = None,
) -> tuple[Basis, Basis, Coupling | Driven]:
    """Bases phi and psi and the coupling to begin with, from pairs in model space.

    Args:
        y: States, shape (N, d), in the space `model_space` names.
        y_next: Their successors, shape (N, d).
        basis: The family, or the basis itself, for phi and psi alike.
        coupling: "kraus": phi from a mixture of all states, psi of the successors, K from the co-occurrence of
            their components. "paired", "linear": phi_i and psi_i are the halves of component i of a mixture of pairs.
        size: Functions in each basis, without the broad one of a background.
        rank: Kraus rank; the others have none.
        background: Share of the background; above zero the coupling has room for the broad functions that
            `realise` adds.
        seed: For EM and the signs.
        features: How inputs act, where there are any (coupling "kraus").
        u: The input of each pair, shape (N, e).
    """
    _require_known(basis, coupling)
    if features is not None and u is not None:
        return _start_driven(y, y_next, Wanted(basis, size, rank, background, seed), features, u)
    start = {"kraus": _start_kraus, "paired": _start_paired, "linear": _start_linear}[coupling]
    return start(y, y_next, basis, size, rank, background, seed)


def start_initial(y: np.ndarray, *, basis: str | Basis, coupling: str, size: int, seed: int) -> tuple[Basis, Array]:
    """`Parameters.start_basis` and `start_factor`, from a mixture fitted to initial states of shape (N0, d)."""
    _require_known(basis, coupling)
    size = max(1, min(size, len(y) // 20))
    mixture = fit_mixture(y, size, basis == "gaussian-full", seed)
    if coupling == "linear":
        if isinstance(basis, Basis):
            return basis, -jnp.log(basis.size * _integrals(basis))
        functions = local_basis(basis, mixture, 1)
        return functions, jnp.log(jnp.asarray(mixture.weights)) - jnp.log(_integrals(functions))
    functions, B = _functions(basis, mixture, y, size, broad=False, seed=seed)
    factor = B * np.sqrt(mixture.weights)
    noise = np.random.default_rng(seed).normal(size=factor.shape)
    return functions, jnp.asarray(factor + 0.01 * np.max(np.abs(factor), axis=0) * noise)


def _start_kraus(
    y: np.ndarray, y_next: np.ndarray, basis: str | Basis, size: int, rank: int, background: float, seed: int
) -> tuple[Basis, Basis, Kraus]:
    """The basis phi from all states, psi from the successors, K from the co-occurrence of responsibilities.

    phi carries g, a factor of every belief, so it has to cover the last states too, which are nobody's
    predecessor. With random signs cross terms cancel on average: f starts near sum_ik J_ik phi_i^2 psi_k^2.
    """
    wanted = Wanted(basis, size, rank, background, seed)
    phi, psi, K, factor = kraus_parts(y, y_next, wanted, np.ones((len(y), 1)))
    return phi, psi, Kraus(K[0], factor, background=background)


class Wanted(NamedTuple):
    """What a Kraus start is asked to be; see `start_transition`."""

    basis: str | Basis
    size: int
    rank: int
    background: float
    seed: int


def _start_driven(
    y: np.ndarray, y_next: np.ndarray, wanted: Wanted, features: Features, u: np.ndarray
) -> tuple[Basis, Basis, Driven]:
    """K_j from the co-occurrence where feature j is at work; the same for all where features may have any sign."""
    weights = np.asarray(jax.jit(jax.vmap(features))(jnp.asarray(u)))
    if isinstance(features, Network):
        phi, psi, K, factor = kraus_parts(y, y_next, wanted, np.ones((len(y), 1)))
        noise = np.random.default_rng(wanted.seed).normal(size=(features.count - 1, *K.shape[1:]))
        K = np.concatenate([K, 0.1 * np.sqrt(np.mean(K**2)) * noise])
    else:
        phi, psi, K, factor = kraus_parts(y, y_next, wanted, weights)
    return phi, psi, Driven(features, K, factor, background=wanted.background)


def kraus_parts(
    y: np.ndarray, y_next: np.ndarray, wanted: Wanted, weights: np.ndarray
) -> tuple[Basis, Basis, np.ndarray, np.ndarray]:
    """phi, psi, one K for each column of weights (N, J) of the pairs, with the same signs, and the factor of A."""
    basis, size, rank, background, seed = wanted
    rng = np.random.default_rng(seed)
    full = basis == "gaussian-full"
    states = np.concatenate([y, y_next])
    before, after = fit_mixture(states, size, full, seed), fit_mixture(y_next, size, full, seed + 1)
    phi, B = _functions(basis, before, states, size, broad=background > 0, seed=seed)
    psi, B_next = _functions(basis, after, y_next, size, broad=background > 0, seed=seed + 1)

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
    count = size if background == 0 else size + 1
    ties = 0.01 * np.sqrt(np.mean(K**2)) * rng.normal(size=(count, count, rank))
    factor = _factor(B, before.weights)
    if len(B) < count:
        factor = padded(factor)
        K = np.pad(K, ((0, 0), (0, 1), (0, 1), (0, 0)))
    return phi, psi, K + ties, factor


def _start_paired(
    y: np.ndarray, y_next: np.ndarray, basis: str | Basis, size: int, rank: int, background: float, seed: int
) -> tuple[Basis, Basis, Paired]:
    """Q diagonal from the weights where phi_i psi_i is a component, else from their projection; A is Q's own."""
    del rank
    if isinstance(basis, Basis):
        noise = np.tril(np.random.default_rng(seed).normal(size=(size, size)), -1)
        return basis, basis, Paired(np.eye(size) + 0.05 * noise, background=background)
    before, after = fit_halves(y, y_next, size, basis == "gaussian-full", seed)
    weights = before.weights / density_at(before, after.means)
    if basis in SPREAD:
        d = y.shape[1]
        pairs = Mixture(
            before.weights, *(np.concatenate(half, axis=1) for half in zip(before[1:], after[1:], strict=True))
        )
        both = np.concatenate([y, y_next], axis=1)
        joint, B = _functions(basis, pairs, both, size, broad=background > 0, seed=seed)
        phi, psi = joint.restrict(tuple(range(d))), joint.restrict(tuple(range(d, 2 * d)))
    else:
        phi, psi, B = local_basis(basis, before, 2), local_basis(basis, after, 2), np.eye(size)
    factor = _factor(B, weights)
    noise = np.tril(np.random.default_rng(seed).normal(size=factor.shape), -1)
    factor = factor + 0.05 * np.sqrt(np.mean(np.diag(factor) ** 2)) * noise
    if background > 0 and len(B) == size:
        factor = padded(factor)
    return phi, psi, Paired(factor, background=background)


def _start_linear(
    y: np.ndarray, y_next: np.ndarray, basis: str | Basis, size: int, rank: int, background: float, seed: int
) -> tuple[Basis, Basis, Linear]:
    """a_i = w_i / int phi_i: then g is the mixture of the states itself."""
    del rank
    if isinstance(basis, Basis):
        return basis, basis, Linear(1.0 / (size * np.asarray(_integrals(basis))), background=background)
    before, after = fit_halves(y, y_next, size, basis == "gaussian-full", seed)
    phi, psi = local_basis(basis, before, 1), local_basis(basis, after, 1)
    weights, integrals = before.weights, _integrals(phi)
    if background > 0:
        weights = np.append(weights, BROAD_WEIGHT * weights.mean())
        integrals = _integrals(phi.with_broad(BROAD))
    return phi, psi, Linear(weights / np.asarray(integrals), background=background)


def _functions(
    basis: str | Basis, mixture: Mixture, y: np.ndarray, size: int, *, broad: bool, seed: int
) -> tuple[Basis, np.ndarray]:
    """Functions f and coefficients B with (B^T f)_c the root of component c's density: B = I where f are bumps.

    Where a background adds the constant, a spread family leaves it out, and B has a row more for it.
    """
    if isinstance(basis, Basis):
        return basis, project(basis, mixture, y, seed)
    if basis not in SPREAD:
        return local_basis(basis, mixture, 2), np.eye(size)
    functions = spread_basis(basis, size, y.shape[1], not broad)
    return functions, project(functions.with_broad(BROAD) if broad else functions, mixture, y, seed)


def _factor(B: np.ndarray, weights: np.ndarray) -> np.ndarray:
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


@eqx.filter_jit
def _integrals(basis: Basis) -> Array:
    return basis.overlap(basis.terms(1))


def _require_known(basis: str | Basis, coupling: str = "kraus") -> None:
    if isinstance(basis, Basis):
        basis = basis.family if basis.family in FAMILIES else "gaussian"  # one's own family answers for itself
    for value, known, name in ((basis, FAMILIES, "basis"), (coupling, COUPLINGS, "coupling")):
        if value not in known:
            raise ValueError(f"Expected {name} one of {', '.join(known)}, got {value!r}.")
    if (basis, coupling) == ("fourier", "linear"):
        raise ValueError(
            "Expected a non-negative family for coupling 'linear', got fourier, which takes both signs."
            " Use coupling 'kraus' or 'paired'."
        )
