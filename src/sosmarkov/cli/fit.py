"""`sosmarkov fit`: from a data file to a model file."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sosmarkov as sm
from sosmarkov.cli import files
from sosmarkov.cli.options import at_least, bounds, circular, settings, spoken
from sosmarkov.cli.output import facts, remark, say, say_json
from sosmarkov.data.given import consecutive, present_states
from sosmarkov.data.recorded import Recorded


def run(options: Namespace) -> int:
    """Read, learn, save, summarise."""
    files.check_writable(options.output, (".sosm",))
    at_least(options.seed, 0, "--seed")
    series = files.read(options)
    loud = not (options.quiet or options.json)
    if loud:
        remark(_described(series, options.data))
        _doubts(series, options)
    _require_varying(series)
    given = settings(options.set) | {"seed": options.seed, "progress": loud, "columns": series.columns}
    given |= {"checkpoint": options.checkpoint, "resume": options.resume, "form": options.form}
    given |= {
        "circular": circular(options.circular, series.columns),
        "bounds": bounds(options.bounds, series.columns),
    }
    process = _learn(series, given, options.pairs)
    process.save(options.output)
    found = _summary(process, series, options.output)
    if options.json:
        say_json(found)
    elif not options.quiet:
        say(_text(found, _report_command(options)))
    if found["interrupted"]:
        remark(f"Interrupted: the best model so far is in {options.output}.")
    return 130 if found["interrupted"] else 0


def _learn(series: Recorded, given: dict[str, Any], pairs: bool) -> Any:
    if not pairs or len(series.trajectories) == 1:
        if len(series.trajectories) > 1 and any(np.any(np.isnan(u)) for u in series.inputs or ()):
            raise ValueError(
                "Expected an input in every row of a trajectory, got gaps. Fill them in, or learn from pairs of"
                " neighbours with --pairs, which leaves steps across gaps out."
            )
        return sm.fit(series.trajectories, inputs=series.inputs, **given)
    x, x_next, u = consecutive(series.trajectories, series.inputs)
    return sm.fit(transitions=(x, x_next), initial=present_states(series.trajectories), inputs=u, **given)


def _described(series: Recorded, path: Path) -> str:
    lengths = [len(part) for part in series.trajectories]
    span = f"{min(lengths)}" if min(lengths) == max(lengths) else f"{min(lengths)} to {max(lengths)}"
    many = f"{len(lengths)} trajectories of {span} states" if len(lengths) > 1 else f"one series of {span} states"
    gaps = f", {series.gaps} of them missing" if series.gaps else ""
    rest = f"; left out: {', '.join(map(repr, series.left_out))}" if series.left_out else ""
    return f"{path.name}: {many}{gaps}; coordinates {', '.join(series.columns)}{rest}"


def _doubts(series: Recorded, options: Namespace) -> None:
    """Coordinates that look like something else, and rows that may be no series."""
    for doubt in series.doubts:
        remark(f"note: {files.advice(doubt)}")
    told = any(doubt.kind == "ids" for doubt in series.doubts)
    if options.trajectory is None and not options.wide and series.left_out and not told:
        remark("note: all rows are one series. If a column tells trajectories apart, name it with --trajectory.")
    if options.columns is not None:
        return
    for column, name in enumerate(series.columns):
        steps = np.concatenate([np.diff(part[:, column]) for part in series.trajectories])
        steps = steps[np.isfinite(steps)]
        if len(steps) > 2 and steps[0] != 0 and np.allclose(steps, steps[0], rtol=1e-6, atol=0):
            remark(f"note: column {name!r} grows by {steps[0]:g} in every row. If it is the time, say --time {name}.")
        elif options.trajectory is None and len(steps) > 2 and 0 < np.count_nonzero(steps) < 0.2 * len(steps):
            remark(f"note: column {name!r} rarely changes. If it tells trajectories apart, say --trajectory {name}.")


def _require_varying(series: Recorded) -> None:
    """Refuse constant columns by their names, with the option that leaves them out."""
    states = np.concatenate(series.trajectories)
    varying = np.nanmin(states, axis=0, initial=np.inf) < np.nanmax(states, axis=0, initial=-np.inf)
    constant, rest = ([n for n, v in zip(series.columns, varying, strict=True) if v == kind] for kind in (False, True))
    if constant and rest:
        raise ValueError(
            f"Expected coordinates that vary, got {', '.join(map(repr, constant))} with one value in all rows. Name the"
            f" others: --columns {quoted(rest)}."
        )


def quoted(names: Sequence[str]) -> str:
    """Names as a word of a command."""
    return shlex.quote(",".join(f'"{name}"' if "," in name else name for name in names))


def _summary(process: Any, series: Recorded, path: Path) -> dict[str, Any]:
    history = process.history
    return {
        "model": str(path),
        "bytes": path.stat().st_size,
        "form": process.form,
        "columns": series.columns,
        "inputs": 0 if series.inputs is None else series.inputs[0].shape[1],
        "trajectories": len(series.trajectories),
        "states": series.rows,
        "missing": series.gaps,
        "parameters": process.parameter_count,
        "seconds": round(history.seconds, 2),
        "device": history.device,
        "interrupted": history.interrupted,
        "chosen": history.chosen,
        "held_out": history.scores,
        "reference": references(series),
    }


def references(series: Recorded) -> dict[str, float]:
    """Log-likelihoods per state that need no learning, on all the data: what a model should exceed.

    `beliefs`: one normal distribution for all states. `transitions`: x' = A x + b + normal noise, by least squares.
    """
    x, x_next, _ = consecutive(series.trajectories)
    design = np.column_stack([x, np.ones(len(x))])
    residual = x_next - design @ np.linalg.lstsq(design, x_next, rcond=None)[0]
    spread = {"beliefs": present_states(series.trajectories), "transitions": residual}
    return {name: _normal_score(rows) for name, rows in spread.items()}


def _normal_score(rows: np.ndarray) -> float:
    """The mean log-likelihood of rows under the normal distribution with their mean and covariance."""
    _, log_det = np.linalg.slogdet(2 * np.pi * np.e * np.atleast_2d(np.cov(rows.T, bias=True)))
    return float(-0.5 * log_det)


def _report_command(options: Namespace) -> str:
    """The page about this model and its data, as a command."""
    words = ["sosmarkov", "report", str(options.output), "--data", str(options.data)]
    for name in ("columns", "trajectory", "time", "inputs"):
        words += [f"--{name}", getattr(options, name)] if getattr(options, name) else []
    return shlex.join([*words, *(["--wide"] if options.wide else []), "-o", "report.html"])


def _text(found: dict[str, Any], report: str) -> str:
    chosen = found["chosen"]
    pairs = _learned(found) if found["form"] == "factor" else _counted(found)
    if chosen.get("set_aside"):
        pairs["set aside"] = f"{chosen['set_aside']} pairs with extreme states"
    pairs["wrote"] = f"{found['model']} ({found['bytes'] / 1000:.0f} kB)"
    under = f" --inputs {','.join(['0'] * found['inputs'])}" if found["inputs"] else ""
    pairs["next"] = f"sosmarkov propagate {found['model']} --steps 10{under}"
    pairs["and"] = report
    notes = [f"note: {spoken(note)}" for note in chosen.get("notes", [])]
    return "\n".join([facts(pairs), *notes])


def _counted(found: dict[str, Any]) -> dict[str, str]:
    """Of the forms that are learned without training: what was chosen, and out of what."""
    chosen, form = found["chosen"], found["form"]
    how = f"{found['parameters']} numbers in {found['seconds']:.1f} s on {found['device']}"
    pairs = {"learned": f"{form} ({chosen[form]}); {how}"}
    for one in sorted(chosen["tried"], key=lambda one: -one["score"]):
        pairs[f"tried {one['form']}"] = f"{one['score']:.3f} nats a held-out forecast, {one['seconds']:.1f} s"
    pairs["scores"] = "means over 1, 2, 4 and 8 steps from known states; higher is better"
    return pairs


def _learned(found: dict[str, Any]) -> dict[str, str]:
    """Of the factor form: its size, and both held-out figures beside what needs no learning."""
    chosen, held_out, reference = found["chosen"], found["held_out"], found["reference"]
    kind = f"{chosen.get('basis')}, {chosen.get('size')} functions, {chosen.get('coupling')} coupling"
    pairs = {"learned": f"{kind}; {found['parameters']} numbers in {found['seconds']:.0f} s on {found['device']}"}
    simple = {"transitions": "a linear model", "beliefs": "one normal distribution"}
    words = {"transitions": "one step ahead", "beliefs": "from the start"}
    for name in ("transitions", "beliefs"):
        if name in held_out:
            beside = f"{simple[name]}: {reference[name]:.3f}; higher is better"
            pairs[words[name]] = f"{held_out[name]:.3f} nats per held-out state ({beside})"
    if any(held_out.get(name, np.inf) < reference[name] for name in words):
        pairs["advice"] = (
            "below the simple one: train longer (--set steps=4000), or with more functions (--set size=32)"
        )
    return pairs
