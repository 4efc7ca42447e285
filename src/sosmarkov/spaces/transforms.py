"""Data space <-> model space, with the exact log-determinant of the Jacobian."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import Quadrature
from sosmarkov.core.programs import filled_rows
from sosmarkov.core.stored import stored


class Split(NamedTuple):
    """x = matrix s(y) + offset with s acting on single coordinates; s is None where it is y itself."""

    matrix: Float[Array, "d d"]
    offset: Float[Array, " d"]
    inner: Quadrature | None


class Transform(eqx.Module):
    """A smooth invertible map y = T(x) from data to model space."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of coordinates."""

    @abstractmethod
    def forward(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """One point to (y, log |det dy/dx|)."""

    @abstractmethod
    def inverse(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        """One point back to data space."""

    @property
    def coordinatewise(self) -> bool:
        """Whether coordinate c of y depends on coordinate c of x alone."""
        return True

    @property
    def affine(self) -> bool:
        """Whether y is an affine function of x."""
        return True

    @property
    def trivial(self) -> bool:
        """Whether y is x."""
        return False

    @abstractmethod
    def select(self, kept: tuple[int, ...]) -> Transform:
        """The map of some coordinates, for a coordinate-wise transform."""

    @abstractmethod
    def split(self, lower: Array | None = None, upper: Array | None = None) -> Split:
        """The inverse as an affine map after a map of single coordinates: what moments need.

        Integrals of that map run over the whole model space, or over a box in it.
        """


@stored(check=lambda t: checks.count(t.length, "length", 1))
class Identity(Transform):
    """y = x."""

    length: int = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.length

    @property
    def trivial(self) -> bool:
        """True."""
        return True

    def forward(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """(x, 0)."""
        return x, jnp.zeros(())

    def inverse(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        """The point itself."""
        return y

    def select(self, kept: tuple[int, ...]) -> Identity:
        """The identity on fewer coordinates."""
        return Identity(len(kept))

    def split(self, lower: Array | None = None, upper: Array | None = None) -> Split:
        """Nothing to undo."""
        return Split(jnp.eye(self.length), jnp.zeros(self.length), None)


class LocationScale(Transform):
    """What maps of z = (x - mean) / std per coordinate share.

    Args:
        mean: Shape (d,).
        std: Shape (d,), positive.
    """

    mean: Float[Array, " d"] = eqx.field(converter=partial(checks.parameter, name="mean", shape=(None,)))
    std: Float[Array, " d"] = eqx.field(converter=partial(checks.as_float, name="std"))

    def __check_init__(self):
        checks.parameter(self.std, "std", self.mean.shape)
        checks.require_positive(self.std, "std")

    @classmethod
    def fit(cls, x: ArrayLike) -> LocationScale:
        """Mean and standard deviation of data of shape (N, d)."""
        return cls(*_moments(x))

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.mean.shape[0]

    def select(self, kept: tuple[int, ...]) -> LocationScale:
        """The map of some coordinates."""
        where = np.asarray(kept)
        return type(self)(self.mean[where], self.std[where])


@stored()
class Standardize(LocationScale):
    """y = (x - mean) / std per coordinate.

    Args:
        mean: Shape (d,).
        std: Shape (d,), positive.
    """

    def forward(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """((x - mean) / std, -sum log std)."""
        return (x - self.mean) / self.std, -jnp.sum(jnp.log(self.std))

    def inverse(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        """Mean + std y."""
        return self.mean + self.std * y

    def split(self, lower: Array | None = None, upper: Array | None = None) -> Split:
        """A diagonal affine map."""
        return Split(jnp.diag(self.std), self.mean, None)


@stored()
class Affine(Transform):
    """y = matrix^{-1} (x - mean), that is x = mean + matrix y.

    Args:
        mean: Shape (d,).
        matrix: Shape (d, d), invertible.
    """

    mean: Float[Array, " d"]
    matrix: Float[Array, "d d"]
    inverted: Float[Array, "d d"]
    log_det: Float[Array, ""]

    def __init__(self, mean: ArrayLike, matrix: ArrayLike):
        self.mean = checks.parameter(mean, "mean", (None,))
        d = self.mean.shape[0]
        self.matrix = checks.parameter(matrix, "matrix", (d, d))
        values = np.asarray(self.matrix)
        sign, log_abs = np.linalg.slogdet(values)
        if sign == 0 or np.linalg.cond(values) > 1.0 / np.finfo(values.dtype).eps:
            raise ValueError(
                f"Expected an invertible matrix, got condition number {np.linalg.cond(values):.3g}."
                " Drop coordinates that are combinations of others."
            )
        self.inverted = jnp.asarray(np.linalg.inv(values))
        self.log_det = jnp.asarray(-log_abs)

    @classmethod
    def whiten(cls, x: ArrayLike) -> Affine:
        """The map that gives data of shape (N, d) zero mean and identity covariance."""
        x = _data(x)
        centred = np.asarray(x - jnp.mean(x, axis=0, keepdims=True))
        values, vectors = np.linalg.eigh(centred.T @ centred / x.shape[0])
        if not values[0] > np.finfo(float).eps * values[-1]:
            raise ValueError(
                "Expected data of full rank to whiten, got coordinates that are constant or linear"
                " combinations of others. Drop them first."
            )
        return cls(jnp.mean(x, axis=0), vectors * np.sqrt(values))

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.mean.shape[0]

    @property
    def coordinatewise(self) -> bool:
        """False: coordinates mix."""
        return False

    def forward(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """(matrix^{-1} (x - mean), -log |det matrix|)."""
        return self.inverted @ (x - self.mean), self.log_det

    def inverse(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        """Mean + matrix y."""
        return self.mean + self.matrix @ y

    def select(self, kept: tuple[int, ...]) -> Transform:
        """Refused: coordinates mix."""
        raise ValueError("Expected a coordinate-wise transform to select coordinates of, got an affine one.")

    def split(self, lower: Array | None = None, upper: Array | None = None) -> Split:
        """The affine map itself."""
        return Split(self.matrix, self.mean, None)


@stored()
class GaussianCDF(LocationScale):
    """u = Phi((x - mean) / std) per coordinate: R^d to the unit box, the paper's choice.

    In double precision u rounds to one beyond 8.2 standard deviations above the mean; the density
    there is zero (log-density -inf), as outside the domain.

    Args:
        mean: Shape (d,).
        std: Shape (d,), positive.
    """

    @property
    def affine(self) -> bool:
        """False."""
        return False

    def forward(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """(Phi(z), sum log N(z; 0, 1) - log std) with z = (x - mean) / std."""
        z = (x - self.mean) / self.std
        log_density = -0.5 * z**2 - 0.5 * jnp.log(2.0 * jnp.pi) - jnp.log(self.std)
        return ndtr(z), jnp.sum(log_density)

    def inverse(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        """Mean + std Phi^{-1}(u)."""
        return self.mean + self.std * ndtri(y)

    def split(self, lower: Array | None = None, upper: Array | None = None) -> Split:
        """No affine part; integrals over u by Gauss-Legendre nodes in z, where they are smooth."""
        ends = [jnp.full(self.dim, -_REACH), jnp.full(self.dim, _REACH)]
        if lower is not None and upper is not None:
            ends = [jnp.clip(ndtri(end), -_REACH, _REACH) for end in (lower, upper)]
        t, weights = (jnp.asarray(part)[:, None] for part in np.polynomial.legendre.leggauss(_NODES))
        middle, half = 0.5 * (ends[0] + ends[1])[None], 0.5 * (ends[1] - ends[0])[None]
        z = middle + half * t
        density = jnp.exp(-0.5 * z**2) / math.sqrt(2.0 * math.pi)
        rule = Quadrature(ndtr(z), half * weights * density, self.mean[None] + self.std[None] * z)
        return Split(jnp.eye(self.dim), jnp.zeros(self.dim), rule)


# Beyond this many standard deviations u rounds to one, and nothing of the density is left.
_NODES, _REACH = 256, 8.2


@stored(make=lambda fields: Chain(**fields))
class Chain(Transform):
    """Several transforms, applied first to last on the way to model space."""

    parts: tuple[Transform, ...]

    def __init__(self, parts: Sequence[Transform]):
        self.parts = tuple(parts)
        if not self.parts:
            raise ValueError("Expected at least one transform in a chain, got none.")
        dims = [part.dim for part in self.parts]
        if len(set(dims)) != 1:
            raise ValueError(f"Expected transforms of one dimension in a chain, got {dims}.")

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.parts[0].dim

    @property
    def coordinatewise(self) -> bool:
        """Whether every part is."""
        return all(part.coordinatewise for part in self.parts)

    @property
    def affine(self) -> bool:
        """Whether every part is."""
        return all(part.affine for part in self.parts)

    def forward(self, x: Float[Array, " d"]) -> tuple[Float[Array, " d"], Float[Array, ""]]:
        """Log-determinants add up."""
        total = jnp.zeros(())
        for part in self.parts:
            x, log_det = part.forward(x)
            total = total + log_det
        return x, total

    def inverse(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        """The parts undone, last to first."""
        for part in reversed(self.parts):
            y = part.inverse(y)
        return y

    def select(self, kept: tuple[int, ...]) -> Chain:
        """The chain of the parts' selections."""
        return Chain([part.select(kept) for part in self.parts])

    def split(self, lower: Array | None = None, upper: Array | None = None) -> Split:
        """Affine parts before a map of single coordinates compose; one after it has to be diagonal."""
        matrix, offset = jnp.eye(self.dim), jnp.zeros(self.dim)
        for position, part in enumerate(self.parts):
            found = part.split(lower, upper)
            if found.inner is None:
                matrix, offset = matrix @ found.matrix, offset + matrix @ found.offset
                continue
            if any(not later.trivial for later in self.parts[position + 1 :]):
                raise ValueError(
                    "Expected a chain that ends with its Gaussian CDF, got a transform after it:"
                    " moments have no closed form there. Average samples instead."
                )
            return Split(matrix, offset, found.inner)
        return Split(matrix, offset, None)


def to_model(transform: Transform, x: Float[Array, "*b d"]) -> tuple[Float[Array, "*b d"], Float[Array, "*b"]]:
    """`transform.forward` over leading axes."""
    flat = x.reshape(-1, x.shape[-1])
    y, log_det = jax.vmap(transform.forward)(flat)
    return y.reshape(x.shape), log_det.reshape(x.shape[:-1])


def to_data(transform: Transform, y: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
    """`transform.inverse` over leading axes."""
    return jax.vmap(transform.inverse)(y.reshape(-1, y.shape[-1])).reshape(y.shape)


_forward = eqx.filter_jit(to_model)
_backward = eqx.filter_jit(to_data)
# Fewer rows than these are filled up to them.
_FEWEST_ROWS = 1024


def rows_to_model(transform: Transform, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`to_model` on the host, for arrays of any length: few programs serve all of them."""
    y, log_det = _forward(transform, _filled(x))
    count = x[..., 0].size
    return np.asarray(y)[:count].reshape(x.shape), np.asarray(log_det)[:count].reshape(x.shape[:-1])


def rows_to_data(transform: Transform, y: np.ndarray) -> np.ndarray:
    """`to_data` on the host, likewise."""
    return np.asarray(_backward(transform, _filled(y)))[: y[..., 0].size].reshape(y.shape)


def _filled(x: np.ndarray) -> Array:
    return jax.device_put(filled_rows(x.reshape(-1, x.shape[-1]), _FEWEST_ROWS).astype(float))


def _data(x: ArrayLike) -> Array:
    x = checks.parameter(x, "data", (None, None))
    if x.shape[0] < 2:
        raise ValueError(f"Expected at least two points to fit a transform, got {x.shape[0]}.")
    return x


def _moments(x: ArrayLike) -> tuple[Array, Array]:
    x = _data(x)
    std = jnp.std(x, axis=0)
    if bool(jnp.any(std == 0)):
        constant = [int(c) for c in jnp.flatnonzero(std == 0)]
        raise ValueError(f"Expected data that vary, got constant coordinates {constant}. Drop them first.")
    return jnp.mean(x, axis=0), std
