"""The one run of training: the phases of a task in turn, with one bar, one checkpoint and one way to stop them all."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from sosmarkov.data.history import History, PhaseHistory, Scores
from sosmarkov.learning.loop import Keeper, Plan, stack, train, unstack
from sosmarkov.learning.options import Descent
from sosmarkov.learning.progress import Progress

T = TypeVar("T")
Found = TypeVar("Found")


class Phase(NamedTuple):
    """One loss, brought down over some of the parameters of all members at once.

    Attributes:
        name: For the history, checkpoints and messages.
        loss: Of what is trained and a batch.
        training: Batches come from here: arrays, or a callable that gives them for each chunk of steps.
        held_out: What training is stopped by.
        plan: What differs from the usual `Plan`.
        enter: From all parameters to those that are trained.
        leave: From all parameters and the trained ones to all.
        scored: Whether what there is before it is scored too.
    """

    name: str
    loss: Callable[..., Any]
    training: Any
    held_out: Any
    plan: dict[str, Any] = {}
    enter: Callable[[Any], Any] = lambda whole: whole
    leave: Callable[[Any, Any], Any] = lambda whole, trained: trained
    scored: bool = False

    def of(self, field: str) -> Phase:
        """The same phase, over one field of larger parameters."""
        return self._replace(
            enter=lambda whole: self.enter(getattr(whole, field)),
            leave=lambda whole, trained: whole._replace(**{field: self.leave(getattr(whole, field), trained)}),
        )


class Task(ABC, Generic[Found]):
    """One thing to learn from one set of data.

    Attributes:
        chosen: What the history says of options and data.
    """

    chosen: dict[str, Any]

    @abstractmethod
    def start(self, seed: int) -> Any:
        """Parameters of one member to begin with."""

    @abstractmethod
    def phases(self) -> Iterable[Phase]:
        """What is trained, in order."""

    @abstractmethod
    def scores(self, parameters: Any) -> dict[str, float]:
        """Held-out log-likelihoods in data space, mean over members, by the fields of `Scores`."""

    @abstractmethod
    def realise(self, parameters: Any, history: History) -> Found:
        """What the parameters of one member stand for, in data space."""


@contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """Ctrl-C, noted and asked for between chunks, so that it loses nothing wherever it comes; twice means now.

    Signals reach the main thread only: elsewhere this does nothing.
    """
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        if noted:
            raise KeyboardInterrupt
        noted.append(number)

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, note) if main else None
    try:
        yield lambda: bool(noted)
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def plan_of(options: Descent, steps: int) -> Plan:
    """What the phases of one run have in common, of so many steps."""
    return Plan("", steps, options.batch_size, options.learning_rate, options.patience, options.seed)


@dataclass(frozen=True, eq=False)
class Trainer:
    """Trains phases and remembers them; after an interruption the ones that follow are left out.

    Attributes:
        plan: What phases have in common.
        members: How many are trained at once.
        bar: Shows how far they are.
        interrupted: Whether someone asked to stop.
        keeper: Holds checkpoints.
        done: What was trained.
    """

    plan: Plan
    members: int
    bar: Progress
    interrupted: Callable[[], bool]
    keeper: Keeper | None
    done: list[PhaseHistory] = field(default_factory=list)

    def run(self, phase: Phase, parameters: Any) -> Any:
        """All parameters after one phase."""
        trained = phase.enter(parameters)
        if self.interrupted():
            self._note_interruption(phase.name)
        else:
            plan = self.plan._replace(name=phase.name, **phase.plan)
            trained, history = train(
                trained, phase.loss, phase.training, phase.held_out, plan,
                progress=self.bar, keeper=self.keeper, stop=self.interrupted,
            )  # fmt: skip
            self.done.append(history)
        return phase.leave(parameters, trained)

    def _note_interruption(self, name: str) -> None:
        """Asked to stop as a phase ended by itself, or before the first: the history says so all the same."""
        unknown = np.full(self.members, np.nan)
        last = self.done.pop() if self.done else PhaseHistory.begun(name, unknown, "")
        self.done.append(replace(last, stopped="interrupted"))


def run(
    make: Callable[[Trainer], Task[Found]], plan: Plan, members: int, *, progress: bool, keeper: Keeper | None = None
) -> list[Found]:
    """Start, phases in turn, scores, and what a task finds, one for each member.

    Args:
        make: The task; what it trains for itself comes first.
        plan: What phases have in common.
        members: How many are trained at once.
        progress: Whether to show a bar.
        keeper: Holds checkpoints.
    """
    with interruption() as interrupted, closing(Progress(progress)) as bar:
        trainer = Trainer(plan, members, bar, interrupted, keeper)
        task = make(trainer)
        parameters = stack(in_parallel(task.start, range(plan.seed, plan.seed + members)))
        scores: dict[str, float] = {}
        for phase in task.phases():
            if phase.scored:
                scores |= {f"{name}_before": score for name, score in task.scores(parameters).items()}
            parameters = trainer.run(phase, parameters)
        found = replace(Scores(), **scores, **task.scores(parameters))
        history = History(tuple(trainer.done), task.chosen, found)
        return [task.realise(member, history) for member in unstack(parameters, members)]


def in_parallel(make: Callable[[int], T], seeds: Sequence[int]) -> list[T]:
    """What `make` gives for each seed, in threads: mixtures are too small for more than one core each."""
    with warnings.catch_warnings(), threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as pool:
        # A start need not be a converged fit.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return list(pool.map(make, seeds))
