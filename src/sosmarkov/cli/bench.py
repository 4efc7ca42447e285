"""`sosmarkov bench`: experiments, which are a package of their own."""

from __future__ import annotations

from argparse import Namespace
from importlib import import_module
from importlib.util import find_spec


def run(options: Namespace) -> int:
    """Hand the words on to `sosmarkov_bench`, or say how to get it."""
    if find_spec("sosmarkov_bench") is None:
        raise ImportError(
            "Expected the package of experiments, sosmarkov_bench, which is not installed: clone the repository, run"
            " `pip install ./bench` in it, and then this again."
        )
    return import_module("sosmarkov_bench.command").run(options.words)
