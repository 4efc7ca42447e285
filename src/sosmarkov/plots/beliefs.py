"""Pictures of beliefs: one, several over time beside data, the long run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sosmarkov.contracts.belief import Belief, Coordinate
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.networks.belief import NetworkBelief
from sosmarkov.plots import numbers
from sosmarkov.plots.numbers import pyplot
from sosmarkov.plots.sources import beliefs_from
from sosmarkov.process.process import MarkovProcess

_SIDE, _LEVELS, _COLUMNS = 96, 12, 6


def plot_belief(
    belief: Any,
    coordinates: Sequence[Coordinate] | Coordinate | None = None,
    *,
    ax: Any = None,
    names: Sequence[str] | None = None,
    window: tuple[ArrayLike, ArrayLike] | None = None,
    cmap: str = "Blues",
    color: str = "tab:blue",
    cells: int = _SIDE,
) -> Any:
    """The density of a belief, or of its marginal: a line over one coordinate, filled contours over two.

    Args:
        belief: Of a process, a filter or a network.
        coordinates: One or two, by index or name; names of blocks for a network. All of them where None.
        ax: Where to draw; a new figure where None.
        names: Of the coordinates of `belief`, for the axes; their columns where None.
        window: Lower and upper ends of what is drawn, one number a coordinate; nearly all of the mass where None.
        cmap: Colours of contours.
        color: Of a line.
        cells: Of the grid that contours are drawn from, along each coordinate.

    Returns:
        The Axes drawn on.
    """
    part, labels = _part(belief, coordinates, names)
    if not part.has_density:
        raise ValueError("Expected a belief with a density to draw, got a known state. Draw a later step.")
    if part.dim > 2:
        raise ValueError(f"Expected one or two coordinates to draw, got {part.dim}. Name them, such as [0, 1].")
    low, high = _window(part) if window is None else (np.broadcast_to(end, part.dim) for end in window)
    ax = pyplot().subplots(figsize=(4.6, 3.8), layout="constrained")[1] if ax is None else ax
    if part.dim == 1:
        x = numbers.axis_between(float(low[0]), float(high[0]), numbers.CELLS)
        p = numbers.density_on(part, [x])
        ax.plot(x, p, color=color)
        ax.fill_between(x, p, color=color, alpha=0.2, linewidth=0)
        ax.set(xlabel=labels[0], ylabel="density", ylim=(0, None), xlim=(low[0], high[0]))
        return ax
    axes = [numbers.axis_between(*ends, cells) for ends in zip(low, high, strict=True)]
    # Where rounding leaves no digit the density is far below the lowest level.
    p = np.nan_to_num(numbers.density_on(part, axes))
    ax.contourf(*axes, p, levels=np.linspace(0.0, p.max(), _LEVELS + 1), cmap=cmap)
    ax.set(xlabel=labels[0], ylabel=labels[1], xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    return ax


def plot_stationary(
    process: MarkovProcess, coordinates: Sequence[Coordinate] | Coordinate | None = None, **options: Any
) -> Any:
    """The belief that a step leaves as it is; arguments and result as for `plot_belief`."""
    return plot_belief(process.stationary(), coordinates, **options)


def plot_marginals_over_time(
    source: Any,
    data: ArrayLike | None = None,
    *,
    steps: Sequence[int] | None = None,
    pairs: Sequence[Sequence[Coordinate]] | None = None,
    inputs: ArrayLike | None = None,
    axes: Any = None,
    names: Sequence[str] | None = None,
    cmap: str = "Blues",
    bins: int = 40,
    cells: int = _SIDE,
) -> np.ndarray:
    """Beliefs at some steps, one a column; observed states below, as densities on the same colours.

    Args:
        source: A process or an ensemble, the beliefs of one, or what `filter` or `smooth` found.
        data: Trajectories (N, T, d) or a list of (T_i, d); no second row where None.
        steps: Which; at most six, evenly spaced, where None.
        pairs: Two coordinates each, one or two rows a pair; the first two coordinates where None.
        inputs: Of each step, for a process that takes them.
        axes: Where to draw, shape (rows, len(steps)); a new figure where None.
        names: Of all coordinates.
        cmap: Colours.
        bins: Of the data, along each coordinate.
        cells: Of the beliefs, likewise: fewer where a belief of many functions takes long.

    Returns:
        The Axes, shape (rows, len(steps)).
    """
    beliefs, states = beliefs_from(source, None if steps is None else max(steps), inputs, data)
    steps = _steps(steps, len(beliefs) - 1, beliefs)
    dim, columns = beliefs[0].dim, beliefs[0].columns
    found = [(0, 1)] if pairs is None else [checks.coordinates(pair, dim, columns) for pair in pairs]
    if dim < 2 or any(len(pair) != 2 for pair in found):
        raise ValueError(f"Expected pairs of two coordinates, got {found} of {dim}. See plot_fan for one.")
    names, pairs = numbers.labels_of(beliefs[0], names), found
    rows = len(pairs) * (1 if states is None else 2)
    # Rows of different pairs have different coordinates below them.
    shared = {"sharex": len(pairs) == 1, "sharey": "row"}
    size = (1.9 * len(steps) + 0.6, 1.9 * rows + 0.3)
    axes = numbers.panes(axes, (rows, len(steps)), "rows of pairs, columns of steps", size, **shared)
    shown = [beliefs[k] for k in steps]
    for row, pair in enumerate(pairs):
        parts = [numbers.part_of(belief, pair) for belief in shown]
        low, high = (np.stack(ends) for ends in zip(*map(_window, parts), strict=True))
        window = low.min(axis=0), high.max(axis=0)
        labels = [names[c] for c in pair]
        for column, part in enumerate(parts):
            above = axes[row * rows // len(pairs), column]
            plot_belief(part, ax=above, names=labels, window=window, cmap=cmap, cells=cells)
            above.set_title(f"k = {steps[column]}", fontsize=10)
            if states is not None:
                _draw_states(axes[2 * row + 1, column], states, steps[column], pair, window, labels, cmap, bins)
    for (row, column), axis in np.ndenumerate(axes):
        if column > 0:
            axis.set_ylabel("")
            axis.tick_params(labelleft=False)
        if (row + 1) % (rows // len(pairs)):
            axis.set_xlabel("")
            axis.tick_params(labelbottom=False)
    return axes


def _draw_states(
    ax: Any,
    states: np.ndarray,
    step: int,
    pair: Sequence[int],
    window: tuple[np.ndarray, np.ndarray],
    labels: Sequence[str],
    cmap: str,
    bins: int,
) -> None:
    """Observed states of one step, counted in cells."""
    there = states[:, step, list(pair)] if step < states.shape[1] else np.zeros((0, 2))
    there = there[~np.isnan(there[:, 0])]
    if len(there):
        ax.hist2d(*there.T, bins=bins, range=list(zip(*window, strict=True)), cmap=cmap)
    else:
        ax.text(0.5, 0.5, "no data", ha="center", va="center", transform=ax.transAxes)
    ax.set(xlabel=labels[0], ylabel=f"{labels[1]} (data)")


def _steps(steps: Sequence[int] | None, last: int, beliefs: Sequence[Belief]) -> list[int]:
    first = 0 if beliefs[0].has_density else 1
    if steps is None:
        return np.unique(np.linspace(first, last, min(_COLUMNS, last - first + 1)).round().astype(int)).tolist()
    found = [checks.count(k, "steps") for k in steps]
    if not found or max(found) > last or min(found) < first:
        raise ValueError(f"Expected steps from {first} to {last}, at least one, got {found}.")
    return found


def _part(belief: Any, coordinates: Any, names: Sequence[str] | None) -> tuple[Any, list[str]]:
    """The marginal to draw, and names of its coordinates."""
    if isinstance(belief, NetworkBelief):
        part = belief if coordinates is None else belief.marginal(coordinates)
        return part, list(part.columns)
    if not isinstance(belief, Belief):
        raise ValueError(
            f"Expected a belief to draw, got {type(belief).__name__}. A process has beliefs: propagate it."
        )
    labels = numbers.labels_of(belief, names)
    if coordinates is None:
        return belief, labels
    chosen = checks.coordinates(coordinates, belief.dim, belief.columns)
    return numbers.part_of(belief, chosen), [labels[c] for c in chosen]


def _window(part: Belief | NetworkBelief) -> tuple[np.ndarray, np.ndarray]:
    """Ends between which nearly all of the mass lies, per coordinate."""
    if isinstance(part, NetworkBelief):
        # Networks have no quantiles of their own.
        mean, spread = np.asarray(part.mean()), np.sqrt(np.diagonal(part.covariance()))
        return mean - 3.5 * spread, mean + 3.5 * spread
    ends = numbers.quantiles([part], [numbers.TAIL, 1 - numbers.TAIL], range(part.dim))[0]
    return numbers.widened(ends[0], ends[1], [part])
