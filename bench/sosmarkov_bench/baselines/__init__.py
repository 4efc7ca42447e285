"""The baselines by name. Each is a frozen dataclass of its options; `fit(data, seed)` gives beliefs and their cost."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from sosmarkov_bench.baselines.base import Baseline, Beliefs, Fitted, Trained, Trainer
from sosmarkov_bench.baselines.bernstein import Bernstein
from sosmarkov_bench.baselines.ekf import EKF
from sosmarkov_bench.baselines.flow import Flow
from sosmarkov_bench.baselines.gaussian import OneGaussian
from sosmarkov_bench.baselines.grid import Grid
from sosmarkov_bench.baselines.mixture import OneMixture
from sosmarkov_bench.baselines.wsasos import WSASOS

__all__ = ["BASELINES", "Baseline", "Beliefs", "Fitted", "Trained", "Trainer", "make_baseline"]

BASELINES: dict[str, type[Baseline]] = {
    "gaussian": OneGaussian,
    "mixture": OneMixture,
    "bernstein": Bernstein,
    "ekf": EKF,
    "grid": Grid,
    "wsasos": WSASOS,
    "flow": Flow,
}


def make_baseline(name: str, **options: Any) -> Baseline:
    """The baseline of that name, with options other than its own defaults."""
    if name not in BASELINES:
        raise ValueError(f"Expected a baseline among {', '.join(sorted(BASELINES))}, got {name!r}.")
    known = {field.name for field in fields(BASELINES[name])}  # type: ignore[arg-type]
    if unknown := sorted(set(options) - known):
        raise ValueError(f"Expected options of {name!r} among {', '.join(sorted(known))}, got {', '.join(unknown)}.")
    return BASELINES[name](**options)
