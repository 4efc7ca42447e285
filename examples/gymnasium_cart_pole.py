"""Learn Gymnasium's cart-pole in gusts, predict it, and ask how likely its pole stays up.

`CartPole-v1` is stepped as Gymnasium has it. The force of every push is drawn anew, which makes it random, and the cart
is pushed to where the pole leans, which is not enough to keep it up. One step of the process is five of the simulator,
a tenth of a second. Episodes go on when the pole falls, so that how often it fell can be counted. Beliefs are scored on
fresh episodes beside one Gaussian for each step, fitted to the same training episodes.

Needs `gymnasium`. Run it with `python examples/gymnasium_cart_pole.py --out demo`.
"""

import argparse
from pathlib import Path
from typing import Any

import gymnasium
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import sosmarkov as sm
from sosmarkov import plots
from sosmarkov_bench.records import normal_log_prob

NAMES = ("position", "velocity", "angle", "angular velocity")
EACH, AHEAD, FALLEN = 5, 8, np.radians(12.0)
SPREAD, GUST = 0.05, 8.0


def episodes(count: int, seed: int) -> np.ndarray:
    """Episodes of the simulator, one state in `EACH`, shape (count, AHEAD + 1, 4)."""
    env: Any = gymnasium.make("CartPole-v1").unwrapped
    env.theta_threshold_radians = env.x_threshold = np.inf  # never over
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    found = np.empty((count, AHEAD + 1, 4))
    for episode in found:
        state, _ = env.reset(options={"low": -SPREAD, "high": SPREAD})
        episode[0] = state
        for k in range(EACH * AHEAD):
            env.force_mag = 10.0 + GUST * rng.normal()
            state, *_ = env.step(int(state[2] > 0.0))
            episode[(k + 1) // EACH] = state
    return found


def draw(process: sm.MarkovProcess, test: np.ndarray, stay: dict[str, np.ndarray], path: Path) -> None:
    """Beliefs over angle and its velocity above episodes of the simulator; how likely the pole stayed up."""
    figure = plt.figure(figsize=(12, 4.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[2.2, 1])  # type: ignore[misc]
    axes = left.subplots(2, 3, sharex="col", sharey="col")
    steps = [2, 5, 8]
    sm.plot_marginals_over_time(process, test[:2000], steps=steps, pairs=[(2, 3)], axes=axes)
    axis = right.subplots()
    at = 0.1 * np.arange(1, AHEAD + 1)
    axis.plot(at, stay["simulated"], "o", color="black", label="fresh episodes")
    axis.plot(at, stay["process"], color="tab:blue", label="stay_probability()")
    axis.set(xlabel="seconds", ylabel="the pole has stayed within 12 degrees", ylim=(0, 1.02))
    axis.legend(fontsize=8, frameon=False)
    plots.save(figure, path)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Simulate, learn, predict, compare, draw; returns scores over the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure")
    parser.add_argument("--count", type=int, default=1000, help="episodes to learn from")
    parser.add_argument("--size", type=int, default=14, help="basis functions")
    parser.add_argument("--steps", type=int, default=600, help="training steps")
    parser.add_argument("--quick", action="store_true", help="a few episodes, functions and steps, to see that it runs")
    options = parser.parse_args(arguments)
    count, size, steps = (60, 4, 50) if options.quick else (options.count, options.size, options.steps)

    training, test = episodes(count, 0), episodes(2 * count, 1)
    chosen: dict[str, Any] = {"surrogate": False} if options.quick else {}
    # Beliefs are scored, and staying up is a question about transitions: both are trained.
    process = sm.fit(
        training, basis="gaussian-full", size=size, steps=steps, objective=0.1, columns=NAMES, progress=False, **chosen
    )
    beliefs = process.propagate(AHEAD)
    k = range(1, AHEAD + 1)
    scores = {
        "process": np.stack([np.asarray(beliefs[i].log_prob(test[:, i])) for i in k], axis=1),
        "one Gaussian per step": np.stack(
            [normal_log_prob(test[:, i], training[:, i].mean(0), np.cov(training[:, i].T, bias=True)) for i in k],
            axis=1,
        ),
    }
    up = np.logical_and.accumulate(np.abs(test[:, 1:, 2]) < FALLEN, axis=1)
    box = np.full(4, np.inf)
    box[2] = FALLEN
    stay = {"process": np.asarray(process.stay_probability(-box, box, AHEAD)), "simulated": up.mean(axis=0)}
    found: dict[str, Any] = {"episodes": count, "fresh": len(test), "seconds": process.history.seconds}
    found |= {"parameters": process.parameter_count, "ahead": [f"{0.1 * i:.1f} s" for i in k]}
    found["scores"] = {name: score.mean(axis=0).tolist() for name, score in scores.items()}
    apart = scores["process"] - scores["one Gaussian per step"]
    found["standard_error"] = (apart.std(axis=0) / np.sqrt(len(test))).tolist()
    found["stay"] = {name: values.tolist() for name, values in stay.items()}
    print(f"learned from {count} episodes in {found['seconds']:.0f} s")
    for name, score in (found["scores"] | {f"stays up, {name}": row for name, row in found["stay"].items()}).items():
        print(f"{name:<22} " + " ".join(f"{value:>7.3f}" for value in score))
    draw(process, test, stay, options.out / "gymnasium_cart_pole.png")
    print(f"nats a state, 0.1 to 0.8 s ahead; figure: {options.out / 'gymnasium_cart_pole.png'}")
    return found


if __name__ == "__main__":
    main()
