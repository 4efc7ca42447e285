"""Documentation and examples run: every python block of every page, every example."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.stats import gaussian_kde

import sosmarkov
from sosmarkov.cli.demo import demonstrate
from tables import EXHAUSTIVE, only_exhaustive

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# A block that takes long, and does what has tests of its own: `make exhaustive` runs it.
LONG = re.compile(r"^<!-- long -->\n```python\n.*?^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=lambda p: p.name)
@pytest.mark.usefixtures("nothing_of_ones_own_stays")
def test_python_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # pages may write files
    text = page.read_text() if EXHAUSTIVE else LONG.sub("", page.read_text())
    code = "\n".join(BLOCK.findall(text))
    exec(compile(code, str(page), "exec"), {"__name__": "page"})  # noqa: S102


def test_readme_opens_with_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert text.index("make demo") < text.index("make test") < text.index("```python")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / target).exists(), target


def example(name):
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))["main"]


def test_the_demo_learns_and_writes_its_figure(tmp_path, capsys):
    gaps = demonstrate(tmp_path, count=100, size=4, steps=100)
    assert np.all(gaps > -1.0)
    assert sosmarkov.load(tmp_path / "model.sosm").columns == ("position", "velocity")
    assert (tmp_path / "van_der_pol.png").stat().st_size > 10_000
    assert "one Gaussian" in capsys.readouterr().out


def test_forecasts_with_intervals_cover_fresh_simulation(tmp_path, capsys):
    # As many trajectories, steps and functions as the demo above: what that compiled serves here.
    options = ["--count", "100", "--size", "4", "--steps", "100"]
    assert example("forecast_intervals")(["--out", str(tmp_path), *options]) < 0.4
    assert (tmp_path / "forecast_intervals.png").stat().st_size > 10_000
    assert "largest difference from nominal" in capsys.readouterr().out


def test_the_process_built_by_hand_agrees_with_simulation(tmp_path, capsys):
    assert example("hand_built_process")(["--out", str(tmp_path), "--count", "2000"]) < 5
    assert (tmp_path / "hand_built_process.png").stat().st_size > 10_000
    assert "after 10^6 steps" in capsys.readouterr().out


def test_the_double_well_example_compares_its_long_run_with_what_is_known(tmp_path, capsys):
    options = ["--count", "60", "--length", "13", "--size", "5", "--steps", "150"]
    found = example("double_well")(["--out", str(tmp_path), *options])
    assert 0.5 < found["timescale"] / found["timescale_true"] < 1.5
    assert 0 < found["kl"] < 0.1
    assert (tmp_path / "double_well.png").stat().st_size > 10_000
    assert "ck_test: predicted and observed" in capsys.readouterr().out


def test_filtering_with_gaps_beats_ignoring_the_readings(tmp_path, capsys):
    options = ["--count", "100", "--size", "5", "--steps", "150", "--sequences", "1"]
    found = example("filtering_with_gaps")(["--out", str(tmp_path), *options])
    assert found["smoother"] < found["filter"] < found["ignoring the readings"]
    assert (tmp_path / "filtering_with_gaps.png").stat().st_size > 10_000
    assert "ignoring the readings" in capsys.readouterr().out


def test_the_safety_of_the_quadrotor_is_held_against_simulation(tmp_path, capsys):
    # As many trajectories, steps and functions as the double well above: what that compiled serves here.
    options = ["--count", "60", "--size", "5", "--steps", "150", "--flights", "500"]
    assert example("quadrotor_safety")(["--out", str(tmp_path), *options]) < 0.25
    assert (tmp_path / "quadrotor_safety.png").stat().st_size > 10_000
    assert "three answers" in capsys.readouterr().out


@only_exhaustive
def test_a_plan_is_as_likely_as_draws_of_the_process_say(tmp_path, capsys):
    options = ["--count", "100", "--size", "4", "--steps", "50", "--objective", "transitions", "--rounds", "5"]
    found = example("plan_controls")(["--out", str(tmp_path), *options, "--draws", "500", "--runs", "20"])
    for name in ("goal", "leave"):
        error = np.sqrt(found[name] * (1 - found[name]) / 500)
        assert abs(found[name] - found[f"{name}_drawn"]) < 4 * error
    assert (tmp_path / "plan_controls.png").stat().st_size > 10_000
    assert "runs of the simulator" in capsys.readouterr().out


@only_exhaustive
def test_hourly_temperatures_are_forecast_better_than_by_what_the_year_is_like(tmp_path, capsys):
    options = ["--size", "6", "--rank", "2", "--steps", "50", "--every", "84"]
    found = example("hourly_temperature")(["--out", str(tmp_path), *options])
    assert found["one hour"] < found["one hour, linear"] + 0.1
    # What every hour is like over the year scores -3.5, whatever the temperature an hour before.
    assert found["one hour"] > -3.0
    assert (tmp_path / "hourly_temperature.png").stat().st_size > 10_000
    assert "difference" in capsys.readouterr().out


@only_exhaustive
def test_the_hidden_oscillator_is_found_from_readings_alone(tmp_path, capsys):
    found = example("hidden_oscillator")(["--out", str(tmp_path), "--count", "100", "--size", "5", "--steps", "100"])
    assert abs(found["period"] - 8.0) < 1.5
    assert found["AR(1)"] < found["process"] < found["Kalman filter with the truth"]
    assert (tmp_path / "hidden_oscillator.png").stat().st_size > 10_000
    assert "a reading given those before" in capsys.readouterr().out


def run_benchmark(name, arguments):
    return runpy.run_path(str(ROOT / "bench" / "scripts" / f"{name}.py"))["main"](arguments)


def test_the_stream_of_readings_gives_the_evidence_of_the_batch(tmp_path):
    found = run_benchmark("streaming", ["--readings", "500", "--out", str(tmp_path / "streaming.json")])
    assert found["relative_difference"] < 1e-9
    assert np.all(np.isfinite(found["stream"]["mean"]))


def test_propagation_is_timed_beside_a_flow(tmp_path):
    with jax.numpy_rank_promotion("allow"):  # flowjax and its networks promote ranks themselves
        found = run_benchmark("propagation", ["--quick", "--out", str(tmp_path / "propagation.json")])
    assert list(found["seconds"]) == ["sosmarkov", "flow, 50 particles, mixture"]
    assert all(value > 0 for values in found["seconds"].values() for value in values)
    assert json.loads((tmp_path / "propagation.json").read_text())["ratio"] == found["ratio"]


def test_the_comparison_with_kalman_runs_at_small_size(tmp_path):
    out = ["--out", str(tmp_path / "kalman.json"), "--figure", str(tmp_path / "kalman.png")]
    # Its data and functions are as many as those of filtering with gaps: what that compiled serves here.
    (row,) = run_benchmark("linear_gaussian", ["--quick", *out])
    assert 0 < row["filtered_mean"] < 0.8
    assert abs(row["evidence"]) < 0.2


def test_the_comparison_with_particles_runs_at_small_size(tmp_path):
    rows = run_benchmark("hidden", ["--quick", "--out", str(tmp_path / "hidden.json")])["rows"]
    # No filter sees more than the one that knows the truth, within its few trajectories' noise.
    row = rows["learned sensor"]
    assert row["gap"] < 2 * row["standard_error"]
    assert np.all(np.isfinite(row["by_step"]))


def test_the_comparison_on_hourly_temperatures_runs_at_small_size(tmp_path):
    # Its data and functions are those of the example above: what that compiled serves here.
    rows = run_benchmark("periodic", ["--quick", "--out", str(tmp_path / "periodic.json")])["rows"]
    assert rows["process with period 24"]["mean"][0] > rows["Gaussian for every hour"]["mean"][0] + 0.3
    assert np.all(np.isfinite([row["standard_error"] for row in rows.values()]))


def test_the_comparison_under_torques_runs_at_small_size(tmp_path):
    module = runpy.run_path(str(ROOT / "bench" / "scripts" / "controlled.py"))
    # Its data and functions are those of the planned controls: what that compiled serves here.
    rows = module["main"](["--quick", "--out", str(tmp_path / "controlled.json")])["rows"]
    assert len(rows) == 3
    assert np.all(np.isfinite([row["mean"] for row in rows.values()]))
    assert np.all(np.min([row["behind"] for name, row in rows.items() if "Gaussian" in name], axis=0) == 0)
    cloud, x = np.random.default_rng(0).normal(size=(60, 2)), np.array([0.3, -0.2])
    np.testing.assert_allclose(module["kernel_estimate"](cloud, x), gaussian_kde(cloud.T).logpdf(x)[0], rtol=1e-9)


def test_what_the_page_says_of_queries_is_what_the_code_does():
    page = runpy.run_path(str(ROOT / "bench" / "scripts" / "queries_page.py"))
    assert page["main"](["--check"]) == 0
    names = ("`log_prob`", "`marginal`", "`probability`, both bounded", "`stay_probability`, both bounded")
    told = page["stored"]()["families"]["fourier"]["affine kraus"]
    assert page["try_all"]("fourier", "kraus", "affine", names) == {name: told[name] for name in names}


def test_the_benchmark_of_answers_runs_at_small_size(tmp_path):
    found = run_benchmark("queries", ["--quick", "--repeats", "1", "--out", str(tmp_path / "queries.json")])
    assert json.loads((tmp_path / "queries.json").read_text())["filter"] == found["filter"]
    assert len(found["filter"]) == len(found["marginal"]) == 2


def test_the_benchmark_runs_at_small_size_and_agrees_with_the_dense_reference(tmp_path):
    script = ROOT / "bench" / "scripts" / "core.py"
    out = tmp_path / "bench.json"
    command = [sys.executable, str(script), "--quick", "--repeats", "1", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 3
    assert all(row["loss_difference"] < 1e-9 for row in rows)


def test_benchmark_page_is_made_from_the_results_file():
    command = [sys.executable, str(ROOT / "bench" / "scripts" / "page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_learning_page_is_made_from_the_results_files():
    command = [sys.executable, str(ROOT / "bench" / "scripts" / "learning_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_learning_benchmark_runs_at_small_size(tmp_path, capsys):
    run_benchmark(
        "learning",
        ["vdp:objective=transitions,surrogate=false", "vdp:basis=nonsense", "--quick", "--out", str(tmp_path)],
    )
    row, failed = (json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json"), reverse=True))
    assert "FAILED ValueError" in capsys.readouterr().out
    assert "basis one of" in failed["failed"]
    assert row["members"][0]["finite"]
    assert row["members"][0]["mass_error"] < 1e-12
    assert len(row["references"]["limit_lower"]) == len(row["references"]["gaussian"]) == 11


def test_killed_training_resumes_with_the_same_curve():
    # The long form (thirty kills and more) is the benchmark itself; its outcome is in results/interruptions.json.
    command = [sys.executable, str(ROOT / "bench" / "scripts" / "interruptions.py"), "--kills", "1", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kills, no damaged checkpoint" in done.stdout
    assert "curve identical" in done.stdout


@only_exhaustive
def test_grid_search_comes_near_what_the_truth_scores(capsys):
    options = ["--count", "30", "--steps", "50", "--sizes", "3", "--couplings", "kraus"]
    found = example("grid_search")(options)
    assert found["true"] - 0.3 < found["test"] < found["true"] + 0.05
    assert "best: kraus of size 3" in capsys.readouterr().out


def test_particles_of_a_tracker_agree_with_the_exact_filter(capsys):
    pytest.importorskip("stonesoup")
    options = ["--count", "60", "--size", "5", "--steps", "50", "--readings", "12", "--particles", "500"]
    found = example("stone_soup")(options)
    assert found["apart"] < 0.1
    assert found["exact"] < found["readings"]
    assert "Stone Soup particles" in capsys.readouterr().out
