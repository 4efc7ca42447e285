"""Forecast a learned process with 50 % and 90 % intervals, and count how often fresh simulation falls into them.

Run it with `python examples/forecast_intervals.py --out demo`.
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

AHEAD = 7
SHARES = (0.5, 0.9)
FRESH = 10_000


def coverage(beliefs: sm.BeliefSequence, simulated: np.ndarray, share: float) -> np.ndarray:
    """Shares of simulated states within the central interval of each coordinate, shape (AHEAD, d)."""
    ends = [0.5 * (1.0 - share), 0.5 * (1.0 + share)]
    found = []
    for k in range(1, AHEAD + 1):
        row = []
        for c in range(simulated.shape[-1]):
            low, high = beliefs[k].quantile(ends, c)
            row.append(np.mean((simulated[:, k, c] > low) & (simulated[:, k, c] < high)))
        found.append(row)
    return np.array(found)


def draw(beliefs: sm.BeliefSequence, simulated: np.ndarray, names: tuple[str, ...], path: Path) -> None:
    """A fan for each coordinate, with a few fresh trajectories over it."""
    figure, axes = plt.subplots(1, len(names), figsize=(5 * len(names), 3.6), layout="constrained")
    for c, axis in enumerate(axes):
        axis.plot(simulated[:12, :, c].T, color="black", alpha=0.5, linewidth=0.7)
        plots.fan(beliefs, c, shares=SHARES, axes=axis)
        axis.plot([], [], color="black", alpha=0.5, linewidth=0.7, label="fresh simulation")
        axis.set(xlabel="steps ahead", ylabel=names[c], xlim=(0, AHEAD))
    axes[0].legend(fontsize=8, frameon=False, loc="lower left")
    plots.save(figure, path)


def main(arguments: list[str] | None = None) -> float:
    """Simulate, learn, forecast, count, draw; returns the worst difference between nominal and observed coverage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure")
    parser.add_argument("--count", type=int, default=1000, help="trajectories to learn from")
    parser.add_argument("--size", type=int, default=12, help="basis functions")
    parser.add_argument("--steps", type=int, default=600, help="training steps")
    options = parser.parse_args(arguments)

    begin = time.perf_counter()
    system = get_system("vdp")
    process = sm.fit(
        np.asarray(system.simulate(jax.random.key(0), options.count, AHEAD)), size=options.size, steps=options.steps
    )
    print(f"learned from {options.count} trajectories of {AHEAD} steps in {time.perf_counter() - begin:.0f} s")

    beliefs = process.propagate(AHEAD)
    fresh = np.asarray(system.simulate(jax.random.key(1), FRESH, AHEAD))
    observed = {share: coverage(beliefs, fresh, share) for share in SHARES}
    columns = [(share, c) for share in SHARES for c in range(system.dim)]
    print(f"\nshares of {FRESH:,} fresh trajectories within the intervals, nominal share in the head")
    print("step " + " ".join(f"{f'{system.coordinates[c]}, {100 * share:g} %':>10}" for share, c in columns))
    for k in range(AHEAD):
        print(f"{k + 1:>4} " + " ".join(f"{100 * observed[share][k, c]:>8.1f} %" for share, c in columns))
    worst = max(float(np.max(np.abs(found - share))) for share, found in observed.items())
    path = options.out / "forecast_intervals.png"
    draw(beliefs, fresh, system.coordinates, path)
    print(f"largest difference from nominal: {100 * worst:.1f} points; counting errs by {50 / np.sqrt(FRESH):.1f}")
    print(f"figure: {path}; {time.perf_counter() - begin:.0f} s in all")
    return worst


if __name__ == "__main__":
    main()
