"""What figures take: a process, its beliefs, or what a filter found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sosmarkov.contracts.belief import Belief
from sosmarkov.core.checks import ArrayLike
from sosmarkov.forecasting.calibration import stacked
from sosmarkov.process.model import Model

_STEPS = 10


def beliefs_from(
    source: Any, steps: int | None, inputs: ArrayLike | None, data: ArrayLike | None = None
) -> tuple[Sequence[Belief], np.ndarray | None]:
    """One belief a step, and the trajectories to hold against them, where there are any, as an array (N, T, d).

    Args:
        source: A process or an ensemble to propagate, a result with `beliefs`, or a sequence of beliefs.
        steps: How far to propagate; where None, as far as the inputs or the data go, or what was trained, or 10.
        inputs: Of each step, for a process that takes them.
        data: Trajectories (N, T, d) or a list of (T_i, d).
    """
    if isinstance(source, Model):
        states = None if data is None else stacked(data, source.dim)
        if steps is None:
            trained = getattr(source.history, "chosen", {}).get("horizon", 0)
            steps = int(trained) or _STEPS if states is None else int(states.shape[1]) - 1
            steps = steps if inputs is None else len(inputs)
        return source.propagate(steps, inputs=inputs), states
    found = getattr(source, "beliefs", source)
    if not isinstance(found, Sequence) or not len(found) or not all(isinstance(found[k], Belief) for k in (0, -1)):
        raise ValueError(f"Expected a process, beliefs, or what a filter found, got {type(source).__name__}.")
    if inputs is not None:
        raise ValueError("Expected inputs with a process only, got some with beliefs, which are under theirs already.")
    return found, None if data is None else stacked(data, found[0].dim)
