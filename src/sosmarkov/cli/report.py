"""`sosmarkov report`: a page about a model."""

from __future__ import annotations

from argparse import Namespace

import numpy as np

from sosmarkov.cli import files, models
from sosmarkov.cli.output import remark, say
from sosmarkov.report import write_report


def run(options: Namespace) -> None:
    """Write the page."""
    files.check_writable(options.output, (".html",))
    process = models.load(options.model)
    data, inputs = None, None
    if options.data is not None:
        series = files.read(options, process.columns)
        data, inputs = _whole(series.trajectories), series.inputs
        if data[0].shape[1] != process.dim:
            raise ValueError(f"Expected {process.dim} columns, {', '.join(process.columns)}, got {data[0].shape[1]}.")
    write_report(process, options.output, data=data, inputs=inputs)
    say(f"wrote {options.output} ({options.output.stat().st_size / 1000:.0f} kB): open it in a browser")


def _whole(trajectories: list[np.ndarray]) -> list[np.ndarray]:
    """Rows known in part as gaps: a belief over all coordinates cannot be held against them."""
    gaps = [np.any(np.isnan(part), axis=1) for part in trajectories]
    partly = sum(int(np.sum(~np.isnan(part[gap]).all(axis=1))) for part, gap in zip(trajectories, gaps, strict=True))
    if partly:
        remark(f"note: {partly} rows with some cells empty count as gaps.")
    return [np.where(gap[:, None], np.nan, part) for part, gap in zip(trajectories, gaps, strict=True)]
