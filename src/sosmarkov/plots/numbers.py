"""What figures show, as arrays: densities on grids, quantiles over steps, windows to look through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.known import KnownState
from sosmarkov.core import checks
from sosmarkov.factor.bases import FullGaussianBasis
from sosmarkov.factor.bases.full_sum import sum_at
from sosmarkov.factor.beliefs import DensityBelief, MarginalBelief, ProductBelief
from sosmarkov.spaces.transforms import to_model

# A window reaches from one of these quantiles to the other, and a quarter of that further on either side: heavy
# tails would leave the rest too small to see.
TAIL = 0.01
_MARGIN = 0.25
_ROUNDS = 12
# Points of a line: one number everywhere, so that one compiled program serves.
CELLS = 400


def names_of(source: Any, dim: int) -> list[str]:
    """Names of the coordinates: the columns a process was learned from, else x0, x1, ..."""
    columns = getattr(source, "columns", None)
    if columns is None:
        return [f"x{c}" for c in range(dim)]
    found = [str(name) for name in columns]
    if len(found) != dim:
        raise ValueError(f"Expected {dim} column names, one a coordinate, got {len(found)}.")
    return found


def part_of(belief: Belief, coordinates: Sequence[int]) -> Belief:
    """The belief over some coordinates; itself where those are all, in their order."""
    chosen = checks.coordinates(coordinates, belief.dim)
    return belief if chosen == tuple(range(belief.dim)) else belief.marginal(list(chosen))


def density(belief: Any, points: np.ndarray) -> np.ndarray:
    """p at points (..., d); NaN where rounding leaves no digit of a marginal, far from where it has its mass."""
    try:
        return np.asarray(belief.prob(points))
    except RuntimeError:
        if not isinstance(belief, DensityBelief):
            raise
    flat = jnp.asarray(points.reshape(-1, belief.dim))
    y, log_det = (jnp.stack(parts) for parts in zip(*map(belief.transform.forward, flat), strict=True))
    values, lost = belief.log_prob_and_loss(y)
    return np.where(np.asarray(lost), np.nan, np.exp(np.asarray(values + log_det))).reshape(points.shape[:-1])


def density_on(belief: Any, axes: Sequence[np.ndarray]) -> np.ndarray:
    """p on the grid of one or two axes; rows are the second axis, as pictures have them."""
    return density(belief, np.stack(np.meshgrid(*axes), axis=-1))


def densities_on(beliefs: Sequence[Belief], pair: Sequence[int], axes: Sequence[np.ndarray]) -> np.ndarray:
    """Marginal densities of several beliefs on one grid, shape (K, rows, columns).

    Beliefs of one process differ in the weights of the same Gaussians, so that one program serves all.
    """
    alike = [k for k, belief in enumerate(beliefs) if _same_terms(belief, beliefs[-1])]
    found = [None if k in alike else density_on(part_of(belief, pair), axes) for k, belief in enumerate(beliefs)]
    if alike:
        shared: Any = part_of(beliefs[-1], pair)
        weights = jnp.stack([beliefs[k].expansion().weights.reshape(-1) for k in alike])  # type: ignore[attr-defined]
        points = np.stack(np.meshgrid(*axes), axis=-1)
        values = np.asarray(_with_weights(shared.anonymous(), weights, jnp.asarray(points.reshape(-1, len(axes)))))
        for k, row in zip(alike, values, strict=True):
            found[k] = row.reshape(points.shape[:-1])
    return np.stack(found)  # type: ignore[arg-type]


def _same_terms(belief: Belief, other: Belief) -> bool:
    """Whether marginals of two beliefs are sums of the same full Gaussians, in model coordinates."""
    if not (isinstance(belief, ProductBelief) and isinstance(other, ProductBelief) and belief.dim > 2):
        return False
    full = isinstance(belief.basis, FullGaussianBasis) and belief.transform.coordinatewise
    mine, theirs = ((one.g.basis, one.h.basis, one.transform) for one in (belief, other))
    return full and bool(eqx.tree_equal(mine, theirs))


@eqx.filter_jit
def _with_weights(marginal: MarginalBelief, weights: Array, x: Array) -> Array:
    """The density of `marginal` with other weights of its terms, each a row; NaN where rounding leaves no digit."""
    left = marginal.sum.left
    theta = left.theta._replace(offset=left.theta.offset + left.log_scale)
    y, log_det = to_model(marginal.transform, x)
    sums = jax.lax.map(lambda row: sum_at(theta, row, y), weights)
    lost = ~(sums.value > 4.0 * jnp.finfo(y.dtype).eps * sums.size)
    return jnp.where(lost, jnp.nan, sums.value * jnp.exp(sums.log_scale + log_det))


def quantiles(beliefs: Sequence[Belief], shares: Sequence[float], coordinates: Sequence[int]) -> np.ndarray:
    """Exact quantiles at every step, shape (K, len(shares), len(coordinates)); a known state is all of its own."""
    wanted = np.asarray(shares, dtype=float)
    if wanted.size == 0 or not np.all((wanted > 0) & (wanted < 1)):
        raise ValueError(f"Expected shares strictly between 0 and 1, at least one, got {list(shares)}.")

    def one(belief: Belief, c: int) -> np.ndarray:
        if isinstance(belief, KnownState):
            return np.full(len(wanted), float(belief.state[c]))
        return _solved(belief, wanted, c)

    return np.stack([np.stack([one(belief, c) for c in coordinates], axis=1) for belief in beliefs])


def _solved(belief: Belief, shares: np.ndarray, c: int) -> np.ndarray:
    """F(x) = share by Newton's method from a sum over a grid: a tenth of the work of bisection, to the same digits."""
    single = part_of(belief, [c])
    centre, spread = float(single.mean()[0]), float(np.sqrt(single.covariance()[0, 0]))
    grid = centre + spread * np.linspace(-8.0, 8.0, CELLS)
    reached = np.cumsum(np.nan_to_num(density(single, grid[:, None])))
    x = np.interp(shares * reached[-1], reached, grid)
    for _ in range(_ROUNDS):
        slope, gap = np.asarray(single.prob(x[:, None])), np.asarray(single.cdf(x[:, None])) - shares
        with np.errstate(divide="ignore", invalid="ignore"):
            change = gap / slope
        x = x - change
        if not np.all(np.abs(change) < spread):
            break
        if np.all(np.abs(change) < 1e-11 * spread):
            return x
    # Flat stretches and narrow peaks are for bisection.
    return np.asarray(belief.quantile(jnp.asarray(shares), c))


def axis_room(low: np.ndarray | float, high: np.ndarray | float, share: float) -> np.ndarray:
    """Room on either side of a range on an axis: a share of its length, or of one unit where all of it is one value."""
    length = np.asarray(high) - np.asarray(low)
    alike = length <= 1e-9 * np.maximum(np.abs(low), np.abs(high))
    return np.asarray(share * np.where(alike, 1.0, length))


def widened(low: np.ndarray, high: np.ndarray, beliefs: Sequence[Belief]) -> tuple[np.ndarray, np.ndarray]:
    """A little room around a range (d,), but none outside of where the beliefs have a density."""
    margin = axis_room(low, high, _MARGIN)
    ends = [np.asarray(end) for end in beliefs[-1].support()]
    low, high = np.maximum(low - margin, ends[0]), np.minimum(high + margin, ends[1])
    return low, high


def axis_between(low: float, high: float, count: int) -> np.ndarray:
    """Centres of equal cells: none lies on the edge of a domain, where some densities are infinite."""
    return low + (high - low) * (np.arange(count) + 0.5) / count


def pyplot() -> Any:
    """matplotlib's, or a message on how to get it."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("Figures need matplotlib: pip install 'sosmarkov[plot]'.") from error
    return pyplot
