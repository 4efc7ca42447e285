"""argparse, with errors as exceptions, guesses at what was meant, and negative numbers as values.

argparse comes with Python and answers `--help` in a few hundredths of a second.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from sosmarkov.cli.options import UsageError, near

_VALUE = re.compile(r"-(\d|\.\d|inf\b)")
_SETTING = re.compile(r"[A-Za-z_][\w-]*=.*", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """Raises a `UsageError` instead of leaving the program."""

    def __init__(self, **options: Any):
        # Before the parent adds --help.
        self.words: list[str] = []
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:  # type: ignore[override]
        """Remember options for guesses."""
        self.words += [name for name in names if name.startswith("--")]
        return super().add_argument(*names, **options)

    def error(self, message: str) -> NoReturn:
        """Say what was wrong and where to look."""
        chosen = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if chosen:
            known = re.findall(r"[\w.-]+", chosen.group(2))
            message = f"Expected one of {', '.join(known)}, got {chosen.group(1)!r}.{near(chosen.group(1), known)}"
        end = "" if message.endswith((".", "?")) else "."
        raise UsageError(f"{message[:1].upper()}{message[1:]}{end} See {self.prog} --help.")

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Options and the command to run; a word that nobody knows is refused by the command it was meant for."""
        options, rest = self.parse_known_args(joined(words))
        if rest:
            asked: Parser = getattr(options, "parser", self)
            word = rest[0].partition("=")[0]
            guess = near(word, asked.words) if word.startswith("-") else ""
            asked.error(f"Expected options that {asked.prog} knows, got {word!r}.{guess}")
        return options


def joined(words: Sequence[str]) -> list[str]:
    """`--from -1,2` as one word, since -1,2 looks like an option; `--set a=1 b=2` as two options."""
    found: list[str] = []
    setting = False
    for word in words:
        before = found[-1] if found else ""
        if _VALUE.match(word) and before.startswith("--") and "=" not in before:
            found[-1] = f"{before}={word}"
        elif setting and _SETTING.fullmatch(word) and before != "--set":
            found.append(f"--set={word}")
        else:
            setting = word == "--set" or (setting and before == "--set")
            found.append(word)
    return found
