"""What gates see of a belief."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float


class Met(NamedTuple):
    """A message: what the gates see of a belief, times exp(log_scale).

    Attributes:
        P: int w_i p, shape (n,).
        log_scale: A logarithm.
    """

    P: Float[np.ndarray, " n"]
    log_scale: Any
