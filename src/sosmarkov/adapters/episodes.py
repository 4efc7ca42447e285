"""Recorded episodes of control tasks as trajectories and inputs for `fit`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sosmarkov.data.given import as_columns


class Episodes(NamedTuple):
    """What `fit(trajectories, inputs=inputs)` takes.

    Attributes:
        trajectories: Of each episode the observations, shape (T_i + 1, d).
        inputs: Of each episode the actions, shape (T_i, e).
    """

    trajectories: list[np.ndarray]
    inputs: list[np.ndarray]


def episodes(source: Any, *, observation: Sequence[str] | str | None = None) -> Episodes:
    """Trajectories and inputs from recorded episodes, such as those of a Minari dataset.

    An episode has `observations` (T + 1, d) and `actions` (T, e), as attributes or as entries of a mapping: the action
    of row k leads from observation k to observation k + 1. A discrete action is one number, e = 1; where its values
    have no order, replace them by vectors first.

    Args:
        source: A dataset with `iterate_episodes()`, or an iterable of episodes.
        observation: Where an observation is a mapping of arrays: the entries to take, side by side.
    """
    found = source.iterate_episodes() if hasattr(source, "iterate_episodes") else source
    if isinstance(found, (str, bytes, np.ndarray, Mapping)) or not isinstance(found, Iterable):
        raise ValueError(f"Expected a dataset or an iterable of episodes, got {type(source).__name__}.")
    names = [observation] if isinstance(observation, str) else observation
    both = [_read(episode, index, names) for index, episode in enumerate(found)]
    if not both:
        raise ValueError("Expected at least one episode, got none.")
    for name, side in (("observations", 0), ("actions", 1)):
        widths = {parts[side].shape[1] for parts in both}
        if len(widths) > 1:
            raise ValueError(f"Expected {name} with as many numbers in every episode, got {sorted(widths)}.")
    return Episodes([states for states, _ in both], [actions for _, actions in both])


def _read(episode: Any, index: int, names: Sequence[str] | None) -> tuple[np.ndarray, np.ndarray]:
    parts = []
    for name in ("observations", "actions"):
        part = episode.get(name) if isinstance(episode, Mapping) else getattr(episode, name, None)
        if part is None:
            raise ValueError(f"Expected {name} in episode {index}, got {type(episode).__name__} without.")
        parts.append(part)
    observed, actions = _chosen(parts[0], index, names), as_columns(parts[1], f"actions of episode {index}")
    if len(observed) != len(actions) + 1:
        raise ValueError(
            f"Expected one observation more than actions in episode {index}, got {len(observed)} and {len(actions)}."
        )
    return observed, actions


def _chosen(observed: Any, index: int, names: Sequence[str] | None) -> np.ndarray:
    what = f"observations of episode {index}"
    if not isinstance(observed, Mapping):
        if names is not None:
            raise ValueError(f"Expected {what} as a mapping with {list(names)}, got {type(observed).__name__}.")
        return as_columns(observed, what)
    if names is None or any(name not in observed for name in names):
        raise ValueError(f"Expected observation= with names among {sorted(observed)} for {what}, got {names}.")
    return np.concatenate([as_columns(observed[name], f"{name} in {what}") for name in names], axis=1)
