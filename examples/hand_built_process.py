"""Build a 2-D process by hand, propagate it exactly, check it against simulation, draw both.

Run it with `make demo`, or `python examples/hand_built_process.py --out demo`.
"""

import argparse
from pathlib import Path

import jax
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import sosmarkov as sm
from sosmarkov import plots

STEPS = (0, 1, 2, 4, 8, 16)


def flow(x: np.ndarray) -> np.ndarray:
    """One step of a noisy oscillator that settles on a ring: turn, and pull the radius towards 2."""
    radius = np.linalg.norm(x, axis=-1, keepdims=True)
    turn = 0.5
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    return (x @ rotation.T) * (1.0 + 0.45 * (2.0 - radius) / (1.0 + radius))


def build() -> sm.MarkovProcess:
    """Cells on a grid: psi_i sits where the flow takes the centre of phi_i.

    p(x' | x) = g(x') sum_i b_i phi_i(x) psi_i(x') / g(x): being near centre i now means being near
    its image next. The library finds the b_i that make this a density for every x.
    """
    line = np.linspace(-4.0, 4.0, 17)
    centres = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    phi = sm.GaussianBasis(centres, np.full_like(centres, 0.4))
    psi = sm.GaussianBasis(flow(centres), np.full_like(centres, 0.35))
    transition = sm.Transition(phi, psi, sm.Linear(np.ones(len(centres))))
    # Start in two blobs: a form on a basis of its own.
    start = sm.GaussianBasis([[2.6, 0.3], [-0.4, -2.6]], [[0.3, 0.3], [0.5, 0.3]])
    return sm.MarkovProcess(transition, sm.LinearForm(start, [1.0, 0.7]))


def simulate(process: sm.MarkovProcess, count: int, steps: int, seed: int = 0) -> np.ndarray:
    """Trajectories of shape (steps + 1, count, 2), each step drawn from p(x' | x)."""
    key = jax.random.key(seed)
    # The first states by rejection from a box: it needs the initial density only.
    rng = np.random.default_rng(seed)
    candidates = rng.uniform(-5, 5, size=(60 * count, 2))
    density = np.asarray(process.initial.prob(candidates))
    kept = candidates[rng.random(len(candidates)) * density.max() * 1.05 < density][:count]
    states = [kept]
    for k in range(steps):
        states.append(np.asarray(process.transition.sample(jax.random.fold_in(key, k), states[-1])))
    return np.stack(states)


def draw(process: sm.MarkovProcess, beliefs: sm.BeliefSequence, trajectories: np.ndarray, path: Path) -> None:
    """Exact densities above, simulated states below."""
    line = np.linspace(-4.5, 4.5, 121)
    grid = np.stack(np.meshgrid(line, line), axis=-1)
    figure, axes = plt.subplots(2, len(STEPS), figsize=(2.1 * len(STEPS), 4.5), sharex=True, sharey=True)
    for column, k in enumerate(STEPS):
        above, below = axes[:, column]
        above.contourf(line, line, beliefs[k].prob(grid), levels=24, cmap="magma")
        above.set_title(f"k = {k}", fontsize=11)
        extent = [[-4.5, 4.5], [-4.5, 4.5]]
        below.hist2d(*trajectories[k].T, bins=64, range=extent, cmap="magma")
        for axis in (above, below):
            axis.set(xlim=(-4.5, 4.5), ylim=(-4.5, 4.5), xticks=[-3, 0, 3], yticks=[-3, 0, 3], aspect="equal")
    axes[0, 0].set_ylabel("exact belief")
    axes[1, 0].set_ylabel("simulation")
    figure.tight_layout(pad=0.6)
    plots.save(figure, path, dpi=130)


def main(arguments: list[str] | None = None) -> float:
    """Build, propagate, compare, draw; returns the largest deviation in standard errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure")
    parser.add_argument("--count", type=int, default=20_000, help="simulated trajectories")
    options = parser.parse_args(arguments)

    process = build()
    print(f"{process.transition.parameter_count} parameters, {process.transition.sizes}")
    print(process.check())
    beliefs = process.propagate(max(STEPS))
    trajectories = simulate(process, options.count, max(STEPS))

    print(f"\n{'k':>3} {'mass - 1':>10}   exact mean         simulated mean     deviation (standard errors)")
    worst = 0.0
    for k in STEPS:
        mean, spread = np.asarray(beliefs[k].mean()), np.sqrt(np.diag(np.asarray(beliefs[k].covariance())))
        found = trajectories[k].mean(axis=0)
        deviation = np.max(np.abs(found - mean) / (spread / np.sqrt(len(trajectories[k]))))
        worst = max(worst, float(deviation))
        exact, simulated = (f"({v[0]:+.3f}, {v[1]:+.3f})" for v in (mean, found))
        print(f"{k:>3} {float(beliefs[k].mass()) - 1:>10.1e}   {exact:<18} {simulated:<18} {deviation:.2f}")
    far = process.belief_at(10**6)
    print(f"after 10^6 steps: mass - 1 = {float(far.mass()) - 1:.1e}, mean {np.round(np.asarray(far.mean()), 4)}")
    path = options.out / "hand_built_process.png"
    draw(process, beliefs, trajectories, path)
    print(f"figure: {path}")
    if worst > 5:
        raise SystemExit(f"Expected simulation within 5 standard errors of the exact means, got {worst:.1f}.")
    return worst


if __name__ == "__main__":
    main()
