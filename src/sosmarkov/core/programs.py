"""Functions compiled for the widest vectors a processor has."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sosmarkov.core import checks

P = ParamSpec("P")
R = TypeVar("R")


def jit_wide(function: Callable[P, R]) -> Callable[P, R]:
    """`eqx.filter_jit`, for functions that are mostly exponentials.

    XLA takes vectors of 256 bits unless it is asked for more: with AVX-512 a filter's step takes a quarter less when it
    is. Options are a program's, so they are left out where the function becomes part of another one (under `jit`,
    `grad` or `scan`), and on other devices.
    """
    plain = eqx.filter_jit(function)
    options: dict[str, Any] = {"compiler_options": {"xla_cpu_prefer_vector_width": 512}}
    wide = eqx.filter_jit(function, **options)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        own = jax.default_backend() == "cpu" and not _inside_another((args, kwargs))
        return (wide if own else plain)(*args, **kwargs)

    return call


def few_lengths(count: int, least: int = 1) -> int:
    """The power of two, `least` or more, that holds so many rows: programs are compiled for few lengths."""
    return max(least, 1 << max(0, count - 1).bit_length())


def filled_rows(rows: np.ndarray, least: int = 1) -> np.ndarray:
    """Rows (N, d), and after them the last one again up to `few_lengths`; zeros where there is none."""
    missing = few_lengths(len(rows), least) - len(rows)
    return np.pad(rows, ((0, missing), (0, 0)), mode="edge" if len(rows) else "constant")


def _inside_another(arguments: Any) -> bool:
    """Whether JAX traces: then an array made here, or one of the arguments, has no values to look at."""
    leaves = [jnp.zeros(()), *jax.tree.leaves(eqx.filter(arguments, eqx.is_array))]
    return not all(checks.is_concrete(leaf) for leaf in leaves)
