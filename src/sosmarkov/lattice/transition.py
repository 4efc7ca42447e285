"""The lattice transition p(x' | x) = sum_i w_i(x) sum_j A_ij E_j(x'): a chain whose states emit splines."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.check import CheckReport
from sosmarkov.contracts.known import KnownState
from sosmarkov.contracts.mixture import MixtureBelief
from sosmarkov.contracts.transition import AbstractTransition
from sosmarkov.core import checks, draws
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import Fields, require, stored
from sosmarkov.lattice.beliefs import LatticeBelief, placed
from sosmarkov.lattice.broad import Broad
from sosmarkov.lattice.cells import CellBelief
from sosmarkov.lattice.long_run import LatticeRun
from sosmarkov.lattice.message import Met
from sosmarkov.lattice.nodes import Nodes
from sosmarkov.lattice.readings import LatticeReader
from sosmarkov.lattice.windows import Box, Window
from sosmarkov.spaces.transforms import Identity

# Numbers of rows from states that are held at once.
_BLOCK = 8_000_000


class Period(NamedTuple):
    """Inputs that are times of a period."""

    dim: int
    period: int


def _made(fields: Fields) -> LatticeTransition:
    """Of its rows, one phase after the other."""
    nodes, parts = fields["nodes"], (fields["shares"], fields["columns"], fields["starts"])
    phases, n = divmod(len(parts[2]) - 1, len(nodes)), len(nodes)
    require(phases[0] > 0 and phases[1] == 0, "rows for each of the nodes")
    require(all(part.ndim == 1 for part in parts), "rows as three lists of numbers")
    rows = sp.csr_array(parts, (phases[0] * n, n + 1))
    rows.check_format(full_check=True)
    given = [rows[k * n : (k + 1) * n] for k in range(phases[0])]
    return LatticeTransition(nodes, given, fields["broad"], report=fields["report"])


@stored("nodes", "broad", "shares", "columns", "starts", "report", make=_made)
class LatticeTransition(AbstractTransition):
    """p(x' | x) = sum_i w_i(x) (sum_(j <= n) A_ij D_j(x') + A_i(n+1) t(x')), normalised for every x.

    Args:
        nodes: Where gates and splines sit, in data space.
        matrix: A, shape (n, n + 1), rows non-negative with sums of one; a list of such, one a phase, for a period: its
            input is the time, and phase 0 moves states at times 0, period, 2 period, ....
        broad: t.
        report: What is worth knowing of how the rows were made, such as the share of rows too narrow for the spacing.
    """

    nodes: Nodes
    broad: Broad
    shares: Float[np.ndarray, " k"]
    columns: Int[np.ndarray, " k"]
    starts: Int[np.ndarray, " r"]
    report: dict[str, float]

    def __init__(
        self,
        nodes: Nodes,
        matrix: Any,
        broad: Broad,
        *,
        report: dict[str, float] | None = None,
    ):
        given = list(matrix) if isinstance(matrix, (list, tuple)) else [matrix]
        rows = sp.vstack([sp.csr_array(one) for one in given], format="csr")
        rows.sum_duplicates()
        n = len(nodes)
        require(len(given) > 0 and rows.shape == (len(given) * n, n + 1), f"rows of shape ({n}, {n + 1})")
        sums = np.asarray(rows.sum(axis=1)).ravel()
        sound = np.all(rows.data >= 0) and np.max(np.abs(sums - 1.0)) < 1e-9
        require(sound, "rows that are not negative and add up to one")
        require(nodes.axes == broad.axes, "a broad part on the axes of the nodes")
        self.nodes, self.broad, self.report = nodes, broad, dict(report or {})
        self.shares, self.columns, self.starts = rows.data.astype(float), rows.indices, rows.indptr

    # --- what it is made of -----------------------------------------------------------------------

    @property
    def phases(self) -> int:
        """How many steps differ."""
        return (len(self.starts) - 1) // len(self.nodes)

    @cached_property
    def matrices(self) -> list[sp.csr_array]:
        """A of each phase."""
        n, found = len(self.nodes), []
        for phase in range(self.phases):
            starts = self.starts[phase * n : (phase + 1) * n + 1]
            part = slice(starts[0], starts[-1])
            found.append(sp.csr_array((self.shares[part], self.columns[part], starts - starts[0]), (n, n + 1)))
        return found

    @cached_property
    def _turned(self) -> list[sp.csr_array]:
        """A^T of each phase, by rows as well: a step runs through memory once, in order."""
        return [matrix.T.tocsr() for matrix in self.matrices]

    @cached_property
    def bands(self) -> list[sp.csr_array]:
        """int w_i D_j, as bands to be applied in turn."""
        return self.nodes.meet()

    @cached_property
    def met(self) -> Float[np.ndarray, " n"]:
        """int w_i t."""
        return self.broad.met(self.nodes)

    # --- what it is -------------------------------------------------------------------------------

    @property
    def transform(self) -> Identity:
        """None: nodes are in data space."""
        return Identity(self.dim)

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return self.nodes.dim

    @property
    def features(self) -> Period | None:
        """The time, where there is a period."""
        return None if self.phases == 1 else Period(1, self.phases)

    @property
    def parameter_count(self) -> int:
        """Free shares of all rows."""
        return len(self.shares) - (len(self.starts) - 1)

    def summary(self) -> str:
        """The form, and how fine it is."""
        spacing = ", ".join(f"{h:.3g}" for h in self.nodes.spacing)
        return f"lattice of splines {spacing} apart{'' if self.phases == 1 else f', {self.phases} phases'}"

    @property
    def sizes(self) -> str:
        """Nodes, and how many of them a row reaches."""
        return f"{len(self.nodes):,} nodes, {len(self.shares) / (len(self.starts) - 1):.0f} entries a row"

    @property
    def normalisation(self) -> float:
        """By how much a row may miss the sum one."""
        return max(float(np.max(np.abs(np.asarray(matrix.sum(axis=1)).ravel() - 1.0))) for matrix in self.matrices)

    def phase(self, u: Any) -> int:
        """The phase of one time; zero where steps are all alike."""
        if self.phases == 1:
            return 0
        if u is None:
            raise ValueError("Expected the time of a step in a period, got none.")
        return int(np.rint(np.asarray(u).reshape(-1)[0])) % self.phases

    def at(self, u: Any) -> LatticeTransition:
        """The transition at one time; itself where steps are all alike."""
        if self.phases == 1:
            return self
        return LatticeTransition(self.nodes, self.matrices[self.phase(u)], self.broad, report=self.report)

    def under(self, u: ArrayLike) -> LatticeTransition:
        """The transition of one phase, checked."""
        if self.features is None:
            return super().under(u)  # type: ignore[return-value]
        given = np.asarray(checks.inputs(u, 1))
        if given.shape != (1,):
            raise ValueError(f"Expected one time, of shape (1,), got {given.shape}.")
        return self.at(given)

    # --- the conditional density ------------------------------------------------------------------

    def numbers_from(self, x: Float[np.ndarray, "n d"], u: Any = None) -> sp.csr_array:
        """Shares of the belief one step after each of many known states, shape (n, n + 1), sparse."""
        return self._gates(x) @ self.matrices[self.phase(u)]

    def _gates(self, x: Float[np.ndarray, "n d"]) -> sp.csr_array:
        at, values = self.nodes.gates(x)
        starts = np.arange(len(x) + 1) * at.shape[1]
        found = sp.csr_array((values.reshape(-1), at.reshape(-1), starts), (len(x), len(self.nodes)))
        found.sum_duplicates()
        return found

    def log_prob(self, x_next: ArrayLike, x: ArrayLike, u: ArrayLike | None = None) -> Float[np.ndarray, ...]:
        """log p(x_next | x) for arrays of shape (..., d), at times u (..., 1) in a period; leading axes broadcast."""
        x_next = np.asarray(checks.states(x_next, self.dim, "x_next"))
        x = np.asarray(checks.states(x, self.dim, "x"))
        times = self._times(u)
        shape = np.broadcast_shapes(x_next.shape[:-1], x.shape[:-1], times.shape)
        # Each state that rows start from is looked at once, however many next states there are.
        index = np.broadcast_to(np.arange(x[..., 0].size).reshape(x.shape[:-1]), shape).reshape(-1)
        flat, states = np.broadcast_to(x_next, (*shape, self.dim)).reshape(-1, self.dim), x.reshape(-1, self.dim)
        phases = np.broadcast_to(times, shape).reshape(-1)
        found = np.empty(len(flat))
        for phase in np.unique(phases):
            pairs = np.flatnonzero(phases == phase)
            found[pairs] = self._log_pairs(flat[pairs], states, index[pairs], int(phase))
        return found.reshape(shape)

    def _times(self, u: ArrayLike | None) -> np.ndarray:
        """The phases of times of shape (..., 1)."""
        if self.phases == 1:
            if u is not None:
                raise ValueError("Expected no input for a transition that was built without, got one.")
            return np.zeros((), dtype=int)
        if u is None:
            raise ValueError("Expected the times of steps in a period, got none.")
        return np.rint(np.asarray(checks.inputs(u, 1)))[..., 0].astype(int) % self.phases

    def _log_pairs(self, x_next: np.ndarray, x: np.ndarray, index: np.ndarray, phase: int) -> np.ndarray:
        """log p(x_next | x_index) of pairs."""
        matrix, found = self.matrices[phase], np.full(len(x_next), -np.inf)
        inside = self._inside(x)
        wide = max(1, int(_BLOCK * len(self.nodes) / (3**self.dim * matrix.nnz)))
        order = np.argsort(index, kind="stable")
        order = order[inside[index[order]]]
        for i in range(0, len(order), wide):
            pairs = order[i : i + wide]
            own, row = np.unique(index[pairs], return_inverse=True)
            rows = self._gates(x[own]) @ matrix
            at, values = self.nodes.densities(x_next[pairs])
            held = np.asarray(rows[np.repeat(row, at.shape[1]), at.reshape(-1)]).reshape(at.shape)
            broad = np.asarray(rows[:, [len(self.nodes)]].toarray()).reshape(-1)[row]
            with np.errstate(divide="ignore"):
                near = np.log(np.einsum("nk,nk->n", held, values))
                found[pairs] = np.logaddexp(near, np.log(broad) + self.broad.log_prob(x_next[pairs]))
        return found

    def _inside(self, x: np.ndarray) -> np.ndarray:
        return np.all([axis.allowed(x[..., c]) for c, axis in enumerate(self.nodes.axes)], axis=0)

    def mass(self, x: ArrayLike, u: ArrayLike | None = None) -> Float[np.ndarray, ...]:
        """The sum of gates times sums of rows: one up to rounding; NaN beyond bounds, where no state is."""
        x, phases = np.asarray(checks.states(x, self.dim, "x")), self._times(u)
        flat = x.reshape(-1, self.dim)
        sums = [np.asarray(matrix.sum(axis=1)).ravel() for matrix in self.matrices]
        gates = self._gates(flat)
        each = np.stack([gates @ one for one in sums]).reshape(self.phases, *x.shape[:-1])
        found = np.take_along_axis(each, np.broadcast_to(phases, each.shape[1:])[None], axis=0)[0]
        return np.where(self._inside(x), found, np.nan)

    def sample(self, key: Any, x: ArrayLike, u: ArrayLike | None = None) -> Float[np.ndarray, "... d"]:
        """One exact draw of x' for each state: a gate, an entry of its row, a place under its spline."""
        x, generator = np.asarray(checks.states(x, self.dim, "x")), draws.generator(key)
        flat = x.reshape(-1, self.dim)
        for state in flat[~self._inside(flat)][:1]:
            self.require_inside(state)
        phases = np.broadcast_to(self._times(u), x.shape[:-1]).reshape(-1)
        at, values = self.nodes.gates(flat)
        below = np.cumsum(values, axis=1)
        which = np.sum(generator.random((len(flat), 1)) * below[:, -1:] > below, axis=1)
        row = phases * len(self.nodes) + at[np.arange(len(flat)), np.minimum(which, at.shape[1] - 1)]
        # Rows one after the other: the entry up to which a row holds a share.
        below = self._below
        begin = np.where(self.starts[row] > 0, below[self.starts[row] - 1], 0.0)
        end = below[self.starts[row + 1] - 1]
        entry = np.searchsorted(below, begin + generator.random(len(flat)) * (end - begin), side="right")
        entry = np.clip(entry, self.starts[row], self.starts[row + 1] - 1)
        return placed(generator, self.nodes, self.broad, self.columns[entry]).reshape(x.shape)

    @cached_property
    def _below(self) -> Float[np.ndarray, " k"]:
        return np.cumsum(self.shares)

    # --- the step ---------------------------------------------------------------------------------

    def start(self, initial: Any) -> Belief:
        """A belief of any kind: those that are no lattice densities on these nodes enter by integrals of gates."""
        belief = initial if isinstance(initial, Belief) else KnownState(initial)
        if belief.dim != self.dim:
            raise ValueError(f"Expected an initial belief over {self.dim} coordinates, got {belief.dim}.")
        return self._taken(belief)

    def _taken(self, belief: Belief) -> Belief:
        if isinstance(belief, KnownState):
            belief.require_of(self)
            return belief
        parts = belief.parts()
        if len(parts) > 1:
            logs = np.array([float(log) for log, _ in parts])
            members = [self._taken(part) for _, part in parts]
            same = all(one is part for one, (_, part) in zip(members, parts, strict=True))
            found = belief if same else MixtureBelief(members, np.exp(logs - np.max(logs)))
        else:
            own = isinstance(belief, LatticeBelief) and belief.nodes == self.nodes
            found = belief if own else self.cells(belief)
        return found.with_columns(None if belief.names is None else belief.columns)

    def cells(self, belief: Belief) -> CellBelief:
        """A belief as one that enters these gates by integrals on cells."""
        if isinstance(belief, CellBelief) and belief.nodes == self.nodes:
            return belief
        return CellBelief(belief, self.nodes)

    def require_inside(self, state: Any) -> None:
        """Refuse a state beyond a bound."""
        for c, axis in enumerate(self.nodes.axes):
            x = float(np.asarray(state)[c])
            if not axis.allowed(np.asarray(x)):
                raise ValueError(
                    f"Expected states between {axis.lower:g} and {axis.upper:g} in coordinate {c}, got {x:g}."
                )

    def enter_state(self, state: Any, reading: Any = None) -> Met:
        """The gates at the state: exact."""
        log_scale = np.zeros(()) if reading is None else np.asarray(reading.log_prob(state))
        return Met(self._mean_gates(np.asarray(state)[None]), log_scale)

    def _mean_gates(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        at, values = self.nodes.gates(x)
        return np.bincount(at.reshape(-1), values.reshape(-1), len(self.nodes)) / len(x)

    def enter_lattice(self, belief: Any, reading: Any = None) -> Met:
        """Of a lattice belief, or of one on cells."""
        if reading is not None:
            return reading.enter(belief)
        if isinstance(belief, LatticeBelief) and belief.nodes == self.nodes:
            broad = self.met if belief.broad == self.broad else belief.broad.met(self.nodes)
            return Met(self._banded(belief.C[:-1]) + belief.C[-1] * broad, np.zeros(()))
        return Met(self.cells(belief).seen(), np.zeros(()))

    def _banded(self, held: np.ndarray) -> np.ndarray:
        for band in self.bands:
            held = band @ held
        return held

    def seen(self, C: Float[np.ndarray, q * b]) -> Float[np.ndarray, n * b]:
        """What gates see of beliefs with these shares, one or many as columns."""
        return self._banded(C[:-1]) + (C[-1] * self.met if C.ndim == 1 else self.met[:, None] * C[-1])

    def message(self, C: Any) -> Met:
        """Bands in turn, and the broad part's own."""
        return Met(self.seen(np.asarray(C)), np.zeros(()))

    def mixed(self, weights: Any, messages: list[Met]) -> Met:
        """The weighted sum."""
        with np.errstate(divide="ignore"):
            logs = np.log(np.asarray(weights)) + np.array([float(message.log_scale) for message in messages])
        total = np.logaddexp.reduce(logs)
        total = total if np.isfinite(total) else 0.0
        return Met(np.exp(logs - total) @ np.stack([message.P for message in messages]), np.asarray(total))

    def carry(self, P: Float[np.ndarray, n * b], u: Any = None) -> Float[np.ndarray, q * b]:
        """A^T P: the next shares of one message, or of many as columns."""
        return self._turned[self.phase(u)] @ P

    def push(self, message: Met, u: Any = None) -> Float[np.ndarray, " q"]:
        """A^T P."""
        return self.carry(message.P, u)

    def pull(self, backward: Any, u: Any = None) -> Float[np.ndarray, " n"]:
        """A v."""
        return self.matrices[self.phase(u)] @ np.asarray(backward)

    def nothing_after(self) -> Float[np.ndarray, " n"]:
        """One, everywhere: gates add up to one."""
        return np.ones(len(self.nodes))

    def worth(self, message: Met, backward: Any) -> Any:
        """b . P."""
        return np.asarray(backward) @ message.P

    def belief(self, C: Any) -> LatticeBelief:
        """The lattice belief with these shares."""
        return LatticeBelief(self.nodes, self.broad, C)

    def anywhere(self) -> Float[np.ndarray, " q"]:
        """Equal shares."""
        return np.full(len(self.nodes) + 1, 1.0 / (len(self.nodes) + 1))

    def mean_push(self, states: Any) -> Float[np.ndarray, " q"]:
        """From the mean of gates."""
        return self.carry(self._mean_gates(np.asarray(states)))

    def log_prob_later(self, x_next: Any, x: Any, gap: int, inputs: Any) -> Float[np.ndarray, " n"]:
        """log p(x_(k + gap) | x_k) of pairs, many at once."""
        x_next, x = np.asarray(x_next), np.asarray(x)
        phases = np.zeros(len(x), dtype=int) if self.phases == 1 else self._times(np.asarray(inputs)[:, 0])
        found = np.empty(len(x))
        for phase in np.unique(phases):
            rows = np.flatnonzero(phases == phase)
            if gap == 1:
                found[rows] = self._log_pairs(x_next[rows], x[rows], np.arange(len(rows)), int(phase))
                continue
            wide = max(1, _BLOCK // len(self.nodes))
            for part in (rows[i : i + wide] for i in range(0, len(rows), wide)):
                C = self.numbers_from(x[part], [phase]).toarray().T
                for k in range(1, gap):
                    C = self.carry(self.seen(C), [phase + k])
                found[part] = self._log_each(x_next[part], C)
        return found

    def _log_each(self, x: Float[np.ndarray, "n d"], C: Float[np.ndarray, "q n"]) -> Float[np.ndarray, " n"]:
        """log-density of each state under a belief of its own."""
        at, values = self.nodes.densities(x)
        with np.errstate(divide="ignore"):
            near = np.log(np.sum(C[at, np.arange(len(x))[:, None]] * values, axis=1))
            return np.logaddexp(near, np.log(C[-1]) + self.broad.log_prob(x))

    # --- boxes, readings, the long run ------------------------------------------------------------

    def box(self, lower: ArrayLike, upper: ArrayLike) -> Box:
        """A box in data space."""
        return Box(lower, upper, self.dim)

    def window(self, box: Box) -> Window:
        """Of what lies in a box."""
        return Window(self, ((1, box),))

    def everywhere(self) -> Window:
        """Of all there is."""
        return Window(self, ((1, None),))

    def reader(self, sensor: Any) -> LatticeReader:
        """Any sensor of the state alone."""
        return LatticeReader(self, sensor)

    @property
    def long_run(self) -> LatticeRun:
        """By sparse algebra."""
        return LatticeRun(self)

    def examine(self, initial: Belief) -> CheckReport:
        """Rows and gates have sums of one; densities between states spread over the nodes are numbers."""
        sums = np.asarray(initial.mass())
        bands = np.ones(len(self.nodes))
        for band in reversed(self.bands):
            bands = band.T @ bands
        gates = max(float(np.max(np.abs(bands - 1.0))), abs(float(np.sum(self.met)) - 1.0))
        some = self.nodes.points[:: max(1, len(self.nodes) // 40)]
        logs = np.concatenate([one.log_prob(some, some[:, None]).ravel() for one in map(self.at, range(self.phases))])
        return CheckReport(
            normalisation_error=max(self.normalisation, gates),
            initial_mass_error=abs(float(sums) - 1.0),
            smallest_log_density=float(np.min(logs)),
            condition_factor=1.0,
            condition_gram=1.0,
            amplification=1.0,
            iterations=0,
            residual=0.0,
            converged=True,
        )
