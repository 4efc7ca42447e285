"""Ensemble: several processes learned from the same data, and the mixture of what they believe."""

# JAX annotates some of its functions in part.
# pyright: reportUnknownMemberType=false
# A property may answer what a contract calls a variable.
# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, SupportsIndex, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.contracts.belief import Belief, Coordinate, Ends
from sosmarkov.contracts.check import CheckReport
from sosmarkov.contracts.mixture import EnsembleBelief, draw_parts
from sosmarkov.contracts.model import Model
from sosmarkov.contracts.reader import Sensor, Updated
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.saving import save
from sosmarkov.core.stored import stored
from sosmarkov.data.history import require_history
from sosmarkov.inference.beliefs import MixedBeliefs
from sosmarkov.inference.filter import FilterResult
from sosmarkov.inference.smooth import SmoothResult
from sosmarkov.inference.trajectories import ChapmanKolmogorov
from sosmarkov.process.process import MarkovProcess, Start


@stored("members", "history", make=lambda fields: Ensemble(**fields), check=require_history, model="ensemble")
class Ensemble(Model, Sequence[MarkovProcess]):
    """Processes trained at once from different starts; a sequence of them.

    One of the members is the truth, each with the same probability before anything is read: what the ensemble believes
    is the mixture of what they do, and readings weigh them by how likely each held them, exactly. A start is one for
    all members, or what the ensemble believed before.

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ensemble to one file, which `sosmarkov.load` reads."""
        save(self, path)

    # --- every verb, of each member, mixed --------------------------------------------------------

    def propagate(self, steps: int, *, initial: Start = None, inputs: ArrayLike | None = None) -> MixedBeliefs:
        """Beliefs at steps 0 to `steps`."""
        weights, starts = self._starts(initial)
        paths = self._each(lambda member, start: member.propagate(steps, initial=start, inputs=inputs), starts)
        return MixedBeliefs(tuple(paths), jnp.tile(weights, (len(paths[0]), 1)))

    def belief_at(self, k: int, *, initial: Start = None) -> EnsembleBelief:
        """The belief at one step, however far."""
        weights, starts = self._starts(initial)
        return EnsembleBelief(self._each(lambda member, start: member.belief_at(k, initial=start), starts), weights)

    def sample(
        self, key: PRNGKeyArray, count: int, steps: int, *, initial: Start = None, inputs: ArrayLike | None = None
    ) -> Float[Array, "n k d"]:
        """Independent trajectories, each one member's own."""
        weights, starts = self._starts(initial)

        def draws(member: MarkovProcess, start: Start) -> Callable[[Any, int], Array]:
            return lambda key, n: member.sample(key, n, steps, initial=start, inputs=inputs)

        return draw_parts(key, weights, checks.count(count, "count", 1), self._each(draws, starts))

    def log_likelihood(self, trajectories: Any, *, inputs: Any = None) -> Float[Array, " n"]:
        """log of the mean of the members' likelihoods, per trajectory."""
        found = [member.log_likelihood(trajectories, inputs=inputs) for member in self.members]
        return jax.nn.logsumexp(jnp.stack(found), axis=0) - jnp.log(len(self))

    def ck_test(
        self, trajectories: Any, steps: int, *, coordinate: Coordinate = 0, ranges: int = 3
    ) -> ChapmanKolmogorov:
        """Compare the mean of the members' k-step predictions with data."""
        found = [member.ck_test(trajectories, steps, coordinate=coordinate, ranges=ranges) for member in self.members]
        return found[0]._replace(predicted=np.mean([one.predicted for one in found], axis=0))

    def filter(
        self,
        observations: ArrayLike,
        *,
        sensor: Sensor | None = None,
        initial: Start = None,
        inputs: ArrayLike | None = None,
    ) -> FilterResult:
        """Beliefs given the readings so far, members weighed by their evidence, and the evidence of the mixture."""
        weights, starts = self._starts(initial)
        how = {"sensor": sensor, "inputs": inputs}
        return _filtered(self._each(lambda member, s: member.filter(observations, initial=s, **how), starts), weights)

    def smooth(
        self,
        observations: ArrayLike,
        *,
        sensor: Sensor | None = None,
        initial: Start = None,
        inputs: ArrayLike | None = None,
    ) -> SmoothResult:
        """Beliefs given all readings, members weighed by the evidence of all of them."""
        weights, starts = self._starts(initial)
        how = {"sensor": sensor, "inputs": inputs}
        found = self._each(lambda member, s: member.smooth(observations, initial=s, **how), starts)
        filtered = _filtered([one.filtered for one in found], weights)
        assert isinstance(filtered.beliefs, MixedBeliefs)
        last = filtered.beliefs.weights[-1]
        beliefs = MixedBeliefs(tuple(one.beliefs for one in found), jnp.tile(last, (len(filtered.beliefs), 1)))
        return SmoothResult(filtered, beliefs)

    def predict(self, belief: Start, *, u: ArrayLike | None = None) -> EnsembleBelief:
        """The belief one step later."""
        weights, starts = self._starts(belief)
        return EnsembleBelief(self._each(lambda member, start: member.predict(start, u=u), starts), weights)

    def update(self, belief: Start, observation: ArrayLike, *, sensor: Sensor | None = None) -> Updated:
        """The belief after one reading of its state, and the log of how likely the reading was."""
        weights, starts = self._starts(belief)
        return _weighed(self._each(lambda member, s: member.update(s, observation, sensor=sensor), starts), weights)

    def advance(
        self, belief: Start, observation: ArrayLike, *, u: ArrayLike | None = None, sensor: Sensor | None = None
    ) -> Updated:
        """The belief one step later, given what is read there."""
        weights, starts = self._starts(belief)
        how = {"u": u, "sensor": sensor}
        return _weighed(self._each(lambda member, start: member.advance(start, observation, **how), starts), weights)

    def stationary(self) -> EnsembleBelief:
        """The mixture of the members' stationary beliefs: where each of them ends."""
        return EnsembleBelief([member.stationary() for member in self.members])

    def spectrum(self) -> np.ndarray:
        """Eigenvalues of all members' steps, the largest first, each member's one among them: the mixture's modes."""
        values = np.concatenate([member.spectrum() for member in self.members])
        return values[np.argsort(-np.abs(values), kind="stable")]

    def mixing_time(self, tolerance: float, *, initial: Start = None) -> int:
        """Steps after which every member is within `tolerance` of its stationary belief, and so is the mixture."""
        _, starts = self._starts(initial)
        return max(self._each(lambda member, start: member.mixing_time(tolerance, initial=start), starts))

    def autocorrelation(self, coordinate: Coordinate, steps: int) -> Float[Array, " k"]:
        """Corr(x_c at time 0, x_c at time k) in the long run; what members differ in stays, however large k is."""
        (chosen,) = checks.coordinates(coordinate, self.dim, self.columns)
        long_run = [member.stationary() for member in self.members]
        means = jnp.stack([belief.mean()[chosen] for belief in long_run])
        variances = jnp.stack([belief.covariance()[chosen, chosen] for belief in long_run])
        own = jnp.stack([member.autocorrelation(chosen, steps) for member in self.members])
        between = jnp.mean((means - jnp.mean(means)) ** 2)
        return (jnp.mean(variances[:, None] * own, axis=0) + between) / (jnp.mean(variances) + between)

    def stay_probability(
        self,
        lower: Ends,
        upper: ArrayLike | None = None,
        steps: int | None = None,
        *,
        initial: Start = None,
        inputs: ArrayLike | None = None,
    ) -> Float[Array, " k"]:
        """P(x_1, ..., x_k all in the box) for k = 1, ..., steps, shape (steps,)."""
        how = {"inputs": inputs}
        return self._mean(lambda member, s: member.stay_probability(lower, upper, steps, initial=s, **how), initial)

    def reach_probability(
        self,
        lower: Ends,
        upper: ArrayLike | None = None,
        steps: int | None = None,
        *,
        avoid: tuple[ArrayLike, ArrayLike] | Ends | None = None,
        initial: Start = None,
        inputs: ArrayLike | None = None,
    ) -> Float[Array, " k"]:
        """P(one of x_1, ..., x_k in the box, none before in `avoid`) for k = 1, ..., steps, shape (steps,)."""
        how = {"avoid": avoid, "inputs": inputs}
        return self._mean(lambda member, s: member.reach_probability(lower, upper, steps, initial=s, **how), initial)

    def mean_first_passage(
        self, lower: Ends, upper: ArrayLike | None = None, *, initial: Start = None
    ) -> Float[Array, ""]:
        """E[min {k >= 0: x_k in the box}], in steps."""
        return self._mean(lambda member, start: member.mean_first_passage(lower, upper, initial=start), initial)

    def check(self) -> CheckReport:
        """The worst of the members' reports, figure by figure."""
        reports = [member.check() for member in self.members]
        worst = {"smallest_log_density": min, "converged": all}
        columns = zip(CheckReport._fields, zip(*reports, strict=True), strict=True)
        return CheckReport(**{name: worst.get(name, max)(values) for name, values in columns})

    def _starts(self, initial: Start) -> tuple[Array, Sequence[Start]]:
        """The members' weights, and a start for each."""
        if isinstance(initial, EnsembleBelief) and len(initial.members) == len(self):
            return initial.weights, initial.members
        return jnp.full(len(self), 1.0 / len(self)), [initial] * len(self)

    def _each(self, ask: Callable[[MarkovProcess, Start], Any], starts: Sequence[Start]) -> list[Any]:
        return [ask(member, start) for member, start in zip(self.members, starts, strict=True)]

    def _mean(self, ask: Callable[[MarkovProcess, Start], Any], initial: Start) -> Array:
        weights, starts = self._starts(initial)
        return jnp.tensordot(weights, jnp.stack(self._each(ask, starts)), axes=1)


def _filtered(found: list[FilterResult], weights: Array) -> FilterResult:
    """The mixture of the members' filters: p(m | o_0, ..., o_k) is proportional to p(m) p(o_0, ..., o_k | m)."""
    log_evidences = jnp.stack([one.log_evidences for one in found], axis=-1)
    after = jnp.log(weights)[None] + jnp.cumsum(log_evidences, axis=-2)
    before = after - log_evidences
    mixed = jax.nn.logsumexp(after, axis=-1) - jax.nn.logsumexp(before, axis=-1)
    predicted, beliefs = zip(*((one.predicted, one.beliefs) for one in found), strict=True)
    return FilterResult(
        MixedBeliefs(predicted, jax.nn.softmax(before, axis=-1)),
        MixedBeliefs(beliefs, jax.nn.softmax(after, axis=-1)),
        mixed,
    )


def _weighed(found: list[Updated], weights: Array) -> Updated:
    """The mixture of the members' updates, weighed by their evidence."""
    log_weights = jnp.log(weights) + jnp.stack([one.log_evidence for one in found])
    total = jax.nn.logsumexp(log_weights)
    beliefs: list[Belief] = [one.belief for one in found]
    return Updated(EnsembleBelief(beliefs, jnp.exp(log_weights - total)), total)
