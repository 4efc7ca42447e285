"""The long run of a chain on a lattice: sparse eigenvectors, solves and powers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse.linalg
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.long_run import LongRun
from sosmarkov.lattice import splines, tables
from sosmarkov.lattice.axis import Axis
from sosmarkov.lattice.broad import Broad

# Up to so many nodes matrices are dense; and so many eigenvalues beyond.
_DENSE, _DENSE_SPECTRUM, _EIGENVALUES = 1500, 600, 64
# Steps before a power is taken by squaring; what may still be to come where steps stop.
_STEPS, _LEFT = 4096, 1e-13
_SOLVED = 1e-9

# Its annotations know fewer arguments than it does.
sla: Any = scipy.sparse.linalg


@dataclass(frozen=True)
class LatticeRun(LongRun):
    """By the chain's own sparse matrices.

    Args:
        transition: A `LatticeTransition`; steps are all alike, but for `far`, which knows the phases of a period.
    """

    transition: Any

    def step(self, C: np.ndarray) -> np.ndarray:
        """C_k -> C_(k+1), of one belief or of many."""
        return self.transition.chain.carry(self.transition.chain.seen(C))

    def matrix(self, window: Any = None) -> Float[np.ndarray, "q q"]:
        """The same as a matrix."""
        whole = np.eye(len(self.transition.nodes) + 1)
        return self.transition.chain.carry(self.transition.chain.seen(whole) if window is None else window.seen(whole))

    def far(self, initial: Belief, steps: int) -> Float[np.ndarray, " q"]:
        """Steps until nothing changes any more; where that takes long, the power of a dense matrix."""
        transition, period = self.transition, self.transition.phases
        C = transition.push(transition.enter(initial), [0.0])
        # To the end of the first period, then whole ones, then the rest.
        C = self._cycle(C, 1, min(period, steps))
        left, rest = divmod(max(steps - period, 0), period)
        most = min(left, _STEPS) if len(transition.nodes) <= _DENSE else left
        C, left = self._stepped(C, most, left, lambda C: self._cycle(C, 0, period))
        if left:
            C = self._power(C, left)
        return self._cycle(C, 0, rest)

    def _cycle(self, C: np.ndarray, begin: int, end: int) -> np.ndarray:
        """The steps of some phases of a period."""
        chain = self.transition.chain
        for phase in range(begin, end):
            C = chain.carry(chain.seen(C), [phase])
        return C

    def _power(self, C: np.ndarray, left: int) -> np.ndarray:
        """Whole periods by squaring."""
        power = self._cycle(np.eye(len(C)), 0, self.transition.phases)
        while left:
            C = power @ C if left % 2 else C
            left //= 2
            power = power @ power if left else power
        return C / np.sum(C)

    def _stepped(
        self, C: np.ndarray, most: int, left: int, step: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> tuple[np.ndarray, int]:
        """At most so many steps, and what is left of them: none where the rest would change nothing."""
        last = np.inf
        for _ in range(most):
            moved = self.step(C) if step is None else step(C)
            change = float(np.sum(np.abs(moved - C)))
            ratio = change / last if last > 0 else 0.0
            C, left, last = moved, left - 1, change
            # Changes shrink by this factor a step: all that are to come add up to so much.
            if change == 0 or (ratio < 1.0 and change * ratio / (1.0 - ratio) < _LEFT and change < 1e-12):
                return C, 0
        return C, left

    def fixed(self, initial: Belief) -> Float[np.ndarray, " q"]:
        """The eigenvector of the eigenvalue one; a ValueError where there are two of them."""
        start = self.transition.push(self.transition.enter(initial))
        size = len(start)
        if size <= 64:
            found: Any = np.linalg.eig(self.matrix())
        else:
            operator = sla.LinearOperator((size, size), matvec=self.step, dtype=float)
            found = sla.eigs(operator, k=2, v0=start, tol=0.0)
        values, vectors = found
        order = np.argsort(-values.real)
        if len(values) > 1 and abs(values[order[1]] - 1.0) < 1e-11:
            raise ValueError(
                "Expected a process with one stationary belief, got one that falls apart into parts that do not"
                " communicate (an eigenvalue one more than once). See process.spectrum()."
            )
        # Of one sign but for rounding, as an eigenvector of a chain is.
        C = np.abs(vectors[:, order[0]].real)
        C, _ = self._stepped(C / np.sum(C), 64, 64)
        C = C / np.sum(C)
        missed = float(np.sum(np.abs(self.step(C) - C)))
        if missed > 1e-10:
            raise ValueError(
                f"Expected a stationary belief that a step leaves as it is, got one it moves by {missed:.1g}: the"
                " process mixes too slowly for its eigenvector to be told. See process.spectrum()."
            )
        return C

    def spectrum(self) -> np.ndarray:
        """Eigenvalues, the largest first: all of a small chain, the largest of a large one."""
        size = len(self.transition.nodes) + 1
        if size <= _DENSE_SPECTRUM:
            values = np.linalg.eigvals(self.matrix())
        else:
            operator = sla.LinearOperator((size, size), matvec=self.step, dtype=float)
            v0 = np.random.default_rng(0).random(size)
            values = sla.eigs(operator, k=_EIGENVALUES, v0=v0, return_eigenvectors=False)
        return values[np.argsort(-np.abs(values), kind="stable")]

    def distance(self, one: np.ndarray, other: np.ndarray) -> float:
        """Half the sum of the differences of shares: densities are mixed by them, and steps mix further."""
        return 0.5 * float(np.sum(np.abs(np.asarray(one) - np.asarray(other))))

    def correlations(self, fixed: np.ndarray, coordinate: int, steps: int) -> np.ndarray:
        """Corr(x_c at 0, x_c at k): what a step makes of (x_c - mean) p, and the mean of that."""
        transition = self.transition
        nodes, broad, C = transition.nodes, transition.broad, np.asarray(fixed)
        belief = transition.belief(C)
        mean = float(belief.mean()[coordinate])
        found = []
        for c, axis in enumerate(nodes.axes):
            own = broad.onto([c])
            found.append(_first_moments(axis, own, mean) if c == coordinate else tables.plain(axis, own))
        P = nodes.met(C[:-1], [one.table for one in found])
        P = P + C[-1] * nodes.gathered([one.broad for one in found])
        away = nodes.axes[coordinate].centres()[0][nodes.places[:, coordinate]] - mean
        v = np.append(away, broad.spread(coordinate)[0] - mean)
        covariances = []
        C = transition.chain.carry(P)
        for _ in range(steps):
            covariances.append(v @ C)
            C = self.step(C)
        return np.concatenate([[1.0], np.array(covariances) / belief.covariance()[coordinate, coordinate]])

    def visits(self, window: Any, C: np.ndarray) -> Float[np.ndarray, " q"]:
        """(I - S)^(-1) C, S the step of what the window lets through: dense where it is small, else by GMRES."""
        C = np.asarray(C)
        if len(C) <= _DENSE:
            found = np.linalg.solve(np.eye(len(C)) - self.matrix(window), C)
        else:
            apply = sla.LinearOperator(
                (len(C), len(C)), matvec=lambda v: v - self.transition.chain.carry(window.seen(v)), dtype=float
            )
            found, _ = sla.gmres(apply, C, rtol=1e-13, restart=100, maxiter=200)
        missed = np.sum(np.abs(found - self.transition.chain.carry(window.seen(found)) - C)) / np.sum(np.abs(found))
        if not missed < _SOLVED:
            raise ValueError(
                "Expected a box that is reached from everywhere sooner or later, got one that may never be, or only"
                f" after ever so long: its equation is solved to {missed:.1g}. Ask process.reach_probability."
            )
        return found


def _first_moments(axis: Axis, broad: Broad, mean: float) -> tables.Seen:
    """With x - mean between: int B_(j + s) D_j (x - mean), int B_i t (x - mean)."""
    places, weights = splines.cell_rule(8)
    cells = axis.cells()
    t = np.tile(places, len(cells))
    cell = np.repeat(cells, len(places))
    x = axis.origin + axis.spacing * (cell + t)
    w = axis.spacing * np.tile(weights, len(cells)) * (x - mean)
    mass = tables.gates(axis, cell, t, w * np.exp(broad.log_line(0, x)))
    middle, twice = broad.middle(0)
    rest = broad.spread(0)[0] - mean - float(np.sum(w * np.exp(broad.log_line(0, x))))
    if axis.lower == -np.inf:
        # int_(-inf)^a (x - mean) t of a normal t.
        a = np.asarray(axis.origin + axis.spacing * (cells[0] - 0.5))
        below = (middle - mean) * broad.share(0, np.asarray(-np.inf), a)
        below = float(below - broad.width[0] ** 2 * np.exp(broad.log_line(0, a)))
        mass[0] += below
        rest -= below
    if axis.upper == np.inf:
        mass[-1] += rest
    return tables.Seen(tables.taps(axis, cell, t, w), mass, 0.0)
