"""`Dataset`, the one record of what was given: transitions, initial states, trajectories, what was read, what acted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from sosmarkov.core.checks import ArrayLike
from sosmarkov.data import given
from sosmarkov.data.recorded import Clock
from sosmarkov.spaces.transforms import Standardize, Transform, rows_to_model

# States beyond this many deviations are set aside, or count as missing within a trajectory.
EXTREME = 100.0
# A standard deviation this many times the one the quartiles suggest is made by a few extreme states.
_CONTAMINATED = 5.0


class Pairs(NamedTuple):
    """Transitions.

    Attributes:
        x: States with a successor, shape (N, d).
        x_next: Their successors, shape (N, d).
        weight: Shape (N,).
        owner: The trajectory each belongs to, shape (N,).
        u: Input of each, shape (N, e); None where there are no inputs.
        reading: What was read of `x_next`, shape (N, k), NaN where missing; None without readings.
    """

    x: np.ndarray
    x_next: np.ndarray
    weight: np.ndarray
    owner: np.ndarray
    u: np.ndarray | None = None
    reading: np.ndarray | None = None

    @property
    def batch(self) -> tuple[np.ndarray, ...]:
        """x, x', weights, and inputs where there are any."""
        return self.x, self.x_next, self.weight, *(() if self.u is None else (self.u,))

    @property
    def read(self) -> tuple[np.ndarray, ...]:
        """x, x', weights and the readings of x'."""
        return _present(self.x, self.x_next, self.weight, self.reading)


class Starts(NamedTuple):
    """Initial states.

    Attributes:
        x: Shape (N0, d).
        weight: Shape (N0,).
        owner: The trajectory each belongs to, shape (N0,).
        reading: What was read of them, shape (N0, k); None without readings.
    """

    x: np.ndarray
    weight: np.ndarray
    owner: np.ndarray
    reading: np.ndarray | None = None

    @property
    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        """States and weights."""
        return self.x, self.weight

    @property
    def read(self) -> tuple[np.ndarray, ...]:
        """States, weights and readings."""
        return _present(self.x, self.weight, self.reading)


class Paths(NamedTuple):
    """Trajectories of one length.

    Attributes:
        states: Shape (M, T, d), zero where missing.
        present: Weight of each state, zero where it is missing, shape (M, T).
        readings: What was read of each state, shape (M, T, k), NaN where missing; None without readings.
        inputs: Input of each step, shape (M, T - 1, e), zero where it leads to no state; None without inputs.
    """

    states: np.ndarray
    present: np.ndarray
    readings: np.ndarray | None = None
    inputs: np.ndarray | None = None

    def batch(self, steps: int | None = None) -> tuple[np.ndarray, ...]:
        """States, weights, readings and inputs, as far as there are any, over so many steps."""
        end = None if steps is None else steps + 1
        inputs = None if self.inputs is None else self.inputs[:, :steps]
        return _present(*(None if a is None else a[:, :end] for a in self[:3]), inputs)


@dataclass(frozen=True, eq=False)
class Dataset:
    """What was given to learn from, as plain arrays.

    Of trajectories, `pairs` and `starts` are the transitions and initial states in them: no pair crosses a gap, and
    none crosses from one trajectory to the next. Of independent pairs, and of one long series, `paths` has none.

    Attributes:
        pairs: Transitions.
        starts: Initial states.
        paths: Trajectories.
        columns: Names of the coordinates, where they have any.
        clock: When states were observed, where that is known.
    """

    pairs: Pairs
    starts: Starts
    paths: Paths
    columns: tuple[str, ...] | None = None
    clock: Clock | None = None

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.pairs.x.shape[1]

    @property
    def whole(self) -> bool:
        """Whether there are trajectories."""
        return len(self.paths.states) > 0

    @property
    def horizon(self) -> int:
        """Transitions in the longest trajectory."""
        return self.paths.states.shape[1] - 1

    @property
    def states(self) -> np.ndarray:
        """All states with their repetitions, for scales, shape (n, d)."""
        return np.concatenate([self.pairs.x, self.pairs.x_next, self.starts.x])

    def mapped(self, function: Callable[[np.ndarray], np.ndarray]) -> Dataset:
        """With a function of arrays (..., d) applied to every state; missing ones stay zero."""
        pairs, starts, paths = self.pairs, self.starts, self.paths
        return dataclasses.replace(
            self,
            pairs=pairs._replace(x=function(pairs.x), x_next=function(pairs.x_next)),
            starts=starts._replace(x=function(starts.x)),
            paths=paths._replace(states=np.where(paths.present[..., None] > 0, function(paths.states), 0.0)),
        )

    def kept(self, usable: Callable[[np.ndarray], np.ndarray]) -> tuple[Dataset, int]:
        """Without the states for which a function from (..., d) to (...) is false, and how many pairs that took away.

        Nothing is shortened: within a trajectory such states count as missing.
        """
        pairs, starts, paths = self.pairs, self.starts, self.paths
        pair, state = usable(pairs.x) & usable(pairs.x_next), usable(paths.states)
        masked = paths._replace(states=np.where(state[..., None], paths.states, 0.0), present=paths.present * state)
        found = dataclasses.replace(
            self, pairs=_rows(pairs, pair), starts=_rows(starts, usable(starts.x)), paths=masked
        )
        return found, int((~pair).sum())

    def within(self, transform: Transform, extreme: float) -> tuple[Dataset, int]:
        """Without the states beyond so many deviations, and how many pairs that took away.

        A simulation that blew up says nothing about the dynamics one can learn, and its likelihood has no useful
        gradient. Nothing is dropped from what is later scored.
        """
        return self.kept(lambda x: np.all(np.abs(rows_to_model(transform, x)[0]) <= extreme, axis=-1))

    def split(self, share: float, seed: int) -> tuple[Dataset, Dataset]:
        """Training and held-out parts, without a clock; a trajectory goes to one of them whole."""
        rng = np.random.default_rng(seed)

        def drawn(count: int) -> list[np.ndarray]:
            order = rng.permutation(count)
            held_out = max(1, round(share * count))
            return [order[held_out:], order[:held_out]]

        paths = drawn(len(self.paths.states))
        if self.paths.readings is not None:
            # Rows stay in the order drawn, in which such fits have always taken them.
            found = [from_paths(_rows(self.paths, rows)) for rows in paths]
        elif self.whole:
            owners = self.pairs.owner, self.starts.owner
            found = [self._part(np.isin(owners[0], rows), np.isin(owners[1], rows), np.sort(rows)) for rows in paths]
        else:
            both = [drawn(len(self.pairs.x)), drawn(len(self.starts.x)), paths]
            found = [self._part(*map(np.sort, rows)) for rows in zip(*both, strict=True)]
        for name, sizes in (
            ("transitions", [len(part.pairs.x) for part in found]),
            ("initial states", [len(part.starts.x) for part in found]),
        ):
            if not all(sizes):
                raise ValueError(
                    f"Expected {name} in both the training and the held-out part, got {sizes[0]} and {sizes[1]}. Give"
                    " more trajectories, or another validation share or seed."
                )
        first, second = (dataclasses.replace(part, columns=self.columns, clock=None) for part in found)
        return first, second

    def with_pairs(self, rows: np.ndarray) -> Dataset:
        """With some of the pairs alone."""
        return dataclasses.replace(self, pairs=_rows(self.pairs, rows))

    def regular(self) -> Dataset:
        """With a pair for every step of the padded trajectories, absent ones with weight zero: shapes are fixed."""
        states, present = self.paths.states, self.paths.present
        weight = np.where(present[:, 1:] > 0, present[:, :-1], 0.0)
        x, x_next = (a.reshape(-1, self.dim) for a in (states[:, :-1], states[:, 1:]))
        owner = np.repeat(np.arange(len(states)), self.horizon)
        return dataclasses.replace(self, pairs=Pairs(x, x_next, weight.reshape(-1), owner))

    def _part(self, pairs: np.ndarray, starts: np.ndarray, paths: np.ndarray) -> Dataset:
        """Some rows of each."""
        return dataclasses.replace(
            self, pairs=_rows(self.pairs, pairs), starts=_rows(self.starts, starts), paths=_rows(self.paths, paths)
        )


_Block = TypeVar("_Block", Pairs, Starts, Paths)


def _rows(block: _Block, rows: np.ndarray) -> _Block:
    return block._replace(**{n: None if array is None else array[rows] for n, array in block._asdict().items()})


def _present(*arrays: np.ndarray | None) -> tuple[np.ndarray, ...]:
    return tuple(array for array in arrays if array is not None)


def from_paths(paths: Paths, here: np.ndarray | None = None) -> Dataset:
    """Trajectories, with the pairs and initial states in them; `here` says which states there are (M, T).

    None: those of a weight above zero.
    """
    here = paths.present > 0 if here is None else here
    owner, k = given.unbroken(here)
    if len(owner) == 0:
        raise ValueError("Expected at least one pair of consecutive states, got none (all gaps, or length one).")
    started = np.flatnonzero(here[:, 0])
    states, present, readings, inputs = paths
    return Dataset(
        Pairs(
            states[owner, k], states[owner, k + 1], present[owner, k], owner,
            None if inputs is None else inputs[owner, k], None if readings is None else readings[owner, k + 1],
        ),
        Starts(states[started, 0], present[started, 0], started, None if readings is None else readings[started, 0]),
        paths,
    )  # fmt: skip


def from_trajectories(
    trajectories: ArrayLike | Sequence[ArrayLike],
    weights: ArrayLike | None = None,
    inputs: ArrayLike | Sequence[ArrayLike] | None = None,
    observations: ArrayLike | Sequence[ArrayLike] | None = None,
) -> Dataset:
    """Pairs, initial states and padded trajectories from (N, T, d) or from a list of (T_i, d).

    A row with a NaN is a gap. Inputs, of shape (N, T - 1, e) or a list of (T_i - 1, e), belong to the steps;
    observations, of shape (N, T, k) or a list of (T_i, k), to the states.
    """
    parts = given.as_list(trajectories)
    lengths = [len(part) for part in parts]
    weight = given.as_weights(weights, len(parts), "trajectory")
    states = given.padded(parts)
    _refuse_infinite(states)
    here = ~np.any(np.isnan(states), axis=2)
    states = np.where(here[..., None], states, 0.0)
    u = None
    if inputs is not None:
        u = given.padded(given.aligned_inputs(inputs, lengths), states.shape[1] - 1)
        known = np.all(np.isfinite(u), axis=2)
        needed = np.flip(np.logical_or.accumulate(np.flip(here[:, 1:], axis=1), axis=1), axis=1)
        if np.any(needed & ~known):
            raise ValueError(
                "Expected a finite input for every step up to a trajectory's last state, got NaN or infinite ones."
                " Beliefs go through gaps in the states, not through gaps in the inputs: split such trajectories."
            )
        u = np.where(known[..., None], u, 0.0)
    readings = None if observations is None else given.as_readings(observations, lengths)
    return from_paths(Paths(states, here * weight[:, None], readings, u), here)


def from_series(trajectories: Sequence[np.ndarray], inputs: ArrayLike | Sequence[ArrayLike] | None = None) -> Dataset:
    """The pairs in one long series (T, d), a list of one: of one trajectory no part could be held out whole.

    Where it was is where it starts: every state is an initial one.
    """
    parts = list(given.as_list(trajectories))
    _refuse_infinite(given.padded(parts))
    u = None if inputs is None else given.aligned_inputs(inputs, [len(part) for part in parts])
    x, x_next, u = given.consecutive(parts, u)
    return from_pairs(x, x_next, given.present_states(parts), inputs=u)


def from_pairs(
    x: ArrayLike,
    x_next: ArrayLike,
    initial: ArrayLike,
    weights: ArrayLike | None = None,
    inputs: ArrayLike | None = None,
) -> Dataset:
    """Independent transition pairs and initial states; NaN is refused here, since it cannot be a gap."""
    x, x_next, initial = (
        given.as_matrix(a, name)
        for a, name in ((x, "transitions[0]"), (x_next, "transitions[1]"), (initial, "initial"))
    )
    if x.shape != x_next.shape:
        raise ValueError(f"Expected as many x as x_next, got {x.shape} and {x_next.shape}.")
    if initial.shape[1] != x.shape[1]:
        raise ValueError(f"Expected initial states with {x.shape[1]} coordinates, got {initial.shape[1]}.")
    weight, count = given.as_weights(weights, len(x), "pair"), len(initial)
    u = None if inputs is None else given.as_matrix(np.asarray(inputs, dtype=float).reshape(len(x), -1), "inputs")
    empty = Paths(np.zeros((0, 2, x.shape[1])), np.zeros((0, 2)))
    return Dataset(
        Pairs(x, x_next, weight, np.arange(len(x)), u),
        Starts(initial, np.ones(count), np.arange(count)),
        empty if u is None else empty._replace(inputs=np.zeros((0, 1, u.shape[1]))),
    )


def _refuse_infinite(states: np.ndarray) -> None:
    if np.any(np.isinf(states)):
        index = int(np.flatnonzero(np.any(np.isinf(states), axis=(1, 2)))[0])
        raise ValueError(f"Expected finite states (NaN rows are gaps), got infinite ones in trajectory {index}.")


def robust_standardize(x: np.ndarray) -> Standardize:
    """Mean and standard deviation per coordinate; median and quartiles where extremes dwarf the rest."""
    low, median, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
    spread = (high - low) / 1.349  # the quartiles of a normal are 1.349 standard deviations apart
    std = np.std(x, axis=0)
    contaminated = (spread > 0) & ~(std < _CONTAMINATED * spread)
    mean = np.where(contaminated, median, np.mean(x, axis=0))
    return Standardize(mean, np.where(contaminated, spread, std))


def scaled(data: Dataset, keep: bool) -> tuple[Dataset, Standardize, Standardize, int]:
    """Trajectories with readings in model space, the maps there, and how many pairs extreme states took away.

    Readings are kept as they are where they are those of a known sensor; inputs always are.
    """
    assert data.paths.readings is not None
    readings, scale_o = scaled_readings(data.paths.readings, keep)
    scale = robust_standardize(data.states)
    usual, lost = data.within(scale, EXTREME)
    found = usual.mapped(lambda x: (x - np.asarray(scale.mean)) / np.asarray(scale.std))
    # What has weight zero is no part of it any more.
    return from_paths(found.paths._replace(readings=readings)), scale, scale_o, lost


def scaled_readings(readings: np.ndarray, keep: bool) -> tuple[np.ndarray, Standardize]:
    """Readings by their own mean and spread, and the map there; or as they are."""
    dim = readings.shape[2]
    columns = [readings[..., c][~np.isnan(readings[..., c])] for c in range(dim)]
    if min(len(column) for column in columns) < 2 or min(np.std(column) for column in columns) == 0:
        raise ValueError("Expected readings that vary in every coordinate, got none or constant ones.")
    if keep:
        return readings, Standardize(np.zeros(dim), np.ones(dim))
    scales = [robust_standardize(column[:, None]) for column in columns]
    scale = Standardize(*(np.concatenate([np.asarray(getattr(s, n)) for s in scales]) for n in ("mean", "std")))
    return (readings - np.asarray(scale.mean)) / np.asarray(scale.std), scale
