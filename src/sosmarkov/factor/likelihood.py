"""What one reading says of a state, in the language of a basis, and what a step sees of a belief."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sosmarkov.factor.bases import Basis, Terms
from sosmarkov.factor.forms import Form, multiplied


class Reading(eqx.Module):
    """l(o | y) = one term of the family, or a form of it, or one on a box: a function of the model-space state y."""

    term: Terms | None = None
    form: Form | None = None
    lower: Float[Array, " d"] | None = None
    upper: Float[Array, " d"] | None = None

    def log_value(self, basis: Basis, y: Float[Array, " d"]) -> Float[Array, ""]:
        """log l(o | y) at one state."""
        total = jnp.zeros(())
        if self.term is not None:
            total = total + basis.log_abs(self.term.theta, y)[0] + self.term.log_scale
        if self.form is not None:
            total = total + self.form.log_value(y)
        if self.lower is not None and self.upper is not None:
            total = jnp.where(jnp.all((y >= self.lower) & (y <= self.upper)), total, -jnp.inf)
        return total

    def times(self, h: Form) -> Form:
        """h l without the box."""
        if self.term is not None:
            h = h.times_term(self.term)
        return h if self.form is None else multiplied(h, self.form)


class LinearReading(NamedTuple):
    """o = H y + offset + noise of standard deviation std, y in model space."""

    H: Float[Array, "k d"]
    offset: Float[Array, " k"]
    std: Float[Array, " k"]


class Message(eqx.Module):
    """P = int (phi phi^T) h l, or int phi h l, times exp(log_scale).

    Of a known state the state itself, in model space, is kept beside its P: the step from it is the kernel's own, in
    which whatever rounding does to g cancels.
    """

    P: Float[Array, " p"]
    log_scale: Float[Array, ""]
    y: Float[Array, " d"] | None = None

    def times(self, log_weight: Array) -> Message:
        """The message times a weight, by its scale."""
        return eqx.tree_at(lambda m: m.log_scale, self, self.log_scale + log_weight)
