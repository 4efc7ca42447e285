"""A Van der Pol oscillator of which only the position is read: learned filters beside one that knows the truth.

The score is log p(x_k | o_0, ..., o_k) at the true state, mean over fresh trajectories. The reference is a particle
filter with the true dynamics and the true sensor; its density at the true state is sum_i w_i p(x_k | x_i)
l(o_k | x_k) / p(o_k | before), exact up to the particles. Explicit steps let a few trajectories run away, most of them
after k = 7: the gap is given up to there and over all steps, and beside it how many ran away and what share of the gap
is theirs. `--large` takes larger processes, which want a GPU; `--quick` takes small sizes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

import sosmarkov as sm
from sosmarkov_bench.environment import write_results
from sosmarkov_bench.systems import get_system

SYSTEM = get_system("vdp")
STD = 0.1
# Up to here hardly any trajectory has run away.
BOUNDED = 7
LARGE = {"size": 40, "steps": 4000}
LINEAR = {"coupling": "linear", "size": 300, "steps": 6000}


def simulate(count: int, steps: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """States (count, steps + 1, 2) and readings of the first coordinate (count, steps + 1, 1)."""
    key, noise = jax.random.split(jax.random.key(seed))
    x = np.asarray(SYSTEM.simulate(key, count, steps))
    return x, x[..., :1] + STD * np.asarray(jax.random.normal(noise, (*x.shape[:2], 1)))


def _log_reading(o: Array, x: Array) -> Array:
    return jax.scipy.stats.norm.logpdf(o[0], x[..., 0], STD)


@eqx.filter_jit
def particle_scores(key: Array, states: Array, readings: Array, count: int) -> tuple[Array, Array]:
    """Scores and log-evidences of every step of every trajectory, shape (n, t) each."""
    dynamics, initial = SYSTEM.dynamics, SYSTEM.initial

    def one(at: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        key, x, o = at
        begin, key = jax.random.split(key)
        particles = jax.vmap(initial.sample)(jax.random.split(begin, count))
        log_weights = _log_reading(o[0], particles)
        evidence = jax.nn.logsumexp(log_weights) - jnp.log(count)
        first = initial.log_prob(x[0]) + _log_reading(o[0], x[0]) - evidence

        def step(carry: tuple[Array, Array], at: tuple[Array, Array, Array]) -> Any:
            particles, log_weights = carry
            key, x, o = at
            choose, move = jax.random.split(key)
            weights = jax.nn.log_softmax(log_weights)
            ahead = jax.nn.logsumexp(weights + jax.vmap(lambda p: dynamics.log_prob(x, p))(particles))
            # Systematic resampling: evenly spaced places on the line of all weights.
            places = (jnp.arange(count) + jax.random.uniform(choose)) / count
            chosen = particles[jnp.searchsorted(jnp.cumsum(jnp.exp(weights)), places).clip(0, count - 1)]
            moved = jax.vmap(dynamics.sample)(jax.random.split(move, count), chosen)
            log_weights = _log_reading(o, moved)
            evidence = jax.nn.logsumexp(log_weights) - jnp.log(count)
            return (moved, log_weights), (ahead + _log_reading(o, x) - evidence, evidence)

        keys = jax.random.split(key, len(x) - 1)
        _, (later, evidences) = lax.scan(step, (particles, log_weights), (keys, x[1:], o[1:]))
        return jnp.append(first, later), jnp.append(evidence, evidences)

    return lax.map(one, (jax.random.split(key, len(states)), states, readings))


def filter_scores(process: sm.MarkovProcess, sensor: Any, states: np.ndarray, readings: np.ndarray) -> np.ndarray:
    """The same of a process."""

    def one(x: Array, o: Array) -> Array:
        beliefs = process.filter(o, sensor=sensor).beliefs
        first = beliefs.at(0).log_prob(x[0])
        later = lax.map(lambda k: beliefs.at(k).log_prob(x[k]), jnp.arange(1, len(x)))
        return jnp.append(first, later)

    run = eqx.filter_jit(lambda x, o: lax.map(lambda at: one(*at), (x, o)))
    return np.asarray(run(jnp.asarray(states), jnp.asarray(readings)))


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Simulate, learn, filter, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, a minute instead of many")
    parser.add_argument("--large", action="store_true", help="larger processes, for a GPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", nargs="*", help="some of: known sensor, learned sensor, joint form")
    parser.add_argument("--out", type=Path, default=Path("results/hidden.json"))
    options = parser.parse_args(arguments)
    count, tests, particles, steps = (200, 10, 2_000, 4) if options.quick else (1_000, 200, 100_000, 10)
    fits: dict[str, dict[str, Any]] = {
        "known sensor": {"sensor": sm.GaussianSensor([0], STD)},
        "learned sensor": {},
        "known sensor, linear": {"sensor": sm.GaussianSensor([0], STD)} | LINEAR,
        "learned sensor, linear": LINEAR,
        "joint form": {"sensor_size": 16},
    }
    if options.quick:
        fits = {"learned sensor": {"size": 5, "steps": 50, "objective": "transitions", "sensor_size": 4}}
    fits = {name: fits[name] | (LARGE if options.large else {}) for name in options.rows or fits}
    x, o = simulate(count, steps, options.seed)
    states, readings = simulate(tests, steps, options.seed + 1)
    begin = time.perf_counter()
    key = jax.random.key(options.seed)
    reference, _ = map(np.asarray, particle_scores(key, jnp.asarray(states), jnp.asarray(readings), particles))
    far = run_away(x, states)
    rows = {"particles": _row(reference, reference, far, time.perf_counter() - begin)}
    for name, settings in fits.items():
        process = sm.fit(x, observations=o, members=1, **settings, seed=options.seed)
        found = filter_scores(process, None, states, readings)
        named = ("sensor", "coupling", "size", "rank", "steps", "surrogate")
        chosen = {key: value for key, value in process.history.chosen.items() if key in named}
        rows[name] = _row(found, reference, far, process.history.seconds) | {
            "settings": chosen, "parameters": process.parameter_count,
        }  # fmt: skip
    for name, row in rows.items():
        print(f"{name:<15} mean score {row['mean']:.3f}, gap to k = {BOUNDED} {row['gap_bounded']:.3f} +-"
              f" {row['standard_error_bounded']:.3f}, to the end {row['gap']:.3f} +- {row['standard_error']:.3f},"
              f" median {row['median_gap']:.3f}, {row['run_away']} of {tests} trajectories ran away and have"
              f" {row['run_away_share_of_gap']:.0%} of the gap, {row['seconds']:.0f} s", flush=True)  # fmt: skip
    content = {"sensor_std": STD, "training": count, "tests": tests, "particles": particles, "rows": rows}
    write_results(options.out, content, options.seed)
    print(f"written: {options.out}")
    return content


def run_away(training: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Which trajectories leave the training data by far: a state over five deviations away, by the quartiles."""
    low, median, high = np.quantile(training, [0.25, 0.5, 0.75], axis=(0, 1))
    return (np.abs(states - median) > 5.0 * (high - low) / 1.349).any(axis=(1, 2))


def _row(scores: np.ndarray, reference: np.ndarray, far: np.ndarray, seconds: float) -> dict[str, Any]:
    gap = scores - reference
    bounded = gap[:, : BOUNDED + 1].mean(axis=1)
    total = float(gap.sum())
    return {
        "mean": float(scores.mean()),
        "by_step": scores.mean(axis=0).tolist(),
        "gap": float(gap.mean()),
        "gap_bounded": float(bounded.mean()),
        "standard_error_bounded": float(bounded.std() / np.sqrt(len(bounded))),
        "gap_by_step": gap.mean(axis=0).tolist(),
        "median_gap": float(np.median(gap.mean(axis=1))),
        "run_away": int(far.sum()),
        "run_away_share_of_gap": float(gap[far].sum()) / total if total else 0.0,
        "gap_of_the_others": float(gap[~far].mean()),
        "standard_error": float(gap.mean(axis=1).std() / np.sqrt(len(gap))),
        "seconds": seconds,
    }


if __name__ == "__main__":
    main()
