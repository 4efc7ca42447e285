"""`save` and `load`: a process, an ensemble or a network in one file."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from sosmarkov import __version__
from sosmarkov.core.files import load_arrays, save_arrays
from sosmarkov.io.tree import Reader, Writer
from sosmarkov.networks.network import BayesianNetwork
from sosmarkov.process.ensemble import Ensemble
from sosmarkov.process.process import MarkovProcess

FORMAT = 1
_KINDS: dict[str, type] = {"process": MarkovProcess, "ensemble": Ensemble, "network": BayesianNetwork}


def save(model: Any, path: str | os.PathLike) -> None:
    """Write a model to one file, whole or not at all.

    What `load` gives has the same numbers, bit for bit, and therefore the same answers.

    Args:
        model: A `MarkovProcess`, an `Ensemble` or a `BayesianNetwork`.
        path: Where to; an older file of that name is replaced once the new one is complete.
    """
    kinds = [name for name, kind in _KINDS.items() if type(model) is kind]
    if not kinds:
        raise ValueError(f"Expected a process, an ensemble or a network to save, got {type(model).__name__}.")
    writer = Writer()
    header = {"format": FORMAT, "kind": kinds[0], "versions": _versions(), "tree": writer.encode(model)}
    if not _same(model, _model(header, writer.arrays)):
        raise ValueError(
            "Expected a model as its constructors make it, got one whose parts were replaced by others that a file"
            " cannot hold. Build it anew from its parameters."
        )
    save_arrays(path, writer.arrays, header)


def load(path: str | os.PathLike) -> Any:
    """Read what `save` wrote: a `MarkovProcess`, an `Ensemble` or a `BayesianNetwork`.

    Nothing in the file is executed. A file that is damaged, cut short, of another kind or of a newer format is a
    ValueError.
    """
    arrays, header = load_arrays(path, "model file")
    try:
        return _model(_checked(header), arrays)
    except ValueError as error:
        raise ValueError(f"{error} This was found in {path}.") from error
    except Exception as error:
        # The checksum holds, so the file was made like this: whatever its parts trip over is a fault of the file.
        raise ValueError(f"Expected a model file, got {path}, whose parts do not fit together: {error!r}.") from error


def describe(path: str | os.PathLike) -> dict[str, Any]:
    """What a file says of itself, without building the model: format, kind and versions of libraries."""
    header = _checked(load_arrays(path, "model file")[1])
    return {name: header[name] for name in ("format", "kind", "versions")}


def _versions() -> dict[str, str]:
    found = {"sosmarkov": __version__, "python": platform.python_version()}
    return found | {name: version(name) for name in ("jax", "equinox", "numpy")}


def _checked(header: dict[str, Any]) -> dict[str, Any]:
    if "phases" in header and "kind" not in header:
        raise ValueError("Expected a model file, got a checkpoint of training. Give it to fit(resume=...).")
    number = header.get("format")
    if type(number) is not int or number < 1:
        raise ValueError(f"Expected a model file with the number of its format, got {number!r}.")
    if number > FORMAT:
        raise ValueError(
            f"Expected a model file of format {FORMAT} at most, got format {number}, written by a newer version"
            f" ({header.get('versions')}). Upgrade sosmarkov to read it."
        )
    if set(header) != {"format", "kind", "versions", "tree"} or header["kind"] not in list(_KINDS):
        raise ValueError(f"Expected the header of a model file, got the entries {sorted(header)}.")
    return header


def _model(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    reader = Reader(arrays)
    model = reader.decode(header["tree"])
    if type(model) is not _KINDS[header["kind"]]:
        raise ValueError(f"Expected a {header['kind']} in the file, got {type(model).__name__}.")
    if reader.unused:
        raise ValueError(f"Expected every array of the file to be part of the model, got others: {reader.unused}.")
    return model


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
