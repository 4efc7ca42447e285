"""A surrogate: a flexible p(x'|x) that is quick to fit and to sample, and that the process then learns from.

A kernel of finite rank fitted to a thousand trajectories fits their noise as well. Small networks for one-dimensional
mixtures have no exact beliefs, but they learn the same transitions from far fewer data; rolled forward from the
initial states they yield as many fresh trajectories as wanted, where the beliefs really go. A surrogate only ever
produces data: no density it gives is reported.
"""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int
from sklearn.mixture import GaussianMixture

from sosmarkov.data.dataset import Dataset

_COMPONENTS = 4
_WIDTH = 64
_DEPTH = 2
# Least standard deviation of a component, in units of the residual of a linear fit: keeps coordinates without
# noise, whose transition has no density, from running away.
_LEAST = 1e-3
_MOST_STARTS = 6_000


class Conditional(eqx.Module):
    """p(r_i | c, r_1, ..., r_(i-1)): a mixture of normals whose parameters a network gives. One coordinate i.

    The context c is the state, with its input behind it where there is one.
    """

    network: eqx.nn.MLP
    index: Int[Array, ""]

    def __init__(self, dim: int, context: int, index: Int[Array, ""], key: Array):
        network = eqx.nn.MLP(context + dim, 3 * _COMPONENTS, _WIDTH, _DEPTH, activation=jax.nn.silu, key=key)
        last = network.layers[-1]
        # Means spread over the residuals' range, weights and widths equal: components differ from the start.
        spread = jnp.linspace(-1.0, 1.0, _COMPONENTS)
        bias = jnp.zeros((3, _COMPONENTS)).at[1].set(spread).reshape(-1)
        last = eqx.tree_at(lambda layer: (layer.weight, layer.bias), last, (0.1 * last.weight, bias))
        self.network = eqx.tree_at(lambda net: net.layers[-1], network, last)
        self.index = index

    def mixture(self, c: Float[Array, " c"], r: Float[Array, " d"]) -> tuple[Array, Array, Array]:
        """Log-weights, means and standard deviations; only the entries of r before i are looked at."""
        known = jnp.where(jnp.arange(len(r)) < self.index, r, 0.0)
        logits, mean, raw = self.network(jnp.concatenate([c, known])).reshape(3, _COMPONENTS)
        return jax.nn.log_softmax(logits), mean, jax.nn.softplus(raw) + _LEAST

    def log_prob(self, c: Float[Array, " c"], r: Float[Array, " d"]) -> Float[Array, ""]:
        """log p(r_i | c, r_1, ..., r_(i-1))."""
        weight, mean, std = self.mixture(c, r)
        return jax.nn.logsumexp(weight + jax.scipy.stats.norm.logpdf(r[self.index], mean, std))

    def sample(self, key: Array, c: Float[Array, " c"], r: Float[Array, " d"]) -> Float[Array, " d"]:
        """The residuals r with entry i drawn."""
        weight, mean, std = self.mixture(c, r)
        choice, noise = jax.random.split(key)
        one = jax.random.categorical(choice, weight)
        return r.at[self.index].set(mean[one] + std[one] * jax.random.normal(noise))


class Surrogate(eqx.Module):
    """p(y'|c) = prod_i p(r_i | c, r_1, ..., r_(i-1)) with y' = B (1, c) + s o r, in model space; c = y, or (y, u).

    B is a least-squares fit and s the spread of its residuals; each coordinate has a network of its own, so that one
    without noise, whose likelihood has no bound, does not drown the others' gradients.
    """

    linear: Float[Array, "e d"]
    scale: Float[Array, " d"]
    # Mean and spread of the inputs, where there are any.
    input_scale: tuple[Float[Array, " e"], Float[Array, " e"]] | None

    def __init__(self, data: Dataset):
        self.input_scale = None
        if data.pairs.u is not None:
            spread = np.std(data.pairs.u, axis=0)
            self.input_scale = jnp.asarray(data.pairs.u.mean(axis=0)), jnp.asarray(np.where(spread > 0, spread, 1.0))
        y_next, context = data.pairs.x_next, _with_one(np.asarray(self.context(data.pairs.x, data.pairs.u)))
        linear = np.linalg.lstsq(context, y_next, rcond=None)[0]
        spread = np.std(y_next - context @ linear, axis=0)
        self.linear = jnp.asarray(linear)
        # A unit to measure residuals in, not a bound on them: where a linear map predicts a coordinate to rounding, its
        # own residuals are no unit.
        self.scale = jnp.asarray(np.maximum(spread, 1e-6 * np.std(y_next, axis=0)))

    def start(self, seed: int) -> Conditional:
        """One network a coordinate, with a leading axis of coordinates."""
        dim, context = len(self.scale), len(self.linear) - 1
        keys = jax.random.split(jax.random.key(seed), dim)
        make = eqx.filter_jit(eqx.filter_vmap(Conditional, in_axes=(None, None, 0, 0)))
        return make(dim, context, jnp.arange(dim), keys)

    def context(self, y: Array | np.ndarray, u: Array | np.ndarray | None) -> Array:
        """States, with their standardised inputs behind them."""
        if self.input_scale is None:
            return jnp.asarray(y)
        given = jnp.asarray(u)
        mean, spread = (lax.broadcast_to_rank(part, given.ndim) for part in self.input_scale)
        return jnp.concatenate([jnp.asarray(y), (given - mean) / spread], axis=-1)

    def batch(self, data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What the networks learn from: contexts, residuals, weights."""
        context = np.asarray(self.context(data.pairs.x, data.pairs.u))
        fitted = _with_one(context) @ np.asarray(self.linear)
        return context, (data.pairs.x_next - fitted) / np.asarray(self.scale), data.pairs.weight

    def sample(
        self, networks: Conditional, key: Array, y: Float[Array, " d"], u: Float[Array, " e"] | None
    ) -> Float[Array, " d"]:
        """One successor of one state, with trained networks."""
        c = self.context(y, u)
        dynamic, static = eqx.partition(networks, eqx.is_array)

        def draw(r: Array, item: tuple) -> tuple[Array, None]:
            key, leaves = item
            return eqx.combine(leaves, static).sample(key, c, r), None

        start = jnp.zeros_like(y)
        r, _ = lax.scan(draw, start, (jax.random.split(key, len(y)), dynamic))
        return self.linear[0] + c @ self.linear[1:] + self.scale * r


def _with_one(y: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ones((len(y), 1)), y], axis=1)


def surrogate_loss(conditional: Conditional, batch: tuple[Array, Array, Array]) -> Float[Array, ""]:
    """Weighted mean of -log p(r_i | c, r_1, ...) for one coordinate; contexts (B, c) and residuals (B, d)."""
    c, r, weight = batch
    return -jnp.sum(weight * jax.vmap(conditional.log_prob)(c, r)) / jnp.sum(weight)


@eqx.filter_jit
def roll(
    surrogate: Surrogate,
    networks: Conditional,
    starts: Float[Array, "n d"],
    steps: int,
    key: Array,
    inputs: Float[Array, "n k e"] | None = None,
) -> Float[Array, "n t d"]:
    """Trajectories of `steps` transitions from the given starts, each under its own inputs."""

    def advance(y: Array, at: tuple[Array, Array | None]) -> tuple[Array, Array]:
        key, u = at
        after = jax.vmap(partial(surrogate.sample, networks))(jax.random.split(key, len(y)), y, u)
        return after, after

    by_step = None if inputs is None else jnp.swapaxes(inputs, 0, 1)
    _, later = lax.scan(advance, starts, (jax.random.split(key, steps), by_step))
    return jnp.concatenate([starts[:, None], jnp.swapaxes(later, 0, 1)], axis=1)


def draw_starts(initial: np.ndarray, weight: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Fresh initial states from a mixture fitted to the given ones, its size by the Bayesian criterion."""
    rng = np.random.default_rng(seed)
    if len(initial) > _MOST_STARTS or np.ptp(weight) > 0:
        size = min(len(initial), _MOST_STARTS)
        initial = initial[rng.choice(len(initial), size, p=weight / weight.sum())]
    sizes = [size for size in (1, 2, 4, 8) if size * 20 <= len(initial)] or [1]
    models = [GaussianMixture(size, reg_covar=1e-6, random_state=seed).fit(initial) for size in sizes]
    best = min(models, key=lambda model: model.bic(initial))
    drawn, _ = best.sample(count)
    return rng.permutation(drawn)


def gaussian_score(fitted: Dataset, scored: Dataset) -> float:
    """Mean log-likelihood of states under one normal per step, fitted to one set and evaluated on another.

    It tells whether rolled trajectories are distributed over time like real ones: rolled ones that fit
    held-out states as well as the real training ones do are good enough to learn from.
    """
    total = weight = 0.0
    steps = min(fitted.paths.present.shape[1], scored.paths.present.shape[1])
    for k in range(1, steps):
        a, b = fitted.paths.present[:, k], scored.paths.present[:, k]
        if b.sum() == 0 or (a > 0).sum() < 2 * (fitted.dim + 1):
            continue
        mean = np.average(fitted.paths.states[:, k], axis=0, weights=a)
        covariance = np.atleast_2d(np.cov(fitted.paths.states[:, k].T, aweights=a))
        away = scored.paths.states[:, k] - mean
        _, log_det = np.linalg.slogdet(2.0 * np.pi * covariance)
        squared = np.sum(away * np.linalg.solve(covariance, away.T).T, axis=1)
        total += float(np.sum(b * -0.5 * (squared + log_det)))
        weight += float(b.sum())
    return total / weight
