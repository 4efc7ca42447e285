"""Writes the table of results in README.md from results/; `--check` only compares."""

from __future__ import annotations

import argparse
import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np

from sosmarkov_bench.tables import collect

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PLACE = re.compile(
    r"(<!-- results: made by bench/scripts/readme_table.py -->\n).*?(<!-- end of results -->)", re.DOTALL
)
SYSTEMS = {
    "vdp": "Van der Pol oscillator, 2-D",
    "cartpole": "cart-pole, 4-D",
    "quadrotor": "quadrotor, 6-D",
    "quadcopter": "quadcopter, 12-D",
}
RECORDS = {
    "gymnasium_cart_pole": ("Gymnasium's cart-pole in gusts, 0.1 to 0.8 s", "one Gaussian per step"),
    "glucose": ("blood glucose, half an hour to four hours", "linear step"),
    "sunspots": ("sunspots, 2 to 12 years", "linear step"),
}


def simulated() -> list[str]:
    """Mean gap to the limit: ours, one Gaussian per k, and the best baseline that learns from the same data."""
    page = runpy.run_path(str(Path(__file__).parent / "results_page.py"))
    systems = {system.name: system for system in collect(page["RESULTS"], page["LEARNING"])}
    lines = [
        "The factor form, beliefs from the start p(x0): distance from the best possible log-likelihood, mean over",
        f"k = 1..{page['EARLY']}, in nats (0 is the limit):",
        "",
        '| simulated system | sosmarkov | with `coupling="linear"` | one Gaussian per k | best other that learns |',
        "|---|---|---|---|---|",
    ]
    for name, title in SYSTEMS.items():
        rows = [row for row in systems[name].rows if page["plain"](row)]
        gaps = [(gap, row) for row in rows if (gap := page["early_gap"](row)) is not None]
        ours = page["early_gap"](page["_ours"](systems[name]))
        linear = {page["_short"](row): gap for gap, row in gaps if "linear" in page["_short"](row)}
        gaussian = next(gap for gap, row in gaps if row.title == "one Gaussian per k")
        others = [
            (gap, row.title) for gap, row in gaps
            if not row.ours and row.title != "one Gaussian per k" and "true dynamics" not in row.title
        ]  # fmt: skip
        best = "{:.3f} ({})".format(*max(others)) if others else "-"
        row, gap = max(linear.items(), key=lambda item: item[1])
        told = f"{gap:.3f} (800 functions)" if page["LARGE"] in row else f"{gap:.3f} (default size)"
        lines.append(f"| {title} | {ours:.3f} | {told} | {gaussian:.3f} | {best} |")
    return lines


def recorded() -> list[str]:
    """Held-out scores on data of others, mean over the steps ahead."""
    lines = [
        "The factor form on [data we did not make](docs/gallery.md): held-out log-density, mean over the steps ahead:",
        "",
        "| record | sosmarkov | baseline |",
        "|---|---|---|",
    ]
    for name, (title, beside) in RECORDS.items():
        scores: dict[str, Any] = json.loads((ROOT / "results" / "gallery" / f"{name}.json").read_text())["scores"]
        lines.append(f"| {title} | {np.mean(scores['process']):.2f} | {np.mean(scores[beside]):.2f} ({beside}) |")
    return lines


def forecasts() -> list[str]:
    """The defaults beside the linear step, mean over the steps ahead."""
    rows = json.loads((ROOT / "results" / "forecasts.json").read_text())["rows"].values()
    lines = [
        "`sm.fit(data)` at its defaults: log-density of a held-out state given one",
        "[some steps before](docs/forecasts.md), mean over the steps, in nats:",
        "",
        "| | sosmarkov | linear step | truth | seconds to learn |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        means = {name: f"{np.mean(score):.2f}" for name, score in row["scores"].items()}
        cells = [row["title"].partition(",")[0], means["sosmarkov"], means["linear step"], means.get("truth", "")]
        lines.append(f"| {' | '.join(cells)} | {row['seconds']:.0f} |")
    return lines


def made(text: str) -> str:
    """The page with its table made anew."""
    if not PLACE.search(text):
        raise ValueError("Expected the two comments that say where the table stands in README.md, got none.")
    body = "\n".join([*forecasts(), "", *simulated(), "", *recorded(), ""])
    return PLACE.sub(lambda found: found.group(1) + body + found.group(2), text)


def main(arguments: list[str] | None = None) -> int:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 where the table is not what results/ says")
    text = README.read_text()
    if parser.parse_args(arguments).check:
        return int(made(text) != text)
    README.write_text(made(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
