"""Bayesian filtering, exactly: p(x_k | o_0, ..., o_k) and the evidence, one linear map per reading."""

from __future__ import annotations

from typing import Any

import equinox as eqx
from jax import Array
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.reader import Reader, require_possible
from sosmarkov.inference.beliefs import Beliefs, BeliefSequence, Posteriors
from sosmarkov.inference.recursion import forward


class FilterResult(eqx.Module):
    """What filtering found.

    Attributes:
        predicted: p(x_k | o_0, ..., o_(k-1)) for k = 0, ..., T - 1.
        beliefs: p(x_k | o_0, ..., o_k).
        log_evidences: Log p(o_k | o_0, ..., o_(k-1)), shape (T,); zero where a reading is missing.
    """

    predicted: BeliefSequence
    beliefs: BeliefSequence
    log_evidences: Float[Any, "... t"]

    @property
    def log_evidence(self) -> Float[Any, ...]:
        """log p(o_0, ..., o_(T-1)), of each sequence where many were filtered by `jax.vmap`."""
        return self.log_evidences.sum(axis=-1)


def filter_observations(
    reader: Reader, initial: Belief, observations: Array, inputs: Array | None = None
) -> FilterResult:
    """All readings of a sequence; row k belongs to x_k, input k to the step after it."""
    start = reader.begin(initial, observations[0])
    coefficients, filtered, log_evidences = forward(reader, initial, observations, inputs)
    require_possible(log_evidences)
    predicted = Beliefs(initial, reader.transition, coefficients)
    base = predicted if filtered is None else Beliefs(start, reader.transition, filtered)
    return FilterResult(predicted, Posteriors(base, reader, observations, inputs=inputs), log_evidences)
