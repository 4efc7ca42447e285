"""Ensemble: several processes learned from the same data, and the mixture of what they believe."""

# JAX annotates some of its functions in part.
# pyright: reportUnknownMemberType=false
# A property may answer what a contract calls a variable.
# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex, overload

import equinox as eqx
import jax.numpy as jnp

from sosmarkov.contracts.mixture import EnsembleBelief
from sosmarkov.contracts.reader import Sensor
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import stored
from sosmarkov.data.history import require_history
from sosmarkov.process.asked import Start, start_of
from sosmarkov.process.model import Ask, Mix, Model
from sosmarkov.process.process import MarkovProcess


@stored("members", "history", make=lambda fields: Ensemble(**fields), check=require_history, model="ensemble")
class Ensemble(Model, Sequence[MarkovProcess]):
    """Processes trained at once from different starts; a sequence of them.

    One of the members is the truth, each with the same probability before anything is read: what the ensemble believes
    is the mixture of what they do, and readings weigh them by how likely each held them, exactly. A start is one for
    all members, or what the ensemble believed before. The verbs are those of `MarkovProcess`.

    Args:
        members: The processes, of one dimension.
        history: What training did.
    """

    members: tuple[MarkovProcess, ...]
    history: Any = eqx.field(static=True)

    def __init__(self, members: Sequence[MarkovProcess], *, history: Any = None):
        if len(members) == 0:
            raise ValueError("Expected at least one member, got none.")
        if len({member.dim for member in members}) > 1:
            raise ValueError(f"Expected members of one dimension, got {[member.dim for member in members]}.")
        if len({member.columns for member in members}) > 1:
            raise ValueError("Expected members with the same names of columns, got different ones.")
        self.members = tuple(members)
        self.history = history

    def __len__(self) -> int:
        """How many members."""
        return len(self.members)

    @overload
    def __getitem__(self, index: SupportsIndex) -> MarkovProcess: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[MarkovProcess, ...]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> MarkovProcess | tuple[MarkovProcess, ...]:
        """A member, or a tuple of them for a slice."""
        return self.members[index]

    def __iter__(self) -> Iterator[MarkovProcess]:
        """The members."""
        return iter(self.members)

    def __repr__(self) -> str:
        """A few lines for a person."""
        return f"Ensemble of {len(self)}, the first a {self.members[0]!r}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        return self.members[0].columns

    @property
    def sensor(self) -> Sensor | None:
        """The first member's; each reads by its own."""
        return self.members[0].sensor

    @property
    def initial(self) -> EnsembleBelief:
        """The mixture of the members' initial beliefs."""
        return EnsembleBelief([member.initial for member in self.members])

    def with_columns(self, columns: Sequence[str]) -> Ensemble:
        """The same ensemble with other names for its coordinates."""
        return Ensemble([member.with_columns(columns) for member in self.members], history=self.history)

    def under(self, u: ArrayLike) -> Ensemble:
        """All members under one input that stays."""
        return Ensemble([member.under(u) for member in self.members], history=self.history)

    @staticmethod
    def _answer(model: Any, mix: Mix, ask: Ask, initial: Start = None) -> Any:
        """The mixture of the members' answers."""
        weights, starts = jnp.full(len(model), 1.0 / len(model)), [initial] * len(model)
        if isinstance(initial, EnsembleBelief) and len(initial.members) == len(model):
            weights, starts = initial.weights, initial.members
        return mix([ask(one, start_of(one, start)) for one, start in zip(model, starts, strict=True)], weights)
