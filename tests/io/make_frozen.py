"""Writes the stored models and what they answer: run by hand, once a format, and never again for an old one."""

import json
from pathlib import Path

import jax
import model_cases
import numpy as np

import sosmarkov as sm
import tables

HERE = Path(__file__).parent
POINTS = [[-1.0], [0.25], [2.0]]
KINDS = {
    "families": ["gaussian-full", "exponential", "monomial", "fourier", "chain"],
    "kinds": ["bumps", "network features", "phases", "shared phases", "sensor", "known sensors", "mixture"],
}


def asked(process):
    """What a process answers."""
    return {
        "log_prob": np.asarray(process.transition.log_prob(POINTS, [[0.5]])).tolist(),
        "mean": np.asarray(process.propagate(2)[2].mean()).tolist(),
        "history": str(process.history),
        "columns": list(process.columns),
    }


def own_numbers(process):
    """Sums over what a process is made of, leaving out what follows from it."""
    t = process.transition
    parts = [t.phi, t.psi, t.coupling, t.transform]
    return [float(sum(np.sum(leaf) for leaf in jax.tree.leaves(part) if hasattr(leaf, "dtype"))) for part in parts]


def main():
    """The files."""
    transform = sm.Standardize([0.5], [2.0])
    parts = tables.make_parts("gaussian", "kraus-background", 1, 0, n=3)
    start = tables.make_start("gaussian", "kraus", 1, 0)
    transition = sm.Transition(*parts, transform)
    process = sm.MarkovProcess(transition, start, history=model_cases.history(), columns=["level"])
    process.save(HERE / "frozen_process.sosm")
    answers = {"process": asked(process)}
    # All the rest that has one coordinate; a sensor's process is Gaussian, a chain has a Gaussian CDF.
    for name, listed in KINDS.items():
        kinds = sm.Ensemble([model_cases.MODELS[kind]().with_columns(["level"]) for kind in listed])
        kinds.save(HERE / f"frozen_{name}.sosm")
        answers[name] = [own_numbers(kind) for kind in kinds]
    network = model_cases.network()
    network.save(HERE / "frozen_network.sosm")
    answers["network"] = np.asarray(network.log_prob([POINTS[0] + POINTS[1]])).tolist()
    (HERE / "frozen.json").write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
