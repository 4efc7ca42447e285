"""Records that others made, read from installed packages, and the linear baseline beside which forecasts are scored."""

from __future__ import annotations

import csv
import gzip
import importlib.util
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sosmarkov.learning.fit import fit
from sosmarkov.process.process import MarkovProcess

_MINUTES = 5
_BEGIN = datetime(2010, 3, 24)


def _inside(package: str, *parts: str) -> Path:
    """A file of an installed package, which is not imported for it."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ImportError(f"Expected the package {package}, which holds the record, got none: pip install {package}.")
    return Path(found.submodule_search_locations[0]).joinpath(*parts)


def sunspots() -> tuple[np.ndarray, np.ndarray]:
    """Years 1700 to 2008 and the mean number of sunspots in each, shape (309,) both; public domain, by statsmodels."""
    with _inside("statsmodels", "datasets", "sunspots", "sunspots.csv").open(newline="") as file:
        rows = [(int(row["YEAR"]), float(row["SUNACTIVITY"])) for row in csv.DictReader(file)]
    years, numbers = zip(*rows, strict=True)
    return np.array(years), np.array(numbers)


def glucose(seed: int = 0) -> np.ndarray:
    """One person's blood glucose in mg/dl every five minutes from 2010-03-24 on, NaN where there is none, shape (T,).

    A record in the public domain, as `bokeh_sampledata` holds it. Each reading belongs to the nearest multiple of
    five minutes. It is a whole number; a density of rounded values has no bound, so each gets the fraction it lost
    back at random.
    """
    at: dict[int, float] = {}
    with gzip.open(_inside("bokeh_sampledata", "_data", "CGM.csv.gz"), "rt", newline="") as file:
        for row in csv.DictReader(file):
            since = datetime.fromisoformat(row["datetime"]) - _BEGIN
            at[round(since.total_seconds() / (60 * _MINUTES))] = float(row["glucose"])
    found = np.full(max(at) + 1, np.nan)
    found[list(at)] = list(at.values())
    return found + np.random.default_rng(seed).uniform(-0.5, 0.5, len(found))


def in_blocks(series: np.ndarray, lag: int) -> np.ndarray:
    """States (x_(t - lag), x_t) of a series, NaN where there is none, shape (T, 2).

    Where two values say what comes next and one does not, these are the states of a Markov process; with a step of
    2 lag a state shares no value with the one before, so that its density is a density.
    """
    before = np.full(len(series), np.nan)
    before[lag:] = series[:-lag]
    return np.stack([before, series], axis=1)


def later_states(states: np.ndarray, t: np.ndarray, step: int, ahead: int) -> np.ndarray:
    """The states 1, ..., ahead steps after times t, shape (N, ahead, d); NaN beyond the end."""
    longer = np.concatenate([states, np.full((ahead * step, states.shape[1]), np.nan)])
    return longer[t[:, None] + step * np.arange(1, ahead + 1)]


class LinearStep(NamedTuple):
    """p(x' | x) = N(A x + b, Q), by least squares: Gaussian however far ahead."""

    slope: np.ndarray
    offset: np.ndarray
    noise: np.ndarray

    @classmethod
    def fit(cls, x: np.ndarray, x_next: np.ndarray) -> LinearStep:
        """From pairs (N, d)."""
        design = np.column_stack([x, np.ones(len(x))])
        found = np.linalg.lstsq(design, x_next, rcond=None)[0]
        return cls(found[:-1].T, found[-1], np.atleast_2d(np.cov((x_next - design @ found).T, bias=True)))

    def ahead(self, x: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Means (N, steps, d) and covariances (steps, d, d) after known states (N, d)."""
        means, covariances = [], []
        mean, covariance = x, np.zeros_like(self.noise)
        for _ in range(steps):
            mean, covariance = mean @ self.slope.T + self.offset, self.slope @ covariance @ self.slope.T + self.noise
            means.append(mean)
            covariances.append(covariance)
        return np.stack(means, axis=1), np.array(covariances)

    def log_prob(self, x: np.ndarray, later: np.ndarray) -> np.ndarray:
        """log p(later_k | x), shape (N, K); NaN where there is no later state."""
        means, covariances = self.ahead(x, later.shape[1])
        return np.stack([normal_log_prob(later[:, k], means[:, k], c) for k, c in enumerate(covariances)], axis=1)


def normal_log_prob(x: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """log N(x; mean, covariance), shape (N,)."""
    z = np.linalg.solve(np.linalg.cholesky(covariance), (x - mean).T)
    _, log_det = np.linalg.slogdet(2.0 * np.pi * covariance)
    return -0.5 * (np.sum(z**2, axis=0) + log_det)


@eqx.filter_jit
def _forecast(process: MarkovProcess, x: Array, later: Array) -> Array:
    def one(at: tuple[Array, Array]) -> Array:
        beliefs = process.propagate(later.shape[1], initial=at[0])
        return jax.lax.map(lambda k: beliefs.at(k + 1).log_prob(at[1][k]), jnp.arange(later.shape[1]))

    return jax.lax.map(one, (x, later), batch_size=64)


def learn_step(x: np.ndarray, x_next: np.ndarray, size: int, steps: int) -> MarkovProcess:
    """A process of states (before, now) from pairs (N, 2), by the step itself: forecasts start from a known state."""
    found = fit(
        transitions=(x, x_next), initial=x, basis="gaussian-full", size=size, steps=steps, objective="transitions",
        surrogate=False, columns=("before", "now"), progress=False,
    )  # fmt: skip
    assert isinstance(found, MarkovProcess)
    return found


def scores_beside(
    process: MarkovProcess, pairs: tuple[np.ndarray, np.ndarray], now: np.ndarray, later: np.ndarray
) -> dict[str, np.ndarray]:
    """Scores (N, K) of the process, of a linear step, and of one Gaussian, all learned from the same pairs."""
    x, _ = pairs
    return {
        "process": forecast_scores(process, now, later),
        "linear step": LinearStep.fit(*pairs).log_prob(now, later),
        "one Gaussian": np.stack([normal_log_prob(part, x.mean(0), np.cov(x.T, bias=True)) for part in later]),
    }


def forecast_scores(process: MarkovProcess, x: np.ndarray, later: np.ndarray) -> np.ndarray:
    """log p(later_k | x) with exact beliefs for x (N, d), later (N, K, d): shape (N, K), NaN where later is."""
    there = np.all(np.isfinite(later), axis=-1)
    asked = np.where(there[..., None], later, x[:, None])
    return np.where(there, np.asarray(_forecast(process, jnp.asarray(x), jnp.asarray(asked))), np.nan)
