"""`fit`: from trajectories or transition pairs to a trained process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import numpy as np

from sosmarkov import checks
from sosmarkov.checks import ArrayLike
from sosmarkov.learning.data import (
    Data,
    from_pairs,
    from_trajectories,
    require_enough,
    robust_standardize,
    set_aside_extremes,
    split,
)
from sosmarkov.learning.initialise import start_initial, start_transition
from sosmarkov.learning.loop import History, constant, device_name, train
from sosmarkov.learning.objectives import Parameters, belief_loss, initial_loss, realise, transition_loss
from sosmarkov.process import MarkovProcess
from sosmarkov.transforms import Transform, to_model
from sosmarkov.transition import Transition

_BASES = ("gaussian", "gaussian-full")
# Weight of the transition likelihood in the belief phase, unless the caller gives another.
_TRANSITION_WEIGHT = 0.1


def fit(
    trajectories: ArrayLike | None = None,
    *,
    transitions: tuple[ArrayLike, ArrayLike] | None = None,
    initial: ArrayLike | None = None,
    basis: str | None = None,
    size: int | None = None,
    rank: int | None = None,
    transform: Transform | None = None,
    steps: int = 2000,
    batch_size: int = 512,
    learning_rate: float = 1e-2,
    objective: str | float | None = None,
    validation: float = 0.1,
    patience: int = 600,
    background: float = 1e-4,
    seed: int = 0,
    progress: bool = True,
) -> MarkovProcess:
    """Learn p(x0) and p(x'|x) by maximum likelihood, as a process with exact beliefs.

    Args:
        trajectories: Array (N, T, d) or a list of arrays (T_i, d); NaN rows are gaps.
        transitions: Instead, pairs (x, x_next), each (N, d); `initial` then gives initial states.
        initial: Initial states (N0, d), with `transitions`.
        basis: "gaussian" (axis-aligned) or "gaussian-full"; chosen from the dimension where None.
        size: Functions in each basis; chosen from dimension and data where None.
        rank: Kraus rank R; chosen from the size where None.
        transform: From data to model space. None: standardising, by quartiles where a few extreme states would
            dwarf the rest; pairs with a state beyond 100 such deviations are set aside, and counted in the history.
        steps: Most steps of the first phase; the belief phase takes half as many.
        batch_size: Transitions a step.
        learning_rate: At the start of the cosine schedule.
        objective: "transitions", "beliefs", or the weight of the transition likelihood in the belief
            phase. None: beliefs where whole trajectories of one length were given.
        validation: Share of trajectories (or pairs) held out to stop early and keep the best.
        patience: Steps without a better held-out loss after which a phase stops.
        background: Share of a broad background in p(x'|x) and p_0, so that outliers cost tens of nats, not
            hundreds; 0 switches it off.
        seed: For the split, the start and the batches; the same seed gives the same process.
        progress: Show a line of progress on a terminal.

    Returns:
        The process; `process.history` says what was chosen and what training did.
    """
    data = _gather(trajectories, transitions, initial)
    chosen = _choose(data, basis, size, rank, objective)
    require_enough(data, 2 * chosen["size"])
    if transform is None:
        transform = robust_standardize(np.concatenate([data.x, data.x_next, data.initial]))
    data, chosen["set_aside"] = set_aside_extremes(data, transform)
    steps, seed = checks.count(steps, "steps", least=1), checks.count(seed, "seed")
    training, held_out = (_to_model(part, transform) for part in split(data, _share(validation), seed))
    report = _reporter(progress)
    run = partial(train, patience=patience, seed=seed, report=report)

    full = chosen["basis"] == "gaussian-full"
    parts = start_transition(training.x, training.x_next, chosen["size"], chosen["rank"], full, background, seed)
    start = start_initial(training.initial, chosen["start_size"], full, seed)
    parameters = Parameters(*parts, *start)
    phases = []

    pairs = [(constant(d.x), constant(d.x_next)) for d in (training, held_out)]
    parameters, done = run(
        parameters, transition_loss, *pairs,
        name="transitions", steps=steps, batch_size=batch_size, learning_rate=learning_rate,
    )  # fmt: skip
    phases.append(done)
    starts = [constant(d.initial) for d in (training, held_out)]
    parameters, done = run(
        parameters, initial_loss, *starts,
        name="initial", steps=min(steps, 500), batch_size=batch_size, learning_rate=learning_rate,
    )  # fmt: skip
    phases.append(done)
    if chosen["objective"] != "transitions":
        whole = [constant(d.trajectories) for d in (training, held_out)]
        parameters, done = run(
            parameters, partial(belief_loss, weight=chosen["transition_weight"]), *whole,
            name="beliefs", steps=max(1, steps // 2), batch_size=max(1, batch_size // 2),
            learning_rate=0.3 * learning_rate,
        )  # fmt: skip
        phases.append(done)
    transition, start = eqx.filter_jit(realise)(parameters)
    return MarkovProcess(
        Transition(transition.phi, transition.psi, transition.coupling, transform),
        start,
        history=History(tuple(phases), chosen, device_name()),
    )


def _gather(
    trajectories: ArrayLike | None, transitions: tuple[ArrayLike, ArrayLike] | None, initial: ArrayLike | None
) -> Data:
    if (trajectories is None) == (transitions is None):
        raise ValueError("Expected either trajectories or transitions=(x, x_next) with initial, got both or neither.")
    if transitions is None:
        if initial is not None:
            raise ValueError("Expected initial only with transitions: trajectories bring their own first states.")
        return from_trajectories(trajectories)
    if initial is None or len(transitions) != 2:
        raise ValueError("Expected transitions=(x, x_next) and initial=x0, got no initial states or not a pair.")
    return from_pairs(*transitions, initial)


def _choose(data: Data, basis: str | None, size: int | None, rank: int | None, objective: str | float | None) -> dict:
    """Sensible values for what was left open, and checks of what was not."""
    d = data.dim
    if basis is None:
        basis = "gaussian" if d <= 4 else "gaussian-full"
    if basis not in _BASES:
        raise ValueError(f"Expected basis one of {_BASES}, got {basis!r}.")
    if size is None:
        most = 36 if basis == "gaussian" else 24
        size = int(np.clip(len(data.x) // 40, 4, most))
    size = checks.count(size, "size", least=1)
    rank = checks.count(max(2, size // 2) if rank is None else rank, "rank", least=1)
    whole = len(data.trajectories) > 1
    weight = _TRANSITION_WEIGHT
    if objective is None:
        objective = "beliefs" if whole else "transitions"
    if isinstance(objective, (int, float)) and not isinstance(objective, bool):
        if objective < 0:
            raise ValueError(f"Expected a weight >= 0 as objective, got {objective}.")
        objective, weight = "beliefs", float(objective)
    if objective not in ("transitions", "beliefs"):
        raise ValueError(f"Expected objective 'transitions', 'beliefs' or a weight, got {objective!r}.")
    if objective == "beliefs" and not whole:
        raise ValueError(
            "Expected whole trajectories of one length for objective 'beliefs', got none. Use 'transitions'."
        )
    chosen = {"basis": basis, "size": size, "rank": rank, "objective": objective, "start_size": min(size, 8)}
    return chosen | ({"transition_weight": weight} if objective == "beliefs" else {})


def _share(validation: float) -> float:
    if not 0 < validation < 1:
        raise ValueError(f"Expected validation as a share between 0 and 1, got {validation}.")
    return float(validation)


def _to_model(data: Data, transform: Transform) -> Data:
    forward = jax.jit(lambda x: to_model(transform, x)[0])
    x, x_next, initial, trajectories = (
        np.asarray(forward(a)) for a in (data.x, data.x_next, data.initial, data.trajectories)
    )
    return Data(x, x_next, data.owner, initial, trajectories)


def _reporter(progress: bool) -> Callable[[str, int, int, float, float], None] | None:
    """A line that rewrites itself, on a terminal only."""
    if not (progress and sys.stderr.isatty()):
        return None

    def report(name: str, step: int, steps: int, training: float, held_out: float) -> None:
        end = "\n" if step >= steps else ""
        sys.stderr.write(f"\r{name:<12} {step:>6}/{steps}  loss {training:9.4f}  held out {held_out:9.4f}{end}")
        sys.stderr.flush()

    return report
