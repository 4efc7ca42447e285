"""Boxes over time: staying, leaving, reaching, and how long that takes.

Integrals over a box replace the whole ones: P = int_box (phi phi^T) h, and what mass is lost has left the box.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.transition import AbstractTransition, Numbers
from sosmarkov.inference.recursion import over, preceded, program, row


def _let_through(
    transition: AbstractTransition, initial: Belief, window: Any, steps: int, inputs: Array | None
) -> Numbers:
    """Numbers C_1, ..., C_steps when only what the window lets through goes on."""
    first = transition.push(transition.enter(initial), row(inputs, 0))

    def advance(C: Numbers, u: Array | None) -> tuple[Numbers, Numbers]:
        C_next = transition.push(window(C), u)
        return C_next, C_next

    later = None if inputs is None else inputs[1:]
    return preceded(first, over(transition, advance, first, later, length=steps - 1)[1])


@program
def stay(
    transition: AbstractTransition, initial: Belief, box: Any, steps: int, inputs: Array | None = None
) -> Float[Any, " k"]:
    """P(x_1, ..., x_k all in the box) for k = 1, ..., steps."""
    inside = transition.window(box)
    return inside.shares(_let_through(transition, initial, inside, steps, inputs))


@program
def reach(
    transition: AbstractTransition,
    initial: Belief,
    target: Any,
    avoid: tuple[Any, Any] | None,
    steps: int,
    inputs: Array | None = None,
) -> Float[Any, " k"]:
    """P(some x_j in the target, j = 1, ..., k, and none of x_1, ..., x_j in `avoid`) for k = 1, ..., steps.

    `avoid` is the box to shun and what it shares with the target.
    """
    hit = transition.window(target)
    free = transition.everywhere() - hit
    if avoid is not None:
        shunned, shared = (transition.window(box) for box in avoid)
        hit, free = hit - shared, free - shunned + shared
    return hit.shares(_let_through(transition, initial, free, steps, inputs)).cumsum()


@program
def mean_first_passage(transition: AbstractTransition, initial: Belief, box: Any) -> Float[Any, ""]:
    """E[min {k >= 0: x_k in the box}] = sum_k P(x_0, ..., x_k outside), the sum by one linear solve."""
    outside = transition.everywhere() - transition.window(box)
    start = transition.enter(initial, outside)
    C, share = transition.push(start), jnp.exp(start.log_scale)
    if transition.long_run is not None:
        visits = transition.long_run.visits(outside, C)
    else:
        visits = jnp.linalg.solve(jnp.eye(len(C)) - transition.step_matrix(outside), C)
    return share * (transition.total(start) + outside.shares(visits))
