"""What `fit` knows of a family: where it lives, how it starts, how many of its functions help."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sosmarkov.factor.bases.base import Basis

# The kind of transform a family needs, by where its functions live.
SPACES = {"standardize": "R^d", "gaussian_cdf": "(0, 1)^d"}


@dataclass(frozen=True)
class Family:
    """A family that can be asked for by name.

    Attributes:
        basis: Its class, whose `family` is the name.
        space: The transform it needs: "standardize" for functions on R^d; "gaussian_cdf" for those on (0, 1)^d, which
            also makes the data nearly uniform there: what a family spread over its domain represents best.
        local: From means (n, d), covariances (n, d) and a power: n functions which, to that power, look like normal
            densities of these moments. None where no function of the family is a bump.
        spread: From the numbers of functions and coordinates, and whether the first is to be the constant: functions
            of lowest degree first, on (0, 1)^d. None where bumps put on the data's components start better.
        full: Whether `local` takes covariance matrices, shape (n, d, d).
        most: From the numbers of coordinates and of pairs: beyond how many functions none ever helped.
    """

    basis: type[Basis]
    space: str
    local: Callable[[np.ndarray, np.ndarray, int], Basis] | None = None
    spread: Callable[[int, int, bool], Basis] | None = None
    full: bool = False
    most: Callable[[int, int], int] = lambda dim, pairs: 25

    def __post_init__(self):
        if self.space not in SPACES:
            raise ValueError(f"Expected space one of {', '.join(SPACES)}, got {self.space!r}.")
        if self.local is None and self.spread is None:
            raise ValueError(f"Expected `local` or `spread` of family {self.name}, so that it can start, got neither.")

    @property
    def name(self) -> str:
        """What `fit` calls it."""
        return self.basis.family


def inner(means: np.ndarray) -> np.ndarray:
    """Means of components, away from the ends: on the very end no density of a bounded family has its mean."""
    return np.clip(means, 0.01, 0.99)


def degrees(size: int, dim: int, constant: bool) -> np.ndarray:
    """The multi-indices of lowest total degree, shape (size, dim), from the zeros on or after them."""
    found, count = [], size + (not constant)
    for degree in itertools.count():
        for chosen in itertools.combinations_with_replacement(range(dim), degree):
            found.append(np.bincount(np.asarray(chosen, dtype=int), minlength=dim))
            if len(found) == count:
                return np.array(found, dtype=float)[count - size :]
    raise AssertionError


def levels(size: int, dim: int, constant: bool) -> np.ndarray:
    """The same between 0 and 1."""
    found = degrees(size, dim, constant)
    return found / max(1, found.max())
