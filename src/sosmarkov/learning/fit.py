"""`fit`: from trajectories or transition pairs to a trained process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, overload

import jax
import numpy as np

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.data.dataset import Data, as_list, from_pairs, from_trajectories, require_enough
from sosmarkov.data.frames import as_table, coordinates_of, is_frame, trajectories_from
from sosmarkov.data.history import Progress
from sosmarkov.data.stream import Stored, StoredArray, Stream, streams
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.couplings import Features
from sosmarkov.learning.checkpoint import Checkpoint, fingerprint
from sosmarkov.learning.phases import Interruption, Phases
from sosmarkov.learning.run import Run
from sosmarkov.learning.sensing import settle_latent, settle_sensing
from sosmarkov.learning.settings import settle
from sosmarkov.process.ensemble import Ensemble
from sosmarkov.process.process import MarkovProcess
from sosmarkov.sensors import Sensor
from sosmarkov.spaces.transforms import Transform


# For readers of types: one member is a process, more are an ensemble. The options are those below.
@overload
def fit(trajectories: Any = None, *, members: Literal[1] = 1, **options: Any) -> MarkovProcess: ...
@overload
def fit(trajectories: Any = None, *, members: int, **options: Any) -> Ensemble: ...
def fit(  # pyright: ignore[reportInconsistentOverload]
    trajectories: ArrayLike | None = None,
    *,
    transitions: tuple[ArrayLike, ArrayLike] | None = None,
    initial: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    basis: str | Basis | None = None,
    coupling: str = "kraus",
    size: int | None = None,
    rank: int | None = None,
    transform: str | Transform | None = None,
    steps: int | None = None,
    batch_size: int = 512,
    learning_rate: float = 1e-2,
    objective: str | float | None = None,
    horizon: int | None = None,
    surrogate: bool | None = None,
    validation: float = 0.1,
    patience: int = 600,
    background: float = 1e-4,
    seed: int = 0,
    members: int = 1,
    inputs: ArrayLike | Sequence[ArrayLike] | None = None,
    features: str | Features | None = None,
    period: int | None = None,
    observations: ArrayLike | Sequence[ArrayLike] | None = None,
    sensor: str | Sensor | None = None,
    sensor_size: int | None = None,
    dim: int | None = None,
    checkpoint: str | os.PathLike | None = None,
    resume: str | os.PathLike | None = None,
    trajectory: str | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
    progress: bool = True,
) -> MarkovProcess | Ensemble:
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
    given = {name: value for name, value in locals().items() if name not in _NOT_SETTINGS}
    stream = None
    if is_frame(trajectories):
        where = {"trajectory": trajectory, "time": time, "columns": columns}
        table = as_table(trajectories)
        trajectories, columns = trajectories_from(table, **where), coordinates_of(table, **where)
    elif isinstance(trajectories, (Stored, np.memmap)):
        columns = trajectories.columns if columns is None and isinstance(trajectories, Stored) else columns
        trajectories, stream = _stored(trajectories, seed)
    if period is not None and inputs is None and trajectories is not None:
        inputs = [np.arange(len(part) - 1.0) for part in as_list(trajectories)]
    if observations is not None and trajectories is None and transitions is None:
        _refuse_states(initial, inputs)
        data, sensing = settle_latent(observations, weights, given)
    else:
        data = _gather(trajectories, transitions, initial, weights, inputs)
        sensing = settle_sensing(data, trajectories, observations, weights, inputs, given)
    columns = checks.columns(columns, data.x.shape[1])
    given = given if sensing is None else sensing.given(given)
    settings = settle(data, given)
    require_enough(data, 2 * settings.size)
    arrays = [
        data.x,
        data.x_next,
        data.weight,
        data.initial,
        *jax.tree.leaves((data.u, basis, features, observations, sensor)),
    ]
    identity = fingerprint(arrays, given)
    path = checkpoint or resume
    keeper = Checkpoint(path, identity, resume).keeper if path else None
    bar = Progress(progress)
    try:
        with Interruption() as interruption:
            phases = Phases(settings, bar, keeper, interruption)
            if sensing is not None:
                found = sensing.run(settings, phases)
            else:
                found = Run(settings, transform, phases, stream).fit(data)
            return found.with_columns(columns)
    finally:
        bar.close()


_NOT_SETTINGS = (
    "trajectories",
    "transitions",
    "initial",
    "weights",
    "inputs",
    "observations",
    "checkpoint",
    "resume",
    "progress",
)


def _stored(stored: Stored | np.memmap, seed: int) -> tuple[Sequence[np.ndarray], Stream | None]:
    """All trajectories where they are few, a sample and a stream of the others where they are not."""
    if not isinstance(stored, Stored):
        stored = StoredArray(stored)
    if not streams(stored):
        return list(stored.take(0, len(stored))), None
    stream = Stream(stored, seed)
    return stream.resident(), stream


def _refuse_states(initial: Any, inputs: Any) -> None:
    if initial is not None or inputs is not None:
        raise ValueError("Expected observations, dim and sensor where no states are given, got initial or inputs too.")


def _gather(
    trajectories: ArrayLike | None,
    transitions: tuple[ArrayLike, ArrayLike] | None,
    initial: ArrayLike | None,
    weights: ArrayLike | None,
    inputs: ArrayLike | Sequence[ArrayLike] | None,
) -> Data:
    if (trajectories is None) == (transitions is None):
        raise ValueError("Expected either trajectories or transitions=(x, x_next) with initial, got both or neither.")
    if transitions is None:
        if initial is not None:
            raise ValueError("Expected initial only with transitions: trajectories bring their own first states.")
        return from_trajectories(trajectories, weights, inputs)
    if initial is None or len(transitions) != 2:
        raise ValueError("Expected transitions=(x, x_next) and initial=x0, got no initial states or not a pair.")
    return from_pairs(*transitions, initial, weights, inputs)
