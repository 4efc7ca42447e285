"""The one run of training: phases one after the other, with one bar, one checkpoint and one way to stop them all."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, TypeVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from sosmarkov.data.history import History, PhaseHistory, Scores
from sosmarkov.learning.loop import Keeper, Plan, stack, train, unstack
from sosmarkov.learning.options import Descent
from sosmarkov.learning.progress import Progress
from sosmarkov.learning.task import Found, Phase, Task

T = TypeVar("T")


class Interruption:
    """Ctrl-C, noted and looked at between chunks, so that it loses nothing wherever it comes; twice means now.

    Signals reach the main thread only: elsewhere this does nothing.
    """

    def __init__(self):
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Interruption:
        """Begin to listen."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signal back."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


def plan_of(options: Descent, steps: int) -> Plan:
    """What the phases of one run have in common, of so many steps."""
    return Plan("", steps, options.batch_size, options.learning_rate, options.patience, options.seed)


class Phases:
    """Runs phases and remembers them; after an interruption the ones that follow are left out.

    Args:
        plan: What phases have in common.
        members: How many are trained at once.
        progress: Whether to show a bar.
        keeper: Holds checkpoints.
    """

    def __init__(self, plan: Plan, members: int, *, progress: bool, keeper: Keeper | None = None):
        self.plan = plan
        self.members = members
        self.done: list[PhaseHistory] = []
        self._keeper = keeper
        self._bar = Progress(progress)
        self._interruption = Interruption()

    def __enter__(self) -> Phases:
        """Begin to listen."""
        self._interruption.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the signal back, and leave the bar as it is."""
        self._interruption.__exit__()
        self._bar.close()

    @property
    def interrupted(self) -> bool:
        """Whether someone asked to stop."""
        return self._interruption.asked

    def run(self, phase: Phase, parameters: Any) -> Any:
        """All parameters after one phase."""
        trained = phase.enter(parameters)
        if self.interrupted:
            self._note_interruption(phase.name)
        else:
            plan = self.plan._replace(name=phase.name, **phase.plan)
            trained, history = train(
                trained, phase.loss, phase.training, phase.held_out, plan,
                progress=self._bar, keeper=self._keeper, stop=lambda: self.interrupted,
            )  # fmt: skip
            self.done.append(history)
        return phase.leave(parameters, trained)

    def _note_interruption(self, name: str) -> None:
        """Asked to stop as a phase ended by itself, or before the first: the history says so all the same."""
        unknown = np.full(self.members, np.nan)
        last = self.done.pop() if self.done else PhaseHistory.begun(name, unknown, "")
        self.done.append(dataclasses.replace(last, stopped="interrupted"))


def run(task: Task[Found], phases: Phases) -> list[Found]:
    """Start, phases in turn, scores, and what a task finds, one for each member."""
    seeds = range(phases.plan.seed, phases.plan.seed + phases.members)
    parameters = stack(in_parallel(task.start, seeds))
    scores: dict[str, float] = {}
    for phase in task.phases():
        if phase.scored:
            scores |= {f"{name}_before": score for name, score in task.scores(parameters).items()}
        parameters = phases.run(phase, parameters)
    found = dataclasses.replace(Scores(), **scores, **task.scores(parameters))
    history = History(tuple(phases.done), task.chosen, found)
    return [task.realise(member, history) for member in unstack(parameters, phases.members)]


def in_parallel(make: Callable[[int], T], seeds: Sequence[int]) -> list[T]:
    """What `make` gives for each seed, in threads: mixtures are too small for more than one core each."""
    with warnings.catch_warnings(), threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as pool:
        # A start need not be a converged fit.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return list(pool.map(make, seeds))
