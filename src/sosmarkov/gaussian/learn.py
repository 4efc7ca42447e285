"""The linear step from data: weighted least squares, one step for all or one for each phase of a period."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from sosmarkov.data.enough import collinear
from sosmarkov.gaussian import mixture as mixtures
from sosmarkov.gaussian.mixture import Mixture
from sosmarkov.gaussian.moments import Moments
from sosmarkov.gaussian.transition import GaussianTransition

# Strengths of the ridge towards the pooled step that are tried, in rows; infinite: the pooled step for every phase.
_RIDGES = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, np.inf)
# A coordinate whose residuals are below this share of its spread has no noise.
_NOISELESS = 1e-10
# A row whose leverage misses one by less determines its own residual.
_ALONE = 1e-12


class Learned(NamedTuple):
    """What least squares found.

    Attributes:
        transition: The step.
        ridge: How strongly phases were drawn towards the pooled step, in rows; None without a period.
        log_score: Mean log p(x' | x) of pairs left out one by one.
    """

    transition: GaussianTransition
    ridge: float | None
    log_score: float


class _Regression(NamedTuple):
    """x' = Z beta + residuals, of some rows, drawn towards another beta.

    Attributes:
        beta: Shape (p, d).
        scatter: sum_n w_n r_n r_n^T, shape (d, d).
        freedom: E[scatter] = freedom Q: the sum of weights without what fitting takes away.
        left_out: Residuals of each row as if it had been left out, shape (n, d).
    """

    beta: ndarray
    scatter: ndarray
    freedom: float
    left_out: ndarray


def linear_step(
    x: Float[ndarray, "n d"],
    x_next: Float[ndarray, "n d"],
    weight: Float[ndarray, " n"] | None = None,
    u: Float[ndarray, "n e"] | None = None,
    columns: Sequence[str] | None = None,
) -> Learned:
    """F, b, Q, and B where there are inputs, by weighted least squares; Q unbiased.

    Args:
        x: States.
        x_next: Their successors.
        weight: Of each pair; equal where None.
        u: Inputs of the steps, which act as B u.
        columns: Names of the coordinates, for what is refused.
    """
    weight = np.ones(len(x)) if weight is None else weight
    Z = _design(x, x_next, weight, u, columns)
    found = _regress(Z, x_next, weight)
    Q = _noise(found.scatter / found.freedom, x_next, columns)
    d = x.shape[1]
    B = None if u is None else found.beta[d:-1].T
    moments = Moments.of(Z, x_next, weight, [np.arange(len(Z))], None)
    transition = GaussianTransition(found.beta[:d].T, found.beta[-1], Q, B, moments)
    return Learned(transition, None, _score(found.left_out, Q, weight))


def phase_steps(
    x: Float[ndarray, "n d"],
    x_next: Float[ndarray, "n d"],
    phase: Int[ndarray, " n"],
    period: int,
    weight: Float[ndarray, " n"] | None = None,
    *,
    ridge: float | None = None,
    columns: Sequence[str] | None = None,
) -> Learned:
    """A step for each phase, drawn towards the pooled one as if that had been seen in `ridge` more rows.

    With S the pooled second moments of (x, 1): (Z^T W Z + ridge S) beta = Z^T W x' + ridge S beta_pooled, whatever the
    units; noise likewise. None: the strength whose residuals of pairs left out one by one are smallest.

    Args:
        x: States.
        x_next: Their successors.
        phase: Of each pair, 0, ..., period - 1.
        period: How many there are.
        weight: Of each pair; equal where None.
        ridge: The strength, zero or more; phases without pairs need one above zero.
        columns: Names of the coordinates, for what is refused.
    """
    weight = np.ones(len(x)) if weight is None else weight
    Z = _design(x, x_next, weight, None, columns)
    pooled = _regress(Z, x_next, weight)
    Q = _noise(pooled.scatter / pooled.freedom, x_next, columns)
    S = (weight * Z.T) @ Z / np.sum(weight)
    rows = [np.flatnonzero((phase == one) & (weight > 0)) for one in range(period)]
    few, least = min(map(len, rows)), Z.shape[1] + x.shape[1]
    units = np.sqrt(np.diag(S))
    enough = few >= least and all(np.linalg.matrix_rank(Z[r] / units) == Z.shape[1] for r in rows)
    if ridge is not None and not (ridge >= 0 and (ridge > 0 or enough)):
        raise ValueError(
            f"Expected a ridge above zero where a phase has fewer than {least} pairs, or columns that say the same in"
            f" it, got {ridge} and at least {few} pairs a phase."
        )
    tried = (float(ridge),) if ridge is not None else _RIDGES if enough else _RIDGES[1:]

    def fitted(strength: float) -> list[_Regression]:
        towards = None if strength == 0 else (strength, S, pooled.beta)
        return [_regress(Z[r], x_next[r], weight[r], towards) for r in rows]

    L = np.linalg.cholesky(Q)

    def loss(found: list[_Regression]) -> float:
        away = [np.sum(np.linalg.solve(L, one.left_out.T) ** 2, axis=0) for one in found]
        return float(sum(weight[r] @ each for r, each in zip(rows, away, strict=True)))

    best = min(tried, key=lambda strength: loss(fitted(strength)))
    found, d = fitted(best), x.shape[1]
    noises = [Q if np.isinf(best) else (one.scatter + best * Q) / (one.freedom + best) for one in found]
    betas = np.array([one.beta for one in found])
    noises = np.array([_noise(one, x_next, columns) for one in noises])
    moments = Moments.of(Z, x_next, weight, rows, float(best))
    transition = GaussianTransition(np.swapaxes(betas[:, :d], 1, 2), betas[:, d], noises, moments=moments)
    scores = [_score(one.left_out, noise, weight[r]) for one, noise, r in zip(found, noises, rows, strict=True)]
    shares = [np.sum(weight[r]) for r in rows]
    there = [k for k, share in enumerate(shares) if share > 0]
    score = sum(shares[k] * scores[k] for k in there) / sum(shares)
    return Learned(transition, best, float(score))


def _design(
    x: ndarray, x_next: ndarray, weight: ndarray, u: ndarray | None, columns: Sequence[str] | None
) -> Float[ndarray, "n p"]:
    """Columns (x, u, 1); a ValueError where they do not tell what acts."""
    names = list(columns) if columns is not None else [f"x{c}" for c in range(x.shape[1])]
    inputs = [] if u is None else [f"input {c}" for c in range(u.shape[1])]
    z = x if u is None else np.concatenate([x, u], axis=1)
    used = weight > 0
    least = z.shape[1] + 1 + x.shape[1]
    if np.sum(used) < least:
        raise ValueError(
            f"Expected at least {least} pairs of states for a linear step with noise over {x.shape[1]} coordinates,"
            f" got {int(np.sum(used))}. Give longer or more trajectories, or fewer coordinates."
        )
    spread = np.ptp(z[used], axis=0)
    constant = [name for name, size in zip([*names, *inputs], spread, strict=True) if size == 0]
    constant += [name for name, size in zip(names, np.ptp(x_next[used], axis=0), strict=True) if size == 0]
    if constant:
        listed = ", ".join(map(repr, dict.fromkeys(constant)))
        raise ValueError(f"Expected columns that vary, got constant ones: {listed}. Leave them out.")
    dependent = collinear(z[used], [*names, *inputs])
    if dependent:
        raise ValueError(
            f"Expected columns that are no linear functions of each other, got {'; '.join(dependent)}. Leave out what"
            " the others determine."
        )
    return np.concatenate([z, np.ones((len(x), 1))], axis=1)


def _regress(
    Z: ndarray, x_next: ndarray, weight: ndarray, towards: tuple[float, ndarray, ndarray] | None = None
) -> _Regression:
    """Least squares by a triangular factor of the weighted rows, pseudo-rows of the ridge among them.

    With H = Z A^-1 Z^T W: residuals left out are r_n / (1 - H_nn), and E[sum w r r^T] / Q is the trace of
    W (I - H)(I - H)^T.
    """
    root = np.sqrt(weight)[:, None]
    if towards is not None and np.isinf(towards[0]):
        away = x_next - Z @ towards[2]
        return _Regression(towards[2], (weight * away.T) @ away, float(np.sum(weight)), away)
    rows, wanted = root * Z, root * x_next
    if towards is not None:
        strength, S, other = towards
        # S = C^T C, so that its rows stand for `strength` rows of the pooled data.
        C = np.sqrt(strength) * np.linalg.cholesky(S).T
        rows, wanted = np.concatenate([rows, C]), np.concatenate([wanted, C @ other])
    # Units of columns say nothing: a factor of scaled columns is as good as it gets.
    scale = np.sqrt(np.sum(rows**2, axis=0))
    q, R = np.linalg.qr(rows / scale)
    beta = np.linalg.solve(R, q.T @ wanted) / scale[:, None]
    away = x_next - Z @ beta
    own = q[: len(Z)]
    # Of zero weight, a row leaves no trace in the others.
    leverage = np.sum(own**2, axis=1)
    squares = (weight[:, None] * own).T @ own
    freedom = float(np.sum(weight) - 2.0 * np.trace(squares) + np.trace(squares @ (own.T @ own)))
    # A row that alone says what a direction does leaves nothing to foretell it by.
    alone = leverage > 1.0 - _ALONE
    left_out = away / np.where(alone, 1.0, 1.0 - leverage)[:, None]
    return _Regression(beta, (weight * away.T) @ away, freedom, left_out)


def _noise(Q: ndarray, x_next: ndarray, columns: Sequence[str] | None) -> ndarray:
    """Q, or a ValueError that names the coordinates that have none."""
    names = list(columns) if columns is not None else [f"x{c}" for c in range(len(Q))]
    bare = np.sqrt(np.diag(Q)) <= _NOISELESS * np.std(x_next, axis=0)
    if np.any(bare):
        listed = ", ".join(repr(name) for name, one in zip(names, bare, strict=True) if one)
        raise ValueError(
            f"Expected coordinates with noise of their own, got {listed}, whose next value is a linear function of the"
            " state. Leave out what follows from the others: there is no density over all of them."
        )
    return mixtures.symmetric(Q)


def _score(left_out: ndarray, Q: ndarray, weight: ndarray) -> float:
    """Mean log N(r; 0, Q) of residuals."""
    if not np.sum(weight) > 0:
        return 0.0
    noise = Mixture(np.ones(1), np.zeros((1, len(Q))), Q[None])
    return float(weight @ mixtures.log_densities(noise, left_out)[:, 0] / np.sum(weight))
