"""Where draws come from: a JAX key, a whole number or a NumPy generator, each turned into what a form draws by."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def generator(key: Any) -> np.random.Generator:
    """A NumPy generator from a JAX key, a whole number (a seed), or a generator, which is used as it is.

    The same key or number gives the same draws. JAX is not imported: a key cannot be there without it.
    """
    if isinstance(key, np.random.Generator):
        return key
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool) and key >= 0:
        return np.random.default_rng(int(key))
    if is_key(key):
        return np.random.default_rng(_words(key))
    raise ValueError(
        "Expected a JAX key, a whole number from zero or a NumPy generator to draw with, got"
        f" {key if isinstance(key, (int, float)) else type(key).__name__}."
    )


def split(key: Any, count: int) -> list[Any]:
    """Independent keys, of the kind of the one given: JAX's for a JAX key, else generators."""
    if is_key(key):
        return list(sys.modules["jax"].random.split(key, count))
    return list(generator(key).spawn(count))


def jax_key(key: Any) -> Any:
    """A JAX key from any of them, for what is drawn by JAX."""
    if is_key(key):
        return key
    import jax

    return jax.random.key(int(generator(key).integers(2**63)))


def is_key(key: Any) -> bool:
    """Whether it is a key of JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(key, jax.Array)


def _words(key: Any) -> list[int]:
    """The whole numbers one key consists of."""
    jax = sys.modules["jax"]
    if isinstance(key, jax.core.Tracer):
        raise ValueError("Expected a key with values to draw with NumPy, got one that is being traced by JAX.")
    words = np.asarray(jax.random.key_data(key) if jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key) else key)
    if words.ndim != 1 or words.dtype.kind != "u":
        raise ValueError(f"Expected one key to draw with, got an array of shape {key.shape} and type {key.dtype}.")
    return [int(word) for word in words]
