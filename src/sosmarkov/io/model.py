"""`load`: a process, an ensemble or a network from its file; what a file says of itself."""

from __future__ import annotations

import os
from typing import Any

# Classes are known to files once their modules are imported: these import all others that have some.
import sosmarkov.factor.driven
import sosmarkov.gaussian.transition
import sosmarkov.lattice.transition
import sosmarkov.networks.network
import sosmarkov.process.ensemble
import sosmarkov.sensors  # noqa: F401
from sosmarkov.core.files import load_arrays
from sosmarkov.core.saving import FORMAT, model_of
from sosmarkov.core.stored import ENTRIES


def load(path: str | os.PathLike) -> Any:
    """Read what `save` wrote: a `MarkovProcess`, an `Ensemble` or a `BayesianNetwork`.

    Nothing in the file is executed. A file that is damaged, cut short, of another kind or of a newer format is a
    ValueError. So is one with a class of someone's own, until the module that defines and registers it is imported.
    """
    arrays, header = load_arrays(path, "model file")
    try:
        return model_of(_checked(header), arrays)
    except ValueError as error:
        raise ValueError(f"{error} This was found in {path}.") from error
    except Exception as error:
        # The checksum holds, so the file was made like this: whatever its parts trip over is a fault of the file.
        raise ValueError(f"Expected a model file, got {path}, whose parts do not fit together: {error!r}.") from error


def describe(path: str | os.PathLike) -> dict[str, Any]:
    """What a file says of itself, without building the model: format, kind and versions of libraries."""
    header = _checked(load_arrays(path, "model file")[1])
    return {name: header[name] for name in ("format", "kind", "versions")}


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
    kinds = [entry.model for entry in ENTRIES.values() if entry.model is not None]
    if set(header) != {"format", "kind", "versions", "tree"} or header["kind"] not in kinds:
        raise ValueError(f"Expected the header of a model file, got the entries {sorted(header)}.")
    return header
