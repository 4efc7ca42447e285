"""`BayesianNetwork`: conditionals whose factors cancel, and what follows from them exactly."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.saving import save
from sosmarkov.core.stored import Fields, require, stored
from sosmarkov.data.history import History
from sosmarkov.networks.belief import NetworkBelief
from sosmarkov.networks.conditional import Conditional
from sosmarkov.networks.contract import contract, question
from sosmarkov.networks.model import Model, make_model, require_fitting
from sosmarkov.networks.structure import Structure, make_structure
from sosmarkov.spaces.transforms import Identity, Transform


class NetworkReport(NamedTuple):
    """What `network.check()` found.

    Attributes:
        normalisation_error: By block, the largest |int p(x_i | parents) dx_i - 1| over all values of the parents,
            from the spectrum of the normalised conditional (not from a sample of values).
        mass_error: |int p - 1| of the joint density, by contraction of the whole network.
        rounding: How much that mass changes when every entry of the network's tensors moves by two units in the last
            place: large where terms cancel.
        residual: What the last step of the normalisations still changed.
    """

    normalisation_error: dict[str, float]
    mass_error: float
    rounding: float
    residual: float

    @property
    def ok(self) -> bool:
        """Whether everything is as exact as double precision allows for a fair model."""
        return max(self.normalisation_error.values()) <= 1e-9 and self.mass_error <= 1e-9

    def __str__(self) -> str:
        """A few lines for a person."""
        worst = max(self.normalisation_error, key=self.normalisation_error.__getitem__)
        return "\n".join([
            f"normalisation error  {self.normalisation_error[worst]:.2e}  (worst block, {worst!r}, over all parents)",
            f"mass error           {self.mass_error:.2e}  (of the joint density)",
            f"rounding             {self.rounding:.2e}  (of that mass)",
            f"residual             {self.residual:.2e}",
        ])  # fmt: skip


def _made(fields: Fields) -> BayesianNetwork:
    names = fields["names"]
    require(len(set(names)) == len(names), "different names for the blocks of a network")
    conditionals = dict(zip(names, fields["conditionals"], strict=True))
    return BayesianNetwork(conditionals, dict(zip(names, fields["transforms"], strict=True)))


@stored("names", "conditionals", "transforms", "history", derived=("model",), make=_made, model="network")
class BayesianNetwork(eqx.Module):
    """p(x_1, ..., x_B) = prod_i p(x_i | parents of i) over named blocks of coordinates.

    Each conditional is G_i f_i / prod_j g_ij (see `Conditional`). A block's numerator G_i holds the factors that its
    children divide by, so that all of them cancel, p = prod_i f_i, a sum of squares whose integrals are closed form.

    Args:
        conditionals: From names to conditionals, parents before children; what each one calls its parents are the
            edges.
        transforms: From data to model space, by name; the identity where absent.
        history: What training did, for a network that was learned.
    """

    conditionals: tuple[Conditional, ...]
    transforms: tuple[Transform, ...]
    model: Model
    history: History | None = eqx.field(static=True)

    def __init__(
        self,
        conditionals: Mapping[str, Conditional],
        transforms: Mapping[str, Transform] | None = None,
        *,
        history: History | None = None,
    ):
        dims = {name: conditional.psi.dim for name, conditional in conditionals.items()}
        structure = make_structure(dims, {name: conditional.parents for name, conditional in conditionals.items()})
        self.conditionals = tuple(conditionals.values())
        require_fitting(structure, self.conditionals)
        self.transforms = _transforms(structure, transforms or {})
        self.model = make_model(structure, self.conditionals)
        self.history = history

    @property
    def names(self) -> tuple[str, ...]:
        """Of the blocks, parents before children."""
        return self.model.structure.names

    @property
    def dims(self) -> dict[str, int]:
        """Coordinates of each block."""
        return self.belief.dims

    @property
    def dim(self) -> int:
        """Coordinates of all blocks together."""
        return self.belief.dim

    @property
    def parents(self) -> dict[str, tuple[str, ...]]:
        """Names of each block's parents."""
        return {name: conditional.parents for name, conditional in zip(self.names, self.conditionals, strict=True)}

    @property
    def parameter_count(self) -> int:
        """How many numbers the conditionals have."""
        return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(self.conditionals, eqx.is_inexact_array)))

    @property
    def belief(self) -> NetworkBelief:
        """The joint density of all blocks."""
        everything = tuple(range(len(self.names)))
        return NetworkBelief(self.model, self.transforms, everything, {}, jnp.zeros(()))

    def log_prob(self, values: ArrayLike) -> Float[Array, ...]:
        """Log-density of all blocks, as a sum of squares: never NaN.

        Args:
            values: From names to arrays (..., d_i), or an array (..., D) of all coordinates in the order of `names`.
        """
        return self.belief.log_prob(values)

    def prob(self, values: ArrayLike) -> Float[Array, ...]:
        """Density of all blocks; arguments like `log_prob`."""
        return self.belief.prob(values)

    def marginal(self, names: str | Iterable[str]) -> NetworkBelief:
        """The density of some blocks, in the order given, the others integrated out."""
        return self.belief.marginal(names)

    def condition(self, values: Mapping[str, ArrayLike]) -> NetworkBelief:
        """The density of the other blocks given values of some, each of shape (d_i,) or a number where d_i = 1."""
        return self.belief.condition(values)

    def probability(self, boxes: Mapping[str, Any]) -> Float[Array, ...]:
        """P(all named blocks in their boxes): from names to pairs (lower, upper) of shape (..., d_i).

        Infinite ends are allowed; blocks that are not named are free.
        """
        return self.belief.probability(boxes)

    def mean(self) -> Float[Array, " D"]:
        """E[x] over all coordinates in the order of `names`."""
        return self.belief.mean()

    def covariance(self) -> Float[Array, "D D"]:
        """E[x x^T] - E[x] E[x]^T over all coordinates in the order of `names`."""
        return self.belief.covariance()

    def sample(self, key: PRNGKeyArray, shape: int | Sequence[int] = ()) -> dict[str, Float[Array, "... _"]]:
        """Independent exact draws, parents first, by name, each of shape (*shape, d_i)."""
        return self.belief.sample(key, shape)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network to one file, which `sosmarkov.load` reads."""
        save(self, path)

    def check(self) -> NetworkReport:
        """How exact the network is."""
        model = self.model
        gains = [kernel.gains(M) for kernel, M in zip(model.kernels, model.grams, strict=True)]
        mass, rounding = _mass(model)
        return NetworkReport(
            normalisation_error={
                name: float(np.max(np.abs(values - 1.0))) for name, values in zip(self.names, gains, strict=True)
            },
            mass_error=abs(float(mass) - 1.0),
            rounding=float(rounding),
            residual=max(float(kernel.residual) for kernel in model.kernels),
        )


def _transforms(structure: Structure, given: Mapping[str, Transform]) -> tuple[Transform, ...]:
    strangers = [name for name in given if name not in structure.names]
    if strangers:
        raise ValueError(f"Expected transforms of blocks among {list(structure.names)}, got them of {strangers}.")
    found = []
    for name, dim in zip(structure.names, structure.dims, strict=True):
        transform = given.get(name, Identity(dim))
        if transform.dim != dim:
            raise ValueError(f"Expected a transform of {dim} coordinates for block {name!r}, got {transform.dim}.")
        found.append(transform)
    return tuple(found)


@eqx.filter_jit
def _mass(model: Model) -> tuple[Array, Array]:
    found = contract(model, question())
    return found.value, found.rounding
