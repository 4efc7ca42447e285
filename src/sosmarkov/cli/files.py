"""Data files that a command names: what its options say of them, and where it writes."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from sosmarkov.cli.options import UsageError, names
from sosmarkov.data import tables
from sosmarkov.data.recorded import Doubt, Recorded


def read(options: Namespace, columns: Sequence[str] | None = None) -> Recorded:
    """The data file of a command, by its options; `columns` are the coordinates where none are named."""
    named, inputs = names(options.columns, "--columns") or columns, names(options.inputs, "--inputs")
    path = Path(options.data)
    kind = _suffix(path, tables.READABLE, "read")
    if set(inputs or ()) & set(named or ()):
        raise UsageError("Expected --inputs and --columns without a common name, got one in both.")
    if options.wide and options.time and kind not in (".npz", ".npy"):
        raise UsageError("Expected no --time with --wide, where columns are steps, got both.")
    return tables.read(
        path, columns=named, trajectory=options.trajectory, time=options.time, inputs=inputs, wide=options.wide
    )


def check_writable(path: Path | None, known: Sequence[str] = tables.WRITABLE) -> None:
    """Refuse early what would fail after all the work."""
    if path is not None:
        _suffix(path, known, "write")
        tables.check_writable(path, known)


def advice(doubt: Doubt) -> str:
    """What to say about a column that was left out."""
    name, option = repr(doubt.column), shlex.quote(doubt.column)
    if doubt.kind == "dates":
        return f"column {name} holds dates. If it is the time, say --time {option}."
    if doubt.kind == "ids":
        return f"column {name} looks like one value a trajectory. If so, say --trajectory {option}."
    return (
        f"column {name} is left out: {doubt.entry!r} in row {doubt.row} is no number. Where nothing was measured, leave"
        " the cell empty."
    )


def _suffix(path: Path, known: Sequence[str], what: str) -> str:
    try:
        return tables.suffix(path, known, what)
    except ValueError as error:
        raise UsageError(str(error)) from error
