"""The one run of training: start, phases in turn, scores, and what comes of each member."""

from __future__ import annotations

from dataclasses import replace

from sosmarkov.data.history import History, Scores
from sosmarkov.learning.factor.mixtures import in_parallel
from sosmarkov.learning.loop import stack, unstack
from sosmarkov.learning.phases import Phases
from sosmarkov.learning.task import Found, Task


def run(task: Task[Found], phases: Phases) -> list[Found]:
    """What a task finds, one for each member."""
    seeds = range(phases.plan.seed, phases.plan.seed + phases.members)
    parameters = stack(in_parallel(task.start, seeds))
    scores: dict[str, float] = {}
    for phase in task.phases():
        if phase.scored:
            scores |= {f"{name}_before": score for name, score in task.scores(parameters).items()}
        trained = phases.run(
            phase.name, phase.enter(parameters), phase.loss, phase.training, phase.held_out, **phase.plan
        )
        parameters = phase.leave(parameters, trained)
    found = replace(Scores(), **scores, **task.scores(parameters))
    history = History(tuple(phases.done), task.chosen, found)
    return [task.realise(member, history) for member in unstack(parameters, phases.members)]
