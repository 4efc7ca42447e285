"""`tune`: search over sizes, ranks and rates for those who want more than the defaults."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from sosmarkov.core import checks
from sosmarkov.factor.bases import FAMILIES
from sosmarkov.factor.couplings import COUPLINGS
from sosmarkov.learning.fit import fit
from sosmarkov.learning.loop import TrainingError
from sosmarkov.learning.options import Options, names
from sosmarkov.process.ensemble import Ensemble
from sosmarkov.process.process import MarkovProcess


class Tuned(NamedTuple):
    """What a search found.

    Attributes:
        process: Fitted with the best options.
        options: Those options, to be given to `fit`.
        score: Its held-out log-likelihood, in nats per state.
        trials: All trials as (options, score), a score of None for one that failed, in the order they ran.
    """

    process: MarkovProcess | Ensemble
    options: dict[str, Any]
    score: float
    trials: tuple[tuple[dict[str, Any], float | None], ...]


def tune(
    *data: Any,
    trials: int = 20,
    timeout: float | None = None,
    journal: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: bool = True,
    **fixed: Any,
) -> Tuned:
    """Fit many times, with the options optuna suggests, and keep the best by held-out likelihood.

    The first trial takes the defaults, so the result is never worse than `fit` alone by that measure. All trials
    hold out the same part of the data: score the winner on data that none of them has seen.

    Args:
        *data: Trajectories, as for `fit`.
        trials: How many fits in all, those in the journal included.
        timeout: Seconds after which no further trial is begun.
        journal: A file that remembers trials; a second call with it goes on where the first one stopped.
        seed: For the search and every fit.
        progress: As for `fit`.
        **fixed: Options of `fit` that are not searched over (`transitions` and `initial` among them).
    """
    try:
        import optuna
    except ImportError as error:
        raise ImportError("tune needs optuna: pip install 'sosmarkov[tune]'.") from error
    trials = checks.count(trials, "trials", least=1)
    for name in fixed:
        checks.one_of(name, names(Options), "an option of fit,")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = None
    if journal is not None:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        storage = JournalStorage(JournalFileBackend(os.fspath(journal)))
    study = optuna.create_study(
        storage=storage,
        study_name="sosmarkov",
        load_if_exists=True,
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=seed),
    )
    found: dict[int, MarkovProcess | Ensemble] = {}

    def objective(trial: Any) -> float:
        options = fixed if trial.number == 0 else fixed | suggest(trial, fixed)
        process = fit(*data, **options, seed=seed, progress=progress)
        trial.set_user_attr("options", {name: options[name] for name in options if name in _SEARCHED})
        score = process.history.scores.final
        others = [one.value for one in study.trials if one.value is not None]
        if score >= max(others, default=score):
            found.clear()
            found[trial.number] = process
        return score

    missing = trials - len(study.trials)
    if missing > 0:
        study.optimize(objective, n_trials=missing, timeout=timeout, catch=(TrainingError,))
    best = study.best_trial
    options = best.user_attrs["options"]
    # A journal may know of a better trial than this call ran; the same seed gives its process again.
    process = found.get(best.number) or fit(*data, **fixed | options, seed=seed, progress=progress)
    table = tuple((trial.user_attrs.get("options", dict(trial.params)), trial.value) for trial in study.trials)
    return Tuned(process, options, study.best_value, table)


_SEARCHED = ("basis", "size", "rank", "learning_rate")


def suggest(trial: Any, fixed: dict[str, Any]) -> dict[str, Any]:
    """Options for one trial: what is fixed is left alone."""
    options: dict[str, Any] = {}
    # With observations the family says which kind of sensor is learned: not one model in several sizes.
    if not {"basis", "transform", "observations"} & set(fixed):
        options["basis"] = trial.suggest_categorical(
            "basis", [one.name for one in FAMILIES.values() if one.space == "standardize"]
        )
    if "size" not in fixed:
        options["size"] = trial.suggest_int("size", 8, 64, log=True)
    if "rank" not in fixed and COUPLINGS[fixed.get("coupling", "kraus")].ranked:
        share = trial.suggest_float("rank_share", 0.25, 1.0)
        options["rank"] = max(2, round(share * fixed.get("size", options.get("size", 16))))
    if "learning_rate" not in fixed:
        options["learning_rate"] = trial.suggest_float("learning_rate", 3e-3, 3e-2, log=True)
    return options
