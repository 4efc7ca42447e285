"""What `fit_network` is given, as one array per block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.data.frames import ArrowColumns, chosen, is_frame
from sosmarkov.data.given import as_columns

Blocks = Mapping[str, int | str | Sequence[str]]


def read_table(table: ArrayLike, blocks: Blocks | None) -> dict[str, np.ndarray]:
    """Samples by block, each of shape (N, d_i), all finite.

    Args:
        table: An array (N, D), a mapping from names to arrays (N, d) or (N,), or a data frame.
        blocks: From names to numbers of coordinates or to names of columns. None: every entry of the mapping, or
            every numeric column of the frame, is a block of its own.
    """
    if blocks is not None and (not isinstance(blocks, Mapping) or not blocks):
        raise ValueError(f"Expected a mapping from names to coordinates, such as {{'x': 2}}, got {blocks!r}.")
    if is_frame(table):
        found = _from_frame(table, blocks)
    elif isinstance(table, Mapping):
        found = _from_mapping(table, blocks)
    elif blocks is None:
        raise ValueError("Expected blocks, such as {'x': 2, 'y': 1}, with a table that is an array, got none.")
    else:
        found = _split(as_columns(table, "table"), blocks)
    lengths = {name: len(values) for name, values in found.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"Expected as many rows in every block, got {lengths}.")
    for name, values in found.items():
        bad = int(np.sum(~np.all(np.isfinite(values), axis=1)))
        if bad:
            raise ValueError(
                f"Expected finite numbers in block {name!r}, got {bad} rows of {len(values)} with NaN or infinite ones."
                " Remove or impute them first."
            )
    return found


def _split(whole: np.ndarray, blocks: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Columns in the order of the blocks."""
    named = [name for name, size in blocks.items() if isinstance(size, str) or not np.isscalar(size)]
    if named:
        raise ValueError(
            f"Expected numbers of coordinates for the blocks of an array, got names of columns for {named}."
            " Use a data frame or a mapping for these."
        )
    sizes = [checks.count(size, f"the dimension of {name!r}", least=1) for name, size in blocks.items()]
    if sum(sizes) != whole.shape[1]:
        raise ValueError(
            f"Expected as many columns as the blocks have coordinates, {' + '.join(map(str, sizes))} = {sum(sizes)},"
            f" got {whole.shape[1]}."
        )
    ends = np.cumsum([0, *sizes])
    return {name: whole[:, a:b] for name, a, b in zip(blocks, ends[:-1], ends[1:], strict=True)}


def _from_mapping(table: Mapping[str, Any], blocks: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    arrays = {name: as_columns(values, name) for name, values in table.items()}
    if blocks is None:
        return arrays
    found = {}
    for name, columns in blocks.items():
        # A number says how wide the entry of that name is; names say which entries are put side by side.
        listed = [name] if isinstance(columns, (int, np.integer)) else _listed(columns)
        missing = [column for column in listed if column not in arrays]
        if missing:
            raise ValueError(f"Expected entries of the table among {list(arrays)}, got {missing} for block {name!r}.")
        found[name] = np.concatenate([arrays[column] for column in listed], axis=1)
        if isinstance(columns, (int, np.integer)) and found[name].shape[1] != columns:
            raise ValueError(f"Expected {columns} coordinates in block {name!r}, got {found[name].shape[1]}.")
    _require_once(
        [column for columns in blocks.values() if not isinstance(columns, int) for column in _listed(columns)]
    )
    return found


def _from_frame(table: Any, blocks: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    frame = ArrowColumns(table)
    if blocks is not None and all(isinstance(size, (int, np.integer)) for size in blocks.values()):
        return _split(frame.stacked(chosen(frame, None, set())), blocks)
    blocks = {name: [name] for name in chosen(frame, None, set())} if blocks is None else blocks
    listed = {name: _listed(columns) for name, columns in blocks.items()}
    every = [column for columns in listed.values() for column in columns]
    _require_once(every)
    return _split(frame.stacked(chosen(frame, every, set())), {name: len(columns) for name, columns in listed.items()})


def _listed(columns: Any) -> list[str]:
    if isinstance(columns, str):
        return [columns]
    if isinstance(columns, (int, np.integer)) or not columns:
        raise ValueError(f"Expected names of columns for every block, or a number for every block, got {columns!r}.")
    return list(columns)


def _require_once(columns: list[str]) -> None:
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise ValueError(f"Expected each column in one block only, got {twice} in several.")
