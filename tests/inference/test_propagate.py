"""Propagation against a grid chain and against itself; quadrature is in test_belief.py."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import oracles
import sosmarkov as sm
from sosmarkov.inference import propagate as propagation
from tables import make_process


@eqx.filter_jit
def ten_steps(process, xs):
    """The start, the kernel and the belief after ten steps on a grid."""
    kernel = jnp.exp(process.transition.log_prob(xs, xs[:, None]))
    return process.initial.prob(xs), kernel, process.propagate(10)[10].prob(xs)


@pytest.mark.parametrize("coupling", ["kraus", "paired", "linear"])
def test_ten_steps_match_a_grid_chain(coupling):
    process = make_process("gaussian", coupling, 1, seed=4)
    xs = np.linspace(-15.0, 15.0, 751)
    dx = xs[1] - xs[0]
    chain, kernel, found = map(np.asarray, ten_steps(process, jnp.asarray(xs[:, None])))
    for _ in range(10):
        chain = dx * chain @ kernel
    np.testing.assert_allclose(found, chain, rtol=1e-9, atol=1e-13)


FAR = (1, 2, 7, 100, 10_000)


@pytest.mark.parametrize("coupling", ["kraus", "paired", "linear"])
def test_far_beliefs_match_single_steps(coupling):
    process = make_process("gaussian", coupling, 2, seed=4)
    x = np.random.default_rng(0).normal(size=(20, 2))
    beliefs = process.propagate(max(FAR))
    for k in FAR:
        C = np.asarray(beliefs.coefficients)[k - 1]
        far = process.belief_at(k)
        np.testing.assert_allclose(far.h.coefficients, C, rtol=1e-9, atol=1e-11 * np.max(np.abs(C)))
        np.testing.assert_allclose(far.prob(x), beliefs[k].prob(x), rtol=1e-9)


@eqx.filter_jit
def a_million_steps(process):
    transition = process.transition
    first = propagation.first_coefficients(transition, process.initial)
    C = jax.lax.fori_loop(0, 10**6, lambda _, C: transition.push(transition.message(C)), first)
    return transition.g.coefficients @ transition.overlap @ C


@pytest.mark.parametrize("coupling", ["kraus", "paired", "linear"])
def test_mass_after_a_million_steps_without_renormalising(coupling):
    process = make_process("gaussian", coupling, 1, seed=4)
    assert abs(float(a_million_steps(process)) - 1.0) < 1e-9
    assert abs(float(process.belief_at(10**6).mass()) - 1.0) < 1e-9


def test_sequence_of_beliefs_behaves_like_one():
    process = make_process("gaussian", "kraus", 2, seed=0)
    beliefs = process.propagate(4)
    assert len(beliefs) == 5
    assert beliefs[0] is process.initial
    assert len(beliefs[1:3]) == 2
    x = np.zeros(2)
    np.testing.assert_array_equal(beliefs[-1].prob(x), beliefs[4].prob(x))
    assert len(list(beliefs)) == 5
    with pytest.raises(IndexError):
        beliefs[5]
    assert len(process.propagate(0)) == 1
    assert process.belief_at(0) is process.initial


def test_starting_from_another_belief_continues_the_first():
    process = make_process("gaussian", "paired", 2, seed=0)
    beliefs = process.propagate(5)
    again = process.propagate(3, initial=beliefs[2])
    x = np.random.default_rng(0).normal(size=(10, 2))
    np.testing.assert_allclose(again[3].prob(x), beliefs[5].prob(x), rtol=1e-11)
    np.testing.assert_allclose(process.belief_at(3, initial=beliefs[2]).prob(x), beliefs[5].prob(x), rtol=1e-10)


def test_known_state_far_ahead_matches_two_known_steps():
    process = make_process("beta", "kraus", 1, seed=0)
    start = jnp.asarray([0.4])
    nodes, weights = oracles.tanh_sinh(0.0, 1.0)
    first = weights * np.exp(np.asarray(process.transition.log_prob(nodes[:, None], start)))
    target = np.array([[0.2], [0.6]])
    kernel = np.exp(np.asarray(process.transition.log_prob(target[:, None], nodes[None, :, None])))
    found = process.propagate(2, initial=start)[2].prob(target)
    np.testing.assert_allclose(found, kernel @ first, rtol=1e-10)
    assert isinstance(process.propagate(2, initial=start)[0], sm.KnownState)
