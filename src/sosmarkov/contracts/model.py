"""What a process and an ensemble both answer, so that nobody need ask which of them it has."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.contracts.belief import Belief, Coordinate, Ends
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import library


class Model(eqx.Module):
    """A Markov process, or several whose answers are mixed.

    `MarkovProcess` documents the verbs. All of them are here; `members` are the processes it is made of, a process its
    own only one.
    """

    initial: eqx.AbstractVar[Belief]
    history: eqx.AbstractVar[Any]
    columns: eqx.AbstractVar[tuple[str, ...]]
    members: eqx.AbstractVar[tuple[Any, ...]]

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.members[0].transition.dim

    @property
    def features(self) -> Any | None:
        """How inputs act; None where there are none."""
        return self.members[0].transition.features

    @property
    def input_dim(self) -> int:
        """How many numbers an input has; zero where there are none to give: none are taken, or time counts itself."""
        features = self.features
        return 0 if features is None or features.period is not None else features.dim

    @property
    def parameter_count(self) -> int:
        """Free numbers of the transition and of the initial belief, of all members."""
        return sum(one.transition.parameter_count + one.initial.parameter_count for one in self.members)

    @abstractmethod
    def under(self, u: ArrayLike) -> Model:
        """The same under one input that stays, shape (e,): steps are all alike."""

    @abstractmethod
    def with_columns(self, columns: Sequence[str]) -> Model:
        """The same with other names for its coordinates."""

    @abstractmethod
    def propagate(self, steps: int, *, initial: Any = None, inputs: ArrayLike | None = None) -> Any:
        """Beliefs at steps 0 to `steps`."""

    @abstractmethod
    def belief_at(self, k: int, *, initial: Any = None) -> Belief:
        """The belief at one step, however far."""

    @abstractmethod
    def sample(
        self, key: PRNGKeyArray | Any, count: int, steps: int, *, initial: Any = None, inputs: ArrayLike | None = None
    ) -> Float[Any, "n k d"]:
        """Independent trajectories x_0, ..., x_steps."""

    @abstractmethod
    def log_likelihood(self, trajectories: Any, *, inputs: Any = None) -> Float[Any, " n"]:
        """log p(x_0, x_1, ...) per trajectory."""

    @abstractmethod
    def ck_test(self, trajectories: Any, steps: int, *, coordinate: Coordinate = 0, ranges: int = 3) -> Any:
        """Compare k-step predictions with data."""

    @abstractmethod
    def filter(
        self, observations: ArrayLike, *, sensor: Any = None, initial: Any = None, inputs: ArrayLike | None = None
    ) -> Any:
        """Beliefs given the readings so far, and the evidence."""

    @abstractmethod
    def smooth(
        self, observations: ArrayLike, *, sensor: Any = None, initial: Any = None, inputs: ArrayLike | None = None
    ) -> Any:
        """Beliefs given all readings."""

    @abstractmethod
    def predict(self, belief: Any, *, u: ArrayLike | None = None) -> Belief:
        """The belief one step later."""

    @abstractmethod
    def update(self, belief: Any, observation: ArrayLike, *, sensor: Any = None) -> Any:
        """The belief after one reading of its state."""

    @abstractmethod
    def advance(self, belief: Any, observation: ArrayLike, *, u: ArrayLike | None = None, sensor: Any = None) -> Any:
        """The belief one step later, given what is read there."""

    @abstractmethod
    def stationary(self) -> Belief:
        """The belief that a step leaves as it is."""

    @abstractmethod
    def spectrum(self) -> np.ndarray:
        """Eigenvalues of the step, the largest first; one of each member's is one."""

    def timescales(self, count: int) -> np.ndarray:
        """Relaxation times in steps: -1 / log|lambda_i| of the largest eigenvalues after those that are one."""
        wanted, values = checks.count(count, "count", 1), self.spectrum()[len(self.members) :]
        if len(values) < wanted:
            raise ValueError(f"Expected a count of at most {len(values)} for this process, got {wanted}.")
        size = np.abs(values[:wanted])
        with np.errstate(divide="ignore"):
            return np.where(size > 0, -1.0 / np.log(size), 0.0)

    @abstractmethod
    def mixing_time(self, tolerance: float, *, initial: Any = None) -> int:
        """Steps after which the belief is within `tolerance` of the stationary one, in total variation."""

    @abstractmethod
    def autocorrelation(self, coordinate: Coordinate, steps: int) -> Float[Any, " k"]:
        """Corr(x_c at time 0, x_c at time k)."""

    @abstractmethod
    def stay_probability(
        self,
        lower: Ends,
        upper: ArrayLike | None = None,
        steps: int | None = None,
        *,
        initial: Any = None,
        inputs: ArrayLike | None = None,
    ) -> Float[Any, " k"]:
        """P(x_1, ..., x_k all in the box) for k = 1, ..., steps, shape (steps,)."""

    def exit_probability(
        self,
        lower: Ends,
        upper: ArrayLike | None = None,
        steps: int | None = None,
        *,
        initial: Any = None,
        inputs: ArrayLike | None = None,
    ) -> Float[Any, " k"]:
        """P(x_k is the first of x_1, x_2, ... outside the box) for k = 1, ..., steps: the first-exit time."""
        stayed = self.stay_probability(lower, upper, steps, initial=initial, inputs=inputs)
        return -library(stayed).diff(stayed, prepend=1.0)

    @abstractmethod
    def reach_probability(
        self,
        lower: Ends,
        upper: ArrayLike | None = None,
        steps: int | None = None,
        *,
        avoid: tuple[ArrayLike, ArrayLike] | Ends | None = None,
        initial: Any = None,
        inputs: ArrayLike | None = None,
    ) -> Float[Any, " k"]:
        """P(one of x_1, ..., x_k in the box) for k = 1, ..., steps, shape (steps,)."""

    @abstractmethod
    def mean_first_passage(self, lower: Ends, upper: ArrayLike | None = None, *, initial: Any = None) -> Float[Any, ""]:
        """E[min {k >= 0: x_k in the box}], in steps."""

    @abstractmethod
    def check(self) -> Any:
        """How exactly it is normalised, and how well it is conditioned; the worst of the members."""
