"""`sosmarkov bench`: experiments."""

from __future__ import annotations

from argparse import Namespace
from importlib import import_module
from typing import Any

from sosmarkov.cli.output import facts, remark, say


def list_all(options: Namespace) -> None:
    """Names, and a line on each."""
    del options
    say(facts(_runner().list_experiments()))


def run(options: Namespace) -> int:
    """One experiment, a line after every row."""
    records = _runner().run(options.name, options.profile, progress=say, **_folder(options, "out"))
    failed = sum("failed" in record for record in records)
    if failed:
        remark(f"sosmarkov: {failed} of {len(records)} rows failed; run again to try these anew.")
    return 1 if failed else 0


def table(options: Namespace) -> None:
    """Results as tables."""
    say(_runner().table(**_folder(options, "results")))


def _folder(options: Namespace, name: str) -> dict[str, Any]:
    """The folder of results under the name the runner has for it; its own where none was given."""
    return {} if options.out is None else {name: options.out}


def _runner() -> Any:
    try:
        return import_module("sosmarkov.bench.runner")
    except ModuleNotFoundError as error:
        raise ImportError(f"Expected all that experiments need, got an installation without {error.name}.") from error
