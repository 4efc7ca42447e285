"""The long run of a process whose steps are all alike, for forms that know it without writing the step as a matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from sosmarkov.contracts.belief import Belief


class LongRun(ABC):
    """What becomes of beliefs after ever more steps.

    A form answers these in closed form, or by sparse algebra; for forms that do not, `inference` goes by the matrix of
    the step. `Numbers` of beliefs are those of the form, as for `push`.
    """

    @abstractmethod
    def far(self, initial: Belief, steps: int) -> Any:
        """Numbers of the belief so many steps, one or more, after a start, at a cost that grows with log(steps)."""

    @abstractmethod
    def fixed(self, initial: Belief) -> Any:
        """Numbers of the belief that a step leaves as it is; a ValueError where there is not one and one alone."""

    @abstractmethod
    def spectrum(self) -> np.ndarray:
        """Eigenvalues of the step, the largest first; the first is one."""

    @abstractmethod
    def distance(self, one: Any, other: Any) -> float:
        """A bound on 1/2 int |p - q| of two beliefs, the second fixed, by their numbers, that no step makes larger."""

    @abstractmethod
    def correlations(self, fixed: Any, coordinate: int, steps: int) -> np.ndarray:
        """Corr(x_c at 0, x_c at k) for k = 0, ..., steps under the fixed belief."""

    @abstractmethod
    def visits(self, window: Any, C: Any) -> Any:
        """The sum over k >= 0 of the numbers when only what the window lets through goes on from C, k times."""
