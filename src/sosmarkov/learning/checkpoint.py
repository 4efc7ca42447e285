"""Checkpoints of training: written after every chunk, whole or not at all, and continued with an identical curve."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import types
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sosmarkov.core.files import load_arrays, save_arrays
from sosmarkov.data.history import PhaseHistory
from sosmarkov.learning.loop import State

_FORMAT = 2
_CURVES = ("steps", "training", "held_out", "best_step")


def fingerprint(*things: Any) -> str:
    """SHA-256 of values: the same for equal data and options, in whatever process they were made."""
    digest = hashlib.sha256()
    for part in _parts(things):
        digest.update(part)
    return digest.hexdigest()


def _parts(thing: Any) -> Iterator[bytes]:
    """A value as bytes, each piece behind its kind and length: objects by class and fields, functions by their code."""
    kind = type(thing)
    name = f"{kind.__module__}.{kind.__qualname__}"
    match thing:
        case np.ndarray() | np.generic() | jax.Array():
            name, array = "array", np.asarray(thing)
            pieces: Any = (str(array.shape), array.dtype.str, np.ascontiguousarray(array).tobytes())
        case _ if dataclasses.is_dataclass(thing):
            pieces = [(each.name, getattr(thing, each.name, None)) for each in dataclasses.fields(thing)]
        case dict():
            pieces = list(thing.items())
        case types.CodeType():
            pieces = (thing.co_code, thing.co_names, thing.co_consts)
        case types.FunctionType():
            closed = [cell.cell_contents for cell in thing.__closure__ or ()]
            pieces = (thing.__module__, thing.__qualname__, thing.__code__, thing.__defaults__, closed)
        case list() | tuple():
            pieces = thing
        case _:
            plain = thing if isinstance(thing, bytes) else repr(thing).encode()
            yield f"{name} {len(plain)} ".encode() + plain
            return
    yield f"{name} {len(pieces)} ".encode()
    for piece in pieces:
        yield from _parts(piece)


class Checkpoint:
    """A `Keeper`: one file with the state of every phase so far.

    Args:
        path: Where to write.
        identity: Fingerprint of data and settings; a file of another one is refused.
        resume: A file to continue from, or None to begin anew.
    """

    def __init__(self, path: str | os.PathLike[str], identity: str, resume: str | os.PathLike[str] | None):
        self._path = path
        self._arrays: dict[str, np.ndarray] = {}
        self._header: dict[str, Any] = {"format": _FORMAT, "identity": identity, "phases": {}}
        if resume is None:
            return
        arrays, header = load_arrays(resume, "checkpoint")
        if header.get("format") != _FORMAT:
            raise ValueError(
                f"Expected a checkpoint of format {_FORMAT}, got {header.get('format')} in {resume}: it was begun by"
                " another version. Begin anew without resume."
            )
        if header.get("identity") != identity:
            raise ValueError(
                f"Expected a checkpoint of the same data and settings, got {resume}, which was written for others."
                " Continue with exactly the call that began it, or begin anew without resume."
            )
        self._arrays, self._header = arrays, header

    def load(self, name: str, like: State) -> tuple[State, PhaseHistory] | None:
        """State and history so far of a phase, if any; `like` is a state of the right structure."""
        phase = self._header["phases"].get(name)
        if phase is None:
            return None
        leaves, structure = jax.tree.flatten(like)
        stored = [jnp.asarray(self._arrays[f"{name}/{i}"]) for i in range(len(leaves))]
        curves = {curve: self._arrays[f"{name}/{curve}"] for curve in _CURVES}
        stopped = phase["stopped"] if phase["over"] else ""
        history = PhaseHistory(
            name, seconds=phase["seconds"], stopped=stopped, devices=tuple(phase["devices"]), **curves
        )
        return jax.tree.unflatten(structure, stored), history

    def save(self, name: str, state: State, history: PhaseHistory, over: bool) -> None:
        """Write the file anew, from the first process alone."""
        if jax.process_index() != 0:
            return
        for i, leaf in enumerate(jax.tree.leaves(state)):
            self._arrays[f"{name}/{i}"] = np.asarray(leaf)
        self._arrays |= {f"{name}/{curve}": getattr(history, curve) for curve in _CURVES}
        facts = {"seconds": history.seconds, "stopped": history.stopped, "devices": history.devices, "over": over}
        self._header["phases"][name] = facts
        save_arrays(self._path, self._arrays, self._header)
