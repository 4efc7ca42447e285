"""What sensors of coordinates share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sosmarkov.core import checks


def distinct(coordinates: Sequence[int] | int) -> tuple[int, ...]:
    """Coordinates counted from zero, or a ValueError."""
    listed = [coordinates] if isinstance(coordinates, (int, np.integer)) else list(coordinates)
    whole = [isinstance(index, (int, np.integer)) and not isinstance(index, bool) for index in listed]
    # A sensor does not know how many coordinates a state has: there is no end to count from.
    if not all(whole) or min([0, *listed]) < 0:
        raise ValueError(f"Expected coordinates counted from 0, got {listed}.")
    return checks.coordinates(listed, max([0, *listed]) + 1)
