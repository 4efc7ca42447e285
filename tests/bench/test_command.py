"""The command of the experiments, and what the command line says where they are not installed; no wheel holds them."""

import importlib.util
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from sosmarkov.cli import bench, main

ROOT = Path(__file__).parents[2]


def test_words_are_handed_on(capsys, tmp_path):
    assert main(["bench", "list"]) == 0
    assert "quadcopter" in capsys.readouterr().out
    assert main(["bench", "run", "--help"]) == 0
    assert "usage: sosmarkov bench run" in capsys.readouterr().out
    assert main(["bench", "run", "nothing", "--out", str(tmp_path)]) == 1
    assert "Expected an experiment among cartpole" in capsys.readouterr().err
    assert main(["bench", "run", "vdp", "--profil", "quick"]) == 2
    assert "Did you mean '--profile'?" in capsys.readouterr().err


def test_the_package_answers_as_a_module_too():
    done = subprocess.run([sys.executable, "-m", "sosmarkov_bench", "list"], capture_output=True, text=True, check=True)
    assert "Van der Pol" in done.stdout


def test_one_line_says_how_to_get_experiments(monkeypatch, capsys):
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    assert main(["bench", "list"]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "pip install ./bench" in told
    assert main(["bench", "--help"]) == 0


@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="wheels are built with hatchling")
def test_the_wheel_holds_no_experiment(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "sosmarkov/process/process.py" in names
    assert not [name for name in names if "bench" in name and name != "sosmarkov/cli/bench.py"]


def test_nothing_below_knows_the_experiments():
    known = [path for path in (ROOT / "src").rglob("*.py") if "sosmarkov_bench" in path.read_text()]
    assert [path.name for path in known] == ["bench.py"]
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["src/sosmarkov"]}
