"""How programs are compiled, and for how long they are kept.

JAX keeps the last 4,096 programs, and what each was traced to: some 7 MB and 70 memory mappings a program of ours. A
process that fits models of ever other sizes would hold gigabytes, and after a dozen of them the 65,530 mappings that
Linux grants, at which it dies. So all programs are dropped once they fill `SOSMARKOV_PROGRAM_MEMORY` megabytes (1,000
where the environment does not say; 0 for no limit but that on mappings); what is used again is compiled again.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sosmarkov.core import checks

P = ParamSpec("P")
R = TypeVar("R")


def traced_once(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    """What is called from everywhere is traced once for each shape, and stands in the caller's program as before.

    Tracing is most of what a first call costs.
    """
    return jax.jit(function, inline=True, **options)


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


class Bound:
    """Told of every compilation; drops all programs when they have become too many.

    Memory is the process's own, since programs were last dropped: it is known at once, programs' own is not. Looking
    only now and then bounds how often the programs in use are compiled again, whatever else fills the memory.

    Args:
        most: Bytes that programs may fill; 0 for no limit.
    """

    every = 16
    compiled = "/jax/core/compile/backend_compile_duration"
    # Where the system does not say what a process holds.
    typical = 7_000_000

    def __init__(self, most: float):
        self.most = most or float("inf")
        self.mappings = 0.75 * _number("/proc/sys/vm/max_map_count", float("inf"))
        self.count, self.before = 0, _resident()

    def __call__(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        """A listener of `jax.monitoring`: it runs inside of a call that compiles, and must run no program itself."""
        if event == self.compiled:
            self.count += 1
            if self.count % self.every == 0 and self.is_full():
                self.drop()

    def is_full(self) -> bool:
        """Whether programs fill more than they may."""
        now = _resident()
        if now is None or self.before is None:
            return self.count * self.typical > self.most
        self.before = min(self.before, now)
        return now - self.before > self.most or _mappings() > self.mappings

    def drop(self) -> None:
        """Drop all programs, and hand their memory back to the system."""
        jax.clear_caches()
        gc.collect()
        if hasattr(_LIBC, "malloc_trim"):
            _LIBC.malloc_trim(0)
        self.count, self.before = 0, _resident()


def _resident() -> float | None:
    """Bytes of memory this process holds; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * float(os.sysconf("SC_PAGESIZE"))


def _mappings() -> int:
    return Path("/proc/self/maps").read_bytes().count(b"\n")


def _number(path: str, otherwise: float) -> float:
    try:
        return float(Path(path).read_text())
    except OSError:
        return otherwise


_LIBC = ctypes.CDLL(None) if os.name == "posix" else None
BOUND = Bound(1e6 * float(os.environ.get("SOSMARKOV_PROGRAM_MEMORY", 1000)))
jax.monitoring.register_event_duration_secs_listener(BOUND)
