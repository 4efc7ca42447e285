"""Which form of process answers what, exactly or not: tries every query, writes docs/forms.md.

What was found goes to results/forms.json; the page is made from it, from results/forecasts.json and from the figures of
the gallery. `--page` only makes the page, `--check` only compares it.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import sosmarkov as sm
from sosmarkov.gaussian.transition import GaussianTransition
from sosmarkov.lattice import panels
from sosmarkov.lattice.axis import Axis
from sosmarkov.lattice.broad import Broad
from sosmarkov.lattice.nodes import Nodes
from sosmarkov.lattice.rows import compile_rows
from sosmarkov.lattice.transition import LatticeTransition
from sosmarkov_bench.environment import write_results

ROOT = Path(__file__).parents[2]
SOURCE, PAGE = ROOT / "results" / "forms.json", ROOT / "docs" / "forms.md"
QUERIES_PAGE = runpy.run_path(str(Path(__file__).parent / "queries_page.py"))
ENDS = {"lattice": ("open", "open"), "lattice, an angle and a bound": ("wrapped", "lower")}
SENSORS = ("GaussianSensor", "IntervalSensor", "LinearSensor", "FunctionSensor")
HEAD = """# Which form?

Made by `bench/scripts/forms_page.py`; do not edit. `sm.fit(data)` tries the forms that suit the data on blocks of time
held out, and keeps the one whose forecasts from known states are best; `process.form` is its name, and
`print(process.history)` has the table of what was tried. `form="lattice"`, `"gaussian"` or `"factor"` takes one. An
option of the factor form (`basis`, `size`, `coupling`, ...) takes that one too.
"""
ABOUT = (
    ("", '`"lattice"`', '`"gaussian"`', '`"factor"`'),
    (
        "what it is",
        "splines on nodes, sparse rows: [steps](concepts.md#a-step-on-a-lattice) as sharp as nodes are close",
        "one linear step with Gaussian noise",
        "sums of squares over smooth functions, [rational factor](concepts.md)",
    ),
    ("coordinates", "up to three", "any number", "any number"),
    ("beliefs", "any shape, as fine as the nodes", "Gaussian mixtures, as many members as the start", "smooth shapes"),
    ("angles, bounds", "`circular=`, `bounds=`", "no", "by a family on an interval"),
    ("inputs", "the times of a period", "yes, and periods", "yes, and periods"),
    ("learned sensors, ensembles, gradients", "no", "no", "yes"),
    (
        "is tried where nothing is said",
        "up to three coordinates",
        "up to three coordinates",
        "learned beyond, and with inputs, sensors, streams",
    ),
    (
        "loses where",
        "the noise is narrower than nodes can be close (`fit` warns); data are few for the region they cover",
        "steps bend, or noise changes from place to place",
        "steps are sharp: correlations near one ask for more functions than there are",
    ),
)
TRIED = """## What each answers

Found by trying, on small processes with two coordinates. **exact**: a closed form, only rounding. **to tolerance**:
integrals on cells, refined until they stand still; the belief's `error` says to what (the script finds these by asking
for less). **estimate**: an average over draws, with its standard error. **no**: refused with a `ValueError`; the number
leads to its text. **not there**: such beliefs have no method of that name. In three coordinates and more, boxes of the
gaussian form that bound several of them are integrated to a standard error, which a warning says. How families of the
factor form differ among themselves is on [a page of its own](queries.md).
"""


class Case(QUERIES_PAGE["Case"]):
    """A process of one of the other forms, and what the queries need beside it."""

    def __init__(self, name: str):
        self.process = sm.MarkovProcess(made(name), [0.4, 0.5])
        beliefs = self.process.propagate(2)
        self.before: Any = beliefs[1]
        self.belief: Any = beliefs[2]
        self.form: Any = None
        self.point, self.key = np.array([0.3, 0.4]), jax.random.key(0)
        self.both = np.array([0.0, 0.1]), np.array([0.6, 0.9])
        self.one = np.array([0.0, -np.inf]), np.array([0.6, np.inf])

    def sensor(self, kind: str) -> tuple[Any, np.ndarray]:
        """A sensor of a kind, and readings of it with one missing."""
        if kind == "FunctionSensor":
            sensor: Any = sm.FunctionSensor(lambda o, x: -0.5 * (o[0] - np.hypot(x[:, 0] - 2.0, x[:, 1])) ** 2, 1)
            return sensor, np.array([[1.5], [np.nan], [1.8]])
        if kind == "LinearSensor":
            return sm.LinearSensor([[1.0, 1.0]], [0.4]), np.array([[0.8], [np.nan], [0.7]])
        return super().sensor(kind)


def made(name: str) -> Any:
    """A transition of a form, by name."""
    slope, noise = np.array([[0.8, 0.1], [-0.1, 0.7]]), np.diag([0.08, 0.06])
    if name == "gaussian":
        return GaussianTransition(slope, [0.05, 0.1], noise)
    axes = tuple(Axis(low, 0.25, 13, ends) for low, ends in zip((-1.5, 0.125), ENDS[name], strict=True))
    nodes = Nodes(axes, np.arange(169))
    each = (len(nodes), 2, 2)
    mean = nodes.points @ slope.T + [0.05, 0.1]
    rows = compile_rows(nodes, mean, np.broadcast_to(slope, each), np.broadcast_to(noise, each)).matrix.toarray()
    return LatticeTransition(nodes, rows, Broad(axes, np.full(2, 0.5), np.ones(2)))


def queries() -> dict[str, Any]:
    """Those of the factor form's page, with the sensors that other forms read."""
    found = {name: ask for name, ask in QUERIES_PAGE["QUERIES"].items() if "Sensor" not in name}
    for kind in SENSORS:
        found[f"`filter`, `{kind}`"] = lambda case, kind=kind: case.filtered(kind)
        found[f"`smooth`, `{kind}`"] = lambda case, kind=kind: case.smoothed(kind)
        found[f"mean given a reading, `{kind}`"] = lambda case, kind=kind: _read(case, kind)
    return found


def _read(case: Case, kind: str) -> Any:
    sensor, readings = case.sensor(kind)
    return case.process.filter(readings, sensor=sensor).beliefs[2].mean()


def attempt(name: str, query: str) -> tuple[str, np.ndarray]:
    """How a query was answered, or the text of its refusal, and the numbers; some beliefs have not got a method."""
    case = Case(name)
    if query == "`overlap`" and not hasattr(case.belief, "overlap"):
        return "not there", np.zeros(0)
    return QUERIES_PAGE["attempt"](queries()[query], case)


def moves(name: str, query: str, before: np.ndarray) -> bool:
    """Whether the answer is another one where less is asked of integrals."""
    try:
        return not np.allclose(before, attempt(name, query)[1], rtol=1e-11, atol=1e-13)
    except AssertionError:
        return True


def try_all(name: str) -> dict[str, str]:
    """How each query is answered by one form."""
    found = {query: attempt(name, query) for query in queries()}
    told = {query: answer for query, (answer, _) in found.items()}
    # An answer that moves when less is asked for rests on it.
    orders, panels._ORDERS = panels._ORDERS, {dim: 4 for dim in panels._ORDERS}
    rounds, panels._ROUNDS = panels._ROUNDS, 1
    try:
        for query, (answer, before) in found.items():
            if answer == "exact" and moves(name, query, before):
                told[query] = "to tolerance"
    finally:
        panels._ORDERS, panels._ROUNDS = orders, rounds
    return told


def measured() -> list[str]:
    """Mean scores of forecasts, from the pages of their own."""
    rows = json.loads((ROOT / "results" / "forecasts.json").read_text())["rows"]
    lines = ["## How well, and how quickly", ""]
    lines += [
        "Mean over the steps ahead of the log-density of held-out states, in nats; [every step](forecasts.md) has its"
    ]
    lines += ["own figures, protocol and standard errors there. Seconds are of a busy machine.", ""]
    lines += ["| | chosen | seconds | `sm.fit(data)` | linear step | truth |", "|---" * 6 + "|"]
    for row in rows.values():
        scores = {name: f"{np.mean(score):.3f}" for name, score in row["scores"].items()}
        told = [scores.get(name, "") for name in ("sosmarkov", "linear step", "truth")]
        title = row["title"].partition(",")[0]
        lines.append(f"| {title} | {row['chosen']['form']} | {row['seconds']:.0f} | " + " | ".join(told) + " |")
    lines += ["", "The factor form on the same records, at the settings of [the gallery](gallery.md):", ""]
    lines += ["| | seconds | factor | linear step |", "|---" * 4 + "|"]
    for name, title in (("sunspots", "sunspots"), ("glucose", "blood glucose, eight steps")):
        found = json.loads((ROOT / "results" / "gallery" / f"{name}.json").read_text())
        factor, linear = (np.mean(found["scores"][which]) for which in ("process", "linear step"))
        lines.append(f"| {title} | {found['seconds']:.0f} | {factor:.3f} | {linear:.3f} |")
    return [*lines, ""]


def table(answers: dict[str, dict[str, str]]) -> list[str]:
    """Queries by forms, and the refusals under it."""
    names, notes = list(answers), []
    lines = [TRIED, "| query | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for query in next(iter(answers.values())):
        cells = []
        for name in names:
            told = answers[name][query]
            if told.startswith("no: "):
                notes += [] if told in notes else [told]
                told = f"no [{notes.index(told) + 1}]"
            cells.append(told)
        lines.append(f"| {query} | " + " | ".join(cells) + " |")
    return [*lines, "", *(f"{i + 1}. {told.removeprefix('no: ')}" for i, told in enumerate(notes)), ""]


def render(content: dict[str, Any]) -> str:
    """The page."""
    env = content["environment"]
    tried = f"Tried with jax {env['jax']}, sosmarkov {env['sosmarkov']}, commit {env['commit']}."
    first, *rest = (f"| {' | '.join(cells)} |" for cells in ABOUT)
    about = [first, "|---" * len(ABOUT[0]) + "|", *rest, ""]
    return "\n".join([HEAD, *about, *measured(), *table(content["forms"]), tried, ""])


def main(arguments: list[str] | None = None) -> int:
    """Try, write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 where the page is not what results/ says")
    parser.add_argument("--page", action="store_true", help="only make the page")
    options = parser.parse_args(arguments)
    if not (options.check or options.page):
        write_results(SOURCE, {"forms": {name: try_all(name) for name in (*ENDS, "gaussian")}}, 0)
    text = render(json.loads(SOURCE.read_text()))
    if options.check:
        return int(not PAGE.exists() or PAGE.read_text() != text)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
