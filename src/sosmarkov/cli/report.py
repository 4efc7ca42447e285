"""`sosmarkov report`: a page about a model."""

from __future__ import annotations

from argparse import Namespace

from sosmarkov.cli import models, tables
from sosmarkov.cli.options import names
from sosmarkov.cli.output import say


def run(options: Namespace) -> None:
    """Write the page."""
    tables.check_writable(options.output, (".html",))
    process = models.load(options.model)
    data = None
    if options.data is not None:
        columns = names(options.columns, "--columns") or list(process.columns)
        series = tables.read(
            options.data, columns=columns, trajectory=options.trajectory, time=options.time, wide=options.wide
        )
        data = series.trajectories
    write(process, options.output, data)
    say(f"wrote {options.output} ({options.output.stat().st_size / 1000:.0f} kB): open it in a browser")


def write(process: models.Any, path: models.Path, data: models.Any) -> None:
    """The page, by the room that draws it."""
    from sosmarkov.report import write_report

    write_report(process, path, data=data)
