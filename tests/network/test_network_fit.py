"""Networks from tables: they learn what is there, repeat with their seed, and read every kind of table."""

import runpy
from pathlib import Path

import jax
import numpy as np
import pandas
import pytest

import sosmarkov as sm
from sosmarkov.networks.table import read_table
from tables import only_exhaustive

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def fork(count, seed):
    """y = x^2 / 2 + noise: neither linear nor Gaussian."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=count)
    return {"x": x, "y": 0.5 * x**2 + 0.4 * rng.normal(size=count)}


OPTIONS = {"size": 5, "steps": 200, "progress": False}


@pytest.fixture(scope="module")
def network():
    return sm.fit_network(fork(800, 0), parents={"y": "x"}, **OPTIONS)


def test_a_nonlinear_dependence_is_learned(network):
    assert network.check().ok
    truth = fork(100_000, 1)
    for x in (-1.5, 0.0, 1.5):
        found = network.condition({"x": x})
        assert abs(float(found.mean()[0]) - 0.5 * x**2) < 0.25
    for name in ("x", "y"):
        quantiles = np.quantile(truth[name], np.linspace(0.02, 0.98, 25))
        found = network.marginal(name).cdf(quantiles[:, None])
        assert np.max(np.abs(found - np.linspace(0.02, 0.98, 25))) < 0.05
    share = np.mean((truth["x"] > 1.0) & (truth["y"] > 1.0))
    assert abs(float(network.probability({"x": (1.0, np.inf), "y": (1.0, np.inf)})) - share) < 0.03


def test_the_history_says_what_training_did(network):
    history = network.history
    held_out = np.random.default_rng(0).permutation(800)[:80]
    rows = np.stack([column[held_out] for column in fork(800, 0).values()], axis=1)
    np.testing.assert_allclose(history.scores["joint"], np.mean(network.log_prob(rows)), rtol=1e-9)
    assert history.phases[0].held_out[0] > history.phases[0].best
    assert history.chosen["size"] == (5, 5)
    # Bases of 6 functions with a mean and a width, K of (6, 2) and (6, 6, 2), one factor of (6, 6).
    assert network.parameter_count == 3 * 12 + 12 + 72 + 36


def test_outliers_cost_tens_of_nats(network):
    assert -60 < float(network.log_prob([15.0, -15.0])) < -9


def test_the_same_seed_gives_the_same_network(network):
    table = np.stack(list(fork(800, 0).values()), axis=1)
    again = sm.fit_network(table, {"x": 1, "y": 1}, {"y": ["x"]}, **OPTIONS)
    for one, other in zip(jax.tree.leaves(network.conditionals), jax.tree.leaves(again.conditionals), strict=True):
        np.testing.assert_array_equal(one, other)


def test_tables_of_every_kind_are_read():
    values = np.arange(12.0).reshape(4, 3)
    frame = pandas.DataFrame(values, columns=["p", "q", "r"]).assign(name="text")
    for table, blocks in [
        (values, {"x": 2, "y": 1}),
        ({"x": values[:, :2], "y": values[:, 2]}, None),
        ({"x": values[:, :2], "y": values[:, 2]}, {"x": 2, "y": 1}),
        ({"p": values[:, 0], "q": values[:, 1], "r": values[:, 2]}, {"x": ["p", "q"], "y": "r"}),
        (frame, {"x": ["p", "q"], "y": ["r"]}),
        (frame, {"x": 2, "y": 1}),
    ]:
        found = read_table(table, blocks)
        np.testing.assert_array_equal(found["x"], values[:, :2])
        np.testing.assert_array_equal(found["y"], values[:, 2:])
    assert {name: column.shape for name, column in read_table(frame, None).items()} == dict.fromkeys("pqr", (4, 1))


@pytest.mark.parametrize(
    ("table", "blocks", "message"),
    [
        (np.zeros((4, 3)), None, "Expected blocks, such as"),
        (np.zeros((4, 3)), {"x": 2}, "as many columns as the blocks have coordinates, 2 = 2, got 3"),
        (np.zeros((4, 3)), {"x": ["p"], "y": 2}, "numbers of coordinates for the blocks of an array"),
        (np.full((4, 1), np.nan), {"x": 1}, "finite numbers in block 'x', got 4 rows of 4"),
        ({"x": np.zeros(4), "y": np.zeros(5)}, None, "as many rows in every block"),
        ({"x": np.zeros(4)}, {"y": 1}, "entries of the table among \\['x'\\], got \\['y'\\]"),
        ({"x": np.zeros(4)}, {"x": 2}, "2 coordinates in block 'x', got 1"),
        ({"p": np.zeros(4)}, {"x": ["p"], "y": ["p"]}, "each column in one block only, got \\['p'\\]"),
        (pandas.DataFrame({"p": [0.0, 1.0]}), {"x": ["q"]}, "columns among \\['p'\\]"),
    ],
)
def test_tables_that_do_not_fit_are_refused(table, blocks, message):
    with pytest.raises(ValueError, match=message):
        read_table(table, blocks)


def test_settings_that_make_no_sense_are_refused():
    for change, message in [
        ({"parents": {"y": ["u"]}}, "parents of 'y' among"),
        ({"parents": {"u": ["x"]}}, "parents of blocks among \\['x', 'y'\\], got them of \\['u'\\]"),
        ({"parents": {"y": ["x", "x"]}}, "each parent of 'y' once"),
        ({"validation": 1.0}, "validation between 0.0 and 1.0"),
        ({"background": 1.0}, "background as a share"),
        ({"steps": 0}, "whole number >= 1 for steps"),
        ({"table": {"x": np.zeros(5), "y": np.zeros(5)}}, "at least 20 rows"),
    ]:
        with pytest.raises(ValueError, match=message):
            sm.fit_network(**({"table": fork(50, 0), "parents": {"y": ["x"]}, "progress": False} | change))


@only_exhaustive
def test_the_example_recovers_marginals_conditionals_and_boxes(tmp_path, capsys):
    main = runpy.run_path(str(EXAMPLES / "network.py"))["main"]
    options = ["--count", "1000", "--size", "5", "--steps", "150", "--truth", "50000"]
    found = main(["--out", str(tmp_path), *options, "--six-steps", "50"])
    assert found["kolmogorov"] < 0.08
    assert found["conditional_mean"] < 1.0
    assert found["box"] < 0.06
    assert (tmp_path / "network.png").stat().st_size > 10_000
    assert "E[z | x = 0.6, y = 0.9]" in capsys.readouterr().out
