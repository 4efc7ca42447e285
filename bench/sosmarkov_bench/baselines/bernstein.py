"""Bernstein normalizing flow, 2-D: autoregressive Bernstein polynomials whose beliefs stay polynomials."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jax.scipy.special import gammaln, xlog1py, xlogy
from jaxtyping import Float

from sosmarkov.data.dataset import robust_standardize
from sosmarkov.spaces.transforms import GaussianCDF
from sosmarkov_bench.baselines.base import Baseline, Beliefs, Trained, Trainer
from sosmarkov_bench.protocol import TrainingData

_HELD_OUT = 0.1


class Coefficients(NamedTuple):
    """Logits, in the last axis of the weights of the densities b_j.

    p(y_1 | x) = sum_(i, j) B_i(x_1, x_2) first_(i, j) b_j(y_1) and
    p(y_2 | y_1, x) = sum_(i, l, j) B_i(x_1, x_2) B_l(y_1) second_(i, l, j) b_j(y_2), where B_l are the D + 1 Bernstein
    polynomials of degree D, which add up to one, and b_j the D Bernstein densities of degree D - 1.

    Attributes:
        first: Shape (i, D); one i where nothing is given, else (D + 1)^2.
        second: Shape (i, D + 1, D).
    """

    first: Float[Array, "i D"]
    second: Float[Array, "i D1 D"]


class Polynomials(NamedTuple):
    """p(x_0) and p(x' | x) in the unit square, and the way there."""

    transform: GaussianCDF
    initial: Coefficients
    step: Coefficients


def bernstein(x: Float[Array, " n"], degree: int) -> Float[Array, "n j"]:
    """The degree + 1 Bernstein polynomials at points of [0, 1]."""
    j = jnp.arange(degree + 1)
    log_binomial = gammaln(degree + 1.0) - gammaln(j + 1.0) - gammaln(degree - j + 1.0)
    return jnp.exp(log_binomial[None] + xlogy(j[None], x[:, None]) + xlog1py((degree - j)[None], -x[:, None]))


def densities(x: Float[Array, " n"], count: int) -> Float[Array, "n j"]:
    """The `count` Bernstein polynomials of degree count - 1, each times count: its integral is one."""
    return count * bernstein(x, count - 1)


def given(x: Float[Array, "n 2"], degree: int) -> Float[Array, "n i"]:
    """B_i(x_1, x_2), which add up to one."""
    first, second = bernstein(x[:, 0], degree), bernstein(x[:, 1], degree)
    return (first[:, :, None] * second[:, None, :]).reshape(len(x), -1)


def log_density(coefficients: Coefficients, y: Float[Array, "n 2"], condition: Array) -> Float[Array, " n"]:
    """log p(y | x) at points of the unit square, for B_i(x) of shape (n, i)."""
    degree = coefficients.first.shape[-1]
    first = condition @ jax.nn.softmax(coefficients.first)
    second = condition @ jax.nn.softmax(coefficients.second).reshape(len(coefficients.second), -1)
    second = second.reshape(-1, degree + 1, degree)
    p_first = jnp.sum(first * densities(y[:, 0], degree), axis=1)
    p_second = jnp.einsum("nlj,nl,nj->n", second, bernstein(y[:, 0], degree), densities(y[:, 1], degree))
    return jnp.log(p_first) + jnp.log(p_second)


class Fit(NamedTuple):
    """The best coefficients so far, by held-out likelihood."""

    coefficients: Coefficients
    loss: Array
    epoch: Array


@partial(jax.jit, static_argnames=("degree", "epochs", "batch_size", "learning_rate"))
def fit(
    y: Array, x: Array | None, order: Array, degree: int, epochs: int, batch_size: int, learning_rate: float
) -> Fit:
    """Maximum likelihood by Adam; `order` (epochs, batches * batch_size) says which rows each epoch takes."""
    rows = round(_HELD_OUT * len(y))
    ones = jnp.ones((1, 1))
    width = 1 if x is None else (degree + 1) ** 2

    def loss(coefficients: Coefficients, chosen: Any) -> Array:
        condition = jnp.broadcast_to(ones, (len(y[chosen]), 1)) if x is None else given(x[chosen], degree)
        return -jnp.mean(log_density(coefficients, y[chosen], condition))

    optimiser = optax.adam(learning_rate)
    begin = Coefficients(jnp.zeros((width, degree)), jnp.zeros((width, degree + 1, degree)))

    def step(state: Any, chosen: Array) -> tuple[Any, None]:
        coefficients, moments = state
        updates, moments = optimiser.update(jax.grad(loss)(coefficients, chosen), moments)
        return (optax.apply_updates(coefficients, updates), moments), None

    def epoch(state: Any, both: tuple[Array, Array]) -> tuple[Any, None]:
        (current, best), (number, rows_now) = state, both
        current, _ = lax.scan(step, current, rows_now.reshape(-1, batch_size))
        judged = loss(current[0], slice(0, rows))
        better = judged < best.loss
        best = jax.tree.map(partial(jnp.where, better), Fit(current[0], judged, number), best)
        return (current, best), None

    start = ((begin, optimiser.init(begin)), Fit(begin, jnp.asarray(jnp.inf), jnp.asarray(0)))
    (_, best), _ = lax.scan(epoch, start, (jnp.arange(1, epochs + 1), order))
    return best


@dataclass(frozen=True)
class BernsteinTrainer(Trainer[Polynomials]):
    """Maximum likelihood by Adam, the best of all epochs by held-out pairs.

    Args:
        degree: D, of transformer and conditioner.
        epochs: How many.
        batch_size: Pairs a step.
        learning_rate: Of Adam.
    """

    degree: int
    epochs: int
    batch_size: int
    learning_rate: float

    def train(self, data: TrainingData, seed: int) -> Trained[Polynomials]:
        """Transitions and initial states in the unit square of a normal distribution function of the data."""
        if data.dim != 2:
            raise ValueError(f"Expected 2 coordinates for a Bernstein flow, got {data.dim}. Use another baseline.")
        scale = robust_standardize(np.concatenate([data.x, data.x_next, data.initial]))
        transform = GaussianCDF(scale.mean, scale.std)
        x, x_next, initial = (_forward(transform, jnp.asarray(p))[0] for p in (data.x, data.x_next, data.initial))
        step = self._fit(x_next, x, seed)
        start = self._fit(initial, None, seed)
        D = self.degree
        counted = (D + 1) ** 2 * D * (D + 2) + D * (D + 2)
        notes = {"degree": D, "best_epoch": int(step.epoch), "best_epoch_initial": int(start.epoch)}
        return Trained(Polynomials(transform, start.coefficients, step.coefficients), counted, notes)

    def _fit(self, y: Array, x: Array | None, seed: int) -> Fit:
        rng = np.random.default_rng(seed)
        shuffled = rng.permutation(len(y))
        y, x = y[shuffled], None if x is None else x[shuffled]
        held_out = round(_HELD_OUT * len(y))
        batch = min(self.batch_size, len(y) - held_out)
        whole = (len(y) - held_out) // batch * batch
        order = np.stack([held_out + rng.permutation(len(y) - held_out)[:whole] for _ in range(self.epochs)])
        found = fit(y, x, jnp.asarray(order), self.degree, self.epochs, batch, self.learning_rate)
        return jax.block_until_ready(found)


@dataclass(frozen=True, eq=False)
class PolynomialBeliefs(Beliefs):
    """p(y) = sum_(j, l, m) c_(j, l, m) b_j(y_1) B_l(y_1) b_m(y_2) in the unit square, for every k.

    Args:
        transform: To the unit square.
        coefficients: One array of shape (D, D + 1, D) a step.
    """

    transform: GaussianCDF
    coefficients: list[Array]

    @property
    def last(self) -> int:
        """One less than there are polynomials."""
        return len(self.coefficients) - 1

    def log_prob(self, k: int, x: np.ndarray) -> np.ndarray:
        """In the data's space; minus infinity where a coordinate rounds to the edge of the square."""
        y, log_det = _forward(self.transform, jnp.asarray(x))
        return np.asarray(jnp.log(_polynomial(self.coefficients[k], y)) + log_det)

    def mass(self, k: int) -> float:
        """By Gauss-Legendre nodes, exact for polynomials of this degree."""
        nodes, weights = _square(self.coefficients[k].shape[0])
        return float(jnp.sum(weights * _polynomial(self.coefficients[k], nodes)))


@dataclass(frozen=True)
class Bernstein(Baseline[Polynomials]):
    """The flow, propagated exactly.

    Args:
        degree: D, of transformer and conditioner.
        epochs: How many.
        batch_size: Pairs a step.
        learning_rate: Of Adam.
    """

    degree: int = 25
    epochs: int = 40
    batch_size: int = 512
    learning_rate: float = 0.05

    @property
    def trainer(self) -> BernsteinTrainer:
        """All options are its."""
        return BernsteinTrainer(self.degree, self.epochs, self.batch_size, self.learning_rate)

    def propagate(self, model: Polynomials, data: TrainingData, seed: int) -> tuple[PolynomialBeliefs, dict[str, Any]]:
        """The integral of p(x' | x) p(x_k) over x, a polynomial in x: Gauss-Legendre nodes integrate it exactly."""
        D = self.degree
        first, second = (jax.nn.softmax(part) for part in model.initial)
        coefficients = [first[0][:, None, None] * second[0][None]]
        nodes, weights = _square(D)
        tables = _tables(model.step, given(nodes, D))
        for _ in range(data.steps):
            mass = weights * _polynomial(coefficients[-1], nodes)
            coefficients.append(jnp.einsum("q,qj,qlm->jlm", mass, *tables, optimize="optimal"))
        return PolynomialBeliefs(model.transform, jax.block_until_ready(coefficients)), {}


def _square(degree: int) -> tuple[Float[Array, "q 2"], Float[Array, " q"]]:
    """Nodes and weights on the unit square, exact to degree 4 D - 1 in each coordinate.

    A belief has degree 2 D - 1 in x_1 and D - 1 in x_2, the transition 2 D in both.
    """
    t, w = np.polynomial.legendre.leggauss(2 * degree)
    t, w = 0.5 * (t + 1.0), 0.5 * w
    nodes = np.stack(np.meshgrid(t, t, indexing="ij"), axis=-1).reshape(-1, 2)
    return jnp.asarray(nodes), jnp.asarray((w[:, None] * w).reshape(-1))


@jax.jit
def _tables(step: Coefficients, condition: Array) -> tuple[Array, Array]:
    first, second = (jax.nn.softmax(part) for part in step)
    return condition @ first, jnp.einsum("qi,ilm->qlm", condition, second)


@jax.jit
def _polynomial(coefficients: Float[Array, "D D1 D"], y: Float[Array, "n 2"]) -> Float[Array, " n"]:
    D = coefficients.shape[0]
    parts = densities(y[:, 0], D), bernstein(y[:, 0], D), densities(y[:, 1], D)
    return jnp.einsum("jlm,nj,nl,nm->n", coefficients, *parts, optimize="optimal")


@jax.jit
def _forward(transform: GaussianCDF, x: Array) -> tuple[Array, Array]:
    return jax.vmap(transform.forward)(x)
