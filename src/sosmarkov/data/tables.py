"""Data files in and tables out: CSV and Parquet (by pyarrow), NPZ and NPY (by NumPy)."""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sosmarkov.core.files import write_atomic
from sosmarkov.data.doubts import about_left_out
from sosmarkov.data.frames import ArrowColumns, Columns, arrange, arrow, chosen, is_number
from sosmarkov.data.recorded import Recorded
from sosmarkov.data.wide import from_wide

_TEXT = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
_PARQUET = (".parquet", ".pq")
READABLE = (*_TEXT, *_PARQUET, ".npz", ".npy")
WRITABLE = (".csv", *_PARQUET, ".npz")
# Cells that other tools write where there is nothing, beside pyarrow's own (empty, NA, N/A, NaN, null, ...).
_MISSING = ("-", "--", "?", ".", "none", "None", "missing", "#VALUE!", "#DIV/0!")


class NumpyColumns(Columns):
    """Named arrays of one length."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self._arrays = dict(arrays)

    @property
    def names(self) -> list[str]:
        """All columns, in order."""
        return list(self._arrays)

    @property
    def numeric(self) -> list[str]:
        """Real numbers."""
        return [name for name, array in self._arrays.items() if array.dtype.kind in "iuf"]

    def numbers(self, name: str) -> np.ndarray:
        """One column as float64."""
        array = self._arrays[name]
        if array.dtype.kind not in "biuf":
            raise ValueError(f"Expected numbers in column {name!r}, got {array.dtype}.")
        return array.astype(float)

    def moments(self, name: str) -> np.ndarray:
        """Numbers, or dates."""
        array = self._arrays[name]
        return array.astype("datetime64[ns]") if array.dtype.kind == "M" else self.numbers(name)

    def labels(self, name: str) -> tuple[np.ndarray, list[Any]]:
        """In the order they first appear."""
        array = self._arrays[name]
        found, first, code = np.unique(array, return_index=True, return_inverse=True)
        order = np.argsort(first)
        codes = np.argsort(order)[code.reshape(-1)]
        missing = np.isnan(array) if array.dtype.kind == "f" else np.zeros(len(array), bool)
        return np.where(missing, -1, codes), found[order].tolist()


def read(
    path: Path,
    *,
    columns: Sequence[str] | None = None,
    trajectory: str | None = None,
    time: str | None = None,
    inputs: Sequence[str] | None = None,
    wide: bool = False,
) -> Recorded:
    """Trajectories from a file.

    Args:
        path: CSV, TSV, Parquet, NPZ or NPY.
        columns: The coordinates; None: all numeric columns but those below.
        trajectory: The column that tells trajectories apart.
        time: The column of times, numbers or dates.
        inputs: Columns of controls: row k's acts on the step from row k to the next.
        wide: One row a trajectory, one column a coordinate and step: x_0, x_1, ..., y_0, y_1, ...
    """
    path, inputs = Path(path), list(inputs or ())
    kind = suffix(path, READABLE, "read")
    if not path.is_file():
        raise ValueError(f"Expected a data file, got {path}, which is {'a folder' if path.is_dir() else 'not there'}.")
    if set(inputs) & set(columns or ()):
        raise ValueError("Expected inputs and columns without a common name, got one in both.")
    if kind in (".npz", ".npy"):
        arrays = _load(path)
        if {array.ndim for array in arrays.values()} != {1} or len({len(a) for a in arrays.values()}) != 1:
            if trajectory or time or wide:
                raise ValueError(f"Expected no columns of times or trajectories in the arrays of {path.name}, got one.")
            return _from_arrays(arrays, columns, inputs, path)
        table = NumpyColumns(arrays)
    else:
        table = ArrowColumns(_parquet(path) if kind in _PARQUET else _text(path))
    if wide:
        if time:
            raise ValueError("Expected no column of times in a wide table, where columns are steps, got one.")
        return from_wide(table, columns, trajectory, inputs)
    names = chosen(table, columns, {trajectory, time, *inputs})
    rest = tuple(name for name in table.names if name not in {*names, *inputs, trajectory, time})
    doubts = about_left_out(table, rest, trajectory, time) if columns is None else ()
    return arrange(table, names, trajectory, time, inputs=inputs)._replace(left_out=rest, doubts=doubts)


def _from_arrays(
    arrays: dict[str, np.ndarray], columns: Sequence[str] | None, inputs: Sequence[str], path: Path
) -> Recorded:
    """Arrays (N, T, d) or (T, d), `columns` among them for names, another for inputs."""
    stored = arrays.pop("columns", None)
    given = None
    if inputs:
        if len(inputs) != 1 or inputs[0] not in arrays:
            raise ValueError(f"Expected inputs named by one array among {sorted(arrays)} in {path.name}, got {inputs}.")
        given = arrays.pop(inputs[0])
    found = [arrays["trajectories"]] if "trajectories" in arrays else list(arrays.values())
    expected = f"Expected trajectories as arrays (N, T, d) or (T, d) of numbers in {path.name}, got"
    if not found or any(a.ndim not in (2, 3) or a.dtype.kind not in "iuf" or 0 in a.shape for a in found):
        raise ValueError(f"{expected} {', '.join(f'{name} {a.shape} {a.dtype}' for name, a in arrays.items())}.")
    parts = [np.array(part, float) for a in found for part in (a if a.ndim == 3 else [a])]
    dims = {part.shape[1] for part in parts}
    if len(dims) > 1:
        raise ValueError(f"{expected} arrays with {' and '.join(map(str, sorted(dims)))} coordinates.")
    dim = dims.pop()
    if columns is None:
        columns = [f"x{c}" for c in range(dim)] if stored is None else [str(name) for name in stored.reshape(-1)]
    if len(columns) != dim:
        raise ValueError(f"Expected {dim} names of columns for {path.name}, got {len(columns)}: {list(columns)}.")
    return Recorded(parts, tuple(columns), None if given is None else _steps(given, parts, str(path.name)))


def _steps(given: np.ndarray, parts: list[np.ndarray], name: str) -> list[np.ndarray]:
    """Inputs of every step, those of the last state left out where they are there."""
    given = given[None] if given.ndim == 2 and len(parts) == 1 else given
    if given.ndim != 3 or len(given) != len(parts) or given.dtype.kind not in "biuf":
        raise ValueError(f"Expected inputs of shape ({len(parts)}, T - 1, e) in {name}, got {given.shape}.")
    return [np.array(u[: len(part) - 1], float) for u, part in zip(given, parts, strict=True)]


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return {"trajectories": found}
            with found:
                arrays = {name: found[name] for name in found.files}
    except (
        OSError,
        ValueError,
        EOFError,
        KeyError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
        SyntaxError,
    ) as error:
        raise ValueError(f"Expected arrays written by NumPy, without pickles, got {path.name}: {error}.") from error
    if not all(isinstance(array, np.ndarray) for array in arrays.values()) or not arrays:
        raise ValueError(f"Expected one or more arrays in {path.name}, got none, or other things.")
    return arrays


def _arrow(path: Path) -> Any:
    return arrow(f"CSV and Parquet, {path.name}; NPZ is read without")


def _parquet(path: Path) -> Any:
    pyarrow = _arrow(path)
    try:
        return pyarrow.parquet.ParquetFile(path).read()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"Expected a Parquet file, got {path.name}: {_brief(error)}") from error


def _text(path: Path) -> Any:
    pyarrow = _arrow(path)
    try:
        with pyarrow.input_stream(path, compression="detect") as stream:
            head = stream.read(65_536).decode("utf-8-sig", errors="replace")
        separator = _separator(head)
        # Kinds of columns are told from the first block: with one block a number that comes late is not too late.
        size = min(max(2**20, 64 * path.stat().st_size), 2**30)
        table = pyarrow.csv.read_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(block_size=size),
            parse_options=pyarrow.csv.ParseOptions(delimiter=separator),
            convert_options=pyarrow.csv.ConvertOptions(
                strings_can_be_null=True,
                null_values=[*pyarrow.csv.ConvertOptions().null_values, *_MISSING],
                decimal_point=_point(head, separator),
            ),
        )
        names = [name.strip() for name in table.column_names]
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError, zlib.error) as error:
        raise ValueError(f"Expected a table with one header line, got {path.name}: {_brief(error)}") from error
    if names and all(is_number(name) for name in names):
        raise ValueError(
            f"Expected names in the first line of {path.name}, got numbers: {', '.join(names[:5])}. Put a line such as"
            " x,y on top."
        )
    return table.rename_columns(names)


def _separator(head: str) -> str:
    first = next((line for line in head.splitlines() if line.strip()), "")
    return max(",;\t|", key=first.count)


def _point(head: str, separator: str) -> str:
    """Tools that separate by semicolons often write numbers like 1,5."""
    lines = head.splitlines()[1:]
    return "," if separator == ";" and any("," in line for line in lines) else "."


def _brief(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200].rstrip(".") + "."


def suffix(path: Path, known: Sequence[str], what: str) -> str:
    """The ending of a file's name, one of those known."""
    for kind in sorted(known, key=len, reverse=True):
        if path.name.lower().endswith(kind) and len(path.name) > len(kind):
            return kind
    raise ValueError(f"Expected a file to {what} that ends in one of {' '.join(known)}, got {path.name!r}.")


def check_writable(path: Path | None, known: Sequence[str] = WRITABLE) -> None:
    """Refuse early what would fail after all the work: a wrong ending, a folder that is not there, no pyarrow."""
    if path is None:
        return
    if suffix(path, known, "write") in _PARQUET:
        _arrow(path)
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"Expected a file in an existing folder to write to, got {path}. Create the folder first.")


def write(path: Path, table: Mapping[str, np.ndarray]) -> None:
    """Columns of one length as CSV, Parquet or NPZ, by the ending; whole or not at all."""
    kind = suffix(path, WRITABLE, "write")
    if kind == ".csv":
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(zip(*map(readable, table.values()), strict=True))
        return write_atomic(path, text.getvalue().encode())
    content = io.BytesIO()
    if kind == ".npz":
        np.savez(content, **{name: np.asarray(column) for name, column in table.items()})  # type: ignore[arg-type]
    else:
        pyarrow = _arrow(path)
        pyarrow.parquet.write_table(pyarrow.table(dict(table)), content)
    return write_atomic(path, content.getvalue())


def readable(column: np.ndarray) -> list[Any]:
    """Entries as Python has them; dates as text, no finer than they need."""
    if column.dtype.kind != "M":
        return column.tolist()
    units = ("D", "s", "ms", "us")
    unit = next((unit for unit in units if np.all(column.astype(f"datetime64[{unit}]") == column)), "ns")
    return [str(entry) for entry in column.astype(f"datetime64[{unit}]")]
