"""Gymnasium's pendulum under torques never seen together: beliefs p_k(x_k | u_0, ..., u_(k-1)) beside references.

The score is the log-density of the simulator's state in nats, mean over unseen torque sequences, k = 0, ..., 8. The
simulator has no noise: what is uncertain is the start. References learn from the same trajectories: one Gaussian for
each k whose mean is affine, or quadratic, in the torques so far; and a conditional normalising flow for one step
(`flowjax`), whose beliefs are particles, made a density by a kernel estimate or by one Gaussian. `--large` adds a
larger process, which wants a GPU; `--quick` takes small sizes and leaves the flow out.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jax import Array, lax

import sosmarkov as sm
from sosmarkov_bench.environment import write_results
from sosmarkov_bench.pendulum import STEPS, simulate

LARGE = {"size": 64, "rank": 10, "steps": 5000}
QUICK = {"basis": "gaussian", "size": 4, "steps": 50, "objective": "transitions"}
FLOW = "flow for one step, kernel estimate of particles", "flow for one step, one Gaussian of particles"


@eqx.filter_jit
def belief_scores(process: sm.MarkovProcess, x: Array, u: Array) -> Array:
    """Log p_k(x_k) under each trajectory's own torques, shape (N, STEPS + 1)."""

    def one(at: tuple[Array, Array]) -> Array:
        x, u = at
        beliefs = process.propagate(STEPS, inputs=u)
        later = lax.map(lambda k: beliefs.at(k).log_prob(x[k]), jnp.arange(1, STEPS + 1))
        return jnp.concatenate([beliefs[0].log_prob(x[0])[None], later])

    return lax.map(one, (x, u), batch_size=32)


def _powers(u: np.ndarray, degree: int) -> np.ndarray:
    """One, the torques so far, and their products up to the degree; u has shape (N, k)."""
    chosen = [c for d in range(degree + 1) for c in combinations_with_replacement(range(u.shape[1]), d)]
    return np.stack([np.prod(u[:, c], axis=1) if c else np.ones(len(u)) for c in chosen], axis=1)


def gaussian_scores(
    training: tuple[np.ndarray, np.ndarray], tests: tuple[np.ndarray, np.ndarray], degree: int
) -> np.ndarray:
    """One Gaussian for each k, its mean a polynomial in the torques so far, by least squares."""
    found = []
    for k in range(STEPS + 1):
        known, asked = (_powers(u[:, :k, 0], degree) for _, u in (training, tests))
        weights = np.linalg.lstsq(known, training[0][:, k], rcond=None)[0]
        rest = training[0][:, k] - known @ weights
        normal = scipy.stats.multivariate_normal(cov=rest.T @ rest / (len(rest) - known.shape[1]))
        found.append(normal.logpdf(tests[0][:, k] - asked @ weights))
    return np.stack(found, axis=1)


def flow_scores(
    training: tuple[np.ndarray, np.ndarray], tests: tuple[np.ndarray, np.ndarray], particles: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Scores of particles that a conditional flow p(x' | x, u) moves: by kernel estimate, and by one Gaussian.

    The flow learns what a linear step leaves, in its own standard deviations; particles start at the Gaussian of the
    training data's first states, which is what these are.
    """
    try:
        from flowjax.distributions import Normal
        from flowjax.flows import coupling_flow
        from flowjax.train import fit_to_data
    except ImportError as error:
        raise ImportError("Expected flowjax for the flow, got none: pip install flowjax, or use --quick.") from error

    x, u = training
    before, after = np.concatenate([x[:, :-1], u], axis=2).reshape(-1, 3), x[:, 1:].reshape(-1, 2)
    mean, spread = before.mean(axis=0), before.std(axis=0)
    given = (before - mean) / spread
    linear = np.linalg.lstsq(_powers(given, 1), after, rcond=None)[0]
    rest = after - _powers(given, 1) @ linear
    unit = rest.std(axis=0)
    build, train, draw = jax.random.split(jax.random.key(seed), 3)
    flow = coupling_flow(build, base_dist=Normal(jnp.zeros(2)), cond_dim=3, flow_layers=6)
    arrays = (jnp.asarray(rest / unit), jnp.asarray(given))
    flow, _ = fit_to_data(train, flow, arrays, learning_rate=1e-3, batch_size=256, max_epochs=100, max_patience=10,
                          show_progress=False)  # fmt: skip

    first_mean, first_root = x[:, 0].mean(axis=0), np.linalg.cholesky(np.cov(x[:, 0].T))

    @jax.jit
    def one(at: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        key, x, u = at
        key, start = jax.random.split(key)
        cloud = first_mean[None] + jax.random.normal(start, (particles, 2)) @ first_root.T

        def move(cloud: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
            key, u = at
            c = (jnp.concatenate([cloud, jnp.broadcast_to(u, (particles, 1))], axis=1) - mean[None]) / spread[None]
            fitted = linear[:1] + c @ linear[1:]
            moved = fitted + unit[None] * flow.sample(key, condition=c)
            return moved, moved

        _, later = lax.scan(move, cloud, (jax.random.split(key, STEPS), u))
        clouds = jnp.concatenate([cloud[None], later])
        return jax.vmap(kernel_estimate)(clouds, x), jax.vmap(one_gaussian)(clouds, x)

    rows = (jax.random.split(draw, len(tests[0])), jnp.asarray(tests[0]), jnp.asarray(tests[1]))
    kernel, gaussian = lax.map(one, rows, batch_size=8)
    return np.asarray(kernel), np.asarray(gaussian)


def one_gaussian(cloud: Array, x: Array) -> Array:
    """Log-density at x of the Gaussian with the mean and covariance of a cloud (N, d)."""
    return jnp.asarray(jax.scipy.stats.multivariate_normal.logpdf(x, cloud.mean(axis=0), jnp.cov(cloud.T)))


def kernel_estimate(cloud: Array, x: Array) -> Array:
    """Log-density at x of a cloud's kernel estimate: Gaussian, the cloud's covariance, Scott's width."""
    count, dim = cloud.shape
    covariance = count ** (-2.0 / (dim + 4)) * jnp.cov(cloud.T)
    log_kernel = partial(jax.scipy.stats.multivariate_normal.logpdf, mean=jnp.zeros(dim), cov=covariance)
    each = jax.vmap(log_kernel)(x[None] - cloud)
    return jax.nn.logsumexp(each) - jnp.log(count)


def _row(scores: np.ndarray, seconds: float) -> dict[str, Any]:
    error = scores.std(axis=0, ddof=1) / np.sqrt(len(scores))
    return {"mean": scores.mean(axis=0).tolist(), "standard_error": error.tolist(), "seconds": seconds}


def references(
    training: tuple[np.ndarray, np.ndarray], tests: tuple[np.ndarray, np.ndarray], options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """What processes are held against."""
    rows = {}
    for name, degree in (("affine", 1), ("quadratic", 2)):
        begin = time.perf_counter()
        found = gaussian_scores(training, tests, degree)
        rows[f"one Gaussian, mean {name} in the torques"] = _row(found, time.perf_counter() - begin)
    if not options.quick:
        begin = time.perf_counter()
        both = flow_scores(training, tests, options.particles, options.seed)
        rows |= {name: _row(found, time.perf_counter() - begin) for name, found in zip(FLOW, both, strict=True)}
    return rows


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Simulate, learn, score, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, no flow")
    parser.add_argument("--large", action="store_true", help="a larger process too, for a GPU")
    parser.add_argument("--particles", type=int, default=500, help="of the flow, for each torque sequence")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/controlled.json"))
    options = parser.parse_args(arguments)

    count, tests = (100, 20) if options.quick else (1000, 500)
    training, asked = simulate(count, options.seed), simulate(tests, options.seed + 1)
    rows = references(training, asked, options)
    # A flow whose particles run off has no score there, and is behind.
    best = np.nanmax([row["mean"] for row in rows.values()], axis=0)
    fits: dict[str, dict[str, Any]] = {"process, defaults": QUICK if options.quick else {}}
    if options.large:
        fits[f"process, size {LARGE['size']}"] = LARGE
    for name, settings in fits.items():
        process = sm.fit(training[0], inputs=training[1], members=1, seed=options.seed, **settings)
        scores = np.asarray(belief_scores(process, *map(jnp.asarray, asked)))
        chosen = {key: str(value) for key, value in process.history.chosen.items()}
        rows[name] = _row(scores, process.history.seconds) | {"parameters": process.parameter_count, "chosen": chosen}
    for name, row in rows.items():
        row["behind"] = (best - np.asarray(row["mean"])).tolist()
        print(f"{name:<50}" + " ".join(f"{value:7.3f}" for value in row["mean"]), flush=True)
    content = {"training": count, "tests": tests, "particles": options.particles, "rows": rows}
    write_results(options.out, content, options.seed)
    print(f"written: {options.out}")
    return content


if __name__ == "__main__":
    main()
