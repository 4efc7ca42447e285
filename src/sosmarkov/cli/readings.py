"""`sosmarkov filter`: beliefs given readings."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np

import sosmarkov as sm
from sosmarkov.cli import files, models
from sosmarkov.cli.options import UsageError, names, sensor, shares
from sosmarkov.data.given import padded
from sosmarkov.data.recorded import Recorded


def run(options: Namespace) -> None:
    """Filter or smooth every series of a file, and write one table."""
    files.check_writable(options.output)
    wanted = shares(options.quantiles)
    process = models.load(options.model)
    known, columns = _sensor(process, options)
    dim = process.input_dim
    given = names(options.inputs, "--inputs")
    if dim != len(given or ()):
        raise UsageError(f"Expected {dim} columns of --inputs for this model, got {len(given or ())}.")
    series = files.read(options, columns)
    verb = process.smooth if options.smooth else process.filter
    parts, evidence = [], []
    longest = max(map(len, series.trajectories))
    for index, rows in enumerate(series.trajectories):
        inputs = None if series.inputs is None else padded([series.inputs[index]], longest - 1, 0.0)[0]
        # Of one length for all, so that one program serves: what is missing at the end changes nothing before it.
        found = verb(padded([rows], longest)[0], sensor=known, inputs=inputs)
        summary = models.summarise(found.beliefs, wanted)
        summary = models.Summary(*(part[: len(rows)] for part in summary))
        parts.append(models.table(summary, process.columns, wanted, _beside(series, index)))
        evidence.append(float(found.log_evidence))
    table = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    more = {"model": str(options.model), "series": len(parts), "readings": series.rows}
    models.deliver(table, options.output, options.json, more | {"log_evidence": evidence})


def _sensor(process: Any, options: Namespace) -> tuple[sm.GaussianSensor | None, list[str] | None]:
    """The sensor and the columns it reads; no sensor where the process has its own."""
    if options.sensor is None:
        if process.sensor is None:
            example = f"{process.columns[0]}~0.1"
            raise UsageError(f'Expected --sensor, such as "{example}", for a model that learned none, got none.')
        return None, names(options.columns, "--columns")
    if options.columns is not None:
        raise UsageError("Expected --sensor or --columns, got both: --sensor x=gps~0.1 names its column itself.")
    parts = sensor(options.sensor, process.columns)
    columns = [part.column for part in parts]
    if len(set(columns)) != len(columns):
        raise UsageError(f"Expected a column of its own for every part of --sensor, got {', '.join(columns)}.")
    where = [process.columns.index(part.coordinate) for part in parts]
    return sm.GaussianSensor(where, [part.std for part in parts]), columns


def _beside(series: Recorded, index: int) -> dict[str, np.ndarray]:
    """Trajectory, step and time of every row, as far as the file has them."""
    count = len(series.trajectories[index])
    found: dict[str, np.ndarray] = {}
    if len(series.trajectories) > 1:
        label = index if series.labels is None else series.labels[index]
        found["trajectory"] = np.full(count, label)
    found["step"] = np.arange(count)
    if series.times is not None:
        found["time"] = series.times[index]
    return found
