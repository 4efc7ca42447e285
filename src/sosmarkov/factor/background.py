"""A share of a density that depends on nothing known: honest tails, and all the algebra they cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sosmarkov.factor.forms import Form


class Background(eqx.Module):
    """A share e of a density that does not depend on what is known.

        p(x' | x) = (1 - e) p_own(x' | x) + e g(x') t(x') / int g t,

    t the last term of a basis. As a coupling it is f_b = g(x) t(x') / int g t, linear in g's coefficients and in the
    term: whatever is linear in f takes it as one entry more. Without a share every method returns its own part as it
    came, and asks nothing of the rest.

    Attributes:
        share: e, at least zero and below one.
        mass: int g t.
        seen: How much of the density a reading lets through; None where nothing is read.
    """

    share: float = eqx.field(static=True)
    mass: Float[Array, ""]
    seen: Float[Array, ""] | None = None

    def log(self, own: Float[Array, "*b"], far: Callable[[], Array]) -> Float[Array, "*b"]:
        """Log of (1 - e) f + e g(x) t(x') / int g t from log f and, where it is needed, log g(x) t(x')."""
        if self.share == 0:
            return own
        log_b = far() - jnp.log(self.mass)
        log_b = log_b if self.seen is None else log_b + jnp.log(self.seen)
        return jnp.logaddexp(math.log1p(-self.share) + own, math.log(self.share) + log_b)

    def push(self, own: Float[Array, "*p q"], entering: Callable[[], Any]) -> Float[Array, "*p q"]:
        """Coefficients of x', shape (..., q), with the share of what enters, shape (...), in the last."""
        if self.share == 0:
            return own
        return ((1.0 - self.share) * own).at[..., -1].add(self._part(entering()))

    def pull(self, own: Float[Array, " p"], last: Any, g: Form) -> Float[Array, " p"]:
        """The adjoint: coefficients of x from the last entry of those of x'."""
        return own if self.share == 0 else (1.0 - self.share) * own + self._part(last) * g.coefficients

    def gains(self, own: Any, last: Any) -> Any:
        """Masses of p(. | x) from those of p_own and from int g t as it is now."""
        return own if self.share == 0 else (1.0 - self.share) * own + self._part(last)

    def form(self, own: Form) -> Form:
        """(1 - e) h + e t / int g t."""
        if self.share == 0:
            return own
        return own.with_last(self.share, (1.0 if self.seen is None else self.seen) / self.mass)

    def _part(self, of: Any) -> Any:
        return self.share * (of if self.seen is None else self.seen * of) / self.mass


def require_share(background: float) -> float:
    """A background share, or a ValueError."""
    if not 0.0 <= background < 1.0:
        raise ValueError(f"Expected a background share of at least 0 and below 1, got {background}.")
    return float(background)
