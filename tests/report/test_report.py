"""The page holds the library's numbers, loads nothing, and takes any name."""

import base64
import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
from report_cases import STEPS, make_data, make_process

import sosmarkov as sm
from sosmarkov.gaussian.transition import GaussianTransition
from sosmarkov.lattice.axis import Axis
from sosmarkov.lattice.broad import Broad
from sosmarkov.lattice.nodes import Nodes
from sosmarkov.lattice.transition import LatticeTransition
from sosmarkov.report.collect import beliefs_of, collect, long_run_of
from sosmarkov.report.svg import ticks
from sosmarkov.report.write import page, write_report

NASTY = '</script><b>"x" & {{card}}'
VOID = {"meta", "input", "br", "polygon", "polyline", "circle", "line", "rect"}


class Reader(HTMLParser):
    """Elements that do not close, what is loaded, and the text of the data."""

    def __init__(self, text):
        super().__init__()
        self.open, self.wrong, self.loads, self.tags, self.data = [], [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [value for name, value in attrs if name in ("src", "href") and not value.startswith("#")]
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("id")))

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open[-1][0] != tag:
            self.wrong.append((tag, self.getpos()))
        else:
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == ("script", "report-data"):
            self.data += data


@pytest.fixture(scope="module")
def process():
    return make_process()


@pytest.fixture(scope="module")
def story(process):
    return collect(process, make_data(), None, None)


@pytest.fixture(scope="module")
def text(story):
    return page(story)


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium, driven by playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no browser here: install Debian's package chromium")
    with playwright.sync_playwright() as driver:
        # Within containers there is no user namespace for the sandbox; the page is our own.
        found = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


def opened(browser, path, width):
    """The page in a window of its own, and all that goes wrong or leaves it."""
    tab = browser.new_page(viewport={"width": width, "height": 800})
    wrong = []
    tab.on("console", lambda message: wrong.append(message.text))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda request: wrong.append(request.url) if request.url != path.as_uri() else None)
    tab.goto(path.as_uri())
    return tab, wrong


def pixels(tab):
    return tab.evaluate("document.getElementById('picture').toDataURL()")


def test_the_page_is_well_formed_and_loads_nothing(text):
    found = Reader(text)
    assert found.wrong == found.open == found.loads == []
    assert not re.search(r"https?://|url\(|@import|\bfetch\(|XMLHttpRequest", text)
    assert "default-src 'none'" in text
    assert len(text.encode()) < 400_000
    assert {"canvas", "svg", "table", "select"} <= set(found.tags)


def test_pictures_are_the_marginals_of_the_library(process, text):
    data = json.loads(Reader(text).data)
    assert data["pairs"] == [[0, 1], [0, 2], [1, 2]]
    assert data["steps"] == list(range(1, STEPS + 1))
    side = data["side"]
    frames = np.frombuffer(base64.b64decode(data["frames"]), np.uint8).reshape(3, STEPS + 1, side, side)
    belief = process.propagate(STEPS)[2].marginal([0, 2])
    axes = [data["low"][c] + (data["high"][c] - data["low"][c]) * (np.arange(side) + 0.5) / side for c in (0, 2)]
    expected = np.asarray(belief.prob(np.stack(np.meshgrid(*axes), axis=-1)))
    np.testing.assert_allclose(data["peaks"][1][1], expected.max(), rtol=1e-6)
    # Half a level of 255, of the square root.
    np.testing.assert_allclose(frames[1, 1] / 255, np.sqrt(expected / expected.max()), atol=0.51 / 255)
    np.testing.assert_allclose(data["means"][1], process.propagate(STEPS)[2].mean(), rtol=1e-5)


def test_observed_states_come_back_within_a_level(text):
    data, states = json.loads(Reader(text).data), make_data()[:, 1:]
    levels = np.frombuffer(base64.b64decode(data["observed"]["levels"]), "<u2").reshape(30, STEPS, 3)
    assert np.all(levels[4, 1] == 65_535)
    low, high = np.array(data["low"]), np.array(data["high"])
    inside = (states > low) & (states < high)
    assert np.all(levels[~np.isnan(states) & ~inside] == 65_534)
    back = low + (high - low) * levels / 65_533
    assert np.max(np.abs(back - states)[inside] / np.broadcast_to(high - low, states.shape)[inside]) < 1e-5


def test_quantiles_and_calibration_agree_with_integrals_of_the_density(process, story):
    belief, states = process.propagate(STEPS)[1].marginal([2]), make_data()[:, 1, 2]
    x, width = np.linspace(-12.0, 12.0, 4801, retstep=True)
    p = np.asarray(belief.prob(x[:, None]))
    below = np.concatenate([[0.0], np.cumsum(0.5 * width * (p[1:] + p[:-1]))])
    np.testing.assert_allclose(np.interp(story.quantiles[0, :, 2], x, below), [0.05, 0.25, 0.5, 0.75, 0.95], atol=1e-5)
    pit = np.interp(states, x, below)
    np.testing.assert_allclose(story.calibration.pit[:, 0, 2], pit, atol=1e-5)
    share, error = story.calibration.coverage([0.5])
    own = story.calibration.pit[:, :, 2]
    inside = np.abs(own[~np.isnan(own)] - 0.5) < 0.25
    np.testing.assert_allclose(share[0, 2], inside.mean())
    assert 0 < error[0, 2] < 0.1
    height, _ = story.calibration.histogram(10)
    np.testing.assert_allclose(height[:, 2], 10 * np.histogram(own[~np.isnan(own)], 10, (0, 1))[0] / len(inside))


def test_log_likelihood_leaves_gaps_out(process, story, text):
    mean, error, count = story.calibration.log_likelihood()
    states = make_data()[:, 2]
    values = np.asarray(process.propagate(2)[2].log_prob(states[~np.isnan(states[:, 0])]))
    np.testing.assert_allclose([mean[1], error[1], count[1]], [values.mean(), values.std(ddof=1) / np.sqrt(29), 29])
    np.testing.assert_allclose(json.loads(Reader(text).data)["logLikelihood"][1], values.mean(), rtol=1e-6)


def test_names_cannot_leave_their_place(story):
    text = page(story._replace(names=[NASTY, "</title><script>alert(1)</script>", "ß 位置"]))
    found = Reader(text)
    assert found.wrong == found.open == []
    assert found.tags.count("b") == Reader(page(story)).tags.count("b")
    assert found.tags.count("script") == 2
    assert json.loads(found.data)["names"][0] == NASTY


def test_a_process_with_inputs_is_shown_under_those_of_the_data():
    rng = np.random.default_rng(0)
    phi, psi = (sm.GaussianBasis(rng.normal(size=(2, 1)), np.ones((2, 1))) for _ in range(2))
    coupling = sm.Driven(sm.Bumps(np.array([[-1.0], [1.0]]), np.array([0.8])), rng.normal(size=(2, 2, 2, 2)))
    process = sm.MarkovProcess(sm.DrivenTransition(phi, psi, coupling), sm.SquaredForm(psi, np.eye(2)))
    inputs, x = rng.normal(size=(3, 2, 1)), np.linspace(-2, 2, 5)[:, None]
    beliefs, notes = beliefs_of(process, 2, inputs)
    expected = np.mean([process.propagate(2, inputs=u)[2].prob(x) for u in inputs], axis=0)
    np.testing.assert_allclose(beliefs[2].prob(x), expected, rtol=1e-9)
    assert "averages over the inputs of 3 trajectories" in notes[0]
    zero, notes = beliefs_of(process, 2, None)
    np.testing.assert_allclose(zero[2].prob(x), process.propagate(2, inputs=np.zeros((2, 1)))[2].prob(x))
    assert "under inputs of zero" in notes[0]
    assert "no single long run" in long_run_of(process)[1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda process: collect("model.sosm", None, None, None), "Expected a process"),
        (lambda process: collect(process, np.zeros((2, 3, 2)), None, None), r"shape \(T, 3\)"),
        (lambda process: collect(process, None, 0, None), "whole number >= 1 for steps"),
        (lambda process: collect(process, None, 2, np.zeros((2, 1))), "Expected no inputs"),
    ],
)
def test_what_cannot_be_shown_is_refused(process, make, message):
    with pytest.raises(ValueError, match=message):
        make(process)


def test_the_page_is_written_whole(process, tmp_path, monkeypatch, story, text):
    monkeypatch.setattr("sosmarkov.report.write.collect", lambda *asked: story)
    write_report(process, tmp_path / "report.html", data=make_data())
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text() == text
    with pytest.raises(ValueError, match="existing folder"):
        write_report(process, tmp_path / "absent" / "report.html")


def test_ticks_are_round_and_inside():
    assert ticks(-0.31, 1.04, 3) == [0.0, 0.5, 1.0]
    for low, high in [(-3.0, 3.0), (0.0, 1e-7), (1e6, 1.2e6)]:
        found = np.array(ticks(low, high))
        assert np.all((found >= low) & (found <= high + 1e-9 * abs(high)))
        assert len(found) > 2


def test_the_page_answers_in_a_browser(browser, story, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page(story._replace(names=[NASTY, "y", "z"])))
    tab, wrong = opened(browser, path, 1200)
    seen = [pixels(tab)]
    tab.focus("#step")
    tab.keyboard.press("ArrowRight")
    seen.append(pixels(tab))
    assert tab.inner_text("#step-value") == "2 of 3"
    tab.select_option("#pair", "2")
    seen.append(pixels(tab))
    assert "mean of z" in tab.inner_text("#numbers")
    tab.uncheck("#observed")
    seen.append(pixels(tab))
    tab.click("#theme")
    seen.append(pixels(tab))
    tab.click("#play")
    tab.locator("#step-value", has_text="3 of 3").wait_for()
    seen.append(pixels(tab))
    assert len(set(seen)) == len(seen)
    assert NASTY in tab.inner_text("#pair")
    assert wrong == []
    tab.close()


def test_a_phone_does_not_scroll_sideways_and_print_shows_a_strip(browser, text, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(text)
    tab, wrong = opened(browser, path, 360)
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    tab.emulate_media(media="print")
    assert not tab.is_visible("#picture")
    assert tab.locator("#strip canvas").count() == STEPS
    assert tab.locator("#strip canvas").first.is_visible()
    assert wrong == []
    tab.close()


def test_a_lattice_and_a_linear_step_have_pages_without_parts_of_a_factor():
    """One with an angle, one under inputs that are averaged over."""
    nodes = Nodes((Axis(-1.0, 0.25, 8, "wrapped"), Axis(-1.0, 0.25, 9, "open")), np.arange(72))
    rows = np.random.default_rng(0).random((72, 73))
    lattice = LatticeTransition(
        nodes, rows / rows.sum(axis=1, keepdims=True), Broad(nodes.axes, np.zeros(2), np.ones(2))
    )
    story = collect(sm.MarkovProcess(lattice, [0.1, 0.2]), None, 2, None)
    assert "lattice of splines" in page(story)
    linear = GaussianTransition(0.5 * np.eye(2), np.zeros(2), np.eye(2), np.ones((2, 1)))
    inputs = np.array([[[0.0], [1.0]], [[2.0], [1.0]]])
    process = sm.MarkovProcess(linear, [0.1, 0.2])
    story = collect(process, None, 2, inputs)
    expected = np.mean([process.propagate(2, inputs=u).means()[1:] for u in inputs], axis=0)
    np.testing.assert_allclose(story.means, expected, rtol=1e-12)
    text = page(story)
    assert "linear step with Gaussian noise, under inputs" in text
    assert "condition of g" not in text
