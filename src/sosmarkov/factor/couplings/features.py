"""How an input acts: b(u), the weights of the K_j in a coupling that depends on it."""

from __future__ import annotations

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import Fields, positive, require, stored

# Width of a bump in distances to the next one: b(u) goes from one centre to the next without a plateau between them.
OVERLAP = 0.7


class Features(eqx.Module):
    """b(u), the weights of the K_j, for an input u of shape (e,)."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of inputs e."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of weights J."""

    @property
    def period(self) -> int | None:
        """Where the input is the time and comes round: after how many steps."""
        return None

    @abstractmethod
    def __call__(self, u: Float[Array, " e"]) -> Float[Array, " j"]:
        """The weights under one input."""

    def shares(self, u: np.ndarray) -> np.ndarray:
        """How much each K_j has to do with each pair at the start, from inputs (N, e): K_j is theirs, where known."""
        return np.asarray(jax.jit(jax.vmap(self))(jnp.asarray(u)))


@stored(check=positive("width"))
class Bumps(Features):
    """b_j(u) proportional to exp(-|(u - c_j) / width|^2 / 2), summing to one.

    Smooth everywhere; far outside the centres the nearest one has all the weight, so that p(x' | x, u) stays what it
    is at the edge of the data.

    Args:
        centres: Shape (J, e).
        width: One for each input, shape (e,).
    """

    centres: Float[Array, "j e"]
    width: Float[Array, " e"]

    def __init__(self, centres: ArrayLike, width: ArrayLike):
        self.centres = checks.parameter(centres, "centres", (None, None))
        self.width = checks.parameter(width, "width", (self.centres.shape[1],))
        checks.require_positive(self.width, "width")

    @property
    def dim(self) -> int:
        """Number of inputs."""
        return self.centres.shape[1]

    @property
    def count(self) -> int:
        """One weight a centre."""
        return self.centres.shape[0]

    def __call__(self, u: Float[Array, " e"]) -> Float[Array, " j"]:
        """The weights."""
        # Where the data lie is no parameter.
        centres, width = lax.stop_gradient((self.centres, self.width))
        return jax.nn.softmax(-0.5 * jnp.sum(((u[None] - centres) / width[None]) ** 2, axis=1))


def _network(fields: Fields) -> Network:
    """A network with one hidden layer: its structure from the constructor, its numbers from the file."""
    (first, first_bias), (last, last_bias) = fields["layers"]
    require(first.ndim == last.ndim == 2, "matrices for the layers of a network")
    (width, inputs), outputs = first.shape, last.shape[0]
    require(fields["location"].shape == fields["scale"].shape == (inputs,), "a location and a scale for each input")
    checks.require_positive(fields["scale"], "scale")
    empty = eqx.filter_eval_shape(
        lambda key: Network(np.zeros(inputs), np.ones(inputs), outputs + 1, width, key),
        jax.ShapeDtypeStruct((2,), jnp.uint32),
    )

    def numbers(features: Network) -> list:
        layers = [part for layer in features.net.layers for part in (layer.weight, layer.bias)]
        return [features.location, features.scale, *layers]

    given = [fields["location"], fields["scale"], first, first_bias, last, last_bias]
    require([a.shape for a in numbers(empty)] == [a.shape for a in given], "layers that fit together in a network")
    return eqx.tree_at(numbers, empty, given)


@stored("location", "scale", "layers", make=_network)
class Network(Features):
    """b(u) = (1, net((u - location) / scale)), a network with one hidden layer of tanh.

    Far outside the data every tanh has reached its end: p(x' | x, u) no longer changes with u.

    Args:
        location: Of the inputs, shape (e,).
        scale: Their spread, shape (e,).
        count: Outputs, the constant included.
        width: Hidden units.
        key: For the random start.
    """

    location: Float[Array, " e"]
    scale: Float[Array, " e"]
    net: eqx.nn.MLP

    def __init__(self, location: ArrayLike, scale: ArrayLike, count: int, width: int, key: Array):
        self.location = checks.parameter(location, "location", (None,))
        self.scale = checks.parameter(scale, "scale", self.location.shape)
        checks.require_positive(self.scale, "scale")
        count = checks.count(count, "count", 2)
        self.net = eqx.nn.MLP(len(self.location), count - 1, width, 1, activation=jnp.tanh, key=key)

    @property
    def dim(self) -> int:
        """Number of inputs."""
        return len(self.location)

    @property
    def count(self) -> int:
        """The network's outputs, and one."""
        return self.net.layers[-1].bias.shape[-1] + 1  # type: ignore[union-attr]

    @property
    def layers(self) -> tuple[tuple[Array, Array], ...]:
        """Weights and bias of each layer."""
        return tuple((layer.weight, layer.bias) for layer in self.net.layers)  # type: ignore[misc]

    def shares(self, u: np.ndarray) -> np.ndarray:
        """All pairs for the constant; weights of any sign say nothing of the others."""
        return np.ones((len(u), 1))

    def __call__(self, u: Float[Array, " e"]) -> Float[Array, " j"]:
        """The weights."""
        location, scale = lax.stop_gradient((self.location, self.scale))
        return jnp.concatenate([jnp.ones(1), self.net((u - location) / scale)])


@stored(check=lambda features: Phases(features.steps, features.kernels))
class Phases(Features):
    """The phase t mod period of a time t: a kernel of its own for each, or fewer that neighbouring phases share.

    With as many kernels as steps b_j(t) = 1 where t mod period = j, zero elsewhere. With fewer, b_j are bumps around
    the circle that sum to one, their centres evenly spaced from phase 0: what lies between two is learned from the
    data of both.

    Args:
        steps: The period, in steps.
        count: Kernels; None: one for every phase.
    """

    steps: int = eqx.field(static=True)
    kernels: int = eqx.field(static=True)

    def __init__(self, steps: int, count: int | None = None):
        self.steps = checks.count(steps, "period", 1)
        self.kernels = self.steps if count is None else checks.count(count, "count", 1)
        if self.kernels > self.steps:
            raise ValueError(f"Expected at most one kernel for each of {steps} phases, got {count}.")

    @property
    def dim(self) -> int:
        """The time."""
        return 1

    @property
    def count(self) -> int:
        """One weight a kernel."""
        return self.kernels

    @property
    def period(self) -> int:
        """The period."""
        return self.steps

    def __call__(self, u: Float[Array, " e"]) -> Float[Array, " j"]:
        """The weights at a time."""
        phase, each = jnp.mod(jnp.round(u[0]), self.steps), self.steps / self.kernels
        if self.kernels == self.steps:
            return (jnp.arange(self.steps) == phase).astype(u.dtype)
        away = jnp.abs(phase - each * jnp.arange(self.kernels))
        away = jnp.minimum(away, self.steps - away) / each
        return jax.nn.softmax(-0.5 * (away / OVERLAP) ** 2)
