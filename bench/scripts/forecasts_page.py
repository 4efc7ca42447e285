"""Writes docs/forecasts.md from results/forecasts.json; `--check` only compares."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE, PAGE = ROOT / "results" / "forecasts.json", ROOT / "docs" / "forecasts.md"
HEAD = """# Forecasts from known states

Made by `bench/scripts/forecasts_page.py` from what `bench/scripts/forecasts.py` wrote to `results/forecasts.json`; do
not edit. Here is where it is now: where will it be? `sm.fit(data)` with its defaults, beside the linear step
x' = A x + b with Gaussian noise (least squares, carried in closed form), and for simulated systems beside the truth.
Scores are means of log p(x_(t+k) | x_t) over states that were held out, in nats; higher is better. Differences have
standard errors from the means of whole blocks of time, or of trajectories; where blocks are few these are rough.
[Which form?](forms.md) says what was chosen among.

Sunspots, glucose, temperatures and the oscillator were looked at while the lattice form was made, so that its ways to
learn may suit them better than they suit others; the last two systems were written down before any score of them.
"""
TRUTH = """The truth is the system's own transition density, averaged over {PATHS:,} paths from each known state: exact
for one step, and too low by a little for many, where few paths come near a state in the tail. A model may exceed it by
that, or by chance.
"""


def cells(label: str, values: list[str]) -> str:
    """One row of a table."""
    return f"| {label} | " + " | ".join(values) + " |"


def verdict(row: dict[str, Any]) -> str:
    """Where the process is ahead of the linear step, and where behind, by more than two standard errors."""
    gap = row["difference"]["linear step"]
    sure = [mean / error for mean, error in zip(gap["mean"], gap["standard_error"], strict=True)]
    ahead, behind, of = sum(z > 2 for z in sure), sum(z < -2 for z in sure), len(sure)
    return (
        f"By more than two standard errors it is ahead of the linear step at {ahead} of {of} steps, behind at {behind}."
    )


def chosen(row: dict[str, Any]) -> str:
    """What was chosen, out of what, and how long that took."""
    form = row["chosen"]["form"]
    tried = ", ".join(f"{one['form']} {one['score']:.3f}" for one in row["chosen"]["tried"])
    narrow = f" {row['narrow']:.0%} of its rows are wider than the noise, which `fit` warns of." * (
        row["narrow"] > 0.02
    )
    return (
        f"Chosen: {form} ({row['chosen'][form]}; {row['sizes']}), by held-out forecasts of the data learned from"
        f" ({tried}). {row['pairs']:,} pairs, {row['seconds']:.0f} s; {row['forecasts']:,} forecasts in"
        f" {row['blocks']} blocks.{narrow}"
    )


def section(row: dict[str, Any]) -> list[str]:
    """The table of one record or system."""
    title = row["title"][0].upper() + row["title"][1:]
    lines = [f"## {title}", "", cells("steps ahead", [str(k) for k in row["ahead"]])]
    lines.append("|---" * (len(row["ahead"]) + 1) + "|")
    lines += [cells(name, [f"{value:.3f}" for value in score]) for name, score in row["scores"].items()]
    for name, gap in row["difference"].items():
        pairs = zip(gap["mean"], gap["standard_error"], strict=True)
        lines.append(cells(f"sosmarkov - {name}", [f"{mean:+.3f} ± {error:.3f}" for mean, error in pairs]))
    return [*lines, "", verdict(row), "", chosen(row), ""]


def render(content: dict[str, Any]) -> str:
    """The page."""
    env, rows = content["environment"], list(content["rows"].values())
    loads = [row["load"] for row in rows]
    made = (
        f"jax {env['jax']}, Python {env['python']}, {env['device']}, {env['cores']} cores, commit {env['commit']}, seed"
        f" {env['seed']}. Seconds are those of the whole `sm.fit`, its choice included, on a machine that was busy"
        f" with other work: {min(loads):.1f} to {max(loads):.1f} processes wanted its {env['cores']} cores."
    )
    lines = [HEAD, made, "", TRUTH.format(**content["size"])]
    for row in rows:
        lines += section(row)
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 where the page is not what results/ says")
    text = render(json.loads(SOURCE.read_text()))
    if parser.parse_args(arguments).check:
        return int(not PAGE.exists() or PAGE.read_text() != text)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
