"""Every command on a lattice and on a linear step: learned from a file, asked, reported."""

import json

import numpy as np
import pytest

import sosmarkov as sm
from sosmarkov.cli import main
from sosmarkov.cli.options import UsageError, bounds, circular, spoken

COLUMNS = ["heading", "level"]


def record(angle: bool) -> np.ndarray:
    """Sixty states: an angle that turns, or a number that stays about zero, beside a level that is never negative."""
    rng, x = np.random.default_rng(0), np.zeros((60, 2))
    x[0] = 0.5, 1.0
    for k in range(59):
        heading = x[k, 0] + 0.7 if angle else 0.8 * x[k, 0]
        level = 0.7 * x[k, 1] + 0.3
        x[k + 1] = heading + 0.3 * rng.normal(), abs(level + 0.2 * rng.normal())
    return np.column_stack([x[:, 0] % (2.0 * np.pi) if angle else x[:, 0], x[:, 1]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("forms")
    for form in ("lattice", "gaussian"):
        rows = "\n".join(f"{a:.6f},{b:.6f}" for a, b in record(form == "lattice"))
        (found / f"{form}.csv").write_text(f"heading,level\n{rows}\n")
    return found


OPTIONS = {"lattice": ["--circular", "heading", "--bounds", "level=0:"], "gaussian": []}


@pytest.fixture(scope="module", params=["lattice", "gaussian"])
def learned(request, folder):
    """A form, its data and its file, as the command line writes it."""
    form = request.param
    data, path = folder / f"{form}.csv", folder / f"{form}.sosm"
    words = ["fit", str(data), "-o", str(path), "--form", form, *OPTIONS[form], "--quiet"]
    assert main(words) == 0
    return form, data, path


def test_what_was_said_of_coordinates_is_in_the_model(learned):
    form, _, path = learned
    process = sm.load(path)
    assert process.form == form
    assert process.columns == tuple(COLUMNS)
    if form == "lattice":
        assert [axis.ends for axis in process.transition.nodes.axes] == ["wrapped", "lower"]
        assert float(process.belief_at(3).probability({"level": (-np.inf, 0.0)})) == 0.0


def test_info_says_the_form_and_measures_it(ask, learned):
    form, _, path = learned
    found = json.loads(ask("info", path, "--check", "--json").out)
    assert found["form"] == form
    assert found["normalisation_error"] < 1e-12
    assert found["check"] == "fine"
    said = ask("info", path).out
    assert "tried" in said
    assert ("nodes" if form == "lattice" else "2 x 2 matrices") in said


def test_answers_are_those_of_the_process(ask, learned):
    form, data, path = learned
    process = sm.load(path)
    rows = json.loads(ask("propagate", path, "--steps", 2, "--from", "1,1", "--json").out)["table"]
    beliefs = process.propagate(2, initial=[1.0, 1.0])
    np.testing.assert_allclose([row["mean"] for row in rows[2:]], beliefs.means()[1:].ravel(), rtol=1e-12)
    np.testing.assert_allclose([row["q5"] for row in rows[4:]], beliefs[2].quantile(0.05), rtol=1e-9)
    box = ["--box", "heading=0:1,level=0:2", "--step", 2]
    expected = process.belief_at(2).probability([0.0, 0.0], [1.0, 2.0])
    np.testing.assert_allclose(float(ask("probability", path, *box).out), float(expected), rtol=1e-9)
    stayed = ask("probability", path, *box, "--stay")
    if form == "lattice":
        assert 0.0 < float(stayed.out) < float(expected)
    else:
        assert stayed.code == 1
        assert "no Gaussian any more" in stayed.err
    few = data.with_name("few.csv")
    few.write_text("".join(data.read_text().splitlines(keepends=True)[:5]))
    for more in ([], ["--smooth"]):
        answer = ask("filter", path, few, "--sensor", "level~0.3", *more, "--json")
        assert answer.code == 0, answer.err
        table = json.loads(answer.out)
        verb = process.smooth if more else process.filter
        found = verb(np.genfromtxt(few, delimiter=",", skip_header=1)[:, 1:], sensor=sm.GaussianSensor([1], [0.3]))
        np.testing.assert_allclose(table["log_evidence"], [float(found.log_evidence)], rtol=1e-12)
        np.testing.assert_allclose([row["mean"] for row in table["table"]], found.beliefs.means().ravel(), rtol=1e-9)


def test_the_page_is_written(ask, learned, tmp_path):
    form, data, path = learned
    out = tmp_path / "page.html"
    assert ask("report", path, "--data", data, "-o", out).code == 0
    text = out.read_text()
    assert "condition of g" not in text
    assert ("lattice of splines" if form == "lattice" else "linear step with Gaussian noise") in text


def test_fit_says_what_it_tried_and_what_columns_look_like(ask, folder, tmp_path):
    answer = ask("fit", folder / "lattice.csv", "-o", tmp_path / "m.sosm", "--form", "gaussian")
    assert answer.code == 0
    assert "gaussian (one linear step)" in answer.out
    assert "tried gaussian" in answer.out
    assert '--bounds "heading=0:"' in answer.out
    refused = ask(
        "fit", folder / "lattice.csv", "-o", tmp_path / "m.sosm", "--form", "gaussian", "--bounds", "level=0:"
    )
    assert refused.code == 1
    assert "lattice form" in refused.err


def test_words_of_bounds_and_angles():
    assert bounds("level=0:, heading=-1:1", COLUMNS) == {"level": (0.0, None), "heading": (-1.0, 1.0)}
    assert bounds("level=:2", COLUMNS) == {"level": (None, 2.0)}
    assert circular("heading,level=360", COLUMNS) == {"heading": None, "level": 360.0}
    assert bounds(None, COLUMNS) is circular(None, COLUMNS) is None
    assert spoken("say bounds={'level': (0, None)}.") == 'say --bounds "level=0:".'
    assert spoken("say bounds={'level': (0, 1)}.") == 'say --bounds "level=0:1".'
    assert spoken("say circular=['heading'].") == 'say --circular "heading".'


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (bounds, "level=0", "--bounds like x=0:1"),
        (bounds, "level=:", "one finite end of level"),
        (bounds, "level=2:1", "lower < upper in --bounds"),
        (bounds, "lewel=0:", "Did you mean 'level'"),
        (circular, "heading,heading", "each coordinate once in --circular"),
        (circular, "heading=-1", "a whole turn > 0"),
        (circular, "heding", "Did you mean 'heading'"),
    ],
)
def test_wrong_words_are_refused(read, text, message):
    with pytest.raises(UsageError, match=message):
        read(text, COLUMNS)
