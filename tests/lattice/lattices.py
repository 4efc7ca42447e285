"""Small lattices of every kind, and integrals over them that share nothing with the library but densities."""

import numpy as np

from sosmarkov.lattice.axis import Axis
from sosmarkov.lattice.beliefs import LatticeBelief
from sosmarkov.lattice.broad import Broad
from sosmarkov.lattice.nodes import Nodes
from sosmarkov.lattice.rows import compile_rows
from sosmarkov.lattice.transition import LatticeTransition

ENDS = ("open", "wrapped", "lower", "upper", "both")
# How far beyond open ends integrals go; broad parts are 0.8 wide.
REACH = 4.2


def rule(axis: Axis, order: int = 6, parts: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre places and weights on half cells, on which splines are polynomials, and far past open ends."""
    h = axis.spacing
    far = int(REACH / h)
    first = -far if axis.lower == -np.inf else 0
    last = axis.count + (far if axis.upper == np.inf else 0)
    edges = axis.origin + h * (np.arange(first * parts, last * parts + 1) / parts - 0.5)
    u, w = np.polynomial.legendre.leggauss(order)
    half = 0.5 * np.diff(edges)
    return (0.5 * (edges[1:] + edges[:-1])[:, None] + half[:, None] * u).ravel(), (half[:, None] * w).ravel()


def grid(axes, order: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """The same for several coordinates."""
    places, weights = zip(*(rule(axis, order) for axis in axes), strict=True)
    x = np.stack([part.ravel() for part in np.meshgrid(*places, indexing="ij")], axis=-1)
    w = weights[0]
    for one in weights[1:]:
        w = np.multiply.outer(w, one)
    return x, w.ravel()


def line(ends: str = "open", count: int = 40, spacing: float = 0.15) -> Nodes:
    return Nodes((Axis(-0.5 * spacing * (count - 1), spacing, count, ends),), np.arange(count))


def broad(nodes: Nodes) -> Broad:
    return Broad(nodes.axes, np.full(nodes.dim, 0.1), np.full(nodes.dim, 0.8))


def belief(nodes: Nodes, seed: int = 0, share: float = 0.1) -> LatticeBelief:
    C = np.random.default_rng(seed).dirichlet(np.ones(len(nodes)))
    return LatticeBelief(nodes, broad(nodes), np.append((1.0 - share) * C, share))


def plane(seed: int = 0) -> Nodes:
    """Some of the places of a plane: an angle, and a coordinate without bounds."""
    axes = Axis(-0.95, 0.1, 20, "wrapped"), Axis(-1.5, 0.15, 21, "open")
    return Nodes(axes, np.random.default_rng(seed).choice(420, 300, replace=False))


def stretched(nodes: Nodes, slope, noise, share: float = 1e-3, drift=None) -> LatticeTransition:
    """x' = slope x + drift + noise on these nodes, with a share of the broad part."""
    d = nodes.dim
    slope, noise = np.reshape(slope, (d, d)), np.reshape(noise, (d, d))
    mean = nodes.points @ slope.T + (0.0 if drift is None else drift)
    each = (len(nodes), d, d)
    rows = compile_rows(nodes, mean, np.broadcast_to(slope, each), np.broadcast_to(noise, each)).matrix.toarray()
    rows *= 1.0 - share
    rows[:, -1] += share
    return LatticeTransition(nodes, rows, broad(nodes))
