"""Learn half a year of one person's blood glucose, and forecast the weeks that were held out.

The record has a reading every five minutes, as the package `bokeh_sampledata` holds it. How fast glucose changes says
as much as its level, so that a state is two readings a quarter of an hour apart, as logarithms, and a step is half an
hour. Every fifth week is held out. Beliefs from a known state are scored beside a linear step with Gaussian noise and
beside one Gaussian for all states; so is the probability of less than 70 mg/dl an hour later.

Needs `bokeh_sampledata`. Run it with `python examples/glucose.py --out demo`.
"""

import argparse
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import scipy.stats

import sosmarkov as sm
from sosmarkov import plots
from sosmarkov_bench.records import LinearStep, glucose, in_blocks, later_states, learn_step, scores_beside
from sosmarkov_bench.seasonal import block_mean

LAG, STEP, AHEAD = 3, 6, 8
WEEK = 7 * 24 * 12
LOW, HOUR = np.log(70.0), 2


def low_ahead(process: sm.MarkovProcess, x: np.ndarray) -> np.ndarray:
    """P(less than 70 mg/dl an hour after each state), shape (N,)."""
    lower, upper = [-np.inf, -np.inf], [np.inf, LOW]
    return np.array([float(process.belief_at(HOUR, initial=state).probability(lower, upper)) for state in x])


def draw(process: sm.MarkovProcess, states: np.ndarray, t: np.ndarray, path: Path) -> None:
    """Fans over four hours from a rising, a falling and a level state, with what was measured."""
    there = np.all(np.isfinite(later_states(states, t, STEP, AHEAD)), axis=(1, 2))
    t, change = t[there], states[t[there], 1] - states[t[there], 0]
    chosen = [t[np.argsort(change)[int(share * (len(t) - 1))]] for share in (0.03, 0.5, 0.97)]
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained", sharey=True)
    hours = STEP / 12 * np.arange(AHEAD + 1)
    for axis, origin, name in zip(axes, chosen, ("falling", "level", "rising"), strict=True):
        beliefs = process.propagate(AHEAD, initial=states[origin])
        shares = [0.05, 0.25, 0.5, 0.75, 0.95]
        ends = [np.full(5, states[origin, 1]), *(np.asarray(b.quantile(shares, 1)) for b in beliefs[1:])]
        ends = np.exp(ends)
        axis.fill_between(hours, ends[:, 0], ends[:, 4], color="tab:blue", alpha=0.2, label="90 %")
        axis.fill_between(hours, ends[:, 1], ends[:, 3], color="tab:blue", alpha=0.35, label="50 %")
        axis.plot(hours, ends[:, 2], color="tab:blue", label="median")
        past = np.arange(-12, STEP * AHEAD + 1)
        axis.plot(past / 12, np.exp(states[origin + past, 1]), color="black", linewidth=0.8, label="measured")
        axis.axhline(np.exp(LOW), color="tab:red", linewidth=0.8, linestyle=":")
        axis.set(xlabel="hours from now", title=name)
    axes[0].set(ylabel="glucose, mg/dl")
    axes[0].legend(fontsize=8, frameon=False)
    plots.save(figure, path)


def brier_scores(
    process: sm.MarkovProcess, linear: LinearStep, now: np.ndarray, later: np.ndarray, share: float
) -> dict[str, float]:
    """Mean (P(low in an hour) - whether it was)^2, for every fourth forecast; always giving the share is the last."""
    known = np.isfinite(later[:, HOUR - 1, 1])
    some, low = now[known][::4], later[known][::4, HOUR - 1, 1] < LOW
    means, covariances = linear.ahead(some, HOUR)
    guess = scipy.stats.norm.cdf(LOW, means[:, -1, 1], np.sqrt(covariances[-1, 1, 1]))
    said = {"process": low_ahead(process, some), "linear step": guess, "its share": np.full(len(some), share)}
    return {name: float(np.mean((probability - low) ** 2)) for name, probability in said.items()}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Learn, forecast, compare, draw; returns scores over the steps ahead."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure")
    parser.add_argument("--size", type=int, default=16, help="basis functions")
    parser.add_argument("--steps", type=int, default=1000, help="training steps")
    parser.add_argument("--quick", action="store_true", help="a few functions and steps, to see that it runs")
    options = parser.parse_args(arguments)
    size, steps, every = (4, 50, 48 * STEP) if options.quick else (options.size, options.steps, STEP)

    states = in_blocks(np.log(glucose()), LAG)
    held_out = np.arange(len(states)) // WEEK % 5 == 2
    whole = np.all(np.isfinite(states), axis=1)
    t = np.arange(len(states) - STEP)
    learned = t[whole[t] & whole[t + STEP] & ~held_out[t] & ~held_out[t + STEP]]
    x, x_next = states[learned], states[learned + STEP]
    process = learn_step(x, x_next, size, steps)
    asked = np.arange(0, len(states) - STEP * AHEAD, every)
    asked = asked[whole[asked] & held_out[asked] & held_out[asked + STEP * AHEAD]]
    later = later_states(states, asked, STEP, AHEAD)
    scores = scores_beside(process, (x, x_next), states[asked], later)
    found: dict[str, Any] = {"pairs": len(x), "forecasts": len(asked), "seconds": process.history.seconds}
    found |= {"parameters": process.parameter_count, "ahead": [f"{0.5 * k:g} h" for k in range(1, AHEAD + 1)]}
    found["scores"] = {name: np.nanmean(score, axis=0).tolist() for name, score in scores.items()}
    _, error = block_mean(scores["process"] - scores["linear step"], asked // WEEK)
    found["standard_error"] = error.tolist()
    found["brier"] = brier_scores(process, LinearStep.fit(x, x_next), states[asked], later, np.mean(x_next[:, 1] < LOW))
    print(f"learned from {len(x):,} steps in {found['seconds']:.0f} s")
    for name, score in found["scores"].items():
        print(f"{name:<14} " + " ".join(f"{value:>7.3f}" for value in score))
    print("nats a state, half an hour to four hours ahead")
    print("Brier score of less than 70 mg/dl in an hour: ", {k: round(v, 5) for k, v in found["brier"].items()})
    draw(process, states, asked, options.out / "glucose.png")
    print(f"figure: {options.out / 'glucose.png'}")
    return found


if __name__ == "__main__":
    main()
