"""Writes docs/benchmarks.md from results/bench_core.json; `--check` only compares."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE, PAGE = ROOT / "results" / "bench_core.json", ROOT / "docs" / "benchmarks.md"


def render(content: dict) -> str:
    """The page."""
    env = content["environment"]
    lines = [
        "# Benchmarks",
        "",
        "Made by `make bench` and `benchmarks/page.py`; do not edit. One training step is value and gradient of",
        "the log-likelihood of 512 transitions; propagation is ten steps; both include the normalisation. The",
        "dense reference (`benchmarks/dense_reference.py`) computes all n^4 integrals and, for the paired coupling,",
        "all eigenvectors of the n^2 x n^2 matrix, as the paper describes. Memory is that of the compiled program.",
        "",
        f"jax {env['jax']}, Python {env['python']}, {env['device']} ({env['cores']} cores), commit {env['commit']},"
        f" seed {env['seed']}.",
        "",
        "| coupling | d | n | step, ms | dense, ms | ratio | MiB | dense, MiB | propagate, ms | dense, ms | ratio"
        " | table / dense |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in content["rows"]:
        cells = [row["coupling"], str(row["d"]), str(row["n"])]
        for name in ("step", "propagate"):
            ours, dense = row[name]["ours"], row[name]["dense"]
            cells += [f"{1e3 * ours['seconds']:.2f}", f"{1e3 * dense['seconds']:.1f}", f"{row[name]['ratio']:.1f}"]
            if name == "step":
                cells += [f"{ours['memory_bytes'] / 2**20:.1f}", f"{dense['memory_bytes'] / 2**20:.1f}"]
        lines.append("| " + " | ".join([*cells, f"{row['table']['share']:.3f}"]) + " |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    page = render(json.loads(SOURCE.read_text()))
    if options.check:
        if PAGE.exists() and PAGE.read_text() == page:
            return 0
        print("docs/benchmarks.md is not what results/bench_core.json makes: run benchmarks/page.py")
        return 1
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
