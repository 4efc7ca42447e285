"""Ensemble: several processes learned from the same data, and the mixture of what they believe."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx

from sosmarkov.contracts.mixture import MixtureBelief
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.saving import save
from sosmarkov.core.stored import stored
from sosmarkov.data.history import require_history
from sosmarkov.process.process import MarkovProcess


@stored(make=lambda fields: Ensemble(**fields), check=require_history, model="ensemble")
class Ensemble(eqx.Module, Sequence[MarkovProcess]):
    """Processes trained at once from different starts; a sequence of them.

    Its beliefs are mixtures: p_k(x) = mean over members of p_k^m(x), each member propagated on its own.

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

    def __getitem__(self, index: Any) -> Any:
        """A member, or a tuple of them for a slice."""
        return self.members[index]

    def __iter__(self) -> Iterator[MarkovProcess]:
        """The members."""
        return iter(self.members)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.members[0].dim

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the coordinates."""
        return self.members[0].columns

    def with_columns(self, columns: Sequence[str]) -> Ensemble:
        """The same ensemble with other names for its coordinates."""
        return Ensemble([member.with_columns(columns) for member in self.members], history=self.history)

    def save(self, path: str | os.PathLike) -> None:
        """Write the ensemble to one file, which `sosmarkov.load` reads."""
        save(self, path)

    @property
    def initial(self) -> MixtureBelief:
        """The mixture of the members' initial beliefs."""
        return MixtureBelief([member.initial for member in self.members])

    @property
    def parameter_count(self) -> int:
        """Free numbers of all members."""
        return sum(member.parameter_count for member in self.members)

    def propagate(self, steps: int, *, initial: ArrayLike | None = None) -> list[MixtureBelief]:
        """Beliefs at steps 0 to `steps`; `initial` is a known state, or None for the members' own beliefs."""
        paths = [member.propagate(steps, initial=initial) for member in self.members]
        return [MixtureBelief(beliefs) for beliefs in zip(*paths, strict=True)]

    def belief_at(self, k: int, *, initial: ArrayLike | None = None) -> MixtureBelief:
        """The belief at one step, however far."""
        return MixtureBelief([member.belief_at(k, initial=initial) for member in self.members])
