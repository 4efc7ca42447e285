"""Whether beliefs are as sure as they should be: where observed states fall in what was predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from sosmarkov.contracts.belief import Belief
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.data.given import padded, several
from sosmarkov.inference.trajectories import gather

SHARES = np.arange(0.1, 0.95, 0.1)


class Calibration(NamedTuple):
    """Observed states held against beliefs.

    Attributes:
        steps: The steps compared, shape (K,).
        pit: F_(k,c)(x_(k,c)), the probability of a smaller value than the one observed, shape (N, K, d); uniform on
            (0, 1) where beliefs are right. NaN where no state was observed, or its trajectory was not picked.
        log_prob: Log p_k(x_k), shape (N, K); NaN where no state was observed.
    """

    steps: np.ndarray
    pit: np.ndarray
    log_prob: np.ndarray

    def coverage(self, shares: ArrayLike = SHARES) -> tuple[np.ndarray, np.ndarray]:
        """Share of states inside central intervals, and its standard error, shape (len(shares), d) each.

        The error is over trajectories: states of one trajectory are not independent.
        """
        inside = np.abs(self.pit - 0.5)[..., None] < 0.5 * np.asarray(shares)
        return tuple(np.moveaxis(part, -1, 0) for part in _mean_over_paths(inside, self.pit))  # type: ignore[return-value]

    def histogram(self, bins: int = 20) -> tuple[np.ndarray, np.ndarray]:
        """Density of `pit` in equal bins, one everywhere where beliefs are right, and its error; shape (bins, d)."""
        where = np.minimum(np.floor(bins * np.nan_to_num(self.pit)), bins - 1)
        inside = where[..., None] == np.arange(bins)
        return tuple(bins * np.moveaxis(part, -1, 0) for part in _mean_over_paths(inside, self.pit))  # type: ignore[return-value]

    def log_likelihood(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean log-density at each step, its standard error and the number of states, shape (K,) each."""
        seen = ~np.isnan(self.log_prob)
        count = seen.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.sum(np.where(seen, self.log_prob, 0.0), axis=0) / count
            away = np.sum(np.where(seen, self.log_prob - mean, 0.0) ** 2, axis=0)
            return mean, np.sqrt(away / (count - 1) / count), count


def calibrate(
    beliefs: Sequence[Belief], data: ArrayLike, steps: Sequence[int] | None = None, *, most: int | None = None
) -> Calibration:
    """Hold trajectories against the beliefs at their steps.

    Args:
        beliefs: One a step, as `propagate` gives them.
        data: Trajectories (N, T, d) or a list of (T_i, d); rows with NaN are gaps. Row k belongs to step k.
        steps: Which steps to compare; all that both have where None. A known start has nothing to compare.
        most: Distribution functions, which cost more than densities, at the states of so many trajectories at most,
            evenly picked; of all where None.
    """
    states = stacked(data, beliefs[0].dim)
    last = min(len(beliefs), states.shape[1])
    chosen = list(range(last)) if steps is None else [int(k) for k in steps]
    if any(not 0 <= k < last for k in chosen):
        raise ValueError(f"Expected steps from 0 to {last - 1}, which beliefs and data both have, got {chosen}.")
    chosen = [k for k in chosen if beliefs[k].has_density]
    if not chosen:
        raise ValueError("Expected at least one step after the known start to compare, got none.")
    picked = spread(len(states), len(states) if most is None else most)
    pit = np.full((len(states), len(chosen), states.shape[2]), np.nan)
    log_prob = np.full(pit.shape[:2], np.nan)
    for place, k in enumerate(chosen):
        log_prob[:, place] = _at_seen(beliefs[k].log_prob, states[:, k])
        for c in range(states.shape[2]):
            single = beliefs[k].marginal([c])
            pit[picked, place, c] = _at_seen(single.cdf, states[picked, k][:, [c]])
    return Calibration(np.array(chosen), pit, log_prob)


def spread(count: int, most: int) -> np.ndarray:
    """At most so many indices below `count`, evenly over all."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def stacked(data: ArrayLike, dim: int) -> np.ndarray:
    """Trajectories as one array (N, T, d), NaN where there is nothing; rows with any NaN are left out."""
    parts = [np.asarray(checks.as_float(one, "trajectories")) for one in several(data)]
    return padded(gather([np.where(np.isnan(one).any(axis=-1, keepdims=True), np.nan, one) for one in parts], dim))


def _at_seen(function: Callable[[Array], Array], states: np.ndarray) -> np.ndarray:
    """A function of states (N, d), shape (N,), at those that are there; NaN elsewhere."""
    seen = ~np.isnan(states[:, 0])
    if not seen.any():
        return np.full(len(states), np.nan)
    # Gaps are filled with a state of the same step and taken out again: one program for all steps.
    filled = np.where(seen[:, None], states, states[np.argmax(seen)])
    return np.where(seen, np.asarray(function(jnp.asarray(filled))), np.nan)


def _mean_over_paths(inside: np.ndarray, pit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Share of (N, K, d, ...) that is true, (d, ...), and its standard error over the N paths."""
    seen = ~np.isnan(pit)[..., None]
    count = seen.sum(axis=1)
    total = count.sum(axis=0)
    hits = np.where(seen, inside, False).sum(axis=1)
    share = hits.sum(axis=0) / total
    # A ratio of sums over paths; its linearisation is as honest for paths of different lengths.
    away = hits - share * count
    return share, np.sqrt(np.sum(away**2, axis=0)) / total
