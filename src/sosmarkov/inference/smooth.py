"""Smoothing, exactly: p(x_k | all readings), by the adjoint of the filter's recursion.

What comes after step k is worth B_k(x) / g(x) to a state x, with B_k = phi^T (.) phi; the next message is
B_k(x) = int f(x, x') l(o_(k+1) | x') B_(k+1)(x') dx'. A smoothed belief h_k l_k B_k is a product of two forms again.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.reader import Reader
from sosmarkov.core import checks
from sosmarkov.inference.beliefs import BeliefSequence, Posteriors
from sosmarkov.inference.filter import FilterResult, filter_observations
from sosmarkov.inference.recursion import backward


class SmoothResult(eqx.Module):
    """What smoothing found.

    Attributes:
        filtered: The filter's own result.
        beliefs: p(x_k | o_0, ..., o_(T-1)) for k = 0, ..., T - 1.
    """

    filtered: FilterResult
    beliefs: BeliefSequence

    @property
    def log_evidence(self) -> Float[Any, ...]:
        """log p(o_0, ..., o_(T-1))."""
        return self.filtered.log_evidence

    def sample(self, key: PRNGKeyArray | Any, count: int = 1) -> Float[Any, "n t d"]:
        """Whole trajectories given all readings: independent exact draws, shape (count, T, d).

        x_0 from its smoothed belief, then x_(k+1) from the density proportional to f(x_k, .) l(o_(k+1) | .) B_(k+1).
        """
        return self.beliefs.sample(key, checks.count(count, "count", 1))  # type: ignore[attr-defined]


def smooth_observations(
    reader: Reader, initial: Belief, observations: Array, inputs: Array | None = None
) -> SmoothResult:
    """All readings of a sequence, seen from its end."""
    filtered = filter_observations(reader, initial, observations, inputs)
    behind = backward(reader, observations, filtered.log_evidences, inputs)
    base = filtered.beliefs.base  # type: ignore[attr-defined]
    return SmoothResult(filtered, Posteriors(base, reader, observations, behind, inputs))
