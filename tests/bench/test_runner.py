"""Experiments run, are kept, fail visibly and become a page, at the smallest size."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sosmarkov_bench import runner

SMALL = """
title = "a small one"
system = "vdp"

[absent]
"a method in one dimension" = "there are two"
"a mixture" = "it was run after all"

[profile.quick]
share = 0.05
test = 60
seeds = 2
limit = { predecessors = 200 }

[[row]]
name = "gaussian"
title = "one Gaussian per k"
method = "gaussian"
seeds = 1

[[row]]
name = "mixture"
title = "a mixture"
method = "mixture"
quick = { components = 2 }

[[row]]
name = "wrong"
title = "a method that fails"
method = "ekf"
options = { dynamics = "guessed" }
seeds = 1
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "small.toml").write_text(SMALL)
    monkeypatch.setattr(runner, "_home", lambda: folder)
    return tmp_path


def test_an_experiment_is_run_kept_and_put_on_a_page(home):
    out, told = home / "out", []
    records = runner.run("small", "quick", out, told.append)
    assert [(r["row"], r["seed"]) for r in records] == [
        ("gaussian", 0), ("mixture", 0), ("mixture", 1), ("wrong", 0),
    ]  # fmt: skip
    assert "dynamics 'gp' or 'true', got 'guessed'" in records[3]["failed"]
    assert all(np.isfinite(r["log_likelihood_inside"]).all() for r in records if "failed" not in r)
    assert all(r["environment"]["jax"] and r["peak_memory_mb"] > 50 for r in records)

    stamps = {path.name: path.stat().st_mtime_ns for path in (out / "small-quick").iterdir()}
    told.clear()
    again = runner.run("small", "quick", out, told.append)
    assert [r for r in again if "failed" not in r] == [r for r in records if "failed" not in r]
    changed = [p.name for p in (out / "small-quick").iterdir() if p.stat().st_mtime_ns != stamps[p.name]]
    assert changed == ["wrong-0.json"]
    assert sum("kept" in line for line in told) == 4

    # One that gave up at k = 2, as a record says it.
    short = {name: value[:3] for name, value in records[0].items() if name.startswith("log_likelihood")}
    short |= {"row": "split", "title": "one that stops", "notes": {"stopped": "after k = 2: too many"}}
    (out / "small-quick" / "split-0.json").write_text(json.dumps(records[0] | short))
    page = home / "results.md"
    text = runner.table(out, None, page)
    assert page.read_text() == text
    lines = {line.split(" | ")[0].strip("| "): line for line in reversed(text.splitlines())}
    values = [r["log_likelihood"][1] for r in records if r["row"] == "mixture"]
    assert f"| {np.mean(values):.3f} +- {np.std(values, ddof=1):.2g} |" in lines["a mixture"]
    assert f"| {records[0]['log_likelihood'][1]:.3f} |" in lines["one Gaussian per k"]
    limit = json.loads((out / "small-quick" / "limit.json").read_text())
    assert f"{limit['lower'][0]:.3f} / {limit['upper'][0]:.3f}" in lines["**limit**, lower / upper"]
    assert "**a method that fails failed:** ValueError" in text
    assert "one that stops: no belief after k = 2" in text
    assert "- a method in one dimension: not run. There are two." in text
    assert "run after all" not in text
    assert lines["one that stops"].count("|  |") > 0


def test_without_a_limit_gaps_are_to_the_bound(home):
    text = (home / "experiments" / "small.toml").read_text().replace("limit = { predecessors = 200 }\n", "")
    bound = '[[row]]\nname = "bound"\ntitle = "a bound"\nmethod = "mixture"\noptions = { components = 1, fresh = 400 }'
    (home / "experiments" / "small.toml").write_text(f"{text}\n{bound}\nseeds = 1\n")
    records = runner.run("small", "quick", home / "out", rows=["gaussian", "bound"])
    page = runner.table(home / "out", None)
    k1, bound1 = (record["log_likelihood"][1] for record in records)
    assert "gap to the mixture bound at k =" in page
    assert f"| one Gaussian per k | {k1 - bound1:.3f} |" in page
    assert page.count("| a bound |") == 2  # likelihoods and cost; no gap to itself


def test_refusals_and_listing(home):
    assert runner.list_experiments() == {"small": "a small one"}
    with pytest.raises(ValueError, match="experiment among small, got 'large'"):
        runner.run("large")
    with pytest.raises(ValueError, match="'quick' or 'full', got 'slow'"):
        runner.run("small", "slow")
    with pytest.raises(ValueError, match="rows among limit, gaussian.*got kalman"):
        runner.run("small", "quick", home, rows=["kalman"])
    with pytest.raises(ValueError, match="Run an experiment first"):
        runner.table(home / "nowhere", None)


def test_every_experiment_that_comes_with_the_package_can_be_made():
    for name in runner.list_experiments():
        for profile in runner.PROFILES:
            experiment = runner._experiment(name, profile)
            for row in experiment["rows"]:
                assert runner.make(row["method"], row["options"]).trainer is not None
            assert experiment["system"] == name


def test_the_pages_of_results_are_made_from_the_stored_files():
    script = Path(__file__).parents[2] / "bench" / "scripts" / "results_page.py"
    assert runpy.run_path(str(script))["main"](["--check"]) == 0


def test_listing_does_not_load_jax():
    code = "import sys; from sosmarkov_bench import runner; runner.list_experiments(); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
