"""Learning p(x' | x, u): beliefs follow inputs that training never saw together."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import sosmarkov as sm
from sosmarkov.data.dataset import from_trajectories
from sosmarkov.learning.factor.initialise import make_features


def driven(count, steps, seed):
    """x' = 0.7 x + u + N(0, 0.25), u uniform: beliefs under any inputs are known normals."""
    rng = np.random.default_rng(seed)
    u = rng.uniform(-1.5, 1.5, size=(count, steps, 1))
    x = [rng.normal(0.0, 0.5, size=(count, 1))]
    for k in range(steps):
        x.append(0.7 * x[-1] + u[:, k] + 0.5 * rng.normal(size=(count, 1)))
    return np.stack(x, axis=1), u


OPTIONS = {"size": 6, "rank": 3, "steps": 150, "objective": "transitions", "progress": False}


@pytest.fixture(scope="module")
def process():
    x, u = driven(300, 4, 0)
    return sm.fit(x, inputs=u, **OPTIONS)


def test_beliefs_follow_inputs_they_have_not_seen(process):
    u = np.array([1.2, -1.0, 0.3, 1.0])[:, None]
    beliefs = process.propagate(4, inputs=u)
    mean, variance = 0.0, 0.25
    for k in range(4):
        mean, variance = 0.7 * mean + u[k, 0], 0.49 * variance + 0.25
        np.testing.assert_allclose(beliefs[k + 1].mean(), [mean], atol=0.2)
        truth = scipy.stats.norm(mean, np.sqrt(variance))
        at = truth.ppf((np.arange(400) + 0.5) / 400)
        gap = np.mean(truth.logpdf(at) - np.asarray(beliefs[k + 1].log_prob(at[:, None])))
        assert 0.0 < gap < 0.12
    assert process.history.chosen["features"] == "bumps"
    np.testing.assert_allclose(process.transition.mass(np.zeros((1, 1)), [40.0]), 1.0, atol=1e-12)


def test_scores_are_those_of_the_process(process):
    x, u = driven(300, 4, 0)
    held_out = np.random.default_rng(0).permutation(300)[:30]
    pairs = process.transition.log_prob(x[held_out, 1:], x[held_out, :-1], u[held_out])
    np.testing.assert_allclose(process.history.scores["transitions"], jnp.mean(pairs), rtol=1e-9)
    each = [
        [float(b.log_prob(x[i, k])) for k, b in enumerate(process.propagate(4, inputs=u[i]))] for i in held_out[:30]
    ]
    np.testing.assert_allclose(process.history.scores["beliefs"], np.mean(each), rtol=1e-9)


def test_a_period_gives_every_phase_its_own_kernel():
    rng = np.random.default_rng(3)
    shift = np.array([2.0, -2.0])
    x = [rng.normal(size=(200, 1))]
    for k in range(4):
        x.append(0.3 * x[-1] + shift[k % 2] + 0.5 * rng.normal(size=(200, 1)))
    found = sm.fit(np.stack(x, axis=1), period=2, **OPTIONS)
    means = np.asarray(found.propagate(4).means())[1:, 0]
    assert np.all(np.sign(means) == [1, -1, 1, -1])
    # The second phase has only ever seen states near two.
    np.testing.assert_allclose(found.propagate(1, initial=[2.0], inputs=[1.0])[1].mean(), [-1.4], atol=0.3)


def test_features_lie_where_the_inputs_do():
    rng = np.random.default_rng(0)
    u = rng.normal(3.0, 2.0, size=(500, 2))
    for kind, count in (("bumps", 12), ("network", 5)):
        features = make_features(kind, None, u, 0)
        assert (features.dim, features.count) == (2, count)
        far, farther = (features(jnp.array([scale, scale])) for scale in (1e3, 1e4))
        np.testing.assert_allclose(far, farther, atol=1e-9)
    assert make_features("bumps", None, rng.choice([-1.0, 1.0], size=(50, 1)), 0).count == 2
    with pytest.raises(ValueError, match="constant"):
        make_features("bumps", None, np.ones((10, 1)), 0)


@pytest.mark.parametrize(("period", "pairs", "count"), [(7, 100, 7), (24, 7000, 8), (24, 10_000, 12), (24, 20_000, 24)])
def test_a_long_period_has_as_many_kernels_as_the_pairs_carry(period, pairs, count):
    assert make_features(None, period, np.zeros((pairs, 1)), 0).count == count


def test_kernels_of_fewer_than_all_phases_go_round():
    features = sm.Phases(12, 4)
    weights = np.array([features(jnp.array([float(t)])) for t in range(-12, 24)])
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(weights[:12], weights[24:], atol=1e-12)
    # Three phases on, the next kernel has the weight this one had: the last is the first's neighbour.
    np.testing.assert_allclose(np.roll(weights[:12], 1, axis=1), np.roll(weights[:12], -3, axis=0), atol=1e-12)
    np.testing.assert_array_equal(weights[:12].argmax(axis=1)[::3], np.arange(4))


def test_inputs_go_with_their_pairs():
    x = np.arange(10.0).reshape(2, 5, 1)
    x[0, 2] = np.nan
    u = 100.0 + np.arange(8.0).reshape(2, 4, 1)
    data = from_trajectories(x, None, u)
    np.testing.assert_array_equal(data.pairs.x[:, 0], [0, 3, 5, 6, 7, 8])
    np.testing.assert_array_equal(data.pairs.u[:, 0], [100, 103, 104, 105, 106, 107])


def test_pairs_with_inputs_have_beliefs_too():
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(2, 300, 1))
    x_next = 0.7 * x + u + 0.5 * rng.normal(size=(300, 1))
    found = sm.fit(transitions=(x, x_next), initial=x[:50], inputs=u, size=3, rank=2, steps=2, progress=False)
    assert np.isfinite(found.history.scores["beliefs"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": np.zeros((20, 3, 1))}, r"Expected inputs of shape \(4, 1\) for trajectory 0"),
        ({"inputs": np.zeros((19, 4, 1))}, "inputs of 20 trajectories, got those of 19"),
        ({"inputs": np.full((20, 4, 1), np.nan)}, "finite input"),
        ({"inputs": np.zeros((20, 4, 1)), "coupling": "paired"}, "coupling 'kraus'"),
        ({"inputs": np.zeros((20, 4, 1)), "features": "waves"}, "got 'waves'"),
        ({"period": 3, "surrogate": True}, "there is none for times"),
        ({"inputs": np.full((20, 4, 1), 0.5), "period": 3}, "whole number"),
        ({"features": "bumps"}, "Expected inputs"),
    ],
)
def test_wrong_inputs_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        sm.fit(driven(20, 4, 0)[0], size=3, progress=False, **options)
