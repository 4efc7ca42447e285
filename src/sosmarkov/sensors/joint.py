"""Learned sensors: what is read with every step, modelled together with the step.

f(x; x', o') = sum_r (w(x)^T K_r (psi(x') (x) zeta(o')))^2 with w = L_A^T phi and g on x' alone. With zeta made
orthonormal, the Gram matrix of psi (x) zeta under g is M (x) I: the normalisation is that of a Kraus coupling of rank
z R, and that coupling is p(x' | x) with o' integrated out. A reading contracts K with zeta(o') and costs what a step
costs.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import pair_indices, whitener
from sosmarkov.core.stored import stored
from sosmarkov.factor.background import require_share
from sosmarkov.factor.bases import Basis, FullGaussianBasis
from sosmarkov.factor.couplings import Kernel
from sosmarkov.factor.forms import Form
from sosmarkov.factor.transition import Transition
from sosmarkov.spaces.transforms import Identity, Transform


class Emitted(NamedTuple):
    """What a reading says: exp(log_scale) times N = zeta zeta^T, missing coordinates integrated out.

    `broad` is the last function's square there, for the background.
    """

    N: Float[Array, "z z"]
    broad: Float[Array, ""]
    log_scale: Float[Array, ""]


@stored("zeta", "transform", "background", derived=("root",), check=lambda sensor: require_share(sensor.background))
class LearnedSensor(eqx.Module):
    """Readings o of a process whose transition was learned together with them.

    Its process has a `Kraus` coupling of rank z R, in which columns belong to functions of zeta (outer) and to r
    (inner), and an initial form of rank z R_0 (one column more where there is a background).

    Args:
        zeta: Functions of the reading, a family of products.
        transform: From readings to zeta's space, coordinate by coordinate; the identity where none is given.
        background: The share of the process's own background, whose reading has the density of zeta's last function
            squared.
    """

    zeta: Basis
    transform: Transform
    background: float = eqx.field(static=True)
    # W with W Z W^T = I: W zeta is orthonormal.
    root: Float[Array, "z z"]

    def __init__(self, zeta: Basis, transform: Transform | None = None, *, background: float = 0.0):
        self.zeta = zeta
        self.transform = Identity(zeta.dim) if transform is None else transform
        self.background = background
        if isinstance(zeta, FullGaussianBasis) or not self.transform.coordinatewise or self.transform.dim != zeta.dim:
            raise ValueError(
                f"Expected a family of products under a coordinate-wise transform of {zeta.dim} coordinates for a"
                f" sensor, got {zeta.family} under {type(self.transform).__name__} of {self.transform.dim}."
            )
        self.root = eqx.filter_jit(lambda zeta: whitener(zeta.overlap(zeta.terms(1), zeta.terms(1))))(zeta)

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
            here = at.log_abs[:, None] + at.log_abs + log_det
            here = jnp.where(inside, here, -jnp.inf)
            log_abs = log_abs + jnp.where(missing, log_whole, here)
            sign = sign * jnp.where(missing, sign_whole, at.sign[..., None] * at.sign)
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

    def push(self, transition: Transition, P: Float[Array, " p"], seen: Emitted) -> Float[Array, " q"]:
        """C' = sum_ab N_ab sum_r K_ra^T P K_rb, whose mass is the evidence (up to the reading's scale)."""
        return self._kernel(transition, seen.N, seen.broad).push(P)

    def push_from(self, transition: Transition, y: Float[Array, " d"], seen: Emitted) -> Float[Array, " q"]:
        """The same from a known state, in model space: P = phi phi^T / g there."""
        phi, (rows, columns) = transition.phi.evaluate(y), pair_indices(transition.phi.size)
        values, log_scale = phi.scaled()
        P = values[rows] * values[columns] * jnp.exp(2.0 * log_scale - transition.g.log_value_of(phi))
        return self.push(transition, P, seen)

    def pull(self, transition: Transition, M: Float[Array, " q"], seen: Emitted) -> Float[Array, " p"]:
        """The adjoint of `push`."""
        return self._kernel(transition, seen.N, seen.broad).pull(M)

    def form_from(self, transition: Transition, y: Float[Array, " d"], root: Array, broad: Array) -> Form:
        """h(x') with g h the density of x' and a reading from a known state, as squares: root root^T = N."""
        kernel = self._kernel(transition, root.T, broad)
        return kernel.form_from(transition.psi, transition.phi.evaluate(y))

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
        kernel = self._kernel(transition, seen.N, seen.broad)
        log_f = kernel.log_value(transition.phi.evaluate(y), transition.psi.evaluate(y_next))
        return log_g(y_next) + log_f - log_g(y) + seen.log_scale

    def _kernel(self, transition: Transition, N: Array, broad: Array) -> Kernel:
        found = transition.kernel.seen(N, broad)
        if found.background.share != self.background:
            raise ValueError(
                f"Expected a sensor with the background of its process, {found.background.share}, got"
                f" {self.background}."
            )
        return found


def require_rank(sensor: LearnedSensor, transition: Transition) -> None:
    """Refuse a process whose coupling has no room for the sensor's functions."""
    rank, z = transition.kernel.rank, sensor.zeta.size
    if rank is None or rank % z:
        got = "another coupling" if rank is None else rank
        raise ValueError(f"Expected a Kraus rank that is a multiple of the sensor's {z} functions, got {got}.")


@eqx.filter_jit
def log_prob(
    sensor: LearnedSensor, transition: Transition, x_next: Float[Array, "n d"], x: Array, observation: Array
) -> Float[Array, " n"]:
    """log p(x', o' | x) of rows, in data space."""
    forward = jax.vmap(transition.transform.forward)
    (y_next, log_det), (y, _) = forward(x_next), forward(x)
    return jax.vmap(lambda *row: sensor.log_prob_model(transition, *row))(y_next, y, observation) + log_det
