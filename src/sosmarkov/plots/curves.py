"""Curves: quantiles over the steps, what training did, whether beliefs are as sure as they should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sosmarkov.contracts.belief import Coordinate
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.forecasting.calibration import SHARES, calibrate, spread
from sosmarkov.plots import numbers
from sosmarkov.plots.figures import fan
from sosmarkov.plots.numbers import pyplot
from sosmarkov.plots.sources import beliefs_from


def plot_fan(
    source: Any,
    coordinate: Coordinate = 0,
    *,
    data: ArrayLike | None = None,
    steps: int | None = None,
    inputs: ArrayLike | None = None,
    shares: Sequence[float] = (0.5, 0.9),
    paths: int = 20,
    color: str = "tab:blue",
    label: str = "",
    names: Sequence[str] | None = None,
    ax: Any = None,
) -> Any:
    """Exact central intervals and the median of one coordinate over the steps, observed trajectories over them.

    Args:
        source: A process or an ensemble, the beliefs of one, or what `filter` or `smooth` found.
        coordinate: Which, by index or name.
        data: Trajectories (N, T, d) or a list of (T_i, d); none are drawn where None.
        steps: How far, for a process; as far as the data go where None.
        inputs: Of each step, for a process that takes them.
        shares: Probabilities of the intervals.
        paths: How many trajectories to draw at most, evenly picked.
        color: Of line and bands.
        label: Put before the names in the legend.
        names: Of all coordinates.
        ax: Where to draw; a new figure where None.

    Returns:
        The Axes drawn on.
    """
    beliefs, states = beliefs_from(source, steps, inputs, data)
    (chosen,) = checks.coordinates(coordinate, beliefs[0].dim, beliefs[0].columns)
    labels = numbers.labels_of(beliefs[0], names)
    ax = pyplot().subplots(figsize=(6.2, 3.4), layout="constrained")[1] if ax is None else ax
    fan(beliefs, chosen, shares=shares, color=color, label=label, axes=ax)
    if states is not None:
        observed = states[:, : len(beliefs), chosen]
        for row in spread(len(observed), checks.count(paths, "paths", 1)):
            name = "observed" if row == 0 else None
            ax.plot(observed[row], color="black", alpha=0.35, linewidth=0.8, label=name)
    ax.set(xlabel="step", ylabel=labels[chosen], xlim=(0, len(beliefs) - 1))
    ax.legend(fontsize=8, frameon=False)
    return ax


def plot_training(source: Any, axes: Any = None) -> np.ndarray:
    """Held-out and training loss over the steps, one Axes a phase; a dot at the parameters that were kept.

    Args:
        source: What was trained, or its `history`.
        axes: Where to draw, one a phase; a new figure where None.

    Returns:
        The Axes, shape (phases,).
    """
    phases = getattr(getattr(source, "history", source), "phases", ())
    if not phases:
        raise ValueError(f"Expected something that was trained, got {type(source).__name__} without a history.")
    axes = numbers.panes(axes, (len(phases),), "one a phase", (3.1 * len(phases) + 0.4, 2.9))
    for ax, phase in zip(axes, phases, strict=True):
        for member, best in enumerate(phase.best_step):
            first = member == 0
            ax.plot(phase.steps, phase.held_out[:, member], color="tab:blue", label="held out" if first else None)
            ax.plot(
                phase.steps, phase.training[:, member], color="tab:orange", lw=1, label="training" if first else None
            )
            ax.plot(best, phase.best[member], "o", color="tab:blue", markersize=5)
        ax.set(title=phase.name, xlabel="step")
    axes[0].set_ylabel("loss")
    axes[0].legend(fontsize=8, frameon=False)
    return axes


def plot_calibration(
    source: Any,
    data: ArrayLike,
    *,
    steps: Sequence[int] | None = None,
    inputs: ArrayLike | None = None,
    most: int | None = 500,
    names: Sequence[str] | None = None,
    axes: Any = None,
) -> np.ndarray:
    """Coverage of central intervals, and histograms of the probability integral transform, for every coordinate.

    Args:
        source: A process or an ensemble, or the beliefs of one.
        data: Trajectories (N, T, d) or a list of (T_i, d), better ones that were not learned from. Rows with NaN are
            left out.
        steps: Which to compare; all that both have where None.
        inputs: Of each step, for a process that takes them; the same for all trajectories.
        most: Use so many trajectories at most, evenly picked; all where None.
        names: Of all coordinates.
        axes: Two to draw on; a new figure where None.

    Returns:
        The two Axes. Whiskers are two standard errors over trajectories.
    """
    beliefs, states = beliefs_from(source, None, inputs, data)
    labels = numbers.labels_of(beliefs[0], names)
    found = calibrate(beliefs, states, steps, most=most)
    axes = numbers.panes(axes, (2,), "for coverage and for histograms", (8.2, 3.6))
    share, share_error = found.coverage()
    height, height_error = found.histogram()
    middle = (np.arange(len(height)) + 0.5) / len(height)
    axes[0].plot([0, 1], [0, 1], "--", color="0.5", lw=1)
    axes[1].plot([0, 1], [1, 1], "--", color="0.5", lw=1)
    for c, name in enumerate(labels):
        axes[0].errorbar(SHARES, share[:, c], yerr=2 * share_error[:, c], marker="o", markersize=4, lw=1.2, label=name)
        (line,) = axes[1].step(middle, height[:, c], where="mid", lw=1.3, label=name)
        axes[1].vlines(
            middle,
            height[:, c] - 2 * height_error[:, c],
            height[:, c] + 2 * height_error[:, c],
            color=line.get_color(),
            lw=0.8,
        )
    axes[0].set(xlabel="nominal share", ylabel="observed share", xlim=(0, 1), ylim=(0, 1))
    axes[1].set(xlabel="probability of a smaller value", ylabel="density", xlim=(0, 1), ylim=(0, None))
    axes[0].legend(fontsize=8, frameon=False)
    return axes
