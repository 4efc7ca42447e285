"""Sensors, and what becomes of one that is prepared for a transition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.transition import AbstractTransition, Message, Numbers
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike


class Updated(NamedTuple):
    """What one reading made of a belief.

    Attributes:
        belief: p(x | o).
        log_evidence: Log p(o).
    """

    belief: Belief
    log_evidence: Float[Any, ""]


class Passed(NamedTuple):
    """What one step of a filter leaves behind.

    Attributes:
        predicted: Numbers of the belief before the reading.
        base: Those of the belief that `Reader.posterior` starts from.
        mass: Of what the reading leaves, times exp(log_scale): the evidence.
        log_scale: A logarithm, so that no reading is too far off.
    """

    predicted: Numbers
    base: Numbers
    mass: Float[Any, ""]
    log_scale: Float[Any, ""]


class LineLikelihood(NamedTuple):
    """A factor of a likelihood that is a function of one coordinate.

    Attributes:
        log: Its logarithm at places of that coordinate, shape (n,), in data space, by NumPy.
        breaks: Where it has its top or jumps.
    """

    log: Callable[[np.ndarray], np.ndarray]
    breaks: np.ndarray


class Sensor(eqx.Module):
    """p(o | x). Readings of a sequence lead with the axis of time; NaN stands for what is missing.

    A sensor of one's own states `shape`, and what the form of process reads by: `reading` for the factor form, and
    `linear` where it is linear with Gaussian noise; `log_likelihood` for the lattice form, and `lines` where it is a
    product.
    """

    # Whether a reading says something of its state alone; else it is read together with the step to its state.
    of_state: ClassVar[bool] = True

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Of one reading."""

    def check(self, observations: ArrayLike, name: str = "observations") -> Float[Array, ...]:
        """Readings on leading axes as an array, NaN for what is missing, or a ValueError."""
        array = checks.as_float(observations, name)
        # Counted from the front: no reading has as many axes as zero.
        if array.shape[array.ndim - len(self.shape) :] != self.shape or array.ndim < len(self.shape):
            raise ValueError(f"Expected {name} with last axes {self.shape}, got an array of shape {array.shape}.")
        self.require_sound(array, name)
        return array

    def require_sound(self, array: Float[Array, ...], name: str) -> None:
        """Refuse infinite readings; of which NaN stands for missing ones."""
        if checks.is_concrete(array) and np.any(np.isinf(array)):
            raise ValueError(f"Expected finite readings, or NaN for missing ones, got infinite {name}.")

    def missing(self, observation: Array | np.ndarray) -> Array | np.bool_:
        """Whether one reading says nothing."""
        return isnan(observation).all()

    def require_fits(self, transition: AbstractTransition) -> None:
        """A ValueError where a process cannot have this sensor as its own."""
        del transition

    @property
    def named(self) -> bool:
        """Whether coordinates were given by name, and wait for their places."""
        return False

    def on_columns(self, columns: Sequence[str]) -> Sensor:
        """The sensor of states with these columns: coordinates that were given by name get their places."""
        del columns
        return self

    def reader(self, transition: AbstractTransition, *, own: bool = True) -> Reader:
        """The sensor prepared for a transition.

        Args:
            transition: Of the states that are read.
            own: Whether the recursion begins with the process's own initial belief, which may know what is read first.
        """
        del own
        return transition.reader(self)

    def log_likelihood(self, observation: np.ndarray, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """log p(o | x) of one reading at many states in data space, by NumPy; what is missing of it says nothing.

        By default the sensor's own `log_prob(observation, x)`, where it has one.
        """
        own = getattr(self, "log_prob", None)
        if own is None:
            raise ValueError(
                f"Expected a sensor whose likelihood can be asked at states, got {type(self).__name__}. Give it a"
                " method log_likelihood(observation, x), vectorised over states x of shape (n, d)."
            )
        return np.asarray(own(observation, x), dtype=float)

    def lines(self, observation: np.ndarray, dim: int) -> list[tuple[int, LineLikelihood]] | None:
        """The likelihood of one reading as a product of functions of one coordinate each; None where it is not one."""
        del observation, dim
        return None

    # --- what a form of process asks of a sensor of the state alone -------------------------------

    def parts(self) -> tuple[tuple[Array, Sensor], ...]:
        """Weights and sensors whose densities add up to this one's."""
        return ((jnp.ones(()), self),)

    def reading(self, observation: Array, basis: Any, transform: Any) -> Any:
        """What one reading says, in model space, as functions of the basis's family."""
        raise ValueError(f"Expected a sensor with a reading of its own, got {type(self).__name__}.")

    def affine(self, dim: int) -> tuple[Any, Any, Any] | None:
        """H (k, d), c (k,) and std (k,) of a sensor o = H x + c + noise of d coordinates; None for other sensors."""
        del dim
        return None

    def linear(self, basis: Any, transform: Any) -> Any:
        """The sensor as a linear one with Gaussian noise, where it is one for this family."""
        del basis, transform
        return


class Reader(ABC):
    """A sensor prepared for one transition: what its readings do to messages and beliefs.

    Known sensors read and then step; one learned jointly with the process steps with the reading. One recursion serves
    both: it begins with `first`, goes on with the step that `ahead` returns, and back with the one that `back` does.
    Readers are dataclasses that JAX knows, and no Equinox modules: a stream makes one for each reading, and calls it.
    """

    transition: Any
    sensor: Any

    def begin(self, initial: Belief, observation: Array) -> Belief:
        """The belief of x_0 that `posterior` starts from."""
        del observation
        return initial

    @abstractmethod
    def first(self, initial: Belief, observation: Array) -> Message:
        """The message of x_0 given its reading; the evidence is its scale."""

    @abstractmethod
    def ahead(self) -> Callable[[Message, Array, Array | None], tuple[Message, Passed]]:
        """A step and the reading after it, with all that is the same for every reading done in advance."""

    @abstractmethod
    def back(self) -> Callable[[Any, Array, Array, Array | None], Any]:
        """From what lies behind x_(k+1), a reading of it, its log-evidence and the input: what lies behind x_k."""

    @abstractmethod
    def posterior(self, belief: Belief, observation: Array | None, backward: Any = None) -> Belief:
        """The belief given its reading, if any, and with `backward` all later ones, from what the filter has of it."""

    @abstractmethod
    def update(self, belief: Belief, observation: Array) -> Updated:
        """Bayes' rule for one reading: p(x | o) is proportional to p(x) l(o | x)."""

    def advance(self, belief: Belief, observation: Array, u: Array | None = None) -> Updated:
        """The belief one step later, given what is read there."""
        return self.update(self.transition.later(belief, u), observation)

    @abstractmethod
    def draw(self, key: Array, x: Array, observation: Array, backward: Any, u: Array | None) -> Array:
        """One draw of x' for each x, given what is read of x' and of what comes after it."""

    def log_evidences(self, observations: Array, passed: Passed) -> Float[Any, " t"]:
        """The log of how likely readings were; zero where nothing was read."""
        missing = jax.vmap(self.sensor.missing)(observations)
        # Without a reading the mass is one but for rounding, which is nobody's evidence.
        return jnp.where(missing, 0.0, jnp.log(passed.mass) + passed.log_scale)


def placed(sensor: Sensor, columns: Sequence[str]) -> Sensor:
    """A sensor of states with these columns: itself where no coordinate was given by name."""
    return sensor.on_columns(columns) if sensor.named else sensor


def one_reading(sensor: Sensor, observation: ArrayLike) -> Float[Array, ...]:
    """One reading, or a ValueError."""
    array = sensor.check(observation, "observation")
    if array.ndim != len(sensor.shape):
        raise ValueError(f"Expected one reading of shape {sensor.shape}, got an array of shape {array.shape}.")
    return array


def readings_in_rows(sensor: Sensor, observations: ArrayLike) -> Float[Array, "t ..."]:
    """One or more readings of one sequence, or a ValueError."""
    array = sensor.check(observations)
    if array.ndim != 1 + len(sensor.shape) or array.shape[0] == 0:
        wanted = ", ".join(map(str, ("T", *sensor.shape)))
        raise ValueError(
            f"Expected one reading a row, at least one, shape ({wanted}), got an array of shape {array.shape}. Many"
            " sequences of one length go through `jax.vmap`."
        )
    return array


def require_possible(log_evidence: Any) -> None:
    """Refuse readings of probability zero (looked at on concrete arrays only)."""
    if checks.is_concrete(log_evidence) and not np.all(np.asarray(log_evidence) > -np.inf):
        raise ValueError(
            "Expected readings that are possible under the process, got one of probability zero: an interval outside"
            " of where the process can be, or a number no double can square. Widen the interval, or mark the reading as"
            " missing (NaN)."
        )


def isnan(observation: Array | np.ndarray) -> Any:
    """By NumPy where its array is given, which is quicker for one reading."""
    return (np if isinstance(observation, np.ndarray) else jnp).isnan(observation)
