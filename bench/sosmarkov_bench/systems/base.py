"""What every benchmark system shares: sampling, simulation, true densities.

A system is a constant, not a pytree of parameters: it hashes by identity, so it can be a static
argument of a compiled function, and its arrays are NumPy's, so importing it starts no device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike


@dataclass(frozen=True, eq=False)
class Gaussian:
    """N(mean, covariance) with a covariance of full rank."""

    mean: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "d d"]

    @classmethod
    def diagonal(cls, mean: ArrayLike, variance: ArrayLike) -> Gaussian:
        """Independent coordinates; one variance for all, or one each."""
        mean = np.asarray(mean, dtype=float)
        return cls(mean, np.diag(np.broadcast_to(np.asarray(variance, dtype=float), mean.shape)))

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.mean.shape[0]

    @cached_property
    def factor(self) -> Float[np.ndarray, "d d"]:
        """Lower triangular L with L L^T = covariance."""
        return np.linalg.cholesky(self.covariance)

    @cached_property
    def whitener(self) -> Float[np.ndarray, "d d"]:
        """L^{-1}: one product a point is cheaper than a triangular solve where kernels are evaluated by the million."""
        return np.linalg.inv(self.factor)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " d"]:
        """One draw."""
        return jnp.asarray(self.mean) + self.factor @ jax.random.normal(key, (self.dim,))

    def log_prob(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """Log-density at one point."""
        z = self.whitener @ (x - self.mean)
        log_scale = np.sum(np.log(np.diag(self.factor))) + 0.5 * self.dim * np.log(2.0 * np.pi)
        return -0.5 * jnp.sum(z**2) - log_scale


class Dynamics(ABC):
    """The transition of a system: what x' is given x, one point at a time."""

    @property
    @abstractmethod
    def has_density(self) -> bool:
        """Whether x' given x has a density in all coordinates."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """One draw of x' given x."""

    @abstractmethod
    def mean(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """E[x' | x]."""

    @abstractmethod
    def log_prob(self, x_next: Float[Array, " d"], x: Float[Array, " d"]) -> Float[Array, ""]:
        """log p(x' | x), or a ValueError where no density exists."""


@dataclass(frozen=True, eq=False)
class AdditiveNoise(Dynamics):
    """x' = F(x) + noise.

    Args:
        function: F, one point to one point.
        noise: Centred at zero.
    """

    function: Callable[[Array], Array]
    noise: Gaussian

    def __post_init__(self):
        if np.any(self.noise.mean != 0):
            raise ValueError(f"Expected noise centred at zero, got mean {self.noise.mean}. Shift the function instead.")

    @property
    def has_density(self) -> bool:
        """True: the noise has full rank."""
        return True

    def sample(self, key: PRNGKeyArray, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """F(x) plus a draw of the noise."""
        return self.function(x) + self.noise.sample(key)

    def mean(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """F(x)."""
        return self.function(x)

    def log_prob(self, x_next: Float[Array, " d"], x: Float[Array, " d"]) -> Float[Array, ""]:
        """Log-density of the noise at x' - F(x)."""
        return self.noise.log_prob(x_next - self.function(x))


@dataclass(frozen=True)
class Wide:
    """Training data that do not come from trajectories: initial states, and pairs (x, x') with x drawn wide.

    Args:
        distribution: Of x in the pairs, far wider than what the system reaches.
        initial_count: Number of initial states.
        pair_count: Number of pairs.
    """

    distribution: Gaussian
    initial_count: int
    pair_count: int


@dataclass(frozen=True, eq=False, kw_only=True)
class System:
    """A benchmark problem: initial distribution, dynamics, and how much data its protocol grants.

    Args:
        name: As in `SYSTEMS`.
        coordinates: Their names, in order.
        initial: Distribution of x_0.
        dynamics: Of x_{k+1} given x_k.
        train_trajectories: How many trajectories to learn from; zero where the training data are wide.
        test_trajectories: How many to score on.
        horizon: Number of transitions k of a trajectory.
        wide: Present where the training data are iid transition pairs.
    """

    name: str
    coordinates: tuple[str, ...]
    initial: Gaussian
    dynamics: Dynamics
    train_trajectories: int
    test_trajectories: int
    horizon: int
    wide: Wide | None = None

    def __post_init__(self):
        if self.initial.dim != self.dim:
            raise ValueError(f"Expected an initial state with {self.dim} coordinates, got {self.initial.dim}.")

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return len(self.coordinates)

    @property
    def has_density(self) -> bool:
        """Whether `log_transition` exists."""
        return self.dynamics.has_density

    @property
    def initial_count(self) -> int:
        """How many initial states the training data hold."""
        return self.train_trajectories if self.wide is None else self.wide.initial_count

    @property
    def pair_count(self) -> int:
        """How many transition pairs the training data hold."""
        return self.train_trajectories * self.horizon if self.wide is None else self.wide.pair_count

    def sample_initial(self, key: PRNGKeyArray, count: int) -> Float[Array, "{count} d"]:
        """Draws of x_0, shape (count, d); a larger count keeps the first draws."""
        return jax.vmap(self.initial.sample)(_keys(key, checks.count(count, "count", 1)))

    def initial_log_prob(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """log p(x_0) at one point."""
        self._require_point(x)
        return self.initial.log_prob(x)

    def step(self, key: PRNGKeyArray, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """One draw of the state after x."""
        self._require_point(x)
        return self.dynamics.sample(key, x)

    def mean_step(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """E[x' | x] at one point: the noise-free step F(x) where the noise is additive."""
        self._require_point(x)
        return self.dynamics.mean(x)

    def log_transition(self, x_next: Float[Array, " d"], x: Float[Array, " d"]) -> Float[Array, ""]:
        """The true log p(x' | x) at one pair of points; a ValueError where `has_density` is false."""
        self._require_point(x_next)
        self._require_point(x)
        return self.dynamics.log_prob(x_next, x)

    def simulate(self, key: PRNGKeyArray, count: int, steps: int) -> Float[Array, "{count} {steps}+1 d"]:
        """Independent trajectories x_0 .. x_steps, shape (count, steps + 1, d).

        A larger count or more steps extends the trajectories of the same key; it does not redraw
        them. States that overflow are kept as they are: infinite or NaN.
        """
        return _simulate(self, key, checks.count(count, "count", 1), checks.count(steps, "steps"))

    def sample_wide(self, key: PRNGKeyArray, count: int) -> tuple[Float[Array, "{count} d"], Float[Array, "{count} d"]]:
        """Independent transition pairs (x, x') with x from the wide distribution, each (count, d)."""
        if self.wide is None:
            raise ValueError(
                f"Expected a system trained on wide transition pairs, got {self.name!r}, which is trained on"
                " trajectories. Use simulate."
            )
        start, run = jax.random.split(key)
        x = jax.vmap(self.wide.distribution.sample)(_keys(start, checks.count(count, "count", 1)))
        return x, jax.vmap(self.step)(_keys(run, count), x)

    def _require_point(self, x: Array) -> None:
        if x.shape != (self.dim,):
            raise ValueError(
                f"Expected one state of {self.name!r}, of shape ({self.dim},), got an array of shape {x.shape}."
                " Use jax.vmap for many."
            )


def _keys(key: PRNGKeyArray, count: int) -> Array:
    # By index rather than by splitting, whose keys may change with their number.
    return jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(count))


@partial(jax.jit, static_argnames=("system", "count", "steps"))
def _simulate(system: System, key: PRNGKeyArray, count: int, steps: int) -> Array:
    start, run = jax.random.split(key)

    def trajectory(key: PRNGKeyArray, x0: Array) -> Array:
        def advance(x: Array, k: Array) -> tuple[Array, Array]:
            x_next = system.step(jax.random.fold_in(key, k), x)
            return x_next, x_next

        _, later = lax.scan(advance, x0, jnp.arange(steps))
        return jnp.concatenate([x0[None], later])

    return jax.vmap(trajectory)(_keys(run, count), system.sample_initial(start, count))
