"""A step of the rational-factor forms: what every transition that shares its factor g with its beliefs answers.

p(x' | x) = g(x') f(x, x') / g(x), beliefs g h. As g divides out, a step needs P = int (phi phi^T) h alone.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.check import CheckReport
from sosmarkov.contracts.transition import AbstractTransition, driven_by
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import pair_indices, unpack, unpack_coefficients
from sosmarkov.factor.bases import Basis, require_compatible
from sosmarkov.factor.beliefs import ProductBelief
from sosmarkov.factor.boxes import Box, Window
from sosmarkov.factor.examine import examine
from sosmarkov.factor.forms import Form, LinearForm, SquaredForm, overlap_table, product_mass
from sosmarkov.factor.likelihood import Message
from sosmarkov.factor.readings import KnownReader
from sosmarkov.spaces.transforms import Transform, to_model

_BLOCK = 1024


class FactorTransition(AbstractTransition):
    """What moves a belief g h: a transition, or one for every input.

    All transitions of it share the factor g, the basis psi and the table of overlaps.
    """

    compiled: ClassVar[bool] = True
    kind: ClassVar[str] = "factor"

    phi: eqx.AbstractVar[Basis]
    psi: eqx.AbstractVar[Basis]
    transform: eqx.AbstractVar[Transform]
    overlap: eqx.AbstractVar[Float[Array, "p q"]]
    # The last of these: files know arrays by their order.
    coupling: eqx.AbstractVar[Any]

    @property
    @abstractmethod
    def g(self) -> Form:
        """The rational factor, in model space."""

    @abstractmethod
    def at(self, u: Float[Array, " e"] | None) -> Any:
        """The transition under an input: one with a kernel."""

    @abstractmethod
    def checked(self, u: ArrayLike | None) -> Array | None:
        """Inputs of shape (..., e) as `log_prob` takes them, None where the transition takes none; or a ValueError."""

    def parts(self) -> dict[str, str]:
        """Family, coupling, functions, transform."""
        found = {"basis": self.phi.family}
        if self.features is None:
            found["coupling"] = type(self.coupling).__name__.lower()
            rank = self.at(None).kernel.rank
            found |= {} if rank is None else {"Kraus rank": str(rank)}
        else:
            found |= {"coupling": "kraus, under inputs"} | driven_by(self.features)
        found["functions"] = f"{self.phi.size} (g), {self.psi.size} (next state)"
        return found | {"transform": type(self.transform).__name__}

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return self.phi.dim

    @property
    def parameter_count(self) -> int:
        """Free numbers in the bases and the coupling."""
        parts = eqx.filter((self.phi, self.psi, self.coupling), eqx.is_inexact_array)
        return sum(leaf.size for leaf in jax.tree.leaves(parts))

    @property
    def sizes(self) -> str:
        """Functions of both bases."""
        return f"{self.phi.size} functions (g), {self.psi.size} (next state)"

    def form(self, basis: Basis, coefficients: Float[Array, " q"]) -> Form:
        """The form over phi or psi with these coefficients, of g's kind."""
        return self.g.with_coefficients(basis, coefficients)

    def some_form(self) -> Form:
        """A form over psi, for tables that read its terms and not its coefficients."""
        return self.form(self.psi, jnp.ones(self.overlap.shape[1]))

    def log_prob(self, x_next: ArrayLike, x: ArrayLike, u: ArrayLike | None = None) -> Float[Array, ...]:
        """log p(x_next | x, u) for arrays of shape (..., d) and inputs (..., e), where there are any.

        Leading axes broadcast; -inf where x_next (or x) lies outside the domain; never NaN.
        """
        x_next, x = checks.states(x_next, self.dim, "x_next"), checks.states(x, self.dim, "x")
        return _log_prob(self, x_next, x, self.checked(u))

    # --- the step ---------------------------------------------------------------------------------

    def start(self, initial: Any) -> Belief:
        """A form h_0 over a basis of g's family is a start too."""
        if isinstance(initial, Form):
            return initial_belief(self.g, initial, self.transform)
        return super().start(initial)

    def require_inside(self, state: Float[Array, " d"]) -> None:
        """Refuse a state outside of the domain."""
        y, _ = self.transform.forward(state)
        inside = self.phi.inside(y)
        if checks.is_concrete(inside) and not bool(inside):
            raise ValueError(
                f"Expected a known state inside the domain, got {state}, which is {y} in model"
                f" space ({self.phi.lower} to {self.phi.upper})."
            )

    def enter_state(self, state: Float[Array, " d"], reading: Any = None) -> Message:
        """Phi phi^T / g, or phi / g, at the state."""
        y, _ = self.transform.forward(state)
        values, _ = self.phi.evaluate(y).scaled()
        rows, columns = pair_indices(len(values))
        P = values if self.g.order == 1 else values[rows] * values[columns]
        log_scale = jnp.zeros(()) if reading is None else reading.log_prob(state)
        return Message(P / (self.g.coefficients @ P), log_scale, y)

    def enter_product(self, belief: ProductBelief, reading: Any = None) -> Message:
        """Of a belief g h, whose h may sit on a basis of its own."""
        if reading is not None:
            return reading.enter_product(belief)
        # g is absent on purpose: the belief multiplies by it and the transition divides by it, so it
        # cancels inside the integral.
        return Message(overlap_table(self.g, belief.h, *(belief.ends or ())) @ belief.h.coefficients, jnp.zeros(()))

    def message(self, C: Float[Array, " q"]) -> Message:
        """E C, with the table of overlaps E."""
        return Message(self.overlap @ C, jnp.zeros(()))

    def mixed(self, weights: Float[Array, " m"], messages: list[Message]) -> Message:
        """The weighted sum."""
        log_weights = jnp.log(weights) + jnp.stack([message.log_scale for message in messages])
        total = jax.nn.logsumexp(log_weights)
        total = jnp.where(jnp.isfinite(total), total, 0.0)
        P = jnp.stack([message.P for message in messages])
        return Message(jnp.exp(log_weights - total) @ P, total)

    def push(self, message: Message, u: Float[Array, " e"] | None = None) -> Float[Array, " q"]:
        """The coefficients of the next h over the terms of psi."""
        step = self.at(u)
        return step.kernel.push(message.P) if message.y is None else step.form_from(message.y).coefficients

    def worth(self, message: Message, backward: Float[Array, " p"]) -> Float[Array, ""]:
        """Int B h l, without the scale; B = g where nothing is behind."""
        return backward @ message.P

    def pull(self, backward: Float[Array, " q"], u: Float[Array, " e"] | None = None) -> Float[Array, " p"]:
        """Coefficients over phi's terms of int f(x, x') (.)(x') dx'."""
        return self.at(u).kernel.pull(backward)

    @eqx.filter_jit
    def behind(self, backward: Float[Array, " p"]) -> Form:
        """What lies behind a state, B, as a form over phi."""
        return self.form(self.phi, backward)

    def nothing_after(self) -> Float[Array, " p"]:
        """Those of g."""
        return self.g.coefficients

    @eqx.filter_jit
    def belief(self, C: Float[Array, " q"]) -> ProductBelief:
        """The belief g h with these coefficients of h over the terms of psi."""
        return ProductBelief(g=self.g, h=self.form(self.psi, C), transform=self.transform)

    def later(self, belief: Belief, u: Float[Array, " e"] | None = None) -> ProductBelief:
        """The belief after one step, which shares its factor g with the transition."""
        h = _form_later(self, belief, u)
        return ProductBelief(g=self.g, h=h, transform=self.transform, names=belief.names)

    @eqx.filter_jit
    def mean_push(self, states: Float[Array, "n d"]) -> Float[Array, " q"]:
        """The mean over states of C_1 from each."""
        y, _ = to_model(self.transform, states)
        step = self.at(None)
        return jnp.mean(lax.map(lambda y: step.form_from(y).coefficients, y, batch_size=min(_BLOCK, len(y))), axis=0)

    @eqx.filter_jit
    def log_prob_later(
        self, x_next: Float[Array, "n d"], x: Float[Array, "n d"], gap: int, inputs: Float[Array, "n gap e"] | None
    ) -> Float[Array, " n"]:
        """The density of a known state some steps on."""
        y, _ = to_model(self.transform, x)
        y_next, log_det = to_model(self.transform, x_next)

        def one(pair: tuple[Array, Array, Array | None]) -> Array:
            y, y_next, u = pair
            first = self.at(None if u is None else u[0])
            if gap == 1:
                return first.log_prob_model(y_next, y)

            def advance(C: Array, u: Array | None) -> tuple[Array, None]:
                return self.push(self.message(C), u), None

            C = first.form_from(y).coefficients
            C, _ = lax.scan(advance, C, None if u is None else u[1:], length=gap - 1)
            return self.belief(C).log_prob_model(y_next)

        return lax.map(one, (y, y_next, inputs), batch_size=min(_BLOCK, len(y))) + log_det

    def reader(self, sensor: Any) -> KnownReader:
        """Readings as functions of the basis's family."""
        return KnownReader(self, sensor, self.transform)

    # --- boxes and moments ------------------------------------------------------------------------

    def box(self, lower: ArrayLike, upper: ArrayLike) -> Box:
        """A box in data space."""
        return Box(lower, upper, self.dim)

    def window(self, box: Box) -> Window:
        """Of what lies in a box."""
        return Window(self, box.table(self.g, self.some_form(), self.transform), ((1, box),))

    def everywhere(self) -> Window:
        """Of all there is."""
        return Window(self, self.overlap, ((1, None),))

    def coordinate(self, coordinate: int) -> Window:
        """Int x_c times phi's term p times psi's term q, x in data space."""
        matrix, offset, inner = self.transform.split()
        left, right = self.phi.terms(self.g.order), self.psi.terms(self.g.order)
        total = offset[coordinate] * self.overlap
        reached = [coordinate] if self.transform.coordinatewise else range(self.dim)
        for e in reached:
            total = total + matrix[coordinate, e] * self.phi.power_table(left, right, e, inner)
        return Window(self, total, ())

    def examine(self, initial: Belief) -> CheckReport:
        """By the spectrum of the kernel, not by a sample of states."""
        return examine(self, initial)

    # --- the map as a whole -----------------------------------------------------------------------

    def step_matrix(self, window: Window | None = None) -> Float[Array, "q q"]:
        """Columns are where the terms of psi are pushed to."""
        table = self.overlap if window is None else window.table
        return jax.vmap(self.at(None).kernel.push)(table.T).T

    @eqx.filter_jit
    def mass_vector(self) -> Float[Array, " q"]:
        """Int g times the terms of psi."""
        return self.g.coefficients @ self.overlap

    def distance(self, difference: Float[Array, " q"]) -> float:
        """The trace distance of quantum states.

        With D = D+ - D- of positive semi-definite parts, int g |psi^T D psi| <= tr(|D| M), M = int g psi psi^T, the
        absolute value taken where M is the identity.
        """
        v = np.asarray(self.mass_vector())
        if self.g.order == 1:
            return float(0.5 * np.sum(np.abs(np.asarray(difference)) * v))
        m = self.psi.size
        values, vectors = np.linalg.eigh(np.asarray(unpack(jnp.asarray(v), m)))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        D = np.asarray(unpack_coefficients(jnp.asarray(difference), m))
        return float(0.5 * np.sum(np.abs(np.linalg.eigvalsh(root.T @ D @ root))))


def initial_belief(g: Form, h: Form, transform: Transform) -> ProductBelief:
    """p_0 = g h_0, with h_0 scaled so that the mass is exactly one.

    Args:
        g: The transition's factor.
        h: A form of the same kind over a basis of its own, of g's family and domain.
        transform: The transition's.
    """
    require_compatible(("g's basis", g.basis), ("the initial basis", h.basis))
    if type(h) is not type(g):
        kinds = {SquaredForm: "a squared form", LinearForm: "a linear form"}
        raise ValueError(f"Expected {kinds[type(g)]} for the initial belief, got {kinds[type(h)]}.")
    mass, scaled = _scaled(g, h)
    if checks.is_concrete(mass) and not 0 < float(mass) < math.inf:
        raise ValueError(f"Expected an initial form that overlaps with the factor g, got mass {float(mass):g}.")
    return ProductBelief(g=g, h=scaled, transform=transform)


@eqx.filter_jit
def _scaled(g: Form, h: Form) -> tuple[Array, Form]:
    """int g h, and h divided by it."""
    mass = product_mass(g, h)
    return mass, h.scale(-jnp.log(mass))


@eqx.filter_jit
def _log_prob(transition: FactorTransition, x_next: Array, x: Array, u: Array | None) -> Array:
    points = (x_next, x) if u is None else (x_next, x, u)
    shape = jnp.broadcast_shapes(*(a.shape[:-1] for a in points))
    flat = tuple(jnp.broadcast_to(a, (*shape, a.shape[-1])).reshape(-1, a.shape[-1]) for a in points)

    def pairs(u: Array | None, x_next: Array, x: Array) -> Array:
        y, _ = to_model(transition.transform, x)
        y_next, log_det = to_model(transition.transform, x_next)
        return jax.vmap(transition.at(u).log_prob_model)(y_next, y) + log_det

    if u is None or u.ndim == 1:
        return pairs(u, *flat[:2]).reshape(shape)

    def one(row: tuple[Array, ...]) -> Array:
        return pairs(row[2], row[0][None], row[1][None])[0]

    return lax.map(one, flat, batch_size=min(256, len(flat[0]))).reshape(shape)


# Plain `jit`: all leaves are arrays, and a stream of readings feels what Equinox's filtering costs.
@jax.jit
def _form_later(transition: FactorTransition, belief: Belief, u: Array | None) -> Form:
    return transition.form(transition.psi, transition.push(transition.enter(belief), u))
