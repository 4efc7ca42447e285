"""Draws against distribution functions, and high-dimensional answers against a million weighted normal draws."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator
from scipy.stats import kstest

import sosmarkov as sm
from tables import COMBINATIONS, COVER, EXHAUSTIVE, TRANSFORMS, make_process

# Every family and every coupling on a line (each with each where there is time), and a marginal of two coordinates.
LINES = [(*names, 1) for names in (COMBINATIONS if EXHAUSTIVE else COVER)] + [("gaussian", "kraus", 2)]


@pytest.mark.parametrize(("family", "coupling", "d"), LINES)
def test_draws_follow_the_distribution_function(family, coupling, d):
    process = make_process(family, coupling, d, seed=3, n=3)
    belief = process.initial if d == 1 else process.initial.marginal([1])
    draws = np.sort(np.asarray(belief.sample(jax.random.key(0), 100_000))[:, 0])
    # The distribution function at every hundredth draw and, for the tails, at even steps; a monotone curve between.
    nodes = np.unique(np.concatenate([np.linspace(draws[0], draws[-1], 1000), draws[::100]]))
    middles = 0.5 * (nodes[1:] + nodes[:-1])[::10]
    at_nodes, at_middles = np.split(np.asarray(belief.cdf(np.concatenate([nodes, middles])[:, None])), [len(nodes)])
    curve = PchipInterpolator(nodes, at_nodes)
    assert np.all(np.diff(at_nodes) > -1e-14)
    # Far below 0.007, what the test can see with this many draws.
    np.testing.assert_allclose(curve(middles), at_middles, rtol=0, atol=1e-5)
    assert kstest(draws, curve).pvalue > 1e-4


# --- many coordinates -----------------------------------------------------------------------------------

COUNT, BLOCK = 1_000_000, 100_000


class Weighted(NamedTuple):
    """Independent draws of a normal, and the density of a belief over that of the normal."""

    x: np.ndarray
    w: np.ndarray

    def mean(self, values):
        """The weighted mean of each column and its standard error."""
        total = self.w.sum()
        estimate = self.w @ values / total
        return estimate, np.sqrt(self.w**2 @ (values - estimate) ** 2) / total


@eqx.filter_jit
def weigh(belief, z, centre, factor, fixed):
    """Points of N(centre, factor factor^T) with fixed coordinates in front, and their log-weights."""
    x = centre[None] + z @ factor.T
    log_q = -0.5 * jnp.sum(z**2 + jnp.log(2.0 * jnp.pi), axis=1) - jnp.sum(jnp.log(jnp.diag(factor)))
    whole = jnp.concatenate([jnp.broadcast_to(fixed, (len(x), len(fixed))), x], axis=1)
    return x, belief.log_prob(whole) - log_q


def draw(belief, rng, centre, factor, fixed, count):
    found = [
        weigh(belief, jnp.asarray(rng.normal(size=(BLOCK, len(centre)))), centre, factor, fixed)
        for _ in range(count // BLOCK)
    ]
    x, log_w = (np.concatenate([np.asarray(part) for part in parts]) for parts in zip(*found, strict=True))
    return Weighted(x, np.exp(log_w - log_w.max())), np.exp(log_w)


def weighted_draws(belief, rng, fixed):
    """A block of wide draws says where the density lies, a million draws of a normal there the rest."""
    d = belief.dim - len(fixed)
    pilot, _ = draw(belief, rng, jnp.zeros(d), 1.6 * jnp.eye(d), fixed, BLOCK)
    centre, _ = pilot.mean(pilot.x)
    away = pilot.x - centre
    covariance = (away * pilot.w[:, None]).T @ away / pilot.w.sum()
    factor = np.linalg.cholesky(1.5 * covariance + 0.05 * np.eye(d))
    return draw(belief, rng, jnp.asarray(centre), jnp.asarray(factor), fixed, COUNT)


def agree(found, estimate, error, limit):
    assert np.all(np.asarray(error) < limit)
    assert np.all(np.abs(np.asarray(found) - estimate) < 4.0 * np.asarray(error))


@pytest.mark.parametrize("d", [4, 12] * EXHAUSTIVE + [6])
def test_many_coordinates_match_a_million_independent_draws(d):
    belief = make_process("gaussian", "kraus", d, seed=5, n=6).propagate(1)[1]
    rng = np.random.default_rng(0)
    nothing, fixed = jnp.zeros(0), jnp.asarray([0.3])
    draws, ratio = weighted_draws(belief, rng, nothing)
    assert abs(ratio.mean() - 1.0) < 4.5 * ratio.std() / np.sqrt(COUNT)
    assert ratio.std() / np.sqrt(COUNT) < 0.02

    mean, covariance = np.asarray(belief.mean()), np.asarray(belief.covariance())
    agree(mean, *draws.mean(draws.x), 0.05)
    rows, columns = np.triu_indices(d)
    centred = draws.x - mean
    for row, column in zip(rows, columns, strict=True):
        agree(covariance[row, column], *draws.mean(centred[:, row] * centred[:, column]), 0.1)

    lower, upper = np.full(d, -np.inf), np.full(d, np.inf)
    lower[:3], upper[1:4] = -0.8, 1.0
    inside = np.all((draws.x > lower) & (draws.x < upper), axis=1).astype(float)
    agree(belief.probability(lower, upper), *draws.mean(inside), 0.005)

    third, fourth = np.eye(d, dtype=int)[[0, 0, 3]].sum(axis=0), np.eye(d, dtype=int)[[1, 1, 2, d - 1]].sum(axis=0)
    for powers in (third, fourth):
        values = np.prod(draws.x[:, powers > 0] ** powers[powers > 0], axis=1)
        agree(belief.moment([int(p) for p in powers]), *draws.mean(values), 0.05)

    ends = np.array([-0.9, 0.1, 0.8])
    below = (draws.x[:, d - 2, None] < ends).astype(float)
    agree(belief.marginal([d - 2]).cdf(ends[:, None]), *draws.mean(below), 0.005)

    given, ratio = weighted_draws(belief, rng, fixed)
    agree(belief.condition({0: 0.3}).mean(), *given.mean(given.x), 0.02)
    # The mean weight is the marginal density of the value.
    held, error = ratio.mean(), ratio.std() / np.sqrt(COUNT)
    agree(belief.marginal([0]).prob(fixed), held, error, 0.02)


# --- boxes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "coupling", "transform"),
    [("gaussian", "kraus", "standardize")]
    + [("beta", "paired", "gaussian_cdf"), ("exponential", "linear", "identity")] * EXHAUSTIVE,
)
def test_draws_after_an_interval_reading_lie_in_the_box(family, coupling, transform):
    moved = TRANSFORMS[transform](np.random.default_rng(3), 2)
    process = make_process(family, coupling, 2, seed=2, n=3, transform=moved)
    middle, width = float(process.initial.mean()[1]), float(process.initial.covariance()[1, 1]) ** 0.5
    low, high = middle - 0.7 * width, middle + 1.1 * width
    sensor = sm.IntervalSensor([1])
    posterior = process.update(process.initial, [[low, high]], sensor=sensor).belief
    draws = np.asarray(posterior.sample(jax.random.key(0), 20_000))
    assert np.all((draws[:, 1] > low) & (draws[:, 1] < high))
    # What is left follows the prior between the ends.
    ends = middle + np.array([-0.4, 0.1, 0.8]) * width
    below, above = (np.full((3, 2), end) for end in (-np.inf, np.inf))
    below[:, 1], above[:, 1] = low, ends
    prior = process.initial.probability(below, above) / process.initial.probability([-np.inf, low], [np.inf, high])
    counted = np.mean(draws[:, 1, None] < ends, axis=0)
    assert np.all(np.abs(counted - np.asarray(prior)) < 4.5 * np.sqrt(0.25 / len(draws)))
    np.testing.assert_allclose(posterior.cdf(np.stack([np.full(3, np.inf), ends], axis=1)), prior, rtol=1e-10)
