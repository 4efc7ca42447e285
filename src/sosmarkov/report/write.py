"""`write_report`: the page from its parts, written whole or not at all."""

from __future__ import annotations

import base64
import json
import os
import re
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.files import write_atomic
from sosmarkov.process.model import Model
from sosmarkov.report import card, charts
from sosmarkov.report.collect import Story, collect

_POINTS, _POINT_VALUES = 400, 60_000
_CHIPS = ("coordinates", "form", "basis", "coupling", "free parameters")
_ABSENT, _OUTSIDE, _TOP = 65_535, 65_534, 65_533


def write_report(
    process: Model,
    path: str | os.PathLike[str],
    *,
    data: ArrayLike | None = None,
    steps: int | None = None,
    inputs: Any = None,
) -> None:
    """Write one HTML page about a process that needs nothing but itself.

    Pairwise marginals p_k(x_i, x_j) on a grid with a slider over k, quantiles of every coordinate, calibration and
    log-likelihood where there are data, training, the long run, and a model card. All numbers are exact answers of
    the process; densities are stored in 256 levels of their square root.

    Args:
        process: A process, or an ensemble.
        path: Where to, in a folder that exists.
        data: Trajectories to compare with, (N, T, d) or a list of (T_i, d); rows of NaN are gaps. Better ones that
            were not learned from.
        steps: How far to show; as far as the data go, or what was trained, or 10, where None.
        inputs: For a process with inputs: one sequence (steps, e) to show beliefs under, or those of each
            trajectory, (N, T - 1, e) or a list, to average over. Zeros where None.
    """
    write_atomic(Path(path), page(collect(process, data, steps, inputs)).encode())


def page(story: Story) -> str:
    """The text of the page."""
    parts = {
        "style": _package_text("page.css"),
        "script": _package_text("page.js"),
        "data": _script_safe(payload(story)),
        "title": escape(f"Beliefs over {', '.join(story.names[:4])}{', …' if len(story.names) > 4 else ''}"),
        "chips": "".join(f"<li><b>{escape(value)}</b> {escape(name)}</li>" for name, value in _chips(story)),
        "notes": "".join(f"<p>{escape(note)}</p>" for note in story.notes),
        "beliefs": _package_text("beliefs.html"),
        "fans": charts.fans(story),
        "calibration": _calibration(story),
        "long_run": _long_run(story),
        "training": _training(story),
        "card": _card(story),
    }
    # In one pass, so that a name in the data cannot be taken for a place of the page.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _package_text("page.html"))


def payload(story: Story) -> dict[str, Any]:
    """What the script of the page draws from."""
    values = story.pictures.values
    shape = values.shape[:2]
    peaks = np.nanmax(values.reshape(*shape, -1), axis=-1)
    relative = np.nan_to_num(values / peaks.reshape(*shape, *[1] * (values.ndim - 2)))
    single = values.ndim == 3
    levels = np.round(255 * np.sqrt(relative)).astype(np.uint8)
    found: dict[str, Any] = {
        "names": story.names,
        "steps": story.steps.tolist(),
        "pairs": [list(pair) for pair in story.pictures.pairs],
        "side": values.shape[-1],
        "low": story.low.tolist(),
        "high": story.high.tolist(),
        "peaks": _rounded(peaks),
        "longRun": story.long_run is not None,
        "lines": _rounded(relative[0], 4) if single else None,
        "frames": None if single else _base64(levels),
        "means": _rounded(story.means),
        "covariances": _rounded(story.covariances),
        "logLikelihood": None,
        "observed": None,
    }
    if story.states is not None and story.calibration is not None:
        mean, _, _ = story.calibration.log_likelihood()
        at = dict(zip(story.calibration.steps.tolist(), _rounded(mean), strict=True))
        found["logLikelihood"] = [at.get(int(k)) for k in story.steps]
        found["observed"] = _observed(story)
    return found


def _observed(story: Story) -> dict[str, Any]:
    """Some states, in 65,534 levels of what is shown."""
    assert story.states is not None
    count = min(len(story.states), _POINTS, max(20, _POINT_VALUES // story.states[0].size))
    rows = np.unique(np.linspace(0, len(story.states) - 1, count).round().astype(int))
    states = story.states[rows]
    share = (states - story.low) / (story.high - story.low)
    inside = (share >= 0) & (share <= 1)
    levels = np.where(inside, np.round(_TOP * np.where(inside, share, 0)), _OUTSIDE)
    levels = np.where(np.isnan(states), _ABSENT, levels)
    return {"count": len(rows), "of": len(story.states), "levels": _base64(levels.astype("<u2"))}


def _chips(story: Story) -> card.Rows:
    facts = dict(card.model(story.process))
    chosen = [(name, facts[name]) for name in _CHIPS if name in facts]
    return [*chosen, ("steps shown", f"{story.steps[0]} to {story.steps[-1]}")]


def _calibration(story: Story) -> str:
    found = story.calibration
    if found is None:
        return "<p>No data were given to compare with. Give <code>data=</code> to see calibration.</p>"
    mean, error, count = found.log_likelihood()
    rows = [
        [str(k), f"{m:.4f}".replace("-inf", "−∞ (a state where there is no density)"), f"{e:.4f}", f"{n:,}"]
        for k, m, e, n in zip(found.steps, mean, error, count, strict=True)
    ]
    table = card.columns(["step", "mean log-density", "standard error", "states"], rows, "Log-likelihood per step")
    many = len(story.names) > 4
    pit = f'<div class="charts">{charts.pit(found, story.names)}</div>'
    if many:
        pit = f"<details><summary>PIT of all {len(story.names)} coordinates</summary>{pit}</details>"
    return _package_text("calibration.html").format(
        coverage=charts.coverage(found, story.names), likelihood=charts.log_likelihood(found), pit=pit, table=table
    )


def _long_run(story: Story) -> str:
    if story.long_run is None:
        return f"<p>{escape(story.no_long_run)}</p>"
    count = min(3, len(story.process.spectrum()) - len(story.process.members))
    found = story.process.timescales(count) if count else ()
    listed = ", ".join(f"{value:.3g}" for value in found if np.isfinite(value) and value > 0)
    times = f"<p>Slowest relaxation times, in steps: <b>{listed}</b>.</p>" if listed else ""
    picture = '<figure id="stationary-figure" hidden><canvas id="stationary"></canvas></figure>'
    drawn = (picture if len(story.names) > 1 else "") + charts.long_run(story)
    return f'<p>The belief that a step leaves as it is.</p>{times}<div class="charts small-charts">{drawn}</div>'


def _training(story: Story) -> str:
    if not getattr(story.process.history, "phases", ()):
        return "<p>The process was built, not trained: there is no history.</p>"
    return (
        '<p class="keys"><span class="key series-0">held out</span> <span class="key series-1">training</span>'
        f' <span>Dot: the step whose parameters were kept.</span></p><div class="charts">{charts.training(story)}</div>'
    )


def _card(story: Story) -> str:
    exact, said = card.exactness(story)
    tables = [card.table(card.model(story.process), "Model"), card.table(exact, f"Exactness{said}")]
    if getattr(story.process.history, "chosen", None) is not None:
        tables.append(card.table(card.learned(story.process.history), "Training"))
    return "".join([*tables, card.table(card.versions(), "Versions")])


def _package_text(name: str) -> str:
    return (files("sosmarkov.report") / name).read_text(encoding="utf-8")


def _script_safe(content: dict[str, Any]) -> str:
    """JSON that can stand inside a script element, whatever its strings hold."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(values: np.ndarray, digits: int = 7) -> Any:
    """Nested lists of numbers with so many digits; None where they are not finite."""
    flat = [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in values.ravel()]
    return np.array(flat, dtype=object).reshape(values.shape).tolist()


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
