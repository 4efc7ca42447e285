"""`sosmarkov bench`: experiments."""

from __future__ import annotations

from argparse import Namespace
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
        from sosmarkov.bench import runner
    except ImportError as error:
        raise ImportError("Expected the experiments' runner, got an installation without it.") from error
    return runner
