"""`sosmarkov demo`: learn the Van der Pol oscillator, predict, compare with fresh simulation and the limit."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import sosmarkov as sm
from sosmarkov import plots
from sosmarkov.cli import oscillator
from sosmarkov.cli.options import at_least
from sosmarkov.cli.output import aligned, say
from sosmarkov.data import tables
from sosmarkov.report import write_report

STEPS = (0, 1, 2, 3, 5, 7)
COLUMNS = ("position", "velocity")
_SHOWN = 4.0


def run(options: Namespace) -> None:
    """Simulate, learn, propagate, compare, draw, report."""
    for name in ("count", "size", "steps"):
        at_least(getattr(options, name), 1, f"--{name}")
    options.out.mkdir(parents=True, exist_ok=True)
    demonstrate(options.out, options.count, options.size, options.steps)
    process, page = sm.load(options.out / "model.sosm"), options.out / "report.html"
    fresh = oscillator.simulate(1000, max(STEPS), seed=4)
    write_report(process, page, data=fresh)
    say(f"wrote {page}: open it in a browser")
    say(f"next: sosmarkov propagate {options.out}/model.sosm --steps 10 --from position=1,velocity=0")


def demonstrate(out: Path, count: int, size: int, steps: int) -> np.ndarray:
    """All but the report; returns the gaps to the limit at k = 1, 2, ..., in nats."""
    last = max(STEPS)
    training, test = oscillator.simulate(count, last, seed=0), oscillator.simulate(10_000, last, seed=4)
    begin = time.perf_counter()
    process = sm.fit(training, size=size, steps=steps, columns=COLUMNS)
    seconds = time.perf_counter() - begin
    say(f"learned from {count} trajectories of {last} steps in {seconds:.0f} s:\n{process.history}\n")
    say(f"{process.check()}\n")
    beliefs = process.propagate(last)
    scored = test[: 2 * count]
    best = oscillator.limit(scored, oscillator.simulate(20 * count, last, seed=2))
    gaussian = oscillator.one_gaussian(training, test)
    rows = []
    for k in range(1, last + 1):
        # Beside the limit on the same states: a mean over others would differ by chance.
        found, same = (float(np.mean(beliefs[k].log_prob(states))) for states in (test[:, k], scored[:, k]))
        gap, mass = same - best[k - 1], float(beliefs[k].mass()) - 1
        rows.append((k, found, best[k - 1], gap, gaussian[k - 1], mass))
    header = ("k", "log-likelihood", "limit", "gap", "one Gaussian", "mass - 1")
    say(aligned(header, [(k, *(f"{v:.3f}" for v in values), f"{mass:.1e}") for k, *values, mass in rows]))
    _write(process, training, test, out)
    return np.array([gap for _, _, _, gap, _, _ in rows])


def _write(process: sm.MarkovProcess, training: np.ndarray, test: np.ndarray, out: Path) -> None:
    """The data, the model, the figure."""
    process.save(out / "model.sosm")
    count, length, _ = training.shape
    labels = {"run": np.repeat(np.arange(count), length), "step": np.tile(np.arange(length), count)}
    states = {name: training[..., c].reshape(-1) for c, name in enumerate(COLUMNS)}
    tables.write(out / "runs.csv", labels | states)
    draw(process.propagate(max(STEPS)), test, out / "van_der_pol.png")
    say(f"\nwrote {out}/runs.csv, {out}/model.sosm, {out}/van_der_pol.png")


def draw(beliefs: Sequence[sm.Belief], simulated: np.ndarray, path: Path) -> None:
    """Exact beliefs above, fresh simulation below."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("The demonstration's figure needs matplotlib: pip install 'sosmarkov[plot]'.") from error
    line = np.linspace(-_SHOWN, _SHOWN, 121)
    grid = np.stack(np.meshgrid(line, line), axis=-1)
    figure = Figure(figsize=(2.1 * len(STEPS), 4.5))
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(STEPS), sharex=True, sharey=True)
    for column, k in enumerate(STEPS):
        above, below = axes[:, column]
        above.contourf(line, line, beliefs[k].prob(grid), levels=24, cmap="magma")
        above.set_title(f"k = {k}", fontsize=11)
        below.hist2d(*simulated[:, k].T, bins=48, range=[[-_SHOWN, _SHOWN]] * 2, cmap="magma")
        for axis in (above, below):
            axis.set(xlim=(-_SHOWN, _SHOWN), ylim=(-_SHOWN, _SHOWN), aspect="equal")
            axis.set(xticks=[-3, 0, 3], yticks=[-3, 0, 3])
    axes[0, 0].set_ylabel("learned belief")
    axes[1, 0].set_ylabel("fresh simulation")
    figure.tight_layout(pad=0.6)
    plots.save(figure, path, dpi=130)
