"""Sequences of beliefs, each made when it is asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief, Coordinate
from sosmarkov.contracts.line import quantiles
from sosmarkov.contracts.mixture import EnsembleBelief, draw_parts
from sosmarkov.contracts.reader import Reader
from sosmarkov.contracts.transition import AbstractTransition, Numbers
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.draws import split
from sosmarkov.core.numerics import library, together


class BeliefSequence(eqx.Module, Sequence):
    """Beliefs at steps 0, 1, ...; each is made when it is asked for."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def at(self, k: int | Array) -> Belief:
        """The belief at one step; a traced k is one after the first."""

    def ask(self, k: int | Array, query: str) -> Any:
        """What a method of the belief at one step says."""
        return getattr(self.at(k), query)()

    @property
    def compiled(self) -> bool:
        """Whether all of them can be asked by one program."""
        return True

    def means(self) -> Float[Any, "t d"]:
        """E[x_k] of every belief, by one program."""
        return _of_each(self, "mean")

    def covariances(self) -> Float[Any, "t d d"]:
        """The covariance of every belief, by one program."""
        return _of_each(self, "covariance")

    def quantiles(
        self, shares: ArrayLike, coordinates: Sequence[Coordinate] | Coordinate | None = None
    ) -> Float[Any, "t *shape d"]:
        """Quantiles of every belief, shape (T, *shares, coordinates), of all coordinates where None are named."""
        given, first = checks.shares(shares), self[0]
        chosen = checks.coordinates(range(first.dim) if coordinates is None else coordinates, first.dim, first.columns)
        found = together(*self._quantiles(given.reshape(-1), chosen))
        return found.reshape(len(self), *given.shape, len(chosen))

    def _quantiles(self, shares: Float[Array, " n"], chosen: tuple[int, ...]) -> list[Float[Any, "n d"]]:
        return [belief.quantile(shares, chosen) for belief in self]

    @overload
    def __getitem__(self, index: int) -> Belief: ...

    @overload
    def __getitem__(self, index: slice) -> list[Belief]: ...

    def __getitem__(self, index: int | slice) -> Belief | list[Belief]:
        """The belief at a step, or a list of them for a slice."""
        if isinstance(index, slice):
            return [self.at(k) for k in range(*index.indices(len(self)))]
        return self.at(range(len(self))[index])

    def __iter__(self) -> Iterator[Belief]:
        """From the first to the last step."""
        return (self.at(k) for k in range(len(self)))


def _of_each(beliefs: BeliefSequence, query: str) -> Any:
    """What a method of each belief says."""
    if beliefs.compiled:
        return _by_one_program(beliefs, query)
    return together(*(np.asarray(beliefs.ask(k, query)) for k in range(len(beliefs))))


@eqx.filter_jit
def _by_one_program(beliefs: BeliefSequence, query: str) -> Array:
    """The same; only the first may have a form of its own."""
    first = beliefs.ask(0, query)[None]
    if len(beliefs) == 1:
        return first
    return jnp.concatenate([first, lax.map(lambda k: beliefs.ask(k, query), jnp.arange(1, len(beliefs)))])


class Beliefs(BeliefSequence):
    """Beliefs at steps 0, 1, ..., K of a process from its start."""

    initial: Belief
    transition: AbstractTransition
    coefficients: Numbers | None

    @property
    def compiled(self) -> bool:
        """Whether the form of process is."""
        return self.transition.compiled

    def __len__(self) -> int:
        """K + 1."""
        leaves = jax.tree.leaves(self.coefficients)
        return len(leaves[0]) + 1 if leaves else 1

    def at(self, k: int | Array) -> Belief:
        """The start, or the belief of the coefficients."""
        if isinstance(k, int) and k == 0:
            return self.initial
        found = self.transition.belief(jax.tree.map(lambda leaf: leaf[k - 1], self.coefficients))
        return found.with_columns(self.initial.names)

    def _quantiles(self, shares: Float[Array, " n"], chosen: tuple[int, ...]) -> list[Float[Any, "n d"]]:
        """Beliefs after the first differ in their numbers alone."""
        if not self.compiled:
            return super()._quantiles(shares, chosen)
        first = self.initial.quantile(shares, chosen)
        if len(self) == 1:
            return [first]
        one, own = self[1], _own_coefficients(self)
        lines = tuple(eqx.tree_at(lambda line: line.coefficients, one.line(c), own) for c in chosen)
        return [first, *quantiles(lines, shares)]


@eqx.filter_jit
def _own_coefficients(beliefs: Beliefs) -> Float[Array, "k q"]:
    """Of the lines of every belief after the first."""
    return jax.vmap(lambda C: beliefs.transition.belief(C).line_coefficients())(beliefs.coefficients)


class Posteriors(BeliefSequence):
    """Beliefs given the readings up to their own step, or with what lies behind them given all."""

    base: Beliefs
    reader: Reader
    observations: Float[Array, "t ..."]
    backward: Any = None
    inputs: Float[Array, "k e"] | None = None

    @property
    def compiled(self) -> bool:
        """Whether the form of process is."""
        return self.base.compiled

    def __len__(self) -> int:
        """As many as there are readings."""
        return len(self.base)

    def behind(self, k: int | Array) -> Any:
        """What later readings are worth; None where they are not looked at."""
        return jax.tree.map(lambda leaf: leaf[k], self.backward)

    def at(self, k: int | Array) -> Belief:
        """What the filter has of it, updated."""
        return self.reader.posterior(self.base.at(k), self.observations[k], self.behind(k))

    def ask(self, k: int | Array, query: str) -> Any:
        """A missing reading leaves the belief as it is, whose form another one would change."""
        missing = self.reader.sensor.missing(self.observations[k])
        if not self.reader.sensor.of_state or checks.is_concrete(jnp.asarray(missing)):
            return super().ask(k, query)

        def unread() -> Array:
            return getattr(self.reader.posterior(self.base.at(k), None, self.behind(k)), query)()

        return lax.cond(missing, unread, lambda: getattr(self.at(k), query)())

    def sample(self, key: Any, count: int) -> Float[Any, "n t d"]:
        """x_0 from its belief, then x_(k+1) given x_k and all readings after it."""
        keys = split(key, len(self))
        path = [self[0].sample(keys[0], count)]
        for k in range(1, len(self)):
            u = None if self.inputs is None else self.inputs[k - 1]
            path.append(self.reader.draw(keys[k], path[-1], self.observations[k], self.behind(k), u))
        return library(*path).stack(path, axis=1)


class MixedBeliefs(BeliefSequence):
    """What an ensemble believes at each step, under weights that may change from one to the next."""

    members: tuple[BeliefSequence, ...]
    weights: Float[Array, "t m"]

    @property
    def compiled(self) -> bool:
        """Whether all of the members are."""
        return all(member.compiled for member in self.members)

    def __len__(self) -> int:
        """As many as each of the members has."""
        return len(self.members[0])

    def at(self, k: int | Array) -> EnsembleBelief:
        """The mixture at one step."""
        return EnsembleBelief([member.at(k) for member in self.members], self.weights[k])

    def sample(self, key: Any, count: int) -> Float[Any, "n t d"]:
        """Whole trajectories: each one member's own."""
        draws = [member.sample for member in self.members]  # type: ignore[attr-defined]
        return draw_parts(key, self.weights[-1], count, draws)
