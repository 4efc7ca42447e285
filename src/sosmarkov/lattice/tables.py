"""Integrals along one axis: of two splines, or of a spline and the broad part, over a box or under a likelihood."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from sosmarkov.contracts.reader import LineLikelihood
from sosmarkov.lattice import splines
from sosmarkov.lattice.axis import Axis
from sosmarkov.lattice.broad import Broad

# Gauss-Legendre order on a panel, and by how much the logarithm of a likelihood may change on one for it to be good to
# rounding; panels this far below the most important one, in logarithms, are left as they are.
_ORDER, _SWING, _FAINT = 16, 8.0, 50.0
_HALVINGS = 60
# How far the broad part reaches, in its own widths.
_REACH = 12.0


class Seen(NamedTuple):
    """What gates of one axis see, times exp(log_scale).

    Attributes:
        table: int B_(j + s) D_j l, shape (n, 5).
        broad: int B_i t l, shape (n,).
        log_scale: A logarithm.
    """

    table: Float[np.ndarray, "n 5"]
    broad: Float[np.ndarray, " n"]
    log_scale: float


@lru_cache(maxsize=256)
def plain(axis: Axis, broad: Broad) -> Seen:
    """With nothing between: the five taps."""
    return Seen(np.tile(splines.TAPS, (axis.count, 1)), broad.seen(0), 0.0)


def over_box(axis: Axis, broad: Broad, lower: float, upper: float) -> Seen:
    """Over lower < x < upper: on the part of each cell inside both splines are one polynomial."""
    cells, (places, weights) = axis.cells(), splines.cell_rule(8)
    table, mass = np.zeros((axis.count, 5)), np.zeros(axis.count)
    for low, high in axis.pieces(np.asarray(lower), np.asarray(upper)):
        if not low < high:
            continue
        left = np.clip((low - axis.origin) / axis.spacing - cells, -0.5, 0.5)
        right = np.clip((high - axis.origin) / axis.spacing - cells, -0.5, 0.5)
        t = 0.5 * (left + right)[:, None] + (right - left)[:, None] * places
        w = axis.spacing * (right - left)[:, None] * weights
        cell = np.broadcast_to(cells[:, None], t.shape).reshape(-1)
        table += taps(axis, cell, t.reshape(-1), w.reshape(-1))
        x = axis.origin + axis.spacing * (cell + t.reshape(-1))
        mass += gates(axis, cell, t.reshape(-1), w.reshape(-1) * np.exp(broad.log_line(0, x)))
        first, last = (axis.origin + axis.spacing * (cells[end] + side) for end, side in ((0, -0.5), (-1, 0.5)))
        mass[0] += broad.share(0, low, np.minimum(first, high)) if low < first else 0.0
        mass[-1] += broad.share(0, np.maximum(last, low), high) if high > last else 0.0
    return Seen(table, mass, 0.0)


def under(axis: Axis, broad: Broad, line: LineLikelihood, held: Float[np.ndarray, " n"], e: float) -> Seen:
    """Under a likelihood, for a belief with these shares of nodes and of the broad part on this axis.

    Cells are cut at breaks and halved until the likelihood changes by little on each; what is fainter than rounding is
    not looked at. The scale is that of where belief and likelihood meet, so that no reading is too far off.
    """
    cells = axis.cells()
    edges = axis.origin + axis.spacing * (np.append(cells, cells[-1] + 1) - 0.5)
    below, above = tails(axis, broad, line, edges) if e > 0 else [np.zeros(0), np.zeros(0)]
    whole = np.concatenate([below, edges, above])
    outer = np.concatenate([np.full(len(below), -1), np.arange(len(cells)), np.full(len(above), len(cells))])
    cuts = np.unique(np.concatenate([whole, line.breaks[(line.breaks > whole[0]) & (line.breaks < whole[-1])]]))
    low, high = cuts[:-1], cuts[1:]
    cell = outer[np.searchsorted(whole, 0.5 * (low + high), side="right") - 1]
    inner = axis.around(held) @ np.array([1.0, 4.0, 1.0]) / 6.0
    with np.errstate(divide="ignore"):
        log_e = np.log(e) if e > 0 else -np.inf
        log_held = np.logaddexp(np.log(inner), log_e + np.log(broad.share(0, edges[:-1], edges[1:])))
    log_held = np.concatenate([log_held, [log_e, log_e]])
    low, high, cell, log_scale = _halved(low, high, cell, log_held, broad, line)
    x, w = _rule(low, high)
    outside = (cell < 0) | (cell == len(cells))
    # Where there is no mass a likelihood may be larger than doubles can say.
    there = log_held[cell] > -np.inf
    values = np.zeros(x.shape)
    values[there] = w[there] * np.exp(line.log(x[there].ravel()).reshape(-1, _ORDER) - log_scale)
    k = np.broadcast_to(cells[np.where(outside, 0, cell)][:, None], x.shape)[~outside].ravel()
    t = (x[~outside].ravel() - axis.origin) / axis.spacing - k
    table = taps(axis, k, t, values[~outside].ravel())
    if not e > 0:
        return Seen(table, np.zeros(axis.count), log_scale)
    density = np.exp(broad.log_line(0, x.ravel())).reshape(x.shape)
    mass = gates(axis, k, t, (values * density)[~outside].ravel())
    mass[0] += np.sum((values * density)[cell < 0])
    mass[-1] += np.sum((values * density)[cell == len(cells)])
    return Seen(table, mass, log_scale)


def tails(axis: Axis, broad: Broad, line: LineLikelihood, edges: np.ndarray) -> list[np.ndarray]:
    """Ends of panels past open ends, ever longer ones, as far as the broad part and the likelihood have a say."""
    middle, _ = broad.middle(0)
    reach = _REACH * broad.width[0]
    known = line.breaks[np.isfinite(line.breaks)]
    first = min([middle - reach, *(known - axis.spacing)]) if axis.lower == -np.inf else np.inf
    last = max([middle + reach, *(known + axis.spacing)]) if axis.upper == np.inf else -np.inf
    steps = axis.spacing * np.cumsum(2.0 ** np.arange(200))
    below = edges[0] - steps[: int(np.sum(edges[0] - steps > first)) + 1] if first < edges[0] else np.zeros(0)
    above = edges[-1] + steps[: int(np.sum(edges[-1] + steps < last)) + 1] if last > edges[-1] else np.zeros(0)
    return [below[::-1], above]


def _halved(
    low: np.ndarray, high: np.ndarray, cell: np.ndarray, log_held: np.ndarray, broad: Broad, line: LineLikelihood
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Panels, and the logarithm of the likelihood where most of the product is."""
    best, log_scale = -np.inf, 0.0
    done: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for _ in range(_HALVINGS):
        # Jumps are at the ends of panels: looked at from just inside.
        u = np.array([1e-9, 0.25, 0.5, 0.75, 1.0 - 1e-9])
        x = low[:, None] + (high - low)[:, None] * u
        values = line.log(x.ravel()).reshape(x.shape)
        tail = (cell < 0) | (cell == len(log_held) - 2)
        if np.any(tail):
            values[tail] += broad.log_line(0, x[tail].ravel()).reshape(-1, len(u))
        with np.errstate(invalid="ignore"):
            top, swing = np.max(values, axis=1), np.max(values, axis=1) - np.min(values, axis=1)
        score = top + log_held[cell]
        if len(score) and np.max(score) > best:
            best = float(np.max(score))
            log_scale = float(top[np.argmax(score)])
        go_on = (
            (swing > _SWING) & (score > best - _FAINT) & (high - low > 1e-13 * np.maximum(np.abs(low), np.abs(high)))
        )
        done.append((low[~go_on], high[~go_on], cell[~go_on]))
        if not np.any(go_on):
            break
        left, right, own = low[go_on], high[go_on], cell[go_on]
        middle = 0.5 * (left + right)
        low, high = np.concatenate([left, middle]), np.concatenate([middle, right])
        cell = np.concatenate([own, own])
    else:
        done.append((low, high, cell))
    low, high, cell = (np.concatenate(parts) for parts in zip(*done, strict=True))
    return low, high, cell, log_scale


def _rule(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places and weights of all panels."""
    places, weights = splines.cell_rule(_ORDER)
    return 0.5 * (low + high)[:, None] + (high - low)[:, None] * places, (high - low)[:, None] * weights


def taps(
    axis: Axis, cell: Int[np.ndarray, " m"], t: Float[np.ndarray, " m"], w: Float[np.ndarray, " m"]
) -> Float[np.ndarray, "n 5"]:
    """sum_q w_q B_(j + s) D_j at places t_q, from -1/2 to 1/2, of cells."""
    near = splines.near(t)
    found = np.zeros(axis.count * 5)
    for a in range(3):
        raw = cell + a - 1
        j = axis.fold(raw)
        there = (j >= 0) & (j < axis.count)
        # Seen in the mirror, the taps change sides.
        mirrored = (raw < 0) | (raw >= axis.count) if axis.ends != "wrapped" else np.zeros(len(raw), dtype=bool)
        for b in range(3):
            s = np.where(mirrored, a - b, b - a)
            value = (w * near[:, a] * near[:, b] / axis.spacing)[there]
            found += np.bincount((j * 5 + s + 2)[there], value, axis.count * 5)
    return found.reshape(axis.count, 5)


def gates(
    axis: Axis, cell: Int[np.ndarray, " m"], t: Float[np.ndarray, " m"], w: Float[np.ndarray, " m"]
) -> Float[np.ndarray, " n"]:
    """sum_q w_q B_i at such places; the outermost places of an open end stand for all beyond."""
    near, found = splines.near(t), np.zeros(axis.count)
    for a in range(3):
        to = np.clip(axis.fold(cell + a - 1), 0, axis.count - 1)
        found += np.bincount(to, w * near[:, a], axis.count)
    return found
