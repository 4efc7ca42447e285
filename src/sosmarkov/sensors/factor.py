"""Likelihoods that are forms over the basis's own family."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import numpy as np
from jax import Array

from sosmarkov.contracts.reader import Sensor, isnan
from sosmarkov.core import checks
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.forms import Form
from sosmarkov.factor.likelihood import Reading
from sosmarkov.spaces.transforms import Transform


class FactorSensor(Sensor):
    """Any likelihood that is a form over the basis's own family.

    Args:
        likelihood: From one reading, shape (k,), to a form in the process's model space, of the coupling's kind
            (squared for Kraus and Paired, linear for Linear). It is traced.
        width: How many numbers a reading has, k.
    """

    likelihood: Callable[[Array], Form] = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def __check_init__(self):
        if not callable(self.likelihood):
            raise ValueError(
                f"Expected a function from a reading to a form as likelihood, got {type(self.likelihood).__name__}."
            )
        checks.count(self.width, "width", 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """As many numbers as `width` says; a row with NaN is missing as a whole."""
        return (self.width,)

    def missing(self, observation: Array | np.ndarray) -> Array | np.bool_:
        """Whether any of its numbers is NaN."""
        return isnan(observation).any()

    def reading(self, observation: Array, basis: Basis, transform: Transform) -> Reading:
        """The form."""
        del basis, transform
        return Reading(form=self.likelihood(observation))
