"""Seconds to p(x_1), ..., p(x_13) of the cart-pole: a process, and particles of a flow with a mixture at every k.

Both are timed in one run, in turn, after a first call that compiles. The process has the size and the form that `fit`
chooses for this system, and random numbers: it takes as long whatever it learned. The flow has the size of the
baseline and is not trained either: its particles stay close to normal, so that few components are fitted to them,
which takes less time than what a trained flow gives. `--quick` takes small ones.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import sosmarkov as sm
from sosmarkov_bench.baselines import make_baseline
from sosmarkov_bench.environment import write_results
from sosmarkov_bench.protocol import simulate_training, training_data
from sosmarkov_bench.systems import get_system

PARTICLES = (1_000, 10_000)
# One propagation is over in a few thousandths of a second: the mean of so many is one measurement.
REPEATS = 20
QUICK = {"share": 0.05, "steps": 2, "size": 4, "rounds": 1, "particles": (50,)}
QUICK |= {"flow": {"layers": 2, "depth": 1, "hidden": 8, "epochs": 0}}
FULL = {"share": 1.0, "steps": 13, "size": 18, "rounds": 2, "particles": PARTICLES, "flow": {"epochs": 0}}


def make_process(size: int, d: int, seed: int) -> sm.MarkovProcess:
    """Random, of the form of the defaults: Gaussians with full covariances, a Kraus coupling of half the rank."""
    rng = np.random.default_rng(seed)

    def basis() -> sm.FullGaussianBasis:
        roots = 0.3 * rng.normal(size=(size, d, d))
        return sm.FullGaussianBasis(rng.normal(size=(size, d)), roots @ np.swapaxes(roots, 1, 2) + 0.5 * np.eye(d))

    transition = sm.Transition(basis(), basis(), sm.Kraus(rng.normal(size=(size, size, max(2, size // 2)))))
    start = sm.SquaredForm(sm.FullGaussianBasis(np.zeros((1, d)), np.eye(d)[None]), np.ones((1, 1)))
    return sm.MarkovProcess(transition, start)


def timed(function: Callable[[], Any], repeats: int = 1) -> float:
    """Mean seconds of a call."""
    begin = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - begin) / repeats


def measure(sizes: dict[str, Any], seed: int) -> dict[str, Any]:
    """Make both, then time them in turn."""
    system = get_system("cartpole")
    data = training_data(simulate_training(system, seed, sizes["share"]), sizes["steps"], system)
    process = make_process(sizes["size"], data.dim, seed)
    flows = {n: make_baseline("flow", particles=n, **sizes["flow"]) for n in sizes["particles"]}
    model = next(iter(flows.values())).trainer.train(data, seed).model

    def ours() -> None:
        jax.block_until_ready(list(process.propagate(data.steps)))

    rows: dict[str, Callable[[], Any]] = {"sosmarkov": ours}
    rows |= {f"flow, {n:,} particles, mixture": _propagation(flow, model, data, seed) for n, flow in flows.items()}
    first = {name: timed(call) for name, call in rows.items()}
    seconds: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(sizes["rounds"]):
        for name, call in rows.items():
            seconds[name].append(timed(call, REPEATS if name == "sosmarkov" else 1))
            print(f"{name}: {seconds[name][-1]:.4f} s", flush=True)
    middle = {name: float(np.median(values)) for name, values in seconds.items()}
    return {
        "system": system.name,
        "steps": data.steps,
        "size": sizes["size"],
        "cores": len(os.sched_getaffinity(0)),
        "first_call": first,
        "seconds": seconds,
        "ratio": {name: value / middle["sosmarkov"] for name, value in middle.items() if name != "sosmarkov"},
    }


def _propagation(flow: Any, model: Any, data: Any, seed: int) -> Callable[[], Any]:
    return lambda: flow.propagate(model, data, seed)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/propagation.json"))
    options = parser.parse_args(arguments)
    found = measure(QUICK if options.quick else FULL, options.seed)
    write_results(options.out, found, options.seed)
    print("; ".join(f"{name}: {ratio:.0f} times as long" for name, ratio in found["ratio"].items()))
    return found


if __name__ == "__main__":
    main()
