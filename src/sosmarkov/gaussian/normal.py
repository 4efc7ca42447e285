"""Probabilities of boxes under multivariate normal densities.

One coordinate: differences of the distribution function from the nearer tail. Two and three: Gauss-Legendre of the
conditional probability, on pieces as narrow as its edges are sharp. More: Genz's separation of variables over shifted
Sobol points, with a standard error. Coordinates that are uncorrelated are told apart before they are counted.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtr, ndtri

# Beyond this many deviations doubles hold no mass.
_FAR = 39.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
# Ends of pieces around an edge, in units of its width.
_AROUND = np.array([-8.0, -4.0, -2.0, 0.0, 2.0, 4.0, 8.0])
_BLOCK = 2048
_SHIFTS, _LOG_POINTS = 12, 13


def between(a: ndarray, b: ndarray) -> ndarray:
    """Phi(b) - Phi(a), zero where a >= b: from the nearer tail, and of narrow intervals by Gauss-Legendre."""
    a, b = np.broadcast_arrays(np.asarray(a, float), np.asarray(b, float))
    flip = a > 0
    low, high = np.where(flip, -b, a), np.where(flip, -a, b)
    found = ndtr(high) - ndtr(low)
    with np.errstate(invalid="ignore", over="ignore"):
        narrow = (high - low) * np.maximum(1.0, np.abs(low)) < 1.0
    if np.any(narrow):
        middle, half = 0.5 * (low + high)[narrow], 0.5 * (high - low)[narrow]
        x = middle[:, None] + half[:, None] * _NODES
        found = np.array(found)
        found[narrow] = half * (_density(x) @ _WEIGHTS)
    return np.where(low < high, found, 0.0)


def boxes(
    lower: Float[ndarray, "n d"], upper: Float[ndarray, "n d"], means: Float[ndarray, "m d"], P: Float[ndarray, "m d d"]
) -> tuple[Float[ndarray, "n m"], float]:
    """P(lower_n < x < upper_n) under N(mean_m, P_m), and the standard error of what was not computed exactly."""
    std = np.sqrt(np.diagonal(P, axis1=1, axis2=2))
    a, b = ((end[:, None] - means) / std for end in (lower, upper))
    R = P / (std[:, :, None] * std[:, None, :])
    empty = np.any(a >= b, axis=-1)
    bounded = np.flatnonzero(np.any(np.isfinite(a) | np.isfinite(b), axis=(0, 1)))
    found, error = np.where(empty, 0.0, 1.0), 0.0
    if not len(bounded) or np.all(empty):
        return found, error
    linked = np.any(R[:, bounded[:, None], bounded] != 0, axis=0)
    count, block_of = connected_components(linked, directed=False)
    for block in range(count):
        chosen = bounded[block_of == block]
        own, unsure = _block(a[..., chosen], b[..., chosen], R[:, chosen[:, None], chosen])
        found, error = found * own, error + unsure
    return np.where(empty, 0.0, found), error


def _block(a: Float[ndarray, "n m k"], b: Float[ndarray, "n m k"], R: Float[ndarray, "m k k"]) -> tuple[ndarray, float]:
    """Of coordinates that hang together, in deviations from their means."""
    count = a.shape[-1]
    if count == 1:
        return between(a[..., 0], b[..., 0]), 0.0
    if count == 2:
        rho = np.broadcast_to(R[:, 0, 1], a.shape[:2]).reshape(-1)
        return pairs(a.reshape(-1, 2), b.reshape(-1, 2), rho).reshape(a.shape[:2]), 0.0
    one = triple if count == 3 else _shifted
    found, errors = np.zeros(a.shape[:2]), np.zeros(a.shape[:2])
    for i, j in np.ndindex(*a.shape[:2]):
        found[i, j], errors[i, j] = one(a[i, j], b[i, j], R[j])
    return found, float(np.max(errors))


def _density(x: ndarray) -> ndarray:
    return np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def _rule(low: ndarray, high: ndarray, centres: ndarray, widths: ndarray) -> tuple[ndarray, ndarray]:
    """Nodes and weights (n, t) of rules from low to high, in pieces around centres (n, c) of these widths."""
    with np.errstate(invalid="ignore", over="ignore"):
        cuts = (centres[..., None] + widths[..., None] * _AROUND).reshape(len(low), -1)
    cuts = np.clip(np.where(np.isfinite(cuts), cuts, 0.0), low[:, None], high[:, None])
    cuts = np.sort(np.concatenate([low[:, None], cuts, high[:, None]], axis=1), axis=1)
    half = 0.5 * np.diff(cuts, axis=1)
    nodes = 0.5 * (cuts[:, 1:] + cuts[:, :-1])[..., None] + half[..., None] * _NODES
    return nodes.reshape(len(low), -1), (half[..., None] * _WEIGHTS).reshape(len(low), -1)


def _ends(a: Any, b: Any) -> tuple[Any, Any, ndarray, ndarray]:
    """What is left of an interval where doubles hold mass, and centres and widths that belong to the density alone."""
    low, high = np.clip(a, -_FAR, _FAR), np.clip(b, -_FAR, _FAR)
    centres = np.stack([np.zeros_like(low), low, high], axis=-1)
    return low, np.maximum(low, high), centres, 1.0 / np.maximum(1.0, np.abs(centres))


def pairs(a: Float[ndarray, "n 2"], b: Float[ndarray, "n 2"], rho: Float[ndarray, " n"]) -> Float[ndarray, " n"]:
    """P(a < z < b) for two standard normals of correlation rho: int phi(x) P(a_2 < z_2 < b_2 | z_1 = x) dx."""
    if len(a) > _BLOCK:
        cut = range(0, len(a), _BLOCK)
        return np.concatenate([pairs(a[i : i + _BLOCK], b[i : i + _BLOCK], rho[i : i + _BLOCK]) for i in cut])
    low, high, centres, widths = _ends(a[:, 0], b[:, 0])
    s = np.sqrt((1.0 - rho) * (1.0 + rho))
    with np.errstate(divide="ignore", invalid="ignore"):
        edges = np.stack([a[:, 1], b[:, 1]], axis=1) / rho[:, None]
        sharp = np.broadcast_to((s / np.abs(rho))[:, None], edges.shape)
    x, w = _rule(low, high, np.concatenate([centres, edges], axis=1), np.concatenate([widths, sharp], axis=1))
    first, last = ((end[:, 1:] - rho[:, None] * x) / s[:, None] for end in (a, b))
    return np.sum(w * _density(x) * between(first, last), axis=1)


def triple(a: Float[ndarray, " 3"], b: Float[ndarray, " 3"], R: Float[ndarray, "3 3"]) -> tuple[float, float]:
    """P(a < z < b) for three: int phi(x) P(the two others | x) dx; also cut where two of their edges meet."""
    order = min(((0, 1, 2), (1, 0, 2), (2, 0, 1)), key=lambda order: abs(_partial(R, *order)))
    (a0, *a12), (b0, *b12), rho = a[list(order)], b[list(order)], _partial(R, *order)
    r = R[order[0], list(order[1:])]
    s = np.sqrt((1.0 - r) * (1.0 + r))
    low, high, centres, widths = _ends(np.array([a0]), np.array([b0]))
    sides = np.array([a12, b12])
    with np.errstate(divide="ignore", invalid="ignore"):
        edges, sharp = (sides / r).reshape(-1), np.tile(s / np.abs(r), 2)
        sign = 1.0 if rho >= 0 else -1.0
        slope = r[0] / s[0] - sign * r[1] / s[1]
        kinks = np.array([one / s[0] - sign * two / s[1] for one, two in product(sides[:, 0], sides[:, 1])]) / slope
        bend = np.full(4, math.sqrt(2.0 * (1.0 - abs(rho))) / abs(slope))
    more = np.concatenate([edges, kinks])[None], np.concatenate([sharp, bend])[None]
    x, w = _rule(low, high, np.concatenate([centres, more[0]], 1), np.concatenate([widths, more[1]], 1))
    weight = (w * _density(x))[0]
    # Pieces without length, and nodes that no double could tell from nothing.
    kept = weight > 1e-40 * np.max(weight, initial=0.0)
    x, weight = x[0][kept], weight[kept]
    with np.errstate(invalid="ignore"):
        first, last = ((np.asarray(end) - r * x[:, None]) / s for end in (a12, b12))
    return float(weight @ pairs(first, last, np.full(len(x), rho))), 0.0


def _partial(R: ndarray, i: int, j: int, k: int) -> float:
    """The correlation of j and k given i."""
    spread = (1.0 - R[i, j]) * (1.0 + R[i, j]) * (1.0 - R[i, k]) * (1.0 + R[i, k])
    return float((R[j, k] - R[i, j] * R[i, k]) / math.sqrt(spread))


def _shifted(a: Float[ndarray, " k"], b: Float[ndarray, " k"], R: Float[ndarray, "k k"]) -> tuple[float, float]:
    """P(a < z < b) for any number, and its standard error over random shifts of the points."""
    from scipy.stats import qmc

    # The narrowest first: what is left to integrate varies less.
    order = np.argsort(between(a, b))
    a, b, L = a[order], b[order], np.linalg.cholesky(R[order[:, None], order])
    points = qmc.Sobol(len(a) - 1, scramble=False).random_base2(_LOG_POINTS)
    rng, found = np.random.default_rng(0), []
    for _ in range(_SHIFTS):
        u = np.abs(2.0 * ((points + rng.random(points.shape[1])) % 1.0) - 1.0)
        y, value = np.zeros((len(u), len(a))), np.ones(len(u))
        for c in range(len(a)):
            away = y[:, :c] @ L[c, :c]
            low, high = (a[c] - away) / L[c, c], (b[c] - away) / L[c, c]
            value = value * between(low, high)
            if c + 1 < len(a):
                y[:, c] = _inside(low, high, u[:, c])
        found.append(np.mean(value))
    return float(np.mean(found)), float(np.std(found, ddof=1) / math.sqrt(_SHIFTS))


def _inside(low: ndarray, high: ndarray, u: ndarray) -> ndarray:
    """The point below which a share u of the mass between low and high lies, from the nearer tail."""
    flip = low > 0
    start, end = np.where(flip, -high, low), np.where(flip, -low, high)
    share = np.where(flip, 1.0 - u, u)
    below = ndtr(start)
    y = np.clip(ndtri(below + share * (ndtr(end) - below)), np.maximum(start, -_FAR), np.minimum(end, _FAR))
    return np.where(flip, -y, y)
