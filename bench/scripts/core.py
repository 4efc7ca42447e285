"""Speed and memory of the core against a plain dense reference, side by side in one run.

`make bench` runs it in full (a few minutes); `--quick` takes small sizes. Times are medians of
repeated calls after compilation; ratios come from the same run on the same machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sosmarkov as sm
from sosmarkov.core.numerics import pack
from sosmarkov.inference import recursion
from sosmarkov_bench.dense_reference import Parameters
from sosmarkov_bench.dense_reference import loss as dense_loss
from sosmarkov_bench.dense_reference import propagate as dense_propagate
from sosmarkov_bench.environment import write_results

SIZES = [(2, 25), (6, 17), (12, 20), (6, 40)]
QUICK_SIZES = [(2, 5)]
COUPLINGS = ["paired", "kraus", "linear"]
BATCH, STEPS, RANK = 512, 10, 8


class Problem(NamedTuple):
    """The same model for both sides."""

    ours: tuple[sm.Basis, sm.Basis, sm.Kraus | sm.Paired | sm.Linear]
    dense: Parameters
    start: np.ndarray
    y: jax.Array
    y_next: jax.Array


def make_problem(d: int, n: int, coupling: str, seed: int) -> Problem:
    """Random Beta bases and coefficients."""
    rng = np.random.default_rng(seed)
    exponents = [4.0 * rng.random((n, d)) for _ in range(4)]
    phi, psi = (sm.BetaBasis(1.0 + a, 1.0 + b) for a, b in (exponents[:2], exponents[2:]))
    triangle = 0.2 * np.tril(rng.normal(size=(n, n)), -1) + np.eye(n)
    if coupling == "paired":
        ours, parts = sm.Paired(triangle), (triangle,)
    elif coupling == "kraus":
        K = rng.normal(size=(n, n, RANK))
        ours, parts = sm.Kraus(K, triangle), (K, triangle)
    else:
        weights = 0.5 + rng.random(n)
        ours, parts = sm.Linear(weights), (weights,)
    left, right, left_next, right_next = map(jnp.asarray, exponents)
    dense = Parameters(left, right, left_next, right_next, tuple(map(jnp.asarray, parts)))
    start = np.ones(n) if coupling == "linear" else np.eye(n)
    y, y_next = (jnp.asarray(rng.uniform(0.02, 0.98, (BATCH, d))) for _ in range(2))
    return Problem((phi, psi, ours), dense, start, y, y_next)


def our_loss(parts: Any, y: jax.Array, y_next: jax.Array) -> jax.Array:
    """Mean negative log-likelihood of transitions in model space, normalisation included."""
    transition = sm.Transition(*parts)
    return -jnp.mean(jax.vmap(transition.log_prob_model)(y_next, y))


def our_propagate(parts: Any, start: jax.Array) -> jax.Array:
    """Coefficients of h after each step from given ones, normalisation included."""
    transition = sm.Transition(*parts)
    return recursion.run(transition, start if start.ndim == 1 else pack(start), STEPS + 1)[1:]


def measure(function: Callable[..., Any], arguments: tuple, repeats: int) -> tuple[dict[str, float], Any]:
    """Median seconds a call after compilation, the compiled program's memory, and what it returned."""
    dynamic, static = eqx.partition(arguments, eqx.is_array)
    compiled = jax.jit(lambda dynamic: function(*eqx.combine(dynamic, static))).lower(dynamic).compile()
    memory: Any = compiled.memory_analysis()
    begin = time.perf_counter()
    found = jax.block_until_ready(compiled(dynamic))
    first = time.perf_counter() - begin
    seconds = []
    for _ in range(1 if first > 5 else repeats):
        begin = time.perf_counter()
        jax.block_until_ready(compiled(dynamic))
        seconds.append(time.perf_counter() - begin)
    peak = memory.temp_size_in_bytes + memory.output_size_in_bytes + memory.argument_size_in_bytes
    return {"seconds": float(np.median(seconds)), "memory_bytes": float(peak)}, found


def compare(d: int, n: int, coupling: str, repeats: int, seed: int) -> dict[str, Any]:
    """One row of the table."""
    problem = make_problem(d, n, coupling, seed)
    pair = (problem.y, problem.y_next)
    sides = {
        "step": (
            (eqx.filter_value_and_grad(our_loss), (problem.ours, *pair)),
            (jax.value_and_grad(lambda p, y, z: dense_loss(p, y, z, coupling)), (problem.dense, *pair)),
        ),
        "propagate": (
            (lambda parts, start: our_propagate(parts, start), (problem.ours, jnp.asarray(problem.start))),
            (lambda p, start: dense_propagate(p, start, STEPS, coupling), (problem.dense, jnp.asarray(problem.start))),
        ),
    }
    row: dict[str, Any] = {"d": d, "n": n, "coupling": coupling}
    for name, (ours, dense) in sides.items():
        (fast, found), (slow, expected) = (measure(function, inputs, repeats) for function, inputs in (ours, dense))
        row[name] = {"ours": fast, "dense": slow, "ratio": slow["seconds"] / fast["seconds"]}
        if name == "step":
            row["loss_difference"] = float(abs(found[0] - expected[0]))
    pairs = n if coupling == "linear" else n * (n + 1) // 2
    whole = n if coupling == "linear" else n * n
    row["table"] = {"ours_bytes": 8 * pairs**2, "dense_bytes": 8 * whole**2, "share": (pairs / whole) ** 2}
    return row


def show(row: dict[str, Any]) -> str:
    """A line of the table."""
    cells = [f"{row['coupling']:<7} {row['d']:>2} {row['n']:>3}"]
    for name in ("step", "propagate"):
        ours, dense = row[name]["ours"], row[name]["dense"]
        cells.append(
            f"{1e3 * ours['seconds']:>8.2f} {1e3 * dense['seconds']:>9.1f} {row[name]['ratio']:>7.1f}x"
            f" {ours['memory_bytes'] / 2**20:>7.1f} {dense['memory_bytes'] / 2**20:>8.1f}"
        )
    return "  ".join([*cells, f"{row['table']['share']:>6.3f}", f"{row['loss_difference']:.0e}"])


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, seconds instead of minutes")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/bench_core.json"))
    options = parser.parse_args(arguments)

    print(f"training step: value and gradient, batch {BATCH}; propagation: {STEPS} steps; both with normalisation.")
    print("ms ours | ms dense | ratio | MiB ours | MiB dense, for each; then table share and loss difference\n")
    print(f"{'':<16}{'training step':^46}{'propagation':^46}")
    rows = []
    for d, n in QUICK_SIZES if options.quick else SIZES:
        for coupling in COUPLINGS:
            row = compare(d, n, coupling, options.repeats, options.seed)
            rows.append(row)
            print(show(row), flush=True)
    write_results(options.out, {"rows": rows}, options.seed)
    print(f"\nwritten: {options.out}")
    return rows


if __name__ == "__main__":
    main()
