"""`from_dynamics`: a lattice process of known dynamics, without data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.known import KnownState
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.data.history import History
from sosmarkov.gaussian.beliefs import GaussianBelief
from sosmarkov.lattice.axis import Axis
from sosmarkov.lattice.beliefs import LatticeBelief
from sosmarkov.lattice.broad import Broad
from sosmarkov.lattice.nodes import Nodes
from sosmarkov.lattice.rows import Entries, compile_entries, too_narrow
from sosmarkov.lattice.transition import LatticeTransition
from sosmarkov.learning.lattice.fit import LatticeWarning
from sosmarkov.learning.lattice.known import Known, box_of, noise_of
from sosmarkov.learning.lattice.place import axes_for, spacing_for
from sosmarkov.learning.lattice.reach import MOST_PLACES, reached
from sosmarkov.learning.progress import Progress
from sosmarkov.learning.rooms import rooms_of
from sosmarkov.process.process import MarkovProcess

# Places at which steps are looked at for the spacing, and rows wider than the noise that are passed over in silence.
_LOOK, _NARROW = 800, 0.01
_MOST_NODES, _BACKGROUND = 100_000, 1e-6
# Deviations beyond which a Gaussian start has next to nothing.
_FAR = 7.0


def from_dynamics(
    f: Callable[[Any], Any],
    noise: Any,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    initial: Any = None,
    spacing: ArrayLike | None = None,
    nodes: int = _MOST_NODES,
    background: float = _BACKGROUND,
    circular: Sequence[Any] | Mapping[Any, float] | None = None,
    bounds: Mapping[Any, Any] | None = None,
    columns: Sequence[str] | None = None,
    progress: bool = True,
) -> MarkovProcess:
    """The process x' = f(x) + noise on a lattice: exact beliefs of dynamics that are known.

    Affine steps keep means and covariances exactly; others are seen through splines a spacing wide, means to the fourth
    order of it. Nodes are all places of the box where these are few enough, else those that beliefs reach from
    `initial`.

    Args:
        f: The next state without noise, from states (N, d) to (N, d): a simulator, a network, anything callable whose
            result NumPy takes as an array. Of angles any turn will do.
        noise: A covariance (d, d); a function of states (N, d) that gives (N, d, d); or a mixture of normals, a list of
            (weight, shift (d,), covariance), each covariance either of these.
        lower: Where states stay, nearly always: one end of a box. Nodes go a few spacings further.
        upper: The other end.
        initial: Where it starts: a known state (or one by names), a pair (mean, covariance), or a belief.
        spacing: From node to node, one number or one a coordinate; None: the widest that leaves rows their noise.
        nodes: At most so many.
        background: Share of a broad density in every row, so that what no row speaks of has a density; what leaves the
            nodes goes there as well (`process.transition.report` has the most of any row, "left", and the share of rows
            of which more than half does, "leaving"). 0 switches it off.
        circular: Coordinates that are angles and wrap round, as for `fit`.
        bounds: Of coordinates that have some, as for `fit`.
        columns: Names of the coordinates.
        progress: Whether to show on a terminal how many rows are made.

    Returns:
        The process; `history.chosen` has the spacing, the nodes and how many rows are wider than the noise. Where those
        are more than one in a hundred, a `LatticeWarning` says so.
    """
    low, high = box_of(lower, upper)
    names = checks.columns(columns, len(low))
    rooms = rooms_of(circular, bounds, np.stack([low, high]), names)
    start, most = _start(initial, names), checks.count(nodes, "nodes", 1)
    if not 0.0 <= background < 1.0:
        raise ValueError(f"Expected a background between 0 and 1, got {background!r}.")
    plan = _planned(Known(f, noise_of(noise, len(low)), rooms, 1e-3 * (high - low)), low, high, spacing)
    _require_start(start, plan.axes)
    bar = Progress(progress)
    try:
        found, parts = _made(plan, start, most, bar)
    finally:
        bar.close()
    broad = Broad(found.axes, 0.5 * (low + high), 0.5 * (high - low))
    transition = _chain(found, parts, plan.known, broad, background)
    chosen = {"form": "lattice", "lattice": "known dynamics", "spacing": plan.spacing.tolist(), "nodes": len(found)}
    chosen |= transition.report | {"background": float(background)}
    placed = _placed(start, found, broad)
    return MarkovProcess(transition, placed, history=History((), chosen), columns=names)


class _Plan(NamedTuple):
    """A lattice before any row is made.

    Attributes:
        known: The dynamics, with differences over a spacing.
        axes: Of the box, and what splines reach beyond it.
        ends: Of the box.
        look: Places at which steps were looked at.
    """

    known: Known
    axes: tuple[Axis, ...]
    ends: tuple[np.ndarray, np.ndarray]
    look: np.ndarray

    @property
    def spacing(self) -> Float[np.ndarray, " d"]:
        """Of each axis."""
        return np.array([axis.spacing for axis in self.axes])

    @property
    def places(self) -> int:
        """In the box."""
        return int(np.prod([float(axis.count) for axis in self.axes]))

    def wider(self, times: float) -> tuple[Axis, ...]:
        """Axes of the same box with the spacing so many times as wide."""
        return tuple(axes_for(*self.ends, times * self.spacing, self.known.rooms))


def _planned(known: Known, low: np.ndarray, high: np.ndarray, spacing: ArrayLike | None) -> _Plan:
    """The spacing that was asked for, or the widest that leaves each part of the noise what is its own."""
    whole = [room.ends in ("wrapped", "both") for room in known.rooms]
    low, high = (
        np.where(whole, [r.lower for r in known.rooms], low),
        np.where(whole, [r.upper for r in known.rooms], high),
    )
    look = np.random.default_rng(0).uniform(low, high, (_LOOK, len(low)))
    if spacing is not None:
        h = np.array(np.broadcast_to(np.asarray(checks.as_float(spacing, "spacing")), low.shape))
        if not (np.all(np.isfinite(h)) and np.all(h > 0)):
            raise ValueError(f"Expected a spacing above zero, one number or one a coordinate, got {h.tolist()}.")
    else:
        # Half of what a node sees is not known yet: half a deviation of the noise is about that.
        known = known.over(0.5 * known.deviations(look))
        # A lattice closer than each part needs serves all of them.
        h = np.min([spacing_for(known.of(k), look, [None]) for k in range(len(known.parts))], axis=0)
    axes = tuple(axes_for(low, high, h, known.rooms))
    _require_inside(known, look, axes)
    return _Plan(known.over(0.5 * np.array([axis.spacing for axis in axes])), axes, (low, high), look)


def _within(axis: Axis, x: Any) -> Any:
    """Whether states lie among the nodes of an axis, and within its bounds."""
    u = (x - axis.origin) / axis.spacing
    return (axis.ends == "wrapped") | ((u >= -0.5) & (u <= axis.count - 0.5))


def _require_inside(known: Known, look: np.ndarray, axes: Sequence[Axis]) -> None:
    """Refuse steps that lead out of the box, or past its bounds, from everywhere."""
    x = known.values(look)
    inside = np.zeros(len(x), dtype=bool)
    for part in known.parts:
        each = zip(axes, (x + part.shift).T, strict=True)
        inside |= np.all([_within(axis, y) for axis, y in each], axis=0)
    if not np.any(inside):
        raise ValueError(
            f"Expected steps that stay in the box, got f(x) beyond it from all of {len(x)} places in it, such as"
            f" {x[0].tolist()} from {look[0].tolist()}. Give lower and upper around the states the process visits."
        )


def _made(plan: _Plan, start: Belief, most: int, bar: Progress) -> tuple[Nodes, list[Entries]]:
    """All places of the box, or those that beliefs reach, and rows from them for each part of the noise."""
    weights = [part.weight for part in plan.known.parts]

    made = 0

    def rows(some: Nodes) -> list[Entries]:
        nonlocal made
        found = [compile_entries(some, step.mean, step.slope, step.noise) for step in plan.known.each(some.points)]
        made += len(some)
        bar.count("rows", made, min(most, plan.places))
        return found

    if plan.places <= most:
        found = Nodes(plan.axes, np.arange(plan.places))
        return found, rows(found)
    if plan.places > MOST_PLACES:
        raise ValueError(_too_many(plan, most, f"a box of {plan.places:,} places, more than can be looked through"))
    reach = reached(plan.axes, start, lambda some: (rows(some), weights), most)
    if reach is None:
        got = f"a box of {plan.places:,} places, of which beliefs reach more"
        raise ValueError(_too_many(plan, most, got))
    return reach


def _too_many(plan: _Plan, most: int, got: str) -> str:
    """What was needed, what would fit, and what that costs."""
    said = f"Expected a lattice of at most {most:,} nodes, got {got} with the spacing {_listed(plan.spacing)}."
    narrow, wide = 1.0, 1.0
    while np.prod([float(axis.count) for axis in plan.wider(wide)]) > most:
        narrow, wide = wide, 1.5 * wide
        if wide > 1e15:
            return f"{said} Give more nodes, a smaller box, or an initial belief that reaches fewer of them."
    for _ in range(20):
        middle = 0.5 * (narrow + wide)
        fits = np.prod([float(axis.count) for axis in plan.wider(middle)]) <= most
        narrow, wide = (narrow, middle) if fits else (middle, wide)
    axes = plan.wider(wide)
    h = np.array([axis.spacing for axis in axes])
    seen = Nodes(axes, np.zeros(1, dtype=int))
    each = plan.known.over(0.5 * h).each(plan.look)
    share = np.mean(np.any([too_narrow(seen, step.slope, step.noise) for step in each], axis=0))
    return (
        f"{said} All places fit with spacing={_listed(h)}, where {share:.0%} of the rows are wider than the noise. Or"
        " give more nodes=, a smaller box, or an initial belief that reaches fewer places."
    )


def _chain(nodes: Nodes, parts: list[Entries], known: Known, broad: Broad, background: float) -> LatticeTransition:
    """Rows of all parts of the noise together, and the broad share."""
    weights = [part.weight for part in known.parts]
    matrix = sum(weight * part.matrix(nodes) for weight, part in zip(weights, parts, strict=True))
    matrix = sp.csr_array(matrix)
    left = matrix[:, [len(nodes)]].toarray().ravel()
    narrow = float(np.mean(np.any([part.narrow for part in parts], axis=0)))
    if narrow > _NARROW:
        warnings.warn(
            f"{narrow:.1%} of the lattice's rows are wider than the noise: there, nodes {_listed(nodes.spacing)} apart"
            " are too far apart for it. A smaller spacing= (and more nodes=) would do.",
            LatticeWarning,
            stacklevel=3,
        )
    if background > 0:
        n = len(nodes)
        last = sp.coo_array((np.full(n, background), (np.arange(n), np.full(n, n))), matrix.shape)
        matrix = sp.csr_array((1.0 - background) * matrix + last)
    report = {"narrow": narrow, "left": float(np.max(left)), "leaving": float(np.mean(left > 0.5))}
    return LatticeTransition(nodes, matrix, broad, report=report)


def _start(initial: Any, names: Sequence[str]) -> Belief:
    """A belief from what was given."""
    dim = len(names)
    if initial is None:
        raise ValueError(
            "Expected initial, where the process starts: a known state, (mean, covariance), or a belief, got none."
        )
    if isinstance(initial, Belief):
        found = initial
    elif isinstance(initial, (tuple, list)) and len(initial) == 2 and np.ndim(initial[1]) == 2:
        found = GaussianBelief(*initial)
    else:
        found = KnownState(checks.state(initial, dim, names))
    if found.dim != dim:
        raise ValueError(f"Expected an initial belief over {dim} coordinates, got {found.dim}.")
    return found


def _require_start(start: Belief, axes: Sequence[Axis]) -> None:
    """Refuse a start that no node is near."""
    mean = np.asarray(start.mean())
    inside = [bool(_within(axis, m)) for axis, m in zip(axes, mean, strict=True)]
    if not all(inside):
        raise ValueError(
            f"Expected an initial belief within lower and upper, got one around {mean.tolist()}. Widen the box."
        )


def _placed(start: Belief, nodes: Nodes, broad: Broad) -> Belief:
    """The start as it is; a Gaussian that goes across the cut of a circle as shares of nodes, wrapped round.

    Those have its mean and covariance: it is the row of a step that leads to it from everywhere.
    """
    circles = [c for c, axis in enumerate(nodes.axes) if axis.ends == "wrapped"]
    if not isinstance(start, GaussianBelief) or not circles:
        return start
    far = _FAR * np.sqrt(np.diagonal(start.covariances, axis1=1, axis2=2))
    across = [np.any((start.means - far)[:, c] < nodes.axes[c].lower) for c in circles]
    across += [np.any((start.means + far)[:, c] > nodes.axes[c].upper) for c in circles]
    if not any(across):
        return start
    some = Nodes(nodes.axes, np.arange(len(start.means)))
    rows = compile_entries(some, start.means, np.zeros_like(start.covariances), start.covariances)
    return LatticeBelief(nodes, broad, start.weights @ rows.matrix(nodes).toarray())


def _listed(numbers: np.ndarray) -> str:
    return "[" + ", ".join(f"{one:.4g}" for one in numbers) + "]"
