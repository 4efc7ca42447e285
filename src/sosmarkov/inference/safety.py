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

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.known import KnownState
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.special import log_normal_between
from sosmarkov.factor.bases import FullGaussianBasis, GaussianBasis
from sosmarkov.factor.beliefs import ProductBelief
from sosmarkov.factor.forms import Form
from sosmarkov.factor.transition import Dynamics, Transition
from sosmarkov.inference.normals import project
from sosmarkov.inference.propagate import first_coefficients, row, some_form
from sosmarkov.sensors.known import LinearReading


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
        ends = [self._known(end, dim) for end in (lower, upper)]
        self.bounded = tuple(c for c in range(dim) if any(end is None or np.isfinite(end[c]) for end in ends))

    @staticmethod
    def _known(end: ArrayLike, dim: int) -> np.ndarray | None:
        known = not isinstance(end, jax.Array) or checks.is_concrete(end)
        return np.broadcast_to(np.asarray(end, dtype=float), dim) if known else None

    def shared(self, other: Box) -> Box:
        """The box of what lies in both; where there is nothing, its ends are equal."""
        low, high = jnp.maximum(self.lower, other.lower), jnp.minimum(self.upper, other.upper)
        return Box(low, jnp.maximum(low, high), len(low))


def box_table(transition: Dynamics, h: Form, box: Box) -> Float[Array, "p q"]:
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


def _killed(
    transition: Dynamics, initial: Belief, table: Array, steps: int, inputs: Array | None
) -> tuple[Array, Array]:
    """Coefficients C_1, ..., C_steps when only what `table` lets through goes on, and what it lets through."""
    first = first_coefficients(transition.at(row(inputs, 0)), initial)

    def advance(C: Array, u: Array | None) -> tuple[Array, tuple[Array, Array]]:
        P = table @ C
        return transition.at(u).kernel.push(P), (C, transition.g.coefficients @ P)

    later = None if inputs is None else inputs[1:]
    last, (coefficients, through) = lax.scan(advance, first, later, length=steps - 1)
    return (
        jnp.concatenate([coefficients, last[None]]),
        jnp.append(through, transition.g.coefficients @ (table @ last)),
    )


@eqx.filter_jit
def stay(
    transition: Dynamics, initial: Belief, box: Box, steps: int, inputs: Array | None = None
) -> Float[Array, " k"]:
    """P(x_1, ..., x_k all in the box) for k = 1, ..., steps."""
    inside = box_table(transition, some_form(transition), box)
    return _killed(transition, initial, inside, steps, inputs)[1]


@eqx.filter_jit
def reach(
    transition: Dynamics,
    initial: Belief,
    target: Box,
    avoid: tuple[Box, Box] | None,
    steps: int,
    inputs: Array | None = None,
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
    coefficients, _ = _killed(transition, initial, free, steps, inputs)
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
