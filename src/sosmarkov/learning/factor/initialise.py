"""Where training starts: mixtures fitted to the data, handed to family and coupling, and features of the inputs."""

from __future__ import annotations

import jax
import numpy as np
from jax import Array
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

from sosmarkov.core.checks import one_of
from sosmarkov.data.dataset import Dataset
from sosmarkov.factor.bases import FAMILIES, Basis
from sosmarkov.factor.bases.family import SPACES
from sosmarkov.factor.couplings import COUPLINGS, Bumps, Coupling, Driven, Features, Network, Phases
from sosmarkov.factor.couplings.features import OVERLAP
from sosmarkov.factor.starts import START_OF_ORDER, Mixture, Wanted
from sosmarkov.learning.choose import Settings
from sosmarkov.learning.factor.objectives import Parameters
from sosmarkov.learning.options import made

# Most functions of p_0.
STARTS = 8
# Most rows that a start looks at.
ROWS = 20_000
# Points that a mixture is fitted to: as many as these, and as many for each component.
_POINTS, _POINTS_EACH = 6_000, 20
_MANY = 100
_HIDDEN = 16
_OUTPUTS = 5
# Up to so many phases have kernels of their own, however few the data: a week's days need not be like their neighbours.
_OWN_PHASES = 8
# Pairs for each kernel of a longer period. With 24 kernels for 7,000 pairs of hourly temperatures each fits its noise.
_PAIRS_A_KERNEL = 800


def model_space(basis: str | Basis) -> str:
    """The kind of transform a family of functions, or a basis, needs; see `Family.space`."""
    own = made(basis, Basis)
    if own is None:
        return FAMILIES[one_of(basis, FAMILIES, "basis")].space
    if np.all(np.isinf(own.lower)) and np.all(np.isinf(own.upper)):
        return "standardize"
    if np.all(own.lower == 0) and np.all(own.upper == 1):
        return "gaussian_cdf"
    raise ValueError(
        f"Expected a transform with a basis that lives neither on {' nor on '.join(SPACES.values())}, got none for one"
        f" from {own.lower} to {own.upper}. Give a transform to there."
    )


def wanted_start(
    basis: str | Basis, coupling: str, size: int, *, rank: int = 1, background: float = 0.0, seed: int = 0
) -> Wanted:
    """A start of this kind, or a ValueError where the coupling cannot join such functions."""
    asked = COUPLINGS[one_of(coupling, COUPLINGS, "coupling")]
    given = made(basis, Basis)
    family = FAMILIES[one_of(basis, FAMILIES, "basis")] if given is None else None
    functions = given if family is None else family.basis
    if asked.nonnegative and functions is not None and not functions.nonnegative:
        others = "' or '".join(one.name for one in COUPLINGS.values() if not one.nonnegative)
        raise ValueError(
            f"Expected a non-negative family for coupling '{coupling}', got {functions.family}, which takes both signs."
            f" Use coupling '{others}'."
        )
    return Wanted(family, given, size, rank, background, seed, fit_mixture, fit_halves)


def start_parameters(settings: Settings, training: Dataset, seed: int) -> Parameters:
    """Where one member begins, from data in model space."""
    s, (pairs, starts) = settings, (training.pairs, training.starts)
    rows, first = (_rows(weight, s.size, seed) for weight in (pairs.weight, starts.weight))
    wanted = wanted_start(s.basis, s.coupling, s.size, rank=s.rank, background=s.background, seed=seed)
    u = None if pairs.u is None else pairs.u[rows]
    features = None if u is None else make_features(s.features, s.period, u, seed)
    begun = start_transition(pairs.x[rows], pairs.x_next[rows], wanted, s.coupling, features, u)
    few = wanted._replace(size=min(s.size, STARTS))
    return Parameters(*begun, *start_initial(starts.x[first], few, s.coupling))


def _rows(weight: np.ndarray, size: int, seed: int) -> np.ndarray:
    """Rows for a start, as many as it looks at, drawn by weight where weights differ."""
    rng, most = np.random.default_rng(seed), max(ROWS, points_for(size))
    if np.ptp(weight) > 0:
        return rng.choice(len(weight), min(len(weight), most), p=weight / weight.sum())
    return rng.permutation(len(weight))[:most]


def start_transition(
    y: np.ndarray,
    y_next: np.ndarray,
    wanted: Wanted,
    coupling: str = "kraus",
    features: Features | None = None,
    u: np.ndarray | None = None,
) -> tuple[Basis, Basis, Coupling | Driven]:
    """Bases phi and psi and the coupling to begin with, from pairs in model space.

    Args:
        y: States, shape (N, d), in the space `model_space` names.
        y_next: Their successors, shape (N, d).
        wanted: What of.
        coupling: By name.
        features: How inputs act, where there are any.
        u: The input of each pair, shape (N, e).
    """
    if features is not None and u is not None:
        return Driven.start(wanted, y, y_next, features, u)
    return COUPLINGS[coupling].start(wanted, y, y_next)


def start_initial(y: np.ndarray, wanted: Wanted, coupling: str = "kraus") -> tuple[Basis, Array]:
    """`Parameters.start_basis` and `start_factor`, from a mixture fitted to initial states of shape (N0, d)."""
    # The broad function has no part in what is trained.
    wanted = wanted._replace(size=max(1, min(wanted.size, len(y) // 20)), background=0.0)
    return START_OF_ORDER[COUPLINGS[coupling].order](wanted, y)


def make_features(asked: str | Features | None, period: int | None, u: np.ndarray, seed: int) -> Features:
    """Features for inputs of shape (N, e), where these lie; phases where the inputs are times of a period."""
    if period is not None:
        # One for every phase of a short period; of a long one as many as the pairs can carry, shared by neighbours.
        return Phases(period, min(period, max(_OWN_PHASES, len(u) // _PAIRS_A_KERNEL)))
    own = made(asked, Features)
    if own is not None:
        return own
    spread = np.std(u, axis=0)
    if np.any(spread == 0):
        raise ValueError("Expected inputs that vary, got a constant one. Leave it out.")
    if asked == "network":
        return Network(u.mean(axis=0), spread, _OUTPUTS, _HIDDEN, jax.random.key(seed))
    centres = _centres(u / spread, seed)
    apart = np.linalg.norm(centres[:, None] - centres[None], axis=2)
    nearest = np.median(np.partition(apart, 1, axis=1)[:, 1]) if len(centres) > 1 else 1.0
    return Bumps(centres * spread, np.full(u.shape[1], OVERLAP * nearest) * spread)


def _centres(u: np.ndarray, seed: int) -> np.ndarray:
    """Every value where there are few, else spread over the data."""
    few = np.unique(u, axis=0)
    count = min(6 + 3 * u.shape[1], 12)
    if len(few) <= count:
        return few
    if u.shape[1] == 1:
        return np.quantile(u, (np.arange(count) + 0.5) / count, axis=0)
    return KMeans(count, n_init="auto", random_state=seed).fit(u).cluster_centers_


def fit_mixture(y: np.ndarray, size: int, full: bool, seed: int) -> Mixture:
    """EM on as many points as that takes; covariances full or diagonal."""
    y = _some(y, size, seed)
    kind = "full" if full else "diag"
    # With some twenty points each, many components soon fit these alone.
    many = size > _MANY
    model = GaussianMixture(
        size, covariance_type=kind, reg_covar=_least_variance(y), random_state=seed,
        max_iter=10 if many else 40, init_params="k-means++" if many else "kmeans",
    )  # fmt: skip
    model.fit(y)
    return Mixture(model.weights_, model.means_, model.covariances_)  # type: ignore[arg-type]


def fit_halves(y: np.ndarray, y_next: np.ndarray, size: int, full: bool, seed: int) -> tuple[Mixture, Mixture]:
    """A mixture sum_i w_i N_i(y) N'_i(y') of pairs, as its two halves: independent within a component.

    Full covariances come from the responsibilities of diagonal ones: a mixture with full covariances of the pair
    would put the dependence of y' on y where the halves do not keep it.
    """
    both = _some(np.concatenate([y, y_next], axis=1), size, seed)
    joint = fit_mixture(both, size, False, seed)
    d = y.shape[1]
    shares = joint.responsibilities(both)
    halves = []
    for part in (slice(0, d), slice(d, 2 * d)):
        means, covariances = joint.means[:, part], joint.covariances[:, part]
        if full:
            covariances = _scatter(both[:, part], shares) + _least_variance(both) * np.eye(d)
        halves.append(Mixture(joint.weights, means, covariances))
    return halves[0], halves[1]


def _scatter(y: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Covariances (c, d, d) of points (N, d) that belong to components by shares (N, c)."""
    weights = shares / shares.sum(axis=0)
    # Around the centre of all, so that the difference of two moments keeps its digits.
    y = y - y.mean(axis=0)
    first, d = weights.T @ y, y.shape[1]
    second = (weights.T @ (y[:, :, None] * y[:, None]).reshape(len(y), -1)).reshape(-1, d, d)
    return second - first[:, :, None] * first[:, None]


def points_for(size: int) -> int:
    """How many points a mixture of this size is fitted to."""
    return max(_POINTS, _POINTS_EACH * size)


def _some(y: np.ndarray, size: int, seed: int) -> np.ndarray:
    if len(y) <= points_for(size):
        return y
    return y[np.random.default_rng(seed).choice(len(y), points_for(size), replace=False)]


def _least_variance(y: np.ndarray) -> float:
    # Relative to the data; the constant is for data that do not vary at all, as a known initial state.
    return 1e-4 * float(np.mean(np.var(y, axis=0))) + 1e-8
