"""Kill training at random moments, resume it, and compare its curve with that of an unbroken run.

`python bench/scripts/interruptions.py --kills 30` starts a fit in a process of its own, kills it (SIGKILL) at a random
moment, starts it again with `resume=`, and so on; after the last kill it is let through to its end. A checkpoint is
written every 50 steps: none may be damaged, none may go backwards, and the curve at the end must equal, bit by bit,
that of a run nobody killed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from sosmarkov.core.files import load_arrays, write_atomic
from sosmarkov_bench.environment import environment

SETTINGS: dict[str, Any] = {"size": 4, "steps": 2000, "patience": 10_000, "background": 0.0, "progress": False}
QUICK = {"size": 2, "steps": 200, "objective": "transitions"}


def trajectories() -> np.ndarray:
    """Of x' = 0.8 x + noise."""
    rng = np.random.default_rng(0)
    x = [rng.normal(1.0, 0.5, 200)]
    for _ in range(4):
        x.append(0.8 * x[-1] + 0.6 * rng.normal(size=200))
    return np.stack(x, axis=1)[:, :, None]


def child(path: str) -> None:
    """One attempt: from the checkpoint where there is one."""
    import sosmarkov as sm

    resume = path if Path(path).exists() else None
    process = sm.fit(trajectories(), **SETTINGS, checkpoint=path, resume=resume)
    assert isinstance(process, sm.MarkovProcess)
    curves = {p.name: p.held_out[:, 0].tolist() for p in process.history.phases}
    state = [np.asarray(process.transition.log_prob([0.3], [x])).tolist() for x in (-1.0, 0.0, 2.0)]
    write_atomic(f"{path}.done", json.dumps({"curves": curves, "log_prob": state}).encode())


def launch(path: Path) -> subprocess.Popen:
    """A process that trains."""
    # Compilation is remembered between attempts: it is not what is tried here.
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(path.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--child", str(path)], env=environment)


def steps_in(path: Path) -> int:
    """Steps of all phases in a checkpoint, which has to be whole; zero where there is none yet."""
    if not path.exists():
        return 0
    arrays, _ = load_arrays(path, "checkpoint")
    return sum(int(value[-1]) for name, value in arrays.items() if name.endswith("/steps"))


def killed(path: Path, rng: random.Random, total: int, kills: int) -> dict[str, Any] | None:
    """Start, wait for a random moment, kill; None where it was done before."""
    process = launch(path)
    begin, seen = steps_in(path), 0
    # Some moments lie in the start, some in training, some (after a chunk has been seen) around a write.
    goal = begin + rng.randint(0, max(1, 2 * total // kills))
    while process.poll() is None:
        seen = steps_in(path)
        if seen >= goal:
            break
        time.sleep(0.002)
    time.sleep(rng.random() * 0.3)
    if process.poll() is not None:
        return None
    process.kill()
    process.wait()
    after = steps_in(path)
    return {"before": begin, "seen": seen, "after": after, "lost": max(0, seen - after)}


def main() -> None:
    """Kill, resume, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="two phases of a few steps")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--child", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    SETTINGS.update(QUICK if options.quick else {})
    if options.child:
        child(options.child)
        return
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        whole, broken = Path(folder) / "whole.ckpt", Path(folder) / "broken.ckpt"
        if launch(whole).wait() != 0:
            raise SystemExit("The unbroken run failed.")
        total, kills = steps_in(whole), []
        while len(kills) < options.kills:
            found = killed(broken, rng, total, options.kills)
            if found is None:
                # Through before it could be killed: begin another run, which has to end the same.
                compare(whole, broken)
                broken.unlink()
                continue
            kills.append(found)
        if launch(broken).wait() != 0:
            raise SystemExit("The resumed run failed.")
        compare(whole, broken)
    told = {"environment": environment(), "seed": options.seed}
    result = told | {"kills": kills, "steps": total, "lost": max(kill["lost"] for kill in kills), "identical": True}
    print(f"{len(kills)} kills, no damaged checkpoint, {result['lost']} saved steps lost, curve identical")
    if options.out:
        write_atomic(options.out, json.dumps(result, indent=1).encode())


def compare(whole: Path, broken: Path) -> None:
    """The two ends, bit by bit."""
    expected, found = (json.loads(Path(f"{path}.done").read_text()) for path in (whole, broken))
    if expected != found:
        raise SystemExit(f"Expected the curve of the unbroken run, got another: {expected} and {found}.")


if __name__ == "__main__":
    main()
