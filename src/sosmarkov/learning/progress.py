"""What training does, as a line to watch."""

from __future__ import annotations

import sys

import jax

from sosmarkov.data.history import PhaseHistory


class Progress:
    """A bar on the terminal with loss, held-out loss, pace and time left; nothing off a terminal."""

    def __init__(self, wanted: bool):
        self._bar = None
        self._task = None
        if wanted and sys.stderr.isatty() and jax.process_index() == 0:
            # Only those who watch pay for the import.
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description:<12}"),
                BarColumn(),
                TextColumn("{task.completed:>5.0f}/{task.total:.0f}"),
                TextColumn("{task.fields[loss]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._bar.start()

    def update(self, history: PhaseHistory, steps: int) -> None:
        """Tell what a phase has reached."""
        if self._bar is None:
            return
        if self._task is None or self._bar.tasks[-1].description != history.name:
            self._task = self._bar.add_task(history.name, total=steps, loss="")
        loss = f"loss {history.training[-1].mean():9.4f}  held out {history.held_out[-1].mean():9.4f}"
        if history.seconds > 0:
            loss += f"  {history.done / history.seconds:.0f}/s"
        total = history.done if history.stopped else steps
        self._bar.update(self._task, completed=history.done, total=total, loss=loss)

    def count(self, name: str, done: int, total: int) -> None:
        """Tell how far something is that has no loss."""
        if self._bar is None:
            return
        if self._task is None:
            self._task = self._bar.add_task(name, total=total, loss="")
        self._bar.update(self._task, completed=done, total=total)

    def close(self) -> None:
        """Leave the bars standing as the summary of what ran."""
        if self._bar is not None:
            self._bar.stop()
