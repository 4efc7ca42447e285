"""Learn overdamped Langevin motion in a double well, and hold its long run against what is known.

The state follows dx = -V'(x) dt + sqrt(2 kT) dW with V(x) = 2 (x^2 - 1)^2 + 0.2 x and kT = 1. It is simulated by
Euler's method with small steps; one step of the process is twenty of them. The density of the long run is known,
exp(-V / kT) / Z, and a chain on a fine grid of states gives relaxation and passage times.

Run it with `python examples/double_well.py --out demo`.
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import sosmarkov as sm
from sosmarkov import plots

HEIGHT, TILT, KT = 2.0, 0.2, 1.0
SMALL, SUBSTEPS = 0.01, 20
LEFT, RIGHT = -1.0, 1.0
# Passage to the right well is counted from here on, to the left one from minus this.
ARRIVED = 0.8
LAGS = 30


def potential(x: np.ndarray) -> np.ndarray:
    """V(x)."""
    return HEIGHT * (x**2 - 1.0) ** 2 + TILT * x


def drifted(x: np.ndarray) -> np.ndarray:
    """One small step without its noise: x - V'(x) dt."""
    return x - SMALL * (4.0 * HEIGHT * x * (x**2 - 1.0) + TILT)


def simulate(count: int, steps: int, seed: int) -> np.ndarray:
    """Trajectories of shape (count, steps + 1, 1) that start all over both wells."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=count)
    path = [x]
    for _ in range(steps):
        for _ in range(SUBSTEPS):
            x = drifted(x) + np.sqrt(2.0 * KT * SMALL) * rng.normal(size=count)
        path.append(x)
    return np.stack(path, axis=1)[..., None]


class Grid(NamedTuple):
    """The same motion on a fine grid: states, their spacing, the chain's matrix of one step."""

    x: np.ndarray
    width: float
    step: np.ndarray


def make_grid(points: int = 361, reach: float = 2.7) -> Grid:
    """Rows of Euler's normal densities, scaled to sum to one, and twenty steps of them."""
    x = np.linspace(-reach, reach, points)
    small = np.exp(-((x[None] - drifted(x)[:, None]) ** 2) / (4.0 * KT * SMALL))
    small /= np.sum(small, axis=1, keepdims=True)
    return Grid(x, x[1] - x[0], np.linalg.matrix_power(small, SUBSTEPS))


def known_density(grid: Grid) -> np.ndarray:
    """exp(-V / kT) / Z on the grid, Z by quadrature."""
    weight = np.exp(-potential(grid.x) / KT)
    return weight / (np.sum(weight) * grid.width)


def grid_timescales(grid: Grid, count: int) -> np.ndarray:
    """-1 / log|lambda| of the eigenvalues after the first."""
    values = np.sort(np.abs(np.linalg.eigvals(grid.step)))[::-1]
    return -1.0 / np.log(values[1 : count + 1])


def grid_passage(grid: Grid, inside: np.ndarray, start: float) -> float:
    """Mean number of steps from a state to the states inside."""
    outside = np.flatnonzero(~inside)
    times = np.linalg.solve(np.eye(len(outside)) - grid.step[np.ix_(outside, outside)], np.ones(len(outside)))
    return float(np.interp(start, grid.x[outside], times))


def grid_autocorrelation(grid: Grid, steps: int) -> np.ndarray:
    """Corr(x at 0, x at k) in the long run of the chain."""
    share = np.full(len(grid.x), 1.0 / len(grid.x)) @ np.linalg.matrix_power(grid.step, 2**14)
    centred = grid.x - share @ grid.x
    later, found = centred, []
    for _ in range(steps + 1):
        found.append((share * centred) @ later)
        later = grid.step @ later
    return np.array(found) / found[0]


def divergence(belief: sm.Belief, grid: Grid, count: int = 20_000, seed: int = 0) -> tuple[float, float]:
    """KL of the known density from the belief, E[log known - log belief] over draws of the known, and its error."""
    density = known_density(grid)
    rng = np.random.default_rng(seed)
    x = np.interp(rng.random(count), np.cumsum(density) * grid.width, grid.x + 0.5 * grid.width)
    log_known = np.log(np.interp(x, grid.x, density))
    values = log_known - np.asarray(belief.log_prob(x[:, None]))
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(count))


def draw(process: sm.MarkovProcess, grid: Grid, result: sm.ChapmanKolmogorov, path: Path) -> None:
    """The long run and the correlation in time on the left, the Chapman-Kolmogorov check on the right."""
    figure = plt.figure(figsize=(11, 5.4), layout="constrained")
    left, right = np.asarray(figure.subfigures(1, 2, width_ratios=[1.0, 1.5]))
    above, below = left.subplots(2, 1)
    above.plot(grid.x, known_density(grid), color="black", linewidth=3, alpha=0.35, label="known, exp(-V/kT)/Z")
    above.plot(grid.x, process.stationary().prob(grid.x[:, None]), color="tab:blue", label="stationary()")
    above.set(xlabel="x", ylabel="density", title="the long run")
    above.set_ylim(bottom=0)
    above.legend(fontsize=8, frameon=False, loc="upper right")
    lags = np.arange(LAGS + 1)
    below.plot(lags, grid_autocorrelation(grid, LAGS), color="black", linewidth=3, alpha=0.35, label="grid")
    below.plot(lags, process.autocorrelation(0, LAGS), color="tab:blue", label="autocorrelation()")
    below.set(xlabel="steps", ylabel="correlation", title="correlation in time", ylim=(0, 1.03))
    below.legend(fontsize=8, frameon=False)
    ranges = len(result.edges) - 1
    axes = right.subplots(ranges, ranges, sharex=True, sharey=True)
    plots.ck_test(result, axes)
    right.suptitle("ck_test(): where x goes, fresh trajectories", fontsize=12)
    plots.save(figure, path)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Simulate, learn, ask about the long run, compare, draw; returns the figures of the table by name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure")
    parser.add_argument("--count", type=int, default=2000, help="trajectories to learn from")
    parser.add_argument("--length", type=int, default=40, help="steps of each")
    parser.add_argument("--size", type=int, default=12, help="basis functions")
    parser.add_argument("--steps", type=int, default=1000, help="training steps")
    options = parser.parse_args(arguments)

    begin = time.perf_counter()
    # The long run is a question about transitions. Beliefs that are near it from the start say little about how
    # fast it is reached, so that nothing is trained on them here.
    process = sm.fit(
        simulate(options.count, options.length, 0),
        size=options.size,
        steps=options.steps,
        objective="transitions",
        surrogate=False,
    )
    seconds = time.perf_counter() - begin
    print(f"learned from {options.count} trajectories of {options.length} steps in {seconds:.0f} s")
    print(process.check())

    grid = make_grid()
    learned, exact = process.timescales(3), grid_timescales(grid, 3)
    rows = {f"relaxation time {i + 1}, steps": (learned[i], exact[i]) for i in range(3)}
    rows["passage left to right, steps"] = (
        process.mean_first_passage([ARRIVED], [np.inf], initial=[LEFT]),
        grid_passage(grid, grid.x > ARRIVED, LEFT),
    )
    rows["passage right to left, steps"] = (
        process.mean_first_passage([-np.inf], [-ARRIVED], initial=[RIGHT]),
        grid_passage(grid, grid.x < -ARRIVED, RIGHT),
    )
    rows["share in the right well"] = (
        process.stationary().probability([0.0], [np.inf]),
        np.sum(known_density(grid)[grid.x > 0]) * grid.width,
    )
    correlation = process.autocorrelation(0, LAGS), grid_autocorrelation(grid, LAGS)
    for k in (1, 10):
        rows[f"correlation after {k}"] = correlation[0][k], correlation[1][k]
    print(f"\n{'':<30} {'learned':>9} {'true':>9}")
    for name, (found, expected) in rows.items():
        print(f"{name:<30} {float(found):>9.3f} {float(expected):>9.3f}")
    kl, error = divergence(process.stationary(), grid)
    print(f"\nKL of exp(-V/kT)/Z from stationary(): {kl:.4f} nats, standard error {error:.4f}")

    result = process.ck_test(simulate(options.count, options.length, 1), 10)
    worst = float(np.max(np.abs(result.predicted - result.observed)))
    print(f"ck_test: predicted and observed probabilities differ by at most {worst:.3f} over 10 steps")
    path = options.out / "double_well.png"
    draw(process, grid, result, path)
    print(f"figure: {path}; {time.perf_counter() - begin:.0f} s in all; steps are {SMALL * SUBSTEPS:g} of time")
    return {
        "kl": kl,
        "kl_error": error,
        "ck": worst,
        "timescale": float(learned[0]),
        "timescale_true": float(exact[0]),
        "passage": float(rows["passage left to right, steps"][0]),
        "passage_true": float(rows["passage left to right, steps"][1]),
    }


if __name__ == "__main__":
    main()
