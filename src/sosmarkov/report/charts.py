"""The charts of the page that stand still, one function each."""

from __future__ import annotations

from html import escape

import numpy as np

from sosmarkov.forecasting.calibration import SHARES, Calibration
from sosmarkov.plots import numbers
from sosmarkov.report.collect import Story
from sosmarkov.report.svg import Chart

_PATHS = 24
_COLOURS = 6


def figure(chart: Chart, caption: str = "") -> str:
    """A chart with the line below it."""
    below = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f"<figure>{chart.text()}{below}</figure>"


def fans(story: Story) -> str:
    """Intervals of 50 and 90 % and the median of every coordinate, trajectories over them."""
    found = []
    for c, name in enumerate(story.names):
        title = f"Exact quantiles of {name} over the steps"
        ends = (float(story.low[c]), float(story.high[c]))
        chart = Chart((story.steps[0], story.steps[-1]), ends, "step", name, title, whole=True)
        q = story.quantiles[..., c]
        chart.band(story.steps, q[:, 0], q[:, 4], "band wide")
        chart.band(story.steps, q[:, 1], q[:, 3], "band narrow")
        if story.states is not None:
            rows = np.unique(np.linspace(0, len(story.states) - 1, _PATHS).round().astype(int))
            chart.lines(story.steps, story.states[rows, :, c], "path", "observed")
        chart.line(story.steps, q[:, 2], "median")
        found.append(figure(chart))
    return "".join(found)


def pit(calibration: Calibration, names: list[str]) -> str:
    """Histograms of the probability integral transform."""
    height, error = calibration.histogram()
    edges = np.linspace(0, 1, len(height) + 1)
    top = float(max(1.5, 1.08 * np.max(height + 2 * error)))
    found = []
    for c, name in enumerate(names):
        chart = Chart((0, 1), (0, top), f"F({name})", "density", f"PIT histogram of {name}")
        chart.bars(edges, height[:, c], "bar")
        low, high = height[:, c] - 2 * error[:, c], height[:, c] + 2 * error[:, c]
        chart.whiskers(0.5 * (edges[1:] + edges[:-1]), np.maximum(low, 0), high, "whisker")
        chart.line([0, 1], [1, 1], "ideal")
        found.append(figure(chart))
    return "".join(found)


def coverage(calibration: Calibration, names: list[str]) -> str:
    """Observed against nominal shares of central intervals."""
    share, error = calibration.coverage()
    chart = Chart((0, 1), (0, 1), "nominal share", "observed share", "Coverage of central intervals")
    chart.line([0, 1], [0, 1], "ideal")
    for c in range(len(names)):
        style = f"series-{c % _COLOURS}"
        chart.whiskers(SHARES, share[:, c] - 2 * error[:, c], share[:, c] + 2 * error[:, c], f"whisker {style}")
        chart.line(SHARES, share[:, c], f"curve {style}")
        chart.dots(SHARES, share[:, c], f"point {style}")
    return figure(chart, legend(names))


def log_likelihood(calibration: Calibration) -> str:
    """Mean log-density of the observed states at every step."""
    mean, error, _ = calibration.log_likelihood()
    spread = np.nan_to_num(2 * error)
    known = np.isfinite(mean)
    ends = (float(np.min((mean - spread)[known])), float(np.max((mean + spread)[known]))) if known.any() else (0.0, 1.0)
    room = float(numbers.axis_room(*ends, 0.08))
    steps = calibration.steps
    chart = Chart(
        (steps[0] - 0.4, steps[-1] + 0.4),
        (ends[0] - room, ends[1] + room),
        "step",
        "nats per state",
        "Log-likelihood per step",
        whole=True,
    )
    shown = np.where(known, mean, np.nan)
    chart.whiskers(steps, shown - 2 * error, shown + 2 * error, "whisker series-0")
    chart.line(steps, shown, "curve series-0")
    chart.dots(steps, shown, "point series-0")
    return figure(chart)


def training(story: Story) -> str:
    """Held-out and training loss of every phase, side by side; members as single lines."""
    found = []
    for phase in getattr(story.process.history, "phases", ()):
        both = np.concatenate([phase.held_out.ravel(), phase.training.ravel()])
        both = both[np.isfinite(both)]
        if not len(both):
            continue
        # A few first steps may be far off: what is left of the curve has to stay readable.
        low, high = float(both.min()), float(np.quantile(both, 0.98))
        room = float(numbers.axis_room(low, high, 0.06))
        title = f"Loss of the phase {phase.name}"
        chart = Chart(
            (0, max(phase.done, 1)), (low - room, high + room), f"{phase.name}: step", "loss", title, whole=True
        )
        for member in range(phase.held_out.shape[1]):
            chart.line(phase.steps, phase.training[:, member], "curve series-1 faint")
            chart.line(phase.steps, phase.held_out[:, member], "curve series-0")
            chart.dots(phase.best_step[[member]], phase.best[[member]], "point series-0")
        found.append(figure(chart, escape(str(phase))))
    return "".join(found)


def long_run(story: Story, cells: int = numbers.CELLS) -> str:
    """Densities of single coordinates in the long run, and at the last step shown."""
    assert story.long_run is not None
    found = []
    for c, name in enumerate(story.names):
        x = numbers.axis_between(float(story.low[c]), float(story.high[c]), cells)
        p = numbers.density_on(numbers.part_of(story.long_run, [c]), [x])
        chart = Chart(
            (story.low[c], story.high[c]), (0, 1.08 * float(np.nanmax(p))), name, "density", f"Long run of {name}"
        )
        chart.band(x, np.zeros(cells), np.nan_to_num(p), "band narrow")
        chart.line(x, p, "median")
        found.append(figure(chart))
    return "".join(found)


def legend(names: list[str]) -> str:
    """Which colour is whose."""
    keys = [f'<span class="key series-{c % _COLOURS}">{escape(name)}</span>' for c, name in enumerate(names)]
    return " ".join(keys)
