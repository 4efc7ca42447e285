"""A start for states nobody saw: those of the linear-Gaussian process that the readings suggest.

x' = A x + a + N(0, Q), o = C x + c + N(0, R): directions of the past that say most about the future (canonical
correlations) to begin with, expectation-maximisation from there, then one draw of the states given all readings.
Missing readings are left out of every update. The process that is learned from these states need not be linear.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sosmarkov.factor.likelihood import LinearReading

_ROUNDS = 30
# Readings that a start looks at, and how far into past and future.
_MOST = 10_000
_WINDOW = 12
# Variances are kept above this share of a unit, so that every matrix here has an inverse.
_LEAST = 1e-6


class Linear(NamedTuple):
    """The process A (d, d), a (d,), Q (d, d), the sensor C (k, d), c (k,), R (k,), the first state m (d,), P (d, d)."""

    A: np.ndarray
    a: np.ndarray
    Q: np.ndarray
    C: np.ndarray
    c: np.ndarray
    R: np.ndarray
    m: np.ndarray
    P: np.ndarray


def draw_states(readings: np.ndarray, dim: int, known: LinearReading | None, seed: int) -> np.ndarray:
    """States of shape (N, T, dim), drawn given all readings (N, T, k) of each sequence, NaN where missing.

    A known sensor keeps its coordinates.
    """
    rng = np.random.default_rng(seed)
    some = rng.permutation(len(readings))[: max(2, _MOST // readings.shape[1])]
    model = canonical_start(readings[some], dim, known)
    for _ in range(_ROUNDS):
        model = improved(model, readings[some], known is None)
    return smoothed(model, readings, rng).drawn


def canonical_start(readings: np.ndarray, dim: int, known: LinearReading | None) -> Linear:
    """The process of the `dim` directions of past readings that say most about future ones."""
    count, length, k = readings.shape
    window = min(_WINDOW, length // 3)
    if window < 1 or window * k < dim:
        raise ValueError(
            f"Expected sequences of at least {3 * -(-dim // k)} readings to find {dim} coordinates behind {k} numbers"
            f" a reading, got {length}."
        )
    filled = _filled(readings)
    ends = np.arange(window, length - window + 1)
    past = np.stack([filled[:, e - window : e].reshape(count, -1) for e in ends], axis=1)
    future = np.stack([filled[:, e : e + window].reshape(count, -1) for e in ends], axis=1)
    (p, W), (f, V) = (_whitened(block.reshape(-1, window * k)) for block in (past, future))
    U = np.linalg.svd(p.T @ f)[0][:, :dim]
    x = ((past - past.mean(axis=(0, 1))) @ (W @ U)).reshape(count, len(ends), dim)
    now = filled[:, ends - 1]
    C, c, R = _regressed(x.reshape(-1, dim), now.reshape(-1, k))
    if known is not None:
        # Coordinates in which the known sensor reads what this one reads; the others are what it does not see.
        H, offset, std = (np.asarray(part) for part in known)
        seen, hidden = np.linalg.pinv(H), np.linalg.svd(H)[2][np.linalg.matrix_rank(H) :]
        x = x @ (seen @ C + hidden.T @ np.linalg.svd(C)[2][::-1][: len(hidden)]).T + seen @ (c - offset)
        C, c, R = H, offset, std**2
    A, a, Q = _regressed(x[:, :-1].reshape(-1, dim), x[:, 1:].reshape(-1, dim), full=True)
    flat = x.reshape(-1, dim)
    return Linear(A, a, Q, C, c, R, flat.mean(axis=0), np.cov(flat.T).reshape(dim, dim) + _LEAST * np.eye(dim))


def _filled(readings: np.ndarray) -> np.ndarray:
    """Missing readings from their neighbours: for the first guess alone."""
    filled, where = readings.copy(), np.arange(readings.shape[1])
    means = np.nanmean(readings, axis=(0, 1))
    for i in range(readings.shape[0]):
        for c in range(readings.shape[2]):
            there = ~np.isnan(readings[i, :, c])
            filled[i, :, c] = np.interp(where, where[there], readings[i, there, c]) if there.any() else means[c]
    return filled


def _whitened(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centred rows with unit covariance, and the map there."""
    away = block - block.mean(axis=0)
    covariance = away.T @ away / len(away)
    values, vectors = np.linalg.eigh(covariance)
    W = vectors / np.sqrt(values + 1e-4 * values.max())
    return away @ W, W


def _regressed(x: np.ndarray, y: np.ndarray, full: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """S and s of y = S x + s + noise by least squares, with the noise's covariance, or its variances."""
    design = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    slope = np.linalg.lstsq(design, y, rcond=None)[0]
    away = y - design @ slope
    noise = away.T @ away / len(away) + _LEAST * np.eye(y.shape[1])
    return slope[:-1].T, slope[-1], noise if full else np.diag(noise)


class Smoothed(NamedTuple):
    """Means (N, T, d), covariances (N, T, d, d) and those with the next state (N, T - 1, d, d), and one draw each."""

    mean: np.ndarray
    covariance: np.ndarray
    lagged: np.ndarray
    drawn: np.ndarray
    log_evidence: float


def smoothed(model: Linear, readings: np.ndarray, rng: np.random.Generator | None = None) -> Smoothed:
    """Kalman's filter forward, Rauch's smoother and a draw backward, for all sequences at once."""
    count, length, _ = readings.shape
    dim = len(model.a)
    m, P = np.tile(model.m, (count, 1)), np.tile(model.P, (count, 1, 1))
    means, covariances, total = [], [], 0.0
    for k in range(length):
        if k > 0:
            m, P = m @ model.A.T + model.a, model.A @ P @ model.A.T + model.Q
        m, P, log_evidence = _updated(model, m, P, readings[:, k])
        total += log_evidence
        means.append(m)
        covariances.append(P)
    rng = np.random.default_rng(0) if rng is None else rng
    noise = rng.normal(size=(length, count, dim))

    def draw(mean: np.ndarray, covariance: np.ndarray, k: int) -> np.ndarray:
        root = np.linalg.cholesky(covariance + _LEAST * np.eye(dim))
        return mean + np.einsum("nij,nj->ni", root, noise[k])

    drawn, lagged = [draw(m, P, length - 1)], []
    out_m, out_P = [m], [P]
    for k in range(length - 2, -1, -1):
        m, P = means[k], covariances[k]
        ahead = model.A @ P @ model.A.T + model.Q
        J = np.swapaxes(np.linalg.solve(ahead, model.A @ P), 1, 2)
        expected = m @ model.A.T + model.a
        rest = P - J @ ahead @ np.swapaxes(J, 1, 2)
        drawn.append(draw(m + np.einsum("nij,nj->ni", J, drawn[-1] - expected), _symmetric(rest), k))
        lagged.append(out_P[-1] @ np.swapaxes(J, 1, 2))
        out_P.append(_symmetric(P + J @ (out_P[-1] - ahead) @ np.swapaxes(J, 1, 2)))
        out_m.append(m + np.einsum("nij,nj->ni", J, out_m[-1] - expected))
    in_time = [np.stack(part[::-1], axis=1) for part in (out_m, out_P, lagged, drawn)]
    return Smoothed(*in_time, log_evidence=total)


def _updated(model: Linear, m: np.ndarray, P: np.ndarray, o: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """One reading of every sequence, number by number; what is missing changes nothing."""
    total = 0.0
    for row, offset, variance, value in zip(model.C, model.c, model.R, o.T, strict=True):
        there = ~np.isnan(value)
        gain = np.where(there[:, None], P @ row, 0.0)
        S = np.where(there, gain @ row + variance, 1.0)
        away = np.where(there, value - m @ row - offset, 0.0)
        total += float(np.sum(np.where(there, -0.5 * (away**2 / S + np.log(2.0 * np.pi * S)), 0.0)))
        m = m + gain * (away / S)[:, None]
        P = P - gain[:, :, None] * gain[:, None] / S[:, None, None]
    return m, P, total


def _symmetric(P: np.ndarray) -> np.ndarray:
    return 0.5 * (P + np.swapaxes(P, 1, 2))


def improved(model: Linear, readings: np.ndarray, free: bool) -> Linear:
    """One round of expectation-maximisation; the sensor stays as it is unless it is free."""
    found, dim = smoothed(model, readings), len(model.a)
    second = found.covariance + found.mean[..., :, None] * found.mean[..., None, :]
    cross = found.lagged + found.mean[:, 1:, :, None] * found.mean[:, :-1, None, :]
    # Moments of (x, 1): the intercept is one more coordinate.
    before = _with_one(
        second[:, :-1].sum(axis=(0, 1)), found.mean[:, :-1].sum(axis=(0, 1)), cross.shape[0] * cross.shape[1]
    )
    between = np.concatenate([cross.sum(axis=(0, 1)), found.mean[:, 1:].sum(axis=(0, 1))[:, None]], axis=1)
    both = np.linalg.solve(before, between.T).T
    Q = (second[:, 1:].sum(axis=(0, 1)) - both @ between.T) / before[-1, -1]
    first = found.mean[:, 0]
    P = found.covariance[:, 0].mean(axis=0) + np.cov(first.T, bias=True).reshape(dim, dim)
    eye = _LEAST * np.eye(dim)
    model = model._replace(A=both[:, :-1], a=both[:, -1], Q=0.5 * (Q + Q.T) + eye, m=first.mean(axis=0), P=P + eye)
    return _with_sensor(model, readings, found, second) if free else model


def _with_one(second: np.ndarray, first: np.ndarray, count: int) -> np.ndarray:
    return np.block([[second, first[:, None]], [first[None], np.full((1, 1), float(count))]])


def _with_sensor(model: Linear, readings: np.ndarray, found: Smoothed, second: np.ndarray) -> Linear:
    rows = []
    for column in readings.transpose(2, 0, 1):
        there = ~np.isnan(column)
        value, mean = column[there], found.mean[there]
        moments = _with_one(second[there].sum(axis=0), mean.sum(axis=0), int(there.sum()))
        right = np.append(value @ mean, value.sum())
        slope = np.linalg.solve(moments, right)
        variance = (value @ value - 2.0 * slope @ right + slope @ moments @ slope) / there.sum()
        rows.append((*slope, max(variance, 0.0) + _LEAST))
    table = np.asarray(rows)
    return model._replace(C=table[:, :-2], c=table[:, -2], R=table[:, -1])
