"""Couplings that depend on an input u: K(u) = sum_j b_j(u) K_j, normalised for every u under one shared g.

p(x' | x, u) = g(x') sum_r (phi(x)^T S(u) K_r(u) psi(x'))^2 / g(x). As g does not depend on u, beliefs under any
sequence of inputs stay products g h_k, and are differentiable in the inputs.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import Signed, inverse_root_near_identity, pack, unpack, whitener
from sosmarkov.core.stored import Fields, positive, require, stored
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.couplings.base import Kernel, raw_triangle, require_rank, require_share, triangle
from sosmarkov.factor.couplings.kraus import Kraus, sound
from sosmarkov.factor.forms import SquaredForm
from sosmarkov.factor.starts import Wanted, kraus_parts

# Width of a bump in distances to the next one: b(u) goes from one centre to the next without a plateau between them.
OVERLAP = 0.7


class Features(eqx.Module):
    """b(u), the weights of the K_j, for an input u of shape (e,)."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of inputs e."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of weights J."""

    @property
    def period(self) -> int | None:
        """Where the input is the time and comes round: after how many steps."""
        return None

    @abstractmethod
    def __call__(self, u: Float[Array, " e"]) -> Float[Array, " j"]:
        """The weights under one input."""

    def shares(self, u: np.ndarray) -> np.ndarray:
        """How much each K_j has to do with each pair at the start, from inputs (N, e): K_j is theirs, where known."""
        return np.asarray(jax.jit(jax.vmap(self))(jnp.asarray(u)))


@stored(check=positive("width"))
class Bumps(Features):
    """b_j(u) proportional to exp(-|(u - c_j) / width|^2 / 2), summing to one.

    Smooth everywhere; far outside the centres the nearest one has all the weight, so that p(x' | x, u) stays what it
    is at the edge of the data.

    Args:
        centres: Shape (J, e).
        width: One for each input, shape (e,).
    """

    centres: Float[Array, "j e"]
    width: Float[Array, " e"]

    def __init__(self, centres: ArrayLike, width: ArrayLike):
        self.centres = checks.parameter(centres, "centres", (None, None))
        self.width = checks.parameter(width, "width", (self.centres.shape[1],))
        checks.require_positive(self.width, "width")

    @property
    def dim(self) -> int:
        """Number of inputs."""
        return self.centres.shape[1]

    @property
    def count(self) -> int:
        """One weight a centre."""
        return self.centres.shape[0]

    def __call__(self, u: Float[Array, " e"]) -> Float[Array, " j"]:
        """The weights."""
        # Where the data lie is no parameter.
        centres, width = lax.stop_gradient((self.centres, self.width))
        return jax.nn.softmax(-0.5 * jnp.sum(((u - centres) / width) ** 2, axis=1))


def _network(fields: Fields) -> Network:
    """A network with one hidden layer: its structure from the constructor, its numbers from the file."""
    (first, first_bias), (last, last_bias) = fields["layers"]
    require(first.ndim == last.ndim == 2, "matrices for the layers of a network")
    (width, inputs), outputs = first.shape, last.shape[0]
    require(fields["location"].shape == fields["scale"].shape == (inputs,), "a location and a scale for each input")
    checks.require_positive(fields["scale"], "scale")
    empty = eqx.filter_eval_shape(
        lambda key: Network(np.zeros(inputs), np.ones(inputs), outputs + 1, width, key),
        jax.ShapeDtypeStruct((2,), jnp.uint32),
    )

    def numbers(features: Network) -> list:
        return [features.location, features.scale, *jax.tree.leaves(features.layers)]

    given = [fields["location"], fields["scale"], first, first_bias, last, last_bias]
    require([a.shape for a in numbers(empty)] == [a.shape for a in given], "layers that fit together in a network")
    return eqx.tree_at(numbers, empty, given)


@stored("location", "scale", "layers", make=_network)
class Network(Features):
    """b(u) = (1, net((u - location) / scale)), a network with one hidden layer of tanh.

    Far outside the data every tanh has reached its end: p(x' | x, u) no longer changes with u.

    Args:
        location: Of the inputs, shape (e,).
        scale: Their spread, shape (e,).
        count: Outputs, the constant included.
        width: Hidden units.
        key: For the random start.
    """

    location: Float[Array, " e"]
    scale: Float[Array, " e"]
    net: eqx.nn.MLP

    def __init__(self, location: ArrayLike, scale: ArrayLike, count: int, width: int, key: Array):
        self.location = checks.parameter(location, "location", (None,))
        self.scale = checks.parameter(scale, "scale", self.location.shape)
        checks.require_positive(self.scale, "scale")
        count = checks.count(count, "count", 2)
        self.net = eqx.nn.MLP(len(self.location), count - 1, width, 1, activation=jnp.tanh, key=key)

    @property
    def dim(self) -> int:
        """Number of inputs."""
        return len(self.location)

    @property
    def count(self) -> int:
        """The network's outputs, and one."""
        return self.net.layers[-1].bias.shape[-1] + 1  # type: ignore[union-attr]

    @property
    def layers(self) -> tuple[tuple[Array, Array], ...]:
        """Weights and bias of each layer."""
        return tuple((layer.weight, layer.bias) for layer in self.net.layers)  # type: ignore[misc]

    def shares(self, u: np.ndarray) -> np.ndarray:
        """All pairs for the constant; weights of any sign say nothing of the others."""
        return np.ones((len(u), 1))

    def __call__(self, u: Float[Array, " e"]) -> Float[Array, " j"]:
        """The weights."""
        location, scale = lax.stop_gradient((self.location, self.scale))
        return jnp.concatenate([jnp.ones(1), self.net((u - location) / scale)])


@stored(check=lambda features: Phases(features.steps, features.kernels))
class Phases(Features):
    """The phase t mod period of a time t: a kernel of its own for each, or fewer that neighbouring phases share.

    With as many kernels as steps b_j(t) = 1 where t mod period = j, zero elsewhere. With fewer, b_j are bumps around
    the circle that sum to one, their centres evenly spaced from phase 0: what lies between two is learned from the
    data of both.

    Args:
        steps: The period, in steps.
        count: Kernels; None: one for every phase.
    """

    steps: int = eqx.field(static=True)
    kernels: int = eqx.field(static=True)

    def __init__(self, steps: int, count: int | None = None):
        self.steps = checks.count(steps, "period", 1)
        self.kernels = self.steps if count is None else checks.count(count, "count", 1)
        if self.kernels > self.steps:
            raise ValueError(f"Expected at most one kernel for each of {steps} phases, got {count}.")

    @property
    def dim(self) -> int:
        """The time."""
        return 1

    @property
    def count(self) -> int:
        """One weight a kernel."""
        return self.kernels

    @property
    def period(self) -> int:
        """The period."""
        return self.steps

    def __call__(self, u: Float[Array, " e"]) -> Float[Array, " j"]:
        """The weights at a time."""
        phase, each = jnp.mod(jnp.round(u[0]), self.steps), self.steps / self.kernels
        if self.kernels == self.steps:
            return (jnp.arange(self.steps) == phase).astype(u.dtype)
        away = jnp.abs(phase - each * jnp.arange(self.kernels))
        away = jnp.minimum(away, self.steps - away) / each
        return jax.nn.softmax(-0.5 * (away / OVERLAP) ** 2)


def _sound(coupling: Driven) -> None:
    sound(coupling)
    require(len(coupling.K) == coupling.features.count, "as many K as features")


@stored(check=_sound)
class Driven(eqx.Module):
    """Kraus couplings for every input: K(u) = sum_j b_j(u) K_j.

    Args:
        features: What gives b(u), J weights.
        K: Shape (J, n, m, R), with m R >= n.
        factor: L_A with A = L_A L_A^T, shape (n, n), as for `Kraus`; shared by all inputs.
        background: As for `Kraus`.
    """

    name: ClassVar[str] = "driven"
    order: ClassVar[int] = 2

    features: Features
    K: Float[Array, "j n m r"]
    raw_factor: Float[Array, "n n"]
    background: float = eqx.field(static=True)

    def __init__(self, features: Features, K: ArrayLike, factor: ArrayLike | None = None, *, background: float = 0.0):
        self.features, self.background = features, require_share(background)
        self.K = checks.parameter(K, "K", (features.count, None, None, None))
        _, n, m, rank = self.K.shape
        require_rank(n, m, rank)
        self.raw_factor = raw_triangle(np.eye(n) if factor is None else factor, n, "factor")

    @classmethod
    def start(
        cls, wanted: Wanted, y: np.ndarray, y_next: np.ndarray, features: Features, u: np.ndarray
    ) -> tuple[Basis, Basis, Driven]:
        """phi, psi and the couplings to begin with, from pairs and the inputs of each, shape (N, e)."""
        phi, psi, K, factor = kraus_parts(wanted, y, y_next, features.shares(u))
        if len(K) < features.count:
            noise = np.random.default_rng(wanted.seed).normal(size=(features.count - len(K), *K.shape[1:]))
            K = np.concatenate([K, 0.1 * np.sqrt(np.mean(K**2)) * noise])
        return phi, psi, cls(features, K, factor, background=wanted.background)

    @property
    def factor(self) -> Float[Array, "n n"]:
        """L_A."""
        return triangle(self.raw_factor)

    def K_at(self, u: Float[Array, " e"]) -> Float[Array, "n m r"]:
        """K(u), before it is normalised."""
        return jnp.einsum("j,jnmr->nmr", self.features(u), self.K)

    def at(self, u: Float[Array, " e"]) -> Kraus:
        """The coupling under one input."""
        return Kraus(self.K_at(u), self.factor, background=self.background)

    def totals(self, M: Float[Array, "m m"]) -> Float[Array, "j j n n"]:
        """sum_r K_jr M K_lr^T for all j and l, of which T(u) = sum_jl b_j b_l (.)_jl is made; M = int g psi psi^T."""
        return jnp.einsum("jamr,mk,lbkr->jlab", self.K, M, self.K)

    def kernel(
        self, phi: Basis, totals: Float[Array, "j j n n"], background_mass: Float[Array, ""], u: Float[Array, " e"]
    ) -> DrivenKernel:
        """The normalised kernel under one input, at the cost of normalising an n x n matrix."""
        b = self.features(u)
        S, left = _normaliser(jnp.einsum("j,l,jlab->ab", b, b, totals))
        return DrivenKernel(
            g=SquaredForm(phi, self.factor), S=S, b=b, K=self.K, residual=left, background=self.background,
            background_mass=background_mass,
        )  # fmt: skip

    def phases(self, M: Float[Array, "m m"]) -> PhaseTable:
        """K(t), normalised, for every time of the features' period."""
        times = jnp.arange(float(self.features.period or 0))[:, None]
        K = jax.vmap(self.K_at)(times)
        return PhaseTable(K, *jax.vmap(_normaliser)(jnp.einsum("tamr,mk,tbkr->tab", K, M, K)))

    def kernel_of_phase(
        self, phi: Basis, table: PhaseTable, background_mass: Float[Array, ""], u: Float[Array, " e"]
    ) -> DrivenKernel:
        """The normalised kernel at one time, looked up."""
        phase = jnp.mod(jnp.round(u[0]), len(table.K)).astype(int)
        return DrivenKernel(
            g=SquaredForm(phi, self.factor), S=table.S[phase], b=jnp.ones(1), K=table.K[phase][None],
            residual=table.residual[phase], background=self.background, background_mass=background_mass,
        )  # fmt: skip


class PhaseTable(eqx.Module):
    """K(t) and what normalises it for t = 0, ..., T - 1: made once, whatever number of pairs it is asked for."""

    K: Float[Array, "t n m r"]
    S: Float[Array, "t n n"]
    residual: Float[Array, " t"]


def _normaliser(T: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, ""]]:
    """S with S T S^T = I, and how far it was from that before the last correction."""
    S, left = whitener(T), jnp.zeros(())
    for _ in range(2):
        # What rounding left is no matter for differentiation.
        near_identity = lax.stop_gradient(S @ T @ S.T)
        left = jnp.max(jnp.abs(near_identity - jnp.eye(len(T))))
        S = inverse_root_near_identity(near_identity) @ S
    return S, left


class DrivenKernel(Kernel):
    """f = sum_r (w(x)^T S K_r(u) psi(x'))^2 with w = L_A^T phi, K(u) = sum_j b_j K_j, S T(u) S^T = I.

    K(u) is not made where b can be applied to something smaller: in training there is one for every pair.
    """

    order: ClassVar[int] = 2
    g: SquaredForm
    S: Float[Array, "n n"]
    b: Float[Array, " j"]
    K: Float[Array, "j n m r"]
    residual: Float[Array, ""]
    background: float = eqx.field(static=True)
    background_mass: Float[Array, ""]

    def _seen(self, w: Float[Array, " n"]) -> Float[Array, "m r"]:
        """K(u)^T S^T w."""
        return jnp.einsum("j,jmr->mr", self.b, jnp.einsum("n,jnmr->jmr", self.S.T @ w, self.K))

    def own_log_value(self, phi: Signed, psi: Signed) -> Float[Array, ""]:
        """log sum_r (w^T S K_r psi)^2."""
        left, right = self.g.root_of(phi), psi.scaled()
        inner = jnp.einsum("mr,m->r", self._seen(left.values), right.values)
        return jnp.log(jnp.sum(inner**2)) + 2.0 * (left.log_scale + right.log_scale)

    def own_mass(self, phi: Signed, M: Float[Array, " q"]) -> Float[Array, ""]:
        """w^T S (sum_r K_r M K_r^T) S^T w / w^T w."""
        w = self.g.root_of(phi).values
        inner = self._seen(w)
        return jnp.einsum("mr,mk,kr->", inner, unpack(M, self.K.shape[2]), inner) / (w @ w)

    def own_push(self, P: Float[Array, " p"]) -> Float[Array, " q"]:
        """sum_r K_r^T (S^T L_A^T P L_A S) K_r."""
        left, K = self.g.factor @ self.S, jnp.einsum("j,jnmr->nmr", self.b, self.K)
        P_matrix = left.T @ unpack(P, len(left)) @ left
        return pack(jnp.einsum("imr,ij,jkr->mk", K, P_matrix, K))

    def own_pull(self, M: Float[Array, " q"]) -> Float[Array, " p"]:
        """L_A S (sum_r K_r M K_r^T) S^T L_A^T."""
        left, K = self.g.factor @ self.S, jnp.einsum("j,jnmr->nmr", self.b, self.K)
        inner = jnp.einsum("imr,mk,jkr->ij", K, unpack(M, K.shape[1]), K)
        return pack(left @ inner @ left.T)

    def own_form_from(self, psi: Basis, phi: Signed) -> SquaredForm:
        """The factor K(u)^T S^T w / ||w||: rank R."""
        w = self.g.root_of(phi).values
        return SquaredForm(psi, self._seen(w / jnp.sqrt(w @ w)))
