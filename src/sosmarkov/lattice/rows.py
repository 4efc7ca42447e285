"""From a mean and a covariance of the next state at each node to rows of a chain whose steps have them exactly.

Splines blur a state by h^2/4 a coordinate where it enters and by as much where it leaves: a row is a distribution on
nodes with covariance Q - H - F H F^T, H = diag(h^2/4), F the slope of the mean at the node. It is a discrete normal
whose mean and covariance are matched after its tails are cut, so that affine steps keep theirs for ever.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from sosmarkov.lattice.nodes import Nodes

# Entries below this share of a row's largest are cut, where no other is asked for.
CUT = 1e-7
# Variances, in squares of a spacing: the least a row gets, and that from which on its covariance is matched.
_LEAST, _FREE = 0.08, 0.15
_PASSES, _MATCHED = 80, 1e-12
# Entries of rows that are made at once.
_BLOCK = 3_000_000


class Rows(NamedTuple):
    """Rows of a chain.

    Attributes:
        matrix: Shape (n, n + 1), each row with a sum of one; the last column is what leaves the nodes.
        narrow: Whose noise is too narrow for the spacing, shape (n,): these rows are wider than asked for.
        left: The share of each that leaves the nodes, shape (n,).
    """

    matrix: sp.csr_array
    narrow: Bool[np.ndarray, " n"]
    left: Float[np.ndarray, " n"]


def inner_covariance(nodes: Nodes, slope: Float[np.ndarray, "n d d"], noise: Float[np.ndarray, "n d d"]) -> np.ndarray:
    """Q - H - F H F^T in squares of a spacing."""
    h = nodes.spacing
    blur = noise - np.diag(h**2 / 4.0) - np.einsum("nab,b,ncb->nac", slope, h**2 / 4.0, slope)
    return blur / (h[:, None] * h)


def too_narrow(nodes: Nodes, slope: Float[np.ndarray, "n d d"], noise: Float[np.ndarray, "n d d"]) -> np.ndarray:
    """Of which steps the noise is too narrow for the spacing of some nodes."""
    return np.linalg.eigvalsh(inner_covariance(nodes, slope, noise))[:, 0] < _FREE


class Entries(NamedTuple):
    """Shares of rows, wherever they fall.

    Attributes:
        rows: Of each entry, shape (k,).
        cells: The place in the box of all axes it falls on, flat; -1 beyond the box.
        shares: Shape (k,); those of a row add up to one.
        narrow: Of each row, whether its noise is too narrow for the spacing, shape (n,).
    """

    rows: Int[np.ndarray, " k"]
    cells: Int[np.ndarray, " k"]
    shares: Float[np.ndarray, " k"]
    narrow: Bool[np.ndarray, " n"]

    def matrix(self, nodes: Nodes) -> sp.csr_array:
        """As rows of a chain on nodes; what falls on no node is in the last column."""
        to = np.where(self.cells < 0, -1, nodes.member[self.cells])
        columns, shape = np.where(to < 0, len(nodes), to), (len(self.narrow), len(nodes) + 1)
        found = sp.coo_array((self.shares, (self.rows, columns)), shape).tocsr()
        found.sum_duplicates()
        found.data /= np.repeat(np.asarray(found.sum(axis=1)).ravel(), np.diff(found.indptr))
        return found


def compile_rows(
    nodes: Nodes,
    mean: Float[np.ndarray, "n d"],
    slope: Float[np.ndarray, "n d d"],
    noise: Float[np.ndarray, "n d d"],
    cut: float = CUT,
) -> Rows:
    """The rows of a step with these means, slopes and covariances at the nodes, in the coordinates of the nodes.

    Entries below `cut` of a row's largest are left out before its mean and covariance are matched.
    """
    found = compile_entries(nodes, mean, slope, noise, cut)
    matrix = found.matrix(nodes)
    return Rows(matrix, found.narrow, matrix[:, [len(nodes)]].toarray().ravel())


def compile_entries(
    nodes: Nodes,
    mean: Float[np.ndarray, "n d"],
    slope: Float[np.ndarray, "n d d"],
    noise: Float[np.ndarray, "n d d"],
    cut: float = CUT,
) -> Entries:
    """The same, whichever places are nodes: for rows that are made before that is known."""
    wanted = inner_covariance(nodes, slope, noise)
    values, vectors = np.linalg.eigh(wanted)
    narrow = values[:, 0] < _LEAST
    # No row can be narrower than a node: what is too narrow is as narrow as it may be, and counted.
    wide = np.einsum("nab,nb,ncb->nac", vectors, np.maximum(values, _LEAST), vectors)
    origin = np.array([axis.origin for axis in nodes.axes])
    u = (mean - origin) / nodes.spacing
    nearest = np.rint(u).astype(np.int64)
    far = np.sqrt(-2.0 * np.log(cut))
    reach = np.ceil(far * np.sqrt(np.einsum("naa->na", wide)) + 0.5).astype(np.int64)
    order = np.lexsort(reach.T)
    parts, missed = [], np.zeros(len(nodes), dtype=bool)
    for chosen in _blocks(order, reach):
        window = _window(reach[chosen].max(axis=0), wide[chosen], far)
        q, matched = discrete_normals(window, (u - nearest)[chosen], wide[chosen], cut)
        missed[chosen] = ~matched
        parts.append(_entries(nodes, chosen, nearest[chosen], window, q))
    rows, cells, shares = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Entries(rows, cells, shares, narrow | missed)


def _blocks(order: Int[np.ndarray, " n"], reach: Int[np.ndarray, "n d"]) -> list[np.ndarray]:
    """Rows that reach about as far, as many at once as memory has room for."""
    found, begin = [], 0
    while begin < len(order):
        size = np.prod(2.0 * reach[order[begin]] + 1.0)
        end = begin + 1
        while end < len(order):
            most = np.maximum(reach[order[begin]], reach[order[end]])
            whole = np.prod(2.0 * most + 1.0)
            if whole > 1.5 * size or whole * (end + 1 - begin) > _BLOCK:
                break
            end += 1
        found.append(order[begin:end])
        begin = end
    return found


def _window(
    reach: Int[np.ndarray, " d"], covariances: Float[np.ndarray, "b d d"], far: float
) -> Int[np.ndarray, "k d"]:
    """Steps from the nearest node that any of the rows can reach."""
    steps = np.array(list(product(*[range(-r, r + 1) for r in reach])), dtype=np.int64).reshape(-1, len(reach))
    # In the axes of their mean each covariance lies below a diagonal one: its rows' sums of sizes.
    _, vectors = np.linalg.eigh(np.mean(covariances, axis=0))
    most = np.max(np.sum(np.abs(vectors.T @ covariances @ vectors), axis=2), axis=0)
    away = np.maximum(np.abs(steps @ vectors) - 0.5 * np.sqrt(len(reach)), 0.0)
    return steps[np.sum(away**2 / most, axis=1) <= far**2]


def discrete_normals(
    window: Int[np.ndarray, "k d"],
    mean: Float[np.ndarray, "b d"],
    covariance: Float[np.ndarray, "b d d"],
    cut: float = CUT,
) -> tuple[Float[np.ndarray, "b k"], np.ndarray]:
    """Distributions on the steps of a window with these means and covariances, and whether both were matched.

    q ~ exp(-(k - a)^T V^(-1) (k - a) / 2), with a and V moved by what is missing until nothing is: for variances above
    0.3 a normal on whole numbers misses them by little, and each pass by less. Much narrower ones, whose covariance
    whole numbers cannot have wherever the mean lies, keep V and match the mean.
    """
    centre, shape = mean.copy(), covariance.copy()
    factor = np.linalg.cholesky(covariance)
    free = np.linalg.eigvalsh(covariance)[:, 0] >= _FREE
    kept = np.ones((len(mean), len(window)), dtype=bool)
    q, matched = np.zeros((len(mean), len(window))), np.zeros(len(mean), dtype=bool)
    steps = window.astype(float)
    # k and the products k_a k_b in one table, so that all moments are one product.
    table = np.concatenate([steps, (steps[:, :, None] * steps[:, None]).reshape(len(steps), -1)], axis=1)
    active, dim = np.arange(len(mean)), mean.shape[1]
    for one in range(_PASSES):
        weights = _normal(table, centre[active], shape[active], kept[active])
        if one == 0:
            kept = weights > cut * weights.max(axis=1, keepdims=True)
            weights *= kept
        weights /= weights.sum(axis=1, keepdims=True)
        q[active] = weights
        found = weights @ table
        middle = found[:, :dim]
        spread = found[:, dim:].reshape(-1, dim, dim) - middle[:, :, None] * middle[:, None]
        away = np.max(np.abs(middle - mean[active]), axis=1)
        off = np.where(free[active], np.max(np.abs(spread - covariance[active]), axis=(1, 2)), 0.0)
        done = np.maximum(away, off) < _MATCHED
        matched[active] = done & free[active]
        # Tilting by the centre moves the mean by spread V^(-1); never by more than a spacing at once.
        V = shape[active]
        # For the direction alone: a row of one entry has no spread to divide by.
        wide = spread + 1e-6 * np.eye(dim)
        move = np.einsum("bac,bc->ba", V, np.linalg.solve(wide, (mean[active] - middle)[..., None])[..., 0])
        centre[active] += move / np.maximum(np.max(np.abs(move), axis=1, keepdims=True), 1.0)
        # V <- T V T^T with T taking the covariance that was found to the one that is wanted: positive definite always.
        shaped = free[active] & (np.linalg.eigvalsh(spread)[:, 0] > 1e-3)
        T = factor[active[shaped]] @ np.linalg.inv(np.linalg.cholesky(spread[shaped]))
        shape[active[shaped]] = T @ V[shaped] @ np.swapaxes(T, 1, 2)
        active = active[~done]
        if len(active) == 0:
            break
    return q, matched


def _normal(table: np.ndarray, centre: np.ndarray, shape: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """exp(-(k - a)^T P (k - a) / 2), P = V^(-1), of the steps that are kept, scaled to a largest of one."""
    P = np.linalg.inv(shape)
    linear = np.einsum("bcd,bd->bc", P, centre)
    # The exponent is linear in the table's columns.
    coefficients = np.concatenate([linear, -0.5 * P.reshape(len(P), -1)], axis=1)
    exponent = np.where(kept, coefficients @ table.T, -np.inf)
    return np.exp(exponent - exponent.max(axis=1, keepdims=True))


def _entries(
    nodes: Nodes, rows: np.ndarray, nearest: np.ndarray, window: np.ndarray, q: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, places and shares of what is not zero; -1 for places beyond the box."""
    i, k = np.nonzero(q)
    flat, inside = np.zeros(len(i), dtype=np.int64), np.ones(len(i), dtype=bool)
    for c, axis in enumerate(nodes.axes):
        at = axis.fold(nearest[i, c] + window[k, c])
        inside &= (at >= 0) & (at < axis.count)
        flat = flat * axis.count + np.clip(at, 0, axis.count - 1)
    return rows[i], np.where(inside, flat, -1), q[i, k]
