"""The entry point: reads the words, runs the command, and says what went wrong in one line.

Nothing here imports JAX, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from sosmarkov.cli.commands import make_parser
from sosmarkov.cli.options import UsageError
from sosmarkov.cli.output import remark

REFUSED, USAGE, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    try:
        options = make_parser().parse(words)
        _keep_programs()
        with _warnings_as_remarks():
            return _load(options.run)(options) or 0
    except SystemExit as end:  # --help and --version
        return int(end.code or 0)
    except KeyboardInterrupt:
        remark("Interrupted: nothing was written.")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the answer has seen enough; what is left in the buffer must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return REFUSED
    except Exception as error:
        if debug:
            raise
        remark(f"sosmarkov: {_told(error)}")
        return USAGE if isinstance(error, UsageError) else REFUSED


def _load(name: str) -> Callable[[Namespace], int | None]:
    """What runs a command: a function of a file in this folder, imported now."""
    file, function = name.split(".")
    return getattr(import_module(f"sosmarkov.cli.{file}"), function)


def _told(error: Exception) -> str:
    """The message of an error that is meant for people; for any other also its kind, and how to learn more."""
    match error:
        case MemoryError():
            return f"Expected data that fit into memory, got too much. {error}"
        case OSError() if error.strerror:
            return f"{error.strerror}: {error.filename}." if error.filename else f"{error.strerror}."
        case UsageError() | ValueError() | OSError() | ImportError() | ArithmeticError() if str(error):
            return str(error)
    return f"Unexpected {type(error).__name__}: {error} Run again with --debug to see where."


@contextmanager
def _warnings_as_remarks() -> Iterator[None]:
    """What the library warns of, one line each, each once."""
    told: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        if str(message) not in told:
            told.add(str(message))
            remark(f"note: {message}")

    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        for category in (UserWarning, RuntimeWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = show
        yield


def _keep_programs() -> None:
    """Have JAX keep compiled programs between commands, unless the environment says where, or JAX is there already."""
    if "jax" not in sys.modules and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(home / "sosmarkov" / "programs")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
