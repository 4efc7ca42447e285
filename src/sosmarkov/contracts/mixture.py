"""Mixtures of beliefs: ensembles, and readings with several explanations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.line import Blend
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.draws import jax_key
from sosmarkov.core.stored import require, stored


def _sound(belief: MixtureBelief) -> None:
    MixtureBelief(belief.members, belief.weights)
    require(abs(float(np.sum(belief.weights)) - 1.0) < 1e-9, "weights that sum to one in a mixture")


@stored("members", "weights", check=_sound)
class MixtureBelief(Belief):
    """p(x) = sum_m w_m p_m(x): normalised and non-negative, like each of its members.

    Args:
        members: Beliefs over the same coordinates.
        weights: Non-negative, shape (members,), scaled to sum to one; equal where none are given.
    """

    members: tuple[Belief, ...]
    weights: Float[Array, " m"]

    def __init__(self, members: Sequence[Belief], weights: ArrayLike | None = None):
        if len(members) == 0:
            raise ValueError("Expected at least one belief to mix, got none.")
        if len({member.dim for member in members}) > 1:
            raise ValueError(f"Expected beliefs of one dimension, got {[member.dim for member in members]}.")
        self.members = tuple(members)
        weights = checks.parameter(np.ones(len(members)) if weights is None else weights, "weights", (len(members),))
        if checks.is_concrete(weights) and not (np.all(np.asarray(weights) >= 0) and np.sum(weights) > 0):
            raise ValueError(f"Expected weights >= 0, not all zero, got {weights}.")
        self.weights = weights / jnp.sum(weights)
        self.names = next((member.names for member in self.members if member.names is not None), None)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.members[0].dim

    @property
    def has_density(self) -> bool:
        """Where every member has one."""
        return all(member.has_density for member in self.members)

    def with_columns(self, columns: Sequence[str] | None) -> MixtureBelief:
        """The members' names as well."""
        found = super().with_columns(columns)
        if found is not self:
            object.__setattr__(found, "members", tuple(member.with_columns(columns) for member in self.members))
        return found

    def require_of(self, transition: Any) -> None:
        """As each of the members."""
        for member in self.members:
            member.require_of(transition)

    def enter(self, transition: Any, reading: Any = None) -> Any:
        """The mixture of the members' messages: a reading weighs each by how likely it held it."""
        messages = [member.enter(transition, reading) for member in self.members]
        return transition.mixed(self.weights, messages)

    def parts(self) -> list[tuple[Array | float, Belief]]:
        """Of all members, those of mixtures in it included."""
        log_weights = jnp.log(self.weights)
        return [
            (log_weight + log_share, part)
            for log_weight, member in zip(log_weights, self.members, strict=True)
            for log_share, part in member.parts()
        ]

    def facing(self, transition: Any, backward: Array) -> tuple[Array, MixtureBelief]:
        """Each of the members, weighed by what it is worth."""
        worth, members = zip(*(member.facing(transition, backward) for member in self.members), strict=True)
        total, weights = weighed(self.weights, worth)
        return total, MixtureBelief(members, weights)

    def normalised(self) -> tuple[Float[Array, ""], MixtureBelief]:
        """The members normalised, and weighed by the masses they had."""
        log_masses, members = zip(*(member.normalised() for member in self.members), strict=True)
        total, weights = weighed(self.weights, log_masses)
        return total, MixtureBelief(members, weights)

    def log_seen(self, x: ArrayLike) -> Float[Array, ...]:
        """The mixture of the members' own."""
        return self._log_mean_of([member.log_seen(x) for member in self.members])

    def _mean_of(self, answers: list[Any]) -> Array:
        return jnp.tensordot(self.weights, jnp.stack(answers), axes=1)

    def _log_mean_of(self, answers: list[Any]) -> Array:
        values = jnp.stack(answers)
        weights = self.weights.reshape(-1, *[1] * (values.ndim - 1))
        return jax.nn.logsumexp(values, axis=0, b=jnp.broadcast_to(weights, values.shape))

    def log_prob(self, x: ArrayLike) -> Float[Array, ...]:
        """log p at states of shape (..., d)."""
        return self._log_mean_of([member.log_prob(x) for member in self.members])

    def mass(self) -> Float[Array, ""]:
        """The integral of p."""
        return self._mean_of([member.mass() for member in self.members])

    def mean(self) -> Float[Array, " d"]:
        """E[x]."""
        return self._mean_of([member.mean() for member in self.members])

    def covariance(self) -> Float[Array, "d d"]:
        """Cov[x]: the mean of the members' covariances plus the covariance of their means."""
        away = jnp.stack([member.mean() for member in self.members]) - self.mean()[None]
        return self._mean_of([member.covariance() for member in self.members]) + (self.weights[None] * away.T) @ away

    def _moment(self, powers: tuple[int, ...]) -> Float[Array, ""]:
        return self._mean_of([member._moment(powers) for member in self.members])

    def _marginal(self, kept: tuple[int, ...]) -> MixtureBelief:
        return MixtureBelief([member.marginal(kept) for member in self.members], self.weights)

    def line(self, coordinate: int) -> Blend:
        """The members' lines, blended."""
        return Blend([member.line(coordinate) for member in self.members], self.weights)

    def _condition(self, values: dict[int, Any]) -> MixtureBelief:
        """Each member given the values, weighted by how likely it held them."""
        fixed = jnp.asarray(list(values.values()), dtype=float)
        log_held = jnp.stack([member.marginal(list(values)).log_prob(fixed) for member in self.members])
        log_weights = jnp.log(self.weights) + log_held
        weights = jnp.exp(log_weights - jnp.max(log_weights))
        if not checks.is_concrete(weights):
            return MixtureBelief([member.condition(values) for member in self.members], weights)
        # A member that has no density there explains nothing.
        held = [m for m in range(len(self.members)) if weights[m] > 0]
        if not held:
            raise ValueError(f"Expected values where the belief has a density, got {values}: there is none.")
        return MixtureBelief([self.members[m].condition(values) for m in held], weights[jnp.asarray(held)])

    def _probability(self, lower: Array, upper: Array) -> Float[Array, ...]:
        return self._mean_of([member._probability(lower, upper) for member in self.members])

    def _cdf(self, x: Array) -> Float[Array, ...]:
        return self._mean_of([member._cdf(x) for member in self.members])

    def support(self) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """What holds every member's."""
        ends = [member.support() for member in self.members]
        lower, upper = (jnp.stack([end[side] for end in ends]) for side in (0, 1))
        return jnp.min(lower, axis=0), jnp.max(upper, axis=0)

    def sample(self, key: PRNGKeyArray | Any, shape: int | Sequence[int] = ()) -> Float[Array, "... d"]:
        """Independent exact draws: how many come from each member is drawn too."""
        shape = checks.shape(shape)
        draws = [member.sample for member in self.members]
        return draw_parts(key, self.weights, int(np.prod(shape)), draws).reshape(*shape, self.dim)


class EnsembleBelief(MixtureBelief):
    """What an ensemble believes: a mixture of one belief for each of its members, in their order."""

    def __init__(self, members: Sequence[Belief], weights: ArrayLike | None = None):
        super().__init__(members, weights)


def weighed(
    weights: Float[Array, " m"], log_worth: Sequence[Array | float]
) -> tuple[Float[Array, ""], Float[Array, " m"]]:
    """The log of what a mixture is worth, and new weights of its members: by what each of them is worth."""
    log_weights = jnp.log(weights) + jnp.stack([jnp.asarray(one) for one in log_worth])
    total = jax.nn.logsumexp(log_weights)
    return total, jnp.exp(log_weights - total)


def draw_parts(
    key: PRNGKeyArray | Any, weights: Float[Array, " m"], count: int, draws: Sequence[Callable[[Any, int], Array]]
) -> Float[Array, "n ..."]:
    """Draws of a mixture, in random order: how many come from each part is drawn too."""
    choose, mix, *keys = jax.random.split(jax_key(key), len(draws) + 2)
    chosen = jax.random.choice(choose, len(draws), (count,), p=weights)
    counts = np.bincount(np.asarray(chosen), minlength=len(draws))
    found = [draw(one, int(n)) for draw, one, n in zip(draws, keys, counts, strict=True) if n > 0]
    return jax.random.permutation(mix, jnp.concatenate(found))
