"""The long run of a linear-Gaussian step: powers by squaring, Lyapunov's equation, products of eigenvalues."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.long_run import LongRun
from sosmarkov.gaussian import mixture as mixtures
from sosmarkov.gaussian.mixture import LinearStep, Mixture
from sosmarkov.gaussian.windows import Window

# The spectrum has no end: so many of it are told.
_EIGENVALUES = 256
_DOUBLINGS = 64


@dataclass(frozen=True)
class GaussianRun(LongRun):
    """In closed form.

    Args:
        transition: A `GaussianTransition`; steps are all alike, but for `far`, which knows the phases of a period.
    """

    transition: Any

    def far(self, initial: Belief, steps: int) -> Mixture:
        """The steps composed by squaring; of a period, whole ones and the rest, from time zero."""
        transition = self.transition
        if transition.features is not None and transition.period is None:
            transition.steps_of(None, steps)
        period = transition.period or 1
        phases = [transition.step(np.array([float(k)])) for k in range(period)]
        whole, rest = divmod(steps, period)
        cycle = reduce(lambda first, then: then.after(first), phases).times(whole)
        step = reduce(lambda first, then: then.after(first), phases[:rest], cycle)
        return step(transition.enter(initial).mixture)

    def fixed(self, initial: Belief) -> Mixture:
        """m = F m + b and P = F P F^T + Q, by doubling: sums of squares all the way."""
        del initial
        step = self._settling()
        dim = len(step.b)
        P, power = step.Q, step.F
        for _ in range(_DOUBLINGS):
            more = power @ P @ power.T
            P, power = mixtures.symmetric(P + more), power @ power
            if np.max(np.abs(more)) <= 2.0**-60 * np.max(np.abs(P)):
                break
        mean = np.linalg.solve(np.eye(dim) - step.F, step.b)
        return Mixture(np.ones(1), mean[None], P[None])

    def spectrum(self) -> np.ndarray:
        """Products of powers of F's eigenvalues, the largest first: its own are among them, and one is the first.

        An observable of degree n decays by products of n eigenvalues; there is no end, the largest 256 are given.
        """
        values = np.linalg.eigvals(self._settling().F)
        values = values[np.argsort(-np.abs(values))]
        # Products by their size, with a number that tells equal ones apart, and the last factor: factors come in the
        # order of the eigenvalues, so that every product is met once.
        waiting: list[tuple[float, int, int, complex]] = [(-1.0, 0, 0, 1.0)]
        found, count = [], 1
        while len(found) < _EIGENVALUES:
            _, _, least, value = heapq.heappop(waiting)
            found.append(value)
            for i in range(least, len(values)):
                following = complex(value * values[i])
                heapq.heappush(waiting, (-abs(following), count, i, following))
                count += 1
        spectrum: Any = np.array(found)
        return spectrum.real if np.all(spectrum.imag == 0) else spectrum

    def distance(self, one: Mixture, other: Mixture) -> float:
        """sum_i w_i min(sqrt(KL_i / 2), sqrt(1 - exp(-KL_i))): Pinsker's bound, and that of Bretagnolle and Huber."""
        divergences = mixtures.divergences(one, other)
        bounds = np.minimum(np.sqrt(0.5 * divergences), np.sqrt(-np.expm1(-divergences)))
        return float(one.weights @ bounds)

    def correlations(self, fixed: Mixture, coordinate: int, steps: int) -> np.ndarray:
        """(F^k P)_cc / P_cc."""
        P = fixed.covariances[0][:, coordinate]
        found = [P[coordinate]]
        for _ in range(steps):
            P = self.transition.F @ P
            found.append(P[coordinate])
        return np.array(found) / found[0]

    def visits(self, window: Window, C: Mixture) -> Mixture:
        """Nothing goes on where the window is empty; else it is refused, or goes on for ever."""
        if window.let_through():
            raise ValueError("Expected a box that can be reached, got one that is empty.")
        return C

    def _settling(self) -> LinearStep:
        """The step, or a ValueError where nothing comes to rest."""
        step = self.transition.step()
        radius = float(np.max(np.abs(np.linalg.eigvals(step.F))))
        if not radius < 1.0:
            raise ValueError(
                "Expected a process that comes to rest, got a linear step with an eigenvalue of size"
                f" {radius:.6g}: its belief spreads without end, and there is no stationary one. Differences of the"
                " coordinates may have one; `propagate` and `belief_at` answer for any step."
            )
        return step
