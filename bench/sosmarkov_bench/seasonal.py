"""Baselines for a scalar record with a period: what every phase is like, and a linear step of each phase."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.stats


class SeasonalAR(NamedTuple):
    """p(x' | x, phase j) = N(a_j + b_j x, s_j^2), by least squares: Gaussian however far ahead. Shape (T,) each."""

    offset: np.ndarray
    slope: np.ndarray
    std: np.ndarray

    @classmethod
    def fit(cls, phase: np.ndarray, x: np.ndarray, x_next: np.ndarray, period: int) -> SeasonalAR:
        """From steps of shape (N,) each."""
        rows = []
        for j in range(period):
            before, after = x[phase == j], x_next[phase == j]
            slope, offset = np.polyfit(before, after, 1)
            rows.append((offset, slope, np.std(after - offset - slope * before)))
        return cls(*np.array(rows).T)

    def ahead(self, phase: np.ndarray, x: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations 1, ..., steps ahead of known states (N,), shape (N, steps) each."""
        mean, variance, found = np.asarray(x, dtype=float), np.zeros(len(x)), []
        for k in range(steps):
            j = (phase + k) % len(self.slope)
            mean, variance = self.offset[j] + self.slope[j] * mean, self.slope[j] ** 2 * variance + self.std[j] ** 2
            found.append((mean, np.sqrt(variance)))
        means, stds = np.array(found).transpose(1, 2, 0)
        return means, stds

    def log_prob(self, phase: np.ndarray, x: np.ndarray, later: np.ndarray) -> np.ndarray:
        """log p(later_k | x) of the states 1, ..., K ahead, shape (N, K)."""
        return scipy.stats.norm.logpdf(later, *self.ahead(phase, x, later.shape[1]))


def climatology(
    phase: np.ndarray, x: np.ndarray, first: np.ndarray, later: np.ndarray, period: int, *, kernel: bool
) -> np.ndarray:
    """log p(later | its phase), whatever came before: one Gaussian a phase, or a kernel density (Scott's width).

    Args:
        phase: Of the states to learn from, shape (N,).
        x: Those states, shape (N,).
        first: Phase of the first of the later states, shape (M,).
        later: Shape (M, K); NaN stays NaN.
        period: Number of phases.
        kernel: Whether to take the kernel density.
    """
    at = (first[:, None] + np.arange(later.shape[1])) % period
    found = np.full(later.shape, np.nan)
    for j in range(period):
        known, asked = x[phase == j], (at == j) & np.isfinite(later)
        if kernel:
            found[asked] = scipy.stats.gaussian_kde(known).logpdf(later[asked])
        else:
            found[asked] = scipy.stats.norm.logpdf(later[asked], known.mean(), known.std())
    return found


def block_mean(values: np.ndarray, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the first axis, NaN left out, and its standard error from the means of blocks.

    Neighbours in time are alike, whole blocks hardly: the error is the deviation of the blocks' means over the root of
    their number.
    """
    means = np.array([np.nanmean(values[block == b], axis=0) for b in np.unique(block)])
    return np.nanmean(values, axis=0), np.std(means, axis=0, ddof=1) / np.sqrt(len(means))
