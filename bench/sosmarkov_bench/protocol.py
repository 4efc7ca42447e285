"""What every method of a comparison is given and scored on: training data, test states, log-likelihoods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np

from sosmarkov.data.dataset import robust_standardize
from sosmarkov_bench.systems.base import System

# How far ahead beliefs are scored, whatever longer horizon a system has.
HORIZON = 13
# So many of the test states are scored beside the limit, which costs more a state than a method does.
LIMIT_TEST = 2_000
# Beyond this a state of the Van der Pol system has left for good (forward Euler blows up outside the limit cycle).
BLOWN_UP = 10.0
# No baseline is asked to learn from states further out than this many robust deviations.
_EXTREME = 8.0


def steps_of(system: System) -> int:
    """How many transitions are scored."""
    return min(system.horizon, HORIZON)


def simulate_training(system: System, seed: int, share: float = 1.0) -> dict[str, Any]:
    """What the protocol grants, as arguments of `fit`: trajectories, or wide pairs with initial states.

    Args:
        system: To simulate.
        seed: Of the simulation.
        share: How much of it: 0.1 is a tenth of the trajectories, or of the pairs and initial states.
    """
    key = jax.random.key(seed)
    if system.wide is None:
        count = round(share * system.train_trajectories)
        return {"trajectories": np.asarray(system.simulate(key, count, steps_of(system)))}
    first, second = jax.random.split(key)
    pairs = system.sample_wide(first, round(share * system.wide.pair_count))
    initial = system.sample_initial(second, round(share * system.wide.initial_count))
    return {"transitions": tuple(np.asarray(x) for x in pairs), "initial": np.asarray(initial)}


def simulate_test(system: System, seed: int, count: int) -> np.ndarray:
    """Fresh trajectories to score, shape (count, K + 1, d); of another seed than the training data of that seed."""
    return np.asarray(system.simulate(jax.random.key(seed + 1), count, steps_of(system)))


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The same data for every baseline, without states no method can learn from.

    Args:
        x: States with a successor, shape (N, d).
        x_next: Their successors, shape (N, d).
        initial: Initial states, shape (N0, d).
        steps: K, how far ahead to predict.
        trajectories: Shape (M, K + 1, d), states set aside as NaN; None where only pairs were granted.
        set_aside: How many pairs were set aside.
        system: For the variants that are told the true dynamics, and for them alone.
        granted: All of it as arguments of `fit`, nothing set aside.
    """

    x: np.ndarray
    x_next: np.ndarray
    initial: np.ndarray
    steps: int
    trajectories: np.ndarray | None = None
    set_aside: int = 0
    system: System | None = None
    granted: dict[str, Any] = field(default_factory=dict)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.x.shape[1]


def within_reach(states: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
    """Whether x (the states themselves where None) lie within eight robust deviations of states of shape (N, d)."""
    scale = robust_standardize(states[np.all(np.isfinite(states), axis=1)])
    x = states if x is None else x
    # A comparison with NaN is false: states that overflowed are out of reach too.
    return np.all(np.abs((x - np.asarray(scale.mean)) / np.asarray(scale.std)) <= _EXTREME, axis=-1)


def training_data(granted: dict[str, Any], steps: int, system: System | None = None) -> TrainingData:
    """What `simulate_training` gave, as baselines take it.

    A state further than eight robust deviations from the centre (a simulation that blew up) is set aside with the
    pairs it is part of: one of them would decide every scale, and every covariance. Nothing is taken from what is
    scored.
    """
    trajectories = granted.get("trajectories")
    if trajectories is None:
        x, x_next = granted["transitions"]
        initial = granted["initial"]
        states = np.concatenate([x, x_next, initial])
    else:
        x, x_next = (part.reshape(-1, part.shape[-1]) for part in (trajectories[:, :-1], trajectories[:, 1:]))
        initial = trajectories[:, 0]
        states = trajectories.reshape(-1, trajectories.shape[-1])
    usable = partial(within_reach, states)
    kept = usable(x) & usable(x_next)
    if trajectories is not None:
        trajectories = np.where(usable(trajectories)[..., None], trajectories, np.nan)
    started, lost = initial[usable(initial)], int((~kept).sum())
    return TrainingData(x[kept], x_next[kept], started, steps, trajectories, lost, system, granted)


def score(log_prob: Callable[[int, np.ndarray], np.ndarray], test: np.ndarray, last: int) -> dict[str, Any]:
    """Mean log-likelihoods at k = 0, ..., last, with and without blown-up states; nothing is floored or dropped.

    Args:
        log_prob: Of states of shape (N, d) at k.
        test: Trajectories, shape (N, K + 1, d).
        last: The last k there is a belief for.
    """
    values = [np.asarray(log_prob(k, test[:, k])) for k in range(last + 1)]
    inside = np.all(np.abs(test) <= BLOWN_UP, axis=2) if test.shape[2] == 2 else np.ones(test.shape[:2], bool)
    return {
        "log_likelihood": [float(v.mean()) for v in values],
        # On the states the limit is estimated with: a mean over others would differ from it by chance.
        "log_likelihood_scored": [float(v[:LIMIT_TEST].mean()) for v in values],
        "log_likelihood_inside": [float(v[inside[:, k]].mean()) for k, v in enumerate(values)],
        "blown_up": [int(n) for n in (~inside).sum(axis=0)],
        "finite": bool(all(np.isfinite(v).all() for v in values)),
    }
