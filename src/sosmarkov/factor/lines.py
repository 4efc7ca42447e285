"""Single coordinates of densities that are products of two forms: all but the coefficients of h is shared."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from sosmarkov.contracts.line import Line
from sosmarkov.core.numerics import Scaled, Signed
from sosmarkov.factor.bases import Basis, Terms
from sosmarkov.factor.bases.base import Expansion
from sosmarkov.factor.integrals import mean_and_covariance
from sosmarkov.spaces.transforms import Transform, to_model

# Values of pairs of terms held at once.
_VALUES = 2**20


def values_at(basis: Basis, terms: Terms, y: Float[Array, " d"]) -> Scaled:
    """Terms at one point."""
    log_abs, sign = basis.log_abs(terms.theta, y)
    return Signed(log_abs + terms.log_scale, sign).scaled()


class SumLine(Line):
    """sum_q c_kq sum_p w_pq left_p right_q over one coordinate.

    Args:
        coefficients: One row a belief.
        sum: The sum without the coefficients. Families whose marginals have a term of their own for every product keep
            them all on the left.
        transform: Of this coordinate.
    """

    coefficients: Float[Array, "k q"]
    sum: Expansion
    transform: Transform

    def densities(self, x: Float[Array, " t"]) -> Float[Array, "t q"]:
        """Each column's sum of products, with the transform's Jacobian."""
        y, log_det = to_model(self.transform, x[:, None])
        inside, safe = self.sum.inside(y)
        found = lax.map(self._at, safe, batch_size=self._at_once(len(x)))
        return jnp.where(inside[:, None], found * jnp.exp(log_det)[:, None], 0.0)

    def _at(self, y: Float[Array, " 1"]) -> Float[Array, " q"]:
        left, right = (values_at(self.sum.basis, terms, y) for terms in (self.sum.left, self.sum.right))
        return self._by_column(left.values) * right.values * jnp.exp(left.log_scale + right.log_scale)

    def _by_column(self, left: Float[Array, " p"]) -> Float[Array, " q"]:
        """sum_p w_pq left_p; a left term for every p and q belongs to its own q."""
        count = self.coefficients.shape[1]
        weights = self.sum.weights
        return (
            left @ weights if weights.shape[1] == count else jnp.sum((left * weights[:, 0]).reshape(-1, count), axis=0)
        )

    def masses(self, x: Float[Array, " t"]) -> Float[Array, "t q"]:
        """Each column's integral over the domain, or the sum's own box, up to x."""
        sum_, count = self.sum, self.coefficients.shape[1]
        y, _ = to_model(self.transform, x[:, None])

        open_below = sum_.lower is None and np.isinf(sum_.basis.lower).all()

        def one(y: Array) -> Array:
            if open_below:
                table = sum_.basis.overlap(sum_.left, sum_.right, upper=y)
            else:
                table = sum_.basis.overlap_between(sum_.left, sum_.right, *sum_.ends(upper=y))
            return jnp.sum((sum_.weights * table).reshape(-1, count), axis=0)

        return lax.map(one, y, batch_size=self._at_once(len(x)))

    def moments(self) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """Those of each row's own sum."""
        weights = self.sum.weights

        def one(C: Array) -> tuple[Array, Array]:
            own = (weights.reshape(-1, len(C)) * C[None]).reshape(weights.shape)
            mean, covariance = mean_and_covariance(eqx.tree_at(lambda s: s.weights, self.sum, own), self.transform)
            return mean[0], jnp.sqrt(covariance[0, 0])

        return jax.vmap(one)(self.coefficients)

    def support(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The domain, or the sum's own box, in data space."""
        low, high = (self.transform.inverse(end)[0] for end in self.sum.ends())
        return low, high

    def _at_once(self, points: int) -> int:
        """How many points at a time: without a remainder, whose program would be one more."""
        most = max(1, _VALUES // self.sum.weights.size)
        return max(count for count in range(1, min(points, most) + 1) if points % count == 0)
