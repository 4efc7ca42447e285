"""What training did: fields for programs, words for people and files."""

import dataclasses

import numpy as np
import pytest

import sosmarkov as sm
from sosmarkov.data.history import History, PhaseHistory, Scores

WORDS = {
    "transitions before the belief phase": -1.5,
    "beliefs before the belief phase": -2.5,
    "transitions": -1.25,
    "beliefs": -2.25,
}


def phase():
    return PhaseHistory("beliefs", np.array([0]), np.full((1, 1), np.nan), np.ones((1, 1)), np.array([0]), 0.5, "steps")


def test_scores_are_fields_and_words():
    scores = Scores.named(WORDS)
    assert (scores.transitions, scores.beliefs_before, scores.filtered) == (-1.25, -2.5, None)
    assert dict(scores) == WORDS == scores
    assert list(scores) == list(WORDS)
    assert (scores["beliefs"], scores.get("joint"), len(scores)) == (-2.25, None, 4)
    assert dataclasses.replace(scores, beliefs=0.0)["beliefs"] == 0.0
    with pytest.raises(KeyError):
        scores["joint"]


def test_words_of_other_versions_are_kept():
    scores = Scores.named({"beliefs": -1.0, "on Mars": -3.0})
    assert dict(scores) == {"beliefs": -1.0, "on Mars": -3.0}


@pytest.mark.parametrize(
    ("found", "final"),
    [
        (WORDS, -2.25),
        ({"transitions": -1.0}, -1.0),
        ({"states and readings given the readings before": -4.0}, -4.0),
        ({"readings given those before": -5.0, "readings given those before, before the last phase": -6.0}, -5.0),
        ({"joint": -7.0}, -7.0),
    ],
)
def test_one_score_compares_fits(found, final):
    assert Scores.named(found).final == final


def test_a_history_prints_its_scores_in_order():
    history = History((phase(),), {"size": 3}, WORDS)
    lines = str(history).splitlines()
    assert lines[0] == "size = 3"
    assert lines[2:6] == [f"held-out log-likelihood, {name}: {value:.4f}" for name, value in WORDS.items()]
    assert not History((phase(),)).scores


def test_a_file_has_the_words(tmp_path):
    phi = sm.GaussianBasis(mean=[[0.0], [1.0]], std=[[1.0], [1.0]])
    transition = sm.Transition(phi, phi, sm.Kraus(np.eye(2)[..., None] + 0.3))
    process = sm.MarkovProcess(transition, [0.5], history=History((phase(),), {}, WORDS | {"on Mars": -3.0}))
    process.save(tmp_path / "a.sosm")
    found = sm.load(tmp_path / "a.sosm").history
    assert found.scores == WORDS | {"on Mars": -3.0}
    assert found.scores.beliefs == -2.25


def test_extreme_states_beside_readings_are_counted():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 4, 1))
    o = x + 0.3 * rng.normal(size=x.shape)
    x[7, 1], x[9, 0] = 1e6, np.nan
    found = sm.fit(
        x, observations=o, sensor="joint", size=3, sensor_size=3, steps=2, objective="transitions", progress=False
    )
    # Both pairs of the extreme state; the one beside the gap is no pair to begin with.
    assert found.history.chosen["set_aside"] == 2
    assert "set_aside = 2" in str(found.history)
