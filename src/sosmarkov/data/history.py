"""What training did, as a record to keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from sosmarkov.core.stored import Fields, require, stored


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
        if self.done == 0:
            found = f"held-out loss {best[0]:.4f}, in one go"
        elif len(best) == 1:
            found = f"held-out loss {best[0]:.4f} at step {self.best_step[0]} of {self.done}"
        else:
            found = f"held-out loss {best.mean():.4f} (std {best.std():.4f} over {len(best)}), {self.done} steps"
        return f"{self.name}: {found} ({self.seconds:.1f} s, ended by {self.stopped})"


# What a file, a page and a person call each score, in the order they are told.
_WORDS = {
    "transitions_before": "transitions before the belief phase",
    "beliefs_before": "beliefs before the belief phase",
    "transitions": "transitions",
    "beliefs": "beliefs",
    "filtered_before": "states and readings given the readings before, before the last phase",
    "filtered": "states and readings given the readings before",
    "evidence_before": "readings given those before, before the last phase",
    "evidence": "readings given those before",
    "joint": "joint",
    "forecasts": "forecasts from known states, mean over 1, 2, 4 and 8 steps",
}


@dataclass(frozen=True, eq=False)
class Scores(Mapping[str, float]):
    """Held-out log-likelihoods in data space, in nats a state; None for what was not scored.

    Also a mapping from words to numbers, as files and pages have them: `scores["beliefs"]`.

    Attributes:
        transitions: Mean log p(x' | x).
        beliefs: Mean log p_k(x_k), from initial states alone.
        filtered: Mean log p(x_k, o_k | o_0, ..., o_(k-1)), of a process with a sensor.
        evidence: Mean log p(o_k | o_0, ..., o_(k-1)), where no states were given.
        joint: Mean log-likelihood of the rows of a network.
        forecasts: Mean log-density of states 1, 2, 4 and 8 steps after known ones.
        transitions_before: As `transitions`, before the phase that trains beliefs.
        beliefs_before: As `beliefs`, likewise.
        filtered_before: As `filtered`, before the last phase.
        evidence_before: As `evidence`, likewise.
        others: By name, what a file calls otherwise.
    """

    transitions: float | None = None
    beliefs: float | None = None
    filtered: float | None = None
    evidence: float | None = None
    joint: float | None = None
    forecasts: float | None = None
    transitions_before: float | None = None
    beliefs_before: float | None = None
    filtered_before: float | None = None
    evidence_before: float | None = None
    others: dict[str, float] = field(default_factory=dict)

    @classmethod
    def named(cls, found: Mapping[str, float]) -> Scores:
        """From words, as a mapping has them."""
        fields = {words: name for name, words in _WORDS.items()}
        known = {fields[words]: value for words, value in found.items() if words in fields}
        return cls(**known, others={words: value for words, value in found.items() if words not in fields})

    @property
    def final(self) -> float:
        """The one to compare fits by: that of what was trained last."""
        found = [self.beliefs, self.filtered, self.evidence, self.transitions, self.joint, self.forecasts]
        return next((score for score in found if score is not None), float("nan"))

    def __getitem__(self, words: str) -> float:
        """One score by what it is called."""
        return self._as_dict()[words]

    def __iter__(self) -> Iterator[str]:
        """What was scored."""
        return iter(self._as_dict())

    def __len__(self) -> int:
        """How many."""
        return len(self._as_dict())

    def _as_dict(self) -> dict[str, float]:
        found = {words: getattr(self, name) for name, words in _WORDS.items()}
        return {words: score for words, score in found.items() if score is not None} | self.others


def require_history(model: Any) -> None:
    """Refuse a stored model whose history is something else."""
    require(model.history is None or isinstance(model.history, History), "a history of training, or none")


def _history(fields: Fields) -> History:
    require(all(type(score) is float for score in fields["scores"].values()), "scores as numbers in a history")
    return History(**fields)


@stored("phases", "chosen", "scores", make=_history)
@dataclass(frozen=True, eq=False, init=False)
class History:
    """What training did: its choices, phases, figures and device.

    Attributes:
        phases: In the order they ran.
        chosen: What was left open and what was chosen for it.
        scores: Held-out log-likelihoods of the finished process, in nats per state in data space.
    """

    phases: tuple[PhaseHistory, ...]
    chosen: dict[str, Any]
    scores: Scores

    def __init__(
        self,
        phases: tuple[PhaseHistory, ...],
        chosen: dict[str, Any] | None = None,
        scores: Mapping[str, float] | None = None,
    ):
        object.__setattr__(self, "phases", phases)
        object.__setattr__(self, "chosen", {} if chosen is None else chosen)
        object.__setattr__(self, "scores", Scores.named(scores or {}))

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
        lines = [f"{name} = {value}" for name, value in self.chosen.items() if name not in ("tried", "notes")]
        lines += _table(self.chosen.get("tried", [])) + list(self.chosen.get("notes", []))
        lines += [str(phase) for phase in self.phases]
        lines += [f"held-out log-likelihood, {name}: {value:.4f}" for name, value in self.scores.items()]
        return "\n".join([*lines, f"{self.seconds:.1f} s on {self.device}"])


def _table(tried: list[dict[str, Any]]) -> list[str]:
    """What was tried, the best first."""
    rows = [f"  {one['form']:<10} {one['score']:>12.4f} {one['seconds']:>8.1f}" for one in sorted(tried, key=_rank)]
    return [f"  {'tried':<10} {'held-out':>12} {'seconds':>8}", *rows] if rows else []


def _rank(one: dict[str, Any]) -> float:
    return -one["score"]


def _device() -> str:
    devices = jax.devices()
    count = f"{len(devices)} x " if len(devices) > 1 else ""
    return f"{count}{devices[0].platform} ({devices[0].device_kind})"


def _once(names: list[str]) -> tuple[str, ...]:
    """In order, without repetition."""
    return tuple(dict.fromkeys(names))
