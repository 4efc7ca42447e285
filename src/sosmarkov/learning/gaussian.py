"""How the gaussian form learns: least squares, in one go."""

from __future__ import annotations

import time

import numpy as np

from sosmarkov.core import checks
from sosmarkov.data.dataset import Dataset
from sosmarkov.data.history import History, PhaseHistory
from sosmarkov.gaussian.learn import Learned, linear_step, phase_steps
from sosmarkov.gaussian.starts import initial_belief
from sosmarkov.process.process import MarkovProcess


def learn_gaussian(
    data: Dataset, *, period: int | None = None, ridge: float | None = None, components: int | None = 1, seed: int = 0
) -> MarkovProcess:
    """One linear step with Gaussian noise for all pairs, and a belief about where trajectories start.

    Args:
        data: Pairs with their weights and inputs, and initial states.
        period: Steps after which the dynamics repeat: inputs are times then, and every phase has a step of its own.
        ridge: With a period, how many rows the pooled step counts for in every phase; None: by pairs left out.
        components: Gaussians in the initial belief; None: one to four, whichever the initial states bear.
        seed: For the starts of its mixture.
    """
    begun, (x, x_next, weight, _, u, _) = time.perf_counter(), data.pairs
    columns = checks.columns(data.columns, data.dim)
    if period is None:
        if ridge is not None:
            raise ValueError(f"Expected a ridge with a period alone, got {ridge} without one.")
        found = linear_step(x, x_next, weight, u, columns)
    else:
        if u is None or u.shape[1] != 1 or np.any(u != np.round(u)):
            raise ValueError("Expected the time of each step, one whole number, as inputs with a period, got others.")
        phase = u[:, 0].astype(int) % checks.count(period, "period", 1)
        found = phase_steps(x, x_next, phase, period, weight, ridge=ridge, columns=columns)
    noise = found.transition.Q if period is None else np.mean(found.transition.Q, axis=0)
    initial = initial_belief(data.starts.x, data.starts.weight, noise, components=components, seed=seed)
    history = _history(found, time.perf_counter() - begun)
    return MarkovProcess(found.transition, initial, history=history, columns=columns)


def _history(found: Learned, seconds: float) -> History:
    """Pairs left out one by one are what is held out."""
    loss = np.array([[-found.log_score]])
    whole = np.zeros(1, dtype=int)
    # A phase of one measurement, of a training that takes no steps.
    phase = PhaseHistory(
        "least squares", whole, np.full((1, 1), np.nan), loss, whole, seconds, "steps", ("cpu (NumPy)",)
    )
    chosen = {"form": "gaussian"} | ({} if found.ridge is None else {"ridge": found.ridge})
    return History((phase,), chosen, {"transitions": found.log_score})
