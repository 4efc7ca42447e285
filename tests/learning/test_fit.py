"""Training: it finds what is there, repeats with its seed, and says what went wrong."""

import os
import signal

import jax
import numpy as np
import pytest
import scipy.stats

import sosmarkov as sm
from tables import EXHAUSTIVE


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
    assert isinstance(history.chosen["surrogate"], bool)
    assert [phase.name for phase in history.phases] == ["surrogate", "transitions", "initial", "beliefs"]
    assert all(np.all(phase.held_out[0] >= phase.best) for phase in history.phases)
    assert set(history.scores) == {
        "transitions", "beliefs", "transitions before the belief phase", "beliefs before the belief phase"
    }  # fmt: skip
    assert history.scores["beliefs"] >= history.scores["beliefs before the belief phase"]
    assert "held-out loss" in str(history)
    assert not history.interrupted


def test_scores_are_log_likelihoods_in_data_space(process):
    # The same split as fit's own: one tenth of the trajectories, by the seed.
    held_out = np.random.default_rng(0).permutation(400)[:40]
    whole = linear_gaussian(400, 6, 0)[held_out]
    beliefs = process.propagate(6)
    by_belief = np.mean([np.mean(beliefs[k].log_prob(whole[:, k])) for k in range(7)])
    by_pair = np.mean(process.transition.log_prob(whole[:, 1:], whole[:, :-1]))
    np.testing.assert_allclose(process.history.scores["beliefs"], by_belief, rtol=1e-10)
    np.testing.assert_allclose(process.history.scores["transitions"], by_pair, rtol=1e-10)


SMALL = {"size": 4, "steps": 50, "objective": "transitions", "progress": False}


@pytest.fixture(scope="module")
def small():
    return sm.fit(linear_gaussian(60, 3, 0), **SMALL)


def same(one, other):
    pairs = zip(jax.tree.leaves(one.transition), jax.tree.leaves(other.transition), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_the_same_seed_gives_the_same_parameters_and_another_does_not(small):
    assert same(small, sm.fit(linear_gaussian(60, 3, 0), **SMALL))
    assert not same(small, sm.fit(linear_gaussian(60, 3, 0), **SMALL, seed=1))


def test_frames_and_files_give_what_arrays_give(small, tmp_path):
    import pandas

    data = linear_gaussian(60, 3, 0)
    rows = {"run": np.repeat(np.arange(60), 4), "k": np.tile(np.arange(4), 60), "x": data.reshape(-1)}
    shuffled = pandas.DataFrame(rows).sample(frac=1.0, random_state=0).sort_values("run", kind="stable")
    assert same(small, sm.fit(shuffled, trajectory="run", time="k", **SMALL))
    np.save(tmp_path / "x.npy", data)
    assert same(small, sm.fit(sm.open_trajectories(tmp_path / "x.npy"), **SMALL))


def test_a_checkpoint_resumes_to_the_same_process(small, tmp_path):
    path = tmp_path / "fit.ckpt"
    sm.fit(linear_gaussian(60, 3, 0), **SMALL, checkpoint=path)
    assert same(small, sm.fit(linear_gaussian(60, 3, 0), **SMALL, resume=path))
    with pytest.raises(ValueError, match="same data and settings"):
        sm.fit(linear_gaussian(60, 3, 1), **SMALL, resume=path)


def test_an_interruption_leaves_a_usable_process(monkeypatch):
    from sosmarkov.learning import progress

    class Stops(progress.Progress):
        def update(self, phase, steps):
            if phase.name == "transitions" and phase.done == 50:
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("sosmarkov.learning.phases.Progress", Stops)
    process = sm.fit(linear_gaussian(60, 3, 0), **SMALL | {"steps": 200})
    assert process.history.interrupted
    assert [phase.name for phase in process.history.phases] == ["transitions"]
    assert abs(float(process.propagate(3)[3].mass()) - 1.0) < 1e-12


def test_members_are_trained_at_once_and_mixed():
    ensemble = sm.fit(linear_gaussian(60, 3, 0), **SMALL, members=2)
    assert isinstance(ensemble, sm.Ensemble)
    assert len(ensemble) == 2
    assert not same(*ensemble)
    belief, parts = ensemble.propagate(2)[2], [member.propagate(2)[2] for member in ensemble]
    x = np.linspace(-3, 3, 7)[:, None]
    np.testing.assert_allclose(belief.prob(x), np.mean([part.prob(x) for part in parts], axis=0), rtol=1e-12)
    grid = np.linspace(-80, 80, 40_001)
    density = np.asarray(belief.prob(grid[:, None]))
    step = grid[1] - grid[0]
    np.testing.assert_allclose(step * density.sum(), float(belief.mass()), rtol=1e-8)
    mean = step * (grid * density).sum()
    np.testing.assert_allclose(belief.mean(), [mean], rtol=1e-6)
    np.testing.assert_allclose(belief.covariance(), [[step * ((grid - mean) ** 2 * density).sum()]], rtol=1e-6)
    np.testing.assert_allclose(ensemble.belief_at(2).log_prob(x), belief.log_prob(x), rtol=1e-9)


def test_pairs_are_focused_on_what_is_reached():
    """Pairs ten times wider than the reachable states: beliefs are learned where trajectories go."""
    rng = np.random.default_rng(0)
    x = rng.normal(0.0, 8.0, size=(1500, 1))
    start = rng.normal(1.0, 0.5, size=(300, 1))
    pairs = x, 0.8 * x + 0.6 * rng.normal(size=x.shape)
    found = sm.fit(transitions=pairs, initial=start, size=8, steps=300, horizon=6, progress=False)
    assert found.history.chosen["surrogate"]
    test = linear_gaussian(4000, 6, 1)
    mean, variance = 1.0, 0.25
    for k, belief in enumerate(found.propagate(6)):
        limit = scipy.stats.norm(mean, np.sqrt(variance)).logpdf(test[:, k, 0]).mean()
        assert limit - 0.08 < float(np.mean(belief.log_prob(test[:, k]))) < limit + 0.02
        mean, variance = 0.8 * mean, 0.64 * variance + 0.36


@pytest.mark.parametrize(
    ("basis", "coupling", "objective"),
    [("beta", "paired", "barrier")]
    + [("fourier", "kraus", "transitions"), ("gaussian", "linear", "beliefs")] * EXHAUSTIVE,
)
def test_other_families_couplings_and_the_papers_training(basis, coupling, objective):
    options = {"basis": basis, "coupling": coupling, "objective": objective, "surrogate": False}
    found = sm.fit(linear_gaussian(100, 3, 0), **SMALL | options)
    first = found.history.phases[0]
    assert first.best[0] < first.held_out[0, 0]
    assert found.check().normalisation_error < 1e-12
    assert abs(float(found.propagate(3)[3].mass()) - 1.0) < 1e-10


def test_weights_are_multiplicities():
    """A trajectory of weight zero might as well not be there; a heavy one pulls the process its way."""
    data = linear_gaussian(60, 3, 0)
    data[30:] += 5.0
    light = sm.fit(data, **SMALL, weights=[1.0] * 30 + [0.0] * 30)
    assert float(light.propagate(1)[1].mean()[0]) < 2.0
    heavy = sm.fit(data, **SMALL, weights=[0.0] * 30 + [1.0] * 30)
    assert float(heavy.propagate(1)[1].mean()[0]) > 4.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either trajectories or transitions"),
        ({"transitions": (np.zeros((5, 1)), np.zeros((5, 1)))}, "initial=x0"),
        ({"trajectories": linear_gaussian(20, 3, 0), "basis": "wavelet"}, "got 'wavelet'"),
        ({"trajectories": linear_gaussian(20, 3, 0), "size": 0}, "whole number >= 1 for size"),
        ({"trajectories": linear_gaussian(20, 3, 0), "objective": "nothing"}, "got 'nothing'"),
        ({"trajectories": linear_gaussian(20, 3, 0), "objective": -1.0}, "weight >= 0"),
        ({"trajectories": linear_gaussian(20, 3, 0), "validation": 1.5}, "validation between 0.0 and 1.0"),
        ({"trajectories": linear_gaussian(20, 3, 0), "coupling": "loose"}, "got 'loose'"),
        ({"trajectories": linear_gaussian(20, 3, 0), "transform": "bend"}, "got 'bend'"),
        ({"trajectories": linear_gaussian(20, 3, 0), "horizon": 9}, "at most 3"),
        ({"trajectories": linear_gaussian(20, 3, 0), "objective": "barrier"}, "coupling 'paired'"),
        ({"trajectories": linear_gaussian(20, 3, 0), "background": 1.0}, "share from 0 to below 1"),
        ({"trajectories": linear_gaussian(2, 3, 0), "size": 16}, "at least 32 transitions"),
        (
            {"transitions": (np.zeros((5, 1)),) * 2, "initial": np.zeros((5, 1)), "surrogate": False},
            "Use 'transitions'",
        ),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        sm.fit(**options, progress=False)


@pytest.mark.parametrize(
    ("family", "coupling"), [("gaussian", "linear")] + [("gaussian", "kraus"), ("beta", "paired")] * EXHAUSTIVE
)
def test_a_basis_given_is_where_training_starts(family, coupling):
    x = linear_gaussian(150, 3, 0)
    rng = np.random.default_rng(1)
    if family == "gaussian":
        basis = sm.GaussianBasis(rng.normal(size=(5, 1)), 0.5 + rng.random((5, 1)))
    else:
        basis = sm.BetaBasis(1.0 + 5.0 * rng.random((5, 1)), 1.0 + 5.0 * rng.random((5, 1)))
    options = {"coupling": coupling, "steps": 2, "objective": "transitions", "progress": False}
    process = sm.fit(x, basis=basis, learning_rate=1e-9, **options)
    assert process.history.chosen["basis"] == f"{family}, as given"
    for found in (process.transition.phi, process.transition.psi):
        for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(basis), strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-6)
    assert np.isfinite(process.history.scores["beliefs"])
    np.testing.assert_allclose(process.transition.mass(x[:5, 0]), 1.0, atol=1e-12)


def test_a_basis_that_does_not_fit_is_refused():
    x = linear_gaussian(50, 3, 0)
    two = sm.GaussianBasis(np.zeros((3, 2)), np.ones((3, 2)))
    with pytest.raises(ValueError, match="basis of 1 coordinates, like the data, got one of 2"):
        sm.fit(x, basis=two)
    one = sm.GaussianBasis(np.zeros((3, 1)), np.ones((3, 1)))
    with pytest.raises(ValueError, match="or its own, 3, got 4"):
        sm.fit(x, basis=one, size=4)
    elsewhere = sm.MonomialBasis(np.arange(3.0)[:, None], 0.0, 2.0)
    with pytest.raises(ValueError, match="Give a transform to there"):
        sm.fit(x, basis=elsewhere)
