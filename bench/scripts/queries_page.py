"""Which query is exact for which basis, coupling and transform: tries them all, writes docs/queries.md.

Nothing on the page is typed in: for each combination a small random process is built and every query is tried (twenty
minutes on two cores, nearly all of it compilation). What was found goes to results/queries.json, and the page is made
from that file. `--families fourier`, `--transforms affine` and `--queries` try some again; `--page` only makes the
page, `--check` only compares it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

# The largest part of the time goes to translating programs that run once.
os.environ["XLA_FLAGS"] = " ".join(
    [os.environ.get("XLA_FLAGS", ""), "--xla_backend_optimization_level=0", "--xla_cpu_use_fusion_emitters=false"]
).strip()

import jax
import numpy as np

import sosmarkov as sm
from sosmarkov.core.files import write_atomic
from sosmarkov.factor.space import QUERIES as CLOSED
from sosmarkov.factor.space import Space
from sosmarkov.spaces import transforms
from sosmarkov_bench.environment import environment

ROOT = Path(__file__).parents[2]
SOURCE, PAGE = ROOT / "results" / "queries.json", ROOT / "docs" / "queries.md"
HEAD = """# What is exact

Made by `bench/scripts/queries_page.py`; do not edit. For every basis, coupling and transform it builds a small random
process of the factor form with two coordinates and tries every query; [which form?](forms.md) does so for the others.

**exact** means a closed form: no draws, no grid, only rounding. Draws (`sample`) are exact in the sense that they come
from the density itself. **quadrature** is a fixed rule of 256 nodes for single integrals; the script finds these by
changing the number of nodes and looking whether the answer changes. **estimate** is an average over draws, either
returned with its standard error as an `sm.Estimate` or announced by an `sm.EstimateWarning`. **no** is refused with a
`ValueError`; the number leads to its text below the table.

Transforms and couplings share a column where they answer alike. `affine` mixes coordinates (whitening); the other
transforms act on each coordinate by itself.

Wherever a coordinate is asked for, the name of its column will do: `b.marginal(["angle"])`, `b.quantile(0.5, "angle")`,
`b.probability({"angle": (0, 1)})`, `b.condition({"angle": 0.3})`, `b.moment({"angle": 2})`, `b.cdf({"angle": 0.3})`,
`process.propagate(3, initial={"angle": 0.5, "rate": 0})`, `process.stay_probability({"angle": (0, 1)}, steps=5)`,
`sm.GaussianSensor(["angle"], 0.1)`. Coordinates that a box or a point of `cdf` does not name are open.
"""
SPACES = """## What is closed form

Printed from `Space.exact`, which is what the library itself goes by: **yes**, or what is answered instead. Quantiles
are marginals' distribution functions inverted to rounding.
"""


class Family(NamedTuple):
    """How to make a random basis of n functions of two coordinates."""

    make: Callable[[np.random.Generator, int], sm.Basis]
    transforms: tuple[str, ...]


ANY = ("identity", "standardize", "affine")
FAMILIES = {
    "gaussian": Family(lambda rng, n: sm.GaussianBasis(rng.normal(size=(n, 2)), 0.7 + rng.random((n, 2))), ANY),
    "gaussian-full": Family(
        lambda rng, n: sm.FullGaussianBasis(
            rng.normal(size=(n, 2)), np.eye(2) + 0.4 * rng.random((n, 1, 1)) * np.ones((2, 2))
        ),
        ANY,
    ),
    "beta": Family(
        lambda rng, n: sm.BetaBasis(1.0 + 3.0 * rng.random((n, 2)), 1.0 + 3.0 * rng.random((n, 2))),
        (*ANY, "gaussian_cdf"),
    ),
    "exponential": Family(lambda rng, n: sm.ExponentialBasis(rng.normal(size=(n, 2)), 0.0, 1.0), ANY),
    "monomial": Family(lambda rng, n: sm.MonomialBasis(3.0 * rng.random((n, 2)), 0.0, 1.0), ANY),
    "fourier": Family(
        lambda rng, n: sm.FourierBasis(
            2.0 * rng.normal(size=(n, 2)) * (np.arange(n) > 0)[:, None], np.zeros((n, 2)), 0.0, 1.0
        ),
        ANY,
    ),
}
COUPLINGS = {
    "kraus": lambda rng, n: sm.Kraus(rng.normal(size=(n, n, 2))),
    "paired": lambda rng, n: sm.Paired(np.eye(n) + 0.3 * np.tril(rng.normal(size=(n, n)), -1)),
    "linear": lambda rng, n: sm.Linear(0.1 + rng.random(n)),
}
TRANSFORMS = {
    "identity": lambda: sm.Identity(2),
    "standardize": lambda: sm.Standardize([0.3, -0.2], [1.5, 0.8]),
    "affine": lambda: sm.Affine([0.3, -0.2], [[1.0, 0.4], [-0.3, 0.9]]),
    "gaussian_cdf": lambda: sm.GaussianCDF([0.3, -0.2], [1.5, 0.8]),
}
UNDER = re.compile(r" under (Identity|Standardize|Affine|GaussianCDF)\b")
COUNT = 3
READINGS = 3


class Case:
    """One process, and what the queries need beside it."""

    def __init__(self, family: str, coupling: str, transform: str):
        rng = np.random.default_rng(0)
        make = FAMILIES[family].make
        phi, psi = make(rng, COUNT), make(rng, COUNT)
        map_ = TRANSFORMS[transform]()
        chosen = sm.Transition(phi, psi, COUPLINGS[coupling](rng, COUNT), map_)
        self.form: Any = (
            sm.LinearForm(psi, np.ones(COUNT)) if coupling == "linear" else sm.SquaredForm(psi, np.eye(COUNT))
        )
        self.process = sm.MarkovProcess(chosen, self.form)
        beliefs = self.process.propagate(2)
        self.before: Any = beliefs[1]
        self.belief: Any = beliefs[2]
        # Points in the middle of the domain, and a box about one of them, in data space.
        bounded = np.all(np.isfinite(phi.lower))
        low, high = (0.35, 0.65) if bounded else (-0.5, 0.5)
        self.point = np.asarray(map_.inverse(jax.numpy.full(2, 0.5 * (low + high))))
        corners = np.stack(
            [np.asarray(map_.inverse(jax.numpy.asarray([a, b]))) for a in (low, high) for b in (low, high)]
        )
        self.both = corners.min(axis=0), corners.max(axis=0)
        self.one = np.array([self.both[0][0], -np.inf]), np.array([self.both[1][0], np.inf])
        self.key = jax.random.key(0)

    def sensor(self, kind: str) -> tuple[sm.Sensor, np.ndarray]:
        """A sensor of a kind, and readings of it with one missing."""
        shape = {"GaussianSensor": (1,), "IntervalSensor": (1, 2), "FactorSensor": (1,)}[kind]
        readings = np.full((READINGS, *shape), self.point[0])
        if kind == "IntervalSensor":
            readings[:, 0] = self.both[0][0], self.both[1][0]
        readings[1] = np.nan
        form = self.form
        sensors = {
            "GaussianSensor": lambda: sm.GaussianSensor(0, std=0.5),
            "IntervalSensor": lambda: sm.IntervalSensor(0),
            "FactorSensor": lambda: sm.FactorSensor(lambda o: form, 1),
        }
        return sensors[kind](), readings

    def filtered(self, kind: str) -> list[Any]:
        """Evidence, and the density of the last belief at a point."""
        sensor, readings = self.sensor(kind)
        found = self.process.filter(readings, sensor=sensor)
        return [found.log_evidence, found.beliefs[-1].log_prob(self.point)]

    def smoothed(self, kind: str) -> Any:
        """The density of the smoothed belief in the gap at a point."""
        sensor, readings = self.sensor(kind)
        return self.process.smooth(readings, sensor=sensor).beliefs[1].log_prob(self.point)


Query = Callable[[Case], Any]
QUERIES: dict[str, Query] = {
    "`log_prob`": lambda c: c.belief.log_prob(c.point),
    "`mass`": lambda c: c.belief.mass(),
    "`mean`, `covariance`": lambda c: [c.belief.mean(), c.belief.covariance()],
    "`moment`": lambda c: c.belief.moment([2, 1]),
    "`marginal`": lambda c: c.belief.marginal([0]).log_prob(c.point[:1]),
    "`condition`": lambda c: c.belief.condition({0: c.point[0]}).log_prob(c.point[1:]),
    "`probability`, one coordinate bounded": lambda c: c.belief.probability(*c.one),
    "`probability`, both bounded": lambda c: c.belief.probability(*c.both),
    "`cdf`": lambda c: c.belief.cdf(c.point),
    "`quantile`": lambda c: c.belief.quantile(0.3, 0),
    "`sample`": lambda c: c.belief.sample(c.key, 4),
    "`overlap`": lambda c: c.belief.overlap(c.before),
    "`entropy`": lambda c: c.belief.entropy(c.key, 8),
    "`kl`": lambda c: c.belief.kl(c.before, c.key, 8),
    "`stationary`": lambda c: c.process.stationary().log_prob(c.point),
    "`timescales`": lambda c: c.process.timescales(2),
    "`autocorrelation`": lambda c: c.process.autocorrelation(0, 2),
    "`mean_first_passage`, one bounded": lambda c: c.process.mean_first_passage(*c.one),
    "`mean_first_passage`, both bounded": lambda c: c.process.mean_first_passage(*c.both),
    "`stay_probability`, one bounded": lambda c: c.process.stay_probability(*c.one, 2),
    "`stay_probability`, both bounded": lambda c: c.process.stay_probability(*c.both, 2),
    "`reach_probability`, one bounded": lambda c: c.process.reach_probability(*c.one, 2),
    "`reach_probability`, both bounded": lambda c: c.process.reach_probability(*c.both, 2),
    **{
        f"`{verb}`, `{kind}`": (lambda c, kind=kind, act=act: act(c, kind))
        for kind in ("GaussianSensor", "IntervalSensor", "FactorSensor")
        for verb, act in (("filter", Case.filtered), ("smooth", Case.smoothed))
    },
}


def values(answer: Any) -> np.ndarray:
    """All numbers of an answer, in a row."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(answer)])


def attempt(query: Query, case: Case) -> tuple[str, np.ndarray]:
    """How a query was answered, or the text of its refusal, and the numbers."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            answer = query(case)
        except ValueError as error:
            return f"no: {error}", np.zeros(0)
    found = values(answer)
    if not np.all(np.isfinite(found)):
        raise AssertionError(f"Expected finite answers, got {found}.")
    estimated = isinstance(answer, sm.Estimate) or any(issubclass(one.category, sm.EstimateWarning) for one in heard)
    return ("estimate" if estimated else "exact"), found


def try_all(family: str, coupling: str, transform: str, names: Iterable[str] = QUERIES) -> dict[str, str]:
    """How each query is answered by one combination."""
    try:
        case = Case(family, coupling, transform)
    except ValueError as error:
        return dict.fromkeys(names, f"no: {error}")
    found = {name: attempt(QUERIES[name], case) for name in names}
    told = {name: answer for name, (answer, _) in found.items()}
    if case.process.transform.split().inner is None:
        return told
    # An answer that moves with the number of nodes rests on them. Programs hold the nodes, so they are made anew.
    nodes = transforms._NODES
    transforms._NODES = 6
    jax.clear_caches()
    try:
        for name, (answer, before) in found.items():
            if answer == "exact" and not np.allclose(before, attempt(QUERIES[name], case)[1], rtol=1e-9, atol=1e-12):
                told[name] = "quadrature"
    finally:
        transforms._NODES = nodes
        jax.clear_caches()
    return told


def merged(columns: dict[tuple[str, str], dict[str, str]]) -> list[tuple[str, dict[str, str]]]:
    """Equal columns under one heading: couplings of a transform first, then transforms."""
    by_transform: dict[str, list[tuple[list[str], dict[str, str]]]] = {}
    for (transform, coupling), answers in columns.items():
        groups = by_transform.setdefault(transform, [])
        same = next((group for group in groups if group[1] == answers), None)
        if same is None:
            groups.append(([coupling], answers))
        else:
            same[0].append(coupling)
    found: list[tuple[list[str], list[str], dict[str, str]]] = []
    for transform, groups in by_transform.items():
        for couplings, answers in groups:
            same_column = next((one for one in found if one[1] == couplings and one[2] == answers), None)
            if same_column is None:
                found.append(([transform], couplings, answers))
            else:
                same_column[0].append(transform)
    return [
        (", ".join(names) + ("" if len(couplings) == len(COUPLINGS) else f" ({', '.join(couplings)})"), answers)
        for names, couplings, answers in found
    ]


def spaces() -> list[str]:
    """The table of closed forms: families and transforms that answer alike share a row."""
    rows: dict[tuple[bool | str, ...], dict[str, list[str]]] = {}
    for family, (make, transforms_) in FAMILIES.items():
        basis = make(np.random.default_rng(0), COUNT)
        for name in transforms_:
            found = tuple(Space(basis, TRANSFORMS[name]()).exact.values())
            rows.setdefault(found, {}).setdefault(family, []).append(name)
    lines = [SPACES, "| family | transform | " + " | ".join(query.about for query in CLOSED.values()) + " |"]
    lines.append("|---" * (len(CLOSED) + 2) + "|")
    for found, families in rows.items():
        for under in dict.fromkeys(map(tuple, families.values())):
            alike = ", ".join(family for family, names in families.items() if tuple(names) == under)
            cells = ["yes" if one is True else str(one) for one in found]
            lines.append(f"| {alike} | {', '.join(under)} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def try_one(names: tuple[str, str, str], queries: list[str]) -> dict[str, str]:
    """How queries are answered by a family, a transform and a coupling."""
    family, transform, coupling = names
    return try_all(family, coupling, transform, queries)


def combinations(families: list[str]) -> list[tuple[str, str, str]]:
    """Families, the transforms that suit them, couplings."""
    return [(name, transform, c) for name in families for transform in FAMILIES[name].transforms for c in COUPLINGS]


def section(family: str, answers: dict[str, dict[str, str]]) -> list[str]:
    """The table of one family, and the refusals under it."""
    # Refusals name the transform, which the column does already.
    columns = {
        (name.split()[0], name.split()[1]): {query: UNDER.sub("", told) for query, told in column.items()}
        for name, column in answers.items()
    }
    table, notes = merged(columns), []
    lines = [f"## {family}", "", "| query | " + " | ".join(name for name, _ in table) + " |"]
    lines.append("|---" * (len(table) + 1) + "|")
    for query in QUERIES:
        cells = []
        for _, column in table:
            told = column[query]
            if told.startswith("no: "):
                if told not in notes:
                    notes.append(told)
                told = f"no [{notes.index(told) + 1}]"
            cells.append(told)
        lines.append(f"| {query} | " + " | ".join(cells) + " |")
    if notes:
        lines += ["", *(f"{i + 1}. {told.removeprefix('no: ')}" for i, told in enumerate(notes))]
    return [*lines, ""]


def render(content: dict[str, Any]) -> str:
    """The page."""
    env = content["environment"]
    made = f"jax {env['jax']}, sosmarkov {env['sosmarkov']}, commit {env['commit']}."
    lines = [HEAD, *spaces(), made, ""]
    for family, answers in content["families"].items():
        lines += section(family, answers)
    return "\n".join(lines)


def stored() -> dict[str, Any]:
    """What was found before."""
    return json.loads(SOURCE.read_text()) if SOURCE.exists() else {"families": {}}


def try_again(
    content: dict[str, Any], todo: list[tuple[str, str, str]], queries: list[str], processes: int
) -> dict[str, Any]:
    """Try some combinations; what is found is written as it comes."""
    content = content | {"environment": environment()}
    known = content["families"]
    # A process each, started afresh: compiled programs take memory that only its end gives back.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for (family, transform, coupling), answers in zip(
            todo, pool.map(partial(try_one, queries=queries), todo), strict=True
        ):
            before, column = known.get(family, {}), f"{transform} {coupling}"
            known[family] = before | {column: before.get(column, {}) | answers}
            content["families"] = {name: known[name] for name in FAMILIES if name in known}
            write_atomic(SOURCE, json.dumps(content, indent=1).encode())
            print(f"tried: {family} {transform} {coupling}", flush=True)
    return content


def main(arguments: list[str] | None = None) -> int:
    """Try, write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--transforms", nargs="+", choices=list(TRANSFORMS), default=list(TRANSFORMS))
    parser.add_argument("--queries", nargs="+", choices=list(QUERIES), default=list(QUERIES))
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    content = stored()
    if options.check:
        if PAGE.exists() and PAGE.read_text() == render(content):
            return 0
        print("docs/queries.md is not what results/queries.json makes: run bench/scripts/queries_page.py --page")
        return 1
    if not options.page:
        todo = [one for one in combinations(options.families) if one[1] in options.transforms]
        content = try_again(content, todo, options.queries, options.processes)
    PAGE.write_text(render(content))
    return 0


if __name__ == "__main__":
    sys.exit(main())
