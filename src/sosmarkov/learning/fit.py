"""`fit`: from trajectories or transition pairs to a trained process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, overload

import jax

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.data.enough import require_enough
from sosmarkov.data.gather import gather, open_source
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.couplings import Features
from sosmarkov.learning.checkpoint import Checkpoint, fingerprint
from sosmarkov.learning.phases import Interruption, Phases
from sosmarkov.learning.progress import Progress
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
        trajectories: Array (N, T, d) or a list of arrays (T_i, d); NaN rows are gaps. Or one long series: (T, d), (T,),
            or a column of a frame; its pairs are learned from, and every state is an initial one. Or a data frame
            with one row per state (see `trajectory`), or what `open_trajectories` gives, streamed where it is large.
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
        time: For a data frame, the column to sort each trajectory by; of one series the index, where it holds times.
        columns: For a data frame, the coordinates; None: all other numeric columns. For arrays, names of the
            coordinates. They are `process.columns`.
        progress: Show a bar, on a terminal only. Interrupting (Ctrl-C) keeps the best so far.

    Returns:
        The process, or the ensemble; `history` says what was chosen and what training did.
    """
    given = {name: value for name, value in locals().items() if name not in _NOT_SETTINGS}
    source = open_source(trajectories, trajectory=trajectory, time=time, columns=columns, seed=seed)
    if observations is not None and trajectories is None and transitions is None:
        _refuse_states(initial, inputs)
        data, sensing = settle_latent(observations, weights, given)
    else:
        data = gather(
            source,
            transitions=transitions,
            initial=initial,
            weights=weights,
            inputs=inputs,
            period=period,
            observations=observations,
        )
        if isinstance(sensor, Sensor):
            given["sensor"] = sensor.on_columns(checks.columns(source.columns, data.dim))
        sensing = settle_sensing(data, given)
    names = checks.columns(source.columns, data.dim)
    given = given if sensing is None else sensing.given(given)
    settings = settle(data, given)
    require_enough(data, 2 * settings.size)
    arrays = [
        *data.pairs[:3],
        data.starts.x,
        *jax.tree.leaves((data.pairs.u, basis, features, observations, sensor)),
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
                found = Run(settings, transform, phases, source.stream).fit(data)
            return found.with_columns(names)
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


def _refuse_states(initial: Any, inputs: Any) -> None:
    if initial is not None or inputs is not None:
        raise ValueError("Expected observations, dim and sensor where no states are given, got initial or inputs too.")
