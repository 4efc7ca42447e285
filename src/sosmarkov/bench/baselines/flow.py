"""A conditional masked autoregressive flow, propagated by particles. Needs flowjax (`sosmarkov[bench]`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.bench.baselines.base import Baseline, Trained, Trainer
from sosmarkov.bench.baselines.gaussian import gaussian
from sosmarkov.bench.baselines.mixtures import MixtureBeliefs, fit_mixture, mixture_log_prob
from sosmarkov.bench.protocol import TrainingData, within_reach
from sosmarkov.learning.mixtures import Mixture

# Component counts tried in turn, until held-out particles say no.
_COMPONENTS = (1, 2, 5, 10, 20, 35, 50)
_HELD_OUT = 0.2


class Flows(NamedTuple):
    """Two flows on standardised states: p(x_0), and p(x' | x)."""

    initial: Any
    step: Any
    centre: Float[Array, " d"]
    width: Float[Array, " d"]


@dataclass(frozen=True)
class FlowTrainer(Trainer[Flows]):
    """Maximum likelihood by Adam, stopped by held-out pairs.

    Args:
        layers: Of each flow.
        depth: Hidden layers of each layer's network.
        hidden: Their width.
        epochs: At most.
        batch_size: Pairs a step.
        learning_rate: Of Adam.
        patience: Epochs without a better held-out likelihood before it stops.
    """

    layers: int
    depth: int
    hidden: int
    epochs: int
    batch_size: int
    learning_rate: float
    patience: int

    def train(self, data: TrainingData, seed: int) -> Trained[Flows]:
        """Transitions, then initial states, each with a flow of its own."""
        states = np.concatenate([data.x, data.x_next])
        centre, width = states.mean(0), states.std(0)
        x, x_next, initial = ((part - centre) / width for part in (data.x, data.x_next, data.initial))
        first, second = jax.random.split(jax.random.key(seed))
        step, seen = self._flow(first, x_next, x)
        start, seen_initial = self._flow(second, initial, None)
        leaves = jax.tree.leaves(eqx.filter((step, start), eqx.is_inexact_array))
        notes = {"epochs": seen, "epochs_initial": seen_initial}
        flows = Flows(start, step, jnp.asarray(centre), jnp.asarray(width))
        return Trained(flows, sum(leaf.size for leaf in leaves), notes)

    def _flow(self, key: PRNGKeyArray, y: np.ndarray, condition: np.ndarray | None) -> tuple[Any, int]:
        distributions, flows, training = _flowjax()
        make, fit = jax.random.split(key)
        d = y.shape[1]
        flow = flows.masked_autoregressive_flow(
            make,
            base_dist=distributions.Normal(jnp.zeros(d)),
            cond_dim=None if condition is None else d,
            flow_layers=self.layers,
            nn_width=self.hidden,
            nn_depth=self.depth,
        )
        flow, losses = training.fit_to_data(
            fit,
            flow,
            (y,) if condition is None else (y, condition),
            optimizer=_adam(self.learning_rate),
            max_epochs=self.epochs,
            max_patience=self.patience,
            # The held-out tenth has to fill a batch, or nothing would be held out.
            batch_size=min(self.batch_size, len(y) // 10),
            show_progress=False,
        )
        return flow, len(losses["val"])


@dataclass(frozen=True)
class Flow(Baseline[Flows]):
    """Particles of the flow, and a density of them at every k, without particles that flew off.

    Args:
        particles: How many.
        density: "mixture", of as many normals as held-out particles prefer, or "kernel".

    The rest is as `FlowTrainer` takes it.
    """

    particles: int = 10_000
    density: str = "mixture"
    layers: int = 8
    depth: int = 2
    hidden: int = 128
    epochs: int = 150
    batch_size: int = 512
    learning_rate: float = 1e-3
    patience: int = 20

    @property
    def trainer(self) -> FlowTrainer:
        """The same for every number of particles and every density."""
        return FlowTrainer(
            self.layers, self.depth, self.hidden, self.epochs, self.batch_size, self.learning_rate, self.patience
        )  # fmt: skip

    def propagate(self, model: Flows, data: TrainingData, seed: int) -> tuple[MixtureBeliefs, dict[str, Any]]:
        """Draw x_0, then x' given x, and fit a density to the particles at every k."""
        if self.density not in ("mixture", "kernel"):
            raise ValueError(f"Expected density 'mixture' or 'kernel', got {self.density!r}.")
        make = kernel_estimate if self.density == "kernel" else chosen_mixture
        clouds = np.asarray(_particles(model, jax.random.key(seed), self.particles, data.steps))
        if not np.all(np.isfinite(clouds)):
            raise ValueError(f"Expected finite particles, got {int(np.sum(~np.isfinite(clouds)))} that are not.")
        kept = [cloud[within_reach(cloud)] for cloud in clouds]
        mixtures = [make(cloud, seed) for cloud in kept]
        lost = [self.particles - len(cloud) for cloud in kept]
        return MixtureBeliefs(mixtures), {"components": [len(m.weights) for m in mixtures], "particles_lost": lost}


@eqx.filter_jit
def _particles(model: Flows, key: PRNGKeyArray, count: int, steps: int) -> Float[Array, "k n d"]:
    first, later = jax.random.split(key)
    start = model.initial.sample(first, (count,))

    def step(z: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        moved = model.step.sample(key, condition=z)
        return moved, moved

    _, rest = lax.scan(step, start, jax.random.split(later, steps))
    return model.centre + model.width * jnp.concatenate([start[None], rest])


def chosen_mixture(x: np.ndarray, seed: int) -> Mixture:
    """Of as many components as give held-out particles the highest likelihood, fitted to all of them."""
    held_out = round(_HELD_OUT * len(x))
    best, best_score = 1, -np.inf
    for components in _COMPONENTS:
        if components > len(x) // 10:
            break
        found = fit_mixture(x[held_out:], components, seed)
        score = float(np.mean(mixture_log_prob(found, x[:held_out])))
        if score <= best_score:
            break
        best, best_score = components, score
    return fit_mixture(x, best, seed)


def kernel_estimate(x: np.ndarray, seed: int) -> Mixture:
    """A normal on every particle with the covariance of all, times n^(-2 / (d + 4)) (Scott's rule)."""
    count, d = x.shape
    shared = gaussian(x).covariances * count ** (-2.0 / (d + 4))
    return Mixture(np.full(count, 1.0 / count), x, shared)


@cache
def _adam(learning_rate: float) -> optax.GradientTransformation:
    # The same object for every seed: flowjax compiles a step for each that it is given.
    return optax.adam(learning_rate)


def _flowjax() -> tuple[Any, Any, Any]:
    try:
        from flowjax import distributions, flows, train
    except ImportError as error:
        raise ImportError(
            "Expected flowjax for the flow baseline, which is not installed. Run: pip install 'sosmarkov[bench]'."
        ) from error
    return distributions, flows, train
