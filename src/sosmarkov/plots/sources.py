"""What figures take: a process, its beliefs, or what a filter found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sosmarkov.contracts.belief import Belief
from sosmarkov.core.checks import ArrayLike
from sosmarkov.process.model import Model

_STEPS = 10


def beliefs_from(source: Any, steps: int | None, inputs: ArrayLike | None) -> Sequence[Belief]:
    """One belief a step.

    Args:
        source: A process or an ensemble to propagate, a result with `beliefs`, or a sequence of beliefs.
        steps: How far to propagate; as far as the inputs go, or what was trained, or 10, where None.
        inputs: Of each step, for a process that takes them.
    """
    if isinstance(source, Model):
        if steps is None:
            trained = getattr(source.history, "chosen", {}).get("horizon", 0)
            steps = len(inputs) if inputs is not None else int(trained) or _STEPS
        return source.propagate(steps, inputs=inputs)
    found = getattr(source, "beliefs", source)
    if not isinstance(found, Sequence) or not len(found) or not all(isinstance(found[k], Belief) for k in (0, -1)):
        raise ValueError(f"Expected a process, beliefs, or what a filter found, got {type(source).__name__}.")
    if inputs is not None:
        raise ValueError("Expected inputs with a process only, got some with beliefs, which are under theirs already.")
    return found


def dim_of(source: Any) -> int:
    """How many coordinates the beliefs of a source have."""
    found = getattr(source, "beliefs", source)
    return found.dim if isinstance(found, Model) else beliefs_from(source, None, None)[0].dim
