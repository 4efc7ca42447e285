"""Learn how a planar quadrotor holds its height, and ask how safely it flies between ground and ceiling.

It enters at 50 m/s with gusts in all six coordinates. What is asked: how likely it keeps its height, when it loses it
for the first time, and how likely it strikes the ceiling without having touched the ground. Each answer is held
against the share of fresh flights of the whole simulator.

Steps are short and gusts strong, so that height by itself is nearly Markov, and its transitions are learned sharply.
All six coordinates can be learned too, and their beliefs are good (docs/learning-results.md); but answers about every
step on the way need transitions as sharp as one step's noise, and twenty functions of six coordinates are too few.

Run it with `python examples/quadrotor_safety.py --out demo`.
"""

import argparse
import time
from pathlib import Path

import jax
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import sosmarkov as sm
from sosmarkov import plots
from sosmarkov_bench.systems import get_system

STEPS = 13
FLIGHTS = 20_000
SEEN = ("pz",)
CORRIDOR = {"pz": (-1.0, 1.0)}
GROUND, CEILING = {"pz": (-np.inf, -1.0)}, {"pz": (1.0, np.inf)}


def box(bounds: dict[str, tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends of all coordinates, infinite where none is given."""
    ends = np.array([bounds.get(name, (-np.inf, np.inf)) for name in SEEN])
    return ends[:, 0], ends[:, 1]


def within(states: np.ndarray, bounds: dict[str, tuple[float, float]]) -> np.ndarray:
    """Whether states of shape (..., 1) lie in a box."""
    lower, upper = box(bounds)
    return np.all((states > lower) & (states < upper), axis=-1)


def fly(count: int, seed: int) -> np.ndarray:
    """Heights of simulated flights, shape (count, STEPS + 1, 1)."""
    system = get_system("quadrotor")
    flights = np.asarray(system.simulate(jax.random.key(seed), count, STEPS))
    return flights[..., [system.coordinates.index(name) for name in SEEN]]


def simulated_answers(flights: np.ndarray) -> dict[str, np.ndarray]:
    """Shares of simulated flights, each of shape (STEPS,)."""
    later = flights[:, 1:]
    stay = np.mean(np.logical_and.accumulate(within(later, CORRIDOR), axis=1), axis=0)
    clear = np.logical_and.accumulate(~within(later, GROUND), axis=1)
    struck = np.logical_or.accumulate(within(later, CEILING) & clear, axis=1)
    return {
        "keeps height": stay,
        "loses it now": -np.diff(stay, prepend=1.0),
        "strikes ceiling": np.mean(struck, axis=0),
    }


def learned_answers(process: sm.MarkovProcess) -> dict[str, np.ndarray]:
    """The same from the process, in closed form."""
    found = {
        "keeps height": process.stay_probability(*box(CORRIDOR), STEPS),
        "loses it now": process.exit_probability(*box(CORRIDOR), STEPS),
        "strikes ceiling": process.reach_probability(*box(CEILING), STEPS, avoid=box(GROUND)),
    }
    return {name: np.asarray(values) for name, values in found.items()}


def draw(learned: dict[str, np.ndarray], simulated: dict[str, np.ndarray], count: int, path: Path) -> None:
    """Learned lines, simulated points with two standard errors."""
    titles = {
        "keeps height": "has kept its height",
        "loses it now": "loses it for the first time",
        "strikes ceiling": "struck the ceiling, no ground before",
    }
    figure, axes = plt.subplots(1, len(titles), figsize=(11, 3.2), sharex=True, layout="constrained")
    steps = np.arange(1, STEPS + 1)
    for axis, (name, title) in zip(axes, titles.items(), strict=True):
        share = simulated[name]
        error = 2.0 * np.sqrt(share * (1.0 - share) / count)
        axis.plot(steps, learned[name], color="tab:blue", label="learned, closed form")
        axis.errorbar(steps, share, error, fmt="o", markersize=3.5, color="black", label="simulated, 2 standard errors")
        axis.set(title=title, xlabel="step")
        axis.set_ylim(0, 1.25 * max(share.max(), learned[name].max()))
    axes[0].set_ylabel("probability")
    axes[0].legend(fontsize=8, frameon=False, loc="lower left")
    plots.save(figure, path)


def main(arguments: list[str] | None = None) -> float:
    """Simulate, learn, ask, compare, draw; returns the worst difference from simulation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure")
    parser.add_argument("--count", type=int, default=2000, help="flights to learn from")
    parser.add_argument("--size", type=int, default=16, help="basis functions")
    parser.add_argument("--steps", type=int, default=800, help="training steps")
    parser.add_argument("--flights", type=int, default=FLIGHTS, help="fresh flights to compare with")
    options = parser.parse_args(arguments)

    begin = time.perf_counter()
    # What happens on the way from step to step is asked, so transitions are what is trained.
    process = sm.fit(
        fly(options.count, 0),
        size=options.size,
        steps=options.steps,
        objective="transitions",
        surrogate=False,
    )
    print(f"learned from {options.count} flights of {STEPS} steps in {time.perf_counter() - begin:.0f} s")

    begin_asking = time.perf_counter()
    learned = learned_answers(process)
    print(f"three answers over {STEPS} steps in {time.perf_counter() - begin_asking:.1f} s, compilation included")
    simulated = simulated_answers(fly(options.flights, 1))
    print(f"\n{'':>4} " + " ".join(f"{name:^19}" for name in learned))
    print("step " + " ".join(f"{'learned':>9} {'simulated':>9}" for _ in learned))
    for k in range(STEPS):
        print(f"{k + 1:>4} " + " ".join(f"{learned[name][k]:>9.4f} {simulated[name][k]:>9.4f}" for name in learned))
    worst = max(float(np.max(np.abs(learned[name] - simulated[name]))) for name in learned)
    path = options.out / "quadrotor_safety.png"
    draw(learned, simulated, options.flights, path)
    chance = 1.0 / np.sqrt(options.flights)
    print(f"largest difference: {worst:.4f}; counting flights errs by {chance:.4f} (two standard errors)")
    print(f"figure: {path}; {time.perf_counter() - begin:.0f} s in all")
    return worst


if __name__ == "__main__":
    main()
