"""Recorded episodes become trajectories and inputs."""

from types import SimpleNamespace

import numpy as np
import pytest

import sosmarkov as sm


def episode(length, seed=0, **changed):
    rng = np.random.default_rng(seed)
    parts = {"observations": rng.normal(size=(length + 1, 3)), "actions": rng.normal(size=(length, 2))}
    return SimpleNamespace(**(parts | {"rewards": np.zeros(length)} | changed))


def test_episodes_of_any_length_are_read_in_order():
    recorded = [episode(4), episode(7, 1)]
    for source in (recorded, iter(recorded), SimpleNamespace(iterate_episodes=lambda: iter(recorded))):
        found = sm.episodes(source)
        assert [part.shape for part in found.trajectories] == [(5, 3), (8, 3)]
        for index, one in enumerate(recorded):
            np.testing.assert_array_equal(found.trajectories[index], one.observations)
            np.testing.assert_array_equal(found.inputs[index], one.actions)
    (states,), (actions,) = sm.episodes([vars(episode(4, actions=np.arange(4)))])
    assert states.shape == (5, 3)
    np.testing.assert_array_equal(actions, [[0.0], [1.0], [2.0], [3.0]])


def test_parts_of_an_observation_are_put_side_by_side():
    seen = {"goal": np.ones((5, 2)), "place": np.zeros((5, 1)), "image": np.zeros((5, 8, 8))}
    (states,), _ = sm.episodes([episode(4, observations=seen)], observation=["place", "goal"])
    np.testing.assert_array_equal(states, [[0.0, 1.0, 1.0]] * 5)
    (states,), _ = sm.episodes([episode(4, observations=seen)], observation="goal")
    assert states.shape == (5, 2)
    for wrong in (None, ["height"]):
        with pytest.raises(ValueError, match="names among \\['goal', 'image', 'place'\\]"):
            sm.episodes([episode(4, observations=seen)], observation=wrong)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "at least one episode"),
        ("episodes", "an iterable of episodes"),
        (3, "an iterable of episodes"),
        ([SimpleNamespace(observations=np.ones((3, 1)))], "actions in episode 0"),
        (
            [episode(4), episode(4, actions=np.ones((5, 2)))],
            "one observation more than actions in episode 1, got 5 and 5",
        ),
        ([episode(4), episode(4, actions=np.ones((4, 1)))], "actions with as many numbers"),
        (
            [episode(4, observations=np.ones((5, 2, 2)))],
            "episode 0 of shape \\(N, d\\), got \\(5, 2, 2\\)",
        ),
        ([episode(4, observations=["up"] * 5)], "numbers for observations of episode 0"),
    ],
)
def test_what_is_no_episode_is_refused(source, message):
    with pytest.raises(ValueError, match=message):
        sm.episodes(source)
    with pytest.raises(ValueError, match="as a mapping"):
        sm.episodes([episode(4)], observation="goal")


@pytest.mark.filterwarnings("ignore")  # it would rather have an environment
def test_a_minari_dataset_is_read(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    gymnasium = pytest.importorskip("gymnasium")
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    rng = np.random.default_rng(0)
    space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    recorded = []
    for length in (3, 5):
        ended = [False] * (length - 1) + [True]
        states, actions = rng.normal(size=(length + 1, 2)), rng.normal(size=(length, 2))
        recorded.append(
            EpisodeBuffer(
                observations=list(states), actions=list(actions), rewards=[0.0] * length, terminations=ended,
                truncations=[False] * length,
            )
        )  # fmt: skip
    dataset = minari.create_dataset_from_buffers(
        "wells/small-v0", recorded, observation_space=space, action_space=space, algorithm_name="none", author="a",
        author_email="a@example.org", code_permalink="https://example.org", description="two episodes",
        data_format="arrow",
    )  # fmt: skip
    found = sm.episodes(dataset)
    for index, one in enumerate(recorded):
        np.testing.assert_array_equal(found.trajectories[index], one.observations)
        np.testing.assert_array_equal(found.inputs[index], one.actions)
