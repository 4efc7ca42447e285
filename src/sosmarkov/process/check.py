"""How exact a process is, in numbers: normalisation, positivity, conditioning."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.contracts.belief import Belief
from sosmarkov.core.numerics import unpack
from sosmarkov.factor.couplings import KrausKernel, LinearKernel, PairedKernel
from sosmarkov.factor.forms import Form
from sosmarkov.factor.transition import Transition
from sosmarkov.spaces.transforms import to_data

_PROBES = 64


class CheckReport(NamedTuple):
    """What `process.check()` found.

    Attributes:
        normalisation_error: The largest |int p(x' | x) dx' - 1| over all x, from the spectrum of the
            normalised kernel (not from a sample of states).
        initial_mass_error: |int p_0 - 1|.
        smallest_log_density: The smallest log p(x' | x) met between states spread over the basis.
        condition_factor: Condition number of A (squared forms), or spread of a (linear).
        condition_gram: Condition number of M = int g psi psi^T, or spread of int g psi.
        amplification: How much the kernel magnifies rounding of M: expect errors of about this
            times 1e-16. Large where K resolves differences of near-duplicate functions.
        iterations: Power iterations used (paired coupling), else zero.
        residual: What the last step of the normalisation still changed.
        converged: Whether the power iteration's stopping rule was met.
    """

    normalisation_error: float
    initial_mass_error: float
    smallest_log_density: float
    condition_factor: float
    condition_gram: float
    amplification: float
    iterations: int
    residual: float
    converged: bool

    @property
    def ok(self) -> bool:
        """Whether everything is as exact as double precision allows for a fair model."""
        exact = self.normalisation_error <= 1e-9 and self.initial_mass_error <= 1e-9
        return self.converged and exact and not np.isnan(self.smallest_log_density)

    def __str__(self) -> str:
        """A few lines for a person."""
        lines = [
            f"normalisation error  {self.normalisation_error:.2e}  (worst over all states)",
            f"initial mass error   {self.initial_mass_error:.2e}",
            f"smallest log-density {self.smallest_log_density:.3g}",
            f"condition numbers    {self.condition_factor:.2e} (g), {self.condition_gram:.2e} (psi under g)",
            f"amplification        {self.amplification:.2e}  (of rounding errors, by the kernel)",
        ]
        if self.iterations:
            how = "converged" if self.converged else "NOT converged"
            lines.append(f"Perron vector        {how} in {self.iterations} steps, residual {self.residual:.1e}")
        return "\n".join(lines)


def examine(transition: Transition, initial: Belief) -> CheckReport:
    """Measure a process; see `CheckReport`."""
    kernel = transition.kernel
    M = eqx.filter_jit(lambda t: t.g.coefficients @ t.overlap)(transition)
    iterations, converged = 0, True
    if isinstance(kernel, PairedKernel):
        iterations, converged = int(kernel.perron.iterations), bool(kernel.perron.converged)
    if isinstance(kernel, LinearKernel):
        weights, gram = np.asarray(kernel.g.weights), np.asarray(M)
        conditions = float(weights.max() / weights.min()), float(gram.max() / gram.min())
    else:
        gram = np.asarray(unpack(M, transition.psi.size))
        conditions = float(np.linalg.cond(np.asarray(_matrix(kernel.g)))), float(np.linalg.cond(gram))
    return CheckReport(
        normalisation_error=float(np.max(np.abs(_gains(transition, M) - 1.0))),
        initial_mass_error=abs(float(initial.mass()) - 1.0),
        smallest_log_density=float(_smallest(transition)),
        condition_factor=conditions[0],
        condition_gram=conditions[1],
        amplification=_amplification(transition, M),
        iterations=iterations,
        residual=float(kernel.residual),
        converged=converged,
    )


def _amplification(transition: Transition, M: Array) -> float:
    """Largest diagonal entry of sum_r |K_r| |M| |K_r|^T; one where no cancellation takes place."""
    kernel = transition.kernel
    if not isinstance(kernel, KrausKernel):
        return 1.0
    K, gram = jnp.abs(kernel.K), jnp.abs(unpack(M, transition.psi.size))
    return float(jnp.max(jnp.einsum("imr,mk,ikr->i", K, gram, K)))


def _matrix(form: Form) -> Array:
    return form.matrix  # type: ignore[attr-defined]


def _gains(transition: Transition, M: Array) -> np.ndarray:
    """Values that int p(. | x) can take: it is a weighted mean of these for every x."""
    kernel = transition.kernel
    gains = _own_gains(transition, M)
    if kernel.background == 0:
        return gains
    return (1.0 - kernel.background) * gains + kernel.background * float(M[-1] / kernel.background_mass)


def _own_gains(transition: Transition, M: Array) -> np.ndarray:
    """The same for the coupling without its background."""
    kernel = transition.kernel
    if isinstance(kernel, KrausKernel):
        gram = unpack(M, transition.psi.size)
        return np.linalg.eigvalsh(np.asarray(jnp.einsum("imr,mk,jkr->ij", kernel.K, gram, kernel.K)))
    if isinstance(kernel, LinearKernel):
        return np.asarray(kernel.b * M / kernel.g.weights)
    assert isinstance(kernel, PairedKernel)
    integrated = np.asarray(kernel.Q * unpack(M, transition.psi.size))
    F = np.asarray(kernel.g.factor)
    inverse = np.linalg.pinv(F[:, np.any(F != 0, axis=0)])
    return np.linalg.eigvalsh(inverse @ integrated @ inverse.T)


@eqx.filter_jit
def _smallest(transition: Transition) -> Float[Array, ""]:
    """Smallest log-density between points drawn from the squares of the basis functions."""
    envelope, terms = transition.phi.envelope()
    count = min(transition.phi.size, _PROBES)
    squares = envelope.multiply(terms.theta, terms.theta)
    keys = jax.random.split(jax.random.key(0), count)
    chosen = jax.tree.map(lambda leaf: leaf[:count], squares)
    y = jax.vmap(envelope.sample_term)(keys, chosen)
    x = to_data(transition.transform, y)
    return jnp.min(transition.log_prob(x[None, :], x[:, None]))
