"""Experiments by name: one small file each says what to run, results are JSON files, a page is made from them.

Nothing here loads JAX before an experiment runs, so that the command line can list experiments at once.
"""

from __future__ import annotations

import json
import os
import time
import tomllib
import traceback
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sosmarkov_bench.memory import forget_peak_memory, peak_memory_mb

if TYPE_CHECKING:
    from sosmarkov_bench.baselines import Baseline, Trained
    from sosmarkov_bench.protocol import TrainingData

PROFILES = ("quick", "full")
RESULTS = Path("results/bench")
# Propagated once more, compiled by then, unless that took longer.
_AGAIN_UNDER = 120.0

Progress = Callable[[str], None]


def list_experiments() -> dict[str, str]:
    """The names of all experiments, each with a line on what it is."""
    return {name: _read(name)["title"] for name in _names()}


def titles(name: str) -> list[str]:
    """The methods of an experiment, in its order."""
    return [row["title"] for row in _read(name)["row"]]


def absent(name: str) -> dict[str, str]:
    """Methods an experiment does without, each with the reason."""
    return _read(name).get("absent", {})


def run(
    name: str,
    profile: str = "quick",
    out: str | os.PathLike[str] = RESULTS,
    progress: Progress | None = None,
    rows: list[str] | None = None,
) -> list[dict[str, Any]]:
    """Run every row of an experiment for every seed; what is finished already is kept, failures are tried again.

    Args:
        name: As listed.
        profile: "quick" for small data and small models, "full" for the protocol.
        out: A folder; results go to `out/NAME-PROFILE/ROW-SEED.json`, the limit to `limit.json` beside them.
        progress: Called with a line of text after every row.
        rows: Only these, "limit" among them where it is wanted; all of them and the limit where None.

    Returns:
        The records of all rows and seeds in the order of the experiment. One that failed has "failed", the message.
    """
    experiment = _experiment(name, profile)
    chosen = _chosen(experiment, rows)
    tell = progress if progress is not None else lambda line: None
    folder = Path(out) / f"{name}-{profile}"
    folder.mkdir(parents=True, exist_ok=True)
    job = _Job(experiment, folder)
    if experiment["limit"] and (rows is None or "limit" in rows):
        tell(job.limit())
    seeds = range(max((row["seeds"] for row in chosen), default=0))
    # Seeds outside: rows that share a model stand side by side, and one model is kept at a time.
    records = [job.row(row, seed, tell) for seed in seeds for row in chosen if seed < row["seeds"]]
    order = [row["name"] for row in chosen]
    return sorted(records, key=lambda record: (order.index(record["row"]), record["seed"]))


def table(
    results: str | os.PathLike[str] = RESULTS,
    learning: str | os.PathLike[str] | None = Path("results/learning"),
    page: str | os.PathLike[str] | None = None,
) -> str:
    """The results as a page of Markdown tables, written to `page` where that is given.

    Args:
        results: The folder `run` wrote to.
        learning: A folder of rows of `bench/scripts/learning.py` to stand beside them; none where None or absent.
        page: A file, such as docs/results.md.
    """
    from sosmarkov.core.files import write_atomic
    from sosmarkov_bench.tables import render

    text = render(Path(results), None if learning is None else Path(learning))
    if page is not None:
        write_atomic(page, text.encode())
    return text


class _Job:
    """One call of `run`: data made once, the last trained model kept."""

    def __init__(self, experiment: dict[str, Any], folder: Path):
        from sosmarkov_bench.protocol import simulate_test, simulate_training, steps_of, training_data
        from sosmarkov_bench.systems import get_system

        self.experiment, self.folder = experiment, folder
        self.system = get_system(experiment["system"])
        granted = simulate_training(self.system, experiment["data_seed"], experiment["share"])
        self.data: TrainingData = training_data(granted, steps_of(self.system), self.system)
        self.test = simulate_test(self.system, experiment["data_seed"], experiment["test"])
        self.shared: tuple[Any, Trained] | None = None

    def limit(self) -> str:
        """Estimate what no method can beat, unless that is done."""
        import jax
        import numpy as np

        from sosmarkov_bench.oracle import limit, twisted_limit
        from sosmarkov_bench.protocol import LIMIT_TEST

        path, config = self.folder / "limit.json", self._config({"limit": self.experiment["limit"]})
        if _finished(path, config):
            return "limit: kept"
        options = self.experiment["limit"]
        begin = time.perf_counter()
        others = self.system.simulate(jax.random.key(77), options["predecessors"], self.data.steps)
        test, others = self.test[:LIMIT_TEST], np.asarray(others)
        if "particles" in options:
            found = twisted_limit(self.system, test, others, jax.random.key(78), options["particles"])
        else:
            found = limit(self.system, test, others)
        record = {name: np.asarray(value).tolist() for name, value in found._asdict().items()}
        self._write(path, config | record | {"seconds": time.perf_counter() - begin})
        return f"limit: {time.perf_counter() - begin:.0f} s"

    def row(self, row: dict[str, Any], seed: int, tell: Progress) -> dict[str, Any]:
        """One method with one seed: its record, as it stands in its file."""
        path = self.folder / f"{row['name']}-{seed}.json"
        config = self._config({"row": row["name"], "method": row["method"], "options": row["options"], "seed": seed})
        if (found := _finished(path, config)) is not None:
            tell(f"{row['name']}, seed {seed}: kept")
            return found
        begin, busy = time.perf_counter(), time.process_time()
        forget_peak_memory()
        try:
            record = self._measure(make(row["method"], row["options"]), seed)
        except Exception as error:  # a method that fails is a result, and is shown as one
            record = {"failed": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        record = {"title": row["title"], **record, "peak_memory_mb": peak_memory_mb()}
        # Beside wall time, which says little where others use the machine: of training, propagation and scores.
        record["cpu_seconds"] = time.process_time() - busy
        tell(f"{row['name']}, seed {seed}: {record.get('failed', 'done')}, {time.perf_counter() - begin:.0f} s")
        return self._write(path, config | record)

    def _measure(self, method: Baseline, seed: int) -> dict[str, Any]:
        from sosmarkov_bench.protocol import score

        key = (method.trainer, seed)
        if self.shared is None or self.shared[0] != key:
            self.shared = None  # the old model's memory, before the new one is made
            self.shared = key, method.trainer.timed(self.data, seed)
        trained = self.shared[1]
        fitted = method.fit(self.data, seed, trained)
        again = None
        if fitted.propagation_seconds < _AGAIN_UNDER:
            again = method.fit(self.data, seed, trained).propagation_seconds
        return {
            "parameters": fitted.parameters,
            "training_seconds": fitted.training_seconds,
            "propagation_seconds": fitted.propagation_seconds if again is None else again,
            "propagation_seconds_with_compilation": fitted.propagation_seconds,
            "last": fitted.last,
            "mass_error": fitted.mass_error(),
            "notes": fitted.notes,
            **score(fitted.log_prob, self.test, fitted.last),
        }

    def _config(self, more: dict[str, Any]) -> dict[str, Any]:
        kept = ("name", "profile", "system", "data_seed", "share", "test")
        return {"experiment": {name: self.experiment[name] for name in kept}, **more}

    def _write(self, path: Path, content: dict[str, Any]) -> dict[str, Any]:
        from sosmarkov.core.files import write_atomic
        from sosmarkov_bench.environment import environment

        content = content | {"environment": environment()}
        text = json.dumps(content, indent=1)
        write_atomic(path, text.encode())
        return json.loads(text)


def make(method: str, options: dict[str, Any]) -> Baseline:
    """A baseline, or the library itself under the name "sos"."""
    from sosmarkov_bench.baselines import make_baseline
    from sosmarkov_bench.ours import Ours

    return Ours(tuple(sorted(options.items()))) if method == "sos" else make_baseline(method, **options)


def _names() -> list[str]:
    return sorted(path.name.removesuffix(".toml") for path in _home().iterdir() if path.name.endswith(".toml"))


def _home() -> Any:
    return files("sosmarkov_bench") / "experiments"


def _read(name: str) -> dict[str, Any]:
    if name not in _names():
        raise ValueError(f"Expected an experiment among {', '.join(_names())}, got {name!r}.")
    return tomllib.loads((_home() / f"{name}.toml").read_text())


def _experiment(name: str, profile: str) -> dict[str, Any]:
    """One profile of an experiment: sizes, and rows with the options that profile gives them."""
    content = _read(name)
    if profile not in PROFILES:
        raise ValueError(f"Expected profile {' or '.join(map(repr, PROFILES))}, got {profile!r}.")
    sizes = content["profile"][profile]
    rows = [
        {
            "name": row["name"],
            "title": row["title"],
            "method": row["method"],
            "options": row.get("options", {}) | (row.get("quick", {}) if profile == "quick" else {}),
            "seeds": min(row.get("seeds", sizes["seeds"]), sizes["seeds"]),
        }
        for row in content["row"]
        if profile in row.get("profiles", PROFILES)
    ]
    fixed = {"name": name, "profile": profile, "system": content["system"], "data_seed": content.get("data_seed", 0)}
    return fixed | {"share": sizes["share"], "test": sizes["test"], "limit": sizes.get("limit"), "rows": rows}


def _chosen(experiment: dict[str, Any], names: list[str] | None) -> list[dict[str, Any]]:
    known = ["limit", *(row["name"] for row in experiment["rows"])]
    if unknown := [name for name in names or [] if name not in known]:
        raise ValueError(f"Expected rows among {', '.join(known)}, got {', '.join(unknown)}.")
    return [row for row in experiment["rows"] if names is None or row["name"] in names]


def _finished(path: Path, config: dict[str, Any]) -> dict[str, Any] | None:
    """The record of that file, if it is of the same experiment and did not fail."""
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    same = all(found.get(name) == value for name, value in json.loads(json.dumps(config)).items())
    return found if same and "failed" not in found else None
