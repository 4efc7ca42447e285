"""A learned linear-Gaussian system beside the Kalman filter that knows it: the error against the number of functions.

The state turns and shrinks in the plane; one coordinate is read with noise, a third of the readings is missing. `fit`
sees trajectories only. Part of `make bench`; `--quick` takes small sizes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import sosmarkov as sm
from sosmarkov import plots
from sosmarkov_bench.environment import write_results
from sosmarkov_bench.kalman import LinearGaussian, kalman

TURN, SHRINK, NOISE, READING_STD = 0.5, 0.9, 0.4, 0.5
SIZES = (2, 4, 8, 16, 24, None)
COUNT, LENGTH, SEQUENCES, READINGS, MISSING = 1000, 15, 20, 40, 1 / 3


def make_system() -> LinearGaussian:
    """A damped rotation that starts where it settles."""
    cos, sin = np.cos(TURN), np.sin(TURN)
    A = SHRINK * np.array([[cos, sin], [-sin, cos]])
    return LinearGaussian(
        A=A, b=np.zeros(2), Q=NOISE**2 * np.eye(2), C=np.array([[1.0, 0.0]]), c=np.zeros(1),
        R=np.array([[READING_STD**2]]), mean=np.zeros(2), covariance=NOISE**2 / (1.0 - SHRINK**2) * np.eye(2),
    )  # fmt: skip


def errors(process: sm.MarkovProcess, system: LinearGaussian, readings: np.ndarray) -> dict[str, float]:
    """How far filtered and smoothed beliefs are from Kalman's, over all sequences and steps.

    Means: the root mean square of the difference in units of Kalman's standard deviations. Covariances: of the
    Frobenius norm of the difference over that of Kalman's. Evidence: the mean difference in nats per reading.
    """
    sensor = sm.GaussianSensor([0], [READING_STD])
    collected: dict[str, list[float]] = {}
    for rows in readings:
        expected, found = kalman(system, rows), process.smooth(rows, sensor=sensor)
        for name, beliefs in (("filtered", found.filtered.beliefs), ("smoothed", found.beliefs)):
            away = np.asarray(beliefs.means()) - getattr(expected, f"{name}_means")
            true = getattr(expected, f"{name}_covariances")
            squares = np.einsum("ti,tij,tj->t", away, np.linalg.inv(true), away) / away.shape[1]
            collected.setdefault(f"{name}_mean", []).extend(squares)
            off = np.sum((np.asarray(beliefs.covariances()) - true) ** 2, axis=(1, 2)) / np.sum(true**2, axis=(1, 2))
            collected.setdefault(f"{name}_covariance", []).extend(off)
        missed = float(found.log_evidence) - expected.log_evidence
        collected.setdefault("evidence", []).append(missed / np.sum(~np.isnan(rows)))
    scores = {name: float(np.mean(values)) for name, values in collected.items()}
    return {name: value if name == "evidence" else float(np.sqrt(value)) for name, value in scores.items()}


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Errors of means and covariances against the number of functions."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    rows = sorted(rows, key=lambda row: row["size"])
    titles = {"mean": "means, in standard deviations", "covariance": "covariances, relative"}
    for axis, (part, title) in zip(axes, titles.items(), strict=True):
        for kind in ("filtered", "smoothed"):
            axis.plot([row["size"] for row in rows], [row[f"{kind}_{part}"] for row in rows], "o-", label=kind)
        axis.set(title=title, xlabel="basis functions", xscale="log", yscale="log", xticks=[r["size"] for r in rows])
        axis.xaxis.set_major_formatter("{x:.0f}")
        axis.set_yticks([0.1, 0.2, 0.5, 1.0, 2.0])
        axis.yaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("difference from Kalman")
    axes[0].legend(frameon=False)
    plots.save(figure, path)


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Fit at every size, compare, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, seconds instead of minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/linear_gaussian.json"))
    parser.add_argument("--figure", type=Path, default=Path("docs/images/kalman.png"))
    options = parser.parse_args(arguments)
    share, length = (10, 20) if options.quick else (1, LENGTH)
    system = make_system()
    data = system.simulate(COUNT // share, length, options.seed)
    readings = system.read(system.simulate(SEQUENCES // share, READINGS - 1, options.seed + 1), options.seed + 2)
    readings[np.random.default_rng(options.seed + 3).random(readings.shape[:2]) < MISSING] = np.nan
    rows = []
    for size in (5,) if options.quick else SIZES:
        steps = 150 if options.quick else 2000
        # Each reading is weighed against the last by p(x'|x), so that is what is trained.
        process = sm.fit(data, objective="transitions", size=size, steps=steps, seed=options.seed, progress=False)
        row = {"size": process.history.chosen["size"], "default": size is None, "seconds": process.history.seconds}
        row |= {"chosen": process.history.chosen, **errors(process, system, readings)}
        rows.append(row)
        print(
            f"n={row['size']:<3} filtered mean {row['filtered_mean']:.4f} covariance {row['filtered_covariance']:.4f}"
            f"  smoothed {row['smoothed_mean']:.4f} {row['smoothed_covariance']:.4f}  evidence {row['evidence']:+.4f}"
            f"  ({row['seconds']:.0f} s{', default' if size is None else ''})",
            flush=True,
        )
    draw(rows, options.figure)
    write_results(options.out, {"rows": rows}, options.seed)
    print(f"written: {options.out}, {options.figure}")
    return rows


if __name__ == "__main__":
    main()
