"""Coordinates read with Gaussian noise."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.contracts.reader import LineLikelihood
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import stored
from sosmarkov.factor.bases import Basis, Terms
from sosmarkov.factor.bases.full_table import FullTheta
from sosmarkov.factor.bases.gaussian import GaussianTheta
from sosmarkov.factor.likelihood import LinearReading, Reading
from sosmarkov.factor.space import Space
from sosmarkov.sensors.base import CoordinateSensor, distinct, normal_line, product_of_lines
from sosmarkov.spaces.transforms import Transform


@stored(check=lambda s: GaussianSensor(s.coordinates, s.std, gain=s.gain, offset=s.offset))
class GaussianSensor(CoordinateSensor):
    """o_i = gain_i x_(c_i) + offset_i + noise, normal with standard deviation std_i, independent.

    Closed form for the Gaussian families: axis-aligned under coordinate-wise transforms, full-covariance under any
    affine one.

    Args:
        coordinates: Which coordinates are read, k of them, distinct: indices, or names of the process's columns.
        std: Standard deviations, one number or k of them.
        gain: One number or k of them, not zero.
        offset: One number or k of them.
    """

    coordinates: tuple[int | str, ...] = eqx.field(static=True)
    std: Float[Array, " k"]
    gain: Float[Array, " k"]
    offset: Float[Array, " k"]

    def __init__(
        self,
        coordinates: Sequence[int | str] | int | str,
        std: ArrayLike,
        *,
        gain: ArrayLike = 1.0,
        offset: ArrayLike = 0.0,
    ):
        self.coordinates = distinct(coordinates)
        count = len(self.coordinates)

        def each(value: ArrayLike, name: str) -> Array:
            array = checks.as_float(value, name)
            return checks.parameter(jnp.broadcast_to(array, (count,)) if array.ndim == 0 else array, name, (count,))

        self.std, self.gain, self.offset = each(std, "std"), each(gain, "gain"), each(offset, "offset")
        checks.require_positive(self.std, "std")
        if checks.is_concrete(self.gain) and not np.all(np.asarray(self.gain) != 0):
            raise ValueError(f"Expected gains that are not zero, got {self.gain}.")

    @property
    def shape(self) -> tuple[int, ...]:
        """One number a coordinate."""
        return (len(self.coordinates),)

    def log_likelihood(self, observation: np.ndarray, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """log p(o | x) at many states."""
        return product_of_lines(self.lines(observation, x.shape[1]), x)

    def lines(self, observation: np.ndarray, dim: int) -> list[tuple[int, LineLikelihood]]:
        """A normal density for each number that is read."""
        numbers = (np.asarray(part) for part in (self.std, self.gain, self.offset, observation))
        read = zip(self.places(dim), *numbers, strict=True)
        return [(int(c), normal_line(o, a, b, s)) for c, s, a, b, o in read if not np.isnan(o)]

    def affine(self, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A row a coordinate, with its gain."""
        H = np.asarray(self.gain)[:, None] * np.eye(dim)[self.places(dim)]
        return H, np.asarray(self.offset), np.asarray(self.std)

    def linear(self, basis: Basis, transform: Transform) -> LinearReading:
        """x_c is affine in y."""
        where = self.places(basis.dim)
        Space(basis, transform).require("gaussian reading")
        matrix, offset, _ = transform.split()
        return LinearReading(self.gain[:, None] * matrix[where], self.gain * offset[where] + self.offset, self.std)

    def reading(self, observation: Array, basis: Basis, transform: Transform) -> Reading:
        """One Gaussian term, flat in what is not read."""
        H, offset, std = self.linear(basis, transform)
        there = ~jnp.isnan(observation)
        target = jnp.where(there, observation, 0.0) - offset
        log_norm = jnp.where(there, -0.5 * jnp.log(2.0 * jnp.pi) - jnp.log(std), 0.0)
        weight = jnp.where(there, 1.0 / std**2, 0.0)
        if not basis.axis_aligned:
            # Any y with H y = target: the directions that are not read have no precision.
            at = H.T @ jnp.linalg.solve(H @ H.T, target)
            theta = FullTheta(H.T @ (weight[:, None] * H), at, jnp.sum(log_norm))
        else:
            where = self.places(basis.dim)
            slope = H[np.arange(len(where)), where]
            flat = jnp.zeros(basis.dim)
            theta = GaussianTheta(
                flat.at[where].set(slope**2 * weight), flat.at[where].set(target / slope), flat.at[where].set(log_norm)
            )
        return Reading(term=Terms(theta, jnp.zeros(())))
