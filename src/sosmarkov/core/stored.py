"""What a model file may hold: classes that were made known beside their definition, and what is stored of them.

A file names classes by the short names below; a name that is not known is refused, so nothing is ever imported or
called because a file says so. Fields that follow from others (kernels, tables of integrals) are kept as plain arrays
beside them: their structure is derived anew from the constructor, without computing, and their values are the file's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from sosmarkov.core import checks

Fields = dict[str, Any]
Kind = TypeVar("Kind", bound=type)


class Entry(NamedTuple):
    """How one class is stored; see `stored`."""

    kind: type
    fields: tuple[str, ...]
    derived: tuple[str, ...]
    make: Callable[[Fields], Any] | None
    check: Callable[[Any], Any] | None
    read: Callable[[Any], Any] | None
    infinite: bool
    model: str | None
    optional: tuple[str, ...] = ()


ENTRIES: dict[str, Entry] = {}


def stored(
    *fields: str,
    derived: Sequence[str] = (),
    make: Callable[[Fields], Any] | None = None,
    check: Callable[[Any], Any] | None = None,
    read: Callable[[Any], Any] | None = None,
    infinite: bool = False,
    model: str | None = None,
    optional: Sequence[str] = (),
) -> Callable[[Kind], Kind]:
    """Make a class known to model files, by its own name.

    Args:
        fields: What is stored by name, attributes or properties, each annotated; none: all fields of the class.
        derived: Fields that follow from those, stored as a list of arrays.
        make: The object from its stored fields. Where there are derived ones it is traced, not run, for their
            structure; None: the class itself, by keywords. Else None: the fields are set as they are.
        check: Refuses an object that its constructor would not have made.
        read: The object to read the fields from, where that is another one.
        infinite: Whether numbers may be infinite or NaN.
        model: What a file calls it that holds nothing else: "process".
        optional: Those of the fields that files of older versions do not have; they are None then.
    """

    def known(kind: Kind) -> Kind:
        taken = ENTRIES.get(kind.__name__)
        # The same definition run again, as in a notebook, takes the place of the older one.
        if taken is not None and _home(taken.kind) != _home(kind):
            raise ValueError(
                f"Expected a class with a name of its own to store, got {kind.__name__}, which {_home(taken.kind)} has"
                " too. Give it another."
            )
        names = fields or tuple(field.name for field in dataclasses.fields(kind) if field.name not in derived)
        built = (lambda found: kind(**found)) if derived and make is None else make
        ENTRIES[kind.__name__] = Entry(
            kind, names, tuple(derived), built, check, read, infinite, model, tuple(optional)
        )
        return kind

    return known


def entry_of(kind: type) -> Entry | None:
    """How this very class is stored, if it is."""
    entry = ENTRIES.get(kind.__name__)
    return entry if entry is not None and entry.kind is kind else None


def bare(kind: type, fields: Fields) -> Any:
    """An object with these fields, as JAX rebuilds one: constructors would compute some of them anew."""
    value = object.__new__(kind)
    # What a file does not say, as a form's scale, which is kept in its coefficients, is None.
    absent = {field.name: None for field in dataclasses.fields(kind)}
    for name, part in (absent | fields).items():
        object.__setattr__(value, name, part)
    return value


def replaced(value: Any, **fields: Any) -> Any:
    """The same object with other fields, static ones too."""
    return bare(type(value), vars(value) | fields)


def _home(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def require(fulfilled: Any, what: str) -> None:
    """A ValueError saying what was expected of a stored part."""
    if not fulfilled:
        raise ValueError(f"Expected {what}.")


def positive(*names: str) -> Callable[[Any], None]:
    """A check that these fields hold positive numbers."""

    def check(value: Any) -> None:
        for name in names:
            checks.require_positive(getattr(value, name), name)

    return check
