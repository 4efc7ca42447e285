"""What data say of one step near a state: a linear step, local regressions of what it leaves over, and their noise."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy.spatial import KDTree

# Entries of neighbourhoods that are solved at once.
_BLOCK = 4_000_000
# Rows behind the pooled covariance that each local one is shrunk towards.
_POOLED = 20.0


class LinearStep(NamedTuple):
    """x' = offset + slope z + noise, by weighted least squares; z is the state, and inputs where there are any.

    Attributes:
        offset: Shape (d,).
        slope: Shape (d, q).
        noise: Covariance of what is left over, shape (d, d).
    """

    offset: Float[np.ndarray, " d"]
    slope: Float[np.ndarray, "d q"]
    noise: Float[np.ndarray, "d d"]

    def ahead(self, z: Float[np.ndarray, "n q"]) -> Float[np.ndarray, "n d"]:
        """E[x' | z]."""
        return self.offset + z @ self.slope.T


def linear_step(
    z: Float[np.ndarray, "n q"], x_next: Float[np.ndarray, "n d"], weight: Float[np.ndarray, " n"]
) -> LinearStep:
    """By least squares, with the degrees of freedom that are left."""
    root = np.sqrt(weight)[:, None]
    design = np.column_stack([np.ones(len(z)), z])
    found = np.linalg.lstsq(design * root, x_next * root, rcond=None)[0]
    left = x_next - design @ found
    noise = (left * weight[:, None]).T @ left / np.sum(weight)
    rows = effective_rows(weight)
    return LinearStep(found[0], found[1:].T, noise * rows / max(rows - design.shape[1], 1.0))


def effective_rows(weight: Float[np.ndarray, " n"]) -> float:
    """As many rows as equal weights would have to be for the same information."""
    return float(np.sum(weight) ** 2 / np.sum(weight**2))


class Neighbours:
    """The data around a place, nearer ones counting for more.

    Args:
        z: Where they are, shape (N, q).
        weight: Shape (N,).
    """

    def __init__(self, z: Float[np.ndarray, "n q"], weight: Float[np.ndarray, " n"]):
        self.z, self.weight = z, weight
        spread = np.std(z, axis=0)
        self.scale = np.where(spread > 0, spread, 1.0)
        self.tree = KDTree(z / self.scale)
        # How far apart neighbours are where data are: beyond some times that, there are none to speak of. States that
        # repeat, as rounded ones do, count once.
        distinct = np.unique(z, axis=0) / self.scale
        some = distinct[:: max(1, len(distinct) // 2000)]
        distance = KDTree(distinct).query(some, min(8, len(distinct)))[0].reshape(len(some), -1)
        self.apart = float(np.quantile(distance[:, -1], 0.9))

    def around(
        self, places: Float[np.ndarray, "n q"], count: int
    ) -> tuple[np.ndarray, np.ndarray, Float[np.ndarray, "n k"], Float[np.ndarray, "n 1"]]:
        """Distances and rows of the nearest, tricube weights, and how far the farthest is, in deviations."""
        k = min(count, len(self.z))
        distance, index = (a.reshape(len(places), k) for a in self.tree.query(places / self.scale, k))
        # Where all of them are at the place itself any reach will do.
        reach = np.where(distance[:, -1:] > 0, distance[:, -1:] * 1.001, 1.0)
        return distance, index, (1.0 - (distance / reach) ** 3) ** 3 * self.weight[index], reach

    def nearness(self, distance: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """From one where the nearest state is as near as among data to zero far outside, smoothly."""
        return np.exp(-0.5 * (np.maximum(distance / self.apart - 2.0, 0.0) / 3.0) ** 2)

    def blocks(self, count: int, neighbours: int, width: int) -> list[slice]:
        """Places in portions whose neighbourhoods fit into memory."""
        size = max(1, _BLOCK // (min(neighbours, len(self.z)) * width))
        return [slice(begin, begin + size) for begin in range(0, count, size)]


class Steps(NamedTuple):
    """One step from each of some places.

    Attributes:
        mean: E[x' | x], shape (n, d).
        slope: Its derivative by the state, shape (n, d, d).
        noise: Cov[x' | x], shape (n, d, d).
        near: How much of the data's own there is in it, from zero (the linear step's alone) to one, shape (n,).
    """

    mean: Float[np.ndarray, "n d"]
    slope: Float[np.ndarray, "n d d"]
    noise: Float[np.ndarray, "n d d"]
    near: Float[np.ndarray, " n"]


@runtime_checkable
class Stepper(Protocol):
    """What says one step from anywhere: learned from data, or known."""

    def steps(self, x: Float[np.ndarray, "n d"], u: Float[np.ndarray, " e"] | None = None) -> Steps:
        """One step from each state, under an input or at a time where there are such."""
        ...


def local_means(
    near: Neighbours, left: Float[np.ndarray, "n d"], places: Float[np.ndarray, "m q"], count: int, ridge: float
) -> tuple[Float[np.ndarray, "m d"], Float[np.ndarray, "m d q"]]:
    """Local linear regressions of what a linear step leaves over, and their slopes; `ridge` rows pull them to it."""
    q = places.shape[1]
    values, slopes = np.empty((len(places), left.shape[1])), np.empty((len(places), left.shape[1], q))
    for some in near.blocks(len(places), count, q + 2):
        distance, index, weight, reach = near.around(places[some], count)
        away = (near.z[index] - places[some][:, None]) / near.scale / reach[..., None]
        design = np.concatenate([np.ones((*index.shape, 1)), away], axis=-1)
        weighed = np.swapaxes(weight[..., None] * design, 1, 2)
        found = np.linalg.solve(weighed @ design + ridge * np.eye(q + 1), weighed @ left[index])
        fade = near.nearness(distance[:, 0])
        values[some] = fade[:, None] * found[:, 0]
        slopes[some] = fade[:, None, None] * np.swapaxes(found[:, 1:], 1, 2) / near.scale / reach[..., None]
    return values, slopes


def local_noise(
    near: Neighbours,
    off: Float[np.ndarray, "n d"],
    places: Float[np.ndarray, "m q"],
    count: int,
    pooled: Float[np.ndarray, "d d"],
    far: Float[np.ndarray, "d d"],
) -> tuple[Float[np.ndarray, "m d d"], Float[np.ndarray, " m"]]:
    """Covariances of what is left over around places, shrunk to the pooled one, to `far` where data end; nearness."""
    d = off.shape[1]
    found, nearness = np.empty((len(places), d, d)), np.empty(len(places))
    for some in near.blocks(len(places), count, d + 2):
        distance, index, weight, _ = near.around(places[some], count)
        around = np.swapaxes(off[index] * weight[..., None], 1, 2) @ off[index] + _POOLED * pooled
        around = around / (np.sum(weight, axis=1) + _POOLED)[:, None, None]
        fade = near.nearness(distance[:, 0])
        found[some] = fade[:, None, None] * around + (1.0 - fade)[:, None, None] * far
        nearness[some] = fade
    return found, nearness


def small_noise(near: Neighbours, left: Float[np.ndarray, "n d"], count: int = 1500) -> Float[np.ndarray, "m d d"]:
    """What local regressions on few neighbours leave over, at a sample of states: the noise, where data are dense."""
    z, q = near.z, near.z.shape[1]
    k = min(20 + 8 * q, len(z) // 2)
    places = z[:: max(1, len(z) // count)]
    _, index, _, _ = near.around(places, k)
    design = np.concatenate([np.ones((*index.shape, 1)), (z[index] - places[:, None]) / near.scale], axis=-1)
    transposed = np.swapaxes(design, 1, 2)
    off = left[index] - design @ (np.linalg.pinv(transposed @ design) @ (transposed @ left[index]))
    return np.swapaxes(off, 1, 2) @ off / max(k - q - 1, 1)


def log_normal(off: Float[np.ndarray, "n d"], covariance: Float[np.ndarray, "n d d"]) -> Float[np.ndarray, " n"]:
    """log N(off; 0, covariance)."""
    factor = np.linalg.cholesky(covariance)
    z = np.linalg.solve(factor, off[..., None])[..., 0]
    log_det = np.sum(np.log(np.diagonal(factor, axis1=1, axis2=2)), axis=1)
    return -0.5 * np.sum(z**2, axis=1) - log_det - 0.5 * off.shape[1] * np.log(2.0 * np.pi)
