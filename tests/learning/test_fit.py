"""Training: it finds what is there, repeats with its seed, and says what went wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import sosmarkov as sm
from sosmarkov.learning.loop import train


def linear_gaussian(count, steps, seed):
    """x' = 0.8 x + N(0, 0.36), x0 ~ N(1, 0.25): beliefs are known normals."""
    rng = np.random.default_rng(seed)
    x = [rng.normal(1.0, 0.5, count)]
    for _ in range(steps):
        x.append(0.8 * x[-1] + 0.6 * rng.normal(size=count))
    return np.stack(x, axis=1)[:, :, None]


@pytest.fixture(scope="module")
def process():
    return sm.fit(linear_gaussian(400, 6, 0), size=8, steps=300, progress=False)


def test_a_linear_gaussian_system_is_learned_close_to_its_entropy(process):
    test = linear_gaussian(4000, 6, 1)
    beliefs = process.propagate(6)
    mean, variance = 1.0, 0.25
    for k in range(7):
        limit = scipy.stats.norm(mean, np.sqrt(variance)).logpdf(test[:, k, 0]).mean()
        found = float(np.mean(beliefs[k].log_prob(test[:, k])))
        assert limit - 0.08 < found < limit + 0.02
        mean, variance = 0.8 * mean, 0.64 * variance + 0.36


def test_the_trained_process_is_exact(process):
    report = process.check()
    assert report.normalisation_error < 1e-12
    assert abs(float(process.propagate(6)[6].mass()) - 1.0) < 1e-12


def test_outliers_cost_tens_of_nats(process):
    worst = float(process.propagate(3)[3].log_prob([15.0]))
    assert -60 < worst < -9
    assert np.isfinite(float(process.propagate(3)[3].log_prob([1e6])))


def test_history_says_what_was_chosen_and_done(process):
    history = process.history
    assert history.chosen["objective"] == "beliefs"
    assert history.chosen["basis"] == "gaussian"
    assert [phase.name for phase in history.phases] == ["transitions", "initial", "beliefs"]
    assert all(phase.held_out[0] >= phase.best for phase in history.phases)
    assert "held-out loss" in str(history)


def test_the_same_seed_gives_the_same_parameters():
    data = linear_gaussian(60, 3, 0)
    first, second = (sm.fit(data, size=4, steps=50, objective="transitions", progress=False) for _ in range(2))
    for a, b in zip(jax.tree.leaves(first.transition), jax.tree.leaves(second.transition), strict=True):
        np.testing.assert_array_equal(a, b)


def test_pairs_with_initial_states():
    trajectories = linear_gaussian(300, 2, 0)
    pairs = trajectories[:, 0], trajectories[:, 1]
    found = sm.fit(transitions=pairs, initial=trajectories[:, 0], size=4, steps=50, progress=False)
    assert found.history.chosen["objective"] == "transitions"
    assert len(found.propagate(2)) == 3


def test_a_loss_that_is_not_a_number_is_reported_with_its_step():
    def loss(parameters, batch):
        return jnp.where(parameters["x"] > 1.5, jnp.nan, -parameters["x"]) + 0.0 * jnp.sum(batch)

    data = jnp.zeros((10, 1))
    with pytest.raises(sm.TrainingError, match="at step [0-9]+ of phase 'test'.*learning_rate"):
        train({"x": jnp.asarray(1.0)}, loss, data, data, name="test", steps=100, batch_size=4,
              learning_rate=0.1, patience=100, seed=0)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either trajectories or transitions"),
        ({"transitions": (np.zeros((5, 1)), np.zeros((5, 1)))}, "initial=x0"),
        ({"trajectories": linear_gaussian(20, 3, 0), "basis": "wavelet"}, "got 'wavelet'"),
        ({"trajectories": linear_gaussian(20, 3, 0), "size": 0}, "whole number >= 1 for size"),
        ({"trajectories": linear_gaussian(20, 3, 0), "objective": "nothing"}, "got 'nothing'"),
        ({"trajectories": linear_gaussian(20, 3, 0), "objective": -1.0}, "weight >= 0"),
        ({"trajectories": linear_gaussian(20, 3, 0), "validation": 1.5}, "share between 0 and 1"),
        ({"trajectories": linear_gaussian(2, 3, 0), "size": 16}, "at least 32 transitions"),
        ({"trajectories": [np.zeros((4, 1)), np.ones((3, 1))], "objective": "beliefs"}, "Use 'transitions'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        sm.fit(**options)
