"""The long run, and boxes over time, against chains of densities on fine grids."""

import numpy as np
import pytest

import sosmarkov as sm
from lattice.lattices import belief, grid, line, plane, rule, stretched
from sosmarkov.lattice import long_run
from sosmarkov.lattice.transition import LatticeTransition


@pytest.fixture(scope="module")
def p():
    nodes = line()
    return sm.MarkovProcess(stretched(nodes, 0.8, 0.2, 1e-2), belief(nodes))


@pytest.fixture(scope="module")
def fine(p):
    # Cells divided where boxes end, at nodes.
    x, w = rule(p.transition.nodes.axes[0], 4, parts=2)
    return x, w, np.exp(p.transition.log_prob(x[None, :, None], x[:, None, None]))


def edge(p, k):
    """A node: between parts of cells of the rule above."""
    axis = p.transition.nodes.axes[0]
    return axis.origin + axis.spacing * k


def test_the_stationary_belief(p, fine):
    x, w, kernel = fine
    found = p.stationary()
    np.testing.assert_allclose(found.prob(x[:, None]), (w * found.prob(x[:, None])) @ kernel, atol=1e-12)
    np.testing.assert_allclose(p.belief_at(10**9).C, found.C, atol=1e-12)
    np.testing.assert_allclose(p.belief_at(7).C, p.propagate(7)[7].C, atol=1e-15)


def test_spectrum_timescales_and_correlations(p, fine):
    x, w, kernel = fine
    values = np.linalg.eigvals(kernel * w)
    values = values[np.argsort(-np.abs(values))]
    np.testing.assert_allclose(p.spectrum()[:4], values[:4], atol=1e-9)
    np.testing.assert_allclose(p.timescales(2), -1.0 / np.log(np.abs(values[1:3])), rtol=1e-7)
    weights = w * p.stationary().prob(x[:, None])
    away = x - weights @ x
    expected, now = [], away
    for _ in range(4):
        expected.append(weights @ (away * now) / (weights @ away**2))
        now = (kernel * w) @ now
    np.testing.assert_allclose(p.autocorrelation(0, 3), expected, atol=1e-11)


def test_the_mixing_time_is_when_no_share_is_far(p):
    k = p.mixing_time(1e-3)
    target = p.stationary().C
    far = [0.5 * np.sum(np.abs(p.propagate(j)[j].C - target)) for j in (k - 1, k)]
    assert far[0] > 1e-3 >= far[1]


def test_large_chains_take_the_sparse_ways(p, monkeypatch):
    spectrum, passage = p.spectrum(), p.mean_first_passage([1.0], [2.0])
    far = p.belief_at(10**6).C
    for name in ("_DENSE", "_DENSE_SPECTRUM"):
        monkeypatch.setattr(long_run, name, 1)
    monkeypatch.setattr(long_run, "_EIGENVALUES", 8)
    np.testing.assert_allclose(p.spectrum()[:4], spectrum[:4], atol=1e-10)
    np.testing.assert_allclose(p.mean_first_passage([1.0], [2.0]), passage, rtol=1e-9)
    np.testing.assert_allclose(p.belief_at(10**6).C, far, atol=1e-12)


def test_powers_by_squaring_are_steps(p, monkeypatch):
    monkeypatch.setattr(long_run, "_STEPS", 3)
    np.testing.assert_allclose(p.belief_at(30).C, p.propagate(30)[30].C, atol=1e-13)


@pytest.mark.parametrize("start", ["own", "known", "on cells"])
def test_staying_and_reaching(p, fine, start):
    x, w, kernel = fine
    low, high, second = edge(p, 8), edge(p, 30), edge(p, 12)
    if start == "known":
        initial, first = [0.3], np.exp(p.transition.log_prob(x[:, None], [0.3]))
    else:
        initial = p.initial if start == "own" else p.update(p.initial, [0.2], sensor=sm.GaussianSensor(0, 0.5)).belief
        first = (w * initial.prob(x[:, None])) @ kernel
    inside, shunned = (x > low) & (x < high), (x > low) & (x < second)
    stay, reach, now, later = [], [], first, first
    for _ in range(4):
        stay.append(w[inside] @ now[inside])
        now = (w * now * inside) @ kernel
        hit = inside & ~shunned
        reach.append(w[hit] @ later[hit])
        later = (w * later * ~inside) @ kernel
    np.testing.assert_allclose(p.stay_probability([low], [high], 4, initial=initial), stay, atol=1e-10)
    found = p.reach_probability([low], [high], 4, avoid=([low], [second]), initial=initial)
    np.testing.assert_allclose(found, np.cumsum(reach), atol=1e-10)
    exit_ = p.exit_probability([low], [high], 4, initial=initial)
    np.testing.assert_allclose(exit_, -np.diff(stay, prepend=1.0), atol=1e-10)


@pytest.mark.parametrize("initial", [None, [0.3]])
def test_first_passages(p, fine, initial):
    x, w, kernel = fine
    low, high = edge(p, 26), edge(p, 34)
    outside = ~((x > low) & (x < high))
    # From each state: steps that begin outside.
    hitting = np.linalg.solve(np.eye(len(x)) - outside[:, None] * kernel * w, outside.astype(float))
    if initial is None:
        expected = (w * p.initial.prob(x[:, None])) @ hitting
    else:
        expected = 1.0 + (w * np.exp(p.transition.log_prob(x[:, None], initial))) @ hitting
    np.testing.assert_allclose(p.mean_first_passage([low], [high], initial=initial), expected, rtol=1e-9)


def test_boxes_across_the_cut_of_a_circle():
    nodes = plane()
    q = sm.MarkovProcess(stretched(nodes, np.diag([1.0, 0.5]), 0.03 * np.eye(2), 1e-2), belief(nodes))
    x, w = grid(nodes.axes, 4)
    found = q.stay_probability([0.7, -np.inf], [1.2, np.inf], 2)
    inside = (x[:, 0] > 0.7) | (x[:, 0] < -0.8)
    first = q.propagate(1)[1]
    np.testing.assert_allclose(found[0], w[inside] @ first.prob(x[inside]), rtol=1e-12)
    rng = np.random.default_rng(0)
    paths = q.sample(rng, 200_000, 2)[..., 0]
    stayed = np.all((paths[:, 1:] > 0.7) | (paths[:, 1:] < -0.8), axis=1)
    assert np.mean(stayed) == pytest.approx(found[1], abs=3e-3)


def test_a_chain_that_falls_apart_has_no_stationary_belief():
    nodes = line()
    rows = np.zeros((40, 41))
    rows[:20, 5], rows[20:, 35] = 1.0, 1.0
    broken = sm.MarkovProcess(LatticeTransition(nodes, rows, belief(nodes).broad), belief(nodes))
    with pytest.raises(ValueError, match="one stationary belief"):
        broken.stationary()


def test_trajectories_are_as_likely_as_their_steps(p):
    paths = p.sample(0, 5, 6)
    steps = p.transition.log_prob(paths[:, 1:], paths[:, :-1]).sum(axis=1)
    np.testing.assert_allclose(p.log_likelihood(paths), p.initial.log_prob(paths[:, 0]) + steps, rtol=1e-12)
    paths[2, 0:2] = np.nan
    paths[2, 4] = np.nan
    expected = p.propagate(2)[2].log_prob(paths[2, 2]) + p.transition.log_prob(paths[2, 3], paths[2, 2])
    expected += p.propagate(2, initial=paths[2, 3])[2].log_prob(paths[2, 5])
    expected += p.transition.log_prob(paths[2, 6], paths[2, 5])
    np.testing.assert_allclose(p.log_likelihood(paths)[2], expected, rtol=1e-12)


def test_predicted_shares_are_those_of_data_of_the_process_itself(p):
    found = p.ck_test(p.sample(3, 300, 40), 2)
    assert np.all(np.abs(found.predicted - found.observed) < 0.05)
    assert p.check().ok
