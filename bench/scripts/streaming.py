"""A million readings, one at a time: memory, pace, and the evidence beside that of the whole sequence at once.

`predict` and `update` return new beliefs and keep nothing else. Memory is the process's own (resident), looked at
along the way. Part of `make bench`; `--quick` takes a few thousand readings.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import sosmarkov as sm
from sosmarkov_bench.environment import write_results

SIZE, DIM, RANK, STD, MISSING = 6, 2, 4, 0.5, 0.1
LOOKS = 20


def make_process(seed: int) -> sm.MarkovProcess:
    """A random process in the plane."""
    rng = np.random.default_rng(seed)
    phi, psi = (sm.GaussianBasis(rng.normal(size=(SIZE, DIM)), 0.7 + 0.6 * rng.random((SIZE, DIM))) for _ in range(2))
    transition = sm.Transition(phi, psi, sm.Kraus(rng.normal(size=(SIZE, SIZE, RANK))))
    return sm.MarkovProcess(transition, sm.SquaredForm.gaussian(np.zeros(DIM), np.ones(DIM)))


def resident_mib() -> float:
    """Memory of this process now, in MiB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def stream(process: sm.MarkovProcess, readings: np.ndarray, sensor: sm.Sensor) -> dict[str, Any]:
    """All readings by update and predict; evidence, pace and memory along the way."""
    belief: sm.Belief = process.initial
    total, looks = 0.0, []
    every = max(1, len(readings) // LOOKS)
    begin = time.perf_counter()
    for k, reading in enumerate(readings):
        belief, log_evidence = process.update(belief, reading, sensor=sensor)
        total += float(log_evidence)
        belief = process.predict(belief)
        if (k + 1) % every == 0:
            looks.append({"readings": k + 1, "seconds": time.perf_counter() - begin, "mib": resident_mib()})
            print(f"{k + 1:>9} readings  {looks[-1]['seconds']:7.1f} s  {looks[-1]['mib']:8.1f} MiB", flush=True)
    return {"log_evidence": total, "looks": looks, "mean": np.asarray(belief.mean()).tolist()}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Stream, filter at once, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--readings", type=int, help="how many; a million unless told")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/streaming.json"))
    options = parser.parse_args(arguments)
    count = options.readings or (2_000 if options.quick else 1_000_000)
    process, sensor = make_process(options.seed), sm.GaussianSensor([0], [STD])
    rng = np.random.default_rng(options.seed + 1)
    readings = 1.5 * rng.normal(size=(count, 1))
    readings[rng.random(count) < MISSING] = np.nan
    found = stream(process, readings, sensor)
    begin = time.perf_counter()
    at_once = float(process.filter(readings, sensor=sensor).log_evidence)
    seconds = time.perf_counter() - begin
    content = {
        "readings": count,
        "missing": int(np.isnan(readings).sum()),
        "stream": found,
        "at_once": {"log_evidence": at_once, "seconds": seconds},
        "relative_difference": abs(found["log_evidence"] - at_once) / abs(at_once),
        "difference_per_reading": abs(found["log_evidence"] - at_once) / count,
    }
    write_results(options.out, content, options.seed)
    print(f"log-evidence {found['log_evidence']:.6f}, at once {at_once:.6f} ({seconds:.1f} s with compilation)")
    print(f"relative difference {content['relative_difference']:.1e}; written: {options.out}")
    return content


if __name__ == "__main__":
    main()
