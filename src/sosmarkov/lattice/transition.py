"""The lattice transition p(x' | x) = sum_i w_i(x) sum_j A_ij E_j(x'): a chain whose states emit splines."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

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
from sosmarkov.data.dataset import Pairs
from sosmarkov.lattice.beliefs import LatticeBelief
from sosmarkov.lattice.broad import Broad
from sosmarkov.lattice.cells import CellBelief
from sosmarkov.lattice.chain import Chain, Period
from sosmarkov.lattice.counts import PASSES, learn_phases
from sosmarkov.lattice.examine import examine
from sosmarkov.lattice.long_run import LatticeRun
from sosmarkov.lattice.message import Met
from sosmarkov.lattice.nodes import Nodes
from sosmarkov.lattice.readings import LatticeReader
from sosmarkov.lattice.windows import Box, Window
from sosmarkov.spaces.transforms import Identity


def _made(fields: Fields) -> LatticeTransition:
    """Of its rows, one phase after the other."""
    nodes, parts = fields["nodes"], (fields["shares"], fields["columns"], fields["starts"])
    phases, n = divmod(len(parts[2]) - 1, len(nodes)), len(nodes)
    require(phases[0] > 0 and phases[1] == 0, "rows for each of the nodes")
    require(all(part.ndim == 1 for part in parts), "rows as three lists of numbers")
    rows = sp.csr_array(parts, (phases[0] * n, n + 1))
    rows.check_format(full_check=True)
    given = [rows[k * n : (k + 1) * n] for k in range(phases[0])]
    return LatticeTransition(nodes, given, fields["broad"], report=fields["report"], behind=fields["behind"])


@stored("nodes", "broad", "shares", "columns", "starts", "report", "behind", make=_made, optional=["behind"])
class LatticeTransition(AbstractTransition):
    """p(x' | x) = sum_i w_i(x) (sum_(j <= n) A_ij D_j(x') + A_i(n+1) t(x')), normalised for every x.

    Args:
        nodes: Where gates and splines sit, in data space.
        matrix: A, shape (n, n + 1), rows non-negative with sums of one; a list of such, one a phase, for a period: its
            input is the time, and phase 0 moves states at times 0, period, 2 period, ....
        broad: t.
        report: What is worth knowing of how the rows were made, such as the share of rows too narrow for the spacing.
        behind: How many rows of data each row stands for, of all phases, shape (k n,): what more data are counted
            against; None where it was not learned.
    """

    kind: ClassVar[str] = "lattice"

    nodes: Nodes
    broad: Broad
    shares: Float[np.ndarray, " k"]
    columns: Int[np.ndarray, " k"]
    starts: Int[np.ndarray, " r"]
    report: dict[str, float]
    behind: Float[np.ndarray, " b"] | None

    def __init__(
        self,
        nodes: Nodes,
        matrix: Any,
        broad: Broad,
        *,
        report: dict[str, float] | None = None,
        behind: Float[np.ndarray, " b"] | None = None,
    ):
        given = list(matrix) if isinstance(matrix, (list, tuple)) else [matrix]
        rows: Any = sp.vstack([sp.csr_array(one) for one in given], format="csr")
        rows.sum_duplicates()
        n = len(nodes)
        require(len(given) > 0 and rows.shape == (len(given) * n, n + 1), f"rows of shape ({n}, {n + 1})")
        sums = np.asarray(rows.sum(axis=1)).ravel()
        sound = np.all(rows.data >= 0) and np.max(np.abs(sums - 1.0)) < 1e-9
        require(sound, "rows that are not negative and add up to one")
        require(nodes.axes == broad.axes, "a broad part on the axes of the nodes")
        whole = behind is None or (behind.shape == sums.shape and bool(np.all(behind > 0)))
        require(whole, "as many numbers above zero behind rows as there are rows")
        self.behind = behind
        self.nodes, self.broad, self.report = nodes, broad, dict(report or {})
        self.shares, self.columns, self.starts = rows.data.astype(float), rows.indices, rows.indptr

    @cached_property
    def chain(self) -> Chain:
        """Its rows as matrices, and what follows from them."""
        return Chain(self.nodes, self.broad, self.shares, self.columns, self.starts)

    @property
    def phases(self) -> int:
        """How many steps differ."""
        return (len(self.starts) - 1) // len(self.nodes)

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
        return self.chain.normalisation

    def at(self, u: Any) -> LatticeTransition:
        """The transition at one time; itself where steps are all alike."""
        if self.phases == 1:
            return self
        return LatticeTransition(self.nodes, self.chain.matrices[self.chain.phase(u)], self.broad, report=self.report)

    def under(self, u: ArrayLike) -> LatticeTransition:
        """The transition of one phase, checked."""
        if self.features is None:
            return super().under(u)  # type: ignore[return-value]
        given = np.asarray(checks.inputs(u, 1))
        if given.shape != (1,):
            raise ValueError(f"Expected one time, of shape (1,), got {given.shape}.")
        return self.at(given)

    # --- more data --------------------------------------------------------------------------------

    def learned(
        self, pairs: Pairs, strength: float | None = None, passes: int = PASSES
    ) -> tuple[LatticeTransition, dict[str, float]]:
        """Rows after counting more pairs against those they stand for; nodes stay.

        Also how many pairs lead beyond all nodes: they are counted to the broad part.
        """
        behind = self.behind if strength is None else np.full(len(self.starts) - 1, float(strength))
        if behind is None:
            raise ValueError(
                "Expected strength=, how many rows of data each row stands for, with a lattice that was not learned"
                " from data, got none. With 100, a hundred pairs from one place weigh as much as what was known."
            )
        if not np.all(behind > 0):
            raise ValueError(f"Expected a strength above zero, got {strength}.")
        if not np.all(self.chain.inside(pairs.x) & self.chain.inside(pairs.x_next)):
            ends = [(axis.lower, axis.upper) for axis in self.nodes.axes]
            raise ValueError(f"Expected states within the bounds {ends}, got some beyond. Leave them out.")
        times = np.zeros(len(pairs.x)) if self.phases == 1 else np.asarray(pairs.u)[:, 0]
        counted = learn_phases(self.chain, pairs, np.rint(times).astype(int) % self.phases, behind, passes)
        matrices, behind = [one.rows for one in counted], np.concatenate([one.behind for one in counted])
        found = LatticeTransition(self.nodes, matrices, self.broad, report=self.report, behind=behind)
        beyond = int(np.sum(~np.any(self.nodes.densities(pairs.x_next)[1] > 0, axis=1)))
        return found, {"beyond the nodes": beyond}

    # --- the conditional density ------------------------------------------------------------------

    def log_prob(self, x_next: ArrayLike, x: ArrayLike, u: ArrayLike | None = None) -> Float[Any, ...]:
        """log p(x_next | x) for arrays of shape (..., d), at times u (..., 1) in a period; leading axes broadcast."""
        x_next = np.asarray(checks.states(x_next, self.dim, "x_next"))
        x = np.asarray(checks.states(x, self.dim, "x"))
        times = self._times(u)
        shape = np.broadcast_shapes(x_next.shape[:-1], x.shape[:-1], times.shape)
        # Each state that rows start from is looked at once, however many next states there are.
        index = np.broadcast_to(np.arange(x[..., 0].size).reshape(x.shape[:-1]), shape).reshape(-1)
        flat, states = np.broadcast_to(x_next, (*shape, self.dim)).reshape(-1, self.dim), x.reshape(-1, self.dim)
        phases, found = np.broadcast_to(times, shape).reshape(-1), np.empty(len(flat))
        for phase in np.unique(phases):
            pairs = np.flatnonzero(phases == phase)
            found[pairs] = self.chain.log_pairs(flat[pairs], states, index[pairs], int(phase))
        return found.reshape(shape)

    def _times(self, u: ArrayLike | None) -> Any:
        """The phases of times of shape (..., 1)."""
        if self.phases == 1:
            if u is not None:
                raise ValueError("Expected no input for a transition that was built without, got one.")
            return np.zeros((), dtype=int)
        if u is None:
            raise ValueError("Expected the times of steps in a period, got none.")
        return np.rint(np.asarray(checks.inputs(u, 1)))[..., 0].astype(int) % self.phases

    def mass(self, x: ArrayLike, u: ArrayLike | None = None) -> Float[Any, ...]:
        """The sum of gates times sums of rows: one up to rounding; NaN beyond bounds, where no state is."""
        x, phases = np.asarray(checks.states(x, self.dim, "x")), self._times(u)
        gates = self.chain.gates(x.reshape(-1, self.dim))
        each = np.stack([gates @ one for one in self.chain.sums]).reshape(self.phases, *x.shape[:-1])
        found = np.take_along_axis(each, np.broadcast_to(phases, each.shape[1:])[None], axis=0)[0]
        return np.where(self.chain.inside(x), found, np.nan)

    def sample(self, key: Any, x: ArrayLike, u: ArrayLike | None = None) -> Float[Any, "... d"]:
        """One exact draw of x' for each state, by a JAX key, a whole number or a NumPy generator."""
        x, generator = np.asarray(checks.states(x, self.dim, "x")), draws.generator(key)
        flat = x.reshape(-1, self.dim)
        for state in flat[~self.chain.inside(flat)][:1]:
            self.require_inside(state)
        phases = np.broadcast_to(self._times(u), x.shape[:-1]).reshape(-1)
        return self.chain.draw(generator, flat, phases).reshape(x.shape)

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
            if isinstance(found, CellBelief) and found is not belief:
                self._require_whole(found)
        return found.with_columns(None if belief.names is None else belief.columns)

    def _require_whole(self, belief: CellBelief) -> None:
        """Refuse a start of which gates see less than all of it."""
        mass = float(np.exp(belief.log_mass))
        if not abs(mass - 1.0) < 1e-6:
            raise ValueError(
                f"Expected a belief within the bounds of the lattice to start from, of which integrals find all, got a"
                f" {type(belief.prior).__name__} of which they find {mass:.6g}. Give it the lattice's bounds, or more"
                " nodes where it is narrow."
            )

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
        return Met(self.chain.mean_gates(np.asarray(state)[None]), log_scale)

    def enter_lattice(self, belief: Any, reading: Any = None) -> Met:
        """Of a lattice belief, or of one on cells."""
        if reading is not None:
            return reading.enter(belief)
        if isinstance(belief, LatticeBelief) and belief.nodes == self.nodes:
            broad = self.chain.met if belief.broad == self.broad else belief.broad.met(self.nodes)
            return Met(self.chain.banded(belief.C[:-1]) + belief.C[-1] * broad, np.zeros(()))
        return Met(self.cells(belief).seen(), np.zeros(()))

    def message(self, C: Any) -> Met:
        """Bands in turn, and the broad part's own."""
        return Met(self.chain.seen(np.asarray(C)), np.zeros(()))

    def mixed(self, weights: Any, messages: list[Met]) -> Met:
        """The weighted sum."""
        with np.errstate(divide="ignore"):
            logs = np.log(np.asarray(weights)) + np.array([float(message.log_scale) for message in messages])
        total = np.logaddexp.reduce(logs)
        total = total if np.isfinite(total) else 0.0
        return Met(np.exp(logs - total) @ np.stack([message.P for message in messages]), np.asarray(total))

    def carry(self, P: np.ndarray, u: Any = None) -> np.ndarray:
        """A^T P: the next shares of one message, or of many as columns."""
        return self.chain.carry(P, u)

    def push(self, message: Met, u: Any = None) -> Float[Any, " q"]:
        """A^T P."""
        return self.chain.carry(message.P, u)

    def pull(self, backward: Any, u: Any = None) -> Float[Any, " n"]:
        """A v."""
        return self.chain.matrices[self.chain.phase(u)] @ np.asarray(backward)

    def nothing_after(self) -> Float[Any, " n"]:
        """One, everywhere: gates add up to one."""
        return np.ones(len(self.nodes))

    def worth(self, message: Met, backward: Any) -> Any:
        """b . P."""
        return np.asarray(backward) @ message.P

    def belief(self, C: Any) -> LatticeBelief:
        """The lattice belief with these shares."""
        return LatticeBelief(self.nodes, self.broad, C)

    def anywhere(self) -> Float[Any, " q"]:
        """Equal shares."""
        return np.full(len(self.nodes) + 1, 1.0 / (len(self.nodes) + 1))

    def mean_push(self, states: Any) -> Float[Any, " q"]:
        """From the mean of gates."""
        return self.chain.carry(self.chain.mean_gates(np.asarray(states)))

    def mean_after(self, x: Any) -> Float[Any, "n d"]:
        """E[x' | x] of known states: gates times rows times means of splines."""
        x, axes = np.asarray(x), self.nodes.axes
        for state in x[~self.chain.inside(x)][:1]:
            self.require_inside(state)
        splines = np.stack([axis.centres()[0][at] for axis, at in zip(axes, self.nodes.places.T, strict=True)], axis=-1)
        means = np.concatenate([splines, [[self.broad.spread(c)[0] for c in range(self.dim)]]])
        return self.chain.gates(x) @ (self.chain.matrices[0] @ means)

    def log_prob_later(self, x_next: Any, x: Any, gap: int, inputs: Any) -> Float[Any, " n"]:
        """log p(x_(k + gap) | x_k) of pairs, many at once."""
        x_next, x = np.asarray(x_next), np.asarray(x)
        phases = np.zeros(len(x), dtype=int) if self.phases == 1 else self._times(np.asarray(inputs)[:, 0])
        found = np.empty(len(x))
        for phase in np.unique(phases):
            rows = phases == phase
            found[rows] = self.chain.log_later(x_next[rows], x[rows], gap, int(phase))
        return found

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
        """By its rows, its gates and densities between its nodes."""
        return examine(self.chain, self.log_between, initial)

    def log_between(self, x: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "p m m"]:
        """log p(x_i | x_j) between some states, at every time of a period."""
        return np.stack([one.log_prob(x, x[:, None]) for one in map(self.at, range(self.phases))])
