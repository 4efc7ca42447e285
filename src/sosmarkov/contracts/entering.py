"""How a belief enters a recursion: each kind answers for itself, so that every verb takes the same starts."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sosmarkov.core.checks import ArrayLike


class Entering(eqx.Module):
    """What a transition or a reader asks of a belief.

    A belief that a recursion may begin with answers `require_of`, `enter`, `given` and `facing`; the others refuse in
    the words below. A mixture answers by its members, whatever form of process they are of.
    """

    @property
    def parameter_count(self) -> int:
        """Free numbers of its own."""
        return 0

    def require_of(self, transition: Any) -> None:
        """A ValueError unless the transition can start from this belief."""
        del transition
        raise ValueError(
            "Expected a belief of this process, a known state, or a mixture of these to start from, got a"
            f" {type(self).__name__}. Start from what it was made of."
        )

    def enter(self, transition: Any, reading: Any = None) -> Any:
        """Integrals of the belief against what the transition looks at, under a reading or over a box: a message."""
        del reading
        return self.require_of(transition)

    def parts(self) -> list[tuple[Array | float, Any]]:
        """The beliefs it is a mixture of, with the logarithms of their weights; itself where it is none."""
        return [(0.0, self)]

    def given(self, likelihoods: Any, observation: Array, skipped: tuple[bool, ...]) -> list[tuple[Array, Any]]:
        """What a reading changes in it, and the log of how likely the reading was, for each part of the sensor."""
        del observation, skipped
        return [(jnp.zeros(()), self.require_of(likelihoods))]

    def changed(self, found: Any) -> Any:
        """The belief with what `given` found in the place of its own."""
        del found
        return self

    def facing(self, transition: Any, backward: Array) -> tuple[Array | float, Any]:
        """The belief times what all later readings are worth to a state: a logarithm, and a belief of any mass."""
        del backward
        return 0.0, self.require_of(transition)

    def normalised(self) -> tuple[Float[Array, ""], Any]:
        """The log of the mass, and the belief divided by it."""
        return jnp.zeros(()), self

    def log_seen(self, x: ArrayLike) -> Float[Array, ...]:
        """How likely these states are, shape (..., d): the log-density, or the log-probability where all mass is."""
        return self.log_prob(x)  # type: ignore[attr-defined]
