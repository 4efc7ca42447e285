"""A conditional masked autoregressive flow, propagated by particles."""

from __future__ import annotations

from collections.abc import Sequence
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

from sosmarkov.factor.starts import Mixture
from sosmarkov_bench.baselines.base import Baseline, Trained, Trainer
from sosmarkov_bench.baselines.gaussian import gaussian
from sosmarkov_bench.baselines.mixtures import MixtureBeliefs, fit_mixture, mixture_log_prob
from sosmarkov_bench.protocol import TrainingData, within_reach

# Component counts tried in turn, until held-out particles say no.
_COMPONENTS = (1, 2, 5, 10, 20, 35, 50)
_HELD_OUT, _HELD_OUT_PAIRS = 0.2, 0.1


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
        return self.train_together(data, [seed])[0]

    def train_together(self, data: TrainingData, seeds: Sequence[int]) -> list[Trained[Flows]]:
        """The same for several seeds in one program, each with its own start, batches and end."""
        states = np.concatenate([data.x, data.x_next])
        centre, width = states.mean(0), states.std(0)
        x, x_next, initial = (jnp.asarray((part - centre) / width) for part in (data.x, data.x_next, data.initial))
        keys = jnp.stack([jax.random.split(jax.random.key(seed)) for seed in seeds])
        steps, seen = self._flows(keys[:, 0], x_next, x)
        starts, seen_initial = self._flows(keys[:, 1], initial, None)
        together = {} if len(seeds) == 1 else {"seeds_at_once": len(seeds)}
        found = []
        for start, step, *epochs in zip(starts, steps, seen_initial, seen, strict=True):
            flows = Flows(start, step, jnp.asarray(centre), jnp.asarray(width))
            leaves = jax.tree.leaves(eqx.filter((step, start), eqx.is_inexact_array))
            notes = {"epochs": epochs[1], "epochs_initial": epochs[0]} | together
            found.append(Trained(flows, sum(leaf.size for leaf in leaves), notes))
        return found

    def make(self, key: PRNGKeyArray, d: int, conditional: bool) -> Any:
        """A flow before training, with the truth's shapes."""
        from flowjax import distributions, flows  # slow to import

        return flows.masked_autoregressive_flow(
            key,
            base_dist=distributions.Normal(jnp.zeros(d)),
            cond_dim=d if conditional else None,
            flow_layers=self.layers,
            nn_width=self.hidden,
            nn_depth=self.depth,
        )

    def _flows(self, keys: Array, y: Array, condition: Array | None) -> tuple[list[Any], list[int]]:
        """One flow a key, and the epochs each was trained for."""
        made, later = jnp.swapaxes(jax.vmap(jax.random.split)(keys), 0, 1)
        flow = eqx.filter_vmap(lambda key: self.make(key, y.shape[1], condition is not None))(made)
        # The held-out tenth has to fill a batch, or nothing would be held out.
        batch, held_out = min(self.batch_size, len(y) // 10), round(_HELD_OUT_PAIRS * len(y))
        order = jax.vmap(lambda key: jax.random.permutation(key, len(y)))(later)
        learned, fixed = eqx.partition(flow, eqx.is_inexact_array, is_leaf=_is_fixed)
        optimiser = _adam(self.learning_rate)
        state = learned, eqx.filter_vmap(optimiser.init)(learned)
        best, best_loss, waited = learned, np.full(len(keys), np.inf), np.zeros(len(keys), int)
        epochs = np.zeros(len(keys), int)
        for number in range(self.epochs):
            now = jax.vmap(lambda key, i=number: jax.random.fold_in(key, i))(later)
            state, loss = _epoch(state, fixed, (y, condition), order, now, optimiser, batch, held_out)
            running = waited <= self.patience
            better = running & (np.asarray(loss) < best_loss)
            best, best_loss = _choose(jnp.asarray(better), state[0], best), np.where(better, loss, best_loss)
            epochs, waited = epochs + running, np.where(better, 0, waited + 1)
            if np.all(waited > self.patience):
                break
        trained = eqx.combine(best, fixed)
        return [
            jax.tree.map(lambda leaf, i=i: leaf[i] if eqx.is_array(leaf) else leaf, trained) for i in range(len(keys))
        ], epochs.tolist()


@eqx.filter_jit
def _epoch(
    state: tuple[Any, Any],
    fixed: Any,
    pairs: tuple[Array, Array | None],
    order: Array,
    keys: Array,
    optimiser: optax.GradientTransformation,
    batch: int,
    held_out: int,
) -> tuple[tuple[Any, Any], Array]:
    """Every training pair once, but what does not fill a batch; then the loss on held-out pairs. All seeds at once."""

    def loss(learned: Any, fixed: Any, rows: Array) -> Array:
        y, condition = (None if part is None else part[rows] for part in pairs)
        return -jnp.mean(_unwrap(eqx.combine(learned, fixed)).log_prob(y, condition))

    def one(state: tuple[Any, Any], fixed: Any, order: Array, key: PRNGKeyArray) -> tuple[tuple[Any, Any], Array]:
        def step(state: tuple[Any, Any], rows: Array) -> tuple[tuple[Any, Any], None]:
            learned, moments = state
            updates, moments = optimiser.update(jax.grad(loss)(learned, fixed, rows), moments)
            return (eqx.apply_updates(learned, updates), moments), None

        rows = jax.random.permutation(key, order[held_out:])
        rows = rows[: len(rows) // batch * batch].reshape(-1, batch)
        state, _ = lax.scan(step, state, rows)
        return state, loss(state[0], fixed, order[:held_out])

    return eqx.filter_vmap(one)(state, fixed, order, keys)


@eqx.filter_jit
def _choose(better: Array, new: Any, old: Any) -> Any:
    """Leaf by leaf the new values of the seeds that got better."""
    return jax.tree.map(lambda a, b: jnp.where(better.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old)


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
    return model.centre[None, None] + model.width[None, None] * jnp.concatenate([start[None], rest])


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
    # The same object for every seed: an epoch is compiled for each that it is given.
    return optax.adam(learning_rate)


def _is_fixed(leaf: Any) -> bool:
    import paramax  # what flowjax marks fixed and constrained parameters with

    return isinstance(leaf, paramax.NonTrainable)


def _unwrap(flow: Any) -> Any:
    import paramax

    return paramax.unwrap(flow)
