"""What several processes answer together, from what each of them answers and their weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.check import CheckReport
from sosmarkov.contracts.mixture import EnsembleBelief, draw_parts, weighed
from sosmarkov.contracts.reader import Updated
from sosmarkov.inference.beliefs import BeliefSequence, MixedBeliefs
from sosmarkov.inference.filter import FilterResult
from sosmarkov.inference.smooth import SmoothResult
from sosmarkov.inference.trajectories import ChapmanKolmogorov


def mean(found: Sequence[Any], weights: Any) -> Any:
    """Of numbers."""
    return jnp.tensordot(weights, jnp.stack(found), axes=1)


def log_mean(found: Sequence[Any], weights: Any) -> Any:
    """The logarithm of the mean of likelihoods, from their logarithms."""
    del weights  # nothing was read before: all are alike
    return jax.nn.logsumexp(jnp.stack(found), axis=0) - jnp.log(len(found))


def path(found: Sequence[BeliefSequence], weights: Any) -> MixedBeliefs:
    """Beliefs at all steps under weights that stay."""
    return MixedBeliefs(tuple(found), jnp.tile(weights, (len(found[0]), 1)))


def draws(found: Sequence[Callable[[Any, int], Any]], weights: Any) -> Callable[[Any, int], Any]:
    """From a key and a number to draws, each one member's own."""
    return lambda key, count: draw_parts(key, weights, count, found)


def predictions(found: Sequence[ChapmanKolmogorov], weights: Any) -> ChapmanKolmogorov:
    """The mean of what is predicted, beside what was observed."""
    del weights
    return found[0]._replace(predicted=np.mean([one.predicted for one in found], axis=0))


def filtered(found: Sequence[FilterResult], weights: Any) -> FilterResult:
    """The mixture of filters: p(m | o_0, ..., o_k) is proportional to p(m) p(o_0, ..., o_k | m)."""
    log_evidences = jnp.stack([one.log_evidences for one in found], axis=-1)
    after = jnp.log(weights)[None] + jnp.cumsum(log_evidences, axis=-2)
    before = after - log_evidences
    mixed = jax.nn.logsumexp(after, axis=-1) - jax.nn.logsumexp(before, axis=-1)
    predicted, beliefs = zip(*((one.predicted, one.beliefs) for one in found), strict=True)
    return FilterResult(
        MixedBeliefs(predicted, jax.nn.softmax(before, axis=-1)),
        MixedBeliefs(beliefs, jax.nn.softmax(after, axis=-1)),
        mixed,
    )


def smoothed(found: Sequence[SmoothResult], weights: Any) -> SmoothResult:
    """The mixture of smoothers: members are weighed by the evidence of all readings."""
    behind = filtered([one.filtered for one in found], weights)
    last = cast(MixedBeliefs, behind.beliefs).weights[-1]
    return SmoothResult(behind, path([one.beliefs for one in found], last))


def updated(found: Sequence[Updated], weights: Any) -> Updated:
    """The mixture of updates, weighed by their evidence."""
    beliefs, log_evidences = zip(*found, strict=True)
    total, weights = weighed(weights, log_evidences)
    return Updated(EnsembleBelief(beliefs, weights), total)


def modes(found: Sequence[np.ndarray], weights: Any) -> np.ndarray:
    """All eigenvalues, the largest first: those of the mixture."""
    del weights
    values = np.concatenate(found)
    return values[np.argsort(-np.abs(values), kind="stable")]


def slowest(found: Sequence[int], weights: Any) -> int:
    """The number of steps after which all are there."""
    del weights
    return max(found)


def correlation(found: Sequence[Any], long_run: Sequence[Belief], coordinate: int) -> Any:
    """That of the mixture in the long run: what members differ in stays, however far apart the times are."""
    means = jnp.stack([belief.mean()[coordinate] for belief in long_run])
    variances = jnp.stack([belief.covariance()[coordinate, coordinate] for belief in long_run])
    between = jnp.mean((means - jnp.mean(means)) ** 2)
    return (jnp.mean(variances[:, None] * jnp.stack(found), axis=0) + between) / (jnp.mean(variances) + between)


def worst(found: Sequence[CheckReport], weights: Any) -> CheckReport:
    """The worst of the reports, figure by figure."""
    del weights
    kinds = {"smallest_log_density": min, "converged": all}
    columns = zip(CheckReport._fields, zip(*found, strict=True), strict=True)
    return CheckReport(**{name: kinds.get(name, max)(values) for name, values in columns})
