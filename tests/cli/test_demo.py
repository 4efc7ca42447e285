"""What the demonstration carries of its own, beside the systems and the oracle of the experiments."""

import jax
import numpy as np
from scipy.stats import multivariate_normal

from sosmarkov.cli import oscillator
from sosmarkov_bench.oracle import limit
from sosmarkov_bench.systems import get_system


def test_the_oscillator_is_the_one_of_the_experiments():
    x = np.random.default_rng(0).normal(size=(50, 2))
    system = get_system("vdp")
    np.testing.assert_allclose(oscillator.drift(x), jax.vmap(system.mean_step)(x), rtol=1e-13)
    runs = oscillator.simulate(20_000, 1, seed=0)
    noise = runs[:, 1] - oscillator.drift(runs[:, 0])
    np.testing.assert_allclose(runs[:, 0].mean(0), system.initial.mean, atol=0.02)
    np.testing.assert_allclose(np.cov(runs[:, 0].T), system.initial.covariance, atol=0.01)
    np.testing.assert_allclose(np.cov(noise.T), system.dynamics.noise.covariance, atol=0.005)


def test_the_references_are_those_of_the_experiments():
    training, test, others = (oscillator.simulate(count, 3, seed) for seed, count in enumerate((100, 120, 300)))
    expected = limit(get_system("vdp"), test, others).lower
    np.testing.assert_allclose(oscillator.limit(test, others), expected, rtol=1e-12)
    found = oscillator.one_gaussian(training, test)
    for k in (1, 2, 3):
        normal = multivariate_normal(training[:, k].mean(0), np.cov(training[:, k].T))
        np.testing.assert_allclose(found[k - 1], normal.logpdf(test[:, k]).mean(), rtol=1e-12)
