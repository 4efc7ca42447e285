"""Commands from file to answer; the answers are held against densities on a grid, and Bayes' rule on it."""

import csv
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sosmarkov as sm
from sosmarkov.cli import report
from sosmarkov.cli.commands import make_parser
from sosmarkov.learning.progress import Progress

ROOT = Path(__file__).parent.parent.parent
LINE = np.linspace(-6.0, 6.0, 161)
GRID = np.stack(np.meshgrid(LINE, LINE, indexing="ij"), axis=-1)
CELL = (LINE[1] - LINE[0]) ** 2
COMMANDS = ("demo", "fit", "info", "propagate", "probability", "filter", "report", "bench")


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def means_on_grid(density):
    return [float(np.sum(GRID[..., c] * density) / np.sum(density)) for c in range(2)]


def test_help_of_every_command_loads_neither_jax_nor_numpy():
    code = (
        "import sys\nfrom sosmarkov.cli import main\n"
        f"for command in {['', *COMMANDS]!r}:\n"
        "    assert main([*filter(None, [command]), '--help']) == 0\n"
        "assert not {'jax', 'numpy', 'pyarrow', 'rich'} & set(sys.modules), 'loaded too much'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert all(f"usage: sosmarkov {command}" in done.stdout for command in COMMANDS)


def test_info_names_the_columns_and_measures_the_normalisation(ask, model):
    answer = ask("info", model, "--check", "--json")
    found = json.loads(answer.out)
    assert answer.code == 0
    assert found["coordinates"] == ["x", "y"]
    assert found["normalisation_error"] < 1e-12
    assert "coordinates" in ask("info", model).out


def test_propagated_means_and_quantiles_are_those_of_the_density(ask, model, process, tmp_path):
    out = tmp_path / "beliefs.csv"
    answer = ask("propagate", model, "--steps", 2, "-o", out, "--quantiles", "0.3")
    assert answer.code == 0
    rows = table(out)
    assert [(row["step"], row["coordinate"]) for row in rows] == [(k, c) for k in "012" for c in "xy"]
    for k in (0, 2):
        density = np.asarray(process.propagate(2)[k].prob(GRID))
        chosen = rows[2 * k : 2 * k + 2]
        np.testing.assert_allclose([float(row["mean"]) for row in chosen], means_on_grid(density), atol=1e-6)
        for c, row in enumerate(chosen):
            marginal = density.sum(axis=1 - c) * CELL
            spread = np.sqrt(np.sum(marginal * (LINE - float(row["mean"])) ** 2))
            np.testing.assert_allclose(float(row["std"]), spread, atol=1e-6)
            below = np.interp(float(row["q30"]), LINE + 0.5 * (LINE[1] - LINE[0]), np.cumsum(marginal))
            assert abs(below - 0.3) < 1e-3


def test_a_known_state_and_parquet(ask, model, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "beliefs.parquet"
    assert ask("propagate", model, "--steps", 1, "--from", "-1,0.5", "-o", out, "--quantiles", "none").code == 0
    rows = parquet.read_table(out).to_pylist()
    assert [row["mean"] for row in rows[:2]] == [-1.0, 0.5]
    by_name = ask("propagate", model, "--steps", 1, "--from", "y=0.5,x=-1", "--json", "--quantiles", "none")
    assert json.loads(by_name.out)["table"] == rows


def test_probabilities_of_boxes(ask, model, process):
    answer = ask("probability", model, "--step", 2, "--box", "x=-1:0.5,y=-inf:0")
    density = np.asarray(process.propagate(2)[2].prob(GRID))
    inside = (GRID[..., 0] > -1) & (GRID[..., 0] < 0.5) & (GRID[..., 1] < 0)
    assert abs(float(answer.out) - density[inside].sum() * CELL) < 0.02
    stay, reach = (
        json.loads(ask("probability", model, "--step", 2, "--box", "x=-1:", way, "--json").out)
        for way in ("--stay", "--reach")
    )
    assert 0 < stay["probability"] < reach["probability"] < 1


def test_filtering_is_bayes_rule(ask, model, process, tmp_path):
    readings, out = tmp_path / "readings.csv", tmp_path / "posterior.csv"
    readings.write_text("who,day,gps\na,2024-03-01,0.4\nb,2024-03-01,\na,2024-03-03,-0.2\nb,2024-03-02,\n")
    options = ["--sensor", "x=gps~0.3", "--trajectory", "who", "--time", "day", "--quantiles", "none"]
    assert ask("filter", model, readings, *options, "-o", out).code == 0
    rows = table(out)
    days = [row["time"][-2:] for row in rows[::2]]
    assert days == ["01", "02", "03", "01", "02"]
    prior = np.asarray(process.initial.prob(GRID))
    posterior = prior * np.exp(-0.5 * ((GRID[..., 0] - 0.4) / 0.3) ** 2)
    np.testing.assert_allclose([float(row["mean"]) for row in rows[:2]], means_on_grid(posterior), atol=1e-6)
    np.testing.assert_allclose([float(row["mean"]) for row in rows[6:8]], means_on_grid(prior), atol=1e-6)
    smoothed = json.loads(ask("filter", model, readings, *options, "--smooth", "--json").out)
    # After the last reading there is nothing more to learn.
    assert abs(smoothed["table"][4]["mean"] - float(rows[4]["mean"])) < 1e-8
    assert abs(smoothed["table"][2]["mean"] - float(rows[2]["mean"])) > 1e-4


# --- from another tool's export to a report -------------------------------------------------------

QUICK = ["--set", "size=3", "steps=150", "objective=transitions", "patience=150"]


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """Ragged ids out of order, a missing day, an empty cell, an index, a remark, semicolons and decimal commas."""
    rng = np.random.default_rng(3)
    rows = []
    for number in range(30):
        level = rng.normal()
        for day in range(rng.integers(4, 7)):
            level = 0.8 * level + 0.3 * rng.normal()
            cell = "" if (number, day) == (2, 2) else f"{level:.4f}".replace(".", ",")
            rows.append(f"patient {number};2024-02-{day + 26 if day < 4 else 30 - 26 + day:02d};{cell};fine")
    rows = [row.replace("2024-02-08", "2024-03-01").replace("2024-02-09", "2024-03-02") for row in rows]
    rng.shuffle(rows)
    path = tmp_path_factory.mktemp("export") / "export.csv"
    lines = [f"{index};{row}" for index, row in enumerate(rows)]
    path.write_text("\ufeff;patient;day;level;remark\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_an_export_becomes_a_report_in_three_commands(ask, export, tmp_path):
    where = ["--trajectory", "patient", "--time", "day"]
    learned = ask("fit", export, *where, "-o", tmp_path / "m.sosm", *QUICK, "--json")
    assert learned.code == 0, learned.err
    found = json.loads(learned.out)
    assert (found["columns"], found["trajectories"], found["missing"]) == (["level"], 30, 1)
    assert sm.load(tmp_path / "m.sosm").columns == ("level",)
    assert ask("propagate", tmp_path / "m.sosm", "--steps", 3, "-o", tmp_path / "b.csv").code == 0
    assert ask("report", tmp_path / "m.sosm", "--data", export, *where, "-o", tmp_path / "r.html").code == 0
    page = (tmp_path / "r.html").read_text()
    assert "level" in page
    assert "</html>" in page


def test_an_interrupted_fit_keeps_the_best_so_far(ask, export, tmp_path, monkeypatch):
    once = iter([signal.SIGINT])  # a second one would mean: at once
    monkeypatch.setattr(Progress, "update", lambda *_: [signal.raise_signal(number) for number in once])
    out = tmp_path / "m.sosm"
    words = ["--trajectory", "patient", "--time", "day", *QUICK, "--quiet"]
    kept = tmp_path / "run.ckpt"
    answer = ask("fit", export, *words, "-o", out, "--checkpoint", kept)
    assert answer.code == 130
    assert "the best model so far" in answer.err
    before = sm.load(out).history
    assert before.interrupted
    # And goes on from where it was kept, to the end: the curve so far is the same.
    answer = ask("fit", export, *words, "-o", out, "--resume", kept)
    assert (answer.code, answer.err) == (0, "")
    after = sm.load(out).history
    assert not after.interrupted
    assert len(after.phases) >= len(before.phases)
    begun = len(before.phases[0].held_out)
    assert len(after.phases[0].held_out) > begun
    np.testing.assert_array_equal(after.phases[0].held_out[:begun], before.phases[0].held_out)


def test_one_series_is_learned_by_its_pairs(ask, tmp_path, monkeypatch):
    given = {}

    def recorded(trajectories=None, **options):
        given.update(options, trajectories=trajectories)
        raise ValueError("Expected no training in this test.")

    monkeypatch.setattr(sm, "fit", recorded)
    series = tmp_path / "one.csv"
    series.write_text("t,x,u\n0,1,7\n1,2,8\n3,4,9\n4,8,6\n")
    words = ["--time", "t", "--columns", "x", "-o", tmp_path / "m.sosm", "--set", "size=3", "basis=beta", "--seed", 4]
    answer = ask("fit", series, *words)
    assert answer.code == 1
    assert "one series of 5 states, 1 of them missing; coordinates x; left out: 'u'" in answer.err
    # `fit` itself makes pairs of one series, across no gap: tests/learning/test_data.py.
    (series,) = given["trajectories"]
    np.testing.assert_array_equal(series, [[1.0], [2.0], [np.nan], [4.0], [8.0]])
    assert "transitions" not in given
    assert (given["size"], given["basis"], given["seed"], given["columns"]) == (3, "beta", 4, ("x",))


FOREIGN = """\
Batch ID,Timestamp (UTC),Temp [°C],Operator,Firmware,Wind
B-0,2024-03-01T09:20:00Z,20.40,Ann,2,1.5
B-0,2024-03-01T09:30:00Z,-,Bo,2,2.5
B-0,2024-03-01T09:50:00Z,27.38,Ann,2,3.5
B-1,2024-03-01T09:00:00Z,21.00,Bo,2,4.5
B-1,2024-03-01T09:10:00Z,22.00,Ann,2,calm
"""


def test_columns_that_look_as_if_they_were_meant_are_named(ask, tmp_path):
    path = tmp_path / "export.csv"
    path.write_text(FOREIGN, encoding="utf-8")
    answer = ask("fit", path, "-o", tmp_path / "m.sosm")
    assert answer.code == 1
    for hint in (
        "5 states, 1 of them missing",
        "--time 'Timestamp (UTC)'",
        "--trajectory 'Batch ID'",
        "column 'Wind' is left out: 'calm' in row 5 is no number",
        "'Firmware' with one value in all rows. Name the others: --columns 'Temp [°C]'",
    ):
        assert hint in answer.err
    assert "'Operator'" not in answer.err.partition("note:")[2]
    answer = ask("fit", path, "--trajectory", "batch", "--time", "timestamp", "-o", tmp_path / "m.sosm")
    assert "Did you mean 'Batch ID', 'Timestamp (UTC)'?" in answer.err


def test_rows_known_in_part_are_gaps_of_the_report(ask, model, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(
        report, "write_report", lambda process, path, data, inputs: given.append(data) or path.write_text("p")
    )
    path = tmp_path / "runs.csv"
    path.write_text("t,x,y\n0,1,2\n1,,3\n2,5,4\n")
    answer = ask("report", model, "--data", path, "--time", "t", "-o", tmp_path / "r.html")
    assert answer.code == 0
    assert "1 rows with some cells empty" in answer.err
    np.testing.assert_array_equal(given[0][0], [[1, 2], [np.nan, np.nan], [5, 4]])


# --- the page -------------------------------------------------------------------------------------


def test_the_shell_lines_of_the_page_and_of_the_readme_work(ask, model, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "command-line.md").read_text()
    readme = (ROOT / "README.md").read_text().split("## Without Python")[1]
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    blocks += re.findall(r"^```\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)[:1]
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) == 16
    # Learning, the demonstration, experiments and the report are run by other tests; here they are only understood.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "write_report", lambda process, path, **_: path.write_text("page"))
    shutil.copy(model, "model.sosm")
    Path("runs.csv").write_text("id,t,x,y\n1,0.0,0.1,0.2\n1,0.1,0.3,0.4\n2,0.0,0.1,\n2,0.1,,0.3\n")
    Path("log.csv").write_text("x\n0.1\n\n0.3\n")
    for line in lines:
        words = shlex.split(line.partition("  #")[0])
        assert words[0] == "sosmarkov"
        if words[1] in ("demo", "bench", "fit"):
            make_parser().parse(words[1:])
            continue
        answer = ask(*words[1:])
        assert answer.code == 0, f"{line}: {answer.err}"
