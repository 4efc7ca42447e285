"""Learned sensors: what is read with every step, modelled together with the step.

f(x; x', o') = sum_r (w(x)^T K_r (psi(x') (x) zeta(o')))^2 with w = L_A^T phi and g on x' alone. With zeta made
orthonormal, the Gram matrix of psi (x) zeta under g is M (x) I: the normalisation is that of a Kraus coupling of rank
z R, and that coupling is p(x' | x) with o' integrated out. A reading contracts K with zeta(o') and costs what a step
costs.
"""

# JAX annotates some of its functions in part.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, NamedTuple, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.reader import Passed, Reader, Sensor, Updated, require_possible
from sosmarkov.contracts.transition import AbstractTransition
from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import pack, whitener
from sosmarkov.core.stored import stored
from sosmarkov.factor import sampling
from sosmarkov.factor.background import require_share
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.beliefs import ProductBelief
from sosmarkov.factor.couplings import Kernel
from sosmarkov.factor.forms import Form, SquaredForm, overlap_table
from sosmarkov.factor.likelihood import Message
from sosmarkov.factor.space import Space
from sosmarkov.factor.transition import Transition
from sosmarkov.spaces.transforms import Identity, Transform, to_data, to_model


class Emitted(NamedTuple):
    """What a reading says: exp(log_scale) times N = zeta zeta^T, missing coordinates integrated out.

    `broad` is the last function's square there, for the background.
    """

    N: Float[Array, "z z"]
    broad: Float[Array, ""]
    log_scale: Float[Array, ""]


@stored("zeta", "transform", "background", derived=("root",), check=lambda sensor: require_share(sensor.background))
class LearnedSensor(Sensor):
    """Readings o of a process whose transition was learned together with them.

    Its process has a `Kraus` coupling of rank z R, in which columns belong to functions of zeta (outer) and to r
    (inner), and an initial form of rank z R_0 (one column more where there is a background).

    Args:
        zeta: Functions of the reading, a family of products.
        transform: From readings to zeta's space, coordinate by coordinate; the identity where none is given.
        background: The share of the process's own background, whose reading has the density of zeta's last function
            squared.
    """

    of_state: ClassVar[bool] = False

    zeta: Basis
    transform: Transform
    background: float = eqx.field(static=True)
    # W with W Z W^T = I: W zeta is orthonormal.
    root: Float[Array, "z z"]

    def __init__(self, zeta: Basis, transform: Transform | None = None, *, background: float = 0.0):
        self.zeta = zeta
        self.transform = Identity(zeta.dim) if transform is None else transform
        self.background = background
        if not Space(zeta, self.transform).separate or self.transform.dim != zeta.dim:
            raise ValueError(
                f"Expected a family of products under a coordinate-wise transform of {zeta.dim} coordinates for a"
                f" sensor, got {zeta.family} under {type(self.transform).__name__} of {self.transform.dim}."
            )
        self.root = _whitened(zeta)

    @property
    def dim(self) -> int:
        """Numbers in a reading."""
        return self.zeta.dim

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one reading."""
        return (self.dim,)

    def check(self, observations: ArrayLike, name: str = "observations") -> Float[Array, ...]:
        """Shape (..., k), NaN for what is missing."""
        array = checks.as_float(observations, name)
        if array.ndim == 0 or array.shape[-1] != self.dim:
            raise ValueError(f"Expected {name} with {self.dim} numbers on the last axis, got shape {array.shape}.")
        return array

    def parts(self) -> tuple[tuple[Array, Sensor], ...]:
        """None: a reading says nothing of the state alone."""
        return ()

    def require_fits(self, transition: AbstractTransition) -> None:
        """A coupling without room for the sensor's functions is refused."""
        kernel, z = getattr(transition.steady, "kernel", None), self.zeta.size
        if kernel is None:
            raise ValueError(
                "Expected a process in factor form, which was learned together with this sensor, got a"
                f" {type(transition).__name__}. Give it a sensor of the state alone, such as sm.LinearSensor."
            )
        rank = kernel.rank
        if rank is None or rank % z:
            got = "another coupling" if rank is None else rank
            raise ValueError(f"Expected a Kraus rank that is a multiple of the sensor's {z} functions, got {got}.")

    def reader(self, transition: AbstractTransition, *, own: bool = True) -> JointReader:
        """Readings that are taken together with the step."""
        self.require_fits(transition)
        return JointReader(transition.steady, self, own)  # type: ignore[arg-type]

    def emitted(self, observation: Float[Array, " k"]) -> Emitted:
        """What one reading says; NaN where a coordinate is missing."""
        log_abs, sign = jnp.zeros((self.zeta.size,) * 2), jnp.ones((self.zeta.size,) * 2)
        for c in range(self.dim):
            basis = self.zeta.restrict((c,))
            missing = jnp.isnan(observation[c])
            y, log_det = self.transform.select((c,)).forward(jnp.where(missing, 0.0, observation[c])[None])
            inside = basis.inside(y) & ~missing
            at = basis.evaluate(jnp.where(inside, y, basis.interior_point()))
            # In logarithms: overlaps of narrow functions far apart are zero in doubles, and log 0 has no gradient.
            log_whole, sign_whole = basis.log_overlap(basis.terms(1), basis.terms(1))
            here = at.log_abs[:, None] + at.log_abs[None] + log_det
            here = jnp.where(inside, here, -jnp.inf)
            log_abs = log_abs + jnp.where(missing, log_whole, here)
            sign = sign * jnp.where(missing, sign_whole, at.sign[:, None] * at.sign[None])
        top = jnp.max(log_abs)
        top = jnp.where(jnp.isfinite(top), top, 0.0)
        N = sign * jnp.exp(log_abs - top)
        # Where all is missing N is the identity: it is not left to rounding.
        nothing = jnp.all(jnp.isnan(observation))
        seen = jnp.where(nothing, jnp.eye(len(N)), self.root @ N @ self.root.T)
        return Emitted(seen, jnp.where(nothing, 1.0, N[-1, -1]), jnp.where(nothing, 0.0, top))

    def split(self, columns: Float[Array, "*b r"]) -> Float[Array, "*b z s"]:
        """Columns of rank z R by function of zeta and by r."""
        return columns.reshape(*columns.shape[:-1], self.zeta.size, -1)

    def start(self, factor: Float[Array, "n r"], seen: Emitted) -> Float[Array, "n n"]:
        """The matrix of h_0 given the first reading, from h_0's factor; its mass is the evidence (up to the scale)."""
        own = factor[:, :-1] if self.background > 0 else factor
        F = self.split(own)
        matrix = jnp.einsum("iar,ab,jbr->ij", F, seen.N, F)
        if self.background > 0:
            matrix = matrix + seen.broad * jnp.outer(factor[:, -1], factor[:, -1])
        return matrix

    def log_prob_model(
        self, transition: Transition, y_next: Float[Array, " d"], y: Float[Array, " d"], observation: Array
    ) -> Float[Array, ""]:
        """log p(y', o' | y), the states in model space."""
        seen, log_g = self.emitted(observation), transition.g.log_value_inside
        log_f = self.kernel(transition, seen).log_value(transition.phi.evaluate(y), transition.psi.evaluate(y_next))
        return log_g(y_next) + log_f - log_g(y) + seen.log_scale

    def kernel(self, transition: Transition, seen: Emitted) -> Kernel:
        """The kernel of x' and a reading: masses of what it leads to are the evidence, up to the reading's scale."""
        found = transition.kernel.seen(seen.N, seen.broad)
        if found.background.share != self.background:
            raise ValueError(
                f"Expected a sensor with the background of its process, {found.background.share}, got"
                f" {self.background}."
            )
        return found


@eqx.filter_jit
def _whitened(zeta: Basis) -> Float[Array, "z z"]:
    """W with W Z W^T = I, Z = int zeta zeta^T."""
    return whitener(zeta.overlap(zeta.terms(1), zeta.terms(1)))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class JointReader(Reader):
    """A learned sensor beside its process: the reading is part of the step that leads to its state.

    Args:
        transition: The process's.
        sensor: The process's.
        own: Whether the start is the process's own, which knows what is read with it.
    """

    transition: Transition
    sensor: LearnedSensor
    own: bool = field(metadata={"static": True})

    def _knows(self, initial: Belief) -> TypeGuard[ProductBelief]:
        """Whether this is the process's own start."""
        return self.own and isinstance(initial, ProductBelief)

    def begin(self, initial: Belief, observation: Array) -> Belief:
        """The initial belief given its reading."""
        if self._knows(initial):
            return _begun(self.sensor, initial, observation)[0]
        if checks.is_concrete(observation) and np.all(np.isnan(observation)):
            return initial
        raise ValueError(
            "Expected the process's own initial belief with a learned sensor, which knows what is read with it, got"
            " another. Mark its reading as missing (NaN), or take the step and its reading at once:"
            " process.advance(belief, observation)."
        )

    def first(self, initial: Belief, observation: Array) -> Message:
        """Of the process's own start under its reading; of another as it is."""
        if not self._knows(initial):
            return self.transition.enter(initial)
        h, seen = initial.h, self.sensor.emitted(observation)
        table = overlap_table(self.transition.g, h)
        P = table @ pack(self.sensor.start(h.factor, seen))  # type: ignore[attr-defined]
        mass = self.transition.g.coefficients @ P
        scale = jnp.where(self.sensor.missing(observation), 0.0, jnp.log(mass) + seen.log_scale)
        return Message(P / mass, scale)

    def ahead(self) -> Callable[[Message, Array, Array | None], tuple[Message, Passed]]:
        """C = push under the reading, divided by its mass."""
        transition, sensor = self.transition, self.sensor
        M = transition.mass_vector()

        def step(message: Message, observation: Array, u: Array | None) -> tuple[Message, Passed]:
            del u
            seen = sensor.emitted(observation)
            kernel = sensor.kernel(transition, seen)
            if message.y is None:
                pushed = kernel.push(message.P)
            else:
                pushed = kernel.known(transition.psi, transition.phi.evaluate(message.y))
            mass = M @ pushed
            C = pushed / mass
            return transition.message(C), Passed(transition.push(message), C, mass, seen.log_scale)

        return step

    def back(self) -> Callable[[Array, Array, Array, Array | None], Array]:
        """b = pull under the reading, divided by the evidence."""
        transition, sensor = self.transition, self.sensor

        def step(b: Array, observation: Array, log_evidence: Array, u: Array | None) -> Array:
            del u
            seen = sensor.emitted(observation)
            return sensor.kernel(transition, seen).pull(b @ transition.overlap) * jnp.exp(seen.log_scale - log_evidence)

        return step

    def posterior(self, belief: Belief, observation: Array | None, backward: Array | None = None) -> Belief:
        """The reading is in it: what follows takes the place of g."""
        del observation
        return belief if backward is None else belief.facing(self.transition, backward)[1].normalised()[1]

    def update(self, belief: Belief, observation: Array) -> Updated:
        """Of the process's own initial belief alone: all other readings come with a step."""
        if not self._knows(belief):
            return Updated(self.begin(belief, observation), jnp.zeros(()))
        after, log_evidence = _begun(self.sensor, belief, observation)
        require_possible(log_evidence)
        return Updated(after, log_evidence)

    def advance(self, belief: Belief, observation: Array, u: Array | None = None) -> Updated:
        """The step and its reading at once."""
        if u is not None:
            raise ValueError("Expected no input for a process with a learned sensor, got one.")
        h, log_evidence = _advanced(self, belief, observation)
        require_possible(log_evidence)
        transition = self.transition
        return Updated(ProductBelief(g=transition.g, h=h, transform=transition.transform), log_evidence)

    def draw(self, key: Array, x: Array, observation: Array, backward: Array, u: Array | None) -> Array:
        """From f(x; ., o) B."""
        del u
        seen = eqx.filter_jit(LearnedSensor.emitted)(self.sensor, observation)
        values, vectors = np.linalg.eigh(np.asarray(seen.N))
        # F with F F^T = N, as squares are drawn from. N is a Gram matrix: what is below zero is rounding.
        root = jnp.asarray(vectors * np.sqrt(np.where(values > 0, values, 0.0)))
        return _draw(self, key, x, seen._replace(N=root.T), backward)


@eqx.filter_jit
def _begun(sensor: LearnedSensor, initial: ProductBelief, observation: Array) -> tuple[ProductBelief, Array]:
    """The initial belief given its reading, and the log of how likely that was."""
    seen = sensor.emitted(observation)
    h = SquaredForm(initial.h.basis, matrix=sensor.start(initial.h.factor, seen))  # type: ignore[attr-defined]
    log_mass, start = initial.changed((h, initial.lower, initial.upper)).normalised()
    return start, jnp.where(sensor.missing(observation), 0.0, log_mass + seen.log_scale)


# Plain `jit`: all leaves are arrays, and a stream of readings feels what Equinox's filtering costs.
@jax.jit
def _advanced(reader: JointReader, belief: Belief, observation: Array) -> tuple[Form, Array]:
    _, passed = reader.ahead()(reader.transition.enter(belief), observation, None)
    row = jax.tree.map(partial(jnp.expand_dims, axis=0), passed)
    transition = reader.transition
    return transition.form(transition.psi, passed.base), reader.log_evidences(observation[None], row)[0]


@eqx.filter_jit
def _draw(reader: JointReader, key: Array, x: Array, root: Emitted, backward: Array) -> Array:
    """One draw of x' for each x, root^T in the place of N."""
    transition = reader.transition
    kernel = reader.sensor.kernel(transition, root)
    B = transition.form(transition.phi, backward)
    y, _ = to_model(transition.transform, x)
    found = sampling.draw_each(key, B, lambda y: kernel.form_from(transition.psi, transition.phi.evaluate(y)), y)
    return to_data(transition.transform, found)


@eqx.filter_jit
def log_prob(
    sensor: LearnedSensor, transition: Transition, x_next: Float[Array, "n d"], x: Array, observation: Array
) -> Float[Array, " n"]:
    """log p(x', o' | x) of rows, in data space."""
    forward = jax.vmap(transition.transform.forward)
    (y_next, log_det), (y, _) = forward(x_next), forward(x)
    density = partial(LearnedSensor.log_prob_model, sensor, transition)
    return jax.vmap(density)(y_next, y, observation) + log_det
