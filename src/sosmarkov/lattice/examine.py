"""How exactly a lattice process is normalised."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.check import CheckReport
from sosmarkov.lattice.chain import Chain

# States between which densities are looked at.
_SOME = 40


def examine(
    chain: Chain, log_between: Callable[[Float[np.ndarray, "m d"]], Float[np.ndarray, "p m m"]], initial: Belief
) -> CheckReport:
    """Rows and gates have sums of one; densities between states spread over the nodes are numbers."""
    nodes = chain.nodes
    bands = np.ones(len(nodes))
    for band in reversed(chain.bands):
        bands = band.T @ bands
    gates = max(float(np.max(np.abs(bands - 1.0))), abs(float(np.sum(chain.met)) - 1.0))
    return CheckReport(
        normalisation_error=max(chain.normalisation, gates),
        initial_mass_error=abs(float(np.asarray(initial.mass())) - 1.0),
        smallest_log_density=float(np.min(log_between(nodes.points[:: max(1, len(nodes) // _SOME)]))),
        condition_factor=1.0,
        condition_gram=1.0,
        amplification=1.0,
        iterations=0,
        residual=0.0,
        converged=True,
    )
