"""Learn the Van der Pol oscillator from 1,000 noisy trajectories, predict, compare with fresh simulation and the limit.

Run it with `make demo`, or `python examples/van_der_pol.py --out demo`.
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
from sosmarkov.bench.baselines.gaussian import gaussian_per_step
from sosmarkov.bench.oracle import limit
from sosmarkov.bench.systems import get_system

STEPS = (0, 1, 2, 3, 5, 7)
SHOWN = 4.0


def draw(beliefs: sm.Beliefs, simulated: np.ndarray, path: Path) -> None:
    """Exact beliefs above, fresh simulation below."""
    line = np.linspace(-SHOWN, SHOWN, 121)
    grid = np.stack(np.meshgrid(line, line), axis=-1)
    figure, axes = plt.subplots(2, len(STEPS), figsize=(2.1 * len(STEPS), 4.5), sharex=True, sharey=True)
    for column, k in enumerate(STEPS):
        above, below = axes[:, column]
        above.contourf(line, line, beliefs[k].prob(grid), levels=24, cmap="magma")
        above.set_title(f"k = {k}", fontsize=11)
        below.hist2d(*simulated[:, k].T, bins=48, range=[[-SHOWN, SHOWN]] * 2, cmap="magma")
        for axis in (above, below):
            axis.set(xlim=(-SHOWN, SHOWN), ylim=(-SHOWN, SHOWN), xticks=[-3, 0, 3], yticks=[-3, 0, 3], aspect="equal")
    axes[0, 0].set_ylabel("learned belief")
    axes[1, 0].set_ylabel("fresh simulation")
    figure.tight_layout(pad=0.6)
    plots.save(figure, path, dpi=130)


def main(arguments: list[str] | None = None) -> np.ndarray:
    """Simulate, learn, propagate, compare, draw; returns the gaps to the limit at k = 1, 2, ..."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure")
    parser.add_argument("--count", type=int, default=1000, help="trajectories to learn from")
    parser.add_argument("--size", type=int, default=16, help="basis functions")
    parser.add_argument("--steps", type=int, default=800, help="training steps")
    options = parser.parse_args(arguments)

    system = get_system("vdp")
    last = max(STEPS)
    training = np.asarray(system.simulate(jax.random.key(0), options.count, last))
    test = np.asarray(system.simulate(jax.random.key(1), 10_000, last))
    begin = time.perf_counter()
    process = sm.fit(training, size=options.size, steps=options.steps)
    seconds = time.perf_counter() - begin
    print(f"learned from {options.count} trajectories of {last} steps in {seconds:.0f} s:\n{process.history}\n")
    print(process.check())

    beliefs = process.propagate(last)
    scored = test[: 2 * options.count]
    best = limit(system, scored, np.asarray(system.simulate(jax.random.key(2), 20 * options.count, last)))
    gaussian = gaussian_per_step(training, test)
    print(f"\n{'k':>3} {'log-likelihood':>15} {'limit':>8} {'gap':>7} {'one Gaussian':>13} {'mass - 1':>10}")
    gaps = []
    for k in range(1, last + 1):
        # Beside the limit on the same states: a mean over others would differ by chance.
        found, same = (float(np.mean(beliefs[k].log_prob(states))) for states in (test[:, k], scored[:, k]))
        gaps.append(same - best.lower[k - 1])
        print(
            f"{k:>3} {found:>15.3f} {best.lower[k - 1]:>8.3f} {gaps[-1]:>7.3f} {gaussian[k - 1]:>13.3f}"
            f" {float(beliefs[k].mass()) - 1:>10.1e}"
        )
    path = options.out / "van_der_pol.png"
    draw(beliefs, test, path)
    print(f"figure: {path}")
    return np.array(gaps)


if __name__ == "__main__":
    main()
