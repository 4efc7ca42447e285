"""Linear sensors with Gaussian noise, and mixtures of them, prepared for a linear-Gaussian step: Kalman's filter."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from sosmarkov.contracts.belief import Belief, EstimateWarning
from sosmarkov.contracts.reader import Passed, Reader, Sensor, Updated, require_possible
from sosmarkov.core import checks
from sosmarkov.core.draws import generator
from sosmarkov.gaussian import mixture as mixtures
from sosmarkov.gaussian.mixture import Behind, Linear, Mixture
from sosmarkov.gaussian.reduce import reduced
from sosmarkov.gaussian.windows import Message

# Members of a filter's mixture, and terms of what lies behind, that are carried from one reading to the next.
_MEMBERS, _TERMS = 256, 4096


@dataclass(frozen=True)
class _Part:
    """One explanation of readings: o = H x + c + noise, by its weight."""

    log_weight: float
    sensor: Sensor
    H: Float[ndarray, "k d"]
    offset: Float[ndarray, " k"]
    std: Float[ndarray, " k"]

    def of(self, observation: ndarray) -> Linear:
        """What one reading says, in units of the noise; rows that are missing are left out."""
        there = ~np.isnan(observation)
        std = self.std[there]
        log_noise = -np.sum(np.log(std)) - 0.5 * len(std) * math.log(2.0 * math.pi)
        z = (observation - self.offset)[there] / std
        return Linear(self.log_weight + float(log_noise), self.H[there] / std[:, None], z)


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class LinearReader(Reader):
    """A sensor that is linear with Gaussian noise, or a mixture of such: beliefs stay Gaussian mixtures.

    A mixture of J sensors makes J members of each; beyond 256 those that are most alike are joined, with a warning.

    Args:
        transition: Of the states that are read.
        sensor: Reads them.
    """

    transition: Any
    sensor: Sensor
    parts: tuple[_Part, ...] = field(init=False)

    def __post_init__(self):
        parts = []
        for weight, part in self.sensor.parts():
            found = part.affine(self.transition.dim)
            if found is None:
                raise ValueError(
                    "Expected sensors that are linear with Gaussian noise (GaussianSensor, LinearSensor), or a mixture"
                    f" of such, for a process in the gaussian form, got {type(part).__name__}: what it leaves of a"
                    " Gaussian is none. Learn the process with form='lattice' or form='factor', which read it."
                )
            H, offset, std = (np.asarray(each, dtype=float) for each in found)
            parts.append(_Part(math.log(float(weight)), part, H, offset, std))
        object.__setattr__(self, "parts", tuple(parts))

    def reading(self, observation: Any) -> list[Linear]:
        """All explanations of one reading; none where nothing was read."""
        if not checks.is_concrete(observation):
            raise ValueError(
                "Expected readings with values for a process in the gaussian form, which is computed by NumPy, got ones"
                " that are being traced by JAX. Filter sequences one by one."
            )
        values = np.asarray(observation, dtype=float)
        if bool(self.sensor.missing(values)):
            return []
        return [part.of(values) for part in self.parts]

    def first(self, initial: Belief, observation: Any) -> Message:
        """The start, given what is read of it."""
        return self.transition.enter(initial, _Read(self, observation))

    def given(self, mixture: Mixture, observation: Any) -> tuple[Mixture, float]:
        """Bayes' rule, and the log of how likely the reading was."""
        reading = self.reading(observation)
        if not reading:
            return mixture, 0.0
        found, log_evidence = mixtures.given(mixture, reading)
        if len(reading) == 1 and len(found.weights) <= _MEMBERS:
            return found, log_evidence
        found, moved = reduced(found, _MEMBERS)
        if moved > 0:
            warnings.warn(
                f"A mixture of sensors made more than {_MEMBERS} members of a belief: the most alike were joined, which"
                f" moved it by about {moved:.1g} nats. A sensor of fewer parts needs none of it.",
                EstimateWarning,
                stacklevel=2,
            )
        return found, log_evidence

    def ahead(self) -> Callable[[Message, Any, Any], tuple[Message, Passed]]:
        """The step, then Bayes' rule."""

        def step(message: Message, observation: Any, u: Any) -> tuple[Message, Passed]:
            C = self.transition.push(message, u)
            found, log_evidence = self.given(C, observation)
            # What posterior starts from is the predicted belief itself.
            return Message(found, 0.0), Passed(C, None, np.ones(()), np.asarray(log_evidence))

        return step

    def back(self) -> Callable[[Any, Any, Any, Any], Behind]:
        """The reading, then the adjoint of the step, divided by the evidence."""

        def step(b: Behind, observation: Any, log_evidence: Any, u: Any) -> Behind:
            there = np.isfinite(b.log_scale)
            found = mixtures.read_behind(Behind(*(part[there] for part in b)), self.reading(observation))
            if len(found.log_scale) > _TERMS:
                raise ValueError(
                    f"Expected at most {_TERMS} combinations of explanations of the readings to smooth with, got more:"
                    f" a mixture of {len(self.parts)} sensors takes {len(self.parts)} times as many for every reading."
                    " Smooth shorter stretches, filter, or learn the process with form='lattice' or form='factor'."
                )
            found = self.transition.pull(found, u)
            return found._replace(log_scale=found.log_scale - float(log_evidence))

        return step

    def log_evidences(self, observations: Any, passed: Passed) -> Float[Any, " t"]:
        """The logs of how likely readings were; zero where nothing was read."""
        missing = np.array([bool(self.sensor.missing(np.asarray(one))) for one in observations])
        return np.where(missing, 0.0, np.asarray(passed.log_scale))

    def posterior(self, belief: Belief, observation: Any, backward: Any = None) -> Belief:
        """Bayes' rule for the reading and for all that lie behind."""
        found = self.transition.enter(belief).mixture
        if backward is not None:
            there = np.isfinite(backward.log_scale)
            found, _ = mixtures.facing(found, Behind(*(part[there] for part in backward)))
        if observation is not None:
            found, log_evidence = self.given(found, observation)
            require_possible(np.asarray(log_evidence))
        return self.transition.belief(found).with_columns(belief.names)

    def update(self, belief: Belief, observation: Any) -> Updated:
        """Bayes' rule, and the log of how likely the reading was."""
        if bool(self.sensor.missing(np.asarray(observation))):
            return Updated(belief, np.zeros(()))
        found, log_evidence = self.given(self.transition.enter(belief).mixture, observation)
        require_possible(np.asarray(log_evidence))
        return Updated(self.transition.belief(found).with_columns(belief.names), np.asarray(log_evidence))

    def draw(self, key: Any, x: Any, observation: Any, backward: Behind, u: Any) -> Float[Any, "n d"]:
        """From N(x'; F x + b, Q) l(o | x') B(x'), for each x: one gain for all of them a term."""
        rng, step, x = generator(key), self.transition.step(u), np.asarray(x)
        there = np.isfinite(backward.log_scale)
        behind = mixtures.read_behind(Behind(*(part[there] for part in backward)), self.reading(observation))
        means = x @ step.F.T + step.b
        logs, found, roots = [], [], []
        for log_scale, A, z in zip(*behind, strict=True):
            log, moved, P = mixtures.read(means, step.Q, A, z)
            logs.append(log + log_scale)
            found.append(moved)
            roots.append(np.linalg.cholesky(P))
        # The largest of logarithms with Gumbel noise is drawn by the weights.
        which = np.argmax(np.array(logs) + rng.gumbel(size=(len(logs), len(x))), axis=0)
        noise = rng.standard_normal(x.shape)
        moved, L = np.array(found)[which, np.arange(len(x))], np.array(roots)[which]
        return moved + np.einsum("nij,nj->ni", L, noise)


@dataclass(frozen=True)
class _Read:
    """One reading, as a start enters under it."""

    reader: LinearReader
    observation: Any

    def of(self, mixture: Mixture) -> Message:
        """Of mass one; the evidence is its scale."""
        return Message(*self.reader.given(mixture, self.observation))
