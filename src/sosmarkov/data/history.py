"""What training did, as a record to keep and as a line to watch."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from sosmarkov.core.stored import require, stored


def _sound_phase(phase: PhaseHistory) -> None:
    rows, members = len(phase.steps), len(phase.best_step)
    curves = (phase.steps, phase.training, phase.held_out, phase.best_step)
    shapes = [(rows,), (rows, members), (rows, members), (members,)]
    require([np.shape(a) for a in curves] == shapes, "curves of one length in a history")
    require(rows > 0 and members > 0, "curves that are not empty in a history")
    whole = "whole numbers for steps and real numbers for losses in a history"
    require([a.dtype.kind for a in curves] == ["i", "f", "f", "i"], whole)


@stored(check=_sound_phase, infinite=True)
@dataclass(frozen=True, eq=False)
class PhaseHistory:
    """What one phase of training did. Arrays have one row per measurement, one column per member.

    Attributes:
        name: "surrogate", "transitions", "initial" or "beliefs".
        steps: Steps at which the held-out loss was measured, shape (K,).
        training: Mean training loss over the steps before each, shape (K, members); NaN at step zero.
        held_out: Held-out loss at each, shape (K, members).
        best_step: The step whose parameters were kept, shape (members,).
        seconds: Wall-clock time, compilation included.
        stopped: Why it ended: "steps", "patience" or "interrupted"; "" while it goes on.
        devices: Where it ran, in order.
    """

    name: str
    steps: np.ndarray
    training: np.ndarray
    held_out: np.ndarray
    best_step: np.ndarray
    seconds: float
    stopped: str
    devices: tuple[str, ...] = ()

    @classmethod
    def begun(cls, name: str, held_out: np.ndarray, stopped: str) -> PhaseHistory:
        """Before the first step."""
        start = np.full((1, len(held_out)), np.nan)
        return cls(name, np.zeros(1, int), start, held_out[None], np.zeros(len(held_out), int), 0.0, stopped)

    def extended(self, training: np.ndarray, held_out: np.ndarray, best_step: np.ndarray, more: int) -> PhaseHistory:
        """With one more measurement, `more` steps later."""
        return dataclasses.replace(
            self,
            steps=np.append(self.steps, self.done + more),
            training=np.concatenate([self.training, training[None]]),
            held_out=np.concatenate([self.held_out, held_out[None]]),
            best_step=best_step,
        )

    def at(self, seconds: float, stopped: str) -> PhaseHistory:
        """The same, with the time taken so far, where, and why it ended, if it did."""
        return dataclasses.replace(self, seconds=seconds, stopped=stopped, devices=_once([*self.devices, _device()]))

    @property
    def done(self) -> int:
        """Steps taken."""
        return int(self.steps[-1])

    @property
    def best(self) -> np.ndarray:
        """The held-out loss of the parameters kept, shape (members,)."""
        rows = np.searchsorted(self.steps, self.best_step)
        return self.held_out[rows, np.arange(len(self.best_step))]

    def __str__(self) -> str:
        """One line."""
        best = self.best
        if len(best) == 1:
            found = f"held-out loss {best[0]:.4f} at step {self.best_step[0]} of {self.done}"
        else:
            found = f"held-out loss {best.mean():.4f} (std {best.std():.4f} over {len(best)}), {self.done} steps"
        return f"{self.name}: {found} ({self.seconds:.1f} s, ended by {self.stopped})"


def require_history(model: Any) -> None:
    """Refuse a stored model whose history is something else."""
    require(model.history is None or isinstance(model.history, History), "a history of training, or none")


@stored()
@dataclass(frozen=True, eq=False)
class History:
    """What training did: its choices, phases, figures and device.

    Attributes:
        phases: In the order they ran.
        chosen: What was left open and what was chosen for it.
        scores: Held-out log-likelihoods of the finished process, in nats per state in data space.
    """

    phases: tuple[PhaseHistory, ...]
    chosen: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """Where it ran; several in their order, where it was resumed on another."""
        return ", then ".join(_once([name for phase in self.phases for name in phase.devices]))

    @property
    def seconds(self) -> float:
        """Wall-clock time of all phases."""
        return sum(phase.seconds for phase in self.phases)

    @property
    def interrupted(self) -> bool:
        """Whether training was stopped by hand."""
        return any(phase.stopped == "interrupted" for phase in self.phases)

    def __str__(self) -> str:
        """A few lines for a person."""
        lines = [f"{name} = {value}" for name, value in self.chosen.items()]
        lines += [str(phase) for phase in self.phases]
        lines += [f"held-out log-likelihood, {name}: {value:.4f}" for name, value in self.scores.items()]
        return "\n".join([*lines, f"{self.seconds:.1f} s on {self.device}"])


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

    def close(self) -> None:
        """Leave the bars standing as the summary of what ran."""
        if self._bar is not None:
            self._bar.stop()


def _device() -> str:
    devices = jax.devices()
    count = f"{len(devices)} x " if len(devices) > 1 else ""
    return f"{count}{devices[0].platform} ({devices[0].device_kind})"


def _once(names: list[str]) -> tuple[str, ...]:
    """In order, without repetition."""
    return tuple(dict.fromkeys(names))
