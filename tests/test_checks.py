"""What the boundary says to numbers it cannot use."""

import numpy as np
import pytest

from sosmarkov.core import checks


@pytest.mark.parametrize("value", [2.0, -1, True, "3", None])
def test_counts_are_whole_numbers(value):
    with pytest.raises(ValueError, match="whole number >= 0 for steps"):
        checks.count(value, "steps")
    assert checks.count(np.int64(3), "steps") == 3


@pytest.mark.parametrize("value", [None, "a", [1j], [[1.0], [2.0, 3.0]], {"a": 1}])
def test_states_are_real_numbers(value):
    with pytest.raises(ValueError, match="Expected numbers for x"):
        checks.as_float(value, "x")


def test_coordinates_count_from_the_end_too():
    assert checks.coordinates([-1, 0], 3) == (2, 0)
    assert checks.coordinates(1, 3) == (1,)
