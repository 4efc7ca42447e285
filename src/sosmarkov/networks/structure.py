"""Which blocks there are and which depends on which: names, dimensions, parents, in topological order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike


class Structure(NamedTuple):
    """A directed acyclic graph over blocks of coordinates.

    Attributes:
        names: Of the B blocks, parents before children.
        dims: Coordinates of each.
        parents: Of each block the positions of its parents.
    """

    names: tuple[str, ...]
    dims: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...]

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """(child, position among the child's parents) of every edge."""
        return tuple((child, k) for child, listed in enumerate(self.parents) for k in range(len(listed)))

    def children(self, block: int) -> tuple[tuple[int, int], ...]:
        """(child, position among the child's parents) of every edge out of a block."""
        return tuple((child, k) for child, k in self.edges if self.parents[child][k] == block)

    def positions(self, names: str | Iterable[str]) -> tuple[int, ...]:
        """Of several distinct blocks, at least one, in the order given."""
        listed = checks.listed(names)
        if not listed:
            raise ValueError(f"Expected at least one block among {list(self.names)}, got none.")
        if len(set(listed)) != len(listed):
            raise ValueError(f"Expected each block once, got {listed}.")
        for name in listed:
            if name not in self.names:
                raise ValueError(f"Expected a block among {list(self.names)}, got {name!r}.")
        return tuple(map(self.names.index, listed))


def make_structure(dims: Mapping[str, int], parents: Mapping[str, str | Sequence[str]]) -> Structure:
    """The graph, checked: known names, each parent once, no cycle, parents before children.

    Args:
        dims: Coordinates of each block, in topological order.
        parents: Of each block that has any, the names of its parents.
    """
    names = tuple(dims)
    if not names:
        raise ValueError("Expected at least one block, got none.")
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"Expected names as strings for the blocks, got {name!r}.")
    listed = {name: checks.listed(parents.get(name, ())) for name in names}
    strangers = [name for name in parents if name not in dims]
    if strangers:
        raise ValueError(f"Expected parents of blocks among {list(names)}, got them of {strangers}.")
    for name, given in listed.items():
        missing = [parent for parent in given if parent not in dims]
        if missing:
            raise ValueError(f"Expected parents of {name!r} among the blocks {list(names)}, got {missing}.")
        if len(set(given)) != len(given):
            raise ValueError(f"Expected each parent of {name!r} once, got {given}.")
    _require_order(names, listed)
    return Structure(
        names,
        tuple(checks.count(dims[name], f"the dimension of {name!r}", least=1) for name in names),
        tuple(tuple(names.index(parent) for parent in listed[name]) for name in names),
    )


def _require_order(names: tuple[str, ...], parents: Mapping[str, Collection[str]]) -> None:
    try:
        order = list(TopologicalSorter(parents).static_order())
    except CycleError as error:
        # Each name in the sorter's cycle is a parent of the one after it.
        raise ValueError(f"Expected a graph without cycles, got {' -> '.join(error.args[1])}.") from None
    for place, name in enumerate(names):
        late = [parent for parent in parents[name] if names.index(parent) > place]
        if late:
            raise ValueError(
                f"Expected blocks in topological order, parents first, got {name!r} before its parent {late[0]!r}."
                f" An order that fits is {order}."
            )


def read_points(structure: Structure, blocks: tuple[int, ...], values: ArrayLike) -> dict[int, Array]:
    """Values of some blocks, of a common leading shape: each (..., d_i), by position.

    Args:
        structure: Whose blocks.
        blocks: The positions expected, all of them.
        values: A mapping from names to arrays (..., d_i), single numbers allowed for d_i = 1; or an array (..., D) of
            all coordinates in the order of the blocks.
    """
    if isinstance(values, Mapping):
        found = dict(zip(structure.positions(values), values.values(), strict=True))
        if set(found) != set(blocks):
            wanted = [structure.names[i] for i in blocks]
            raise ValueError(f"Expected values of the blocks {wanted}, got them of {list(values)}.")
        read = {i: read_point(structure, i, found[i]) for i in blocks}
    else:
        whole = checks.states(values, sum(structure.dims[i] for i in blocks), "values")
        ends = np.cumsum([0, *(structure.dims[i] for i in blocks)])
        read = {i: whole[..., a:b] for i, a, b in zip(blocks, ends[:-1], ends[1:], strict=True)}
    shapes = {structure.names[i]: value.shape for i, value in read.items()}
    try:
        shape = np.broadcast_shapes(*(value.shape[:-1] for value in read.values()))
    except ValueError:
        raise ValueError(f"Expected values whose leading axes fit together, got shapes {shapes}.") from None
    return {i: jnp.broadcast_to(value, (*shape, value.shape[-1])) for i, value in read.items()}


def read_point(structure: Structure, block: int, value: ArrayLike) -> Array:
    """Values of one block, shape (..., d_i)."""
    value = checks.as_float(value, structure.names[block])
    if value.ndim == 0:
        value = value[None]
    return checks.states(value, structure.dims[block], f"values of {structure.names[block]!r}")
