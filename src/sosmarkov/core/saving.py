"""`save`: a model in one file, and the file's tree back as a model."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from sosmarkov import __version__
from sosmarkov.core.files import save_arrays
from sosmarkov.core.stored import entry_of
from sosmarkov.core.tree import Reader, Writer

FORMAT = 1


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model to one file, whole or not at all.

    What `load` gives has the same numbers, bit for bit, and therefore the same answers.

    Args:
        model: A `MarkovProcess`, an `Ensemble` or a `BayesianNetwork`.
        path: Where to; an older file of that name is replaced once the new one is complete.
    """
    entry = entry_of(type(model))
    if entry is None or entry.model is None:
        raise ValueError(f"Expected a process, an ensemble or a network to save, got {type(model).__name__}.")
    writer = Writer()
    header = {"format": FORMAT, "kind": entry.model, "versions": _versions(), "tree": writer.encode(model)}
    if not _same(model, model_of(header, writer.arrays)):
        raise ValueError(
            "Expected a model as its constructors make it, got one whose parts were replaced by others that a file"
            " cannot hold. Build it anew from its parameters."
        )
    save_arrays(path, writer.arrays, header)


def model_of(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """The model that a header and arrays describe, or a ValueError."""
    reader = Reader(arrays)
    model = reader.decode(header["tree"])
    entry = entry_of(type(model))
    if entry is None or entry.model != header["kind"]:
        raise ValueError(f"Expected a {header['kind']} in the file, got {type(model).__name__}.")
    if reader.unused:
        raise ValueError(f"Expected every array of the file to be part of the model, got others: {reader.unused}.")
    return model


def _versions() -> dict[str, str]:
    found = {"sosmarkov": __version__, "python": platform.python_version()}
    return found | {name: version(name) for name in ("jax", "equinox", "numpy")}


def _same(one: Any, other: Any) -> bool:
    """Whether all leaves are the same, bit for bit."""
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=False))
    if len(pairs) != len(jax.tree.leaves(one)) or len(pairs) != len(jax.tree.leaves(other)):
        return False
    return all(_equal(a, b) for a, b in pairs)


def _equal(a: Any, b: Any) -> bool:
    if not isinstance(a, (np.ndarray, jax.Array)):
        return a is b or bool(a == b)
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
