"""The page of results: every figure from the JSON files that runs have left."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

HEAD = """# Results

Made from `results/` by `sosmarkov bench table`; do not edit. Every method learns from the same simulated data and is
scored on the same fresh test trajectories: mean log p(x_k) in nats, nothing floored, nothing dropped; a value that is
not finite is shown as such. Figures are means over seeds, after +- their standard deviation.

- *Gap* is to the limit (the upper estimate of it) on the states the limit was estimated with: nothing normalised can
  be above zero but by chance. It is left out where the two estimates are a nat apart or more, and so say nothing.
- *Mass* is the largest |mass - 1| of a belief, in closed form.
- Seconds of training include compilation; those of propagation are of a run after the first where there was one, for
  all k together. These are wall times: on different devices, or where others use the machine, they do not compare.
  *CPU s in all* adds the evaluation of densities at all test states, and its compilation.
- Baselines learn from no state further out than eight robust deviations (a simulation that blew up); all are scored.
- Where a system has no limit, *gap* is to the mixture bound: one mixture per k fitted to 200,000 fresh simulated
  trajectories, which no method is granted. The true belief scores more than it does.
- Rows marked * were learned by `bench/scripts/learning.py`, several members at once.
"""


_APART = 1.0
# Settings that several systems' rows share, by what such rows are called.
RECIPES = {
    "800 linear functions": {
        "coupling": "linear", "size": 800, "steps": 10_000, "batch_size": 1024, "patience": 5000,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One method on one system, all its seeds.

    Args:
        system: Its name.
        title: Of the method.
        values: Mean log-likelihoods, shape (seeds, K); NaN at k there is no belief for.
        inside: The same without blown-up states.
        gaps: To the limit on the same states; None where there is none.
        mass: The largest error.
        parameters: Of one seed.
        training: Seconds, mean over seeds (of all members together where they learned at once).
        propagation: Seconds, mean over seeds.
        busy: CPU seconds of one seed in all, scores included; None where they were not measured.
        memory: Peak in MB; None where it was not measured.
        device: Where it was trained.
        ours: Whether it is the library itself.
        failed: Messages.
        notes: Such as where a method stopped.
        bound: Whether it is no method, but a density fitted to more fresh states than any method is granted.
    """

    system: str
    title: str
    values: np.ndarray
    inside: np.ndarray
    gaps: np.ndarray | None
    mass: float
    parameters: int
    training: float
    propagation: float
    busy: float | None
    memory: float | None
    device: str
    ours: bool
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bound: bool = False

    @property
    def seeds(self) -> int:
        """How many did not fail."""
        return len(self.values)


@dataclass(frozen=True)
class System:
    """All that is known of one system; gaps are to the limit, or to a bound where there is no limit."""

    name: str
    title: str
    profile: str
    sizes: str
    blown_up: list[int]
    limit: dict[str, Any] | None
    rows: list[Row]
    absent: dict[str, str] = field(default_factory=dict)

    @property
    def bound(self) -> np.ndarray | None:
        """Mean log-likelihoods of the bound, shape (K,); None where there is none."""
        return next((row.values.mean(axis=0) for row in self.rows if row.bound and row.seeds), None)

    @property
    def against(self) -> str:
        """What gaps are to."""
        return "limit" if self.limit is not None else "mixture bound"


def collect(results: Path, learning: Path | None) -> list[System]:
    """Systems with results, by name; the full profile where there is one."""
    from sosmarkov_bench.runner import absent as absent_rows
    from sosmarkov_bench.runner import list_experiments

    found = []
    for name, title in list_experiments().items():
        folders = [results / f"{name}-{profile}" for profile in ("full", "quick")]
        folder = next((f for f in folders if any(f.glob("*-*.json"))), None)
        # Rows learned elsewhere are of the full protocol, and stand beside nothing less.
        stored = [] if _profile(folder) == "Quick" else _stored(learning, name)
        if folder is None and not stored:
            continue
        records = [] if folder is None else [json.loads(p.read_text()) for p in sorted(folder.glob("*-[0-9]*.json"))]
        limit_file = None if folder is None else folder / "limit.json"
        limit = json.loads(limit_file.read_text()) if limit_file is not None and limit_file.exists() else None
        # Of the same data, so of the same states: one estimate serves both.
        limit = limit or _limit_of(stored)
        stored = [c | {"references": c["references"] | _as_reference(limit)} for c in stored]
        rows = _ordered(name, _rows(name, records, limit)) + [row for c in stored for row in _learned(name, c)]
        blown = next((r["blown_up"][1:] for r in records if "blown_up" in r), None)
        blown = blown or next((c["members"][0]["blown_up"][1:] for c in stored if "members" in c), [])
        absent = {row: why for row, why in absent_rows(name).items() if row not in {r.title for r in rows}}
        system = System(name, title, _profile(folder), _sizes(records), blown, limit, rows, absent)
        found.append(system if limit is not None else replace(system, rows=_against_bound(rows, system.bound)))
    return found


def _against_bound(rows: list[Row], bound: np.ndarray | None) -> list[Row]:
    if bound is None:
        return rows
    return [row if row.bound else replace(row, gaps=row.values - bound[: row.values.shape[1]]) for row in rows]


def usable_limit(limit: dict[str, Any]) -> np.ndarray:
    """The upper estimate, shape (K,); NaN where it is so far from the lower one that neither says anything."""
    lower, upper = np.asarray(limit["lower"]), np.asarray(limit["upper"])
    return np.where(upper - lower < _APART, upper, np.nan)


def render(results: Path, learning: Path | None) -> str:
    """The page."""
    systems = collect(results, learning)
    if not systems:
        raise ValueError(f"Expected results under {results}, got none. Run an experiment first.")
    return "\n".join([HEAD.rstrip(), *(line for system in systems for line in section(system)), ""])


def section(system: System) -> list[str]:
    """One system: log-likelihoods, gaps, what each method costs."""
    rows = sorted(system.rows, key=lambda row: not row.ours)
    shown = list(range(0, max(row.values.shape[1] for row in rows), 2))
    lines = [f"\n## {system.name}: {system.title}\n", f"{system.profile} profile. {system.sizes}".strip() + "\n"]
    lines += _head("log-likelihood at k =", shown, "seeds")
    lines += _limit_lines(system.limit, shown)
    lines += [f"| {row.title} | {_cells(row.values, shown)} | {row.seeds} |" for row in rows]
    if any(system.blown_up):
        counts = ", ".join(f"{n} at k = {k + 1}" for k, n in enumerate(system.blown_up) if n)
        lines += ["", f"Without states that blew up ({counts}):\n", *_head("log-likelihood at k =", shown)]
        lines += [f"| {row.title} | {_cells(row.inside, shown)} |" for row in rows]
    if any(row.gaps is not None for row in rows):
        lines += ["", *_head(f"gap to the {system.against} at k =", shown)]
        lines += [f"| {row.title} | {_cells(row.gaps, shown)} |" for row in rows if row.gaps is not None]
    names = ["cost", "mass", "parameters", "training s", "propagation s", "CPU s in all", "peak MB", "device"]
    lines += ["", f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    lines += [
        f"| {row.title} | {row.mass:.0e} | {row.parameters:,} | {row.training:.1f} | {row.propagation:.2f} |"
        f" {_whole(row.busy)} | {_whole(row.memory)} | {row.device} |"
        for row in rows
        if row.seeds
    ]
    remarks = [f"- {row.title}: {text}" for row in rows for text in row.notes]
    failures = [f"- **{row.title} failed:** {text}" for row in rows for text in row.failed]
    absent = [f"- {title}: not run. {reason[0].upper()}{reason[1:]}." for title, reason in system.absent.items()]
    return [*lines, *([""] if remarks or failures or absent else []), *remarks, *failures, *absent]


def _head(what: str, shown: list[int], *more: str) -> list[str]:
    names = [what, *(str(k + 1) for k in shown), *more]
    return ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]


def _limit_lines(limit: dict[str, Any] | None, shown: list[int]) -> list[str]:
    if limit is None:
        return []
    lower, upper, error = (np.asarray(limit[name]) for name in ("lower", "upper", "error"))
    cells = [f"{lower[k]:.3f} / {upper[k]:.3f} +- {error[k]:.3f}" if k < len(lower) else "" for k in shown]
    return [f"| **limit**, lower / upper | {' | '.join(cells)} | |"]


def _cells(values: np.ndarray, shown: list[int]) -> str:
    return " | ".join(_cell(values[:, k]) if k < values.shape[1] else "" for k in shown)


def _cell(values: np.ndarray) -> str:
    if not len(values) or np.all(np.isnan(values)):
        return ""
    if not np.all(np.isfinite(values)):
        return "not finite"
    mean = f"{values.mean():.3f}" if abs(values.mean()) < 1e3 else f"{values.mean():.3g}"
    return mean if len(values) == 1 else f"{mean} +- {values.std(ddof=1):.2g}"


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _rows(name: str, records: list[dict[str, Any]], limit: dict[str, Any] | None) -> list[Row]:
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault(record["row"], []).append(record)
    return [_row(name, of_row, limit) for of_row in found.values()]


def _row(name: str, records: list[dict[str, Any]], limit: dict[str, Any] | None) -> Row:
    done = [record for record in records if "failed" not in record]
    steps = max((len(record["blown_up"]) for record in done), default=1) - 1
    values, inside, scored = (
        np.array([_filled(record[f"log_likelihood{kind}"][1:], steps) for record in done]).reshape(len(done), steps)
        for kind in ("", "_inside", "_scored")
    )
    first = done[0] if done else records[0]
    stopped = sorted({record["notes"]["stopped"] for record in done if "stopped" in record["notes"]})
    return Row(
        system=name,
        title=first["title"],
        values=values,
        inside=inside,
        gaps=None if limit is None or not done else scored - usable_limit(limit),
        mass=max((record["mass_error"] for record in done), default=np.nan),
        parameters=first.get("parameters", 0),
        training=_mean(done, "training_seconds"),
        propagation=_mean(done, "propagation_seconds"),
        busy=_mean(done, "cpu_seconds") if done and all("cpu_seconds" in record for record in done) else None,
        memory=max((record["peak_memory_mb"] for record in done), default=None),
        device=first.get("notes", {}).get("trained_on") or first["environment"]["device"],
        ours=first["method"] == "sos",
        failed=tuple(f"{record['failed']} (seed {record['seed']})" for record in records if "failed" in record),
        notes=tuple(f"no belief {text}" for text in stopped) + _together(done),
        bound=bool(first["options"].get("fresh")),
    )


def _together(done: list[dict[str, Any]]) -> tuple[str, ...]:
    counts = {record["notes"]["seeds_at_once"] for record in done if "seeds_at_once" in record["notes"]}
    return tuple(f"{count} seeds learned at once in the seconds given" for count in sorted(counts))


def _learned(name: str, content: dict[str, Any]) -> list[Row]:
    """Rows of `bench/scripts/learning.py`: its members are seeds; mixed, they are one more prediction."""
    count = len(content["members"])
    note = f"{count} members learned at once in the seconds given"
    rows = [_scored(name, content, content["members"], "", 1, (note,) if count > 1 else ())]
    if "mixed" in content:
        rows.append(_scored(name, content, [content["mixed"]], f"{count} members mixed", count, ()))
    return rows


def _scored(
    name: str, content: dict[str, Any], scores: list[dict[str, Any]], what: str, copies: int, notes: tuple[str, ...]
) -> Row:
    given = {key: value for key, value in content["options"].items() if key != "members"}
    options = [f"{key}={value}" for key, value in given.items()]
    named = next((name for name, recipe in RECIPES.items() if recipe == given), None)
    values, inside, scored = (
        np.array([found[f"log_likelihood{kind}"][1:] for found in scores]) for kind in ("", "_inside", "_scored")
    )
    limit = _limit_of([content])
    return Row(
        system=name,
        title=", ".join(["sosmarkov", *([named] if named else options), *([what] if what else [])]) + " *",
        values=values,
        inside=inside,
        gaps=None if limit is None else scored - usable_limit(limit),
        mass=max(found["mass_error"] for found in scores),
        parameters=copies * content["parameters"],
        training=content["seconds"],
        propagation=_mean(scores, "propagation_seconds_with_compilation"),
        busy=None,
        memory=None,
        device=content.get("trained_on") or content["environment"]["device"],
        ours=True,
        notes=notes + ((", ".join(options),) if named and notes else ()),
    )


def _stored(learning: Path | None, name: str) -> list[dict[str, Any]]:
    """Rows with several members, that did not fail; the fewest options first."""
    if learning is None or not learning.is_dir():
        return []
    contents = [json.loads(path.read_text()) for path in sorted(learning.glob("*.json"))]
    several = [c for c in contents if c["system"] == name and c["seed"] == 0 and len(c.get("members", [])) > 1]
    return sorted(several, key=lambda content: len(content["options"]))


def _limit_of(stored: list[dict[str, Any]]) -> dict[str, Any] | None:
    for content in stored:
        if "limit_lower" in content["references"]:
            return {kind: content["references"][f"limit_{kind}"] for kind in ("lower", "upper", "error")}
    return None


def _as_reference(limit: dict[str, Any] | None) -> dict[str, Any]:
    return {} if limit is None else {f"limit_{kind}": limit[kind] for kind in ("lower", "upper", "error")}


def _ordered(name: str, rows: list[Row]) -> list[Row]:
    """As the experiment lists them."""
    from sosmarkov_bench.runner import titles

    order = titles(name)
    return sorted(rows, key=lambda row: order.index(row.title) if row.title in order else len(order))


def _profile(folder: Path | None) -> str:
    return "Full" if folder is None else folder.name.rsplit("-", 1)[1].capitalize()


def _sizes(records: list[dict[str, Any]]) -> str:
    if not records:
        return ""
    experiment, jax = records[0]["experiment"], records[0]["environment"]["jax"]
    commits = ", ".join(sorted({record["environment"]["commit"] for record in records}))
    return (
        f"{experiment['share']:.0%} of the protocol's training data (seed {experiment['data_seed']}),"
        f" {experiment['test']:,} test trajectories; commit {commits}, jax {jax}."
    )


def _filled(values: list[float], steps: int) -> list[float]:
    return values + [np.nan] * (steps - len(values))


def _mean(records: list[dict[str, Any]], name: str) -> float:
    return float(np.mean([record[name] for record in records])) if records else float("nan")
