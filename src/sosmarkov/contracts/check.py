"""How exact a process is, in numbers: normalisation, positivity, conditioning."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class CheckReport(NamedTuple):
    """What `process.check()` found.

    Attributes:
        normalisation_error: The largest |int p(x' | x) dx' - 1| over all x, from the spectrum of the
            normalised kernel (not from a sample of states).
        initial_mass_error: |int p_0 - 1|.
        smallest_log_density: The smallest log p(x' | x) met between states spread over the basis.
        condition_factor: Condition number of A (squared forms), or spread of a (linear).
        condition_gram: Condition number of M = int g psi psi^T, or spread of int g psi.
        amplification: How much the kernel magnifies rounding of M: expect errors of about this
            times 1e-16. Large where K resolves differences of near-duplicate functions.
        iterations: Power iterations used (paired coupling), else zero.
        residual: What the last step of the normalisation still changed.
        converged: Whether the power iteration's stopping rule was met.
    """

    normalisation_error: float
    initial_mass_error: float
    smallest_log_density: float
    condition_factor: float
    condition_gram: float
    amplification: float
    iterations: int
    residual: float
    converged: bool

    @property
    def ok(self) -> bool:
        """Whether everything is as exact as double precision allows for a fair model."""
        exact = self.normalisation_error <= 1e-9 and self.initial_mass_error <= 1e-9
        return self.converged and exact and not np.isnan(self.smallest_log_density)

    def __str__(self) -> str:
        """A few lines for a person."""
        lines = [
            f"normalisation error  {self.normalisation_error:.2e}  (worst over all states)",
            f"initial mass error   {self.initial_mass_error:.2e}",
            f"smallest log-density {self.smallest_log_density:.3g}",
            f"condition numbers    {self.condition_factor:.2e} (g), {self.condition_gram:.2e} (psi under g)",
            f"amplification        {self.amplification:.2e}  (of rounding errors, by the kernel)",
        ]
        if self.iterations:
            how = "converged" if self.converged else "NOT converged"
            lines.append(f"Perron vector        {how} in {self.iterations} steps, residual {self.residual:.1e}")
        return "\n".join(lines)
