"""Forecasts from known states: the truth by paths is the closed form where there is one, and the script runs."""

import json
import runpy
from pathlib import Path

import numpy as np

from sosmarkov_bench.records import LinearStep

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "scripts" / "forecasts.py"))
SLOPE = np.array([[0.8, 0.1], [-0.2, 0.7]])


def test_the_truth_of_a_linear_system_is_its_closed_form():
    system = SCRIPT["System"]("linear", lambda x: x @ SLOPE.T, lambda x: np.broadcast_to([0.4, 0.3], x.shape))
    rng = np.random.default_rng(0)
    paths = system.paths(rng, 20)
    assert paths.shape == (20, SCRIPT["LENGTH"], 2)
    ahead = np.array(SCRIPT["AHEAD"])
    found = system.log_prob_later(rng, paths[:, 0], paths[:, ahead], 4000)
    every = np.full((20, ahead[-1], 2), np.nan)
    every[:, ahead - 1] = paths[:, ahead]
    linear = LinearStep(SLOPE, np.zeros(2), np.diag([0.16, 0.09]))
    expected = linear.log_prob(paths[:, 0], every)[:, ahead - 1]
    np.testing.assert_allclose(found[:, 0], expected[:, 0], rtol=1e-12)
    np.testing.assert_allclose(found, expected, atol=0.3)
    np.testing.assert_allclose(found.mean(axis=0), expected.mean(axis=0), atol=0.03)


def test_one_system_is_learned_asked_and_written(tmp_path):
    out = tmp_path / "forecasts.json"
    SCRIPT["main"](["double well", "--quick", "--out", str(out)])
    row = json.loads(out.read_text())["rows"]["double well"]
    assert set(row["scores"]) == {"sosmarkov", "linear step", "truth"}
    assert all(np.all(np.isfinite(score)) and len(score) == 4 for score in row["scores"].values())
    gap = np.mean(np.subtract(row["scores"]["sosmarkov"], row["scores"]["truth"]))
    np.testing.assert_allclose(gap, np.mean(row["difference"]["truth"]["mean"]), rtol=1e-9)
    assert -0.5 < gap < 0.2
