"""What families on a fixed product of intervals share: the ends, and points within."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.stored import replaced, require
from sosmarkov.factor.bases.product import ProductBasis


class IntervalBasis(ProductBasis):
    """Functions on lower <= y <= upper; the ends are part of the model, not trained."""

    ends: eqx.AbstractVar[tuple[tuple[float, ...], tuple[float, ...]]]

    @property
    def lower(self) -> np.ndarray:
        """Lower ends."""
        return np.asarray(self.ends[0])

    @property
    def upper(self) -> np.ndarray:
        """Upper ends."""
        return np.asarray(self.ends[1])

    def bounds(self, lower: Array | None, upper: Array | None) -> tuple[Array, Array]:
        """The box's own ends where none are given."""
        ends = (self.lower if lower is None else lower, self.upper if upper is None else upper)
        return jnp.asarray(ends[0]), jnp.asarray(ends[1])

    def restrict(self, kept: tuple[int, ...]) -> IntervalBasis:
        """The functions on some coordinates, and the ends of these."""
        return replaced(super().restrict(kept), ends=tuple(tuple(end[c] for c in kept) for end in self.ends))

    def interior_point(self) -> Float[Array, " d"]:
        """The middle of the box."""
        return jnp.asarray(0.5 * (self.lower + self.upper))


def sound_ends(basis: IntervalBasis) -> None:
    """Refuse stored ends that no constructor would have taken."""
    lower, upper = basis.ends
    require(len(lower) == len(upper) == basis.dim, f"two ends for each of {basis.dim} coordinates")
    interval_ends(lower, upper, basis.dim)


def interval_ends(lower: ArrayLike, upper: ArrayLike, dim: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Both ends as tuples of d finite numbers, lower < upper, a single number standing for all."""
    both = []
    for name, end in (("lower", lower), ("upper", upper)):
        values = np.asarray(end, dtype=float)
        if values.ndim > 1 or values.size not in (1, dim) or not np.all(np.isfinite(values)):
            raise ValueError(f"Expected {name} as one finite number or {dim} of them, got {end!r}.")
        both.append(np.broadcast_to(values, (dim,)))
    if not np.all(both[0] < both[1]):
        raise ValueError(f"Expected lower < upper in every coordinate, got {both[0]} and {both[1]}.")
    return tuple(map(float, both[0])), tuple(map(float, both[1]))
