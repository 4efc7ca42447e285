"""Integrals over boxes: what of a belief lies in one, as a linear map on its coefficients."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.factor.forms import Form, overlap_table
from sosmarkov.factor.likelihood import Message
from sosmarkov.factor.space import Space
from sosmarkov.spaces.transforms import Transform


class Box(eqx.Module):
    """One box in data space, and which of its coordinates are bounded at all."""

    lower: Float[Array, " d"]
    upper: Float[Array, " d"]
    bounded: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, lower: ArrayLike, upper: ArrayLike, dim: int):
        self.lower, self.upper = checks.box(lower, upper, dim)
        if self.lower.ndim != 1 or self.upper.ndim != 1:
            raise ValueError(f"Expected one box of {dim} coordinates, got ends of shape {self.lower.shape}.")
        # Ends that are being traced may be anything; numbers are looked at as they were given.
        ends = [
            np.broadcast_to(np.asarray(e, dtype=float) if checks.is_concrete(e) else 0.0, dim) for e in (lower, upper)
        ]
        self.bounded = tuple(c for c in range(dim) if any(np.isfinite(end[c]) for end in ends))

    def shared(self, other: Box) -> Box:
        """The box of what lies in both; where there is nothing, its ends are equal."""
        low, high = jnp.maximum(self.lower, other.lower), jnp.minimum(self.upper, other.upper)
        return Box(low, jnp.maximum(low, high), len(low))

    def holds(self, state: Float[Array, " d"]) -> Float[Array, ""]:
        """One where a state lies in the box, else zero."""
        return jnp.all((state > self.lower) & (state < self.upper)).astype(float)

    def table(self, g: Form, h: Form, transform: Transform, within: tuple[Array, Array] | None = None) -> Array:
        """Overlaps of g's terms with h's over the box, and over another in model space; zero where it is empty.

        Closed form for families of products under coordinate-wise transforms, and for Gaussian kernels of any kind
        where one coordinate alone is bounded.
        """
        space = Space(g.basis, transform)
        if space.separate:
            low, high = (transform.forward(end)[0] for end in (self.lower, self.upper))
            if within is not None:
                low, high = jnp.maximum(low, within[0]), jnp.minimum(high, within[1])
                high = jnp.maximum(low, high)
            return g.basis.overlap_between(g.terms, h.terms, low, high)
        return space.slab(g.terms, h.terms, self.lower, self.upper, self.bounded)


class Window(eqx.Module):
    """What of a belief a step sees: a sum of boxes with signs, or of all there is, as a table of overlaps with psi."""

    transition: Any
    table: Float[Array, "p q"]
    # None stands for all there is.
    boxes: tuple[tuple[int, Box | None], ...]

    def __call__(self, C: Float[Array, " q"]) -> Message:
        """The message of what is seen of a belief."""
        return Message(self.table @ C, jnp.zeros(()))

    def shares(self, C: Float[Array, "*k q"]) -> Float[Array, "*k"]:
        """The mass that is seen of each of these."""
        return C @ (self.transition.g.coefficients @ self.table)

    def __add__(self, other: Window) -> Window:
        """Both together."""
        return Window(self.transition, self.table + other.table, self.boxes + other.boxes)

    def __sub__(self, other: Window) -> Window:
        """The one without the other."""
        boxes = tuple((-sign, box) for sign, box in other.boxes)
        return Window(self.transition, self.table - other.table, self.boxes + boxes)

    def enter_product(self, belief: Any) -> Message:
        """The same of a belief over a basis of its own."""
        g, h, ends = self.transition.g, belief.h, belief.ends
        whole = overlap_table(g, h, *(ends or ()))
        tables = [s * (whole if b is None else b.table(g, h, belief.transform, ends)) for s, b in self.boxes]
        return Message(sum(tables) @ h.coefficients, jnp.zeros(()))

    def log_prob(self, state: Float[Array, " d"]) -> Float[Array, ""]:
        """Zero where a state is seen, else -inf."""
        return jnp.log(sum(sign * (1.0 if box is None else box.holds(state)) for sign, box in self.boxes))
