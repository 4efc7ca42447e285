"""Forecasts from known states: `sm.fit` with its defaults, beside the linear step and, where it is known, the truth.

The score is the mean of log p(x_(t+k) | x_t) over states that were held out, in nats; standard errors of paired
differences are those of the means of whole blocks of time. Records are held out as in `examples/sunspots.py`,
`examples/glucose.py` and `examples/hourly_temperature.py`. The truth of a simulated system is an average of its own
transition density over many paths from the known state. `python bench/scripts/forecasts.py` runs all;
`forecasts_page.py` makes the page.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.special

import sosmarkov as sm
from sosmarkov_bench.environment import write_results
from sosmarkov_bench.hourly import PERIOD, WEEK, hourly_temperatures
from sosmarkov_bench.records import LinearStep, glucose, in_blocks, later_states, sunspots
from sosmarkov_bench.seasonal import SeasonalAR, block_mean
from sosmarkov_bench.systems.van_der_pol import BOUND, DT, MU

# Simulated: pairs to learn from, forecasts, forecasts a block, paths a state for the truth.
PAIRS, FORECASTS, BLOCK, PATHS = 15_000, 1_000, 20, 40_000
QUICK = {"PAIRS": 300, "FORECASTS": 60, "PATHS": 100}
# States of a simulated trajectory, and which of them is the known one.
LENGTH, KNOWN = 12, 3
AHEAD = (1, 2, 4, 8)


class Task(NamedTuple):
    """What is learned from, and what is asked.

    Attributes:
        title: What it is.
        given: Arguments of `sm.fit`.
        pairs: How many pairs these hold.
        ahead: Steps ahead that are scored, K of them.
        now: Known states, shape (N, d).
        later: States so many steps on, shape (N, K, d), NaN where there are none.
        block: Of each forecast, shape (N,).
        others: By name, scores of shape (N, K).
        times: Of the known states, shape (N,), where there is a period.
    """

    title: str
    given: dict[str, Any]
    pairs: int
    ahead: tuple[int, ...]
    now: np.ndarray
    later: np.ndarray
    block: np.ndarray
    others: dict[str, np.ndarray]
    times: np.ndarray | None = None


class System(NamedTuple):
    """A Markov process in two coordinates whose noise is independent and normal.

    Attributes:
        title: With its formula.
        mean: E[x' | x] for states (..., 2).
        std: Of the noise of each coordinate, likewise.
        begin: Mean and standard deviation of the states it starts from, the same for each coordinate or one for each.
        forgotten: Steps before the first state that is kept.
    """

    title: str
    mean: Callable[[np.ndarray], np.ndarray]
    std: Callable[[np.ndarray], np.ndarray]
    begin: tuple[Any, float] = (0.0, 0.3)
    forgotten: int = 100

    def step(self, rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
        """One draw of x' for each state."""
        return self.mean(x) + self.std(x) * rng.normal(size=x.shape)

    def log_prob(self, x_next: np.ndarray, x: np.ndarray) -> np.ndarray:
        """log p(x' | x)."""
        std = self.std(x)
        z = (x_next - self.mean(x)) / std
        return np.sum(-0.5 * z**2 - np.log(std) - 0.5 * np.log(2.0 * np.pi), axis=-1)

    def paths(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Trajectories (count, LENGTH, 2); the few that leave what Euler's step can follow are left out."""
        x, found = self.begin[0] + self.begin[1] * rng.normal(size=(count + count // 20 + 10, 2)), []
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(self.forgotten + LENGTH):
                found.append(x)
                x = self.step(rng, x)
        paths = np.stack(found[self.forgotten :], axis=1)
        return paths[np.all(np.abs(paths) <= BOUND, axis=(1, 2))][:count]

    def log_prob_later(self, rng: np.random.Generator, now: np.ndarray, later: np.ndarray, paths: int) -> np.ndarray:
        """log p(x_(t+k) | x_t) by paths to the step before, shape (N, K); exact for one step."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.stack([self._of_one(rng, *each, paths) for each in zip(now, later, strict=True)])

    def _of_one(self, rng: np.random.Generator, state: np.ndarray, later: np.ndarray, paths: int) -> np.ndarray:
        """Given that the path has not left: those that have are asked neither for a density nor to be counted."""
        x, found = np.tile(state, (paths, 1)), []
        for k in range(1, AHEAD[-1] + 1):
            logs = self.log_prob(later[len(found)], x)
            x = self.step(rng, x)
            there = np.all(np.abs(x) <= BOUND, axis=1)
            if k in AHEAD:
                found.append(scipy.special.logsumexp(logs) - np.log(np.sum(there)))
            x = x[there]
        return np.array(found)


def _van_der_pol(x: np.ndarray) -> np.ndarray:
    a, b = x[..., 0], x[..., 1]
    return np.stack([a + DT * b, b + DT * (MU * (1.0 - a**2) * b - a)], axis=-1)


def _double_well(x: np.ndarray) -> np.ndarray:
    a, b = x[..., 0], x[..., 1]
    return np.stack([a + 0.2 * (a - a**3) + 0.1 * (b - a), b + 0.3 * (a - b)], axis=-1)


# Written down before any score was looked at.
SYSTEMS = {
    "van der pol": System(
        "Van der Pol oscillator, dt = 0.3, noise of variance 0.1",
        _van_der_pol,
        lambda x: np.full(x.shape, np.sqrt(0.1)),
        # As in the paper, from near the middle.
        (np.array([0.2, 0.1]), np.sqrt(0.2)),
        0,
    ),
    "double well": System(
        "double well, a' = a + 0.2 (a - a^3) + 0.1 (b - a) + 0.3 e, b' = b + 0.3 (a - b) + 0.2 e",
        _double_well,
        lambda x: np.broadcast_to([0.3, 0.2], x.shape),
    ),
    "changing noise": System(
        "noise that changes, a' = 0.9 a + 0.3 exp(b / 2) e, b' = 0.95 b + 0.3 e",
        lambda x: x * [0.9, 0.95],
        lambda x: np.stack([0.3 * np.exp(0.5 * x[..., 1]), np.full(x.shape[:-1], 0.3)], axis=-1),
    ),
}


def simulated(name: str, size: dict[str, int], seed: int) -> Task:
    """Trajectories to learn from, and as long ones to ask about."""
    system, rng = SYSTEMS[name], np.random.default_rng(seed)
    learned = system.paths(rng, size["PAIRS"] // (LENGTH - 1))
    asked = system.paths(rng, size["FORECASTS"])
    now, later = asked[:, KNOWN], asked[:, KNOWN + np.array(AHEAD)]
    pairs = learned[:, :-1].reshape(-1, 2), learned[:, 1:].reshape(-1, 2)
    others = {"linear step": LinearStep.fit(*pairs).log_prob(now, _every(later, AHEAD))[:, np.array(AHEAD) - 1]}
    others["truth"] = system.log_prob_later(rng, now, later, size["PATHS"])
    block = np.arange(len(now)) // BLOCK
    return Task(system.title, {"trajectories": learned}, len(pairs[0]), AHEAD, now, later, block, others)


def _every(later: np.ndarray, ahead: tuple[int, ...]) -> np.ndarray:
    """Later states at all steps up to the last: NaN at those that are not asked for."""
    found = np.full((len(later), ahead[-1], later.shape[2]), np.nan)
    found[:, np.array(ahead) - 1] = later
    return found


def of_sunspots(size: dict[str, int], seed: int) -> Task:
    """Two years a state and a step; the years from 1931 on are held out."""
    del size, seed
    years, numbers = sunspots()
    states = in_blocks(np.sqrt(numbers), 1)
    learned = np.flatnonzero(years < 1931 - 2)[1:]
    pairs, ahead = (states[learned], states[learned + 2]), (1, 2, 3, 4, 5, 6)
    t = np.flatnonzero(years >= 1931)[1:-12]
    later = later_states(states, t, 2, 6)
    others = {"linear step": LinearStep.fit(*pairs).log_prob(states[t], later)}
    given = {"transitions": pairs, "initial": pairs[0], "columns": ("before", "now")}
    return Task("sunspots, steps of 2 years", given, len(learned), ahead, states[t], later, years[t] // 11, others)


def of_glucose(size: dict[str, int], seed: int) -> Task:
    """Two readings a quarter of an hour apart a state, half an hour a step; every fifth week is held out."""
    del size, seed
    step, most, week = 6, 8, 7 * 24 * 12
    states = in_blocks(np.log(glucose()), 3)
    held_out, whole = np.arange(len(states)) // week % 5 == 2, np.all(np.isfinite(states), axis=1)
    t = np.arange(len(states) - step)
    learned = t[whole[t] & whole[t + step] & ~held_out[t] & ~held_out[t + step]]
    pairs = states[learned], states[learned + step]
    t = np.arange(0, len(states) - step * most, step)
    t = t[whole[t] & held_out[t] & held_out[t + step * most]]
    later = later_states(states, t, step, most)
    chosen = np.array(AHEAD) - 1
    # A forecast counts where all of its later states are there, so that every step ahead is scored on the same ones.
    there = np.all(np.isfinite(later), axis=(1, 2))
    t, later = t[there], later[there]
    others = {"linear step": LinearStep.fit(*pairs).log_prob(states[t], later)[:, chosen]}
    given = {"transitions": pairs, "initial": pairs[0], "columns": ("before", "now")}
    title = "blood glucose, steps of half an hour"
    return Task(title, given, len(learned), AHEAD, states[t], later[:, chosen], t // week, others)


def of_temperature(size: dict[str, int], seed: int) -> Task:
    """An hour a step, a period of a day; every fifth week is held out."""
    del size, seed
    record, ahead = hourly_temperatures(), (1, 3, 6, 12, 24)
    t = record.origins(24)
    later = record.celsius[t[:, None] + np.array(ahead)][..., None]
    linear = SeasonalAR.fit(*record.pairs(), PERIOD)
    all_later = record.celsius[t[:, None] + 1 + np.arange(24)]
    others = {"linear step": linear.log_prob(t % PERIOD, record.celsius[t], all_later)[:, np.array(ahead) - 1]}
    given = {"trajectories": record.days(), "period": PERIOD}
    title = "hourly temperature, a linear step for every hour beside it"
    now = record.celsius[t][:, None]
    return Task(title, given, len(record.pairs()[0]), ahead, now, later, t // WEEK, others, t)


TASKS: dict[str, Callable[[dict[str, int], int], Task]] = {
    "sunspots": of_sunspots,
    "glucose": of_glucose,
    "temperature": of_temperature,
    **{name: lambda size, seed, name=name: simulated(name, size, seed) for name in SYSTEMS},
}


def scores_of(process: Any, task: Task) -> np.ndarray:
    """log p(x_(t+k) | x_t) of a process of any form, shape (N, K); NaN where there is no later state."""
    found = np.full(task.later.shape[:2], np.nan)
    for column, k in enumerate(task.ahead):
        there = np.all(np.isfinite(task.later[:, column]), axis=1)
        inputs = None if task.times is None else (task.times[there, None] + np.arange(k))[..., None].astype(float)
        after, before = task.later[there, column], task.now[there]
        found[there, column] = np.asarray(process.transition.log_prob_later(after, before, k, inputs))
    return found


def row(name: str, size: dict[str, int], seed: int) -> dict[str, Any]:
    """One task: learned, asked, compared."""
    task = TASKS[name](size, seed)
    load, begin = os.getloadavg()[0], time.perf_counter()
    process = sm.fit(**task.given, seed=seed, progress=False)
    seconds = time.perf_counter() - begin
    scores = {"sosmarkov": scores_of(process, task), **task.others}
    differences = {}
    for other in task.others:
        mean, error = block_mean(scores["sosmarkov"] - scores[other], task.block)
        differences[other] = {"mean": mean.tolist(), "standard_error": error.tolist()}
    transition = process.transition
    return {
        "title": task.title,
        "pairs": task.pairs,
        "forecasts": len(task.now),
        "blocks": len(np.unique(task.block)),
        "ahead": list(task.ahead),
        "seconds": seconds,
        "load": load,
        "chosen": process.history.chosen,
        "sizes": transition.sizes,
        "narrow": getattr(transition, "report", {}).get("narrow", 0.0),
        "parameters": process.parameter_count,
        "scores": {which: np.nanmean(score, axis=0).tolist() for which, score in scores.items()},
        "difference": differences,
    }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(TASKS)}; all where none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="few pairs and forecasts, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("results/forecasts.json"))
    options = parser.parse_args(arguments)
    size = {"PAIRS": PAIRS, "FORECASTS": FORECASTS, "PATHS": PATHS} | (QUICK if options.quick else {})
    content: dict[str, Any] = {"size": size, "rows": {}}
    for name in options.names or TASKS:
        found = content["rows"][name] = row(name, size, options.seed)
        print(f"{name}: {found['chosen']['form']}, {found['seconds']:.1f} s for {found['pairs']:,} pairs")
        for which, score in found["scores"].items():
            print(f"  {which:<12} " + " ".join(f"{value:>8.3f}" for value in score), flush=True)
    write_results(options.out, content, options.seed)
    return content


if __name__ == "__main__":
    main()
