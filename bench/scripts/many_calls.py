"""Memory of one process that makes many different calls: a new model every 25, and questions of ever other sizes.

`python bench/scripts/many_calls.py --calls 2000` prints what the process holds as it goes on, and its peak.
`SOSMARKOV_PROGRAM_MEMORY=0` keeps every program, to see what that would take.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import sosmarkov as sm
from sosmarkov_bench.environment import write_results
from sosmarkov_bench.memory import peak_memory_mb

FRESH = 25
BASES = ("gaussian", "gaussian-full")


def fit(i: int) -> sm.MarkovProcess:
    """The i-th model: another size, dimension, basis and number of trajectories than those before."""
    rng = np.random.default_rng(i)
    x = np.cumsum(0.3 * rng.normal(size=(20 + i % 13, 5, 1 + i % 2)), axis=1)
    return sm.fit(x, basis=BASES[i // 2 % 2], size=2 + i % 7, steps=50, surrogate=False, seed=i)


def draw(process: sm.MarkovProcess, i: int) -> Any:
    """A figure of a belief."""
    axes = sm.plot_belief(process.belief_at(1 + i % 3))
    plt.close("all")
    return axes


def question(process: sm.MarkovProcess, i: int) -> Any:
    """The i-th question, of sizes that were not asked before."""
    d, size = process.initial.dim, 1 + i // 9
    states = np.random.default_rng(i).normal(size=(size, d))
    low, high = np.full(d, -np.inf), np.full(d, np.inf)
    low[0], high[0] = -1.0, 1.0
    sensor = sm.GaussianSensor([0], 0.1)
    asked: list[Callable[[], Any]] = [
        lambda: process.propagate(2 + size % 40).means,
        lambda: process.belief_at(2).log_prob(states),
        lambda: process.filter(states[:, :1], sensor=sensor).log_evidences,
        lambda: process.smooth(states[:, :1], sensor=sensor).beliefs[0].mean(),
        lambda: process.sample(jax.random.key(i), size, 1 + size % 6),
        lambda: process.belief_at(1).quantile(np.linspace(0.1, 0.9, 1 + size % 20), 0),
        lambda: process.stay_probability(low, high, 1 + size % 30),
        lambda: process.belief_at(3).probability(low, np.stack([high] * size)),
        lambda: draw(process, i),
    ]
    return jax.block_until_ready(asked[i % len(asked)]())


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Make the calls; returns what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--out", type=Path, help="a file to write to")
    options = parser.parse_args(arguments)
    compiled, begin, peaks = [], time.perf_counter(), []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    process = fit(0)
    for i in range(1, options.calls + 1):
        if i % FRESH == 0:
            process = fit(i // FRESH)
        else:
            question(process, i)
        if i % max(options.calls // 20, 1) == 0:
            peaks.append(peak_memory_mb())
            print(f"{i} calls: peak {peaks[-1]:.0f} MB, {time.perf_counter() - begin:.0f} s", flush=True)
    found = {"calls": options.calls, "programs": len(compiled), "peak_memory_mb": peaks}
    return found if options.out is None else write_results(options.out, found, 0)


if __name__ == "__main__":
    print(json.dumps(main()))
