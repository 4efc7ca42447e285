"""`sosmarkov info`, `propagate`, `probability`: questions to a model."""

from __future__ import annotations

import warnings
from argparse import Namespace
from typing import Any

import numpy as np

import sosmarkov as sm
from sosmarkov.cli import files, models
from sosmarkov.cli.options import at_least, box, shares, state
from sosmarkov.cli.output import facts, remark, say, say_json
from sosmarkov.process.model import Model


def info(options: Namespace) -> None:
    """What a model is."""
    process = models.load(options.model)
    found = _described(process)
    if options.check:
        found |= _checked(process)
    if options.json:
        say_json(found)
        return
    history = found.pop("history", None)
    say(facts({name.replace("_", " "): _short(value) for name, value in found.items()}))
    if history:
        say("\nlearned:")
        say("\n".join(f"  {line}" for line in str(process.history).splitlines()))


def _described(process: Model) -> dict[str, Any]:
    one = process.members[0]
    parts = {name.replace(" ", "_"): value for name, value in one.transition.parts().items()}
    found: dict[str, Any] = {"coordinates": list(process.columns)} | parts | {"form": process.form}
    found["parameters"] = process.parameter_count
    if len(process.members) > 1:
        found["members"] = len(process.members)
    if process.features is not None:
        period = process.features.period
        found |= {"inputs": process.input_dim} if period is None else {"period": period}
    if one.sensor is not None:
        found["sensor"] = one.sensor_origin
    mean, covariance = np.asarray(process.initial.mean()), np.asarray(process.initial.covariance())
    found["initial_mean"] = dict(zip(process.columns, mean.tolist(), strict=True))
    found["initial_std"] = dict(zip(process.columns, np.sqrt(np.diagonal(covariance)).tolist(), strict=True))
    history = process.history
    if history is not None:
        found["history"] = {
            "chosen": history.chosen,
            "held_out": history.scores,
            "seconds": history.seconds,
            "device": history.device,
            "interrupted": history.interrupted,
        }
    return found


def _checked(process: Model) -> dict[str, Any]:
    """How exact it is, and its long run."""
    report = process.check()
    stationary = process.stationary()
    return {
        "normalisation_error": report.normalisation_error,
        "initial_mass_error": report.initial_mass_error,
        "check": "fine" if report.ok else "NOT fine",
        "relaxation_times": [float(f"{value:.4g}") for value in process.timescales(3)],
        "long_run_mean": dict(zip(process.columns, np.asarray(stationary.mean()).tolist(), strict=True)),
    }


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{name} {entry:.5g}" for name, entry in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def propagate(options: Namespace) -> None:
    """Beliefs over the steps, as a table."""
    files.check_writable(options.output)
    wanted = shares(options.quantiles)
    at_least(options.steps, 0, "--steps")
    process = models.load(options.model)
    start = state(options.start, process.columns)
    given = models.inputs(process, options.inputs, options.steps)
    beliefs = process.propagate(options.steps, initial=start, inputs=given)
    found = models.summarise(beliefs, wanted)
    rows = models.table(found, process.columns, wanted, {"step": np.arange(len(found.mean))})
    models.deliver(rows, options.output, options.json, {"model": str(options.model), "steps": options.steps})


def probability(options: Namespace) -> None:
    """One number."""
    at_least(options.step, 1 if options.stay or options.reach else 0, "--step")
    process = models.load(options.model)
    lower, upper = box(options.box, process.columns)
    start = state(options.start, process.columns)
    given = models.inputs(process, options.inputs, options.step)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", sm.EstimateWarning)
        value = _probability(process, options, lower, upper, start, given)
    notes = [str(one.message) for one in warned if issubclass(one.category, sm.EstimateWarning)]
    if options.json:
        found = {"probability": value, "step": options.step, "box": options.box, "exact": not notes}
        say_json(found | ({"note": notes[0]} if notes else {}))
        return
    for note in notes:
        remark(f"note: {note}")
    say(f"{value:.12g}")


def _probability(process: Model, options: Namespace, lower: Any, upper: Any, start: Any, given: Any) -> float:
    if not (options.stay or options.reach):
        if given is None:
            belief = process.belief_at(options.step, initial=start)
        else:
            belief = process.propagate(options.step, initial=start, inputs=given)[options.step]
        return float(belief.probability(lower, upper))
    ask = process.stay_probability if options.stay else process.reach_probability
    return float(ask(lower, upper, options.step, initial=start, inputs=given)[-1])
