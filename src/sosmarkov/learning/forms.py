"""Which form of process suits the data: each that may is tried on blocks of time held out, the best learns from all."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from sosmarkov.core import checks
from sosmarkov.data.dataset import EXTREME, Dataset, robust_standardize
from sosmarkov.data.enough import require_enough
from sosmarkov.data.history import History, PhaseHistory
from sosmarkov.learning.gaussian import learn_gaussian
from sosmarkov.learning.held_out import Fold, all_of, folds, forecast_scores, mean_score
from sosmarkov.learning.lattice.fit import learn_lattice, rows_of
from sosmarkov.learning.lattice.learn import choose
from sosmarkov.learning.lattice.view import View
from sosmarkov.learning.options import Model, Options, Run, Training, names
from sosmarkov.learning.progress import Progress
from sosmarkov.learning.rooms import looks_like, rooms_of
from sosmarkov.process.process import MarkovProcess

FORMS = ("factor", "gaussian", "lattice")
# Coordinates up to which a lattice is learned, and pairs below which it has too little to go by.
LATTICE_DIM, LATTICE_PAIRS = 3, 40
# Options of every form; the others belong to the factor form.
_FORECASTS = "forecasts from known states, mean over 1, 2, 4 and 8 steps"
_SHARED = {"form", "circular", "bounds", "period", "seed"}


def factor_options(given: Options) -> list[str]:
    """Options that were given and say how a factor form is learned."""
    belong = [name for name in names(Model, Training, Run) if name not in _SHARED | {"progress"}] + ["observations"]
    defaults = {each.name: each.default for each in dataclasses.fields(given)}
    return [name for name in belong if not _same(getattr(given, name), defaults[name])]


def by_evidence(given: Options, data: Dataset | None = None, streamed: bool = False) -> bool:
    """Whether a process is learned by least squares and counts, and not by training a factor form; or a ValueError.

    Without states there are readings alone, from which only a factor form learns.
    """
    asked = factor_options(given)
    ends = [name for name in ("circular", "bounds") if getattr(given, name) is not None]
    form = given.form if given.form is None else checks.one_of(given.form, FORMS, "form")
    if form == "factor" or (form is None and asked):
        if ends:
            raise ValueError(
                f"Expected {ends[0]} with the lattice form, got it with {asked[0] if asked else 'form'} of the factor"
                " form. Leave one of them out."
            )
        return False
    if asked:
        raise ValueError(
            f"Expected form 'factor' with {asked[0]}, which belongs to it, got {form!r}. Leave one of them out."
        )
    assert data is not None
    whole = data.pairs.u is None or given.period is not None
    suits = not streamed and (form is not None or bool(ends) or (whole and data.dim <= LATTICE_DIM))
    if streamed and (form is not None or ends):
        raise ValueError(
            "Expected trajectories that fit in memory for the lattice and the gaussian form, got so many that they are"
            " streamed. Give an array of fewer, or use form 'factor'."
        )
    return suits


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, (str, int, float)) and value == default)


@dataclass
class _Trial:
    """One form on the way to a process.

    Attributes:
        form: Its name.
        learn: The process from all of the data.
        told: What was chosen for it, in words.
        score: Mean log-density of its held-out forecasts.
        seconds: How long that took.
    """

    form: str
    learn: Callable[[Dataset], MarkovProcess]
    told: str
    score: float
    seconds: float


def learn_form(given: Options, data: Dataset) -> MarkovProcess:
    """A process of the lattice or the gaussian form, or of the better of them, by held-out forecasts."""
    began = time.perf_counter()
    columns = checks.columns(data.columns, data.dim)
    rooms = rooms_of(given.circular, given.bounds, data.states, columns)
    view = View(rooms, given.period)
    require_enough(data, 2 * (1 + data.dim))
    usual, lost = data.within(robust_standardize(data.states), EXTREME)
    # With too few pairs for anything but one linear step there is nothing to judge it against.
    parts = folds(usual.pairs, given.seed) if len(usual.pairs.x) >= LATTICE_PAIRS else []
    trials = []
    with closing(Progress(given.progress)) as bar:
        for make in _suited(given, usual, view):
            trials.append(make(given, usual, view, parts))
            bar.update(_phase(trials[-1], trials[-1].seconds), 1)
        best = max(trials, key=lambda one: one.score)
        process = best.learn(usual)
    notes = looks_like(usual.pairs.x, usual.pairs.x_next, columns, rooms)
    chosen: dict[str, Any] = {"form": best.form, best.form: best.told, "set_aside": lost, "seed": given.seed}
    chosen["tried"] = [{"form": one.form, "score": one.score, "seconds": one.seconds} for one in trials]
    chosen |= {"notes": notes} if notes else {}
    history = _history(chosen, best, time.perf_counter() - began)
    return MarkovProcess(process.transition, process.initial, history=history, columns=columns)


def no_less_than_a_linear_step(process: Any, given: Options, data: Dataset) -> Any:
    """A trained process, or one linear step where its forecasts of what was held out from both are better."""
    began = time.perf_counter()
    usual, lost = data.within(robust_standardize(data.states), EXTREME)
    training, held_out = usual.split(given.validation, given.seed)
    fold, period, seed = all_of(held_out.pairs), given.period, given.seed
    linear = learn_gaussian(training, period=period, seed=seed)
    scores = [mean_score(forecast_scores(one.transition, held_out.pairs, fold)) for one in (process, linear)]
    seconds = time.perf_counter() - began
    tried = [
        {"form": "factor", "score": scores[0], "seconds": process.history.seconds},
        {"form": "gaussian", "score": scores[1], "seconds": seconds},
    ]
    if scores[0] >= scores[1]:
        history = History(process.history.phases, process.history.chosen | {"tried": tried}, process.history.scores)
        return MarkovProcess(
            process.transition, process.initial, sensor=process.sensor, history=history, columns=process.columns
        )
    trial = _Trial("gaussian", lambda whole: learn_gaussian(whole, period=period, seed=seed), "", scores[1], seconds)
    found = trial.learn(usual)
    chosen: dict[str, Any] = {"form": "gaussian", "gaussian": "one linear step", "set_aside": lost, "seed": seed}
    history = _history(chosen | {"tried": tried}, trial, process.history.seconds + seconds)
    return MarkovProcess(found.transition, found.initial, history=history, columns=process.columns)


def _suited(given: Options, data: Dataset, view: View) -> list[Callable[..., _Trial]]:
    """What to try, or a ValueError where the form that was asked for does not suit."""
    open_ended = all(room.ends == "open" for room in view.rooms)
    lattice_why = _no_lattice(data, given)
    if given.form == "lattice":
        if lattice_why is not None:
            raise ValueError(f"Expected {lattice_why[0]} for form 'lattice', got {lattice_why[1]}.")
        return [_lattice]
    if given.form == "gaussian" or lattice_why is not None:
        if not open_ended:
            raise ValueError(
                "Expected circular and bounds with the lattice form, which wraps and reflects, got them with form"
                " 'gaussian', or with data that a lattice cannot take. Leave them out."
            )
        return [_gaussian]
    return [_gaussian, _lattice] if open_ended else [_lattice]


def _no_lattice(data: Dataset, given: Options) -> tuple[str, str] | None:
    """What a lattice would need, and what there is; None where it suits."""
    if data.dim > LATTICE_DIM:
        return f"at most {LATTICE_DIM} coordinates", f"{data.dim}. Use form 'factor' or 'gaussian'"
    if len(data.pairs.x) < LATTICE_PAIRS:
        return f"at least {LATTICE_PAIRS} pairs", f"{len(data.pairs.x)}. Use form 'gaussian'"
    if data.pairs.u is not None and given.period is None:
        return "no inputs, or times of a period", "inputs. Use form 'factor' or 'gaussian'"
    return None


def _gaussian(given: Options, data: Dataset, view: View, parts: list[Fold]) -> _Trial:
    """One linear step."""
    del view
    began, scores = time.perf_counter(), []
    for fold in parts:
        process = learn_gaussian(data.with_pairs(fold.training), period=given.period, seed=given.seed)
        scores.append(forecast_scores(process.transition, data.pairs, fold))
    return _Trial(
        "gaussian",
        lambda whole: learn_gaussian(whole, period=given.period, seed=given.seed),
        "one linear step",
        mean_score(np.concatenate(scores)) if scores else float("nan"),
        time.perf_counter() - began,
    )


def _lattice(given: Options, data: Dataset, view: View, parts: list[Fold]) -> _Trial:
    """A lattice by the best recipe."""
    del given
    began = time.perf_counter()
    recipe, scores = choose(rows_of(data), parts, view)
    seconds = time.perf_counter() - began
    return _Trial("lattice", lambda whole: learn_lattice(whole, recipe, view), str(recipe), mean_score(scores), seconds)


def _history(chosen: dict[str, Any], best: _Trial, seconds: float) -> History:
    """One phase."""
    return History((_phase(best, seconds),), chosen, {_FORECASTS: best.score})


def _phase(trial: _Trial, seconds: float) -> PhaseHistory:
    """Of a training that takes no steps: what is held out are forecasts."""
    whole, loss = np.zeros(1, dtype=int), np.array([[-trial.score]])
    return PhaseHistory(trial.form, whole, np.full((1, 1), np.nan), loss, whole, seconds, "steps", ("cpu (NumPy)",))
