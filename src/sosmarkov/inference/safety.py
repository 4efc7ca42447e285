"""Boxes over time: staying, leaving, reaching, and how long that takes.

Integrals over a box replace the whole ones: P = int_box (phi phi^T) h, and what mass is lost has left the box.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov import checks
from sosmarkov.bases import FullGaussianBasis, GaussianBasis
from sosmarkov.belief import Belief, KnownState, ProductBelief
from sosmarkov.checks import ArrayLike
from sosmarkov.forms import Form
from sosmarkov.inference.propagate import first_coefficients, some_form
from sosmarkov.inference.weigh import project
from sosmarkov.sensors import LinearReading
from sosmarkov.special import log_normal_between
from sosmarkov.transition import Transition


class Box(eqx.Module):
    """One box in data space, and which of its coordinates are bounded at all."""

    lower: Float[Array, " d"]
    upper: Float[Array, " d"]
    bounded: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, lower: ArrayLike, upper: ArrayLike, dim: int):
        self.lower, self.upper = checks.box(lower, upper, dim)
        if self.lower.ndim != 1 or self.upper.ndim != 1:
            raise ValueError(f"Expected one box of {dim} coordinates, got ends of shape {self.lower.shape}.")
        finite = np.isfinite(self.lower) | np.isfinite(self.upper)
        self.bounded = tuple(int(c) for c in np.flatnonzero(finite))

    def shared(self, other: Box) -> Box:
        """The box of what lies in both; where there is nothing, its ends are equal."""
        low, high = jnp.maximum(self.lower, other.lower), jnp.minimum(self.upper, other.upper)
        return Box(low, jnp.maximum(low, high), len(low))


def box_table(transition: Transition, h: Form, box: Box) -> Float[Array, "p q"]:
    """Overlaps of g's terms with h's over a box; zero where it is empty.

    Closed form for families of products under coordinate-wise transforms, and for Gaussian kernels of any kind where
    one coordinate alone is bounded.
    """
    g, transform = transition.g, transition.transform
    if transform.coordinatewise and not isinstance(g.basis, FullGaussianBasis):
        low, high = (transform.forward(end)[0] for end in (box.lower, box.upper))
        return g.basis.overlap_between(g.terms, h.terms, low, high)
    whole = g.basis.overlap(g.terms, h.terms)
    if not box.bounded:
        return whole
    if len(box.bounded) > 1 or not isinstance(g.basis, (GaussianBasis, FullGaussianBasis)):
        raise ValueError(
            f"Expected an axis-aligned family under a coordinate-wise transform for boxes in closed form, got family"
            f" {g.basis.family} under {type(transform).__name__}. Use basis 'gaussian' with a standardising transform,"
            " bound one coordinate only, or count trajectories of `process.sample`."
        )
    c = min(box.bounded)
    matrix, offset, _ = transform.split()
    read = LinearReading(matrix[c][None], offset[c][None], jnp.zeros(1))
    found = project(g.basis, g.terms, h.terms, read)
    std = jnp.sqrt(found.covariance[0, 0])
    share = log_normal_between((box.lower[c] - found.mean[0]) / std, (box.upper[c] - found.mean[0]) / std)
    return jnp.where(jnp.any(box.lower >= box.upper), 0.0, whole * jnp.exp(share))


def _killed(transition: Transition, initial: Belief, table: Array, steps: int) -> tuple[Array, Array]:
    """Coefficients C_1, ..., C_steps when only what `table` lets through goes on, and what it lets through."""
    first = first_coefficients(transition, initial)

    def advance(C: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
        P = table @ C
        return transition.kernel.push(P), (C, transition.g.coefficients @ P)

    return lax.scan(advance, first, None, length=steps)[1]


@eqx.filter_jit
def stay(transition: Transition, initial: Belief, box: Box, steps: int) -> Float[Array, " k"]:
    """P(x_1, ..., x_k all in the box) for k = 1, ..., steps."""
    inside = box_table(transition, some_form(transition), box)
    return _killed(transition, initial, inside, steps)[1]


@eqx.filter_jit
def reach(
    transition: Transition, initial: Belief, target: Box, avoid: tuple[Box, Box] | None, steps: int
) -> Float[Array, " k"]:
    """P(some x_j in the target, j = 1, ..., k, and none of x_1, ..., x_j in `avoid`) for k = 1, ..., steps.

    `avoid` is the box to shun and what it shares with the target.
    """
    h = some_form(transition)
    hit = box_table(transition, h, target)
    free = transition.overlap - hit
    if avoid is not None:
        shunned, shared = (box_table(transition, h, box) for box in avoid)
        hit, free = hit - shared, free - shunned + shared
    coefficients, _ = _killed(transition, initial, free, steps)
    return jnp.cumsum(coefficients @ (transition.g.coefficients @ hit))


@eqx.filter_jit
def mean_first_passage(transition: Transition, initial: Belief, box: Box) -> Float[Array, ""]:
    """E[min {k >= 0: x_k in the box}] = sum_k P(x_0, ..., x_k outside), the sum by one linear solve."""
    outside = transition.overlap - box_table(transition, some_form(transition), box)
    now, C = _start_outside(transition, initial, box)
    step = jax.vmap(transition.kernel.push)(outside.T).T
    visits = jnp.linalg.solve(jnp.eye(len(C)) - step, C)
    return now + transition.g.coefficients @ outside @ visits


def _start_outside(transition: Transition, initial: Belief, box: Box) -> tuple[Array, Array]:
    """P(x_0 outside the box), and C_1 of what starts there."""
    if isinstance(initial, KnownState):
        outside = 1.0 - jnp.all((initial.state > box.lower) & (initial.state < box.upper))
        return outside, outside * first_coefficients(transition, initial)
    if not isinstance(initial, ProductBelief) or initial.lower is not None:
        raise ValueError(f"Expected a belief of this process or a known state, got {type(initial).__name__}.")
    g, h = transition.g, initial.h
    P = (g.basis.overlap(g.terms, h.terms) - box_table(transition, h, box)) @ h.coefficients
    return g.coefficients @ P, transition.kernel.push(P)
