"""A year of hourly temperatures, forecast up to a day ahead: processes with and without a period beside baselines.

The score is log p(x_(t + k) | x_t) in nats, mean over the held-out weeks, k = 1, ..., 24. Standard errors come from
whole weeks, since neighbouring hours are alike. Baselines learn from the same hours: one Gaussian and one kernel
density for every hour of the day, and a linear step with Gaussian noise for every hour, which is Gaussian however far
ahead. `--quick` takes small sizes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import sosmarkov as sm
from sosmarkov_bench.environment import write_results
from sosmarkov_bench.hourly import PERIOD, WEEK, Hourly, hourly_temperatures
from sosmarkov_bench.seasonal import SeasonalAR, block_mean, climatology

AHEAD = 24
REFERENCE = "linear step for every hour"


@eqx.filter_jit
def _forecast_scores(process: sm.MarkovProcess, hours: Array, x: Array, later: Array) -> Array:
    timed = process.transition.features is not None
    steps = jnp.arange(later.shape[1])

    def one(at: tuple[Array, Array, Array]) -> Array:
        hour, x, later = at
        times = hour + steps.astype(float) if timed else None
        beliefs = process.propagate(len(steps), initial=x[None], inputs=times)
        return jax.lax.map(lambda k: beliefs.at(k + 1).log_prob(later[k][None]), steps)

    return jax.lax.map(one, (hours, x, later), batch_size=64)


def forecast_scores(process: sm.MarkovProcess, t: np.ndarray, x: np.ndarray, later: np.ndarray) -> np.ndarray:
    """Log p(later_k | x) with exact beliefs, shape (N, K); NaN where there is no later state."""
    known = np.isfinite(later)
    arrays = (t % PERIOD, x, np.where(known, later, 0.0))
    return np.where(known, _forecast_scores(process, *(jnp.asarray(a, dtype=float) for a in arrays)), np.nan)


def baselines(record: Hourly, t: np.ndarray, later: np.ndarray) -> dict[str, np.ndarray]:
    """Scores of what needs no training, shape (N, K) each."""
    phase, x, x_next = record.pairs()
    learned = np.flatnonzero(~record.held_out & np.isfinite(record.celsius))
    known = (learned % PERIOD, record.celsius[learned], (t + 1) % PERIOD, later, PERIOD)
    ar = SeasonalAR.fit(phase, x, x_next, PERIOD)
    return {
        "Gaussian for every hour": climatology(*known, kernel=False),
        "kernel density for every hour": climatology(*known, kernel=True),
        REFERENCE: ar.log_prob(t % PERIOD, record.celsius[t], later),
    }


def _row(scores: np.ndarray, reference: np.ndarray, week: np.ndarray) -> dict[str, Any]:
    mean, error = block_mean(scores, week)
    gap, gap_error = block_mean(scores - reference, week)
    named = {"mean": mean, "standard_error": error, "gap": gap, "gap_standard_error": gap_error}
    return {name: values.tolist() for name, values in named.items()}


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Learn, forecast, score, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/periodic.json"))
    options = parser.parse_args(arguments)

    ahead, every = (3, 24) if options.quick else (AHEAD, 3)
    small: dict[str, Any] = {"size": 6, "rank": 2, "steps": 50} if options.quick else {}
    record = hourly_temperatures(options.seed)
    t = record.origins(ahead, every)
    x, later, week = record.celsius[t], record.celsius[t[:, None] + 1 + np.arange(ahead)], t // WEEK
    scores, about = baselines(record, t, later), {}
    processes = {"process without a period": None, "process with period 24": PERIOD}
    for name, period in list(processes.items())[1 if options.quick else 0 :]:
        process = sm.fit(
            record.days(), period=period, objective="transitions", members=1, seed=options.seed, **small
        )  # fmt: skip
        scores[name] = forecast_scores(process, t, x, later)
        chosen = {key: str(value) for key, value in process.history.chosen.items()}
        about[name] = {"seconds": process.history.seconds, "parameters": process.parameter_count, "chosen": chosen}
    rows = {name: _row(found, scores[REFERENCE], week) | about.get(name, {}) for name, found in scores.items()}
    for name, row in rows.items():
        first, last = (f"{row['mean'][k]:.3f} +- {row['standard_error'][k]:.3f}" for k in (0, -1))
        print(f"{name:<30} one hour ahead {first}, {ahead} hours ahead {last}", flush=True)
    content = {"hours": int(np.isfinite(record.celsius).sum()), "pairs": len(record.pairs()[0]),
               "weeks": len(np.unique(week)), "forecasts": len(t), "rows": rows}  # fmt: skip
    write_results(options.out, content, options.seed)
    print(f"written: {options.out}")
    return content


if __name__ == "__main__":
    main()
