"""Learning on: the same as from all data at once, or as expected counts have it."""

import numpy as np
import pytest

import sosmarkov as sm
from sosmarkov.data.dataset import from_pairs
from sosmarkov.lattice.counts import Seen
from sosmarkov.learning.gaussian import learn_gaussian

F = np.array([[0.9, 0.15], [-0.1, 0.8]])


def paths(count, length=30, seed=0, heavy=False):
    rng = np.random.default_rng(seed)
    x = np.zeros((count, length, 2))
    x[:, 0] = rng.normal(size=(count, 2))
    for k in range(1, length):
        noise = rng.standard_t(3, size=(count, 2)) if heavy else rng.normal(size=(count, 2))
        x[:, k] = x[:, k - 1] @ F.T + 0.3 * noise
    return x


def rows(n, seed, e=0, period=None):
    rng = np.random.default_rng(seed)
    x, u = 50.0 + rng.normal(size=(n, 2)), rng.normal(size=(n, e)) if e else None
    if period is not None:
        u = rng.integers(0, 40, size=(n, 1)).astype(float)
    x_next = x @ F.T + (0.0 if u is None else np.sin(u[:, :1])) + 0.3 * rng.normal(size=(n, 2))
    weight = rng.random(n) + 0.1
    return x, x_next, weight / np.mean(weight), u


@pytest.mark.parametrize(("e", "period"), [(0, None), (2, None), (0, 4)])
def test_least_squares_of_portions_are_those_of_all(e, period, tmp_path):
    def fitted(x, x_next, weight, u, ridge=None):
        return learn_gaussian(from_pairs(x, x_next, x, weight, u), period=period, ridge=ridge)

    parts = [rows(n, seed, e, period) for n, seed in ((300, 0), (200, 1), (3, 2))]
    x, x_next, weight, u = (None if one[0] is None else np.concatenate(one) for one in zip(*parts, strict=True))
    process = fitted(*parts[0])
    moments = process.transition.moments
    whole = fitted(x, x_next, weight, u, moments.ridge).transition
    for x, x_next, weight, u in parts[1:]:
        # No data are kept: what a file holds is enough.
        process.save(tmp_path / "m.sosm")
        process = sm.load(tmp_path / "m.sosm").learn(transitions=(x, x_next), weights=weight, inputs=u)
    found = process.transition
    for name in ("F", "b", "Q", "B"):
        if getattr(whole, name) is not None:
            np.testing.assert_allclose(getattr(found, name), getattr(whole, name), rtol=1e-10, atol=1e-10)
    assert [one["pairs"] for one in process.history.chosen["learned"]] == [200, 3]


def test_fit_and_learn_from_trajectories_and_frames():
    polars = pytest.importorskip("polars")
    x = paths(30)
    first, whole = (sm.fit(part, form="gaussian", progress=False) for part in (x[:20], x))
    names = {"x0": x[20:, :, 0].ravel(), "x1": x[20:, :, 1].ravel()}
    frame = polars.DataFrame(names | {"path": np.repeat(np.arange(10), 30)})
    for found in (first.learn(x[20:]), first.learn(frame, trajectory="path")):
        np.testing.assert_allclose(found.transition.Q, whole.transition.Q, rtol=1e-10)
        np.testing.assert_allclose(found.transition.F, whole.transition.F, rtol=1e-10)
    assert found.initial is first.initial or found.initial.columns == first.initial.columns


@pytest.fixture(scope="module")
def lattice():
    return sm.fit(paths(25, heavy=True), form="lattice", progress=False)


def test_a_lattice_counts_one_pass_as_by_hand(lattice):
    x = paths(4, 20, seed=3, heavy=True)
    pairs = from_pairs(x[:, :-1].reshape(-1, 2), x[:, 1:].reshape(-1, 2), x[:, 0], np.linspace(0.5, 1.5, 76)).pairs
    old = lattice.transition
    found, _ = old.learned(pairs, passes=1)
    nodes, A = old.nodes, old.chain.matrices[0].toarray()
    counts = old.behind[:, None] * A
    (i, gates), (j, densities) = nodes.gates(pairs.x), nodes.densities(pairs.x_next)
    for n in range(76):
        w, D = np.zeros(len(nodes)), np.zeros(len(nodes) + 1)
        np.add.at(w, i[n], gates[n])
        np.add.at(D, j[n], densities[n])
        D[-1] = np.exp(old.broad.log_prob(pairs.x_next[n : n + 1]))[0]
        there = np.flatnonzero(w)
        joint = w[there, None] * A[there] * D
        counts[there] += pairs.weight[n] * joint / np.sum(joint)
    np.testing.assert_allclose(found.behind, counts.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(
        found.chain.matrices[0].toarray(), counts / counts.sum(axis=1, keepdims=True), rtol=1e-10, atol=1e-15
    )
    # Each pair counts once.
    np.testing.assert_allclose(np.sum(found.behind) - np.sum(old.behind), np.sum(pairs.weight), rtol=1e-9)


def test_a_lattice_gets_better_with_data(lattice, tmp_path):
    lattice.save(tmp_path / "m.sosm")
    more, held_out = paths(150, seed=5, heavy=True), paths(60, seed=6, heavy=True)
    found = sm.load(tmp_path / "m.sosm").learn(more)
    assert np.sum(found.log_likelihood(held_out)) > np.sum(lattice.log_likelihood(held_out))
    assert found.transition.nodes == lattice.transition.nodes
    assert found.check().normalisation_error < 1e-12
    again = found.learn(more)
    assert len(again.history.chosen["learned"]) == 2
    assert np.sum(again.transition.behind) > np.sum(found.transition.behind)
    again.save(tmp_path / "again.sosm")
    np.testing.assert_array_equal(sm.load(tmp_path / "again.sosm").transition.behind, again.transition.behind)


def test_pairs_beyond_the_nodes_are_told(lattice):
    far = np.array([[0.0, 0.0], [0.1, 0.0]]), np.array([[30.0, 0.0], [0.1, 0.1]])
    found = lattice.learn(transitions=far)
    assert found.history.chosen["learned"] == [{"pairs": 2, "beyond the nodes": 1}]
    old, new = (np.asarray(one.transition.log_prob(far[1][0], far[0][0])) for one in (lattice, found))
    assert new > old


def test_known_dynamics_learn_with_a_strength():
    process = sm.from_dynamics(lambda x: 0.5 * x, [[0.09]], [-3], [3], initial=[0.0], spacing=0.2)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 1)) * 0.5
    pairs = x, 0.5 * x + rng.choice([-0.4, 0.4], size=x.shape) + 0.1 * rng.normal(size=x.shape)
    with pytest.raises(ValueError, match="Expected strength="):
        process.learn(transitions=pairs)
    found = process.learn(transitions=pairs, strength=20)
    score = [float(np.mean(one.transition.log_prob(pairs[1], pairs[0]))) for one in (process, found)]
    assert score[1] > score[0] + 0.2


def test_a_period_of_a_lattice_counts_each_phase():
    rng, x = np.random.default_rng(0), np.zeros((40, 25, 1))
    for k in range(1, 25):
        x[:, k] = (0.9 if k % 2 else -0.6) * x[:, k - 1] + 0.3 * rng.normal(size=(40, 1))
    process = sm.fit(x[:30], form="lattice", period=2, progress=False)
    found = process.learn(x[30:])
    n = len(process.transition.nodes)
    grown = (found.transition.behind - process.transition.behind).reshape(2, n).sum(axis=1)
    np.testing.assert_allclose(grown, [120.0, 120.0], rtol=1e-9)


def test_what_cannot_be_learned_is_refused(lattice):
    given = sm.MarkovProcess(sm.GaussianTransition(F, [0.0, 0.0], np.eye(2)), [0.0, 0.0])
    learned = sm.fit(paths(5), form="gaussian", progress=False)
    x = paths(3)
    for process, how, said in (
        (given, {"more": x}, "learned from data to learn more"),
        (learned, {"more": x, "strength": 3.0}, "strength= with the lattice form"),
        (learned, {"more": x + 1e6}, "within 100 deviations"),
        (learned, {"more": x[..., :1]}, "2 coordinates, got 1"),
        (learned, {"more": x, "inputs": np.zeros((3, 29, 1))}, "inputs with 0 numbers"),
        (learned, {}, "either trajectories or transitions"),
        (lattice, {"more": x, "strength": 0.0}, "strength above zero"),
    ):
        with pytest.raises(ValueError, match=said):
            process.learn(**how)
    factor = sm.fit(paths(12), size=4, steps=2, surrogate=False, objective="transitions", progress=False)
    with pytest.raises(ValueError, match="Fit it again to all data"):
        factor.learn(x)


def test_what_no_row_speaks_of_says_nothing():
    process = sm.from_dynamics(
        lambda x: 0.5 * x, [[0.01]], [-3], [3], initial=[0.0], spacing=0.08, background=0.0
    ).transition
    seen = Seen(process.nodes, process.broad, process.chain.matrices[0], np.zeros((1, 1)), np.full((1, 1), 2.5))
    assert np.sum(seen.counts(process.chain.matrices[0].data, np.ones(1))) == 0.0
