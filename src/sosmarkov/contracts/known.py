"""A state known exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.contracts.belief import Belief
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import stored


@stored()
class KnownState(Belief):
    """A state known exactly: all mass at one point, no density.

    Args:
        state: Shape (d,), in data space.
    """

    state: Float[Array, " d"]

    def __init__(self, state: ArrayLike):
        self.state = checks.parameter(state, "state", (None,))

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.state.shape[0]

    def require_of(self, transition: Any) -> None:
        """Anywhere in the domain."""
        transition.require_inside(self.state)

    def enter(self, transition: Any, reading: Any = None) -> Any:
        """What the transition looks at, at the state."""
        return transition.enter_state(self.state, reading)

    def given(self, likelihoods: Any, observation: Array, skipped: tuple[bool, ...]) -> list[tuple[Array, Any]]:
        """Nothing changes; the reading is as likely as it is at the state."""
        del skipped
        return [(likelihoods.log_prob(observation, self.state), None)]

    def facing(self, transition: Any, backward: Array) -> tuple[Array, KnownState]:
        """The state, which is worth what it is: nothing is left to learn."""
        return jnp.log(transition.worth(transition.enter_state(self.state), backward)), self

    def log_seen(self, x: ArrayLike) -> Float[Array, ...]:
        """Zero at the state, -inf elsewhere."""
        return jnp.where(jnp.all(jnp.asarray(x) == self.state, axis=-1), 0.0, -jnp.inf)

    def log_prob(self, x: ArrayLike) -> Float[Array, ...]:
        """Refused: a point mass has no density."""
        raise ValueError("Expected a belief with a density, got a known state. Ask a later belief.")

    def mass(self) -> Float[Array, ""]:
        """One."""
        return jnp.ones(())

    def mean(self) -> Float[Array, " d"]:
        """The state."""
        return self.state

    def covariance(self) -> Float[Array, "d d"]:
        """Zero."""
        return jnp.zeros((self.dim, self.dim))

    def moment(self, powers: Sequence[int]) -> Float[Array, ""]:
        """The state's own powers."""
        return jnp.prod(self.state ** np.asarray(checks.powers(powers, self.dim)))

    def marginal(self, coordinates: Sequence[int] | int) -> KnownState:
        """The known coordinates."""
        return KnownState(self.state[jnp.asarray(checks.coordinates(coordinates, self.dim))])

    def condition(self, values: Mapping[int, float]) -> Belief:
        """Refused: nothing is left to learn."""
        raise ValueError("Expected a belief with a density to condition, got a known state.")

    def probability(self, lower: ArrayLike, upper: ArrayLike) -> Float[Array, ...]:
        """One where the state lies in the box, else zero."""
        lower, upper = checks.box(lower, upper, self.dim)
        return jnp.all((self.state > lower) & (self.state < upper), axis=-1).astype(float)

    def support(self) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """The state, twice."""
        return self.state, self.state

    def cdf(self, x: ArrayLike) -> Float[Array, ...]:
        """One from the state on."""
        return jnp.all(self.state <= checks.box_end(x, self.dim, "x"), axis=-1).astype(float)

    def sample(self, key: PRNGKeyArray, shape: int | Sequence[int] = ()) -> Float[Array, "... d"]:
        """The state, as often as asked for."""
        del key
        return jnp.broadcast_to(self.state, (*checks.shape(shape), self.dim))
