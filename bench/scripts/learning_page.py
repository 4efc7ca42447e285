"""Writes docs/learning-results.md from results/learning/*.json; `--check` only compares."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[2]
SOURCE, PAGE = ROOT / "results" / "learning", ROOT / "docs" / "learning-results.md"
PICTURE = ROOT / "docs" / "images" / "trade-off.png"
TRADED = "cartpole"
APART = 1.0
EARLY = 7
HEAD = """# What `fit` reaches

Made by `bench/scripts/learning.py` and `bench/scripts/learning_page.py` from `results/learning/`; do not edit.
Training data and protocol are the paper's (1,000 or 4,000 trajectories; for the wide systems 10,000 pairs and 1,000
initial states), log-likelihoods are means over 10,000 fresh test trajectories, in nats. The limit is the
log-likelihood of 2,000 of these states under the true dynamics, averaged over 50,000 independent predecessors (lower
estimate), or, after the slash, with the state's own predecessor among them (upper estimate); where the two differ the
truth lies between. *Gaussian* is one normal per k fitted to the training trajectories. Standard deviations are over
members.
"""


def row(values: list[float], name: str) -> str:
    """One line of a table."""
    return f"| {name} | " + " | ".join(f"{v:.3f}" if np.isfinite(v) else "-" for v in values) + " |"


def device_of(content: dict[str, Any]) -> str:
    """Where the row was trained; several in their order, where it was taken up again on another."""
    return content.get("trained_on") or content["environment"]["device"]


def section(content: dict[str, Any]) -> list[str]:
    """One run."""
    env = content["environment"]
    lines = [f"\n## {content['system']}, {options_of(content)}\n"]
    told = (
        f"{device_of(content)}, {env['cores']} cores, jax {env['jax']}, commit {env['commit']}, seed {content['seed']}"
    )
    if "failed" in content:
        return [*lines, f"**Failed:** {content['failed']}\n", told]
    members = content["members"]
    found = np.array([member["log_likelihood"][1:] for member in members])
    inside = np.array([member["log_likelihood_inside"][1:] for member in members])
    lines += ["| k | " + " | ".join(map(str, range(1, found.shape[1] + 1))) + " |", "|---" * (found.shape[1] + 1) + "|"]
    lines.append(row(list(found.mean(0)), "log-likelihood"))
    if len(members) > 1:
        lines.append(row(list(found.std(0)), f"std of {len(members)}"))
    blown = members[0]["blown_up"][1:]
    if any(blown):
        lines.append(row(list(inside.mean(0)), "without blown-up states"))
        lines.append("| blown-up states | " + " | ".join(map(str, blown)) + " |")
    references = content["references"]
    if "limit_lower" in references:
        pairs = zip(references["limit_lower"], references["limit_upper"], strict=True)
        lines.append("| limit | " + " | ".join(f"{a:.3f} / {b:.3f}" for a, b in pairs) + " |")
        if "log_likelihood_scored" in members[0]:
            scored = np.mean([member["log_likelihood_scored"][1:] for member in members], axis=0)
            lines.append(row(list(scored - np.array(references["limit_upper"])), "gap to the upper, same states"))
    if "gaussian" in references:
        lines.append(row(references["gaussian"], "Gaussian"))
    chosen = content["chosen"]
    scores = ", ".join(f"{name} {value:.3f}" for name, value in content["held_out"].items())
    worst = max(member["mass_error"] for member in members)
    finite = "all" if all(member["finite"] for member in members) else "NOT all"
    return [
        *lines,
        "",
        f"{content['seconds']:.0f} s in all; {chosen['basis']}, {chosen['coupling']}, {chosen['size']} functions,"
        f" {content['parameters']} parameters, surrogate {'used' if chosen['surrogate'] else 'not used'}; held out:"
        f" {scores}. Masses within {worst:.0e} of one; {finite} log-likelihoods finite. {told}.",
    ]


class Trade(NamedTuple):
    """One point of the trade-off: how it was trained, held-out transition and belief log-likelihoods."""

    name: str
    transitions: float
    beliefs: float


def trade_off(rows: list[dict[str, Any]]) -> list[Trade]:
    """The cart-pole's rows that differ in nothing but the weight of the transitions, by weight."""
    found = []
    for content in rows:
        options = content["options"]
        alike = content["system"] == TRADED and device_of(content).startswith("cpu")
        if not alike or set(options) - {"objective"} or "failed" in content:
            continue
        weight, scores = options.get("objective", 0), content["held_out"]
        if weight == "transitions":
            name, place = "transitions alone", float("inf")
        else:
            name, place = f"weight {weight:g}", float(weight)
        found.append((place, Trade(name, scores["transitions"], scores["beliefs"])))
    return [trade for _, trade in sorted(found)]


def trade_off_section(points: list[Trade]) -> list[str]:
    """As a table beside its picture."""
    if len(points) < 2:
        return []
    return [
        f"\n## Transitions against beliefs ({TRADED})\n",
        "Held-out log-likelihoods, in nats a state, for weights of the transition likelihood in the belief phase"
        " (`objective=`); the default is zero.\n",
        "![held-out transition likelihood against held-out belief likelihood](images/trade-off.png)\n",
        "| trained on | transitions | beliefs |",
        "|---|---|---|",
        *(f"| {p.name} | {p.transitions:.3f} | {p.beliefs:.3f} |" for p in points),
    ]


def draw(points: list[Trade]) -> None:
    """The curve."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    axes.plot([p.transitions for p in points], [p.beliefs for p in points], "o-", color="tab:blue")
    for p in points[:-1]:
        short = p.name.removeprefix("weight ")
        axes.annotate(short, (p.transitions, p.beliefs), xytext=(4, 6), textcoords="offset points")
    last = points[-1]
    axes.annotate(last.name, (last.transitions, last.beliefs), xytext=(-8, -3), textcoords="offset points", ha="right")
    axes.set_xlabel("held-out log p(x'|x), nats a state")
    axes.set_ylabel("held-out log p_k(x_k), nats a state")
    axes.set_title(f"{TRADED}: weights of the transition likelihood in the belief phase")
    axes.margins(0.2)
    figure.savefig(PICTURE, dpi=150)


def overview(rows: list[dict[str, Any]]) -> list[str]:
    """One line a run."""
    lines = [
        "\n## In short\n",
        f"Gaps are the largest over k <= {EARLY} (later, blown-up states of the Van der Pol system decide everything),"
        " to the lower estimate of the limit on the same states, and to one Gaussian per k; positive is better. Where"
        f" the two estimates of the limit lie more than {APART:.0f} nat apart, as in 12-D, they say nothing and no gap"
        " is given.\n",
        "| system | options | device | seconds | parameters | to the limit | to one Gaussian |",
        "|---|---|---|---|---|---|---|",
    ]
    for content in rows:
        told = f"| {content['system']} | {options_of(content)} | {device_of(content).split()[0]} |"
        if "failed" in content:
            lines.append(f"{told} failed | | | |")
            continue
        gaps = []
        for member, reference in (("log_likelihood_scored", "limit_lower"), ("log_likelihood", "gaussian")):
            expected = content["references"].get(reference)
            if reference == "limit_lower" and not _limit_known(content["references"]):
                expected = None
            found = np.mean([m[member][1 : EARLY + 1] for m in content["members"]], axis=0)
            gaps.append("-" if expected is None else f"{np.min(found - np.array(expected[:EARLY])):.3f}")
        lines.append(f"{told} {content['seconds']:.0f} | {content['parameters']} | {' | '.join(gaps)} |")
    return lines


def _limit_known(references: dict[str, Any]) -> bool:
    if "limit_lower" not in references:
        return False
    lower, upper = (np.array(references[name][:EARLY]) for name in ("limit_lower", "limit_upper"))
    return bool(np.max(upper - lower) < APART)


def options_of(content: dict[str, Any]) -> str:
    """As given to `fit`."""
    return ", ".join(f"{k}={v}" for k, v in content["options"].items()) or "defaults"


def stored() -> list[dict[str, Any]]:
    """All rows: by system, those with the fewest options first."""
    rows = [json.loads(path.read_text()) for path in sorted(SOURCE.glob("*.json"))]
    return sorted(rows, key=lambda row: (row["system"], len(row["options"]), options_of(row)))


def render(rows: list[dict[str, Any]]) -> str:
    """The page."""
    lines = [HEAD.rstrip(), *overview(rows), *trade_off_section(trade_off(rows))]
    for content in rows:
        lines += section(content)
    return "\n".join([*lines, ""])


def main() -> int:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    rows = stored()
    page = render(rows)
    if parser.parse_args().check:
        if PAGE.exists() and PAGE.read_text() == page:
            return 0
        print("docs/learning-results.md is not what results/learning makes: run bench/scripts/learning_page.py")
        return 1
    PAGE.write_text(page)
    if len(points := trade_off(rows)) > 1:
        draw(points)
    return 0


if __name__ == "__main__":
    sys.exit(main())
