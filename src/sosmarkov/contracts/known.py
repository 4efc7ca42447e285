"""A state known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.line import Line
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import stored


class Step(Line):
    """All mass at one place."""

    coefficients: Float[Array, "k 1"]
    place: Float[Array, ""]

    def densities(self, x: Float[Array, " t"]) -> Float[Array, "t 1"]:
        """None: solvers go by the masses alone."""
        return jnp.zeros((len(x), 1))

    def masses(self, x: Float[Array, " t"]) -> Float[Array, "t 1"]:
        """One from the place on."""
        return (self.place <= x).astype(float)[:, None]

    def moments(self) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """The place, and no spread."""
        return self.place[None], jnp.zeros(1)

    def support(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The place, twice."""
        return self.place, self.place


@stored("state")
class KnownState(Belief):
    """A state known exactly: all mass at one point, no density.

    Args:
        state: Shape (d,), in data space.
    """

    state: Float[Array, " d"]

    def __init__(self, state: ArrayLike):
        self.state = checks.parameter(state, "state", (None,))
        self.names = None

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

    def _moment(self, powers: tuple[int, ...]) -> Float[Array, ""]:
        return jnp.prod(self.state ** np.asarray(powers))

    def _marginal(self, kept: tuple[int, ...]) -> KnownState:
        return KnownState(self.state[jnp.asarray(kept)])

    def line(self, coordinate: int) -> Step:
        """A step."""
        return Step(coefficients=jnp.ones((1, 1)), place=self.state[coordinate])

    def _quantiles(self, shares: Float[Array, " n"], chosen: tuple[int, ...]) -> Float[Array, "n k"]:
        return jnp.broadcast_to(self.state[jnp.asarray(chosen)], (len(shares), len(chosen)))

    def _condition(self, values: dict[int, Any]) -> Belief:
        raise ValueError("Expected a belief with a density to condition, got a known state.")

    def _probability(self, lower: Array, upper: Array) -> Float[Array, ...]:
        return jnp.all((self.state > lower) & (self.state < upper), axis=-1).astype(float)

    def _cdf(self, x: Array) -> Float[Array, ...]:
        return jnp.all(self.state <= x, axis=-1).astype(float)

    def support(self) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """The state, twice."""
        return self.state, self.state

    def sample(self, key: PRNGKeyArray | Any, shape: int | Sequence[int] = ()) -> Float[Array, "... d"]:
        """The state, as often as asked for."""
        del key
        return jnp.broadcast_to(self.state, (*checks.shape(shape), self.dim))
