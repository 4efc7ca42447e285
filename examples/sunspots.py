"""Learn three centuries of sunspots, and forecast the years that were held out.

The record is the yearly number of sunspots from 1700 to 2008, as the package `statsmodels` holds it. Two years say what
comes next and one does not, so that a state is two years, (s_(t-1), s_t) with s the root of the number, and a step is
two years long. The years from 1931 on are held out. Beliefs from a known state are scored beside a linear step with
Gaussian noise and beside one Gaussian for all states, learned from the same years.

Needs `statsmodels`. Run it with `python examples/sunspots.py --out demo`.
"""

import argparse
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import sosmarkov as sm
from sosmarkov import plots
from sosmarkov_bench.records import in_blocks, later_states, learn_step, scores_beside, sunspots
from sosmarkov_bench.seasonal import block_mean

HELD_OUT, STEP, AHEAD, CYCLE = 1931, 2, 6, 11


def period_of(process: sm.MarkovProcess) -> float:
    """Years for one turn, from the slowest eigenvalue of the step that turns at all."""
    values = process.spectrum()
    turning = values[np.abs(np.imag(values)) > 1e-6]
    return float(STEP * 2.0 * np.pi / np.abs(np.angle(turning[0]))) if len(turning) else np.inf


def draw(process: sm.MarkovProcess, years: np.ndarray, states: np.ndarray, path: Path) -> None:
    """Forecasts from two held-out years, and the long run of one year beside all years of the record."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for axis, year in zip(axes, (1954, 1989), strict=False):
        t = int(np.flatnonzero(years == year)[0])
        beliefs = process.propagate(AHEAD, initial=states[t])
        at = year + STEP * np.arange(AHEAD + 1)
        shares = [0.05, 0.25, 0.5, 0.75, 0.95]
        # A root below zero has no number: what little the beliefs have there is drawn as none.
        ends = np.array([np.full(5, states[t, 1]), *(np.asarray(b.quantile(shares, 1)) for b in beliefs[1:])])
        ends = np.maximum(ends, 0.0) ** 2
        axis.fill_between(at, ends[:, 0], ends[:, 4], color="tab:blue", alpha=0.2, label="90 %")
        axis.fill_between(at, ends[:, 1], ends[:, 3], color="tab:blue", alpha=0.35, label="50 %")
        axis.plot(at, ends[:, 2], color="tab:blue", label="median")
        shown = (years >= year - 6) & (years <= at[-1])
        axis.plot(years[shown], states[shown, 1] ** 2, ".-", color="black", linewidth=0.8, label="observed")
        axis.set(xlabel=f"year; forecast from {year}", ylabel="sunspots", ylim=(0, None), xticks=at[::2])
    axes[0].legend(fontsize=8, frameon=False)
    axes[2].hist(states[:, 1], bins=20, density=True, color="0.8", label="all years")
    sm.plot_stationary(process, 1, ax=axes[2])
    axes[2].set(xlabel="root of the number", title="the long run")
    axes[2].legend(fontsize=8, frameon=False)
    plots.save(figure, path)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Learn, forecast, compare, draw; returns scores over the steps ahead."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure")
    parser.add_argument("--size", type=int, default=6, help="basis functions")
    parser.add_argument("--steps", type=int, default=600, help="training steps")
    parser.add_argument("--quick", action="store_true", help="a few functions and steps, to see that it runs")
    options = parser.parse_args(arguments)
    size, steps = (4, 50) if options.quick else (options.size, options.steps)

    years, numbers = sunspots()
    states = in_blocks(np.sqrt(numbers), 1)
    learned = np.flatnonzero(years < HELD_OUT - STEP)[1:]
    x, x_next = states[learned], states[learned + STEP]
    # A few hundred pairs say all there is: a surrogate would have nothing to add.
    process = learn_step(x, x_next, size, steps)
    t = np.flatnonzero(years >= HELD_OUT)[1 : -STEP * AHEAD]
    later = later_states(states, t, STEP, AHEAD)
    scores = scores_beside(process, (x, x_next), states[t], later)
    found: dict[str, Any] = {"period": period_of(process), "pairs": len(x), "forecasts": len(t)}
    found |= {"seconds": process.history.seconds, "parameters": process.parameter_count}
    found["ahead"] = [f"{STEP * k} years" for k in range(1, AHEAD + 1)]
    found["scores"] = {name: score.mean(axis=0).tolist() for name, score in scores.items()}
    _, error = block_mean(scores["process"] - scores["linear step"], years[t] // CYCLE)
    found["standard_error"] = error.tolist()
    print(f"learned from {len(x)} steps in {found['seconds']:.0f} s; one turn takes {found['period']:.1f} years")
    for name, score in found["scores"].items():
        print(f"{name:<14} " + " ".join(f"{value:>8.3f}" for value in score))
    draw(process, years, states, options.out / "sunspots.png")
    print(f"nats a state, {STEP} to {STEP * AHEAD} years ahead; figure: {options.out / 'sunspots.png'}")
    return found


if __name__ == "__main__":
    main()
