"""Arithmetic of Gaussian mixtures: linear steps, linear readings, what lies behind, moments, marginals, conditionals.

Plain arrays, batches first: m members over d coordinates. Covariances come out of sums of squares (Joseph's form,
triangular factors), so that they stay symmetric and positive; systems are solved by factors, nothing is inverted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

_LOG_2PI = math.log(2.0 * math.pi)


class Mixture(NamedTuple):
    """p(x) = sum_i weights_i N(x; means_i, covariances_i). A covariance of zero stands for a known state.

    Attributes:
        weights: Shape (m,).
        means: Shape (m, d).
        covariances: Shape (m, d, d).
    """

    weights: ndarray
    means: ndarray
    covariances: ndarray


class LinearStep(NamedTuple):
    """x' = F x + b + noise, noise ~ N(0, Q).

    Attributes:
        F: Shape (d, d).
        b: Shape (d,).
        Q: Shape (d, d).
    """

    F: ndarray
    b: ndarray
    Q: ndarray

    def after(self, first: LinearStep) -> LinearStep:
        """Both in one: `first`, then this one."""
        F, b, Q = self
        return LinearStep(F @ first.F, F @ first.b + b, symmetric(F @ first.Q @ F.T + Q))

    def times(self, count: int) -> LinearStep:
        """The step `count` times, count >= 0, by squaring."""
        dim = len(self.b)
        found, power = LinearStep(np.eye(dim), np.zeros(dim), np.zeros((dim, dim))), self
        with np.errstate(over="ignore", invalid="ignore"):
            while count:
                found = power.after(found) if count % 2 else found
                count //= 2
                power = power.after(power) if count else power
        if not all(np.all(np.isfinite(part)) for part in found):
            raise ValueError(
                "Expected a belief that numbers can hold so many steps ahead, got one that grows out of all."
            )
        return found

    def __call__(self, mixture: Mixture) -> Mixture:
        """Every member moves: F m + b, F P F^T + Q."""
        weights, means, covariances = mixture
        return Mixture(weights, means @ self.F.T + self.b, symmetric(self.F @ covariances @ self.F.T + self.Q))


class Behind(NamedTuple):
    """What later readings are worth to a state: B(x) = sum_j exp(log_scale_j - |A_j x - z_j|^2 / 2).

    Attributes:
        log_scale: Shape (j,).
        A: Shape (j, d, d).
        z: Shape (j, d).
    """

    log_scale: ndarray
    A: ndarray
    z: ndarray


class Linear(NamedTuple):
    """One explanation of a reading, in units of its noise: exp(log_scale - |H x - z|^2 / 2).

    Attributes:
        log_scale: The log of its weight, and of the noise's density at zero.
        H: Shape (k, d); no rows where nothing was read.
        z: Shape (k,).
    """

    log_scale: float
    H: ndarray
    z: ndarray


def symmetric(P: Float[ndarray, "*m d d"]) -> Float[ndarray, "*m d d"]:
    """Without what rounding made of the two halves."""
    return 0.5 * (P + np.swapaxes(P, -1, -2))


def log_densities(mixture: Mixture, x: Float[ndarray, "n d"]) -> Float[ndarray, "n m"]:
    """log N(x_n; mean_m, covariance_m), without weights."""
    L = np.linalg.cholesky(mixture.covariances)
    with np.errstate(over="ignore", invalid="ignore"):
        z = np.linalg.solve(L, x.T - mixture.means[..., None])
        # Numbers no double can square are infinitely unlikely.
        away = np.nan_to_num(np.sum(z**2, axis=1), nan=np.inf, posinf=np.inf)
    return (-0.5 * (away + x.shape[1] * _LOG_2PI) - _log_diagonal(L)[:, None]).T


def log_density(mixture: Mixture, x: Float[ndarray, "n d"]) -> Float[ndarray, " n"]:
    """log p(x_n)."""
    with np.errstate(divide="ignore"):
        return log_sum(log_densities(mixture, x) + np.log(mixture.weights), axis=1)


def log_sum(logs: ndarray, axis: int = -1) -> Any:
    """log sum exp(logs), -inf of nothing: SciPy's takes ten times as long for the few members of a filter."""
    top = np.max(logs, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.sum(np.exp(logs - top), axis=axis)) + np.squeeze(top, axis=axis)


def _log_diagonal(L: Float[ndarray, "*m d d"]) -> Float[Any, "*m"]:
    return np.sum(np.log(np.diagonal(L, axis1=-2, axis2=-1)), axis=-1)


# --- readings ---------------------------------------------------------------------------------------


def read(means: ndarray, P: ndarray, H: ndarray, z: ndarray) -> tuple[Any, ndarray, ndarray]:
    """N(x; mean, P) exp(-|H x - z|^2 / 2) as exp(log) N(x; mean', P'): the log, mean' and P'; leading axes broadcast.

    S = I + H P H^T is no smaller than one, whatever P; P' = (I - K H) P (I - K H)^T + K K^T.
    """
    HP = H @ P
    L = np.linalg.cholesky(np.eye(H.shape[-2]) + symmetric(HP @ np.swapaxes(H, -1, -2)))
    away = np.linalg.solve(L, (z - (H @ means[..., None])[..., 0])[..., None])[..., 0]
    half = np.linalg.solve(L, HP)
    K = np.swapaxes(np.linalg.solve(np.swapaxes(L, -1, -2), half), -1, -2)
    left = np.eye(means.shape[-1]) - K @ H
    with np.errstate(over="ignore", invalid="ignore"):
        log = -0.5 * np.nan_to_num(np.sum(away**2, axis=-1), nan=np.inf, posinf=np.inf) - _log_diagonal(L)
        moved = means + (np.swapaxes(half, -1, -2) @ away[..., None])[..., 0]
    return log, moved, symmetric(left @ P @ np.swapaxes(left, -1, -2) + K @ np.swapaxes(K, -1, -2))


def given(mixture: Mixture, reading: Sequence[Linear]) -> tuple[Mixture, float]:
    """Bayes' rule: every member under every explanation, of mass one, and the log of how likely the reading was."""
    found, logs = [], []
    for log_scale, H, z in reading:
        log, means, covariances = np.zeros(len(mixture.weights)), mixture.means, mixture.covariances
        if len(z):
            log, means, covariances = read(means, covariances, H, z)
        found.append((means, covariances))
        logs.append(log + log_scale)
    weights, total = reweighed(np.tile(mixture.weights, len(logs)), np.concatenate(logs))
    means, covariances = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Mixture(weights, means, covariances), total


def reweighed(weights: Float[ndarray, " m"], logs: Float[ndarray, " m"]) -> tuple[Float[ndarray, " m"], float]:
    """weights exp(logs), scaled to sum to one, and the log of what they summed to; zeros where that is nothing."""
    with np.errstate(divide="ignore"):
        logs = np.log(weights) + logs
    total = float(log_sum(logs))
    return (np.exp(logs - total) if total > -np.inf else np.zeros(len(logs))), total


# --- what lies behind -------------------------------------------------------------------------------


def nothing_behind(dim: int) -> Behind:
    """B(x) = 1."""
    return Behind(np.zeros(1), np.zeros((1, dim, dim)), np.zeros((1, dim)))


def read_behind(behind: Behind, reading: Sequence[Linear]) -> Behind:
    """B times the likelihood of a reading: rows [A z; H z] brought back to d of them by a triangular factor."""
    if not reading:
        return behind
    found = [_with_rows(behind, part) for part in reading]
    return Behind(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _with_rows(behind: Behind, part: Linear) -> Behind:
    log_scale, A, z = behind
    if not len(part.z):
        return behind._replace(log_scale=log_scale + part.log_scale)
    new = np.concatenate([part.H, part.z[:, None]], axis=1)
    old = np.concatenate([A, z[..., None]], axis=2)
    R: Any = np.linalg.qr(np.concatenate([old, np.broadcast_to(new, (len(A), *new.shape))], axis=1), mode="r")
    dim = A.shape[1]
    # What no state explains of the readings is the last row's.
    return Behind(log_scale + part.log_scale - 0.5 * R[:, dim, dim] ** 2, R[:, :dim, :dim], R[:, :dim, dim])


def before(behind: Behind, step: LinearStep) -> Behind:
    """int N(x'; F x + b, Q) B(x') dx' as such a sum again: with S = I + A Q A^T, rows of S^(-1/2) (A F, z - A b)."""
    log_scale, A, z = behind
    L = np.linalg.cholesky(np.eye(A.shape[1]) + symmetric(A @ step.Q @ np.swapaxes(A, -1, -2)))
    rows = np.linalg.solve(L, np.concatenate([A @ step.F, (z - A @ step.b)[..., None]], axis=2))
    return Behind(log_scale - _log_diagonal(L), rows[..., :-1], rows[..., -1])


def facing(mixture: Mixture, behind: Behind) -> tuple[Mixture, float]:
    """p B, of mass one, and the log of its integral: every member with every term."""
    log, means, covariances = read(mixture.means[:, None], mixture.covariances[:, None], behind.A[None], behind.z[None])
    weights = np.broadcast_to(mixture.weights[:, None], log.shape)
    found, total = reweighed(weights.reshape(-1), (log + behind.log_scale).reshape(-1))
    dim = means.shape[-1]
    return Mixture(found, means.reshape(-1, dim), covariances.reshape(-1, dim, dim)), total


# --- what is asked of a mixture ---------------------------------------------------------------------


def mean(mixture: Mixture) -> Float[ndarray, " d"]:
    """E[x]."""
    return mixture.weights @ mixture.means


def covariance(mixture: Mixture) -> Float[ndarray, "d d"]:
    """The mean of the covariances and the covariance of the means."""
    away = mixture.means - mean(mixture)
    return symmetric(np.tensordot(mixture.weights, mixture.covariances, 1) + (mixture.weights * away.T) @ away)


def moment(mixture: Mixture, powers: Sequence[int]) -> np.float64:
    """E[prod_c x_c^powers_c], by Isserlis' recursion E[x_i y] = m_i E[y] + sum_(j in y) P_ij E[y without x_j]."""

    def expected(factors: tuple[int, ...]) -> ndarray:
        if not factors:
            return np.ones(len(mixture.weights))
        i, rest = factors[0], factors[1:]
        total = mixture.means[:, i] * expected(rest)
        for place, j in enumerate(rest):
            total = total + mixture.covariances[:, i, j] * expected(rest[:place] + rest[place + 1 :])
        return total

    return np.float64(mixture.weights @ expected(tuple(c for c, power in enumerate(powers) for _ in range(power))))


def marginal(mixture: Mixture, kept: Sequence[int]) -> Mixture:
    """Rows and columns of those that are kept."""
    where = np.asarray(kept, dtype=int)
    return Mixture(mixture.weights, mixture.means[:, where], mixture.covariances[:, where[:, None], where])


def conditional(mixture: Mixture, values: dict[int, float]) -> tuple[Mixture, float]:
    """Over the other coordinates given these, and the log-density of what was given.

    Of the factor [[L, 0], [X, Y]] with what is given first: mean + X L^(-1) (value - mean), and Y Y^T.
    """
    fixed = list(values)
    free = [c for c in range(mixture.means.shape[1]) if c not in values]
    ordered = marginal(mixture, fixed + free)
    k, root = len(fixed), np.linalg.cholesky(ordered.covariances)
    L, X, Y = root[:, :k, :k], root[:, k:, :k], root[:, k:, k:]
    at = np.asarray([float(value) for value in values.values()])
    z = np.linalg.solve(L, (at - ordered.means[:, :k])[..., None])
    logs = -0.5 * (np.sum(z[..., 0] ** 2, axis=1) + k * _LOG_2PI) - _log_diagonal(L)
    weights, total = reweighed(mixture.weights, logs)
    means = ordered.means[:, k:] + (X @ z)[..., 0]
    return Mixture(weights, means, symmetric(Y @ np.swapaxes(Y, -1, -2))), total


def divergences(one: Mixture, other: Mixture) -> Float[ndarray, " m"]:
    """KL(one_i || other) for every member, `other` of a single one, to its last digits where it is small.

    With t the eigenvalues of L^(-1) (P_i - P) L^(-T), P = L L^T: sum (t - log(1 + t)) / 2 + |L^(-1) (m_i - m)|^2 / 2.
    """
    L = np.linalg.cholesky(other.covariances[0])
    left = np.linalg.solve(L, one.covariances - other.covariances[0])
    t = np.linalg.eigvalsh(symmetric(np.swapaxes(np.linalg.solve(L, np.swapaxes(left, -1, -2)), -1, -2)))
    away = np.linalg.solve(L, (one.means - other.means[0]).T)
    series = t**2 * (0.5 - t * (1 / 3 - t * (0.25 - t * (0.2 - t / 6))))
    with np.errstate(divide="ignore"):
        shape = np.where(np.abs(t) < 1e-3, series, t - np.log1p(np.maximum(t, -1.0)))
    return 0.5 * (np.sum(shape, axis=1) + np.sum(away**2, axis=0))
