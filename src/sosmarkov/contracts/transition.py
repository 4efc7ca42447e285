"""What every form of process answers about one step; the verbs are written once over these answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.check import CheckReport
from sosmarkov.contracts.known import KnownState
from sosmarkov.contracts.long_run import LongRun
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.data.dataset import Pairs
from sosmarkov.data.given import several
from sosmarkov.spaces.transforms import Transform

# A belief that has entered: its integrals against what the transition looks at (gates, products of functions), times
# exp(log_scale). Each form has a class of its own, with `log_scale`, of mass one where it was entered under a reading.
Message = Any
# The numbers that say which belief it is, of those a step leads to: an array, or a tree of them.
Numbers = Any


class AbstractTransition(eqx.Module):
    """What moves a belief one step: p(x' | x), or p(x' | x, u).

    A step is a linear map on the numbers `C` of a belief,

        C_(k+1) = push(message(C_k)),    message_i(C) = int gate_i p_C,

    and a reading o of x_k puts its likelihood l(o | .) under the integral. A form states

    - `dim`, `features` (how inputs act, None where there are none), `at` (the transition under one input);
    - the step: `enter_state`, `message`, `mixed`, `push`, its adjoint `pull`, `nothing_after` and `worth`; `belief`;
    - `box` and `window` (the same integrals over a box) and `reader` (under the readings of a sensor);
    - `log_prob`, `mass`, `sample` of the conditional density itself;
    - the map as a whole: `step_matrix`, `mass_vector`, `distance`, `coordinate`; or, in their place, `long_run`;
    - of itself: `parameter_count`, `summary`, `sizes`, `normalisation`, `examine`.

    Everything below "what follows" is written over these; a form overrides what it does faster. Recursions are loops in
    Python, unless `compiled` says that all arrays are JAX's: then they are compiled scans.
    """

    compiled: ClassVar[bool] = False
    # What `fit` calls it.
    kind: ClassVar[str]

    # From data to model space.
    transform: eqx.AbstractVar[Transform]

    # --- what it is -------------------------------------------------------------------------------

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of coordinates d."""

    @property
    @abstractmethod
    def features(self) -> Any | None:
        """How inputs act, with their number `dim` and the `period` where they are times; None where there are none."""

    @property
    @abstractmethod
    def parameter_count(self) -> int:
        """Free numbers."""

    def learned(self, pairs: Pairs, strength: float | None = None) -> tuple[Any, dict[str, float]]:
        """The transition after more pairs of states, and what there is to tell of them; forms that add up have this."""
        del pairs, strength
        raise ValueError(
            "Expected a process of the lattice or the gaussian form to learn more, for what they count adds up, got the"
            " factor form. Fit it again to all data: sm.fit(trajectories)."
        )

    @abstractmethod
    def summary(self) -> str:
        """The form in a few words."""

    def parts(self) -> dict[str, str]:
        """What it is made of: names and words, for tables."""
        found, features = {"form": self.summary(), "size": self.sizes}, self.features
        if features is None:
            return found
        return found | driven_by(features)

    @property
    @abstractmethod
    def sizes(self) -> str:
        """How large it is, in words."""

    @property
    @abstractmethod
    def normalisation(self) -> float | None:
        """By how much p(. | x) may miss the mass one, as far as is known without asking; None where it is not."""

    @abstractmethod
    def at(self, u: Float[Array, " e"] | None) -> AbstractTransition:
        """The transition under one input; itself where there are none."""

    # --- the conditional density ------------------------------------------------------------------

    @abstractmethod
    def log_prob(self, x_next: ArrayLike, x: ArrayLike, u: ArrayLike | None = None) -> Float[Array, ...]:
        """log p(x_next | x) for states of shape (..., d), under the inputs u where there are any."""

    @abstractmethod
    def mass(self, x: ArrayLike, u: ArrayLike | None = None) -> Float[Array, ...]:
        """The closed-form integral of p(. | x): one up to rounding."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, x: ArrayLike, u: ArrayLike | None = None) -> Float[Array, "... d"]:
        """One exact draw of x' for each state."""

    # --- the step ---------------------------------------------------------------------------------

    @abstractmethod
    def require_inside(self, state: Float[Array, " d"]) -> None:
        """A ValueError where no step leads from a state."""

    @abstractmethod
    def enter_state(self, state: Float[Array, " d"], reading: Any = None) -> Message:
        """The message of a known state, of one reading of it, or of whether it lies in a window."""

    @abstractmethod
    def message(self, C: Numbers) -> Message:
        """The message of the belief with these numbers."""

    @abstractmethod
    def mixed(self, weights: Float[Array, " m"], messages: list[Message]) -> Message:
        """The message of a mixture from those of its members."""

    @abstractmethod
    def push(self, message: Message, u: Float[Array, " e"] | None = None) -> Numbers:
        """The next belief's numbers, without the message's scale."""

    @abstractmethod
    def pull(self, backward: Any, u: Float[Array, " e"] | None = None) -> Any:
        """The adjoint of `push`: what integrals of a later belief are worth to a message."""

    @abstractmethod
    def nothing_after(self) -> Any:
        """What a message is worth where no reading follows: its mass."""

    @abstractmethod
    def belief(self, C: Numbers) -> Belief:
        """The belief with these numbers."""

    @abstractmethod
    def worth(self, message: Message, backward: Any) -> Float[Array, ""]:
        """What lies behind a message is worth to it, without its scale."""

    @abstractmethod
    def box(self, lower: ArrayLike, upper: ArrayLike) -> Any:
        """A box in data space, checked, with `shared` for what lies in two."""

    @abstractmethod
    def window(self, box: Any) -> Any:
        """Messages of what lies in a box: from numbers by a call, of a start by `enter`; they add up and subtract."""

    @abstractmethod
    def everywhere(self) -> Any:
        """The window that leaves nothing out."""

    @abstractmethod
    def reader(self, sensor: Any) -> Any:
        """A sensor of the state alone, prepared for this transition."""

    # --- the map as a whole -----------------------------------------------------------------------

    @property
    def long_run(self) -> LongRun | None:
        """What the form knows of ever more steps without a matrix; None where the four below say it."""
        return None

    def step_matrix(self, window: Any = None) -> Float[Array, "q q"]:
        """C_k -> C_(k+1) as a matrix; of what a window lets through, where one is given."""
        del window
        raise _no_matrix(self)

    def mass_vector(self) -> Float[Array, " q"]:
        """v with mass v . C."""
        raise _no_matrix(self)

    def distance(self, difference: Numbers) -> float:
        """A bound on 1/2 int |p - q| from the difference of two beliefs' numbers, that no step makes larger."""
        del difference
        raise _no_matrix(self)

    def coordinate(self, coordinate: int) -> Any:
        """A window whose messages are of x_c p(x) in the place of p(x)."""
        del coordinate
        raise _no_matrix(self)

    @abstractmethod
    def examine(self, initial: Belief) -> CheckReport:
        """How exactly it is normalised, and how well it is conditioned."""

    # --- what follows -----------------------------------------------------------------------------

    @property
    def steady(self) -> AbstractTransition:
        """Itself, where it is the same at every step."""
        if self.features is None:
            return self
        raise ValueError(
            "Expected a process whose steps are all alike for this question, got one with inputs or a period. Ask"
            " `process.under(u)`, the process under one input."
        )

    def under(self, u: ArrayLike) -> AbstractTransition:
        """The transition under one input that stays, checked."""
        del u
        raise ValueError("Expected a process with inputs, got one that was built without.")

    def start(self, initial: Any) -> Belief:
        """A belief to start from, out of a belief or a known state; or a ValueError."""
        belief = initial if isinstance(initial, Belief) else KnownState(initial)
        if belief.dim != self.dim:
            raise ValueError(f"Expected an initial belief over {self.dim} coordinates, got {belief.dim}.")
        belief.require_of(self)
        return belief

    def total(self, message: Message) -> Float[Any, ""]:
        """The mass of a message without its scale."""
        return self.worth(message, self.nothing_after())

    def enter(self, belief: Belief, reading: Any = None) -> Message:
        """The message of a start; under a reading, of what it leaves, of mass one times exp(log_scale)."""
        return belief.enter(self, reading)

    def later(self, belief: Belief, u: Float[Array, " e"] | None = None) -> Belief:
        """The belief one step later."""
        return self.belief(self.push(self.enter(belief), u)).with_columns(belief.names)

    def mean_push(self, states: Float[Array, "n d"]) -> Numbers:
        """The numbers of the belief one step after a state picked from these at random."""
        weights = jnp.full(len(states), 1.0 / len(states))
        return self.push(self.mixed(weights, [self.enter_state(state) for state in states]))

    def mean_after(self, x: Float[Any, "n d"]) -> Float[Any, "n d"]:
        """E[x' | x] of known states."""
        return np.stack([np.asarray(self.later(KnownState(state)).mean()) for state in x])

    def log_prob_later(
        self, x_next: Float[Any, "n d"], x: Float[Any, "n d"], gap: int, inputs: Float[Any, "n gap e"] | None
    ) -> Float[Array, " n"]:
        """log p(x_(k + gap) | x_k) of pairs, under the inputs of each."""
        found = []
        for i, (after, before) in enumerate(zip(x_next, x, strict=True)):
            belief: Belief = KnownState(before)
            for j in range(gap):
                belief = self.later(belief, None if inputs is None else inputs[i, j])
            found.append(belief.log_prob(after))
        return jnp.asarray(np.asarray(found))

    def steps_of(self, inputs: ArrayLike | None, steps: int) -> Array | None:
        """The inputs of so many steps, shape (steps, e), or a ValueError; None where the transition takes none.

        Where the input is the time of a period, it counts from zero unless it is given.
        """
        features = self.features
        if features is None:
            if inputs is not None:
                raise ValueError("Expected no inputs for a process that was built without them, got some.")
            return None
        if inputs is None:
            if features.period is None:
                raise ValueError(
                    f"Expected inputs of shape ({steps}, {features.dim}), one for each step, got none. For one input"
                    " that stays, `process.under(u)` is an ordinary process."
                )
            return jnp.arange(steps, dtype=float)[:, None]
        array = checks.as_float(inputs, "inputs")
        if array.ndim == 1 and features.dim == 1:
            array = array[:, None]
        if array.shape != (steps, features.dim):
            raise ValueError(
                f"Expected inputs of shape ({steps}, {features.dim}), one for each step, got {array.shape}."
            )
        checks.require_finite(array, "inputs")
        if features.period is not None and checks.is_concrete(array) and np.any(np.asarray(array) != np.round(array)):
            raise ValueError("Expected whole numbers for the times of a process with a period, got others.")
        return array

    def inputs_of(self, steps: Sequence[int], inputs: Any) -> list[np.ndarray] | None:
        """The inputs of several trajectories with so many steps each; None where the transition takes none."""
        if self.features is None or inputs is None:
            given = [self.steps_of(inputs, count) for count in steps]
        else:
            each = several(inputs)
            if len(each) != len(steps):
                raise ValueError(f"Expected inputs of {len(steps)} trajectories, got those of {len(each)}.")
            given = [self.steps_of(one, count) for one, count in zip(each, steps, strict=True)]
        return None if any(u is None for u in given) else [np.asarray(u) for u in given]


def driven_by(features: Any) -> dict[str, str]:
    """How many inputs there are, or the period, for tables."""
    return {"inputs": str(features.dim)} if features.period is None else {"period": f"{features.period} steps"}


def _no_matrix(transition: AbstractTransition) -> ValueError:
    return ValueError(
        f"Expected a form whose step is a matrix on numbers, got {type(transition).__name__}. See its `long_run`."
    )


def one_input(transition: AbstractTransition, u: ArrayLike | None) -> Float[Array, " e"] | None:
    """The input of one step, or the time in a period, as an array; or a ValueError."""
    if transition.features is not None and u is None:
        raise ValueError("Expected an input u to predict under, or the time in a period, got none.")
    return None if u is None else transition.steps_of(checks.as_float(u, "u")[None], 1)[0]  # type: ignore[index]
