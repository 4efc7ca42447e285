"""Writes docs/results.md, docs/what-we-found.md and their figures from results/; `--check` only compares the pages."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from sosmarkov_bench.runner import table
from sosmarkov_bench.tables import Row, System, collect, usable_limit

ROOT = Path(__file__).parents[2]
RESULTS, LEARNING, PAPER = ROOT / "results" / "bench", ROOT / "results" / "learning", ROOT / "results" / "paper.json"
PAGE, STORY, IMAGES = ROOT / "docs" / "results.md", ROOT / "docs" / "what-we-found.md", ROOT / "docs" / "images"
# Before the first trajectories of the Van der Pol system blow up, and where every system has figures.
EARLY = 6
LINEAR, LARGE, FLOW = ", coupling=linear", ", 800 linear functions", "flow, 10,000 particles, mixture"
PROPAGATION = ROOT / "results" / "propagation.json"


def plain(row: Row) -> bool:
    """Whether a row, if it is one of ours, has default settings but for the coupling, or is the large linear one."""
    return not row.ours or "," not in row.title.replace(LINEAR, "").replace(LARGE, "")


def best_limit(system: System) -> np.ndarray | None:
    """The upper estimate, shape (K,), where it says anything; the mixture bound where there is no limit."""
    return system.bound if system.limit is None else usable_limit(system.limit)


def early_gap(row: Row) -> float | None:
    """Mean gap to the limit over the first steps; None where a method stops before."""
    if row.gaps is None or not row.seeds:
        return None
    value = float(np.mean(row.gaps[:, :EARLY]))
    return value if np.isfinite(value) else None


def draw_accuracy(systems: list[System], paper: dict[str, Any], path: Path) -> None:
    """Log-likelihood over k: every method, the limit, and what the paper states."""
    from matplotlib import pyplot as plt

    shown = [s for s in systems if s.rows and not s.name.endswith(("-wide", "-full"))]
    figure, axes = plt.subplots(2, -(-len(shown) // 2), figsize=(13, 8.5), layout="constrained", squeeze=False)
    styles = _styles(shown)
    for axis, system in zip(axes.flat, shown, strict=False):
        limit = best_limit(system)
        lowest = np.inf
        for row in (row for row in system.rows if plain(row) and not row.bound):
            values = row.inside.mean(axis=0) if row.seeds else np.zeros(0)
            axis.plot(np.arange(1, len(values) + 1), values, label=_short(row), **styles[_short(row)])
            lowest = min(lowest, np.nanmin(values)) if len(values) else lowest
        stated = {} if system.name == "quadcopter" else paper["systems"].get(system.name, {})
        for (name, values), mark in zip(stated.items(), ("s", "D"), strict=False):
            axis.plot(paper["k"], values, mark, color="0.55", ms=4, label=f"paper, {name}")
            lowest = min(lowest, *values)
        if limit is not None:
            # The limit counts blown-up states, the methods drawn here do not: only before there are any.
            last = next((k for k, n in enumerate(system.blown_up) if n), len(limit))
            steps = np.arange(1, last + 1)
            told = "limit, upper estimate" if system.limit else "mixture of fresh states, a bound"
            axis.plot(steps, limit[:last], ls="-" if system.limit else "--", color="black", lw=2, alpha=0.5, label=told)
            lower = np.where(np.isnan(limit), np.nan, (system.limit or {"lower": limit})["lower"])[:last]
            axis.fill_between(steps, lower, limit[:last], color="black", alpha=0.15, lw=0, label="down to the lower")
        axis.set_title(f"{system.name}: {system.title}", fontsize=9)
        axis.set_xlabel("k")
        axis.xaxis.get_major_locator().set_params(integer=True)
    for axis in axes[:, 0]:
        axis.set_ylabel("mean log p(x_k), nats")
    for axis in axes.flat[len(shown) :]:
        axis.axis("off")
    _legend(figure, axes, axes.flat[-1] if len(shown) % 2 else None)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_cost(systems: list[System], path: Path, name: str) -> None:
    """Gap to the limit over the first steps against parameters, and against seconds."""
    from matplotlib import pyplot as plt

    shown = [s for s in systems if sum(early_gap(r) is not None for r in s.rows) > 2]
    shown = [s for s in shown if not s.name.endswith(("-wide", "-full"))]
    down = 1 if len(shown) < 3 else 2
    across = -(-len(shown) // down)
    size = (5.4 * across, 4.2 * down + 0.6)
    figure, axes = plt.subplots(down, across, figsize=size, layout="constrained", squeeze=False)
    styles = _styles(shown)
    for axis, system in zip(axes.flat, shown, strict=False):
        for row in filter(plain, system.rows):
            gap = early_gap(row)
            if gap is None:
                continue
            cost = row.parameters if name == "parameters" else row.training + row.propagation
            style = {k: v for k, v in styles[_short(row)].items() if k in ("color", "marker")}
            axis.plot([max(cost, 1e-2)], [gap], ls="none", ms=8, label=_short(row), **style)
        axis.axhline(0.0, color="black", lw=2.5, alpha=0.5)
        axis.set_xscale("log")
        axis.set_xlabel("parameters kept" if name == "parameters" else "seconds of training and propagation")
        axis.set_title(f"{system.name}: {system.title}", fontsize=10)
        axis.margins(0.12)
    for axis in axes[:, 0]:
        axis.set_ylabel(f"gap to the limit, mean over k = 1..{EARLY}, nats")
    for axis in axes.flat[len(shown) :]:
        axis.axis("off")
    _legend(figure, axes, None)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _short(row: Row) -> str:
    if row.ours:
        return "sosmarkov" + (LARGE if LARGE in row.title else ", linear" if LINEAR in row.title else "")
    return row.title


def _styles(systems: list[System]) -> dict[str, dict[str, Any]]:
    rows = [row for system in systems for row in system.rows if plain(row) and not row.bound]
    names = list(dict.fromkeys(map(_short, rows)))
    ours = [name for name in names if name.startswith("sosmarkov")]
    others = [name for name in names if name not in ours]
    colours = ["tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:brown", "tab:pink", "tab:olive", "tab:cyan"]
    marks = ["v", "^", "<", ">", "p", "h", "X", "P", "d", "*"]
    styles = {
        name: {"color": colours[i % 8], "marker": marks[i % 10], "ms": 4, "lw": 1} for i, name in enumerate(others)
    }
    reds = {name: "magenta" if LARGE in name else "darkred" if "linear" in name else "tab:red" for name in ours}
    return styles | {name: {"color": red, "marker": "o", "ms": 4, "lw": 1.8} for name, red in reds.items()}


def _legend(figure: Any, axes: np.ndarray, place: Any) -> None:
    found = {label: h for a in axes.flat for h, label in zip(*a.get_legend_handles_labels(), strict=True)}
    if place is not None:
        place.legend(found.values(), found.keys(), loc="center", fontsize=9)
    else:
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=4, fontsize=8)


def story(systems: list[System], paper: dict[str, Any]) -> str:
    """The page in words, its figures from the files."""
    by_name = {system.name: system for system in systems}
    parts = [
        *_paper_table(by_name, paper),
        *_paired(by_name, paper),
        STORY_PROTOCOL,
        *_methods(by_name, paper),
        *_reached(by_name),
    ]
    return "\n".join([STORY_HEAD, *parts, *_propagation(), STORY_END])


STORY_HEAD = """# What we found

Made by `bench/scripts/results_page.py` from `results/`; do not edit. Every figure is on [the page of
results](results.md) or, for the paper's, in `results/paper.json`.

Where the true system is known, so is the best log-likelihood any prediction can have on average: that of the true
belief. We call it the limit, and estimate it (`sosmarkov_bench.oracle`). A second reference costs nothing: one
Gaussian per k, fitted to the training trajectories at that k. A method that propagates beliefs knows more than that
Gaussian (it learned how a state leads to the next) and should beat it wherever beliefs are not Gaussian.

![mean log-likelihood over k of all methods, with the limit](images/accuracy.png)

Without states that blew up. The paper's figures are drawn as it states them; those of its 12-D quadcopter are left
out, because its simulator is another system (below).

## The paper's figures beside both references
"""

STORY_READING = """
Where beliefs are close to Gaussian (the cart-pole's first steps), one Gaussian per k is hard to beat for anybody: it
has a few numbers to learn from a thousand states. This library's default is below it there, and 800 linear functions
come within a few hundredths; the list above counts where they are ahead.
"""

STORY_PROTOCOL = """
## What differs in protocol

The two sets of figures were not made alike, and some of the distance is protocol, not method:

- The paper's evaluation adds 1e-10 inside the logarithm and leaves out runs that gave NaN; here nothing is floored and
  nothing left out. The first can only help the paper's figures, and only where densities are tiny.
- Its transform to the unit box was fitted on test data; here nothing is.
- Its sum-of-squares model of the cart-pole was trained on nine steps and asked for thirteen, its flow on fourteen.
- Its flow starts from the true initial distribution and is scored through a mixture fitted to 1,000 particles: that
  mixture, not the flow, is what has the score.
- Three of the fifteen stored trials on the 6-D quadrotor exceed the limit by 0.8 to 2.2 nats. Densities that integrate
  to one cannot do that; the mean over trials in the table contains them.
- Its quadcopter's low-pass filter is shared between trajectories, so that its data are neither independent nor Markov
  in 12-D. Ours keeps a filter a trajectory. The two are not the same system, and figures do not compare across them.

None of this touches the idea: the form propagates exactly, and what this library does is built on it.
"""

STORY_END = """
Times are of shared machines with and without a GPU, and say no more than orders of magnitude. Below, gaps of dubins are
to the mixture bound.

![gap to the limit against parameters](images/parameters.png)

![gap to the limit against seconds](images/seconds.png)

## Marginals over time

Beliefs of a process above, 10,000 simulated states below, at k = 0, 1, 4, 9 (`bench/scripts/marginals.py`). First the
planar quadrotor, learned by `fit` with its defaults: p(px, pz), p(th, vx), p(vz, w).

![marginals of the quadrotor at k = 0, 1, 4, 9](images/marginals-quadrotor.png)

The 12-D quadcopter, learned in 1,200 steps instead of 4,000: p(px, py), p(wy, wz) (pitch and yaw rates), p(vx, vz).

![marginals of the quadcopter at k = 0, 1, 4, 9](images/marginals-quadcopter.png)

All of k = 0, ..., 9, the quadrotor first:

![marginals of the quadrotor at k = 0 to 9](images/marginals-quadrotor-all.png)

![marginals of the quadcopter at k = 0 to 9](images/marginals-quadcopter-all.png)
"""


def _paper_table(systems: dict[str, System], paper: dict[str, Any]) -> list[str]:
    ks = paper["k"]
    lines = ["| system | row | " + " | ".join(map(str, ks)) + " |", "|---" * (len(ks) + 2) + "|"]
    verdicts = []
    for name, stated in paper["systems"].items():
        if name == "quadcopter":
            gaussian, title = (
                np.array(paper["quadcopter_gaussian_on_the_authors_simulator"]),
                "Gaussian, same simulator",
            )
        else:
            row = _find(systems.get(name), "one Gaussian per k")
            gaussian = _gaussian_of(name, ks) if row is None else row.values.mean(axis=0)[np.array(ks) - 1]
            title = "one Gaussian per k"
        for method, values in stated.items():
            lines.append(_line(name, f"paper, {method}", values))
        lines.append(_line(name, title, gaussian))
        ours, limit = _ours(systems.get(name)), best_limit(systems[name]) if name in systems else None
        large = _find(systems.get(name), f"sosmarkov{LARGE} *")
        means = {
            _short(row): (row.seeds, row.values.mean(axis=0)[np.array(ks) - 1])
            for row in (ours, large)
            if name != "quadcopter" and row is not None
        }
        lines += [_line(name, f"{row}, {seeds} seeds", values) for row, (seeds, values) in means.items()]
        if name != "quadcopter" and limit is not None:
            told = "**limit** (upper)" if systems[name].limit else "mixture bound"
            lines.append(_line(name, told, limit[np.array(ks) - 1]))
        compared = {f"paper's {method}": np.array(values) for method, values in stated.items()}
        compared |= {row: values for row, (_, values) in means.items()}
        wins = [f"{method} at {int(np.sum(values > gaussian))}" for method, values in compared.items()]
        verdicts.append(f"- {name}: {', '.join(wins)}")
    told = f"At how many of these {len(ks)} k a row is above one Gaussian per k:\n\n" + "\n".join(verdicts)
    return [*lines, "", told, STORY_READING]


def _paired(systems: dict[str, System], paper: dict[str, Any]) -> list[str]:
    """The paper's form at its own size, trained here, beside its row: each above one Gaussian on its own simulator."""
    ks = np.array(paper["k"]) - 1
    lines = [
        "\n## The paper's own form, by its Perron vector\n",
        "Beta functions and the paired coupling with as many functions as in the paper, normalised by the Perron vector"
        " instead of a penalty. As simulators differ, figures are what a row has above one Gaussian per k, each on its"
        " own data; *mass* is the largest |mass - 1| over all seeds and k.\n",
        "| system | row | " + " | ".join(map(str, paper["k"])) + " | seeds | mass |",
        "|---" * (len(ks) + 4) + "|",
    ]
    for name, stated in paper["systems"].items():
        row = next((row for row in systems[name].rows if "coupling=paired" in row.title and row.seeds), None)
        if row is None:
            continue
        gaussian = _gaussian_of(name, paper["k"])
        theirs = np.array(paper["quadcopter_gaussian_on_the_authors_simulator"]) if name == "quadcopter" else gaussian
        above = {"paper, SoS": np.array(stated["SoS"]) - theirs, "here": row.values.mean(axis=0)[ks] - gaussian}
        for title, ending in (("paper, SoS", "| |"), ("here", f"{row.seeds} | {row.mass:.0e} |")):
            lines.append(f"{_line(name, title, above[title])} {ending}")
    return lines


def _methods(systems: dict[str, System], paper: dict[str, Any]) -> list[str]:
    lines = ["\n## Methods on the same data\n"]
    lines += [
        f"Mean gap to the limit over k = 1..{EARLY}, in nats; methods that stop before are left out. The limit is the"
        " upper estimate: where the lower one is far from it (the quadcopter's late steps), so may the truth be. For"
        " dubins it is the gap to the mixture bound, which the true belief is above.\n"
    ]
    lines += ["| system | method | gap | parameters | seeds |", "|---|---|---|---|---|"]
    for system in systems.values():
        found = [(gap, row) for row in system.rows if plain(row) and (gap := early_gap(row)) is not None]
        for gap, row in sorted(found, key=lambda pair: -pair[0]):
            lines.append(f"| {system.name} | {row.title} | {gap:.3f} | {row.parameters:,} | {row.seeds} |")
    stated = paper["bernstein_vdp"]
    values = ", ".join(f"{v:.2f}" for v in stated["log_likelihood"])
    lines += [
        "\n\\* several members learned at once.\n",
        f"The authors' own Bernstein flow of degree {stated['degree']} on the Van der Pol system"
        f" ({stated['parameters']:,} parameters, about {stated['seconds_per_step']} s a step) is stored with k = 1.."
        f"{stated['k'][-1]}: {values}.",
    ]
    return lines


def _reached(systems: dict[str, System]) -> list[str]:
    """Our best row of every system, where it is furthest from the limit, and where it is ahead of the flow."""
    lines = ["\n## How close it comes\n"]
    lines += [
        "This library's row with the smallest mean gap on each system, and its largest gap at any k: to the upper"
        " estimate of the limit and to the lower one, between which the truth lies; the last column counts the k at"
        " which it is ahead of the flow with 10,000 particles and mixtures. States that blew up end the Van der Pol"
        " systems' rows before they occur.\n",
        "| system | row | gap to upper | gap to lower | at k | ahead of the flow |",
        "|---|---|---|---|---|---|",
    ]
    for system in systems.values():
        last = next((k for k, n in enumerate(system.blown_up) if n), None)
        ours = [row for row in system.rows if row.ours and row.seeds and row.gaps is not None]
        if not ours:
            continue
        best = max(ours, key=lambda row: float(np.nanmean(row.gaps[:, :last])))  # type: ignore[index]
        gap = best.gaps.mean(axis=0)[:last]  # type: ignore[union-attr]
        k = int(np.nanargmin(gap))
        spread = 0.0 if system.limit is None else system.limit["upper"][k] - system.limit["lower"][k]
        flow = _find(system, FLOW)
        ahead = np.zeros(0) if flow is None else (best.values.mean(axis=0) > flow.values.mean(axis=0))[:last]
        lines.append(
            f"| {system.name} | {best.title} | {gap[k]:.3f} | {gap[k] + spread:.3f} | {k + 1} |"
            f" {int(ahead.sum())} of {len(ahead)} |"
        )
    return lines


def _propagation() -> list[str]:
    """Seconds of propagation, side by side."""
    found = json.loads(PROPAGATION.read_text())
    lines = [
        "\n## Seconds to the beliefs\n",
        f"{found['steps']} steps of the cart-pole on {found['cores']} CPU cores, timed in turn in one run after a first"
        " call that compiles (`bench/scripts/propagation.py`): a process of the default size, and a flow of the"
        " baseline's size with its mixtures. The flow is untrained: its particles stay close to normal, and few"
        " components are fitted to them.\n",
        "| row | seconds | times as long |",
        "|---|---|---|",
    ]
    for name, seconds in found["seconds"].items():
        lines.append(f"| {name} | {np.median(seconds):.3g} | {found['ratio'].get(name, 1.0):,.0f} |")
    return lines


def _find(system: System | None, title: str) -> Row | None:
    return next((r for r in (system.rows if system else []) if r.title == title and r.seeds), None)


def _ours(system: System | None) -> Row | None:
    rows = [row for row in (system.rows if system else []) if row.ours and "," not in row.title and row.seeds]
    return max(rows, key=lambda row: row.seeds, default=None)


def _gaussian_of(name: str, ks: list[int]) -> np.ndarray:
    """As stored beside rows of `bench/scripts/learning.py`."""
    contents = [json.loads(path.read_text()) for path in sorted(LEARNING.glob(f"{name}-*.json"))]
    stored = next(c["references"]["gaussian"] for c in contents if c["system"] == name)
    return np.array(stored)[np.array(ks) - 1]


def _line(system: str, name: str, values: Any) -> str:
    return f"| {system} | {name} | " + " | ".join(f"{v:.2f}" for v in values) + " |"


def main(arguments: list[str] | None = None) -> int:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(arguments).check
    systems, paper = collect(RESULTS, LEARNING), json.loads(PAPER.read_text())
    pages = {PAGE: table(RESULTS, LEARNING), STORY: story(systems, paper)}
    if check:
        stale = [page.name for page, text in pages.items() if not page.exists() or page.read_text() != text]
        if stale:
            print(f"{', '.join(stale)}: not what results/ makes; run bench/scripts/results_page.py")
        return bool(stale)
    for page, text in pages.items():
        page.write_text(text)
    import matplotlib

    matplotlib.use("Agg")
    draw_accuracy(systems, paper, IMAGES / "accuracy.png")
    draw_cost(systems, IMAGES / "parameters.png", "parameters")
    draw_cost(systems, IMAGES / "seconds.png", "seconds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
