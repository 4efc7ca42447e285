"""MarkovProcess: an initial belief and a transition, with the verbs that act on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sosmarkov import checks
from sosmarkov.belief import Belief, KnownState, ProductBelief, initial_belief
from sosmarkov.checks import ArrayLike
from sosmarkov.diagnostics import CheckReport, examine
from sosmarkov.forms import Form
from sosmarkov.inference import propagate as propagation
from sosmarkov.transforms import Transform
from sosmarkov.transition import Transition


class Beliefs(eqx.Module, Sequence[Belief]):
    """Beliefs at steps 0, 1, ..., K; each is made when it is asked for."""

    initial: Belief
    transition: Transition
    coefficients: Float[Array, "k q"]

    def __len__(self) -> int:
        """K + 1."""
        return self.coefficients.shape[0] + 1

    @overload
    def __getitem__(self, index: int) -> Belief: ...

    @overload
    def __getitem__(self, index: slice) -> list[Belief]: ...

    def __getitem__(self, index: int | slice) -> Belief | list[Belief]:
        """The belief at a step, or a list of them for a slice."""
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        k = range(len(self))[index]
        return self.initial if k == 0 else belief_from(self.transition, self.coefficients[k - 1])

    def __iter__(self) -> Iterator[Belief]:
        """From the first to the last step."""
        return (self[k] for k in range(len(self)))


class MarkovProcess(eqx.Module):
    """A Markov process in rational-factor form.

    Args:
        transition: p(x' | x).
        initial: Where it starts: a form h_0 over a basis of its own (p_0 = g h_0, normalised
            exactly), a belief of this process, or a known state of shape (d,).
    """

    initial: Belief
    transition: Transition
    # What training did, where it was trained; a record, not part of the mathematics.
    history: Any = eqx.field(static=True)

    def __init__(self, transition: Transition, initial: Belief | Form | ArrayLike, *, history: Any = None):
        self.transition = transition
        self.initial = self._start(initial)
        self.history = history

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.transition.dim

    @property
    def transform(self) -> Transform:
        """From data to model space."""
        return self.transition.transform

    @property
    def parameter_count(self) -> int:
        """Free numbers of the transition and of the initial belief."""
        count = self.transition.parameter_count
        if isinstance(self.initial, ProductBelief):
            basis = eqx.filter(self.initial.h.basis, eqx.is_inexact_array)
            count += sum(leaf.size for leaf in jax.tree.leaves(basis)) + self.initial.h.coefficients.size
        return count

    def propagate(self, steps: int, *, initial: Belief | Form | ArrayLike | None = None) -> Beliefs:
        """Beliefs at steps 0 to `steps`, exactly, by one compiled scan.

        p_(k+1)(x') = int p(x' | x) p_k(x) dx is a linear map on the coefficients of h_k.

        Args:
            steps: How far ahead, zero or more.
            initial: Another start than the process's own: a belief, a form h_0, or a known state.
        """
        steps = checks.count(steps, "steps")
        start = self.initial if initial is None else self._start(initial)
        if steps == 0:
            size = self.transition.overlap.shape[1]
            return Beliefs(start, self.transition, jnp.zeros((0, size)))
        return Beliefs(start, self.transition, propagation.propagate(self.transition, start, steps))

    def belief_at(self, k: int, *, initial: Belief | Form | ArrayLike | None = None) -> Belief:
        """The belief at one step, however far, at a cost that grows with log k."""
        k = checks.count(k, "k")
        start = self.initial if initial is None else self._start(initial)
        if k == 0:
            return start
        return belief_from(self.transition, propagation.coefficients_at(self.transition, start, k))

    def check(self) -> CheckReport:
        """How exactly the process is normalised, and how well it is conditioned."""
        return examine(self.transition, self.initial)

    def _start(self, initial: Belief | Form | ArrayLike) -> Belief:
        if isinstance(initial, Form):
            return initial_belief(self.transition.g, initial, self.transform)
        if not isinstance(initial, Belief):
            initial = KnownState(initial)
        if initial.dim != self.dim:
            raise ValueError(f"Expected an initial belief over {self.dim} coordinates, got {initial.dim}.")
        if isinstance(initial, ProductBelief) and not _same(initial.g, self.transition.g):
            raise ValueError(
                "Expected a belief of this process (its factor g divides out), got one of another process."
            )
        if isinstance(initial, KnownState):
            y, _ = self.transform.forward(initial.state)
            inside = self.transition.phi.inside(y)
            if checks.is_concrete(inside) and not bool(inside):
                raise ValueError(
                    f"Expected a known state inside the domain, got {initial.state}, which is {y} in model"
                    f" space ({self.transition.phi.lower} to {self.transition.phi.upper})."
                )
        return initial


@eqx.filter_jit
def belief_from(transition: Transition, coefficients: Float[Array, " q"]) -> ProductBelief:
    """The belief g h with these coefficients of h over the terms of psi."""
    h = transition.kernel.form(transition.psi, coefficients)
    return ProductBelief(g=transition.g, h=h, transform=transition.transform)


def _same(one: Form, other: Form) -> bool:
    """Whether two forms are equal, as far as their values can be looked at."""
    equal = eqx.filter_jit(eqx.tree_equal)(one, other)
    return not checks.is_concrete(jnp.asarray(equal)) or bool(equal)
