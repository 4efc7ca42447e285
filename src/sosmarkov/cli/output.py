"""What the command line says: answers to standard output, remarks to standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def say(text: str = "") -> None:
    """A line of the answer."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def remark(text: str) -> None:
    """A line beside the answer, which a script that reads the answer does not see."""
    sys.stderr.write(f"{one_line(text)}\n")
    sys.stderr.flush()


def one_line(text: str) -> str:
    """Without line breaks and runs of spaces."""
    return " ".join(text.split())


def say_json(value: Any) -> None:
    """One JSON value; numbers that JSON has no word for become null."""
    say(json.dumps(plain(value), indent=2, allow_nan=False))


def plain(value: Any) -> Any:
    """Arrays, tuples and numbers of any library as what JSON knows."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    match value:
        case Mapping():
            return {str(key): plain(entry) for key, entry in value.items()}
        case list() | tuple():
            return [plain(entry) for entry in value]
        case float():
            return value if math.isfinite(value) else None
        case bool() | int() | str() | None:
            return value
    return str(value)


def aligned(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in plain text: numbers to the right, words to the left."""
    cells = [list(header), *([_cell(entry) for entry in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    right = [all(isinstance(row[column], (int, float)) for row in rows) for column in range(len(header))]
    lines = [
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)) for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def facts(pairs: Mapping[str, Any]) -> str:
    """Names and values, one a line."""
    width = max(map(len, pairs), default=0)
    return "\n".join(f"{name.ljust(width)}  {_cell(value)}" for name, value in pairs.items())


def _cell(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
