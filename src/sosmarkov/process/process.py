"""MarkovProcess: an initial belief and a transition."""

# A property may answer what a contract calls a variable.
# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.reader import Sensor, placed
from sosmarkov.contracts.transition import AbstractTransition
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import stored
from sosmarkov.data.frames import is_frame
from sosmarkov.data.gather import gather, open_source
from sosmarkov.data.history import History, require_history
from sosmarkov.process.asked import Start, start_of
from sosmarkov.process.model import Ask, Mix, Model
from sosmarkov.spaces.transforms import Transform

_FIELDS = ("initial", "transition", "history", "sensor", "columns")


@stored(*_FIELDS, make=lambda fields: MarkovProcess(**fields), check=require_history, model="process")
class MarkovProcess(Model):
    """A Markov process: where it starts, and one step.

    Args:
        transition: p(x' | x), or p(x' | x, u).
        initial: Where it starts: a form h_0 over a basis of its own (p_0 = g h_0, normalised
            exactly), a belief of this process, or a known state of shape (d,), or such as {"x0": 0.5, "x1": 0}.
        sensor: What reads the states where no other is named: learned with the process, or given.
        columns: Names of the coordinates; "x0", "x1", ... where none are given.
    """

    initial: Belief
    transition: AbstractTransition
    history: Any = eqx.field(static=True)  # what training did: a record, not part of the mathematics
    sensor: Sensor | None
    columns: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        transition: AbstractTransition,
        initial: Start,
        *,
        sensor: Sensor | None = None,
        history: Any = None,
        columns: Sequence[str] | None = None,
    ):
        self.transition, self.history = transition, history
        self.columns = checks.columns(columns, self.dim)
        self.initial = start_of(self, initial)
        self.sensor = None if sensor is None else placed(sensor, self.columns)
        if sensor is not None:
            sensor.require_fits(transition)

    @staticmethod
    def _answer(model: Any, mix: Mix, ask: Ask, initial: Start = None) -> Any:
        """Its own: there is nothing to mix."""
        del mix
        return ask(model, start_of(model, initial))

    @property
    def members(self) -> tuple[MarkovProcess]:
        """Itself: a process is no mixture."""
        return (self,)

    @property
    def transform(self) -> Transform:
        """From data to model space."""
        return self.transition.transform

    def under(self, u: ArrayLike) -> MarkovProcess:
        """The process under one input that stays, shape (e,): an ordinary one, with a long run of its own."""
        parts: dict[str, Any] = {"sensor": self.sensor, "history": self.history, "columns": self.columns}
        return MarkovProcess(self.transition.under(u), self.initial, **parts)

    @property
    def sensor_origin(self) -> str | None:
        """Where the sensor comes from, in words; None without one."""
        if self.sensor is None:
            return None
        learned = getattr(self.history, "chosen", {}).get("sensor") in ("linear", "joint")
        return "learned with the process" if learned else f"{type(self.sensor).__name__}, given"

    def learn(
        self,
        more: Any = None,
        *,
        transitions: tuple[ArrayLike, ArrayLike] | None = None,
        weights: ArrayLike | None = None,
        inputs: ArrayLike | Sequence[ArrayLike] | None = None,
        trajectory: str | None = None,
        time: str | None = None,
        strength: float | int | None = None,
    ) -> MarkovProcess:
        """The same process after more data; p(x0) stays what it is.

        A gaussian process becomes what least squares give for all data so far. A lattice keeps its nodes, and its rows
        count the new pairs against as many as each stands for; those that lead beyond all nodes go to its broad part,
        and `history.chosen["learned"]` says how many. No data are kept, and a process from a file learns as well.

        Args:
            more: Trajectories, one long series or a data frame, as for `fit`.
            transitions: Instead, pairs (x, x_next), each (N, d).
            weights: One weight >= 0 per trajectory, or per pair; a weight of one is the mean of those learned from.
            inputs: Of each step, as for `fit`. With a period: the time of each step; None: counted from 0.
            trajectory: For a data frame, the column that says which trajectory a row belongs to.
            time: For a data frame, the column to sort each trajectory by.
            strength: How many rows of data each row of a lattice stands for. None: as many as it was learned from.
        """
        columns = self.columns if is_frame(more) else None
        source = open_source(more, trajectory=trajectory, time=time, columns=columns)
        features = self.transition.features
        period = None if features is None else features.period
        # p(x0) is not learned from these: any states will do.
        initial = None if transitions is None else transitions[0]
        given: dict[str, Any] = {"transitions": transitions, "initial": initial, "weights": weights, "inputs": inputs}
        data = gather(source, **given, period=period)
        if data.dim != self.dim:
            raise ValueError(f"Expected states with {self.dim} coordinates, got {data.dim}.")
        acting = 0 if data.pairs.u is None else data.pairs.u.shape[1]
        wanted = 0 if features is None else features.dim
        if acting != wanted:
            raise ValueError(f"Expected inputs with {wanted} numbers for each step, got {acting}.")
        # A data set has weights with a mean of one; beside other data they count as they are.
        scale = 1.0 if weights is None else float(np.mean(np.asarray(weights, dtype=float)))
        pairs = data.pairs._replace(weight=scale * data.pairs.weight)
        transition, told = self.transition.learned(pairs, None if strength is None else float(strength))
        history = _after(self.history, {"pairs": len(data.pairs.x)} | told)
        return MarkovProcess(transition, self.initial, sensor=self.sensor, history=history, columns=self.columns)

    def __repr__(self) -> str:
        """A few lines for a person."""
        return "\n".join([f"{type(self).__name__}: {self.transition.summary()}", *self._facts()])

    def _facts(self) -> list[str]:
        normalised, sizes = self.transition.normalisation, self.transition.sizes
        said = "not looked at: process.check()" if normalised is None else f"within {normalised:.1g} for every state"
        read = "" if self.sensor is None else f"; sensor {self.sensor_origin}"
        return [
            f"  coordinates    {', '.join(self.columns)}{read}",
            f"  size           {sizes}, {self.parameter_count:,} numbers",
            f"  trained on     {_training(self.history)}",
            f"  normalisation  {said}",
        ]

    def with_columns(self, columns: Sequence[str]) -> MarkovProcess:
        """The same process with other names for its coordinates."""
        return MarkovProcess(self.transition, self.initial, sensor=self.sensor, history=self.history, columns=columns)


def _after(history: Any, told: dict[str, Any]) -> History:
    """What training did, and what was learned after it."""
    before = History(()) if history is None else history
    learned = [*before.chosen.get("learned", []), told]
    return History(before.phases, before.chosen | {"learned": learned}, before.scores)


def _training(history: Any) -> str:
    """What a process was trained on, in a line."""
    if history is None or not history.phases:
        return "nothing: built by hand"
    steps = sum(phase.done for phase in history.phases)
    names = ", ".join(phase.name for phase in history.phases)
    how = f"{names}: {steps:,} steps" if steps else f"data at once ({names})"
    return f"{how}, {history.seconds:.3g} s on {history.device}"
