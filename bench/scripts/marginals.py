"""Marginals of beliefs over time, the model above and a simulation below, for the 6-D and the 12-D system.

`python bench/scripts/marginals.py quadrotor quadcopter` fits each system's training data and draws two pictures of it
for docs/: k = 0, 1, 4, 9, and all of k = 0, ..., 9. `--processes FOLDER` keeps the processes there, and takes those it
finds.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import sosmarkov as sm
from sosmarkov import plots
from sosmarkov_bench.protocol import simulate_test, simulate_training
from sosmarkov_bench.systems import get_system

PAIRS = {"quadrotor": [(0, 1), (2, 3), (4, 5)], "quadcopter": [(0, 1), (10, 11), (3, 5)]}
STEPS = {"": [0, 1, 4, 9], "-all": list(range(10))}
IMAGES = Path(__file__).parents[2] / "docs" / "images"
SIMULATED, CELLS = 10_000, 40


def process_of(name: str, folder: Path, steps: int | None) -> sm.MarkovProcess:
    """From the folder, or learned now and put there."""
    path = folder / f"{name}.sosm"
    if not path.exists():
        process = sm.fit(**simulate_training(get_system(name), 0), steps=steps)
        process.save(path)
    found = sm.load(path)
    assert isinstance(found, sm.MarkovProcess)
    return found


def draw(process: sm.MarkovProcess, test: np.ndarray, name: str, images: Path) -> None:
    """Both pictures of one system."""
    names = list(get_system(name).coordinates)
    for kind, steps in STEPS.items():
        where = {"steps": steps, "pairs": PAIRS[name], "names": names}
        axes = sm.plot_marginals_over_time(process, test, **where, bins=CELLS, cells=CELLS)
        plots.save(axes[0, 0].figure, images / f"marginals-{name}{kind}.png", dpi=70 if not kind else 55)


def main(arguments: list[str] | None = None) -> None:
    """Learn or load, draw."""
    import matplotlib

    matplotlib.use("Agg")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="+", choices=sorted(PAIRS))
    parser.add_argument("--processes", type=Path, help="a folder; a temporary one where not given")
    parser.add_argument("--steps", type=int, help="of training, other than the default")
    parser.add_argument("--images", type=Path, default=IMAGES)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.systems:
            process = process_of(name, options.processes or Path(temporary), options.steps)
            draw(process, simulate_test(get_system(name), 0, SIMULATED), name, options.images)


if __name__ == "__main__":
    main()
