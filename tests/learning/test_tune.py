"""The search over options: it keeps the best, remembers, and leaves alone what is fixed."""

import numpy as np
import pytest

import sosmarkov as sm
from sosmarkov.learning import tune

pytest.importorskip("optuna")

FIXED = {"steps": 20, "basis": "gaussian", "learning_rate": 1e-2, "rank": 2, "objective": "transitions"}


@pytest.fixture(scope="module")
def trajectories():
    rng = np.random.default_rng(0)
    return np.cumsum(rng.normal(size=(120, 4, 1)), axis=1)


def test_a_search_keeps_the_best_and_goes_on_from_its_journal(trajectories, tmp_path):
    journal = tmp_path / "trials.log"
    first = sm.tune(trajectories, trials=2, journal=journal, progress=False, size=4, **FIXED)
    assert len(first.trials) == 2
    assert first.score == max(score for _, score in first.trials if score is not None)
    assert first.process.history.scores["beliefs"] == first.score
    again = sm.tune(trajectories, trials=2, journal=journal, progress=False, size=4, **FIXED)
    assert again.trials == first.trials
    # Nothing is stored but options: the same seed gives the process again.
    assert float(again.process.transition.log_prob([0.1], [0.2])) == float(
        first.process.transition.log_prob([0.1], [0.2])
    )


def test_what_is_not_fixed_is_searched(trajectories, monkeypatch):
    # What is asked of `fit` is looked at; one process answers for all.
    process = sm.fit(trajectories, size=4, progress=False, **FIXED)
    monkeypatch.setattr(tune, "fit", lambda *data, **options: process)
    fixed = {name: value for name, value in FIXED.items() if name not in ("rank", "learning_rate")}
    found = sm.tune(trajectories[:40], trials=2, seed=1, progress=False, **fixed)
    first, second = (options for options, _ in found.trials)
    assert first == {"basis": "gaussian"}  # the defaults come first
    assert set(second) == {"basis", "size", "rank", "learning_rate"}


def test_bad_counts_are_refused(trajectories):
    with pytest.raises(ValueError, match="whole number >= 1 for trials"):
        sm.tune(trajectories, trials=0)


@pytest.mark.parametrize("options", [{}, {"rank": 2}])
def test_a_search_with_readings_compares_filters(trajectories, options):
    fixed = {"observations": trajectories + 0.1, "sensor": "joint", "steps": 1, "size": 3, "learning_rate": 1e-2}
    found = sm.tune(trajectories, trials=2, progress=False, **fixed, **options)
    assert found.score == found.process.history.scores.filtered
    assert all(score is not None for _, score in found.trials)
    with pytest.raises(ValueError, match="Did you mean 'size'"):
        sm.tune(trajectories, trials=1, siize=3)
