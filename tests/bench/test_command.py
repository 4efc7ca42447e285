"""The command of the experiments, and what the command line says where they are not installed; no wheel holds them."""

import subprocess
import sys
import tomllib
from pathlib import Path

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


def test_nothing_below_knows_the_experiments_and_the_wheel_has_none():
    known = [path for path in (ROOT / "src").rglob("*.py") if "sosmarkov_bench" in path.read_text()]
    assert [path.name for path in known] == ["bench.py"]
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["src/sosmarkov"]}
