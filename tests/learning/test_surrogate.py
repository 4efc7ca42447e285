"""A surrogate learns what is there, and rolls forward like it."""

import jax
import jax.numpy as jnp
import numpy as np

from sosmarkov.data.dataset import from_trajectories
from sosmarkov.learning.factor.surrogate import Surrogate, draw_starts, gaussian_score, roll, surrogate_loss
from sosmarkov.learning.loop import Plan, train


def skewed(count, steps, seed):
    """x' = 0.8 x + 0.3 e with e exponential; y' = x without noise: no density, not Gaussian."""
    rng = np.random.default_rng(seed)
    states = [rng.normal(size=(count, 2))]
    for _ in range(steps):
        x = states[-1][:, 0]
        states.append(np.stack([0.8 * x + 0.3 * rng.exponential(size=count), x], axis=1))
    return np.stack(states, axis=1)


def test_rolled_states_are_distributed_like_simulated_ones():
    data = from_trajectories(skewed(500, 4, 0))
    surrogate = Surrogate(data)
    batch = surrogate.batch(data)
    plan = Plan("surrogate", 600, 256, 3e-3, 1000, 0)
    networks, history = train(surrogate.start(0), surrogate_loss, batch, batch, plan)
    assert np.all(history.best < history.held_out[0])
    starts = draw_starts(*data.starts.batch, 4000, seed=0)
    rolled = np.asarray(roll(surrogate, networks, jnp.asarray(starts), 4, jax.random.key(0)))
    expected = skewed(200_000, 4, 1)
    for k in range(1, 5):
        x, true = rolled[:, k, 0], expected[:, k, 0]
        assert abs(x.mean() - true.mean()) < 0.08
        assert abs(x.std() - true.std()) < 0.08
        # Noise that is not Gaussian stays so: a tenth of the mass where a normal would have it elsewhere.
        np.testing.assert_allclose(np.quantile(x, [0.1, 0.5, 0.9]), np.quantile(true, [0.1, 0.5, 0.9]), atol=0.12)
        np.testing.assert_allclose(rolled[:, k, 1], rolled[:, k - 1, 0], atol=0.1)


def test_the_score_tells_like_from_unlike():
    real, held_out, other = (from_trajectories(skewed(300, 4, seed)) for seed in range(3))
    far = from_trajectories(skewed(300, 4, 3) + 1.0)
    assert abs(gaussian_score(real, held_out) - gaussian_score(other, held_out)) < 0.1
    assert gaussian_score(far, held_out) < gaussian_score(real, held_out) - 0.2


def test_starts_follow_weights_and_their_mixture():
    initial = np.concatenate([np.random.default_rng(0).normal(c, 0.1, size=(500, 1)) for c in (-1.0, 1.0)])
    drawn = draw_starts(initial, np.repeat([1.0, 3.0], 500), 4000, seed=0)
    assert 0.7 < np.mean(drawn > 0) < 0.8
    assert np.abs(np.abs(drawn) - 1.0).max() < 0.6
