"""p(x0) from initial states: a known state, a Gaussian, or a mixture of a few by expectation-maximisation."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.known import KnownState
from sosmarkov.gaussian import mixture as mixtures
from sosmarkov.gaussian.beliefs import of
from sosmarkov.gaussian.mixture import Mixture

_MOST_MEMBERS = 4
_ROUNDS, _STARTS = 200, 4
# A direction in which states spread less, beside the widest, has no spread.
_FLAT = 1e-12


def initial_belief(
    x: Float[ndarray, "n d"],
    weight: Float[ndarray, " n"],
    noise: Float[ndarray, "d d"],
    *,
    components: int | None = 1,
    seed: int = 0,
) -> Belief:
    """A belief about where trajectories start.

    One Gaussian has the weighted mean and the unbiased covariance of the states. Where these leave a direction without
    spread, covariance counts the noise of one step as one state more; a single place is a known state.

    Args:
        x: Initial states.
        weight: Of each.
        noise: The covariance of one step.
        components: Gaussians in the mixture; None: up to four, by the Bayesian information criterion.
        seed: For the starts of the mixture.
    """
    x, weight = x[weight > 0], weight[weight > 0]
    if not np.any(np.ptp(x, axis=0)):
        return KnownState(x[0])
    one = _single(x, weight, noise)
    d = x.shape[1]
    each = 1 + d + d * (d + 1) // 2
    # A member takes states enough for a covariance of its own, twice over.
    most = max(1, min(components or _MOST_MEMBERS, len(x) // (2 * (d + 1))))
    if components is not None and most < components:
        raise ValueError(
            f"Expected at least {2 * (d + 1) * components} initial states for {components} members, got {len(x)}."
        )
    found = {1: one}
    for count in range(2 if components is None else most, most + 1):
        if count > 1:
            found[count] = _mixed(x, weight, one, count, seed)
    scale = len(x) / np.sum(weight)

    def criterion(count: int) -> float:
        logs = mixtures.log_density(found[count], x)
        return -2.0 * scale * float(weight @ logs) + (count * each - 1) * np.log(len(x))

    return of(found[min(found, key=criterion) if components is None else most])


def _single(x: ndarray, weight: ndarray, noise: ndarray) -> Mixture:
    total = np.sum(weight)
    mean = weight @ x / total
    away = x - mean
    scatter = (weight * away.T) @ away
    P = scatter / (total - np.sum(weight**2) / total)
    size = np.sqrt(np.diag(P))
    flat = np.any(size == 0) or len(x) <= x.shape[1]
    if flat or np.linalg.eigvalsh(P / np.outer(size, size))[0] < _FLAT:
        share = total / len(x)
        P = (scatter + share * noise) / (total + share)
    return Mixture(np.ones(1), mean[None], mixtures.symmetric(P)[None])


def _mixed(x: ndarray, weight: ndarray, one: Mixture, count: int, seed: int) -> Mixture:
    """The likeliest of several ascents; each covariance counts the whole one, shared out, as d + 1 states."""
    rng = np.random.default_rng(seed)
    broad = one.covariances[0] * count ** (-2.0 / x.shape[1])
    prior, unit = x.shape[1] + 1.0, len(x) / np.sum(weight)
    best, highest = one, -np.inf
    for _ in range(_STARTS):
        centres = x[rng.choice(len(x), count, replace=False, p=weight / np.sum(weight))]
        found, last = Mixture(np.full(count, 1.0 / count), centres, np.repeat(broad[None], count, 0)), -np.inf
        for _ in range(_ROUNDS):
            with np.errstate(divide="ignore"):
                logs = mixtures.log_densities(found, x) + np.log(found.weights)
            top = np.logaddexp.reduce(logs, axis=1)
            value = float(weight @ top)
            share = np.exp(logs - top[:, None]) * (unit * weight)[:, None]
            if value - last <= 1e-9 * abs(value):
                break
            last, counts = value, np.sum(share, axis=0)
            means = (share.T @ x + found.means) / (counts + 1.0)[:, None]
            away = x[None] - means[:, None]
            scatter = np.einsum("nk,kni,knj->kij", share, away, away)
            spread = (scatter + prior * broad) / (counts + prior)[:, None, None]
            found = Mixture(counts / np.sum(counts), means, mixtures.symmetric(spread))
        if last > highest:
            best, highest = found, last
    return best
