"""A learned process as a transition model of Stone Soup, for its particle trackers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import jax
import numpy as np

from sosmarkov.core import checks
from sosmarkov.inference.means import mean_after
from sosmarkov.process.process import MarkovProcess


def transition_model(process: MarkovProcess, step: timedelta, *, seed: int = 0) -> Any:
    """A `stonesoup.models.transition.TransitionModel` that moves states by the process.

    `function(state, noise=True)` draws from p(x' | x) exactly, for one state vector or for many particles, with
    `noise=False` it is E[x' | x]; `logpdf` is log p(x' | x). Give it to a `ParticlePredictor`.

    Args:
        process: One without inputs, whose coordinates are those of the tracker's states.
        step: The time of one step of the process. Predictions are over whole numbers of steps.
        seed: For the draws; the same seed and calls give the same ones.
    """
    try:
        from stonesoup.models.transition import TransitionModel
        from stonesoup.types.array import StateVector, StateVectors
        from stonesoup.types.numeric import Probability
    except ImportError as error:
        raise ImportError("Trackers need Stone Soup: pip install 'sosmarkov[tracking]'.") from error
    if process.features is not None:
        raise ValueError("Expected a process without inputs or a period, got another. Give `process.under(u)`.")
    if step <= timedelta(0):
        raise ValueError(f"Expected a positive time for a step, got {step}.")

    class LearnedTransition(TransitionModel):
        """Moves states by a learned process."""

        @property
        def ndim_state(self) -> int:
            """Number of coordinates."""
            return process.dim

        def function(self, state: Any, noise: Any = False, **kwargs: Any) -> Any:
            """Draws of p(x' | x), or its mean."""
            if not isinstance(noise, (bool, np.bool_)):
                raise ValueError("Expected noise as True or False: p(x' | x) is no function plus noise.")
            found = self._moved(_rows(state), steps_in(kwargs.get("time_interval"), step), bool(noise))
            kind = StateVectors if np.shape(state.state_vector)[1] > 1 else StateVector
            return kind(found.T)

        def _moved(self, x: np.ndarray, steps: int, noise: bool) -> np.ndarray:
            if noise:
                for _ in range(steps):
                    x = np.asarray(process.transition.sample(draws.key(), x))
                return x
            if steps == 1:
                return np.asarray(mean_after(transition, x))
            return np.stack([np.asarray(process.belief_at(steps, initial=row).mean()) for row in x])

        def rvs(self, num_samples: int = 1, **kwargs: Any) -> Any:
            """Refused: there is no noise apart from the state."""
            raise ValueError(
                "Expected function(state, noise=True) to draw: p(x' | x) is no function plus noise. Got rvs."
            )

        def logpdf(self, state1: Any, state2: Any, **kwargs: Any) -> Any:
            """log p(state1 | state2), for one pair or for many."""
            if steps_in(kwargs.get("time_interval"), step) != 1:
                raise ValueError("Expected one step between two states for a density, got another time.")
            found = np.asarray(transition.log_prob(_rows(state1), _rows(state2)))
            return float(found[0]) if len(found) == 1 else found

        def pdf(self, state1: Any, state2: Any, **kwargs: Any) -> Any:
            """p(state1 | state2)."""
            found = np.atleast_1d(self.logpdf(state1, state2, **kwargs))
            each = np.array([Probability(value, log_value=True) for value in found])
            return each[0] if len(each) == 1 else each

    transition: Any = process.transition.at(None)
    draws = _Draws(seed)
    return LearnedTransition()


class _Draws:
    """Fresh keys, one after the other: trackers have no place for them."""

    def __init__(self, seed: int):
        self._key = jax.random.key(checks.count(seed, "seed"))
        self._count = 0

    def key(self) -> jax.Array:
        self._count += 1
        return jax.random.fold_in(self._key, self._count)


def _rows(state: Any) -> np.ndarray:
    """State vectors (d, n) as rows (n, d)."""
    return np.asarray(state.state_vector, dtype=float).T


def steps_in(interval: timedelta | None, step: timedelta) -> int:
    """How many steps a time holds: a whole number, at least one."""
    if interval is None:
        return 1
    count = interval / step
    if count < 0.5 or abs(count - round(count)) > 1e-6:
        raise ValueError(f"Expected a time of one or more whole steps of {step}, got {interval}.")
    return round(count)
