"""Boxes over time: staying, leaving, reaching, and how long that takes.

Integrals over a box replace the whole ones: P = int_box (phi phi^T) h, and what mass is lost has left the box.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.transition import AbstractTransition
from sosmarkov.inference.recursion import program, run_from


@program
def stay(transition: AbstractTransition, initial: Belief, box: Any, steps: int, inputs: Any = None) -> Float[Any, " k"]:
    """P(x_1, ..., x_k all in the box) for k = 1, ..., steps."""
    inside = transition.window(box)
    return inside.shares(run_from(transition, initial, steps, inputs, inside))


@program
def reach(
    transition: AbstractTransition,
    initial: Belief,
    target: Any,
    avoid: tuple[Any, Any] | None,
    steps: int,
    inputs: Any = None,
) -> Float[Any, " k"]:
    """P(some x_j in the target, j = 1, ..., k, and none of x_1, ..., x_j in `avoid`) for k = 1, ..., steps.

    `avoid` is the box to shun and what it shares with the target.
    """
    hit = transition.window(target)
    free = transition.everywhere() - hit
    if avoid is not None:
        shunned, shared = (transition.window(box) for box in avoid)
        hit, free = hit - shared, free - shunned + shared
    return jnp.cumsum(hit.shares(run_from(transition, initial, steps, inputs, free)))


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
