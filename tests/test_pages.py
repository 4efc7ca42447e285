"""Pages say what the code says: warnings and errors explained, tables made from stored figures, the gallery."""

import ast
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from sosmarkov.factor.space import QUERIES
from sosmarkov_bench import records
from tables import only_exhaustive

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()


def text_of(node):
    """A literal text with ... for what is filled in; None for other expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "..." for part in node.values)
    return None


def nodes():
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield from ast.walk(ast.parse(path.read_text()))


def explained():
    rows = re.findall(r"^\| `(.+?)` \|", PAGE, re.MULTILINE)
    return [row.replace("\\|", "|") for row in rows]


def test_every_text_on_the_page_is_one_of_the_library():
    # What a query needs of a space is data, and the text of its refusal made of it.
    texts = [f"Expected {query.needs}" for query in QUERIES.values()]
    texts += [text for text in map(text_of, nodes()) if text]
    rows = explained()
    assert len(rows) > 25
    for row in rows:
        parts = [re.escape(part) for part in row.split("...")]
        pattern = re.compile(".*?".join(parts), re.DOTALL)
        assert any(pattern.search(text) for text in texts), row


def test_every_warning_of_the_library_is_explained():
    calls = [
        node for node in nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "warn"
    ]  # fmt: skip
    assert len(calls) == 8
    # What a kernel has to complain of is its own to say.
    said = [node for node in nodes() if isinstance(node, ast.FunctionDef) and node.name == "complaint"]
    complaints = [one.value for node in said for one in ast.walk(node) if isinstance(one, ast.Return)]
    texts = [text for text in map(text_of, [*(call.args[0] for call in calls), *complaints]) if text]
    assert len(texts) == 10
    for text in texts:
        assert any(all(part in text for part in row.split("...")) for row in explained()), text


@pytest.mark.parametrize("name", ["gallery_page", "forecasts_page", "forms_page", "readme_table"])
def test_pages_are_made_from_the_results_files(name):
    assert runpy.run_path(str(ROOT / "bench" / "scripts" / f"{name}.py"))["main"](["--check"]) == 0


# --- the gallery's records and baselines ----------------------------------------------------------


def test_records_are_read_from_the_packages_that_hold_them():
    years, numbers = records.sunspots()
    assert (years[0], years[-1], numbers[0], numbers[-1]) == (1700, 2008, 5.0, 2.9)
    found = records.glucose()
    assert np.isfinite(found).sum() > 52_000
    assert 39 < np.nanmin(found) < np.nanmax(found) < 401
    with pytest.raises(ImportError, match="pip install no_such_package"):
        records._inside("no_such_package", "x.csv")


def test_blocks_of_a_series_follow_each_other_without_a_common_value():
    series = np.arange(9.0)
    states = records.in_blocks(series, 1)
    np.testing.assert_array_equal(states[4], [3.0, 4.0])
    later = records.later_states(states, np.array([2, 6]), 2, 2)
    np.testing.assert_array_equal(later, [[[3, 4], [5, 6]], [[7, 8], [np.nan, np.nan]]])


def test_the_linear_step_is_least_squares_and_gaussian_however_far():
    rng = np.random.default_rng(0)
    slope, offset = np.array([[0.8, 0.1], [-0.2, 0.7]]), np.array([0.3, -0.1])
    x = rng.normal(size=(4000, 2))
    x_next = x @ slope.T + offset + 0.2 * rng.normal(size=x.shape)
    step = records.LinearStep.fit(x, x_next)
    np.testing.assert_allclose(step.slope, slope, atol=0.02)
    exact = records.LinearStep(slope, offset, 0.04 * np.eye(2))
    later = rng.normal(size=(3, 2, 2))
    found = exact.log_prob(x[:3], later)
    mean = (x[:3] @ slope.T + offset) @ slope.T + offset
    expected = [
        multivariate_normal(m, 0.04 * (np.eye(2) + slope @ slope.T)).logpdf(y)
        for m, y in zip(mean, later[:, 1], strict=True)
    ]
    np.testing.assert_allclose(found[:, 1], expected, rtol=1e-12)


def quick(name, tmp_path):
    found = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))["main"](["--quick", "--out", str(tmp_path)])
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert all(np.all(np.isfinite(row)) for row in found["scores"].values())
    return found["scores"]


@only_exhaustive
def test_sunspots_are_forecast_better_than_by_what_all_years_are_like(tmp_path):
    scores = quick("sunspots", tmp_path)
    assert scores["process"][0] > scores["one Gaussian"][0]


@only_exhaustive
def test_glucose_is_forecast_better_than_by_what_all_readings_are_like(tmp_path):
    scores = quick("glucose", tmp_path)
    assert scores["process"][0] > scores["one Gaussian"][0] + 0.3


@only_exhaustive
def test_the_cart_pole_of_gymnasium_is_learned(tmp_path):
    quick("gymnasium_cart_pole", tmp_path)
