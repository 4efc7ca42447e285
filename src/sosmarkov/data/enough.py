"""Whether there is enough to learn from: too few rows, columns that say nothing of their own, rows that only repeat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sosmarkov.core import checks
from sosmarkov.data.dataset import EXTREME, Dataset, robust_standardize

# A column whose distance from the others is below this share of its spread is a linear function of them.
_COLLINEAR = 1e-10


def repeated(data: Dataset) -> int:
    """How many transition pairs are copies of another."""
    return len(data.pairs.x) - len(np.unique(np.concatenate(data.pairs[:2], axis=1), axis=0))


def require_enough(data: Dataset, least: int) -> None:
    """Refuse too little data, coordinates that say nothing of their own, and states that repeat too much."""
    x, x_next = data.pairs[:2]
    if len(x) < least or len(data.starts.x) < 2:
        raise ValueError(
            f"Expected at least {least} transitions and two initial states to learn from, got {len(x)} and"
            f" {len(data.starts.x)}."
        )
    constant = np.flatnonzero(np.ptp(np.concatenate([x, x_next]), axis=0) == 0)
    if constant.size:
        raise ValueError(f"Expected coordinates that vary, got constant ones {constant.tolist()}. Drop them first.")
    dependent = collinear(data.states, checks.columns(data.columns, data.dim))
    if dependent:
        raise ValueError(
            f"Expected coordinates that are no linear functions of each other, got {'; '.join(dependent)}. Leave out"
            " what the others determine: there is no density over all of them."
        )
    distinct = len(np.unique(x_next, axis=0))
    if distinct < least:
        raise ValueError(
            f"Expected at least {least} distinct successors, got {distinct} among {len(x)}. A density cannot be"
            " learned from values that only repeat: use a smaller size, or data that are not rounded."
        )


def collinear(states: np.ndarray, names: Sequence[str]) -> list[str]:
    """A phrase for each column of (N, d) that is, up to rounding, a linear function of columns before it.

    With Q R = z, the columns in deviations from their means, what a column of R has beside those before it is what the
    column of z has. Rows of extreme states are left out: one of them could make any two columns look alike.
    """
    scale = robust_standardize(states)
    mean, std = np.asarray(scale.mean), np.asarray(scale.std)
    z = (states - mean) / std
    z = z[np.all(np.abs(z) <= EXTREME, axis=1)]
    if len(z) <= len(names):
        return []
    R = np.asarray(np.linalg.qr(z - z.mean(axis=0), mode="r"))
    # Numbers far from zero are rounded by more than their spread would have it.
    least = max(_COLLINEAR, 16.0 * np.finfo(float).eps * float(np.max(np.abs(mean) / std)))
    independent: list[int] = []
    found = []
    for c, name in enumerate(names):
        slope = np.linalg.lstsq(R[:, independent], R[:, c], rcond=None)[0]
        if np.linalg.norm(R[:, c] - R[:, independent] @ slope) >= least * np.linalg.norm(R[:, c]):
            independent.append(c)
            continue
        others = [repr(names[i]) for i, s in zip(independent, slope, strict=True) if abs(s) > np.sqrt(_COLLINEAR)]
        found.append(f"{name!r}, a linear function of {' and '.join(others)}")
    return found
