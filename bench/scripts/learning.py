"""How close `sm.fit` comes to the limit on the systems of the paper, with its default settings.

`python bench/scripts/learning.py vdp cartpole` simulates each system's training data, fits, propagates and scores
10,000 test trajectories; one JSON file a row goes to results/learning/. Other rows are named after a colon:
`cartpole:members=12`, `vdp:basis=beta,coupling=paired,size=25`; `reweight=2` (not an option of `fit`) weights wide
pairs by the beliefs of two fits before. `--quick` takes small sizes everywhere. `bench/scripts/learning_page.py` makes
the page.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from pathlib import Path
from typing import Any

import jax
import numpy as np
from sklearn.mixture import GaussianMixture

import sosmarkov as sm
from sosmarkov.core.files import write_atomic
from sosmarkov_bench.baselines.gaussian import gaussian_per_step
from sosmarkov_bench.environment import environment
from sosmarkov_bench.oracle import limit
from sosmarkov_bench.protocol import LIMIT_TEST, score, simulate_test, simulate_training, steps_of
from sosmarkov_bench.systems import get_system

TEST, PREDECESSORS = 10_000, 50_000


def options_of(text: str) -> dict[str, Any]:
    """`a=1,b=x` as keyword arguments; numbers, true and false are recognised."""

    def value(word: str) -> Any:
        try:
            return json.loads(word)
        except json.JSONDecodeError:
            return word

    return {name: value(word) for name, word in (part.split("=", 1) for part in text.split(",") if part)}


def scored(model: sm.MarkovProcess | sm.Ensemble, test: np.ndarray) -> dict[str, Any]:
    """Mean log-likelihood per k with and without blown-up states, and the beliefs' masses."""
    begin = time.perf_counter()
    beliefs = jax.block_until_ready(model.propagate(test.shape[1] - 1))
    seconds = time.perf_counter() - begin
    return score(lambda k, x: np.asarray(beliefs[k].log_prob(x)), test, len(beliefs) - 1) | {
        "mass_error": float(max(abs(float(belief.mass()) - 1.0) for belief in beliefs)),
        "propagation_seconds_with_compilation": seconds,
    }


def reachable_weights(data: dict[str, Any], options: dict[str, Any], rounds: int, steps: int) -> np.ndarray:
    """The other way to focus wide pairs on what is reached: weights by the model's own beliefs, fitted in rounds.

    A pair from x weighs as much as the beliefs at k < steps have mass there, against how densely pairs were drawn. A
    tenth of the weight is spread evenly, so that a few heavy pairs are not all there is.
    """
    x = data["transitions"][0]
    drawn = GaussianMixture(30, random_state=0, max_iter=200, reg_covar=1e-6).fit(x).score_samples(x)
    weights = np.ones(len(x))
    for _ in range(rounds):
        process = sm.fit(**data, **({"form": "factor"} | options), weights=weights, progress=False)
        log_p = np.stack([np.asarray(belief.log_prob(x)) for belief in process.propagate(steps - 1)])
        reached = np.exp(np.logaddexp.reduce(log_p, axis=0) - np.log(len(log_p)) - drawn)
        weights = 0.1 + 0.9 * reached / reached.mean()
    return weights


def references(system: Any, data: dict[str, Any], test: np.ndarray, quick: bool) -> dict[str, Any]:
    """The limit where a density exists, and one Gaussian per k where there are trajectories."""
    found: dict[str, Any] = {}
    if system.has_density:
        count = 2_000 if quick else PREDECESSORS
        others = np.asarray(system.simulate(jax.random.key(77), count, test.shape[1] - 1))
        found |= {k: v.tolist() for k, v in limit(system, test[:LIMIT_TEST], others)._asdict().items()}
        found = {f"limit_{name}": value for name, value in found.items()}
    if "trajectories" in data:
        found["gaussian"] = gaussian_per_step(data["trajectories"], test).tolist()
    return found


def run(name: str, options: dict[str, Any], seed: int, quick: bool, checkpoint: Path | None = None) -> dict[str, Any]:
    """One row: data, fit, scores; a failure is recorded as one."""
    system = get_system(name)
    share = 0.05 if quick else 1.0
    data = simulate_training(system, seed, share)
    steps = steps_of(system)
    test = simulate_test(system, seed, round(share * TEST))
    row: dict[str, Any] = {"system": name, "options": dict(options), "seed": seed, "quick": quick}
    row |= {"environment": environment(), "references": references(system, data, test, quick)}
    resume = checkpoint if checkpoint is not None and checkpoint.exists() else None
    begin = time.perf_counter()
    rounds = options.pop("reweight", 0)
    try:
        if rounds:
            data |= {"weights": reachable_weights(data, options, rounds, steps)}
        found = sm.fit(**data, **options, checkpoint=checkpoint, resume=resume, progress=False)
    except Exception as error:  # a failed fit is a result, and is shown as one
        return row | {"failed": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    history = found.history
    members = list(found) if isinstance(found, sm.Ensemble) else [found]
    return (
        row
        | {
            # What came before a break is in the history alone.
            "seconds": max(time.perf_counter() - begin, history.seconds),
            "resumed": resume is not None,
            "trained_on": history.device,
            "parameters": members[0].parameter_count,
            "chosen": history.chosen,
            "held_out": dict(history.scores),
            "phases": [
                {"name": p.name, "seconds": p.seconds, "steps": p.done, "best": p.best.tolist(), "stopped": p.stopped}
                for p in history.phases
            ],
            "members": [scored(member, test) for member in members],
        }
        | ({"mixed": scored(found, test)} if isinstance(found, sm.Ensemble) else {})
    )


def main(arguments: list[str] | None = None) -> None:
    """Run the rows named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", help="SYSTEM or SYSTEM:option=value,...")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results/learning"))
    parser.add_argument("--checkpoints", type=Path, help="a folder; rows broken off are taken up again from it")
    chosen = parser.parse_args(arguments)
    for folder in filter(None, (chosen.out, chosen.checkpoints)):
        folder.mkdir(parents=True, exist_ok=True)
    for text in chosen.rows:
        name, _, rest = text.partition(":")
        options = options_of(rest) | ({"steps": 50, "size": 4} if chosen.quick else {})
        stem = "-".join([name, *rest.replace("=", "_").split(",")]).rstrip("-")
        checkpoint = chosen.checkpoints and chosen.checkpoints / f"{stem}.ckpt"
        row = run(name, options, chosen.seed, chosen.quick, checkpoint)
        device = row.get("trained_on") or row["environment"]["device"]
        path = chosen.out / f"{stem}-{device.split()[0]}.json"
        write_atomic(path, json.dumps(row, indent=1).encode())
        if "failed" in row:
            print(f"{text}: FAILED {row['failed']}")
            continue
        per_step = np.mean([m["log_likelihood"] for m in row["members"]], axis=0)[1:]
        print(f"{text}: {row['seconds']:.0f} s, {' '.join(f'{v:.3f}' for v in per_step)}  ({path})", flush=True)


if __name__ == "__main__":
    main()
