"""`sosmarkov report`: a page about a model."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from sosmarkov.cli import models, tables
from sosmarkov.cli.options import names
from sosmarkov.cli.output import say


def run(options: Namespace) -> None:
    """Write the page."""
    tables.check_writable(options.output, (".html",))
    process = models.load(options.model)
    data, inputs = None, None
    if options.data is not None:
        series = tables.read(
            options.data,
            columns=names(options.columns, "--columns") or process.columns,
            trajectory=options.trajectory,
            time=options.time,
            inputs=names(options.inputs, "--inputs"),
            wide=options.wide,
        )
        data, inputs = series.trajectories, series.inputs
        if data[0].shape[1] != process.dim:
            raise ValueError(f"Expected {process.dim} columns, {', '.join(process.columns)}, got {data[0].shape[1]}.")
    write(process, options.output, data, inputs)
    say(f"wrote {options.output} ({options.output.stat().st_size / 1000:.0f} kB): open it in a browser")


def write(process: Any, path: Path, data: Any, inputs: Any = None) -> None:
    """The page, by the room that draws it."""
    from sosmarkov.report import write_report

    write_report(process, path, data=data, inputs=inputs)
