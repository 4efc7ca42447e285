"""Model files for the commands, and tables of what their beliefs say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import sosmarkov as sm
from sosmarkov.cli import options as words
from sosmarkov.cli.options import UsageError
from sosmarkov.cli.output import aligned, remark, say, say_json
from sosmarkov.data import tables
from sosmarkov.plots.numbers import quantiles
from sosmarkov.process.model import Model

# More rows than a person reads are not printed.
_MOST_ROWS = 400


class Summary(NamedTuple):
    """What beliefs at T steps say of d coordinates.

    Attributes:
        mean: Shape (T, d).
        std: Shape (T, d).
        quantiles: Shape (T, q, d).
    """

    mean: np.ndarray
    std: np.ndarray
    quantiles: np.ndarray


def load(path: Path) -> Model:
    """The process in a model file."""
    if path.suffix.lower() in tables.READABLE:
        raise UsageError(f"Expected a model file, which `sosmarkov fit` writes, got the data file {path.name}.")
    found = sm.load(path)
    if not isinstance(found, Model):
        raise ValueError(f"Expected a process or an ensemble in {path.name}, got a {type(found).__name__}.")
    return found


def inputs(process: Model, text: str | None, steps: int) -> np.ndarray | None:
    """Inputs of so many steps: one that stays, `0.5` or `0.5,1`, or the first rows of a file."""
    dim = process.input_dim
    if text is None or dim == 0:
        if (text is None) != (dim == 0):
            wanted = f"--inputs with {dim} numbers, or a file of them" if dim else "no --inputs for this model"
            raise UsageError(f"Expected {wanted}, got {'none' if dim else text}.")
        return None
    if text.lower().endswith(tables.READABLE):
        (given, *others) = tables.read(Path(text)).trajectories
        if others or given.shape[1] != dim or len(given) < steps:
            raise ValueError(f"Expected {steps} rows of {dim} inputs in {text}, got {given.shape} or several series.")
        return given[:steps]
    return np.tile(words.state(text, [f"u{i}" for i in range(dim)], "--inputs") or [], (steps, 1))


def summarise(beliefs: sm.BeliefSequence, shares: Sequence[float]) -> Summary:
    """Means, standard deviations and quantiles of every coordinate, exactly."""
    if not beliefs.compiled:
        return _one_by_one(beliefs, shares)
    mean, covariance = beliefs.means(), beliefs.covariances()
    std = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    steps, dim = mean.shape
    found = quantiles(beliefs, shares, range(dim)) if shares else np.empty((steps, 0, dim))
    return Summary(np.asarray(mean), std, found)


def _one_by_one(beliefs: sm.BeliefSequence, shares: Sequence[float]) -> Summary:
    """Each belief is made once and asked for all: making one given readings is what takes long."""
    dim, rows = beliefs[0].dim, []
    for belief in beliefs:
        spread = np.sqrt(np.diagonal(belief.covariance()))
        rows.append((belief.mean(), spread, belief.quantile(shares, range(dim)) if shares else np.empty((0, dim))))
    return Summary(*(np.array(part) for part in zip(*rows, strict=True)))


def table(
    found: Summary, columns: Sequence[str], shares: Sequence[float], beside: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """One row a step and coordinate; `beside` are columns of T rows that come first."""
    steps, dim = found.mean.shape
    rows: dict[str, np.ndarray] = {name: np.repeat(values, dim) for name, values in beside.items()}
    rows["coordinate"] = np.tile(np.asarray(columns), steps)
    rows |= {"mean": found.mean.reshape(-1), "std": found.std.reshape(-1)}
    return rows | {f"q{100 * q:g}": found.quantiles[:, i].reshape(-1) for i, q in enumerate(shares)}


def deliver(rows: dict[str, np.ndarray], output: Path | None, as_json: bool, more: Mapping[str, Any]) -> None:
    """Write a table, or print it, or both: as JSON where asked for."""
    count = len(rows["mean"])
    if output is not None:
        tables.write(output, rows)
    if as_json:
        records = [dict(zip(rows, row, strict=True)) for row in _listed(rows)] if output is None else None
        say_json({**more, **({"output": str(output), "rows": count} if records is None else {"table": records})})
    elif output is not None:
        say(f"wrote {output}: {count} rows, columns {', '.join(rows)}")
    else:
        say(aligned(list(rows), _listed(rows)[:_MOST_ROWS]))
        if count > _MOST_ROWS:
            remark(f"note: the first {_MOST_ROWS} of {count} rows; -o FILE writes all of them.")


def _listed(rows: dict[str, np.ndarray]) -> list[tuple[Any, ...]]:
    columns = [tables.readable(column) for column in rows.values()]
    return list(zip(*columns, strict=True))
