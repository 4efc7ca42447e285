"""Any likelihood at all, as a function of reading and state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from sosmarkov.contracts.reader import Sensor
from sosmarkov.core import checks


class FunctionSensor(Sensor):
    """p(o | x) by a function of one's own: range and bearing, a camera, a counter.

    For processes in the lattice form, which integrate it numerically on their cells, to a stated accuracy. The factor
    and gaussian forms have no closed form for it and refuse it.

    Args:
        function: (observation, x) -> log p(o | x), vectorised over states x of shape (n, d) in data space, by NumPy; it
            sees readings with NaN where a part of them is missing, and none that are missing as a whole.
        shape: Of one reading.
    """

    function: Callable[[np.ndarray, np.ndarray], Any] = eqx.field(static=True)
    of: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, function: Callable[[np.ndarray, np.ndarray], Any], shape: tuple[int, ...] | int = 1):
        if not callable(function):
            raise ValueError(f"Expected a function (observation, x) -> log p(o | x), got {type(function).__name__}.")
        self.function, self.of = function, checks.shape(shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """As it was given."""
        return self.of

    def log_likelihood(self, observation: np.ndarray, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """What the function says."""
        found = np.asarray(self.function(observation, x), dtype=float)
        if found.shape != (len(x),) or np.any(np.isnan(found)) or np.any(found == np.inf):
            raise ValueError(
                f"Expected a log-density, a number or -inf, for each of {len(x)} states from the function of a sensor,"
                f" got an array of shape {found.shape}{' with NaN or inf' if found.shape == (len(x),) else ''}."
            )
        return found

    def reading(self, observation: Any, basis: Any, transform: Any) -> Any:
        """Refused: no family of functions has it in closed form."""
        raise ValueError(
            "Expected a sensor with a closed form for this form of process, got a FunctionSensor. Use a process in the"
            " lattice form, or a GaussianSensor, LinearSensor or IntervalSensor that comes close."
        )
