"""Steps of a lattice against integrals of its own conditional density."""

import numpy as np
import pytest

import sosmarkov as sm
from lattice.lattices import ENDS, belief, broad, grid, line, plane, rule, stretched
from sosmarkov.lattice.transition import LatticeTransition


def process(ends="open", slope=0.9, noise=0.09, share=1e-2):
    nodes = line(ends)
    return sm.MarkovProcess(stretched(nodes, slope, noise, share), belief(nodes))


def chain(p, order=6):
    """Places, weights and p(x' | x) between them: all that the oracles use."""
    x, w = rule(p.transition.nodes.axes[0], order)
    return x, w, np.exp(p.transition.log_prob(x[None, :, None], x[:, None, None]))


@pytest.mark.parametrize("ends", ENDS)
def test_conditional_densities_and_steps(ends):
    p = process(ends)
    x, w, kernel = chain(p)
    np.testing.assert_allclose(kernel @ w, 1.0, atol=1e-12)
    np.testing.assert_allclose(p.transition.mass(x[:5, None]), 1.0, atol=1e-14)
    density = p.initial.prob(x[:, None])
    for b in p.propagate(3)[1:]:
        density = (w * density) @ kernel
        np.testing.assert_allclose(b.prob(x[:, None]), density, rtol=1e-9, atol=1e-13)
    known = p.propagate(2, initial=[0.4])
    np.testing.assert_allclose(known[1].log_prob(x[:, None]), p.transition.log_prob(x[:, None], [0.4]), rtol=1e-11)
    np.testing.assert_allclose(known[2].prob(x[:, None]), (w * known[1].prob(x[:, None])) @ kernel, atol=1e-13)


def test_steps_of_several_coordinates():
    nodes = plane()
    slope = [[1.0, 0.1], [0.0, 0.8]]
    p = sm.MarkovProcess(stretched(nodes, slope, 0.03 * np.eye(2), 1e-2), belief(nodes))
    x, w = grid(nodes.axes, 4)
    some = np.array([[0.31, -0.4], [-0.97, 0.2], [0.5, 3.0]])
    kernel = np.exp(p.transition.log_prob(some, x[:, None]))
    np.testing.assert_allclose(np.exp(p.transition.log_prob(x[:, None], some)).T @ w, 1.0, atol=1e-12)
    np.testing.assert_allclose(p.propagate(1)[1].prob(some), (w * p.initial.prob(x)) @ kernel, rtol=1e-9)


def test_affine_steps_keep_means_and_covariances():
    nodes = line(count=70, spacing=0.2)
    p = sm.MarkovProcess(stretched(nodes, 0.8, 0.25, share=0.0), [1.3])
    found = p.propagate(50)
    mean, variance = 1.3, 0.0
    for k in range(1, 51):
        mean, variance = 0.8 * mean, 0.64 * variance + 0.25
        np.testing.assert_allclose(found[k].mean(), [mean], atol=1e-9)
        np.testing.assert_allclose(found[k].covariance(), [[variance]], atol=1e-9)


def test_draws_are_those_of_the_conditional_density():
    p = process(share=0.05)
    x = p.transition.sample(0, np.full((200_000, 1), 0.7))
    target = p.propagate(1, initial=[0.7])[1]
    np.testing.assert_allclose(x.mean(), target.mean()[0], atol=0.005)
    np.testing.assert_allclose(x.var(), target.covariance()[0, 0], atol=0.005)
    for share in (0.01, 0.5, 0.99):
        assert np.mean(x < target.quantile(share)) == pytest.approx(share, abs=0.003)
    paths = p.sample(1, 20_000, 3)
    np.testing.assert_allclose(paths[:, 3].mean(axis=0), p.propagate(3)[3].mean(), atol=0.03)


def test_a_period_has_rows_of_each_phase():
    nodes = line()
    one, two = stretched(nodes, 0.9, 0.09, 1e-2), stretched(nodes, -0.5, 0.2, 1e-2)
    both = LatticeTransition(nodes, [one.chain.matrices[0], two.chain.matrices[0]], broad(nodes))
    p = sm.MarkovProcess(both, belief(nodes))
    first = sm.MarkovProcess(one, belief(nodes)).propagate(1)[1]
    second = sm.MarkovProcess(two, first).propagate(1)[1]
    np.testing.assert_array_equal(p.propagate(2)[2].C, second.C)
    np.testing.assert_array_equal(p.belief_at(2).C, second.C)
    np.testing.assert_array_equal(p.propagate(1, initial=first, inputs=[[7.0]])[1].C, second.C)
    np.testing.assert_allclose(both.log_prob([0.1], [0.2], [1.0]), two.log_prob([0.1], [0.2]), rtol=1e-13)
    assert p.under([1.0]).transition.features is None
    path = p.sample(0, 1, 5)[0]
    path[2] = np.nan
    expected = p.initial.log_prob(path[0]) + one.log_prob(path[1], path[0]) + one.log_prob(path[5], path[4])
    gap = sm.MarkovProcess(one, [0.0]).propagate(1, initial=sm.MarkovProcess(two, path[1]).propagate(1)[1])[1]
    expected += gap.log_prob(path[3]) + two.log_prob(path[4], path[3])
    np.testing.assert_allclose(p.log_likelihood(path), [expected], rtol=1e-12)
    assert "2 phases" in repr(p)


def test_starts_of_every_kind():
    p = process()
    other = belief(line("open", 50, 0.11), seed=5)
    # Between the ends of cells of both: spacings of 0.15 and 0.11, centred on zero.
    ends = [0.15 * (np.arange(-48, 49) - 0.0), 0.11 * np.arange(-65, 66)]
    edges = np.unique(np.round(np.concatenate(ends), 12))
    u, weights = np.polynomial.legendre.leggauss(6)
    half = 0.5 * np.diff(edges)[:, None]
    x, w = (0.5 * (edges[1:] + edges[:-1])[:, None] + half * u).ravel(), (half * weights).ravel()
    some = np.array([[-1.1], [0.3]])
    kernel = np.exp(p.transition.log_prob(some, x[:, None, None]))
    gaussian = sm.GaussianBelief([0.3], [[0.04]])
    for start in (other, gaussian):
        found = p.propagate(1, initial=start)[1].prob(some)
        np.testing.assert_allclose(found, (w * np.asarray(start.prob(x[:, None]))) @ kernel, rtol=1e-8)
    mixed = sm.MixtureBelief([sm.KnownState([0.2]), p.initial], [0.3, 0.7])
    expected = 0.3 * p.propagate(1, initial=[0.2])[1].prob(some) + 0.7 * p.propagate(1)[1].prob(some)
    np.testing.assert_allclose(p.propagate(1, initial=mixed)[1].prob(some), expected, rtol=1e-13)
    with pytest.raises(ValueError, match="between"):
        sm.MarkovProcess(process("lower").transition, [-100.0])
    with pytest.raises(ValueError, match="over 1 coordinates"):
        p.propagate(1, initial=[0.1, 0.2])


def test_many_messages_go_at_once():
    p = process()
    chain_, states = p.transition.chain, np.array([[0.1], [-0.5], [1.0]])
    C = p.transition.carry(chain_.gates(states).toarray().T)
    for k, state in enumerate(states):
        np.testing.assert_allclose(C[:, k], p.propagate(1, initial=state)[1].C, atol=1e-15)
    C = p.transition.carry(chain_.seen(C))
    np.testing.assert_allclose(C[:, 1], p.propagate(2, initial=states[1])[2].C, atol=1e-15)


def test_files_hold_all_of_it(tmp_path):
    nodes = line("both")
    one, two = stretched(nodes, 0.9, 0.09), stretched(nodes, 0.5, 0.09)
    for rows in (one.chain.matrices, [one.chain.matrices[0], two.chain.matrices[0]]):
        transition = LatticeTransition(nodes, rows, broad(nodes), report={"narrow": 0.25})
        p = sm.MarkovProcess(transition, belief(nodes), columns=["level"], sensor=sm.GaussianSensor("level", 0.1))
        p.save(tmp_path / "level.sosm")
        found = sm.load(tmp_path / "level.sosm")
        np.testing.assert_array_equal(found.propagate(4)[4].C, p.propagate(4)[4].C)
        assert found.transition.report == {"narrow": 0.25}
        assert found.initial.columns == ("level",)
        assert repr(found) == repr(p)


def test_rows_that_are_none_are_refused():
    nodes = line()
    rows = np.full((40, 41), 1.0 / 41)
    with pytest.raises(ValueError, match="add up to one"):
        LatticeTransition(nodes, 2.0 * rows, broad(nodes))
    with pytest.raises(ValueError, match="rows of shape"):
        LatticeTransition(nodes, rows[:, :-1], broad(nodes))
