"""What the words behind options mean: lists, states, boxes, sensors, settings."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple


class UsageError(Exception):
    """A command that was not written as it should be."""


class Reading(NamedTuple):
    """One part of a sensor: which coordinate, which column it is read in, how noisy."""

    coordinate: str
    column: str
    std: float


def at_least(value: int, least: int, option: str) -> None:
    """Refuse a smaller number."""
    if value < least:
        raise UsageError(f"Expected {option} {least} or more, got {value}.")


def names(text: str | None, option: str) -> list[str] | None:
    """A list like `x,y`; a name with a comma stands in quotes, `"a, b",y`."""
    if text is None:
        return None
    found = [name.strip() for name in next(csv.reader([text.replace("\n", " ")], skipinitialspace=True), [""])]
    if not all(found) or len(set(found)) != len(found):
        raise UsageError(f"Expected {option} as different names like x,y, got {text!r}.")
    return found


def number(text: str, option: str) -> float:
    """A number, inf and -inf among them."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise UsageError(f"Expected a number in {option}, got {text.strip()!r}.")
    return value


def shares(text: str) -> list[float]:
    """Probabilities like `0.05,0.5,0.95`, in order; none for `none`."""
    if text.strip().lower() == "none":
        return []
    found = sorted({number(part, "--quantiles") for part in text.split(",")})
    if not 0 < found[0] <= found[-1] < 1:
        raise UsageError(f"Expected --quantiles strictly between 0 and 1, got {text!r}.")
    return found


def state(text: str | None, columns: Sequence[str], option: str = "--from") -> list[float] | None:
    """A point: `0.1,0.2` in the order of the columns, or `x=0.1,y=0.2`."""
    if text is None:
        return None
    example = ",".join(f"{name}=0" for name in columns)
    parts = text.split(",")
    if any("=" in part for part in parts):
        given = _by_name(parts, columns, option)
        missing = [name for name in columns if name not in given]
        if missing:
            raise UsageError(f"Expected {option} with all of {', '.join(columns)}, got none for {', '.join(missing)}.")
        values = [number(given[name], option) for name in columns]
    else:
        values = [number(part, option) for part in parts]
    if len(values) != len(columns):
        raise UsageError(f"Expected {option} with {len(columns)} numbers, like {example}, got {text!r}.")
    if not all(map(math.isfinite, values)):
        raise UsageError(f"Expected finite numbers in {option}, got {text!r}.")
    return values


def box(text: str, columns: Sequence[str]) -> tuple[list[float], list[float]]:
    """Both ends of `x=0:1,y=-inf:2`; what is not named is open."""
    ends = {name: (-math.inf, math.inf) for name in columns} | _spans(text, columns, "--box")
    return [low for low, _ in ends.values()], [high for _, high in ends.values()]


def bounds(text: str | None, columns: Sequence[str]) -> dict[str, tuple[float | None, float | None]] | None:
    """`level=0:,share=0:1` as `fit` takes them: {"level": (0, None), "share": (0, 1)}."""
    if text is None:
        return None
    found = {}
    for name, ends in _spans(text, columns, "--bounds").items():
        low, high = (end if math.isfinite(end) else None for end in ends)
        if low is None and high is None:
            raise UsageError(f"Expected one finite end of {name} or two in --bounds, got none. Leave it out.")
        found[name] = low, high
    return found


def circular(text: str | None, columns: Sequence[str]) -> dict[str, float | None] | None:
    """`heading,wind=360`: angles, with their whole turn where one is given."""
    if text is None:
        return None
    found: dict[str, float | None] = {}
    for part in text.split(","):
        name, equals, turn = (piece.strip() for piece in part.partition("="))
        _known(name, columns, "--circular")
        if name in found:
            raise UsageError(f"Expected each coordinate once in --circular, got {name!r} twice.")
        found[name] = number(turn, "--circular") if equals else None
        if equals and not 0 < number(turn, "--circular") < math.inf:
            raise UsageError(f"Expected a whole turn > 0 in --circular, such as {name}=360, got {part.strip()!r}.")
    return found


def spoken(note: str) -> str:
    """What the library advises to say, as the command line says it."""
    note = re.sub(r"circular=\['(.+)'\]", r'--circular "\1"', note)
    ends = re.compile(r"bounds=\{'(.+)': \((\S+), (\S+)\)\}")
    return ends.sub(lambda m: f'--bounds "{m[1]}={m[2]}:{"" if m[3] == "None" else m[3]}"', note)


def sensor(text: str, columns: Sequence[str]) -> list[Reading]:
    """Readings with normal noise: `x~0.1` from column x, `x=gps~0.1` from another column."""
    found: dict[str, Reading] = {}
    for part in text.split(","):
        name, tilde, std = part.partition("~")
        coordinate, _, column = (piece.strip() for piece in name.partition("="))
        if not tilde:
            raise UsageError(f"Expected --sensor like x~0.1 (column and standard deviation), got {part!r}.")
        _known(coordinate, columns, "--sensor")
        value = number(std, "--sensor")
        if not 0 < value < math.inf:
            raise UsageError(f"Expected a standard deviation > 0 in --sensor, got {part!r}.")
        if coordinate in found:
            raise UsageError(f"Expected each coordinate once in --sensor, got {coordinate!r} twice.")
        found[coordinate] = Reading(coordinate, column or coordinate, value)
    return list(found.values())


def settings(given: Sequence[str]) -> dict[str, Any]:
    """`size=32`, `basis=beta`, ... as arguments of `fit`, each of the kind `fit` takes."""
    from sosmarkov.learning import options

    # These have options of their own.
    own = ("seed", "form", "circular", "bounds")
    known = [name for name in options.names(options.Model, options.Training) if name not in own]
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise UsageError(f"Expected --set like size=32, got {text!r}.")
        if name not in known:
            raise UsageError(f"Expected --set with one of {', '.join(known)}, got {name!r}.{near(name, known)}")
        found[name] = _value(name, value.strip(), options.kinds(options.Options)[name])
    return found


def near(word: str, known: Any) -> str:
    """A guess at what was meant, as a sentence; empty where nothing is close."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _value(name: str, text: str, kinds: tuple[Any, ...]) -> Any:
    if text.lower() == "none" and type(None) in kinds:
        return None
    if bool in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if int in kinds and re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    if float in kinds:
        try:
            return float(text)
        except ValueError:
            pass
    if str in kinds and text:
        return text
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
    wanted = " or ".join(word for kind, word in words.items() if kind in kinds)
    raise UsageError(f"Expected {wanted} for --set {name}=, got {text!r}.")


def _spans(text: str, columns: Sequence[str], option: str) -> dict[str, tuple[float, float]]:
    """Both ends of every coordinate that is named; an end left out is open."""
    ends: dict[str, tuple[float, float]] = {}
    for name, span in _by_name(text.split(","), columns, option).items():
        low, colon, high = span.partition(":")
        if not colon:
            raise UsageError(
                f"Expected {option} like x=0:1, with both ends, got {name}={span!r}. Open ends are -inf, inf."
            )
        ends[name] = number(low or "-inf", option), number(high or "inf", option)
        if not ends[name][0] < ends[name][1]:
            raise UsageError(f"Expected lower < upper in {option}, got {name}={span}.")
    return ends


def _by_name(parts: Sequence[str], columns: Sequence[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in parts:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise UsageError(f"Expected {option} with a value for every name, got {part.strip()!r}.")
        _known(name, columns, option)
        if name in found:
            raise UsageError(f"Expected each coordinate once in {option}, got {name!r} twice.")
        found[name] = value
    return found


def _known(name: str, columns: Sequence[str], option: str) -> None:
    if name not in columns:
        raise UsageError(
            f"Expected coordinates among {', '.join(columns)} in {option}, got {name!r}.{near(name, columns)}"
        )
