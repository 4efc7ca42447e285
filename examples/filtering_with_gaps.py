"""Filter and smooth noisy readings of one coordinate, with a stretch where no reading came.

The state turns on a noisy ring in the plane. Only its first coordinate is read. What the process has learned of the
motion gives the second one too, and carries both through the gap.

Run it with `python examples/filtering_with_gaps.py --out demo`.
"""

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import sosmarkov as sm
from sosmarkov import plots

TURN, RADIUS, NOISE = 0.5, 2.0, 0.2
READING_STD = 0.4
LENGTH = 40
GAP = slice(18, 26)
NAMES = ("x1, read with noise", "x2, never read")
COLOURS = {"filtered": "tab:orange", "smoothed": "tab:blue"}


def simulate(count: int, steps: int, seed: int) -> np.ndarray:
    """Trajectories of shape (count, steps + 1, 2): turn, pull the radius towards 2, add noise."""
    rng = np.random.default_rng(seed)
    cos, sin = np.cos(TURN), np.sin(TURN)
    x = rng.normal(size=(count, 2))
    path = [x]
    for _ in range(steps):
        radius = np.linalg.norm(x, axis=1, keepdims=True)
        pulled = x * (1.0 + 0.45 * (RADIUS - radius) / (1.0 + radius))
        x = pulled @ np.array([[cos, sin], [-sin, cos]]) + NOISE * rng.normal(size=(count, 2))
        path.append(x)
    return np.stack(path, axis=1)


def read(truth: np.ndarray, seed: int) -> np.ndarray:
    """Noisy readings of the first coordinate, shape (T, 1); NaN in the gap."""
    rng = np.random.default_rng(seed)
    readings = truth[:, :1] + READING_STD * rng.normal(size=(len(truth), 1))
    readings[GAP] = np.nan
    return readings


def draw(truth: np.ndarray, readings: np.ndarray, found: dict[str, sm.BeliefSequence], path: Path) -> None:
    """Truth, readings, means and bands of two standard deviations of both coordinates."""
    figure, axes = plt.subplots(2, 1, figsize=(9, 5.6), sharex=True, layout="constrained")
    steps = np.arange(len(truth))
    for c, axis in enumerate(axes):
        axis.axvspan(GAP.start - 0.5, GAP.stop - 0.5, color="0.92", label="no readings")
        for name, beliefs in found.items():
            middle = np.asarray(beliefs.means())[:, c]
            reach = 2.0 * np.sqrt(np.asarray(beliefs.covariances())[:, c, c])
            look = {"color": COLOURS[name], "alpha": 0.22, "linewidth": 0}
            axis.fill_between(steps, middle - reach, middle + reach, **look, label=f"{name}, 2 deviations")
            axis.plot(steps, middle, color=COLOURS[name], linewidth=1.5, label=f"{name} mean")
        axis.plot(steps, truth[:, c], color="black", linewidth=1.2, linestyle="--", label="truth")
        if c == 0:
            axis.plot(steps, readings[:, 0], "x", color="black", markersize=5, label="readings")
        axis.set_ylabel(NAMES[c])
    axes[1].set_xlabel("step")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=9, frameon=False)
    plots.save(figure, path)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Simulate, learn, filter, smooth, compare, draw; returns RMSEs by name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure")
    parser.add_argument("--count", type=int, default=400, help="trajectories to learn from")
    parser.add_argument("--size", type=int, default=16, help="basis functions")
    parser.add_argument("--steps", type=int, default=600, help="training steps")
    parser.add_argument("--sequences", type=int, default=6, help="sequences of readings to score")
    options = parser.parse_args(arguments)

    begin = time.perf_counter()
    # Each reading is weighed against the last one by p(x'|x), so that is what is trained.
    process = sm.fit(
        simulate(options.count, 20, 0),
        size=options.size,
        steps=options.steps,
        objective="transitions",
        surrogate=False,
    )
    print(f"learned from {options.count} trajectories of 20 steps in {time.perf_counter() - begin:.0f} s")

    sensor = sm.GaussianSensor(0, std=READING_STD)
    errors: dict[str, list[np.ndarray]] = {"ignoring the readings": [], "filter": [], "smoother": []}
    blind = process.propagate(LENGTH).means()
    truths = simulate(options.sequences, LENGTH, 1)
    for number, truth in enumerate(truths):
        readings = read(truth, 100 + number)
        smoothed = process.smooth(readings, sensor=sensor)
        filtered = smoothed.filtered
        for name, guess in zip(errors, (blind, filtered.beliefs.means(), smoothed.beliefs.means()), strict=True):
            errors[name].append((guess - truth) ** 2)
        if number == 0:
            path = options.out / "filtering_with_gaps.png"
            draw(truth, readings, {"filtered": filtered.beliefs, "smoothed": smoothed.beliefs}, path)
            print(f"first sequence: log-evidence {float(filtered.log_evidence):.2f}; figure: {path}")

    print(f"\nRMSE over {options.sequences} sequences of {LENGTH} steps, readings of x1 with noise {READING_STD}")
    print(f"{'':<22} {'x1':>7} {'x2':>7} {'x1, gap':>9} {'x2, gap':>9}")
    for name, squares in errors.items():
        all_, gap = (np.sqrt(np.mean(part, axis=(0, 1))) for part in (squares, np.array(squares)[:, GAP]))
        print(f"{name:<22} {all_[0]:>7.3f} {all_[1]:>7.3f} {gap[0]:>9.3f} {gap[1]:>9.3f}")
    print(f"{time.perf_counter() - begin:.0f} s in all")
    return {name: float(np.sqrt(np.mean(squares))) for name, squares in errors.items()}


if __name__ == "__main__":
    main()
