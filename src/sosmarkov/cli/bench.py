"""`sosmarkov bench`: experiments."""

from __future__ import annotations

from argparse import Namespace
from importlib import import_module
from typing import Any

from sosmarkov.cli.output import say


def list_all(options: Namespace) -> None:
    """Names, one a line."""
    del options
    for name in _runner().list_experiments():
        say(str(name))


def run(options: Namespace) -> None:
    """One experiment."""
    _runner().run(options.name, options.profile, options.out, True)


def table(options: Namespace) -> None:
    """Results as a table."""
    say(_runner().table(options.out))


def _runner() -> Any:
    try:
        return import_module("sosmarkov.bench.runner")
    except ModuleNotFoundError as error:
        raise ImportError(f"Expected all that experiments need, got an installation without {error.name}.") from error
