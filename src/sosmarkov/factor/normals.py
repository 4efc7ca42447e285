"""What linear sensors read of products of Gaussian terms: normal densities, one a pair of terms, all but done."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.core.numerics import exp2
from sosmarkov.factor.bases import Basis, Terms
from sosmarkov.factor.likelihood import LinearReading

# A matrix for every pair of terms: entries of the lower triangle that are not zero throughout, by (row, column).
Triangle = dict[tuple[int, int], Float[Array, "..."]]


class Projections(eqx.Module):
    """Of each product of two Gaussian terms, mean and covariance of what a linear sensor reads, its noise included."""

    mean: Float[Array, "k ..."]
    covariance: Triangle

    @property
    def independent(self) -> bool:
        """Whether what is read of one term in several places is uncorrelated."""
        return all(i == j for i, j in self.covariance)

    def log_density(self, observation: Float[Array, " k"]) -> Float[Array, ...]:
        """log N(o; mean, covariance) over what is there, by elimination; zero where nothing is."""
        there = ~jnp.isnan(observation)
        count = len(self.mean)
        away = [jnp.where(there[i], observation[i] - self.mean[i], 0.0) for i in range(count)]
        # A missing reading stands alone, with variance one.
        S = {
            (i, j): jnp.where(there[i] & there[j], entry, 1.0 if i == j else 0.0)
            for (i, j), entry in self.covariance.items()
        }
        total = -0.5 * jnp.sum(there) * jnp.log(2.0 * jnp.pi)
        for k in range(count):
            total = total - 0.5 * (jnp.log(S[k, k]) + away[k] ** 2 / S[k, k])
            for i, share in _eliminated(S, k, count):
                away[i] = away[i] - share * away[k]
        return total

    def whitening(self) -> Triangle:
        """W with W S W^T = I, lower triangular: what elimination does to the rows, one after the other."""
        count = len(self.mean)
        S, W = dict(self.covariance), {(i, i): jnp.ones_like(self.mean[0]) for i in range(count)}
        for k in range(count):
            for i, share in _eliminated(S, k, count):
                for j in range(k + 1):
                    if (k, j) in W:
                        W[i, j] = W.get((i, j), 0.0) - share * W[k, j]
        return {(i, j): entry / jnp.sqrt(S[i, i]) for (i, j), entry in W.items()}


def _eliminated(S: Triangle, k: int, count: int) -> Iterator[tuple[int, Array]]:
    """Take row k out of those below it, in place: each of them, and its share of row k."""
    for i in range(k + 1, count):
        if (i, k) in S:
            share = S[i, k] / S[k, k]
            for j in range(k + 1, i + 1):
                if (j, k) in S:
                    S[i, j] = S.get((i, j), 0.0) - share * S[j, k]
            yield i, share


def project(basis: Basis, left: Terms, right: Terms, read: LinearReading) -> Projections:
    """The projections of every product of a left and a right term."""
    mean, entries = basis.project(left, right, read.H)
    noisy = {(i, j): entry + read.std[i] ** 2 if i == j else entry for (i, j), entry in entries.items()}
    return Projections(mean + read.offset[:, None, None], noisy)


class Weighed(NamedTuple):
    """What a table under a reading makes of coefficients, exp(log_scale) values."""

    values: Float[Array, " p"]
    log_scale: Float[Array, ""]


class Normals(eqx.Module):
    """Coefficients under a linear reading: sum_q E[p, q] N(o; m[p, q], S[p, q]) C_q.

    With W S W^T = I the density of a complete reading is 2^-|W (o - m)|^2 times its peak, and all but that power of two
    is done in advance. A table of them would be written and read again, which takes as long as making it: columns are
    dealt out to a few blocks whose sum is one pass over what is stored, and only the sum is written. Tables have shape
    (u, b, p): block, column within it, row; rows fill whole vectors of the processor.
    """

    rows: int = eqx.field(static=True)

    plain: Float[Array, "u b p"]
    projected: Projections
    # W, scaled to base two.
    root: Triangle
    # The plain table times all peaks.
    scaled: Float[Array, "u b p"]
    # Mean and W of one pair of terms that is among the widest.
    wide: tuple[Float[Array, " k"], Triangle]

    def __init__(self, plain: Array, projected: Projections):
        self.rows = plain.shape[0]
        self.plain, self.projected = jax.tree.map(_dealt, (plain, projected))
        W = self.projected.whitening()
        self.root = {where: math.sqrt(0.5 * math.log2(math.e)) * entry for where, entry in W.items()}
        count = len(self.projected.mean)
        peak = math.prod(W[i, i] for i in range(count)) * (2.0 * math.pi) ** (-0.5 * count)
        self.scaled = self.plain * peak
        widest = jnp.unravel_index(jnp.argmin(peak), peak.shape)
        self.wide = jax.tree.map(lambda leaf: leaf[(..., *widest)], (self.projected.mean, self.root))

    def __call__(self, observation: Float[Array, " k"], C: Float[Array, " q"], batched: bool) -> Weighed:
        """For a reading that may be missing in part; where many are batched, all branches would be taken."""
        # Columns that only fill the blocks weigh nothing.
        C = jnp.zeros(_BLOCKS * self.plain.shape[1]).at[: len(C)].set(C).reshape(_BLOCKS, -1)
        if batched:
            return self._some_there(observation, C)
        complete = jnp.all(~jnp.isnan(observation))
        far = _exponent(observation, *self.wide) < _FAR
        return lax.switch(
            jnp.where(complete, jnp.where(far, 1, 0), 2),
            (Normals._near, Normals._far, Normals._some_there),
            self, observation, C,
        )  # fmt: skip

    def _near(self, observation: Array, C: Array) -> Weighed:
        """No exponent is above zero, and some pair of terms says that not all are far below."""
        return self._total(observation, C, 0.0)

    def _far(self, observation: Array, C: Array) -> Weighed:
        """The largest is looked for: a pass over the table that a usual reading does not need."""
        return self._total(observation, C, jnp.max(_exponent(observation, self.projected.mean, self.root)))

    def _total(self, observation: Array, C: Array, top: Array | float) -> Weighed:
        def one(u: int) -> Array:
            mean, root, scaled = jax.tree.map(
                lambda leaf: leaf[..., u, :, :], (self.projected.mean, self.root, self.scaled)
            )
            return scaled * exp2(_exponent(observation, mean, root) - top) * C[u, :, None]

        total = sum(one(u) for u in range(len(C)))
        values: Array = jnp.ones(C.shape[1]) @ total  # type: ignore[assignment]
        return Weighed(values[: self.rows], jnp.asarray(math.log(2.0) * top))

    def _some_there(self, observation: Array, C: Array) -> Weighed:
        if self.projected.independent:
            exponent, values = self._each_there(observation)
        else:
            exponent, values = math.log2(math.e) * self.projected.log_density(observation), self.plain
        top = lax.stop_gradient(jnp.max(exponent))
        return Weighed(jnp.einsum("ub,ubp->p", C, values * exp2(exponent - top))[: self.rows], math.log(2.0) * top)

    def _each_there(self, observation: Array) -> tuple[Array, Array]:
        """Places read independently: a missing one is left out."""
        there, peak = ~jnp.isnan(observation), (math.pi * math.log2(math.e)) ** -0.5
        exponent, values = jnp.zeros_like(self.plain), self.plain
        for i, mean in enumerate(self.projected.mean):
            away = self.root[i, i] * jnp.where(there[i], observation[i] - mean, 0.0)
            exponent = exponent - away**2
            values = values * jnp.where(there[i], peak * self.root[i, i], 1.0)
        return exponent, values


def _exponent(observation: Float[Array, " k"], mean: Float[Array, "k ..."], root: Triangle) -> Float[Array, ...]:
    """-|W (o - m)|^2."""
    away = [o - m for o, m in zip(observation, mean, strict=True)]
    rows = [sum(root[i, j] * away[j] for j in range(i + 1) if (i, j) in root) for i in range(len(away))]
    return -sum(row**2 for row in rows)  # type: ignore[return-value]


# How many blocks columns are dealt out to: fewer write more, and with more the sum outgrows the registers.
_BLOCKS = 8
# Doubles in the widest vector of a processor: what is left of a row is worked on one by one.
_LANES = 8
# Far from where a double vanishes, below 2^-1022.
_FAR = -700.0


def _dealt(table: Float[Array, "*k p q"]) -> Float[Array, "*k u b r"]:
    """Columns in blocks, ahead of the rows, filled up with copies of the first: no largest entry is theirs alone."""
    columns = _filled(_filled(jnp.swapaxes(table, -1, -2), -2, _BLOCKS), -1, _LANES)
    return columns.reshape(*columns.shape[:-2], _BLOCKS, -1, columns.shape[-1])


def _filled(table: Array, axis: int, multiple: int) -> Array:
    count = table.shape[axis]
    places = np.arange(-(-count // multiple) * multiple)
    return jnp.take(table, places * (places < count), axis=axis)
