"""`fit`: from trajectories or transition pairs to a trained process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, ParamSpec, Protocol, cast, overload

from sosmarkov.core import checks
from sosmarkov.data.dataset import Dataset
from sosmarkov.data.enough import require_enough
from sosmarkov.data.frames import is_frame
from sosmarkov.data.gather import gather, open_source
from sosmarkov.learning.checkpoint import Checkpoint, fingerprint
from sosmarkov.learning.choose import choose, refuse_streamed, refuse_without
from sosmarkov.learning.factor.barrier import Barrier
from sosmarkov.learning.factor.plain import Plain
from sosmarkov.learning.forms import by_evidence, factor_options, learn_form, no_less_than_a_linear_step
from sosmarkov.learning.options import Model, Options, Training, names, takes
from sosmarkov.learning.phases import plan_of, run
from sosmarkov.learning.sensing import Make, sense, sense_alone
from sosmarkov.process.ensemble import Ensemble
from sosmarkov.process.process import MarkovProcess

P = ParamSpec("P")
Q = ParamSpec("Q")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Single(Options):
    """For readers of types: with one member, `fit` gives a process."""

    members: Literal[1] = 1


class _Fit(Protocol[P, Q]):
    @overload
    def __call__(self, *args: P.args, **options: P.kwargs) -> MarkovProcess: ...
    @overload
    def __call__(self, *args: Q.args, **options: Q.kwargs) -> Ensemble: ...


def _one_or_several(
    one: Callable[P, Any], several: Callable[Q, Any]
) -> Callable[[Callable[..., MarkovProcess | Ensemble]], _Fit[P, Q]]:
    """Tells type checkers what comes of which options; changes nothing."""
    del one, several
    return lambda function: cast(Any, function)


@_one_or_several(_Single, Options)
@takes(Options)
def fit(given: Options) -> MarkovProcess | Ensemble:  # noqa: D417 - the fields of the record
    """Learn p(x0) and p(x'|x) by maximum likelihood, as a process with exact beliefs.

    First the transitions, then p(x0), then the beliefs p_k(x_k) themselves. Where it predicts held-out states as well
    as the training data do, a surrogate (a small network for p(x'|x)) is rolled forward to give fresh trajectories
    to learn from; where only pairs are given, it also says which states are reached at all.

    Args:
        trajectories: Array (N, T, d) or a list of arrays (T_i, d); NaN rows are gaps. Or a data frame with one row
            per state (see `trajectory`), or what `open_trajectories` gives, which is streamed where it is large.
        transitions: Instead, pairs (x, x_next), each (N, d); `initial` then gives initial states.
        initial: Initial states (N0, d), with `transitions`.
        weights: One weight >= 0 per trajectory, or per pair.
        form: "lattice" (splines on nodes, sharp steps; up to three coordinates), "gaussian" (one linear step), "factor"
            (sums of squares, any dimension; what the options below belong to). None: "factor" where one of its options
            is given; else the form whose held-out forecasts are best of those that suit. `history` has the table.
        circular: Coordinates that are angles and wrap round, by name or index; a mapping gives each its whole turn.
            Needs the lattice form, as `bounds` does.
        bounds: From coordinates to (lower, upper), None where there is none: {"level": (0, None)}.
        basis: "gaussian" (axis-aligned), "gaussian-full", "beta", "exponential", "monomial" or "fourier"; or a basis,
            in which phi, psi and psi_0 begin as they are, without a background function; chosen from the dimension
            where None.
        coupling: "kraus", "paired" (the paper's) or "linear".
        size: Functions in each basis; chosen from dimension and data where None.
        rank: Kraus rank R; half the size where None.
        transform: From data to model space: "standardize" (by quartiles where a few extreme states would dwarf the
            rest), "whiten", "gaussian_cdf", or a transform. None: what the basis needs. Pairs with a state beyond
            100 deviations are set aside, and counted in the history.
        steps: Most steps in all: half on the transitions, half on the beliefs where these are trained. None: 2000, or
            4000 beyond four coordinates.
        batch_size: Transitions a step; half as many trajectories in the belief phase.
        learning_rate: At the start of the cosine schedule.
        objective: "transitions"; "beliefs"; the weight of the transition likelihood beside the beliefs'; or "barrier",
            the paper's training of the Paired form. None: beliefs. Both held-out likelihoods are in the history.
        horizon: Steps over which beliefs are trained. None: the trajectories' length, at most 50; 10 for pairs.
        surrogate: Whether to learn from a surrogate's trajectories. None: where it helps by held-out likelihood.
        validation: Share of trajectories (or pairs) held out to stop early and keep the best.
        patience: Steps without a better held-out loss after which a phase stops.
        background: Share of a broad background in p(x'|x) and p_0, so that outliers cost tens of nats, not
            hundreds; 0 switches it off.
        seed: For the split, the start and the batches; the same seed gives the same process.
        members: Train this many at once, each with its own start and batches; gives an `Ensemble` where over one.
        inputs: Controls u_k, one for each step: (N, T - 1, e), a list of (T_i - 1, e), or (N, e) with pairs. The
            process is then p(x'|x,u). With a period: the time of each step, a whole number; None: counted from 0.
        features: How inputs act on K(u) = sum_j b_j(u) K_j: "bumps" (the default), "network", or an object. Beyond
            the data's range K stays what it is at its edge.
        period: Steps after which the dynamics repeat, with a kernel of its own for every phase.
        observations: What was read of each state, (N, T, k) or a list of (T_i, k), NaN where nothing was: the sensor is
            learned too, and `process.filter(readings)` uses it. Last, filters are trained: the score of the states
            given the readings so far, and the evidence.
        sensor: "linear" learns o = H x + c + noise; "joint" p(x',o'|x), any sensor, as sharp as its functions are
            many; None: linear, unless a mixture predicts held-out readings clearly better. Or a known sensor: the
            filter is trained with it.
        sensor_size: Functions of a reading in the joint form, which it asks for; chosen from k where None.
        dim: With observations alone, fit(observations=o, dim=2): how many coordinates the unseen state has. The
            evidence of the readings is maximised; with a known sensor the coordinates it reads keep their meaning.
        checkpoint: A file to keep the state of training in, rewritten every 50 steps.
        resume: A checkpoint to continue from, with the same data and settings; the curve is the same as without
            the break. It is kept up to date too, unless `checkpoint` names another file.
        trajectory: For a data frame, the column that says which trajectory a row belongs to.
        time: For a data frame, the column to sort each trajectory by.
        columns: For a data frame, the coordinates; None: all other numeric columns. For arrays, names of the
            coordinates. They are `process.columns`.
        progress: Show a bar, on a terminal only. Interrupting (Ctrl-C) keeps the best so far.

    Returns:
        The process, or the ensemble; `history` says what was chosen and what training did.
    """
    given, data, make = _prepared(given)
    if make is None:
        return learn_form(given, data)
    columns = checks.columns(data.columns, data.dim)
    settings = choose(given, data)
    require_enough(data, 2 * settings.size)
    path = given.checkpoint or given.resume
    identity = fingerprint(data, given.observations, list(given.picked(*names(Model, Training)).values()))
    keeper = Checkpoint(path, identity, given.resume) if path else None
    plan = plan_of(settings, settings.phase_steps)
    found = run(partial(make, settings), plan, settings.members, progress=given.progress, keeper=keeper)
    found = [process.with_columns(columns) for process in found]
    if len(found) > 1:
        return Ensemble(found, history=found[0].history)
    open_ = given.form is None and not factor_options(given)
    return no_less_than_a_linear_step(found[0], given, data) if open_ else found[0]


def _prepared(given: Options) -> tuple[Options, Dataset, Make | None]:
    """The options, the data, and what makes the task of learning from them; None where nothing is trained."""
    present = {name: getattr(given, name) is not None for name in ("transitions", "observations", "inputs")}
    refuse_without(given, present | {"a data frame": is_frame(given.trajectories)})
    if given.trajectories is None and given.transitions is None and given.observations is not None:
        by_evidence(given)
        return sense_alone(given)
    source = open_source(given.trajectories, **given.picked("trajectory", "time", "columns", "seed"))
    if source.stream is not None:
        refuse_streamed(given)
    data = gather(source, **given.picked("transitions", "initial", "weights", "inputs", "period", "observations"))
    if by_evidence(given, data, source.stream is not None):
        return given, data, None
    if given.observations is not None:
        return sense(given, data)
    return given, data, partial(Barrier if given.objective == "barrier" else Plain, data, source.stream)
