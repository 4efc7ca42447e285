"""Learn a hidden oscillator from noisy readings of one number; its states are never seen.

The state turns in the plane with period 8, damped and kicked by noise. Of its first coordinate there are noisy
readings, some of them missing. `fit(observations=..., dim=2)` maximises their evidence through the exact filter. The
period is then an eigenvalue of the process; new readings are scored beside a Kalman filter that knows the truth.

Run it with `python examples/hidden_oscillator.py --out demo`.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import sosmarkov as sm
from sosmarkov import plots
from sosmarkov_bench.kalman import LinearGaussian, kalman

PERIOD, KEPT, NOISE, READING_STD = 8.0, 0.9, 0.45, 0.8
LENGTH, NEW = 30, 200
COLOURS = {"readings": "0.55", "learned": "tab:blue", "truth": "black"}


def system() -> LinearGaussian:
    """The truth, stationary from the start."""
    cos, sin = np.cos(2 * np.pi / PERIOD), np.sin(2 * np.pi / PERIOD)
    spread = NOISE**2 / (1.0 - KEPT**2) * np.eye(2)
    turn = KEPT * np.array([[cos, -sin], [sin, cos]])
    noise = NOISE**2 * np.eye(2)
    read = np.array([[1.0, 0.0]]), np.zeros(1), np.array([[READING_STD**2]])
    return LinearGaussian(turn, np.zeros(2), noise, *read, np.zeros(2), spread)


def autoregressive(training: np.ndarray, new: np.ndarray, order: int) -> float:
    """Mean log-density of new readings given the `order` before them, a normal fitted by least squares."""

    def rows(o: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        before = [o[:, order - 1 - j : o.shape[1] - 1 - j, 0].ravel() for j in range(order)]
        design, after = np.stack([*before, np.ones_like(before[0])], axis=1), o[:, order:, 0].ravel()
        there = np.isfinite(design).all(axis=1) & np.isfinite(after)
        return design[there], after[there]

    design, after = rows(training)
    slope = np.linalg.lstsq(design, after, rcond=None)[0]
    variance = np.var(after - design @ slope)
    design, after = rows(new)
    return float(np.mean(-0.5 * ((after - design @ slope) ** 2 / variance + np.log(2.0 * np.pi * variance))))


def period_of(process: sm.MarkovProcess) -> float:
    """Steps for one turn, from the slowest eigenvalue of the step that turns at all."""
    values = process.spectrum()
    turning = values[np.abs(np.imag(values)) > 1e-6]
    return float(2.0 * np.pi / np.abs(np.angle(turning[0]))) if len(turning) else np.inf


def correlation(readings: np.ndarray, lags: int) -> np.ndarray:
    """Correlation of readings `lag` steps apart, lag = 0, ..., lags; missing ones are left out."""
    o = readings[..., 0] - np.nanmean(readings)
    found = [np.nanmean(o[:, : o.shape[1] - lag] * o[:, lag:]) for lag in range(lags + 1)]
    return np.array(found) / found[0]


def draw(process: sm.MarkovProcess, training: np.ndarray, new: tuple[np.ndarray, np.ndarray], path: Path) -> None:
    """Correlations over lags, and one held-out sequence with what the filter expects of it."""
    truth, lags, sensor = system(), 20, process.sensor
    assert isinstance(sensor, sm.LinearSensor)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    states = np.asarray(process.sample(jax.random.key(0), 400, LENGTH))
    drawn = np.asarray(states @ sensor.matrix.T + sensor.offset)
    drawn = drawn + np.asarray(sensor.std) * np.random.default_rng(5).normal(size=drawn.shape)
    exact = READING_STD**2 / (READING_STD**2 + truth.covariance[0, 0])
    steps = np.arange(lags + 1)
    expected = (1.0 - exact) * KEPT**steps * np.cos(2.0 * np.pi * steps / PERIOD)
    left.plot(steps, np.where(steps == 0, 1.0, expected), color=COLOURS["truth"], linestyle="--", label="truth")
    left.plot(steps, correlation(training, lags), "x", color=COLOURS["readings"], label="readings given")
    left.plot(steps, correlation(drawn, lags), color=COLOURS["learned"], label="readings drawn from the process")
    left.set(xlabel="lag in steps", ylabel="correlation of readings")
    left.legend(fontsize=8, frameon=False)
    states, readings = (part[0] for part in new)
    means = np.asarray(process.filter(readings).beliefs.means()) @ np.asarray(sensor.matrix[0])
    means = means + float(sensor.offset[0])
    best = kalman(truth, readings).filtered_means[:, 0]
    right.plot(states[:, 0], color=COLOURS["truth"], linewidth=1.0, label="hidden state")
    right.plot(readings[:, 0], "x", color=COLOURS["readings"], label="readings")
    right.plot(best, color=COLOURS["truth"], linestyle=":", label="Kalman filter with the truth")
    right.plot(means, color=COLOURS["learned"], label="filter of the process")
    right.set(xlabel="step", ylabel="first coordinate")
    right.legend(fontsize=8, frameon=False)
    plots.save(figure, path)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Simulate, learn from readings alone, compare, draw; returns the period and evidences a reading."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure")
    parser.add_argument("--count", type=int, default=300, help="sequences to learn from")
    parser.add_argument("--size", type=int, default=10, help="basis functions")
    parser.add_argument("--steps", type=int, default=800, help="training steps")
    options = parser.parse_args(arguments)

    truth = system()
    readings = truth.read(truth.simulate(options.count, LENGTH - 1, 0), 1)
    readings[np.random.default_rng(2).random(readings.shape) < 0.05] = np.nan
    states = truth.simulate(NEW, LENGTH - 1, 3)
    new = truth.read(states, 4)

    begin = time.perf_counter()
    process = sm.fit(observations=readings, dim=2, size=options.size, steps=options.steps, progress=False)
    print(f"learned from {options.count} sequences of {LENGTH} readings in {time.perf_counter() - begin:.0f} s")

    evidence = jax.vmap(lambda o: process.filter(o).log_evidence)(jnp.asarray(new))
    found = {
        "period": period_of(process),
        "Kalman filter with the truth": float(np.mean([kalman(truth, o).log_evidence for o in new])) / LENGTH,
        "process": float(jnp.mean(evidence)) / LENGTH,
        "AR(2)": autoregressive(readings, new, 2),
        "AR(1)": autoregressive(readings, new, 1),
    }
    print(f"period {found['period']:.2f} steps, in truth {PERIOD:.0f}")
    print(f"slowest relaxation {process.timescales(1)[0]:.1f} steps, in truth {-1.0 / np.log(KEPT):.1f}")
    print(f"\nmean log-density of a reading given those before, {NEW} new sequences")
    for name, value in list(found.items())[1:]:
        print(f"  {name:<30} {value:>8.4f}")
    path = options.out / "hidden_oscillator.png"
    draw(process, readings, (states, new), path)
    print(f"figure: {path}")
    return found


if __name__ == "__main__":
    main()
