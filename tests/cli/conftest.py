"""One small process with named columns, saved once, and a way to run commands in this process."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import sosmarkov as sm
from sosmarkov.cli import main


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def process():
    rng = np.random.default_rng(0)
    phi = sm.GaussianBasis(mean=rng.normal(size=(3, 2)), std=np.full((3, 2), 1.5))
    psi = sm.GaussianBasis(mean=rng.normal(size=(3, 2)), std=np.ones((3, 2)))
    transition = sm.Transition(phi, psi, sm.Kraus(rng.normal(size=(3, 3, 2))))
    return sm.MarkovProcess(transition, sm.SquaredForm.gaussian([0.0, 0.5], [1.0, 0.5]), columns=("x", "y"))


@pytest.fixture(scope="session")
def model(process, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.sosm"
    process.save(path)
    return path


@pytest.fixture
def ask(capsys):
    """Run a command; its exit code, what it answered and what it said beside that."""

    def run(*words) -> Answer:
        code = main([str(word) for word in words])
        return Answer(code, *capsys.readouterr())

    return run
