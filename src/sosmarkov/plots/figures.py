"""The Chapman-Kolmogorov check, fans of intervals, and files of figures. Needs matplotlib (`sosmarkov[plot]`)."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sosmarkov.contracts.belief import Belief, Coordinate
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.files import write_atomic
from sosmarkov.inference.trajectories import ChapmanKolmogorov
from sosmarkov.plots.numbers import panes, pyplot, quantiles

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def ck_test(result: ChapmanKolmogorov, axes: Any = None) -> Figure:
    """Predicted probabilities as lines, observed shares as points with two standard errors, from row to column.

    Args:
        result: What `process.ck_test` gives, with B ranges.
        axes: B x B axes to draw on; a new figure where None.
    """
    ranges = len(result.edges) - 1
    size = 1.0 + 1.8 * ranges
    axes = panes(axes, (ranges, ranges), "ranges by ranges", (size, 0.85 * size), sharex=True, sharey=True)
    names = [_range_name(low, high) for low, high in zip(result.edges[:-1], result.edges[1:], strict=True)]
    for i, j in np.ndindex(ranges, ranges):
        axis = axes[i, j]
        axis.plot(result.steps, result.predicted[:, i, j], color="tab:blue", label="predicted")
        axis.errorbar(
            result.steps,
            result.observed[:, i, j],
            # Neighbouring windows overlap, so the error is a lower bound; two of it show it better than one.
            yerr=2.0 * result.standard_error[:, i, j],
            fmt="o",
            markersize=3,
            linewidth=1,
            color="black",
            label="observed",
        )
        axis.set_ylim(-0.03, 1.03)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_title(f"{names[i]} → {names[j]}", fontsize=9)
        if i == ranges - 1:
            axis.set_xlabel("steps")
        if j == 0:
            axis.set_ylabel("probability")
    axes[0, -1].legend(fontsize=8, frameon=False)
    return axes[0, 0].figure


def fan(
    beliefs: Sequence[Belief],
    coordinate: Coordinate = 0,
    *,
    shares: Sequence[float] = (0.5, 0.9),
    times: ArrayLike | None = None,
    color: str = "tab:blue",
    label: str = "",
    axes: Any = None,
) -> Figure:
    """Central intervals of one coordinate over the steps as nested bands, and the median as a line.

    Args:
        beliefs: One a step: what `propagate`, `filter` or `smooth` give, or a list.
        coordinate: Which, by index or name.
        shares: Probabilities of the intervals, each between 0 and 1.
        times: Where to draw each belief; 0, 1, 2, ... where None.
        color: Of line and bands.
        label: Put before the names in the legend, to tell several fans apart.
        axes: Where to draw; a new figure where None.
    """
    shares = sorted(float(share) for share in shares)
    if not shares or not 0.0 < shares[0] <= shares[-1] < 1.0:
        raise ValueError(f"Expected shares strictly between 0 and 1, at least one, got {shares}.")
    at = np.arange(len(beliefs)) if times is None else np.asarray(checks.as_float(times, "times"))
    if at.shape != (len(beliefs),):
        raise ValueError(f"Expected one time a belief, {len(beliefs)}, got an array of shape {at.shape}.")
    wanted = [0.5, *(0.5 * (1.0 + sign * share) for share in shares for sign in (-1, 1))]
    lines = quantiles(beliefs, wanted, [coordinate])[..., 0]
    if axes is None:
        _, axes = pyplot().subplots(figsize=(6.5, 3.6), layout="constrained")
        (chosen,) = checks.coordinates(coordinate, beliefs[0].dim, beliefs[0].columns)
        axes.set_ylabel(beliefs[0].columns[chosen])
    begin = f"{label}, " if label else ""
    # The widest first, so that narrow ones lie on top and look darker.
    for index in reversed(range(len(shares))):
        low, high = lines[:, 1 + 2 * index], lines[:, 2 + 2 * index]
        name = f"{begin}{100 * shares[index]:g} %"
        axes.fill_between(at, low, high, color=color, alpha=0.45 / len(shares), linewidth=0, label=name)
    axes.plot(at, lines[:, 0], color=color, linewidth=1.2, label=f"{begin}median")
    return axes.figure


def save(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 100) -> None:
    """Write a figure, whole or not at all, and close it; folders are made, the ending says the format.

    Args:
        figure: What the functions above give, or any other.
        path: Where to.
        dpi: Points an inch, for formats of points.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    figure.savefig(content, dpi=dpi, format=path.suffix.removeprefix(".") or "png")
    write_atomic(path, content.getvalue())
    pyplot().close(figure)


def _range_name(low: float, high: float) -> str:
    if np.isinf(low):
        return f"below {high:.2g}"
    return f"above {low:.2g}" if np.isinf(high) else f"{low:.2g} to {high:.2g}"
