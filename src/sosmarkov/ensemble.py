"""Ensemble: several processes learned from the same data, and the mixture of what they believe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sosmarkov.belief import Belief
from sosmarkov.checks import ArrayLike
from sosmarkov.process import MarkovProcess


class MixtureBelief(eqx.Module):
    """p(x) = mean over members of p_m(x): normalised and non-negative, like each of them."""

    members: tuple[Belief, ...]

    def __init__(self, members: Sequence[Belief]):
        if len(members) == 0:
            raise ValueError("Expected at least one belief to mix, got none.")
        if len({member.dim for member in members}) > 1:
            raise ValueError(f"Expected beliefs of one dimension, got {[member.dim for member in members]}.")
        self.members = tuple(members)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.members[0].dim

    def log_prob(self, x: ArrayLike) -> Float[Array, "*b"]:
        """Log p at states of shape (..., d)."""
        values = jnp.stack([member.log_prob(x) for member in self.members])
        return jax.nn.logsumexp(values, axis=0) - jnp.log(len(self.members))

    def prob(self, x: ArrayLike) -> Float[Array, "*b"]:
        """Density at states of shape (..., d)."""
        return jnp.exp(self.log_prob(x))

    def mass(self) -> Float[Array, ""]:
        """The integral of p."""
        return jnp.mean(jnp.stack([member.mass() for member in self.members]))

    def mean(self) -> Float[Array, " d"]:
        """E[x]."""
        return jnp.mean(jnp.stack([member.mean() for member in self.members]), axis=0)

    def covariance(self) -> Float[Array, "d d"]:
        """Cov[x]: the mean of the members' covariances plus the covariance of their means."""
        means = jnp.stack([member.mean() for member in self.members])
        within = jnp.mean(jnp.stack([member.covariance() for member in self.members]), axis=0)
        away = means - means.mean(axis=0)
        return within + away.T @ away / len(self.members)

    def marginal(self, coordinates: Sequence[int]) -> MixtureBelief:
        """The belief over some coordinates, in the order given."""
        return MixtureBelief([member.marginal(coordinates) for member in self.members])


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
