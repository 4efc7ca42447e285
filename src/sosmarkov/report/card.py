"""The model card: what the process is, how it was learned, how exact it is."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from html import escape
from typing import Any

import jax
import numpy as np

import sosmarkov
from sosmarkov.process.model import Model
from sosmarkov.report.collect import Story

Rows = list[tuple[str, str]]


def model(process: Model) -> Rows:
    """What the process is made of."""
    first = process.members[0]
    rows: Rows = [("coordinates", str(process.dim)), *first.transition.parts().items()]
    if first.sensor is not None:
        rows.append(("sensor", str(first.sensor_origin)))
    if len(process.members) > 1:
        rows.append(("members", str(len(process.members))))
    rows.append(("free parameters", f"{process.parameter_count:,}"))
    return rows


def exactness(story: Story) -> tuple[Rows, str]:
    """Masses and conditioning, and of what."""
    said, steady = "", story.process
    features = steady.features
    if features is not None:
        steady = steady.under(np.zeros(features.dim))
        said = ", under an input of zero" if features.period is None else ", at time 0"
    report = steady.check()
    rows: Rows = [
        ("worst |∫ p(x′|x) dx′ − 1|, all x", f"{report.normalisation_error:.1e}"),
        ("|∫ p₀ − 1|", f"{report.initial_mass_error:.1e}"),
        ("worst |∫ pₖ − 1|, steps shown", f"{story.mass_error:.1e}"),
        ("smallest log-density met", f"{report.smallest_log_density:.3g}"),
    ]
    if steady.form == "factor":
        rows.append(("condition of g", f"{report.condition_factor:.1e}"))
        rows.append(("condition of ψ under g", f"{report.condition_gram:.1e}"))
        rows.append(("amplification of rounding", f"{report.amplification:.1e}"))
    rows.append(("exact to double precision", "yes" if report.ok else "no"))
    return rows, said


def learned(history: Any) -> Rows:
    """What training chose and reached."""
    chosen = {name: value for name, value in history.chosen.items() if name not in ("tried", "notes")}
    rows: Rows = [(name.replace("_", " "), _value(value)) for name, value in chosen.items()]
    for one in history.chosen.get("tried", []):
        rows.append((f"tried: {one['form']}", f"{one['score']:.4f} held out, {one['seconds']:.1f} s"))
    rows += [("note", note) for note in history.chosen.get("notes", [])]
    rows += [(f"held-out log-likelihood, {name}", f"{value:.4f}") for name, value in history.scores.items()]
    return [*rows, ("time", f"{history.seconds:.1f} s"), ("device", history.device)]


def versions() -> Rows:
    """What made the page."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return [
        ("sosmarkov", sosmarkov.__version__),
        ("jax", jax.__version__),
        ("Python", platform.python_version()),
        ("page written", today),
    ]


def table(rows: Rows, caption: str) -> str:
    """Names and values."""
    lines = [f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in rows]
    return f'<table class="facts"><caption>{escape(caption)}</caption><tbody>{"".join(lines)}</tbody></table>'


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """A table with a header, that scrolls by itself where it is wide."""
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    lines = ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    inside = f"<caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>{inside}</table></div>'
    )


def _value(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
