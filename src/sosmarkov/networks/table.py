"""What `fit_network` is given, as one array per block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
    wanted = None if blocks is None else {name: _Wanted.of(name, given) for name, given in blocks.items()}
    if is_frame(table):
        found = _from_frame(table, wanted)
    elif isinstance(table, Mapping):
        found = _from_mapping(table, wanted)
    elif wanted is None:
        raise ValueError("Expected blocks, such as {'x': 2, 'y': 1}, with a table that is an array, got none.")
    else:
        found = _split(as_columns(table, "table"), wanted)
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


class _Wanted(NamedTuple):
    """What a block takes of a table: so many coordinates under its own name, or the columns with these names."""

    width: int | None
    columns: list[str]

    @classmethod
    def of(cls, name: str, given: Any) -> _Wanted:
        """Of a number, a name, or several names."""
        if not isinstance(given, str) and np.ndim(given) == 0:
            return cls(checks.count(given, f"the dimension of {name!r}", least=1), [name])
        columns = checks.listed(given)
        if not columns:
            raise ValueError(f"Expected names of columns for every block, or a number for every block, got {given!r}.")
        return cls(None, columns)


def _split(whole: np.ndarray, blocks: Mapping[str, _Wanted]) -> dict[str, np.ndarray]:
    """Columns in the order of the blocks."""
    named = [name for name, one in blocks.items() if one.width is None]
    if named:
        raise ValueError(
            f"Expected numbers of coordinates for the blocks of an array, got names of columns for {named}."
            " Use a data frame or a mapping for these."
        )
    sizes = [one.width or 0 for one in blocks.values()]
    if sum(sizes) != whole.shape[1]:
        raise ValueError(
            f"Expected as many columns as the blocks have coordinates, {' + '.join(map(str, sizes))} = {sum(sizes)},"
            f" got {whole.shape[1]}."
        )
    return dict(zip(blocks, np.split(whole, np.cumsum(sizes)[:-1], axis=1), strict=True))


def _from_mapping(table: Mapping[str, Any], blocks: Mapping[str, _Wanted] | None) -> dict[str, np.ndarray]:
    arrays = {name: as_columns(values, name) for name, values in table.items()}
    if blocks is None:
        return arrays
    found = {}
    for name, (width, columns) in blocks.items():
        missing = [column for column in columns if column not in arrays]
        if missing:
            raise ValueError(f"Expected entries of the table among {list(arrays)}, got {missing} for block {name!r}.")
        found[name] = np.concatenate([arrays[column] for column in columns], axis=1)
        if width not in (None, found[name].shape[1]):
            raise ValueError(f"Expected {width} coordinates in block {name!r}, got {found[name].shape[1]}.")
    _require_once([column for one in blocks.values() if one.width is None for column in one.columns])
    return found


def _from_frame(table: Any, blocks: Mapping[str, _Wanted] | None) -> dict[str, np.ndarray]:
    frame = ArrowColumns(table)
    if blocks is None:
        blocks = {name: _Wanted(None, [name]) for name in chosen(frame, None, set())}
    numbered = [name for name, one in blocks.items() if one.width is not None]
    if len(numbered) == len(blocks):
        return _split(frame.stacked(chosen(frame, None, set())), blocks)
    if numbered:
        raise ValueError(f"Expected names of columns for every block, or a number for every block, got {numbered}.")
    every = [column for one in blocks.values() for column in one.columns]
    _require_once(every)
    values = frame.stacked(chosen(frame, every, set()))
    return _split(values, {name: _Wanted(len(one.columns), one.columns) for name, one in blocks.items()})


def _require_once(columns: list[str]) -> None:
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise ValueError(f"Expected each column in one block only, got {twice} in several.")
