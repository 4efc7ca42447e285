"""What least squares need to know of data, and no more: it adds up over portions, and gives the step of them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from sosmarkov.core.stored import require, stored
from sosmarkov.gaussian import mixture as mixtures


def _sound(moments: Moments) -> None:
    phases, q = moments.factor.shape[:2]
    require(moments.factor.shape[1:] == (q, q) and len(moments.total) == phases, "moments of each phase")
    require(moments.squares.shape[0] == phases and 0 < moments.width < q, "moments of fewer regressors than columns")
    require(bool(np.all(moments.total >= 0)), "weights that are not negative")


class Solved(NamedTuple):
    """A step of some rows.

    Attributes:
        beta: x' = (z, 1) beta, shape (m, d).
        scatter: sum_n w_n r_n r_n^T of the residuals, shape (d, d).
        freedom: E[scatter] = freedom Q: the sum of weights without what fitting takes away.
    """

    beta: ndarray
    scatter: ndarray
    freedom: float


@stored(check=_sound)
@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of weighted rows y = (z, 1, x'), z being the state and inputs, for each phase of a period.

    They are kept as a triangular factor, which loses no digits: R^T R = sum_n w_n y_n y_n^T, and R of two portions is
    that of both factors below each other.

    Attributes:
        factor: R, shape (p, q, q), q = m + d.
        squares: sum_n w_n^2 (z, 1)(z, 1)^T, shape (p, m, m): what the noise's freedom takes.
        total: sum_n w_n, shape (p,).
        ridge: How strongly phases are drawn towards the pooled step, in rows; None where there is one phase.
    """

    factor: Float[ndarray, "p q q"]
    squares: Float[ndarray, "p m m"]
    total: Float[ndarray, " p"]
    ridge: float | None

    @classmethod
    def of(cls, Z: ndarray, x_next: ndarray, weight: ndarray, rows: Sequence[ndarray], ridge: float | None) -> Moments:
        """Of regressors (n, m), next states (n, d) and weights, with the rows of each phase."""
        y, w = np.concatenate([Z, x_next], axis=1), weight[:, None]
        factor = np.array([_triangle(np.sqrt(w[at]) * y[at]) for at in rows])
        squares = np.array([(w[at] * Z[at]).T @ (w[at] * Z[at]) for at in rows])
        return cls(factor, squares, np.array([np.sum(weight[at]) for at in rows]), ridge)

    @property
    def width(self) -> int:
        """Regressors m, the constant among them."""
        return self.squares.shape[1]

    def __eq__(self, other: object) -> bool:
        """Bit for bit."""
        pairs = [] if not isinstance(other, Moments) else [(self.factor, other.factor), (self.squares, other.squares)]
        same = bool(pairs) and self.ridge == other.ridge and np.array_equal(self.total, other.total)  # type: ignore[union-attr]
        return same and all(np.array_equal(a, b) for a, b in pairs)

    def __hash__(self) -> int:
        """By how many there are."""
        return hash((self.factor.shape, self.ridge))

    def plus(self, other: Moments) -> Moments:
        """Of both portions."""
        both = np.concatenate([self.factor, other.factor], axis=1)
        factor = np.array([_triangle(one) for one in both])
        return Moments(factor, self.squares + other.squares, self.total + other.total, self.ridge)

    def spread(self) -> tuple[Float[ndarray, " m"], Float[ndarray, " m"]]:
        """Mean and deviation of each regressor."""
        R, total = _triangle(np.concatenate(list(self.factor))), float(np.sum(self.total))
        columns = R[:, : self.width]
        mean = columns[:, -1] @ columns / total
        # From the residuals on the constant: no digits are lost far from zero.
        away = columns - np.outer(columns[:, -1], mean)
        return mean, np.sqrt(np.sum(away**2, axis=0) / total)

    def solved(self) -> tuple[list[Solved], list[ndarray]]:
        """The step of each phase, and the covariance of its noise."""
        whole = _triangle(np.concatenate(list(self.factor))), np.sum(self.squares, axis=0), float(np.sum(self.total))
        pooled = _solve(*whole)
        Q = mixtures.symmetric(pooled.scatter / pooled.freedom)
        if self.ridge is None:
            return [pooled], [Q]
        own = whole[0][:, : self.width]
        towards = None if self.ridge == 0 else (self.ridge, own.T @ own / whole[2], pooled.beta)
        each = [_solve(R, S, float(w), towards) for R, S, w in zip(self.factor, self.squares, self.total, strict=True)]
        if np.isinf(self.ridge):
            return each, [Q] * len(each)
        noises = [(one.scatter + self.ridge * Q) / (one.freedom + self.ridge) for one in each]
        return each, [mixtures.symmetric(noise) for noise in noises]


def _triangle(rows: ndarray) -> ndarray:
    """The square triangular factor of some rows; with rows of zero where they are few."""
    q = rows.shape[1]
    if len(rows) < q:
        rows = np.concatenate([rows, np.zeros((q - len(rows), q))])
    return np.asarray(np.linalg.qr(rows, mode="r"))


def _solve(R: ndarray, squares: ndarray, total: float, towards: tuple[float, ndarray, ndarray] | None = None) -> Solved:
    """Least squares, drawn towards another beta as if that had been seen in so many rows of some second moments."""
    m = len(squares)
    regressors, wanted = R[:, :m], R[:, m:]

    def remainder(beta: ndarray) -> ndarray:
        away = wanted - regressors @ beta
        return away.T @ away

    if towards is not None and np.isinf(towards[0]):
        return Solved(towards[2], remainder(towards[2]), total)
    rows, right = regressors, wanted
    if towards is not None:
        strength, S, other = towards
        C = np.sqrt(strength) * np.linalg.cholesky(S).T
        rows, right = np.concatenate([rows, C]), np.concatenate([right, C @ other])
    scale = np.sqrt(np.sum(rows**2, axis=0))
    q, T = np.linalg.qr(rows / scale)
    beta = np.linalg.solve(T, q.T @ right) / scale[:, None]
    # E[sum w r r^T] / Q is the trace of W (I - H)(I - H)^T, H = Z A^-1 Z^T W, here in coordinates where A is one.
    inverse = np.linalg.inv(T) / scale[:, None]
    weighed, own = inverse.T @ squares @ inverse, regressors @ inverse
    freedom = total - 2.0 * np.trace(weighed) + np.trace(weighed @ (own.T @ own))
    return Solved(beta, remainder(beta), float(freedom))
