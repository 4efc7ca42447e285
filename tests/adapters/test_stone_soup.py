"""A process as a transition model of Stone Soup: draws, means and densities are the process's own."""

from datetime import timedelta

import jax
import numpy as np
import pytest

import sosmarkov as sm
import tables
from sosmarkov.adapters.stone_soup import transition_model

pytest.importorskip("stonesoup")
from stonesoup.types.array import StateVector, StateVectors  # noqa: E402
from stonesoup.types.state import ParticleState, State  # noqa: E402

STEP = timedelta(seconds=0.1)
# As many as programs are compiled for below.
COUNT = 2000


@pytest.fixture(scope="module")
def process():
    return sm.MarkovProcess(tables.make_transition("gaussian", "kraus", 1, 0, n=3), [0.5])


@pytest.fixture(scope="module")
def model(process):
    return transition_model(process, STEP, seed=3)


def particles(values):
    return ParticleState(StateVectors(values), log_weight=np.full(values.shape[1], -np.log(values.shape[1])))


def test_draws_have_the_process_s_moments(process, model):
    assert model.ndim_state == model.ndim == 1
    cloud = particles(np.full((1, COUNT), 0.5))
    for steps in (1, 2):
        drawn = np.asarray(model.function(cloud, noise=True, time_interval=steps * STEP), dtype=float)
        assert drawn.shape == (1, COUNT)
        belief = process.propagate(2)[steps]
        std = float(np.sqrt(belief.covariance()[0, 0]))
        assert abs(drawn.mean() - float(belief.mean()[0])) < 4.5 * std / np.sqrt(COUNT)
        assert abs(drawn.std() / std - 1.0) < 0.15
        mean = model.function(State(StateVector([0.5])), time_interval=steps * STEP)
        assert isinstance(mean, StateVector)
        np.testing.assert_allclose(np.asarray(mean, dtype=float)[0], belief.mean(), rtol=1e-10)


def test_draws_go_on_and_can_be_repeated(process, model):
    cloud = particles(np.full((1, COUNT), 0.5))
    first, second = (np.asarray(transition_model(process, STEP, seed=4).function(cloud, noise=True)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(model.function(cloud, noise=True), model.function(cloud, noise=True))


def test_densities_are_those_of_the_transition(process, model):
    x, x_next = np.array([[0.5, -1.0]]), np.array([[0.0, 1.5]])
    expected = np.asarray(process.transition.log_prob(x_next.T, x.T))
    found = model.logpdf(particles(x_next), particles(x), time_interval=STEP)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    one = model.pdf(State(StateVector([0.0])), State(StateVector([0.5])))
    np.testing.assert_allclose(float(one), np.exp(expected[0]), rtol=1e-10)
    assert len(model.pdf(particles(x_next), particles(x))) == 2


def test_times_and_noise_that_make_no_sense_are_refused(process, model):
    state = State(StateVector([0.5]))
    for wrong in (0.5 * STEP, 0.0 * STEP, 1.3 * STEP, -STEP):
        with pytest.raises(ValueError, match="whole steps"):
            model.function(state, time_interval=wrong)
    with pytest.raises(ValueError, match="one step between"):
        model.logpdf(state, state, time_interval=2 * STEP)
    with pytest.raises(ValueError, match="True or False"):
        model.function(state, noise=np.zeros((1, 1)))
    with pytest.raises(ValueError, match="no function plus noise"):
        model.rvs()
    with pytest.raises(ValueError, match="positive time"):
        transition_model(process, timedelta(0))
    basis = process.transition.phi
    driven = sm.Driven(sm.Phases(1), jax.random.normal(jax.random.key(0), (1, 3, 3, 4)))
    with pytest.raises(ValueError, match="without inputs"):
        transition_model(sm.MarkovProcess(sm.DrivenTransition(basis, basis, driven), [0.5]), STEP)
