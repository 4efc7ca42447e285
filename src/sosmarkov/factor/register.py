"""`register`: families, couplings, sensors of someone's own, known by name and to model files."""

from __future__ import annotations

from typing import Any, TypeVar

import equinox as eqx

from sosmarkov.core.stored import stored
from sosmarkov.factor.bases import FAMILIES, Family
from sosmarkov.factor.couplings import COUPLINGS, Coupling

Own = TypeVar("Own")


def register(own: Own) -> Own:
    """Make a family, a coupling, a sensor, features or a transform of your own known, once, beside its definition.

    Models that hold it can then be saved, and loaded wherever the module with this call has been imported. A `Family`
    and a coupling can besides be asked for by name, as `fit(basis=...)`, `fit(coupling=...)`.

    Args:
        own: A class, whose annotated fields are stored (this is a decorator, too); or a `Family`, which stands for its
            class. What a constructor would refuse belongs in `__check_init__`, which is asked when a file is read.

    Returns:
        The same.
    """
    family = own if isinstance(own, Family) else None
    kind: Any = own if family is None else family.basis
    if not (isinstance(kind, type) and issubclass(kind, eqx.Module)):
        raise ValueError(f"Expected a Family, or a class of functions, couplings or sensors to register, got {own!r}.")
    known = stored()
    if family is not None:
        _require_own(family.name, kind, FAMILIES[family.name].basis if family.name in FAMILIES else kind)
        known(kind)
        FAMILIES[family.name] = family
    elif issubclass(kind, Coupling):
        _require_own(kind.name, kind, COUPLINGS.get(kind.name, kind))
        COUPLINGS[kind.name] = known(kind)
    else:
        known(kind)
    return own


def _require_own(name: str, kind: type, taken: type) -> None:
    if taken.__name__ != kind.__name__:
        raise ValueError(f"Expected a name of its own for {kind.__name__}, got {name!r}, the name of {taken.__name__}.")
