"""A model as a tree of JSON and a table of arrays, and back; see docs/format.md for the grammar."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import jaxtyped

from sosmarkov.core.checks import is_concrete
from sosmarkov.core.stored import ENTRIES, Entry, Fields, bare, entry_of, require

_INFINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_SEQUENCES = {"tuple": tuple, "list": list}
_ARRAYS = (np.ndarray, Array)


class Writer:
    """Turns objects into JSON, and collects their arrays: equal ones once."""

    def __init__(self):
        self.arrays: dict[str, np.ndarray] = {}
        self._seen: dict[tuple, str] = {}

    def encode(self, value: Any) -> Any:
        """The JSON of a value."""
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, float, np.bool_, np.integer, np.floating)):
            return _number(value)
        if isinstance(value, _ARRAYS):
            return {"array" if isinstance(value, Array) else "numpy": self._keep(value)}
        if type(value) in _SEQUENCES.values():
            return {type(value).__name__: [self.encode(part) for part in value]}
        if isinstance(value, Mapping) and set(map(type, value)) <= {str}:
            return {"dict": {key: self.encode(part) for key, part in value.items()}}
        entry = entry_of(type(value))
        if entry is not None:
            return self._object(value, entry)
        raise ValueError(
            "Expected a model made of parts that files know to write, got an object of class"
            f" {type(value).__qualname__}, which no model file can name: a file holds numbers, never code. Make a class"
            " of your own known with sosmarkov.register, or build the model anew from its parameters."
        )

    def _object(self, value: Any, entry: Entry) -> dict:
        value = value if entry.read is None else entry.read(value)
        fields = {key: self.encode(getattr(value, key)) for key in entry.fields}
        node = {"class": entry.kind.__name__, "fields": fields}
        if not entry.derived:
            return node
        leaves = jax.tree.leaves([getattr(value, key) for key in entry.derived])
        return node | {"derived": [self._keep(leaf) for leaf in leaves]}

    def _keep(self, array: Any) -> str:
        if not is_concrete(array):
            raise ValueError("Expected a model with values to write, got one that is being traced by JAX.")
        array = np.asarray(array)
        key = (array.dtype.str, array.shape, hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest())
        if key not in self._seen:
            self._seen[key] = str(len(self._seen))
            self.arrays[self._seen[key]] = array
        return self._seen[key]


class Reader:
    """Turns JSON back into objects; everything is checked before it is used."""

    def __init__(self, arrays: dict[str, np.ndarray]):
        self._arrays = arrays
        self._given: dict[str, Array] = {}
        self._used: set[str] = set()

    @property
    def unused(self) -> list[str]:
        """Arrays that nothing refers to."""
        return sorted(set(self._arrays) - self._used)

    def decode(self, node: Any) -> Any:
        """The value of some JSON."""
        if type(node) in (types.NoneType, bool, int, float, str):
            return node
        require(type(node) is dict, f"an object in the tree of a model, got {type(node).__name__}")
        if "class" in node:
            return self._object(node)
        require(len(node) == 1, f"one entry in a part of the tree that is no class, got {sorted(node)}")
        ((kind, content),) = node.items()
        if kind == "array":
            return self._array(content)
        if kind == "numpy":
            return self._stored(content)
        if kind == "number":
            require(type(content) is str and content in _INFINITE, f"inf, -inf or nan, got {content!r}")
            return _INFINITE[content]
        if kind == "dict":
            require(type(content) is dict, f"a mapping, got {type(content).__name__}")
            return {key: self.decode(part) for key, part in content.items()}
        require(kind in _SEQUENCES, f"a known kind of part in the tree of a model, got {kind!r}")
        require(type(content) is list, f"a list, got {type(content).__name__}")
        return _SEQUENCES[kind](self.decode(part) for part in content)

    def _object(self, node: dict) -> Any:
        name, fields = node["class"], node.get("fields")
        if type(name) is not str or name not in ENTRIES:
            raise ValueError(
                f"Expected a class this version knows, got {name!r}. A newer version may have written it. If it is of"
                " your own, import the module that defines it first. Else it is no model file."
            )
        entry = ENTRIES[name]
        wanted = {"class", "fields", "derived"} if entry.derived else {"class", "fields"}
        require(set(node) == wanted, f"{sorted(wanted)} of {name}, got {sorted(node)}")
        if type(fields) is not dict or set(fields) | set(entry.optional) != set(entry.fields):
            got = sorted(fields) if type(fields) is dict else fields
            raise ValueError(f"Expected the fields {sorted(entry.fields)} of {name}, got {got}.")
        found = {key: self.decode(fields.get(key)) for key in entry.fields}
        _require_types(name, entry, found)
        if entry.derived:
            value = self._completed(name, entry, found, node["derived"])
        else:
            value = bare(entry.kind, found) if entry.make is None else entry.make(found)
        for one in reversed(entry.kind.__mro__):
            vars(one).get("__check_init__", _nothing)(value)
        if entry.check is not None:
            entry.check(value)
        return value

    def _completed(self, name: str, entry: Entry, fields: Fields, derived: Any) -> Any:
        """An object with derived fields: their structure by tracing its constructor, their numbers from the file."""
        assert entry.make is not None
        skeleton = eqx.filter_eval_shape(entry.make, fields)
        leaves, structure = jax.tree.flatten([getattr(skeleton, key) for key in entry.derived])
        require(type(derived) is list, f"a list of derived arrays of {name}")
        given = [self._array(one) for one in derived]
        shapes = [(a.shape, a.dtype) for a in given], [(a.shape, a.dtype) for a in leaves]
        require(shapes[0] == shapes[1], f"derived arrays of {name} of the shapes its parameters imply, got others")
        require(all(np.all(np.isfinite(a)) for a in given), f"finite derived arrays of {name}")
        values = dict(zip(entry.derived, jax.tree.unflatten(structure, given), strict=True))
        own = {field.name for field in dataclasses.fields(entry.kind)}
        return bare(entry.kind, {key: part for key, part in fields.items() if key in own} | values)

    def _stored(self, name: Any) -> np.ndarray:
        require(type(name) is str and name in self._arrays, f"an array of the file, got {name!r}")
        self._used.add(name)
        return self._arrays[name]

    def _array(self, name: Any) -> Array:
        stored = self._stored(name)
        # One array for all places that share it: beliefs of a process are told by the arrays they share with it.
        if name not in self._given:
            kinds = ("float64", "int64", "int32", "bool")
            require(stored.dtype.name in kinds, f"double precision or whole numbers, got {stored.dtype}")
            self._given[name] = jnp.asarray(stored)
        return self._given[name]


def _number(value: Any) -> Any:
    value = np.asarray(value).item()
    if not math.isfinite(value):
        return {"number": next(name for name, one in _INFINITE.items() if one == value or name == str(value))}
    return value


def _nothing(value: Any) -> None:
    del value


@cache
def _hints(kind: type, names: tuple[str, ...]) -> dict[str, Any]:
    """What attributes and properties of a class are declared to be."""
    declared = get_type_hints(kind)
    asked = {name: getattr(kind, name).fget for name in names if name not in declared}
    return declared | {name: get_type_hints(get)["return"] for name, get in asked.items()}


def _require_types(name: str, entry: Entry, fields: Fields) -> None:
    """Refuse fields that their class's annotations do not allow; letters in shapes mean one number throughout."""
    hints = _hints(entry.kind, entry.fields)
    with jaxtyped("context"):
        for key, value in fields.items():
            got = f"an array of shape {value.shape}" if isinstance(value, _ARRAYS) else type(value).__name__
            require(_fits(value, hints[key]), f"{key} of {name} as its class declares it, got {got}")
    for key, value in fields.items():
        for part in jax.tree.leaves(value, is_leaf=lambda one: isinstance(one, eqx.Module)):
            if isinstance(part, Array):
                require(part.size > 0, f"numbers in {key} of {name}, got none")
                require(entry.infinite or bool(np.all(np.isfinite(part))), f"finite numbers in {key} of {name}")


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    if hint in (bool, int, float, str, type(None), None):
        return value is None if hint in (None, type(None)) else type(value) is hint
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is tuple:
        if type(value) is not tuple:
            return False
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return all(_fits(part, arguments[0]) for part in value)
        return len(value) == len(arguments) and all(map(_fits, value, arguments))
    if origin is dict:
        return type(value) is dict and all(_fits(part, arguments[1]) for part in value.values())
    # A record that also reads as a mapping is stored as one.
    return isinstance(value, dict if issubclass(hint, Mapping) else hint)
