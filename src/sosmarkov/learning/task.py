"""What is learned, as the one run of training sees it: where it starts, what is trained in turn, what comes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from sosmarkov.data.history import History

Found = TypeVar("Found")


def _same(parameters: Any) -> Any:
    return parameters


def _trained(parameters: Any, trained: Any) -> Any:
    del parameters
    return trained


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
    enter: Callable[[Any], Any] = _same
    leave: Callable[[Any, Any], Any] = _trained
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
