"""The one recursion: a step and what is read after it, again and again, forwards and backwards.

Propagation, filters, smoothers, boxes over time and the losses of training are this loop with another step in it. For
forms whose arrays are JAX's it is one compiled scan, for others a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.reader import Passed, Reader
from sosmarkov.contracts.transition import AbstractTransition, Message, Numbers
from sosmarkov.core.numerics import library, together
from sosmarkov.core.programs import jit_wide

F = TypeVar("F", bound=Callable[..., Any])


def program(function: F, jit: Callable[[Any], Any] = eqx.filter_jit) -> F:
    """A function of a transition, or of a reader of one: compiled where the form of process is."""
    compiled = jit(function)

    @wraps(function)
    def call(subject: Any, *args: Any, **kwargs: Any) -> Any:
        transition = getattr(subject, "transition", subject)
        return (compiled if transition.compiled else function)(subject, *args, **kwargs)

    return call  # type: ignore[return-value]


def wide_program(function: F) -> F:
    """The same for functions that are mostly exponentials."""
    return program(function, jit_wide)


def over(
    transition: AbstractTransition,
    step: Callable[[Any, Any], tuple[Any, Any]],
    carry: Any,
    rows: Any,
    *,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """`lax.scan`, or for forms that are not compiled the loop it stands for."""
    if transition.compiled:
        return lax.scan(step, carry, rows, length=length, reverse=reverse)
    # Rows are taken from NumPy's arrays one by one: from JAX's each would be a program.
    rows = jax.tree.map(np.asarray, rows)
    leaves = jax.tree.leaves(rows)
    count = len(leaves[0]) if leaves else length or 0
    found = []
    for k in reversed(range(count)) if reverse else range(count):
        carry, one = step(carry, jax.tree.map(lambda leaf, k=k: leaf[k], rows))
        found.append(one)
    found = found[::-1] if reverse else found
    return carry, jax.tree.map(together, *found) if found else None


def row(inputs: Float[Array, "k e"] | None, k: int) -> Float[Array, " e"] | None:
    """The input of one step, where there are any."""
    return None if inputs is None else inputs[k]


def run(
    transition: AbstractTransition, first: Numbers, steps: int, inputs: Float[Array, "j e"] | None = None
) -> Numbers:
    """C_1 and what it becomes, `steps` of them in all; `inputs` are those of the steps after it."""

    def advance(C: Numbers, u: Array | None) -> tuple[Numbers, Numbers]:
        C_next = transition.push(transition.message(C), u)
        return C_next, C_next

    return preceded(first, over(transition, advance, first, inputs, length=steps - 1)[1])


def passes(reader: Reader, message: Message, observations: Array, inputs: Array | None = None, **how: Any) -> Passed:
    """What each reading after the first leaves behind, from the message of x_0 given its own.

    Args:
        reader: The sensor, prepared for the transition.
        message: What `Reader.first` returned.
        observations: The readings of x_1, x_2, ...; at least one.
        inputs: Of the steps to them.
        how: `step`: what `Reader.ahead` returned, where many sequences share it; `again`: what the loop's body goes
            through, such as `jax.checkpoint`.
    """
    step = how.get("step") or reader.ahead()

    def advance(message: Message, at: tuple[Array, Array | None]) -> tuple[Message, Passed]:
        return step(message, *at)

    # The first step is taken before the loop: a known state's message is of a kind of its own.
    message, first = advance(message, (observations[0], row(inputs, 0)))
    rows = (observations[1:], None if inputs is None else inputs[1:])
    return preceded(first, over(reader.transition, how.get("again", _as_is)(advance), message, rows)[1])


def _as_is(step: Callable) -> Callable:
    return step


def preceded(first: Any, later: Any) -> Any:
    """Rows with one before them."""
    if later is None:
        return jax.tree.map(lambda leaf: leaf[None], first)
    return jax.tree.map(lambda one, rows: _joined(one[None], rows), first, later)


def _joined(*parts: Any) -> Any:
    """Rows of several arrays, which may be of several lengths where they are NumPy's."""
    return jnp.concatenate(parts) if library(*parts) is jnp else together(*(one for rows in parts for one in rows))


@wide_program
def forward(
    reader: Reader, initial: Belief, observations: Array, inputs: Array | None = None
) -> tuple[Numbers | None, Numbers | None, Float[Any, " t"]]:
    """Numbers of the predicted beliefs at k = 1, ..., T - 1, of those `posterior` starts from, and all evidences."""
    message = reader.first(initial, observations[0])
    begin = library(message.log_scale).reshape(message.log_scale, (1,))
    if len(observations) == 1:
        return None, None, begin
    passed = passes(reader, message, observations[1:], inputs)
    log_evidences = reader.log_evidences(observations[1:], passed)
    # Where both are the same, one of them is kept.
    base = None if passed.base is passed.predicted else passed.base
    return passed.predicted, base, library(begin, log_evidences).concatenate([begin, log_evidences])


@program
def backward(reader: Reader, observations: Array, log_evidences: Any, inputs: Array | None = None) -> Any:
    """What lies behind x_0, ..., x_(T-1), each divided by the evidence it takes in; behind the last is nothing."""
    last = reader.transition.nothing_after()
    step = reader.back()

    def retreat(b: Any, at: tuple[Array, Array, Array | None]) -> tuple[Any, Any]:
        before = step(b, *at)
        return before, before

    rows = (observations[1:], log_evidences[1:], inputs)
    _, behind = over(reader.transition, retreat, last, rows, reverse=True)
    if behind is None:
        return jax.tree.map(lambda leaf: leaf[None], last)
    return jax.tree.map(lambda rows, one: _joined(rows, one[None]), behind, last)
