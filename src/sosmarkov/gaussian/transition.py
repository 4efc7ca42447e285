"""The linear-Gaussian step x' = F x + b (+ B u) + noise as a form of process."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.check import CheckReport
from sosmarkov.contracts.known import KnownState
from sosmarkov.contracts.mixture import MixtureBelief
from sosmarkov.contracts.transition import AbstractTransition
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.draws import generator
from sosmarkov.core.stored import stored
from sosmarkov.data.dataset import EXTREME, Pairs
from sosmarkov.gaussian import mixture as mixtures
from sosmarkov.gaussian.beliefs import numbers, of, positive_definite
from sosmarkov.gaussian.long_run import GaussianRun
from sosmarkov.gaussian.mixture import Behind, LinearStep, Mixture
from sosmarkov.gaussian.moments import Moments
from sosmarkov.gaussian.readings import LinearReader
from sosmarkov.gaussian.windows import Box, Message, Window
from sosmarkov.spaces.transforms import Identity

_PROBES = 64


class Inputs(NamedTuple):
    """How inputs act: B u, or as the time that says the phase of a period.

    Attributes:
        dim: Numbers in an input.
        period: Steps after which the dynamics repeat; None where inputs are no times.
    """

    dim: int
    period: int | None


@stored("F", "b", "Q", "B", "moments", make=lambda fields: GaussianTransition(**fields), optional=["moments"])
class GaussianTransition(AbstractTransition):
    """p(x' | x) = N(x'; F x + b, Q), or N(x'; F x + b + B u, Q) under inputs, or one such step a phase of a period.

    Beliefs are Gaussian mixtures, of as many members as the initial one has: carried, filtered and smoothed exactly.
    Answers are NumPy arrays.

    Args:
        F: Shape (d, d); or (p, d, d), one for each phase of a period of p steps, as may be b and Q.
        b: Shape (d,), or (p, d).
        Q: Symmetric and positive definite, shape (d, d), or (p, d, d).
        B: Shape (d, e), where inputs u act; none with a period, whose input is the time.
        moments: Of the data it was learned from, which it can go on learning by.
    """

    kind: ClassVar[str] = "gaussian"

    F: Float[ndarray, "*p d d"]
    b: Float[ndarray, "*p d"]
    Q: Float[ndarray, "*p d d"]
    B: Float[ndarray, "d e"] | None
    moments: Moments | None

    def __init__(
        self, F: ArrayLike, b: ArrayLike, Q: ArrayLike, B: ArrayLike | None = None, moments: Moments | None = None
    ):
        F, b, Q = numbers(F, "F"), numbers(b, "b"), numbers(Q, "Q")
        dim = F.shape[-1] if F.ndim else 0
        lengths = {len(part) for part, own in ((F, 2), (b, 1), (Q, 2)) if part.ndim == own + 1}
        lead = tuple(lengths) if len(lengths) == 1 else ()
        wanted = ((F, (dim, dim)), (b, (dim,)), (Q, (dim, dim)))
        fits = all(part.shape in (own, (*lead, *own)) for part, own in wanted)
        if not fits or dim == 0 or 0 in lead:
            raise ValueError(
                "Expected F, b and Q of shapes (d, d), (d,) and (d, d), with one axis more in front for the phases of a"
                f" period, got {F.shape}, {b.shape} and {Q.shape}."
            )
        self.F, self.b, self.Q = (np.array(np.broadcast_to(part, (*lead, *own))) for part, own in wanted)
        self.Q = positive_definite(self.Q, "Q")
        self.B, self.moments = None if B is None else numbers(B, "B"), moments
        if self.B is not None and (self.B.ndim != 2 or len(self.B) != dim or 0 in self.B.shape):
            raise ValueError(f"Expected B of shape ({dim}, e), got {self.B.shape}.")
        if self.B is not None and lead:
            raise ValueError("Expected inputs (B) or a period, got both. Make phases inputs, one zero or one for each.")

    # --- what it is -------------------------------------------------------------------------------

    @property
    def transform(self) -> Identity:
        """None: model space is data space."""
        return Identity(self.dim)

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return self.F.shape[-1]

    @property
    def period(self) -> int | None:
        """Steps after which the dynamics repeat; None where all are alike."""
        return len(self.F) if self.F.ndim == 3 else None

    @property
    def features(self) -> Inputs | None:
        """How inputs act; None where there are none."""
        if self.period is not None:
            return Inputs(1, self.period)
        return None if self.B is None else Inputs(self.B.shape[1], None)

    @property
    def parameter_count(self) -> int:
        """F, b, a half of Q, and B."""
        d, phases = self.dim, self.period or 1
        return phases * (d * d + d + d * (d + 1) // 2) + (0 if self.B is None else self.B.size)

    def summary(self) -> str:
        """The form, and how inputs act."""
        how = "" if self.period is None else f", one for each of {self.period} phases"
        return f"linear step with Gaussian noise{how}{'' if self.B is None else ', under inputs'}"

    @property
    def sizes(self) -> str:
        """Shapes of its matrices."""
        inputs = "" if self.B is None else f", {self.B.shape[1]} inputs"
        return f"{self.dim} x {self.dim} matrices{inputs}"

    @property
    def normalisation(self) -> float:
        """Zero: a Gaussian is normalised as it stands."""
        return 0.0

    def step(self, u: Any = None) -> LinearStep:
        """F, b and Q of the step under one input, or at one time."""
        if self.period is not None:
            phase = int(_given(u)[0]) % self.period
            return LinearStep(self.F[phase], self.b[phase], self.Q[phase])
        return LinearStep(self.F, self.b if self.B is None else self.b + self.B @ _given(u), self.Q)

    def at(self, u: Any) -> GaussianTransition:
        """The transition under one input; itself where there are none."""
        return self if self.features is None else GaussianTransition(*self.step(u))

    def under(self, u: ArrayLike) -> GaussianTransition:
        """The transition under one input that stays, or of one phase, checked."""
        if self.features is None:
            return super().under(u)  # type: ignore[return-value]
        given = np.asarray(checks.inputs(u, self.features.dim))
        if given.ndim != 1:
            raise ValueError(f"Expected one input of shape ({self.features.dim},), got {given.shape}.")
        return self.at(given)

    # --- more data --------------------------------------------------------------------------------

    def learned(self, pairs: Pairs, strength: float | None = None) -> tuple[GaussianTransition, dict[str, float]]:
        """The least squares of all data so far: moments add up."""
        if self.moments is None:
            raise ValueError(
                "Expected a gaussian process that was learned from data to learn more, got one of given matrices. Fit"
                " one to all data: sm.fit(data, form='gaussian')."
            )
        if strength is not None:
            raise ValueError(
                f"Expected strength= with the lattice form, got {strength} with the gaussian one. Leave it out."
            )
        mean, deviation = self.moments.spread()
        d, usual = self.dim, lambda x: np.abs(x - mean[:d]) <= EXTREME * deviation[:d]
        odd = int(np.sum(~np.all(usual(pairs.x) & usual(pairs.x_next), axis=1)))
        if odd:
            raise ValueError(
                f"Expected states within {EXTREME:g} deviations of those that were learned from, got others in {odd} of"
                f" {len(pairs.x)} pairs. Leave them out."
            )
        z = [pairs.x, *([] if self.B is None else [pairs.u]), np.ones((len(pairs.x), 1))]
        phase = np.zeros(len(pairs.x), dtype=int) if self.period is None else self._phases(np.asarray(pairs.u))
        rows = [np.flatnonzero(phase == one) for one in range(self.period or 1)]
        more = Moments.of(np.concatenate(z, axis=1), pairs.x_next, pairs.weight, rows, self.moments.ridge)
        return from_moments(self.moments.plus(more), self.B is not None), {}

    # --- the conditional density ------------------------------------------------------------------

    def mean(self, x: ArrayLike, u: ArrayLike | None = None) -> Float[Any, "... d"]:
        """E[x' | x] = F x + b + B u for states of shape (..., d), under inputs of shape (..., e)."""
        x = np.asarray(checks.states(x, self.dim, "x"))
        if self.features is None:
            if u is not None:
                raise ValueError("Expected no input for a transition that was built without, got one.")
            return x @ self.F.T + self.b
        if u is None:
            raise ValueError("Expected an input for a transition that depends on one, got none.")
        given = np.asarray(checks.inputs(u, self.features.dim))
        if self.B is not None:
            return x @ self.F.T + self.b + given @ self.B.T
        phase = self._phases(given)
        return np.einsum("...ij,...j->...i", self.F[phase], x) + self.b[phase]

    def mean_after(self, x: Any) -> Float[Any, "n d"]:
        """F x + b."""
        return self.mean(x)

    def _phases(self, times: ndarray) -> Any:
        return times[..., 0].astype(int) % (self.period or 1)

    def log_prob(self, x_next: ArrayLike, x: ArrayLike, u: ArrayLike | None = None) -> Float[Any, ...]:
        """log p(x_next | x, u) for arrays of shape (..., d), (..., d) and (..., e); leading axes broadcast."""
        away = np.asarray(checks.states(x_next, self.dim, "x_next")) - self.mean(x, u)
        if self.period is None:
            return _log_normal(away, np.zeros(away.shape[:-1], dtype=int), self.Q[None])
        phases = np.broadcast_to(self._phases(np.asarray(checks.inputs(u, 1))), away.shape[:-1])
        return _log_normal(away, phases, self.Q)

    def mass(self, x: ArrayLike, u: ArrayLike | None = None) -> Float[Any, ...]:
        """One."""
        return np.ones(self.mean(x, u).shape[:-1])

    def sample(self, key: Any, x: ArrayLike, u: ArrayLike | None = None) -> Float[Any, "... d"]:
        """One exact draw of x' for each state; a JAX key, a whole number or a NumPy generator to draw by."""
        mean = self.mean(x, u)
        noise, L = generator(key).standard_normal(mean.shape), np.linalg.cholesky(self.Q)
        if self.period is None:
            return mean + noise @ L.T
        return mean + np.einsum("...ij,...j->...i", L[self._phases(np.asarray(checks.inputs(u, 1)))], noise)

    def log_prob_later(self, x_next: Any, x: Any, gap: int, inputs: Any) -> Float[Any, " n"]:
        """log p(x_(k + gap) | x_k) of pairs, under the inputs of each: the steps between composed."""
        x_next, x = np.asarray(x_next), np.asarray(x)
        if self.features is None:
            step = self.step().times(gap)
            return _log_normal(x_next - x @ step.F.T - step.b, np.zeros(len(x), dtype=int), step.Q[None])
        u = np.asarray(inputs)
        # Pairs at the same phase have steps alike; inputs only move the mean.
        phases = self._phases(u[:, 0]) if self.period is not None else np.zeros(len(x), dtype=int)
        found = np.zeros(len(x))
        for phase in np.unique(phases):
            rows = phases == phase
            mean, Q = x[rows], np.zeros((self.dim, self.dim))
            for j in range(gap):
                one = self.step(u[rows][0, j])
                shift = one.b if self.B is None else self.b + u[rows][:, j] @ self.B.T
                mean, Q = mean @ one.F.T + shift, mixtures.symmetric(one.F @ Q @ one.F.T + one.Q)
            found[rows] = _log_normal(x_next[rows] - mean, np.zeros(len(mean), dtype=int), Q[None])
        return found

    # --- the step ---------------------------------------------------------------------------------

    def require_inside(self, state: Any) -> None:
        """Everywhere."""
        del state

    def enter_state(self, state: Any, reading: Any = None) -> Message:
        """A member without spread."""
        d = self.dim
        return self.enter_mixture(Mixture(np.ones(1), np.asarray(state)[None], np.zeros((1, d, d))), reading)

    def enter_mixture(self, mixture: Mixture, reading: Any = None) -> Message:
        """A mixture, or what a reading or a window leaves of it."""
        return Message(mixture, 0.0) if reading is None else reading.of(mixture)

    def message(self, C: Mixture) -> Message:
        """The numbers are the mixture."""
        return Message(C, 0.0)

    def mixed(self, weights: Any, messages: list[Message]) -> Message:
        """All members together."""
        logs = np.array([float(message.log_scale) for message in messages])
        own, total = mixtures.reweighed(np.asarray(weights), logs)
        parts = zip(*(message.mixture for message in messages), strict=True)
        shares, means, covariances = (list(part) for part in parts)
        scaled = np.concatenate([weight * share for weight, share in zip(own, shares, strict=True)])
        return Message(Mixture(scaled, np.concatenate(means), np.concatenate(covariances)), total)

    def mean_push(self, states: Any) -> Mixture:
        """The mixture of the steps from these states."""
        x = np.asarray(states)
        spread = np.zeros((len(x), self.dim, self.dim))
        return self.step()(Mixture(np.full(len(x), 1.0 / len(x)), x, spread))

    def push(self, message: Message, u: Any = None) -> Mixture:
        """Every member moves."""
        return self.step(u)(message.mixture)

    def pull(self, backward: Behind, u: Any = None) -> Behind:
        """The adjoint: int N(x'; F x + b, Q) B(x') dx'."""
        return mixtures.before(backward, self.step(u))

    def nothing_after(self) -> Behind:
        """B = 1."""
        return mixtures.nothing_behind(self.dim)

    def worth(self, message: Message, backward: Behind) -> Float[Any, ""]:
        """int p B, without the scale."""
        return np.exp(mixtures.facing(message.mixture, backward)[1])

    def belief(self, C: Mixture) -> Belief:
        """A Gaussian mixture; known states where members have no spread."""
        there = np.flatnonzero(C.weights > 0)
        known = ~np.any(C.covariances[there], axis=(1, 2))
        if not np.any(known):
            return of(Mixture(*(part[there] for part in C)))
        members: list[Belief] = [KnownState(C.means[i]) for i in there[known]]
        weights = [float(C.weights[i]) for i in there[known]]
        rest = there[~known]
        if len(rest):
            members.append(of(Mixture(*(part[rest] for part in C))))
            weights.append(float(np.sum(C.weights[rest])))
        return members[0] if len(members) == 1 else MixtureBelief(members, weights)

    def box(self, lower: ArrayLike, upper: ArrayLike) -> Box:
        """A box in data space."""
        return Box(lower, upper, self.dim)

    def window(self, box: Box) -> Window:
        """Its share of beliefs; nothing goes on from it but where it has no ends."""
        return Window(((1, box),))

    def everywhere(self) -> Window:
        """All there is."""
        return self.window(Box(-np.inf, np.inf, self.dim))

    def reader(self, sensor: Any) -> LinearReader:
        """Kalman's filter."""
        return LinearReader(self, sensor)

    @property
    def long_run(self) -> GaussianRun:
        """In closed form."""
        return GaussianRun(self)

    def examine(self, initial: Belief) -> CheckReport:
        """Normalised as it stands; how much wider the noise is one way than another."""
        rng: Any = np.random.default_rng(0)
        x = np.asarray(initial.sample(rng, _PROBES))
        condition = float(np.linalg.cond(self.Q))
        return CheckReport(
            normalisation_error=0.0,
            initial_mass_error=abs(float(initial.mass()) - 1.0),
            smallest_log_density=float(np.min(self.log_prob(self.sample(rng, x)[None], x[:, None]))),
            condition_factor=condition,
            condition_gram=float(np.linalg.cond(self.F)),
            amplification=float(np.sqrt(condition)),
            iterations=0,
            residual=0.0,
            converged=True,
        )


def from_moments(moments: Moments, driven: bool) -> GaussianTransition:
    """The step of some moments, under inputs or none."""
    (found, noises), d = moments.solved(), moments.factor.shape[1] - moments.width
    if moments.ridge is None:
        beta = found[0].beta
        return GaussianTransition(beta[:d].T, beta[-1], noises[0], beta[d:-1].T if driven else None, moments)
    betas = np.array([one.beta for one in found])
    return GaussianTransition(np.swapaxes(betas[:, :d], 1, 2), betas[:, d], np.array(noises), None, moments)


def _given(u: Any) -> ndarray:
    if u is None:
        raise ValueError("Expected an input for a transition that depends on one, got none.")
    return np.asarray(u)


def _log_normal(away: ndarray, which: ndarray, Q: ndarray) -> ndarray:
    """log N(away; 0, Q_which) for deviations (..., d), each under one of several covariances (p, d, d)."""
    flat, found = away.reshape(-1, away.shape[-1]), np.zeros(which.size)
    for phase in np.unique(which):
        rows = which.reshape(-1) == phase
        own = Mixture(np.ones(1), np.zeros((1, flat.shape[1])), Q[phase][None])
        found[rows] = mixtures.log_densities(own, flat[rows])[:, 0]
    return found.reshape(which.shape)
