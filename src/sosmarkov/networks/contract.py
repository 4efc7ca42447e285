"""Exact answers as one contraction of a network's tensors.

Every block is integrated over its domain or a box, fixed at a point, or left open. One einsum, whose path knows how
many points there are, does the rest: what does not depend on the points is contracted once.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import opt_einsum
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.networks.model import MOST_ENTRIES, Model, integrals, pair_values


class Question(NamedTuple):
    """What to do with some of the blocks; the others are integrated over their domains. By position.

    Attributes:
        points: Where blocks are fixed, in model space: shape (d,) once for all, or (Z, d).
        boxes: Ends of boxes to integrate over, each (Z, d).
        tables: What to use in place of a block's integrals V: shape (k, *V.shape); k is an axis of the answer.
        opened: Blocks whose integrals are left out: the answer has their pairs as axes, in the order of V.
    """

    points: dict[int, Array] = {}
    boxes: dict[int, tuple[Array, Array]] = {}
    tables: dict[int, Array] = {}
    opened: tuple[int, ...] = ()


class Answer(NamedTuple):
    """The contraction is `value * exp(log_scale)`, with an error of about `rounding * exp(log_scale)`.

    The error is measured: it is how much the value changes when every entry of every tensor moves by a few units in
    the last place, up or down at random. A bound from absolute values would multiply up from block to block.

    The axes of the value are Z where there are several points or boxes, then those of tables, then those of opened.
    """

    value: Array
    rounding: Array
    log_scale: Float[Array, "*z"]

    @property
    def log(self) -> Array:
        """Log of the value, for answers without further axes."""
        return jnp.log(self.value) + self.log_scale

    @property
    def lost(self) -> Array:
        """Whether rounding is as large as the value."""
        return ~(self.value > 4.0 * self.rounding)


class _Operands:
    """Arrays and the names of their axes, collected."""

    def __init__(self, model: Model):
        blocks = len(model.structure.names)
        self._edge = {edge: blocks + number for number, edge in enumerate(model.structure.edges)}
        self.batch = blocks + len(self._edge)
        self.arrays: list[Array] = []
        self.axes: list[list[int]] = []

    def of_f(self, model: Model, block: int) -> list[int]:
        """Axes of f_i: the pairs of each parent's functions, then of psi_i."""
        return [*(self._edge[block, k] for k in range(len(model.structure.parents[block]))), block]

    def of_table(self, model: Model, block: int) -> list[int]:
        """Axes of V_i: the pairs of psi_i, then of each child's functions."""
        return [block, *(self._edge[edge] for edge in model.structure.children(block))]

    def add(self, array: Array, axes: list[int], *, batched: bool = False) -> None:
        self.arrays.append(array)
        self.axes.append([self.batch, *axes] if batched else axes)


def contract(model: Model, asked: Question) -> Answer:
    """The integral of the joint density that a question describes, in model space."""
    structure, operands = model.structure, _Operands(model)
    log_scale = jnp.zeros(())
    table_axes, open_axes = [], []
    known = [
        i
        for i, parents in enumerate(structure.parents)
        if i in asked.points and all(j in asked.points for j in parents)
    ]
    for i in range(len(structure.names)):
        if i in known:
            # Nothing is left to integrate in f_i: a sum of squares, evaluated as such.
            log_scale = log_scale + _log_f(model, i, asked.points)
        else:
            operands.add(model.tensors[i], operands.of_f(model, i))
    for i in range(len(structure.names)):
        if i in asked.points:
            log_scale = log_scale + _add_point(operands, model, i, asked.points[i], known)
        elif i in asked.opened:
            open_axes += operands.of_table(model, i)
        elif i in asked.tables:
            table_axes.append(operands.batch + 1 + len(table_axes))
            operands.add(asked.tables[i], [table_axes[-1], *operands.of_table(model, i)])
        elif i in asked.boxes:
            bases = model.bases(i)
            tables = jax.vmap(lambda low, high, bases=bases: integrals(bases, low, high))(*asked.boxes[i])
            operands.add(tables, operands.of_table(model, i), batched=True)
        else:
            operands.add(model.tables[i], operands.of_table(model, i))
    return _einsum(operands, table_axes + open_axes, log_scale)


@eqx.filter_jit
def answer(model: Model, asked: Question) -> Answer:
    """`contract` as a program of its own."""
    return contract(model, asked)


def _log_f(model: Model, block: int, points: dict[int, Array]) -> Array:
    """log f_i where the block and its parents are known, shape () or (Z,)."""
    parents = model.structure.parents[block]
    at = [points[j] for j in (*parents, block)]
    function = lambda *y: model.kernels[block].log_value(y[:-1], y[-1])  # noqa: E731
    if all(y.ndim == 1 for y in at):
        return function(*at)
    return jax.vmap(function, in_axes=tuple(0 if y.ndim == 2 else None for y in at))(*at)


def _add_point(operands: _Operands, model: Model, block: int, y: Array, known: list[int]) -> Array:
    """Values of the block's functions at the points, as far as some f needs them; the logarithm of their scale."""
    needed = [] if block in known else [(model.kernels[block].psi, block)]
    axes = operands.of_table(model, block)[1:]
    for (child, position), axis in zip(model.structure.children(block), axes, strict=True):
        if child not in known:
            needed.append((model.kernels[child].phi[position], axis))
    total = jnp.zeros(())
    for basis, axis in needed:
        evaluate = lambda y, basis=basis: pair_values(basis, y)  # noqa: E731
        values, log_scale = jax.vmap(evaluate)(y) if y.ndim == 2 else evaluate(y)
        operands.add(values, [axis], batched=y.ndim == 2)
        total = total + log_scale
    return total


def _einsum(operands: _Operands, output: list[int], log_scale: Array) -> Answer:
    if not operands.arrays:
        return Answer(jnp.ones_like(log_scale), jnp.zeros_like(log_scale), log_scale)
    batched = any(operands.batch in axes for axes in operands.axes)
    output = [operands.batch, *output] if batched else output
    names = [*(_letters(axes) for axes in operands.axes), _letters(output)]
    equation = ",".join(names[:-1]) + "->" + names[-1]
    shapes = [array.shape for array in operands.arrays]
    path, info = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize="auto")
    largest = int(info.largest_intermediate)
    if largest > MOST_ENTRIES:
        raise ValueError(
            f"Expected a contraction with tables of at most {MOST_ENTRIES:.0e} entries, got one of {largest:.1e}: the"
            " blocks depend on each other in too many ways. Use fewer functions or edges, or ask about fewer blocks."
        )
    path = [tuple(pair) for pair in path]
    value = jnp.einsum(equation, *operands.arrays, optimize=path)
    moved = jnp.einsum(equation, *map(_moved, operands.arrays), optimize=path)
    return Answer(value, lax.stop_gradient(jnp.abs(moved - value)), log_scale)


def _moved(array: Array) -> Array:
    """Every entry 2 units in the last place larger or smaller, as the bits of a hash of its place say."""
    place = lax.iota(jnp.uint32, array.size).reshape(array.shape)
    up = ((place * jnp.uint32(2654435761)) >> 16) & 1
    shift = 2.0 * jnp.finfo(array.dtype).eps
    return lax.stop_gradient(array) * (1.0 + shift * jnp.where(up == 1, 1.0, -1.0))


def _letters(axes: list[int]) -> str:
    return "".join(opt_einsum.get_symbol(axis) for axis in axes)
