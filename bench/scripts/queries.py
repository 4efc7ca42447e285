"""What answers cost beside a step of propagation, side by side in one run.

A filter step (a Gaussian reading of one coordinate, and the step after it) against the same step without a reading;
a 100 x 100 grid of a marginal of a 12-D belief. Part of `make bench`; `--quick` takes small sizes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sosmarkov as sm
from sosmarkov.inference import propagate as propagation
from sosmarkov.inference import recursion
from sosmarkov_bench.environment import write_results

SIZES = [("gaussian", 1, 32), ("gaussian", 2, 25), ("gaussian", 6, 17), ("gaussian-full", 6, 17), ("gaussian", 12, 20),
         ("gaussian-full", 12, 20)]  # fmt: skip
QUICK = [("gaussian", 2, 5), ("gaussian-full", 2, 5)]
SHORT, LONG, RANK = 100, 1100, 8


def make_process(family: str, d: int, n: int, seed: int) -> sm.MarkovProcess:
    """A random process of n functions in d dimensions."""
    rng = np.random.default_rng(seed)

    def basis() -> sm.Basis:
        mean, std = rng.normal(size=(n, d)), 1.0 + rng.random((n, d))
        if family == "gaussian":
            return sm.GaussianBasis(mean, std)
        root = 0.3 / np.sqrt(d) * rng.normal(size=(n, d, d)) + np.eye(d) * std[:, :, None]
        return sm.FullGaussianBasis(mean, root @ np.swapaxes(root, 1, 2))

    phi, psi = basis(), basis()
    transition = sm.Transition(phi, psi, sm.Kraus(rng.normal(size=(n, n, RANK))))
    return sm.MarkovProcess(transition, sm.SquaredForm(psi, np.eye(n)))


def median_seconds(calls: dict[Any, Callable[[], Any]], repeats: int) -> dict[Any, float]:
    """Of each call, after a first one that compiles; in turn, so that a slow moment of the machine meets them all."""
    for call in calls.values():
        jax.block_until_ready(call())
    seconds: dict[Any, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            begin = time.perf_counter()
            jax.block_until_ready(call())
            seconds[name].append(time.perf_counter() - begin)
    return {name: float(np.median(found)) for name, found in seconds.items()}


def filter_row(family: str, d: int, n: int, repeats: int, seed: int) -> dict[str, Any]:
    """Seconds per step with and without readings, from the difference of a long run and a short one."""
    process = make_process(family, d, n, seed)
    readings = jnp.asarray(np.random.default_rng(seed).normal(size=(LONG, 1)))
    sensor = sm.GaussianSensor([0], 0.5)
    transition, start, reader = process.transition, process.initial, sensor.reader(process.transition)
    runs = {
        "step": lambda count: propagation.propagate(transition, start, count),
        "filter_step": lambda count: recursion.forward(reader, start, readings[:count]),
    }
    row: dict[str, Any] = {"family": family, "d": d, "n": n}
    calls = {(name, count): partial(run, count) for name, run in runs.items() for count in (SHORT, LONG)}
    seconds = median_seconds(calls, repeats)
    for name in runs:
        short, long = seconds[name, SHORT], seconds[name, LONG]
        row[name] = (long - short) / (LONG - SHORT)
        # What is done once a sequence, before its first reading.
        row[f"{name}_before"] = short - SHORT * row[name]
    return row | {"ratio": row["filter_step"] / row["step"]}


def marginal_row(family: str, d: int, n: int, repeats: int, seed: int) -> dict[str, Any]:
    """Seconds for the density of two coordinates on a grid, the marginalisation included."""
    process = make_process(family, d, n, seed)
    line = np.linspace(-4.0, 4.0, 100)
    grid = jnp.asarray(np.stack(np.meshgrid(line, line), axis=-1))
    belief = process.propagate(3)[3]
    ask = eqx.filter_jit(lambda belief, grid: belief.marginal([0, 1]).prob(grid))
    return {"family": family, "d": d, "n": n, "grid": [100, 100],
            "seconds": median_seconds({"grid": lambda: ask(belief, grid)}, min(repeats, 5))["grid"]}  # fmt: skip


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, seconds instead of minutes")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/bench_queries.json"))
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else SIZES
    content: dict[str, Any] = {"filter": [], "marginal": []}
    for family, d, n in sizes:
        row = filter_row(family, d, n, options.repeats, options.seed)
        content["filter"].append(row)
        print(
            f"{family:<14} d={d:<2} n={n:<2}  step {1e3 * row['step']:7.3f} ms  with a reading"
            f" {1e3 * row['filter_step']:7.3f} ms  ratio {row['ratio']:.2f}, once {row['filter_step_before']:.3f} s",
            flush=True,
        )
    for family, d, n in [size for size in sizes if options.quick or size[1] == 12]:
        row = marginal_row(family, d, n, options.repeats, options.seed)
        content["marginal"].append(row)
        print(f"{family:<14} d={d:<2} n={n:<2}  100 x 100 grid of a 2-D marginal: {row['seconds']:.3f} s", flush=True)
    write_results(options.out, content, options.seed)
    print(f"written: {options.out}")
    return content


if __name__ == "__main__":
    main()
