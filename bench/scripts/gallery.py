"""Runs the examples of the gallery at their defaults: figures to results/gallery/, pictures to docs/images/.

`python bench/scripts/gallery.py sunspots glucose` runs two of them, without names all.
"""

from __future__ import annotations

import argparse
import runpy
import tempfile
from pathlib import Path

from sosmarkov.core.files import write_atomic
from sosmarkov_bench.environment import write_results

ROOT = Path(__file__).parents[2]
NAMES = ("gymnasium_cart_pole", "glucose", "sunspots", "double_well")


def main(arguments: list[str] | None = None) -> None:
    """Run, write, copy the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(NAMES)}; all where none")
    for name in parser.parse_args(arguments).names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            found = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))["main"](["--out", folder])
            picture = (Path(folder) / f"{name}.png").read_bytes()
        write_results(ROOT / "results" / "gallery" / f"{name}.json", found, 0)
        write_atomic(ROOT / "docs" / "images" / f"{name.replace('_', '-')}.png", picture)


if __name__ == "__main__":
    main()
