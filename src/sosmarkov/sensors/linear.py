"""Linear functions of the state read with Gaussian noise."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.contracts.reader import LineLikelihood, Sensor
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import stored
from sosmarkov.factor.bases import Basis, Terms
from sosmarkov.factor.bases.full_table import FullTheta
from sosmarkov.factor.likelihood import LinearReading, Reading
from sosmarkov.factor.space import Space
from sosmarkov.sensors.base import normal_line
from sosmarkov.spaces.transforms import Transform


@stored(check=lambda sensor: LinearSensor(sensor.matrix, sensor.std, offset=sensor.offset))
class LinearSensor(Sensor):
    """o = matrix x + offset + noise, normal with standard deviations std, independent: what `fit` learns.

    Closed form for the full-covariance Gaussian family under an affine transform.

    Args:
        matrix: Shape (k, d).
        std: Standard deviations, one number or k of them.
        offset: One number or k of them.
    """

    matrix: Float[Array, "k d"]
    log_std: Float[Array, " k"]
    offset: Float[Array, " k"]

    def __init__(self, matrix: ArrayLike, std: ArrayLike, *, offset: ArrayLike = 0.0):
        self.matrix = checks.parameter(matrix, "matrix", (None, None))
        count = self.matrix.shape[0]
        std, offset = (jnp.broadcast_to(checks.as_float(v, n), (count,)) for v, n in ((std, "std"), (offset, "offset")))
        checks.require_positive(std, "std")
        self.log_std, self.offset = jnp.log(std), checks.parameter(offset, "offset", (count,))

    @property
    def std(self) -> Float[Array, " k"]:
        """Standard deviations of the noise."""
        return jnp.exp(self.log_std)

    @property
    def shape(self) -> tuple[int, ...]:
        """One number a row of the matrix."""
        return (len(self.matrix),)

    def log_likelihood(self, observation: np.ndarray, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """log p(o | x) at many states."""
        self._require_reads(x.shape[1])
        there, std = ~np.isnan(observation), np.asarray(self.std)
        z = ((observation - np.asarray(self.offset) - x @ np.asarray(self.matrix).T) / std)[:, there]
        return np.sum(-0.5 * z**2 - np.log(std[there]) - 0.5 * np.log(2.0 * np.pi), axis=1)

    def lines(self, observation: np.ndarray, dim: int) -> list[tuple[int, LineLikelihood]] | None:
        """A normal density a row, where each row reads one coordinate alone."""
        self._require_reads(dim)
        rows, offset, std = (np.asarray(part) for part in (self.matrix, self.offset, self.std))
        if np.any(np.sum(rows != 0, axis=1) != 1):
            return None
        at = np.argmax(rows != 0, axis=1)
        gains = rows[np.arange(len(rows)), at]
        read = zip(at, np.asarray(observation), gains, offset, std, strict=True)
        return [(int(c), normal_line(o, a, b, s)) for c, o, a, b, s in read if not np.isnan(o)]

    def _require_reads(self, dim: int) -> None:
        if self.matrix.shape[1] != dim:
            raise ValueError(f"Expected a process of {self.matrix.shape[1]} coordinates to read, got {dim}.")

    def affine(self, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The matrix as it is."""
        self._require_reads(dim)
        return np.asarray(self.matrix), np.asarray(self.offset), np.asarray(self.std)

    def linear(self, basis: Basis, transform: Transform) -> LinearReading:
        """A state is affine in y, and so is a reading."""
        Space(basis, transform).require("linear reading")
        matrix, offset, _ = transform.split()
        self._require_reads(basis.dim)
        return LinearReading(self.matrix @ matrix, self.matrix @ offset + self.offset, self.std)

    def reading(self, observation: Array, basis: Basis, transform: Transform) -> Reading:
        """One Gaussian term, flat in the directions that are not read."""
        H, offset, std = self.linear(basis, transform)
        there = ~jnp.isnan(observation)
        rows = jnp.where(there, 1.0 / std, 0.0)[:, None] * H
        target = jnp.where(there, (observation - offset) / std, 0.0)
        at = jnp.linalg.pinv(rows) @ target
        left = -0.5 * jnp.sum((target - rows @ at) ** 2)
        log_norm = jnp.sum(jnp.where(there, -0.5 * jnp.log(2.0 * jnp.pi) - jnp.log(std), 0.0))
        return Reading(term=Terms(FullTheta(rows.T @ rows, at, log_norm + left), jnp.zeros(())))
