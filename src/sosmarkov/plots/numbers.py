"""What figures show, as arrays: densities on grids, quantiles over steps, windows to look through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sosmarkov.contracts.belief import Belief, Coordinate
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.factor.bases.full_sum import sum_at
from sosmarkov.factor.beliefs import DensityBelief, MarginalBelief, ProductBelief
from sosmarkov.inference.beliefs import BeliefSequence
from sosmarkov.spaces.transforms import to_model

# A window reaches from one of these quantiles to the other, and a quarter of that further on either side: heavy
# tails would leave the rest too small to see.
TAIL = 0.01
_MARGIN = 0.25
# Points of a line: one number everywhere, so that one compiled program serves.
CELLS = 400


def labels_of(belief: Belief, names: Sequence[str] | None) -> list[str]:
    """What axes say of the coordinates of a belief: their own names, or others."""
    return list(checks.columns(belief.columns if names is None else names, belief.dim))


def part_of(belief: Belief, coordinates: Sequence[Coordinate] | Coordinate) -> Belief:
    """The belief over some coordinates; itself where those are all, in their order."""
    chosen = checks.coordinates(coordinates, belief.dim, belief.columns)
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
    full = not belief.basis.axis_aligned and belief.transform.coordinatewise
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
    return jnp.where(lost, jnp.nan, sums.value * jnp.exp(sums.log_scale + log_det[None]))


def quantiles(beliefs: Sequence[Belief], shares: ArrayLike, coordinates: Sequence[Coordinate]) -> np.ndarray:
    """Quantiles of every belief, shape (K, len(shares), len(coordinates)); of a process's own sequence all at once."""
    if isinstance(beliefs, BeliefSequence):
        return np.asarray(beliefs.quantiles(shares, coordinates))
    return np.stack([np.asarray(belief.quantile(shares, coordinates)) for belief in beliefs])


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


def panes(given: Any, shape: tuple[int, ...], what: str, size: tuple[float, float], **shared: Any) -> np.ndarray:
    """Axes of this shape to draw on: those given, or those of a new figure of this size."""
    if given is None:
        rows_and_columns = (1, *shape)[-2:]
        found = pyplot().subplots(*rows_and_columns, figsize=size, layout="constrained", squeeze=False, **shared)[1]
        return found.reshape(shape)
    axes = np.atleast_1d(np.asarray(given, dtype=object))
    if axes.shape != shape:
        raise ValueError(f"Expected {' x '.join(map(str, shape))} axes to draw on, {what}, got shape {axes.shape}.")
    return axes


def pyplot() -> Any:
    """matplotlib's, or a message on how to get it."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("Figures need matplotlib: pip install 'sosmarkov[plot]'.") from error
    return pyplot
