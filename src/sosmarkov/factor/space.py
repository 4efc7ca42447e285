"""Coordinates and the transform that leads to them: what is known there in closed form, and boxes.

It stands with the families and not in the room of transforms, which knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NoReturn

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sosmarkov.core.special import log_normal_between
from sosmarkov.factor.bases import Basis, Terms
from sosmarkov.spaces.transforms import Transform


class Query(NamedTuple):
    """Something a belief, a process or a sensor may be asked for.

    Attributes:
        about: Which questions these are, for readers.
        closed: Whether it has a closed form in a space.
        otherwise: What is answered where it has none.
        needs: What is expected then, before "got family ... under ...".
        advice: What to do instead.
    """

    about: str
    closed: Callable[[Space], bool]
    otherwise: str
    needs: str
    advice: str


class Space(eqx.Module):
    """A family's coordinates under a transform."""

    basis: Basis
    transform: Transform

    @property
    def exact(self) -> dict[str, bool | str]:
        """By the name of every query: True where it has a closed form here, else what is answered instead."""
        return {name: query.closed(self) or query.otherwise for name, query in QUERIES.items()}

    def require(self, name: str) -> None:
        """Refuse what has no closed form here."""
        if not QUERIES[name].closed(self):
            self.refuse(name)

    def refuse(self, name: str) -> NoReturn:
        """The one text for what has no closed form."""
        raise ValueError(f"Expected {QUERIES[name].needs}, got {self}. {QUERIES[name].advice}")

    def __str__(self) -> str:
        return f"family {self.basis.family} under {type(self.transform).__name__}"

    @property
    def separate(self) -> bool:
        """Whether every function is a product over the data's own coordinates."""
        return self.transform.coordinatewise and self.basis.axis_aligned

    @property
    def on_a_line(self) -> bool:
        """Whether there is one coordinate, which a function of its own leads to."""
        return self.basis.dim == 1 and self.transform.coordinatewise

    @property
    def gaussian(self) -> bool:
        """Whether every function is a Gaussian of the data's own coordinates."""
        return self.basis.gaussian and self.transform.affine

    def slab(
        self, left: Terms, right: Terms, lower: Float[Array, " d"], upper: Array, bounded: tuple[int, ...]
    ) -> Float[Array, "p q"]:
        """Overlaps of Gaussian terms over a box in data space of which one coordinate alone is bounded."""
        whole = self.basis.overlap(left, right)
        if not bounded:
            return whole
        self.require("slab" if len(bounded) == 1 else "box")
        matrix, offset, _ = self.transform.split()
        c = min(bounded)
        mean, covariance = self.basis.project(left, right, matrix[c][None])
        mean, std = mean[0] + offset[c], jnp.sqrt(covariance[0, 0])
        share = log_normal_between((lower[c] - mean) / std, (upper[c] - mean) / std)
        return jnp.where(jnp.any(lower >= upper), 0.0, whole * jnp.exp(share))


_BOXES = (
    "an axis-aligned family under a coordinate-wise transform for boxes in closed form",
    "Use basis 'gaussian' with a standardising transform, bound one coordinate only, or count trajectories of"
    " `process.sample`.",
)
_ESTIMATED = "an estimate for one belief, refused over time"

QUERIES = {
    "moments": Query(
        "`mean`, `covariance`, `moment`",
        lambda space: space.transform.affine,
        "quadrature",
        "an affine transform for moments in closed form",
        "Average samples instead.",
    ),
    "marginal": Query(
        "`marginal`, `condition`, `quantile`",
        lambda space: space.transform.coordinatewise or space.gaussian,
        "refused",
        "a coordinate-wise transform, or Gaussian functions under an affine one, for a marginal in closed form",
        "Use a standardising transform.",
    ),
    "slab": Query(
        "`probability` and boxes over time, one coordinate bounded",
        lambda space: space.separate or space.gaussian or space.on_a_line,
        _ESTIMATED,
        *_BOXES,
    ),
    "box": Query(
        "`probability`, `cdf` and boxes over time, several bounded",
        lambda space: space.separate or space.on_a_line or (space.basis.dim == 1 and space.gaussian),
        _ESTIMATED,
        *_BOXES,
    ),
    "overlap": Query(
        "`overlap`, `l2_distance`",
        lambda space: space.transform.affine,
        "refused",
        "an affine transform for an overlap in closed form",
        "Average other.prob over draws of this belief instead.",
    ),
    "gaussian reading": Query(
        "`GaussianSensor`",
        lambda space: space.gaussian and (space.separate or not space.basis.axis_aligned),
        "refused",
        "a Gaussian basis under an affine transform for Gaussian readings in closed form",
        "Use basis 'gaussian' with a standardising transform, basis 'gaussian-full', or interval readings.",
    ),
    "linear reading": Query(
        "`LinearSensor`",
        lambda space: space.gaussian and not space.basis.axis_aligned,
        "refused",
        "basis 'gaussian-full' under an affine transform for readings of several coordinates at once",
        "Use that basis, or a GaussianSensor.",
    ),
    "interval reading": Query(
        "`IntervalSensor`",
        lambda space: space.separate,
        "refused",
        "a family of products under a coordinate-wise transform for interval readings",
        "Use basis 'gaussian' and a standardising transform.",
    ),
}
