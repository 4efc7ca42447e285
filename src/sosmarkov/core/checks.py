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


def is_concrete(x: object) -> bool:
    """Whether values can be looked at (false while JAX traces a function)."""
    return not isinstance(x, jax.core.Tracer)


def as_float(x: ArrayLike, name: str) -> Array:
    """A floating-point array of JAX's default precision, or a ValueError naming the argument."""
    try:
        on_device = isinstance(x, jax.Array)
        array: Any = x if on_device else np.asarray(x)
        if np.dtype(array.dtype).kind not in "biuf":
            raise TypeError(f"its entries are {array.dtype}, not real numbers")
        # Putting an array of the host on the device compiles nothing; `jnp.asarray` does, for every new shape.
        return array.astype(float) if on_device else jax.device_put(array.astype(float))
    except (TypeError, ValueError) as error:
        raise ValueError(f"Expected numbers for {name}, got {type(x).__name__}: {error}.") from error


def require_finite(x: Array | np.ndarray, name: str) -> None:
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


def listed(given: Any) -> list[Any]:
    """A list of what was given: of one name or number, or of several."""
    return [given] if isinstance(given, (int, np.integer, str)) else list(given)


def count(value: object, name: str, least: int = 0) -> int:
    """A whole number of at least `least`."""
    if not is_whole(value) or value < least:  # type: ignore[operator]
        raise ValueError(f"Expected a whole number >= {least} for {name}, got {value!r}.")
    return int(value)  # type: ignore[call-overload]


def is_whole(value: object) -> bool:
    """Whether it is a whole number, of Python's or NumPy's, and not a truth value."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def coordinates(
    chosen: Sequence[int | str] | int | str, dim: int, names: Sequence[str] | None = None
) -> tuple[int, ...]:
    """Distinct coordinates as indices below dim, given by name or by index, negative ones counted from the end.

    Names are those of the columns; x0, x1, ... where none are given.
    """
    given = listed(chosen)
    if not given:
        raise ValueError("Expected at least one coordinate, got none.")
    found = tuple(_place(one, dim, columns(names, dim)) for one in given)
    if len(set(found)) != len(found):
        raise ValueError(f"Expected distinct coordinates, got {given}.")
    return found


def _place(given: object, dim: int, names: tuple[str, ...]) -> int:
    if isinstance(given, str):
        if given not in names:
            raise ValueError(f"Expected coordinates among {list(names)}, got {given!r}.{near(given, names)}")
        return names.index(given)
    if not is_whole(given) or not -dim <= given < dim:  # type: ignore[operator]
        raise ValueError(f"Expected coordinates between 0 and {dim - 1}, got {given!r}.")
    return int(given) % dim  # type: ignore[call-overload]


def by_coordinate(values: Mapping[Any, Any], dim: int, names: Sequence[str] | None = None) -> dict[int, Any]:
    """A mapping from coordinates, by name or index, as one from indices in ascending order."""
    return dict(sorted(zip(coordinates(list(values), dim, names), values.values(), strict=True)))


def state(given: ArrayLike, dim: int, names: Sequence[str] | None = None) -> ArrayLike:
    """One state as it was given, or from a mapping with a number for each coordinate."""
    if not isinstance(given, Mapping):
        return given
    found, known = by_coordinate(given, dim, names) if given else {}, columns(names, dim)
    if len(found) < dim:
        missing = [name for c, name in enumerate(known) if c not in found]
        raise ValueError(f"Expected a number for each of the coordinates {list(known)}, got none for {missing}.")
    return _side(found, dim, np.nan)


def columns(names: Sequence[str] | None, dim: int) -> tuple[str, ...]:
    """A different name for each coordinate; x0, x1, ... where none are given."""
    if names is None:
        return tuple(f"x{c}" for c in range(dim))
    given = listed(names)
    if len(given) != dim or len(set(map(str, given))) != dim or not all(isinstance(n, str) and n for n in given):
        raise ValueError(f"Expected {dim} different names for the columns, got {given}.")
    return tuple(given)


def shape(wanted: Sequence[int] | int) -> tuple[int, ...]:
    """A shape from a number or a sequence of them."""
    return tuple(count(length, "shape", 1) for length in listed(wanted))


def powers(
    wanted: Sequence[int] | Mapping[Any, int], dim: int, names: Sequence[str] | None = None, most: int = 4
) -> tuple[int, ...]:
    """One power per coordinate, at most `most` together; those a mapping leaves out are zero."""
    if isinstance(wanted, Mapping):
        given = by_coordinate(wanted, dim, names)
        wanted = [given.get(c, 0) for c in range(dim)]
    found = tuple(count(power, "powers") for power in wanted)
    if len(found) != dim or sum(found) > most:
        raise ValueError(f"Expected {dim} powers with a sum of at most {most}, got {list(wanted)}.")
    return found


def fixed(values: Mapping[Any, Any], dim: int, names: Sequence[str] | None = None) -> dict[int, Any]:
    """Coordinates to fix and their finite values, in ascending order; one coordinate at least has to stay free."""
    if not isinstance(values, Mapping) or not values:
        raise ValueError(f"Expected a mapping from coordinates to values, such as {{1: 0.3}}, got {values!r}.")
    found = by_coordinate(values, dim, names)
    if len(found) == dim:
        raise ValueError(f"Expected at least one of {dim} coordinates left free, got values for all of them.")
    for value in found.values():
        require_finite(as_float(value, "values"), "values")
    return found


def shares(given: ArrayLike) -> Array:
    """Probabilities strictly between zero and one, at least one of them."""
    array = as_float(given, "shares")
    if array.size == 0 or (is_concrete(array) and not np.all((np.asarray(array) > 0) & (np.asarray(array) < 1))):
        raise ValueError(f"Expected shares strictly between 0 and 1, at least one, got {given}.")
    return array


def box_end(x: ArrayLike, dim: int, name: str, names: Sequence[str] | None = None) -> Array:
    """One end of a box, shape (..., dim) or one number for all coordinates; infinite allowed, NaN not.

    A mapping gives upper ends; coordinates it leaves out are open.
    """
    if isinstance(x, Mapping):
        x = _side(by_coordinate(x, dim, names), dim, np.inf)
    x = as_float(x, name)
    if x.ndim == 0:
        x = jnp.broadcast_to(x, (dim,))
    if x.shape[-1] != dim:
        raise ValueError(f"Expected {name} with {dim} coordinates on the last axis, got an array of shape {x.shape}.")
    if is_concrete(x) and np.any(np.isnan(x)):
        raise ValueError(f"Expected numbers or infinities for {name}, got NaN. Use -inf and inf for open ends.")
    return x


def ends(
    lower: ArrayLike, upper: ArrayLike | None, dim: int, names: Sequence[str] | None = None
) -> tuple[ArrayLike, ArrayLike]:
    """Both ends of boxes as they were given, or from a mapping of coordinates to (lower, upper), others open."""
    if not isinstance(lower, Mapping):
        if upper is None:
            raise ValueError(
                "Expected lower and upper ends of a box, or a mapping from coordinates to both, such as"
                " {'x0': (0, 1)}, got lower ends alone."
            )
        return lower, upper
    if upper is not None:
        raise ValueError(f"Expected a mapping from coordinates to (lower, upper) alone, got {upper!r} as upper ends.")
    pairs = by_coordinate(lower, dim, names) if lower else {}
    low, high = {}, {}
    for c, given in pairs.items():
        try:
            low[c], high[c] = given
        except (TypeError, ValueError):
            raise ValueError(f"Expected a pair (lower, upper) for each coordinate of a box, got {given!r}.") from None
    return _side(low, dim, -np.inf), _side(high, dim, np.inf)


def _side(given: Mapping[int, Any], dim: int, open_end: float) -> ArrayLike:
    """Ends of shape (..., dim) from those of some coordinates."""
    library: Any = np if all(map(is_concrete, given.values())) else jnp
    return library.stack(library.broadcast_arrays(*(given.get(c, open_end) for c in range(dim))), axis=-1)


def box(lower: ArrayLike, upper: ArrayLike | None, dim: int, names: Sequence[str] | None = None) -> tuple[Array, Array]:
    """Both ends of boxes, lower <= upper in every coordinate."""
    lower, upper = ends(lower, upper, dim, names)
    low, high = box_end(lower, dim, "lower"), box_end(upper, dim, "upper")
    if is_concrete(low) and is_concrete(high) and not np.all(np.asarray(low) <= np.asarray(high)):
        raise ValueError(f"Expected lower <= upper in every coordinate, got {low} and {high}.")
    return low, high
