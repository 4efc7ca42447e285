"""What the library says to arrays it cannot use: expected, got, what to do.

Values are looked at with NumPy: JAX would compile a program for every shape it meets.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array

# What users may hand over as numbers: arrays of any library, scalars, nested lists. Converted and
# checked at the boundary by the functions below.
ArrayLike = Any


def is_concrete(x: Array | np.ndarray) -> bool:
    """Whether values can be looked at (false while JAX traces a function)."""
    return not isinstance(x, jax.core.Tracer)


def as_float(x: ArrayLike, name: str) -> Array:
    """A floating-point array of JAX's default precision, or a ValueError naming the argument."""
    try:
        array = x if isinstance(x, jax.Array) else np.asarray(x)
        if np.dtype(array.dtype).kind not in "biuf":
            raise TypeError(f"its entries are {array.dtype}, not real numbers")
        # Putting an array of the host on the device compiles nothing; `jnp.asarray` does, for every new shape.
        return array.astype(float) if isinstance(array, jax.Array) else jax.device_put(array.astype(float))
    except (TypeError, ValueError) as error:
        raise ValueError(f"Expected numbers for {name}, got {type(x).__name__}: {error}.") from error


def require_finite(x: Array, name: str) -> None:
    """Refuse NaN and infinite values (checked on concrete arrays only)."""
    if is_concrete(x) and not np.all(np.isfinite(x)):
        bad = int(np.sum(~np.isfinite(x)))
        raise ValueError(
            f"Expected finite numbers for {name}, got {bad} NaN or infinite of {x.size}. Remove or impute them first."
        )


def require_positive(x: Array | np.ndarray, name: str) -> None:
    """Refuse zero and negative values (checked on concrete arrays only)."""
    if is_concrete(x) and not np.all(np.asarray(x) > 0):
        raise ValueError(f"Expected positive numbers for {name}, got a smallest of {float(np.min(x)):g}.")


def states(x: ArrayLike, dim: int, name: str = "states") -> Array:
    """States as an array of shape (..., dim), finite.

    A 1-D process also takes arrays without the last axis of length one only where it is there:
    the last axis is always the state.
    """
    x = as_float(x, name)
    if x.ndim == 0 or x.shape[-1] != dim:
        raise ValueError(f"Expected {name} with {dim} coordinates on the last axis, got an array of shape {x.shape}.")
    require_finite(x, name)
    return x


def inputs(u: ArrayLike, dim: int) -> Array:
    """Finite inputs of shape (..., dim), or a ValueError; a number is one input."""
    array = as_float(u, "inputs")
    if array.ndim == 0 and dim == 1:
        array = array[None]
    if array.ndim == 0 or array.shape[-1] != dim:
        raise ValueError(f"Expected inputs of shape (..., {dim}), got {array.shape}.")
    require_finite(array, "inputs")
    return array


def parameter(x: ArrayLike, name: str, shape: Sequence[int | None]) -> Array:
    """A finite parameter array of the given shape, None standing for any length of at least one."""
    x = as_float(x, name)
    fits = x.ndim == len(shape) and all(
        (length >= 1 if wanted is None else length == wanted) for length, wanted in zip(x.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any >= 1" if length is None else str(length) for length in shape)
        raise ValueError(f"Expected {name} of shape ({wanted}), got {x.shape}.")
    require_finite(x, name)
    return x


def one_of(value: object, known: Iterable[str], name: str) -> str:
    """One of the known words, or a ValueError that guesses which one was meant."""
    words = list(known)
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"Expected {name} one of {', '.join(words)}, got {value!r}.{near(value, words)}")
    return value


def near(word: object, known: Iterable[str]) -> str:
    """A guess at which of the known words was meant, as a sentence; empty where none is close."""
    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def count(value: object, name: str, least: int = 0) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"Expected a whole number >= {least} for {name}, got {value!r}.")
    return int(value)


def coordinates(chosen: Sequence[int] | int, dim: int) -> tuple[int, ...]:
    """Distinct coordinate indices below dim, negative ones counted from the end."""
    listed = [chosen] if isinstance(chosen, (int, np.integer)) else list(chosen)
    if not listed:
        raise ValueError("Expected at least one coordinate, got none.")
    found = []
    for index in listed:
        whole = isinstance(index, (int, np.integer)) and not isinstance(index, bool)
        if not whole or not -dim <= index < dim:
            raise ValueError(f"Expected coordinates between 0 and {dim - 1}, got {index!r}.")
        found.append(int(index) % dim)
    if len(set(found)) != len(found):
        raise ValueError(f"Expected distinct coordinates, got {listed}.")
    return tuple(found)


def columns(names: Sequence[str] | None, dim: int) -> tuple[str, ...]:
    """A different name for each coordinate; x0, x1, ... where none are given."""
    if names is None:
        return tuple(f"x{c}" for c in range(dim))
    listed = [names] if isinstance(names, str) else list(names)
    if len(listed) != dim or len(set(map(str, listed))) != dim or not all(isinstance(n, str) and n for n in listed):
        raise ValueError(f"Expected {dim} different names for the columns, got {listed}.")
    return tuple(listed)


def shape(wanted: Sequence[int] | int) -> tuple[int, ...]:
    """A shape from a number or a sequence of them."""
    listed = [wanted] if isinstance(wanted, (int, np.integer)) else list(wanted)
    return tuple(count(length, "shape", 1) for length in listed)


def powers(wanted: Sequence[int], dim: int, most: int = 4) -> tuple[int, ...]:
    """One power per coordinate, at most `most` together."""
    found = tuple(count(power, "powers") for power in wanted)
    if len(found) != dim or sum(found) > most:
        raise ValueError(f"Expected {dim} powers with a sum of at most {most}, got {list(wanted)}.")
    return found


def fixed(values: Mapping[int, Any], dim: int) -> dict[int, Any]:
    """Coordinates to fix and their finite values, in ascending order; one coordinate at least has to stay free."""
    if not isinstance(values, Mapping) or not values:
        raise ValueError(f"Expected a mapping from coordinates to values, such as {{1: 0.3}}, got {values!r}.")
    where = coordinates(list(values), dim)
    if len(where) == dim:
        raise ValueError(f"Expected at least one of {dim} coordinates left free, got values for all of them.")
    for value in values.values():
        require_finite(as_float(value, "values"), "values")
    return dict(sorted(zip(where, values.values(), strict=True)))


def box_end(x: ArrayLike, dim: int, name: str) -> Array:
    """One end of a box, shape (..., dim) or one number for all coordinates; infinite allowed, NaN not."""
    x = as_float(x, name)
    if x.ndim == 0:
        x = jnp.broadcast_to(x, (dim,))
    if x.shape[-1] != dim:
        raise ValueError(f"Expected {name} with {dim} coordinates on the last axis, got an array of shape {x.shape}.")
    if is_concrete(x) and np.any(np.isnan(x)):
        raise ValueError(f"Expected numbers or infinities for {name}, got NaN. Use -inf and inf for open ends.")
    return x


def box(lower: ArrayLike, upper: ArrayLike, dim: int) -> tuple[Array, Array]:
    """Both ends of boxes, lower <= upper in every coordinate."""
    low, high = box_end(lower, dim, "lower"), box_end(upper, dim, "upper")
    if is_concrete(low) and is_concrete(high) and not np.all(np.asarray(low) <= np.asarray(high)):
        raise ValueError(f"Expected lower <= upper in every coordinate, got {low} and {high}.")
    return low, high
