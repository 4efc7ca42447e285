"""All numbers of the page, asked of the library: beliefs on grids, quantiles, calibration, the long run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from sosmarkov.contracts.belief import Belief
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.data.given import is_listed
from sosmarkov.forecasting.calibration import Calibration, calibrate, spread, stacked
from sosmarkov.inference.beliefs import Beliefs, BeliefSequence, MixedBeliefs
from sosmarkov.inference.propagate import propagate
from sosmarkov.plots import numbers
from sosmarkov.process.model import Model
from sosmarkov.process.process import MarkovProcess

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
_STEPS, _FRAMES = 10, 31
_PAIRED, _DRIVEN = 12, 256
# Trajectories for densities, and values of distribution functions, which cost more.
_COMPARED, _VALUES = 2000, 5000
# Cells of all pictures together, one byte each: the page stays well below a megabyte.
_CELLS, _SIDES = 350_000, (24, 72)


class Pictures(NamedTuple):
    """Densities on one grid for every step.

    Attributes:
        pairs: Coordinates of each picture, two of them, or the only one.
        axes: Centres of the cells, per coordinate.
        values: Densities, shape (pairs, steps, side, side), or (1, steps, side) for one coordinate; NaN where lost.
    """

    pairs: list[tuple[int, ...]]
    axes: list[np.ndarray]
    values: np.ndarray


class Story(NamedTuple):
    """What the page tells.

    Attributes:
        process: Of whom.
        names: Of the coordinates.
        steps: Steps shown, shape (K,).
        notes: Sentences on what was chosen or left out.
        means: Shape (K, d).
        covariances: Shape (K, d, d).
        mass_error: Largest |int p_k - 1| over the steps.
        quantiles: At SHARES, shape (K, 5, d).
        low: Lower end of what is shown, per coordinate.
        high: Upper end.
        pictures: Of pairs at every step; the long run stands last, where there is one.
        states: Observed states at these steps, (N, K, d) with NaN where there are none; None without data.
        calibration: Of these states; None without data.
        long_run: The stationary belief, or None.
        no_long_run: Why there is none, as a sentence.
    """

    process: Model
    names: list[str]
    steps: np.ndarray
    notes: list[str]
    means: np.ndarray
    covariances: np.ndarray
    mass_error: float
    quantiles: np.ndarray
    low: np.ndarray
    high: np.ndarray
    pictures: Pictures
    states: np.ndarray | None
    calibration: Calibration | None
    long_run: Belief | None
    no_long_run: str


def collect(process: Any, data: ArrayLike | None, steps: int | None, inputs: Any) -> Story:
    """Ask everything once."""
    if not isinstance(process, Model):
        raise ValueError(f"Expected a process or an ensemble to report on, got {type(process).__name__}.")
    states = None if data is None else stacked(data, process.dim)
    steps = checks.count(_default_steps(process, states, inputs) if steps is None else steps, "steps", 1)
    beliefs, notes = beliefs_of(process, steps, inputs)
    begin = 0 if beliefs[0].has_density else 1
    shown = np.unique(np.round(np.linspace(begin, steps, min(_FRAMES, steps + 1 - begin))).astype(int))
    if begin:
        notes.append("It starts from a known state, which has no density: the first step shown is the one after.")
    if len(shown) < steps + 1 - begin:
        notes.append(f"{len(shown)} of {steps + 1 - begin} steps are shown, evenly spaced.")
    chosen = [beliefs[int(k)] for k in shown]
    observed, calibration = _compare(beliefs, states, shown, notes)
    long_run, no_long_run = long_run_of(process)
    # What beliefs of one process share is done once for all of their steps.
    ends = numbers.quantiles(beliefs, [numbers.TAIL, *SHARES, 1 - numbers.TAIL], range(process.dim))[shown]
    low, high = _window(ends, observed, chosen)
    drawn = chosen if long_run is None else [*chosen, long_run]
    return Story(
        process=process,
        names=list(process.columns),
        steps=shown,
        notes=notes,
        means=np.stack([np.asarray(belief.mean()) for belief in chosen]),
        covariances=np.stack([np.asarray(belief.covariance()) for belief in chosen]),
        mass_error=max(abs(float(belief.mass()) - 1.0) for belief in chosen),
        quantiles=ends[:, 1:-1],
        low=low,
        high=high,
        pictures=_pictures(drawn, low, high, notes),
        states=observed,
        calibration=calibration,
        long_run=long_run,
        no_long_run=no_long_run,
    )


def _default_steps(process: Any, states: np.ndarray | None, inputs: Any) -> int:
    """As far as the data go, or the inputs, or what was trained."""
    if states is not None and states.shape[1] > 1:
        return states.shape[1] - 1
    if inputs is not None:
        return max(len(np.atleast_1d(one)) for one in _sequences(inputs))
    return int(getattr(process.history, "chosen", {}).get("horizon", 0)) or _STEPS


def beliefs_of(process: Any, steps: int, inputs: Any) -> tuple[BeliefSequence, list[str]]:
    """Beliefs at steps 0 to `steps`, and sentences on what was assumed for them."""
    features = process.features
    if features is None:
        if inputs is not None:
            raise ValueError("Expected no inputs for a process that was built without them, got some.")
        return process.propagate(steps), []
    if inputs is None and features.period is not None:
        return process.propagate(steps), [f"Time comes round every {features.period} steps; step 0 is at time 0."]
    if inputs is None:
        note = "The process takes inputs; none were given, and all beliefs are under inputs of zero."
        return process.propagate(steps, inputs=np.zeros((steps, features.dim))), [note]
    sequences = _sequences(inputs)
    if len(sequences) == 1:
        return process.propagate(steps, inputs=sequences[0][:steps]), ["Beliefs are under the inputs that were given."]
    return _averaged(process, steps, sequences)


def _sequences(inputs: Any) -> list[np.ndarray]:
    """One sequence of inputs, or those of each trajectory."""
    if is_listed(inputs) or np.ndim(inputs) == 3:
        return [np.asarray(one, dtype=float) for one in inputs]
    return [np.asarray(inputs, dtype=float)]


def _averaged(process: Model, steps: int, sequences: list[np.ndarray]) -> tuple[BeliefSequence, list[str]]:
    """Beliefs of a state whose inputs are those of a trajectory picked at random: coefficients are averaged."""
    kept = [sequences[i] for i in spread(len(sequences), _DRIVEN)]
    given = np.zeros((len(kept), steps, process.features.dim))  # type: ignore[union-attr]
    there = np.zeros((len(kept), steps))
    for row, here, one in zip(given, there, kept, strict=True):
        length = min(steps, len(one))
        row[:length] = np.asarray(process.members[0].transition.steps_of(one[:length], length))
        here[:length] = 1.0
    if not there.any(axis=0).all():
        raise ValueError(f"Expected inputs for {steps} steps, got at most {int(there.sum(axis=1).max())} of them.")
    share = there / there.sum(axis=0)
    if not process.members[0].transition.compiled:
        return _mixed(process, given, share), [_average_note(len(kept), len(sequences))]
    found = [_mean_path(member, jnp.asarray(given), jnp.asarray(share)) for member in process.members]
    weights = jnp.full((steps + 1, len(found)), 1.0 / len(found))
    beliefs = found[0] if len(found) == 1 else MixedBeliefs(tuple(found), weights)
    return beliefs, [_average_note(len(kept), len(sequences))]


def _average_note(kept: int, given: int) -> str:
    """What the beliefs are averages over."""
    picked = "trajectories" if kept == given else f"of the {given} trajectories, evenly picked"
    return f"Beliefs are averages over the inputs of {kept} {picked}, exactly: each is as likely as another."


def _mixed(process: Model, inputs: np.ndarray, share: np.ndarray) -> BeliefSequence:
    """The same as mixtures, for forms whose beliefs are no arrays to average."""
    paths = tuple(process.propagate(inputs.shape[1], inputs=one) for one in inputs)
    weights = np.concatenate([np.full((1, len(paths)), 1.0 / len(paths)), share.T])
    return MixedBeliefs(paths, jnp.asarray(weights))


def _mean_path(member: MarkovProcess, inputs: Array, share: Array) -> Beliefs:
    C = _run(member.transition, member.initial, inputs)
    return Beliefs(member.initial, member.transition, jnp.einsum("nk,nkq->kq", share, C))


@eqx.filter_jit
def _run(dynamics: Any, initial: Belief, inputs: Array) -> Array:
    steps = inputs.shape[1]
    return lax.map(lambda u: propagate(dynamics, initial, steps, u), inputs, batch_size=min(64, len(inputs)))


def _compare(
    beliefs: Sequence[Belief], states: np.ndarray | None, shown: np.ndarray, notes: list[str]
) -> tuple[np.ndarray | None, Calibration | None]:
    """Observed states at the steps shown, and where they fall in the beliefs."""
    if states is None:
        return None, None
    rows = spread(len(states), _COMPARED)
    if len(rows) < len(states):
        notes.append(f"{len(rows)} of the {len(states)} trajectories given are used, evenly picked.")
    observed = np.full((len(rows), len(shown), states.shape[2]), np.nan)
    within = shown < states.shape[1]
    observed[:, within] = states[rows][:, shown[within]]
    seen = shown[~np.isnan(observed[..., 0]).all(axis=0)].tolist()
    if not seen:
        notes.append("The data have no state at any step that is shown: nothing is compared.")
        return None, None
    most = int(np.clip(_VALUES // (len(seen) * states.shape[2]), 60, 500))
    if most < len(rows):
        notes.append(f"Coverage and PIT are those of {most} trajectories, evenly picked.")
    return observed, calibrate(beliefs, states[rows], seen, most=most)


def _window(ends: np.ndarray, observed: np.ndarray | None, beliefs: list[Belief]) -> tuple[np.ndarray, np.ndarray]:
    """What is shown of each coordinate: nearly all of every belief and of the data."""
    low, high = ends[:, 0].min(axis=0), ends[:, -1].max(axis=0)
    if observed is not None:
        low = np.minimum(low, np.nanquantile(observed, numbers.TAIL, axis=(0, 1)))
        high = np.maximum(high, np.nanquantile(observed, 1 - numbers.TAIL, axis=(0, 1)))
    return numbers.widened(low, high, beliefs)


def long_run_of(process: Any) -> tuple[Belief | None, str]:
    """The stationary belief, or None and a sentence on why there is none."""
    try:
        return process.stationary(), ""
    except ValueError as error:
        if process.features is None:
            return None, f"There is no single long run: {error}"
        return None, (
            "A process with inputs or a period has no single long run: it depends on what it is driven by. Ask"
            " process.under(u) for the long run under one input."
        )


def _pictures(beliefs: list[Belief], low: np.ndarray, high: np.ndarray, notes: list[str]) -> Pictures:
    dim = len(low)
    if dim == 1:
        axes = [numbers.axis_between(low[0], high[0], numbers.CELLS)]
        return Pictures([(0,)], axes, np.stack([numbers.density_on(belief, axes) for belief in beliefs])[None])
    pairs = list(combinations(range(min(dim, _PAIRED)), 2))
    if dim > _PAIRED:
        notes.append(f"Pictures are of pairs of the first {_PAIRED} of {dim} coordinates; fans are of all.")
    least, most = _SIDES
    side = int(np.clip(np.sqrt(_CELLS / (len(pairs) * len(beliefs))), least, most))
    axes = [numbers.axis_between(*ends, side) for ends in zip(low, high, strict=True)]
    values = np.stack([numbers.densities_on(beliefs, pair, [axes[c] for c in pair]) for pair in pairs])
    lost = int(np.isnan(values).sum())
    if lost:
        notes.append(f"{lost} of {values.size} cells are blank: rounding leaves no digit of their density.")
    return Pictures(pairs, axes, values)
