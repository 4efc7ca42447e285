"""Tables of overlaps under a reading: E_o[p, q] = int phi's term p, psi's term q, l(o | .) dy.

A filter's forward step is P = E_o C, a smoother's backward step M = E_o^T b: all that a reading does is in the table.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.bases import Basis, FullGaussianBasis, Terms
from sosmarkov.forms import Form
from sosmarkov.numerics import exp
from sosmarkov.sensors import LinearReading, Reading, Sensor
from sosmarkov.transforms import Transform


class Weighed(NamedTuple):
    """The table exp(log_scale) values."""

    values: Float[Array, "p q"]
    log_scale: Float[Array, ""]


class Projections(eqx.Module):
    """Of each product of two Gaussian terms, the mean and covariance of what a linear sensor reads.

    With these, a reading costs one exponential per pair of terms instead of a table of integrals.
    """

    mean: Float[Array, "k p q"]
    # Entries of the lower triangle that are not zero throughout, by (row, column).
    covariance: dict[tuple[int, int], Float[Array, "p q"]]
    read: LinearReading

    @property
    def independent(self) -> bool:
        """Whether what is read of one term in several places is uncorrelated."""
        return all(i == j for i, j in self.covariance)

    def log_density(self, observation: Float[Array, " k"]) -> Float[Array, "p q"]:
        """Log N(o; mean, covariance + noise) over what is there, by elimination; zero where nothing is."""
        there = ~jnp.isnan(observation)
        count = len(self.mean)
        away = [jnp.where(there[i], observation[i] - self.mean[i], 0.0) for i in range(count)]
        S = {(i, j): jnp.where(there[i] & there[j], entry, 0.0) for (i, j), entry in self.covariance.items()}
        for i in range(count):
            # A missing reading stands alone, with variance one.
            S[i, i] = jnp.where(there[i], S[i, i] + self.read.std[i] ** 2, 1.0)
        total = -0.5 * jnp.sum(there) * jnp.log(2.0 * jnp.pi)
        for k in range(count):
            total = total - 0.5 * (jnp.log(S[k, k]) + away[k] ** 2 / S[k, k])
            for i in range(k + 1, count):
                if (i, k) in S:
                    share = S[i, k] / S[k, k]
                    away[i] = away[i] - share * away[k]
                    for j in range(k + 1, i + 1):
                        if (j, k) in S:
                            S[i, j] = S.get((i, j), 0.0) - share * S[j, k]
        return total


class Normals(eqx.Module):
    """The plain table under independent readings, with all but the exponential done in advance.

    N(o; m, v) = peak exp(slope (o - m)^2), tables of shape (k, p, q).
    """

    plain: Float[Array, "p q"]
    mean: Float[Array, "k p q"]
    slope: Float[Array, "k p q"]
    peak: Float[Array, "k p q"]
    # The plain table times all peaks.
    scaled: Float[Array, "p q"]
    # For each place read, m and slope of one pair of terms that is among the widest.
    wide: tuple[Float[Array, " k"], Float[Array, " k"]]

    def __init__(self, plain: Array, projected: Projections):
        variance = jnp.stack([projected.covariance[i, i] + std**2 for i, std in enumerate(projected.read.std)])
        self.plain, self.mean, self.slope = plain, projected.mean, -0.5 / variance
        self.peak = 1.0 / jnp.sqrt(2.0 * jnp.pi * variance)
        self.scaled = plain * jnp.prod(self.peak, axis=0)
        widest = jnp.argmax(jnp.sum(jnp.log(variance), axis=0))
        mean, slope = (jnp.reshape(part, (len(part), -1))[:, widest] for part in (self.mean, self.slope))
        self.wide = mean, slope

    def weigh(self, observation: Float[Array, " k"], batched: bool = False) -> Weighed:
        """The table times the density of what is there; where many are batched, branches would all be taken."""
        if batched:
            return self._some_there(observation)
        complete = jnp.all(~jnp.isnan(observation))
        return lax.cond(complete, Normals._all_there, Normals._some_there, self, observation)

    def _all_there(self, observation: Array) -> Weighed:
        # No exponent is above zero. Only where a pair of wide terms says that all may be far below, the largest is
        # looked for: a pass over the table that a usual reading does not need.
        mean, slope = self.wide
        far = jnp.sum(slope * (observation - mean) ** 2) < _FAR
        top = lax.cond(far, lambda: jnp.max(self._exponent(observation)), lambda: jnp.zeros(()))
        return Weighed(self.scaled * exp(self._exponent(observation) - top), top)

    def _some_there(self, observation: Array) -> Weighed:
        there = ~jnp.isnan(observation)
        exponent, values = jnp.zeros_like(self.plain), self.plain
        for i in range(len(observation)):
            away = jnp.where(there[i], observation[i] - self.mean[i], 0.0)
            exponent = exponent + self.slope[i] * away**2
            values = values * jnp.where(there[i], self.peak[i], 1.0)
        top = lax.stop_gradient(jnp.max(exponent))
        return Weighed(values * exp(exponent - top), top)

    def _exponent(self, observation: Array) -> Array:
        return functools.reduce(
            jnp.add,
            [slope * (o - mean) ** 2 for o, mean, slope in zip(observation, self.mean, self.slope, strict=True)],
        )


# Far from where a double vanishes, at exp(-745).
_FAR = -500.0


def project(basis: Basis, left: Terms, right: Terms, read: LinearReading) -> Projections:
    """The projections of every product of a left and a right term."""
    theta = basis.outer(left, right).theta
    H, k = read.H, len(read.H)
    if isinstance(basis, FullGaussianBasis):
        covariance = basis.inverse(theta.precision)
        entries = {(i, j): H[i] @ covariance @ H[j] for i in range(k) for j in range(i + 1)}
    else:
        entries = {(i, i): jnp.sum(H[i] ** 2 / theta.precision, axis=-1) for i in range(k)}
    mean = jnp.stack([theta.mean @ row for row in H]) + read.offset[:, None, None]
    return Projections(mean, entries, read)


class Weigher(eqx.Module):
    """Makes the tables of one sensor, for fixed terms on both sides."""

    basis: Basis
    transform: Transform
    sensor: Sensor
    left: Terms
    right: Terms
    plain: Float[Array, "p q"]
    projections: tuple[Projections | Normals | None, ...]
    batched: bool = eqx.field(static=True)

    def __call__(self, observation: Array) -> Weighed:
        """The table under one reading."""
        tables = [
            self._part(weight, part, projected, observation)
            for (weight, part), projected in zip(self.sensor.parts(), self.projections, strict=True)
        ]
        if len(tables) == 1:
            return tables[0]
        top = jnp.max(jnp.stack([table.log_scale for table in tables]))
        return Weighed(sum(jnp.exp(t.log_scale - top) * t.values for t in tables), top)  # type: ignore[arg-type]

    def _part(
        self, weight: Array, part: Sensor, projected: Projections | Normals | None, observation: Array
    ) -> Weighed:
        if isinstance(projected, Normals):
            table = projected.weigh(observation, self.batched)
            return Weighed(table.values, table.log_scale + jnp.log(weight))
        if projected is not None:
            log_density = projected.log_density(observation)
            top = lax.stop_gradient(jnp.max(log_density))
            return Weighed(self.plain * jnp.exp(log_density - top), top + jnp.log(weight))
        reading = part.reading(observation, self.basis, self.transform)
        table = under(self.basis, self.left, self.right, reading)
        if reading.form is not None:
            table = jnp.where(part.missing(observation), self.plain, table)
        return Weighed(table, jnp.log(weight))


def make_weigher(sensor: Sensor, transform: Transform, g: Form, h: Form, *, batched: bool = False) -> Weigher:
    """What weighs overlaps of g's terms with h's (whose coefficients are not read), for one sequence or for many."""
    basis, left, right = g.basis, g.terms, h.terms
    plain, found = basis.overlap(left, right), []
    for _, part in sensor.parts():
        read = part.linear(basis, transform)
        projected = None if read is None else project(basis, left, right, read)
        found.append(Normals(plain, projected) if projected is not None and projected.independent else projected)
    return Weigher(basis, transform, sensor, left, right, plain, tuple(found), batched)


def under(basis: Basis, left: Terms, right: Terms, reading: Reading) -> Float[Array, "p q"]:
    """Overlaps of two groups of terms under a reading, by the family's own integrals."""
    if reading.term is not None:
        one = jax.tree.map(lambda leaf: leaf[None], reading.term.theta)
        right = Terms(basis.multiply(right.theta, one), right.log_scale + reading.term.log_scale)
    box = {"lower": reading.lower, "upper": reading.upper}
    if reading.form is None:
        return basis.overlap(left, right, **box)
    return basis.overlap(left, right, reading.form.terms, **box) @ reading.form.coefficients
