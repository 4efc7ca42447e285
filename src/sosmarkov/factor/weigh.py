"""Overlaps under a reading, E_o[p, q] = int phi's term p, psi's term q, l(o | .) dy, times coefficients.

A filter's forward step is P = E_o C, a smoother's backward step M = E_o^T b: all that a reading does is in the table.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from sosmarkov.contracts.reader import Sensor
from sosmarkov.factor.bases import Basis, Terms
from sosmarkov.factor.forms import Form, require_alike
from sosmarkov.factor.likelihood import Reading
from sosmarkov.factor.normals import Normals, Weighed, project
from sosmarkov.spaces.transforms import Transform


class Weigher(eqx.Module):
    """Takes coefficients through the table of one sensor, for fixed terms on both sides."""

    basis: Basis
    transform: Transform
    sensor: Sensor
    left: Terms
    right: Terms
    plain: Float[Array, "p q"]
    # Of the sensor's parts, what is done in advance where they are linear.
    normals: tuple[Normals | None, ...]
    # Some form of the kind, and over the basis, that readings multiply.
    kind: Form
    batched: bool = eqx.field(static=True)

    def __call__(self, observation: Array, C: Float[Array, " q"]) -> Weighed:
        """E_o C."""
        found = [
            self._part(weight, part, normals, observation, C)
            for (weight, part), normals in zip(self.sensor.parts(), self.normals, strict=True)
        ]
        if len(found) == 1:
            return found[0]
        top = jnp.max(jnp.stack([part.log_scale for part in found]))
        return Weighed(sum(jnp.exp(part.log_scale - top) * part.values for part in found), top)  # type: ignore[arg-type]

    def _part(self, weight: Array, part: Sensor, normals: Normals | None, observation: Array, C: Array) -> Weighed:
        log_weight = jnp.log(weight)
        if normals is not None:
            found = normals(observation, C, self.batched)
            return Weighed(found.values, found.log_scale + log_weight)
        reading = part.reading(observation, self.basis, self.transform)
        if reading.form is not None:
            require_alike(self.kind, reading.form)
        table = under(self.basis, self.left, self.right, reading)
        if reading.form is not None:
            table = jnp.where(part.missing(observation), self.plain, table)
        return Weighed(table @ C, log_weight)


def make_weigher(sensor: Sensor, transform: Transform, rows: Form, columns: Form, *, batched: bool = False) -> Weigher:
    """Overlaps of one form's terms with another's (no coefficients are read), for one sequence or for many.

    The factor g in the rows and h in the columns for a step ahead; the other way round for a step back.
    """
    basis, left, right = rows.basis, rows.terms, columns.terms
    plain, found = basis.overlap(left, right), []
    for _, part in sensor.parts():
        read = part.linear(basis, transform)
        found.append(None if read is None else Normals(plain, project(basis, left, right, read)))
    return Weigher(basis, transform, sensor, left, right, plain, tuple(found), rows, batched)


def under(basis: Basis, left: Terms, right: Terms, reading: Reading) -> Float[Array, "p q"]:
    """Overlaps of two groups of terms under a reading, by the family's own integrals."""
    if reading.term is not None:
        term = reading.term[None]
        right = Terms(basis.multiply(right.theta, term.theta), right.log_scale + term.log_scale)
    box = {"lower": reading.lower, "upper": reading.upper}
    if reading.form is None:
        return basis.overlap(left, right, **box)
    return basis.overlap(left, right, reading.form.terms, **box) @ reading.form.coefficients
