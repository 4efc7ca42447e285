"""Write frozen.json: answers of twenty densities to 50 digits, from the plain definition, with mpmath.

p(x) = (f(x)^T A f(x)) (h(x)^T C h(x)) / Z, or (a^T f)(c^T h) / Z for linear forms, every function divided by the root
of the integral of its square. Integrals are sums over tensor grids; each is taken on two, which have to agree.

Run `python tests/belief/make_frozen.py`; needs mpmath, and some minutes.
"""

from __future__ import annotations

import itertools
import json
import pathlib

import numpy as np
from mpmath import mp, mpf
from mpmath.calculus.quadrature import GaussLegendre, TanhSinh

mp.dps = 60
DIGITS = 50
LEGENDRE, DOUBLE = GaussLegendre(mp), TanhSinh(mp)
# Powers of y are smooth in y^(1/10) down to zero.
ROOT = 10

# --- functions, by their definition ---------------------------------------------------------------


def kernel(mean: list, covariance: list):
    """A Gaussian kernel with full covariance."""
    inverse, centre, d = mp.inverse(mp.matrix(covariance)), [mpf(m) for m in mean], range(len(mean))

    def value(x: list) -> mpf:
        away = [t - m for t, m in zip(x, centre, strict=True)]
        return mp.exp(-sum(inverse[i, j] * away[i] * away[j] for i in d for j in d) / 2)

    return value


def single(family: str, of: dict, t: mpf) -> mpf:
    """A function of one coordinate."""
    if family == "gaussian":
        return mp.exp(-(((t - of["mean"]) / of["std"]) ** 2) / 2)
    if family == "beta":
        return t ** (of["alpha"] - 1) * (1 - t) ** (of["beta"] - 1)
    if family == "monomial":
        return t ** of["exponent"]
    if family == "exponential":
        return mp.exp(of["rate"] * t)
    return mp.cos(of["frequency"] * t + of["phase"])


# --- rules ------------------------------------------------------------------------------------------


def domain(family: str, parameters: dict) -> tuple[mpf, mpf]:
    """Where functions live; as far as 60 digits go for kernels."""
    if family.startswith("gaussian"):
        return mpf(-20), mpf(20)
    return (mpf(0), mpf(1)) if family == "beta" else (mpf(parameters["lower"]), mpf(parameters["upper"]))


def rule(family: str, low: mpf, high: mpf, fine: int) -> list[tuple[mpf, mpf]]:
    """Nodes and weights between two ends."""
    if family in ("beta", "monomial"):
        ends = low ** (mpf(1) / ROOT), high ** (mpf(1) / ROOT)
        # mpmath halves the step from degree to degree, and lists the new nodes only.
        degree = 6 + fine
        found = [node for k in range(1, degree + 1) for node in DOUBLE.get_nodes(*ends, k, mp.prec)]
        step = mpf(2) ** -degree
        return [(s**ROOT, step * w * ROOT * s ** (ROOT - 1)) for s, w in found if ends[0] < s < ends[1]]
    if family.startswith("gaussian") and high - low >= 40:
        # The trapezoidal rule converges like the Fourier transform of a Gaussian falls.
        step = mpf(1) / (8 + fine)
        count = int((high - low) / step)
        return [(low + k * step, step) for k in range(count + 1)]
    panels = 1 + int((high - low) / 3)
    edges = [low + (high - low) * k / panels for k in range(panels + 1)]
    degree = 6 + fine if family.startswith("gaussian") else 5 + fine
    return [node for a, b in itertools.pairwise(edges) for node in LEGENDRE.get_nodes(a, b, degree, mp.prec)]


def integral(family: str, value, low: list, high: list, fine: int) -> mpf:
    """The integral of value(x) over a box, by a tensor rule."""
    rules = [rule(family, a, b, fine) for a, b in zip(low, high, strict=True)]
    return mp.fsum(mp.fprod(w for _, w in nodes) * value([t for t, _ in nodes]) for nodes in itertools.product(*rules))


# --- densities --------------------------------------------------------------------------------------


class Density:
    """g h, unnormalised, with functions of unit norm; values at single nodes are kept."""

    def __init__(self, case: dict, fine: int):
        self.case, self.family, self.dim, self.fine = case, case["family"], case["dim"], fine
        self.kept: dict = {}
        self.ends = domain(self.family, case["g"]["basis"])
        self.matrices = {side: [[mpf(a) for a in row] for row in case[side].get("matrix", [])] for side in "gh"}
        self.kernels = {
            side: [
                kernel(*row) for row in zip(case[side]["basis"]["mean"], case[side]["basis"]["covariance"], strict=True)
            ]
            for side in "gh"
            if self.family == "gaussian-full"
        }
        self.norms = {side: [self.norm(side, i) for i in range(self.size(side))] for side in "gh"}
        self.mass = self.over([self.ends[0]] * self.dim, [self.ends[1]] * self.dim)

    def size(self, side: str) -> int:
        form = self.case[side]
        return len(form.get("matrix", form.get("weights")))

    def norm(self, side: str, i: int) -> mpf:
        """The root of the integral of the square, coordinate by coordinate where the function is a product."""
        basis, (low, high) = self.case[side]["basis"], self.ends
        if self.family == "gaussian-full":
            whole = [low] * self.dim, [high] * self.dim
            return mp.sqrt(integral(self.family, lambda x: self.kernels[side][i](x) ** 2, *whole, self.fine))
        total = mpf(1)
        for c in range(self.dim):
            of = {name: mpf(values[i][c]) for name, values in basis.items() if isinstance(values, list)}
            total *= integral(
                self.family, lambda x, of=of: single(self.family, of, x[0]) ** 2, [low], [high], self.fine
            )
        return mp.sqrt(total)

    def functions(self, side: str, x: list) -> list:
        """All functions of a side at a point."""
        basis, norms = self.case[side]["basis"], self.norms[side]
        if self.family == "gaussian-full":
            return [one(x) / norm for one, norm in zip(self.kernels[side], norms, strict=True)]
        values = [1 / norm for norm in norms]
        for c, t in enumerate(x):
            key = side, c, t
            if key not in self.kept:
                self.kept[key] = [
                    single(self.family, {n: mpf(v[i][c]) for n, v in basis.items() if isinstance(v, list)}, t)
                    for i in range(len(norms))
                ]
            values = [a * b for a, b in zip(values, self.kept[key], strict=True)]
        return values

    def form(self, side: str, x: list) -> mpf:
        """f^T A f or a^T f."""
        f = self.functions(side, x)
        if "weights" in self.case[side]:
            return mp.fsum(mpf(w) * v for w, v in zip(self.case[side]["weights"], f, strict=True))
        return mp.fsum(a * f[i] * f[j] for i, row in enumerate(self.matrices[side]) for j, a in enumerate(row))

    def value(self, x: list) -> mpf:
        return self.form("g", x) * self.form("h", x)

    def over(self, low: list, high: list, factor=lambda x: 1) -> mpf:
        clipped = [max(a, self.ends[0]) for a in low], [min(b, self.ends[1]) for b in high]
        return integral(self.family, lambda x: self.value(x) * factor(x), *clipped, self.fine)

    def line(self, c: int, t: mpf) -> mpf:
        """The integral over the other coordinate, of two, with x_c = t."""
        return integral(
            self.family,
            lambda x: self.value([t, x[0]] if c == 0 else [x[0], t]),
            [self.ends[0]],
            [self.ends[1]],
            self.fine,
        )

    def answer(self, query: dict) -> mpf:
        """What the query asks for."""
        x = [mpf(t) for t in query.get("x", [])]
        if query["ask"] == "mass":
            return self.mass
        if query["ask"] == "log_prob":
            return mp.log(self.value(x) / self.mass)
        if query["ask"] in ("probability", "cdf"):
            low = [mpf(t) for t in query.get("lower", ["-inf"] * self.dim)]
            return self.over(low, [mpf(t) for t in query["upper"]]) / self.mass
        if query["ask"] == "moment":
            whole = [self.ends[0]] * self.dim, [self.ends[1]] * self.dim
            return (
                self.over(*whole, lambda x: mp.fprod(t**p for t, p in zip(x, query["powers"], strict=True))) / self.mass
            )
        c = query["coordinate"]
        if query["ask"] == "marginal":
            return self.line(c, x[0]) / self.mass
        fixed = mpf(query["value"])
        return self.value([fixed, x[0]] if c == 0 else [x[0], fixed]) / self.line(c, fixed)


# --- cases ------------------------------------------------------------------------------------------


def random_basis(rng: np.random.Generator, family: str, n: int, d: int) -> dict:
    if family == "gaussian":
        return {"mean": rng.normal(size=(n, d)).tolist(), "std": (0.8 + 0.5 * rng.random((n, d))).tolist()}
    if family == "gaussian-full":
        root = 0.2 * rng.normal(size=(n, d, d)) + 0.8 * np.eye(d)
        covariance = root @ np.swapaxes(root, 1, 2) + 0.3 * np.eye(d)
        covariance = 0.5 * (covariance + np.swapaxes(covariance, 1, 2))
        return {"mean": rng.normal(size=(n, d)).tolist(), "covariance": covariance.tolist()}
    if family == "beta":
        alpha, beta = 0.85 + 3.0 * rng.random((n, d)), 1.0 + 3.0 * rng.random((n, d))
        return {"alpha": alpha.tolist(), "beta": beta.tolist()}
    if family == "monomial":
        return {"exponent": (-0.15 + 3.0 * rng.random((n, d))).tolist(), "lower": 0.0, "upper": 1.5}
    if family == "exponential":
        return {"rate": (2.0 * rng.normal(size=(n, d))).tolist(), "lower": -1.0, "upper": 2.0}
    frequency, phase = 2.0 * rng.normal(size=(2, n, d))
    return {"frequency": frequency.tolist(), "phase": phase.tolist(), "lower": -1.0, "upper": 2.0}


def random_form(rng: np.random.Generator, family: str, kind: str, n: int, d: int) -> dict:
    basis = random_basis(rng, family, n, d)
    if kind == "linear":
        return {"basis": basis, "weights": (0.1 + rng.random(n)).tolist()}
    factor = rng.normal(size=(n, n))
    matrix = factor @ factor.T + 0.1 * np.eye(n)
    return {"basis": basis, "matrix": (0.5 * (matrix + matrix.T)).tolist()}


PLAN = [
    ("gaussian", "squared", 1, {"ask": "probability", "lower": ["-0.7"], "upper": ["0.9"]}),
    ("gaussian", "squared", 1, {"ask": "moment", "powers": [3]}),
    ("gaussian", "linear", 1, {"ask": "cdf", "upper": ["-1.3"]}),
    ("gaussian", "linear", 2, {"ask": "moment", "powers": [2, 2]}),
    ("gaussian", "squared", 2, {"ask": "probability", "lower": ["-0.5", "-inf"], "upper": ["1.25", "0.75"]}),
    ("gaussian", "squared", 2, {"ask": "condition", "coordinate": 1, "value": "0.375", "x": ["-0.25"]}),
    ("gaussian-full", "squared", 1, {"ask": "moment", "powers": [4]}),
    ("gaussian-full", "squared", 2, {"ask": "marginal", "coordinate": 0, "x": ["0.625"]}),
    ("gaussian-full", "linear", 2, {"ask": "condition", "coordinate": 0, "value": "-0.5", "x": ["0.875"]}),
    ("beta", "squared", 1, {"ask": "probability", "lower": ["0.125"], "upper": ["0.375"]}),
    ("beta", "linear", 1, {"ask": "cdf", "upper": ["0.0625"]}),
    ("beta", "squared", 1, {"ask": "moment", "powers": [1]}),
    ("beta", "squared", 2, {"ask": "marginal", "coordinate": 1, "x": ["0.8125"]}),
    ("exponential", "squared", 1, {"ask": "probability", "lower": ["-0.75"], "upper": ["0.5"]}),
    ("exponential", "linear", 1, {"ask": "moment", "powers": [2]}),
    ("exponential", "squared", 2, {"ask": "condition", "coordinate": 1, "value": "1.5", "x": ["-0.125"]}),
    ("monomial", "squared", 1, {"ask": "cdf", "upper": ["0.25"]}),
    ("monomial", "linear", 1, {"ask": "log_prob", "x": ["0.03125"]}),
    ("fourier", "squared", 1, {"ask": "probability", "lower": ["-0.25"], "upper": ["inf"]}),
    ("fourier", "squared", 2, {"ask": "moment", "powers": [1, 3]}),
]


def main() -> None:
    """Every case's inputs, exactly, and its answers as strings."""
    cases = []
    for seed, (family, kind, d, query) in enumerate(PLAN):
        rng = np.random.default_rng(seed)
        n = 2 if d == 2 else 3
        case = {
            "name": f"{family}-{kind}-{d}-{query['ask']}",
            "family": family,
            "dim": d,
            "g": random_form(rng, family, kind, n, d),
            "h": random_form(rng, family, kind, n, d),
        }
        coarse, fine = Density(case, 0), Density(case, 1)
        queries = [{"ask": "mass"}, query]
        for one in queries:
            values = coarse.answer(one), fine.answer(one)
            if abs(values[0] / values[1] - 1) > mpf(10) ** -(DIGITS + 2):
                raise ArithmeticError(f"{case['name']}: {one} is not converged: {values}.")
            one["answer"] = mp.nstr(values[1], DIGITS)
        cases.append({**case, "queries": queries})
    text = json.dumps(cases, indent=1)
    pathlib.Path(__file__).with_name("frozen.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
