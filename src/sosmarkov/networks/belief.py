"""The density of some blocks given others: what a network answers exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, PRNGKeyArray

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.core.numerics import unpack_coefficients
from sosmarkov.core.programs import few_lengths
from sosmarkov.factor.bases.base import Expansion
from sosmarkov.factor.space import Space
from sosmarkov.networks import draws
from sosmarkov.networks.contract import Question, answer, contract
from sosmarkov.networks.model import Model, first_moments, halves
from sosmarkov.networks.structure import read_point, read_points
from sosmarkov.spaces.transforms import Transform, to_data, to_model

# Points that are asked about at once, and entries of the tables that all of them together may hold.
_POINTS, _ENTRIES = 8192, 2**22


class BlockDensity(eqx.Module):
    """What a network and the beliefs made of it answer: p(kept blocks | fixed values), the others integrated out.

    In data space; every answer is one contraction of the network's tensors, exact up to rounding.
    """

    # Fields of a belief; of a network the last three follow, and a file has none of them.
    if TYPE_CHECKING:
        model: Model
        transforms: tuple[Transform, ...]
        kept: tuple[int, ...]
        fixed: dict[int, Array]
        log_mass: Float[Array, ""]

    @property
    def belief(self) -> NetworkBelief:
        """The density alone: what compiled programs are given."""
        return NetworkBelief(self.model, self.transforms, self.kept, self.fixed, self.log_mass)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the blocks."""
        return tuple(self.model.structure.names[i] for i in self.kept)

    @property
    def dims(self) -> dict[str, int]:
        """Coordinates of each block."""
        return {self.model.structure.names[i]: self.model.structure.dims[i] for i in self.kept}

    @property
    def dim(self) -> int:
        """Coordinates of all blocks together."""
        return sum(self.dims.values())

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the coordinates: that of a block with one, "name[0]", "name[1]", ... of one with more."""
        each = self.dims.items()
        return tuple(name if size == 1 else f"{name}[{c}]" for name, size in each for c in range(size))

    @property
    def has_density(self) -> bool:
        """Always."""
        return True

    @property
    def log_evidence(self) -> Float[Array, ""]:
        """Log-density of the fixed values in data space; zero where nothing is fixed."""
        at = [self.transforms[i].forward(self.transforms[i].inverse(y))[1] for i, y in self.fixed.items()]
        return self.log_mass + sum(at, jnp.zeros(()))

    # --- densities --------------------------------------------------------------------------------

    def log_prob(self, values: ArrayLike) -> Float[Array, ...]:
        """Log-density at values of the blocks.

        Args:
            values: From names to arrays (..., d_i), or an array (..., D) of all coordinates in the order of `names`.

        Returns:
            Shape (...). Where blocks are integrated out the density is a signed sum: points where rounding leaves
            no digit of it are refused.
        """
        points = read_points(self.model.structure, self.kept, values)
        shape = points[self.kept[0]].shape[:-1]
        flat, belief = tuple(points[i].reshape(-1, points[i].shape[-1]) for i in self.kept), self.belief
        found = _in_blocks(lambda *rows: _log_prob(belief, rows), flat, self._at_once(range(len(self.model.tables))))
        if not flat[0].shape[0]:
            return jnp.zeros(shape)
        log_prob, lost = found
        if checks.is_concrete(lost) and np.any(lost):
            raise ValueError(
                f"Expected points where a density of {list(self.names)} has digits left, got {int(np.sum(lost))} of"
                f" {lost.size} where its terms cancel to nothing. Give the network a background share, or ask nearer"
                " to where it has been."
            )
        return log_prob.reshape(shape)

    def prob(self, values: ArrayLike) -> Float[Array, ...]:
        """Density at values of the blocks, shape (...)."""
        return jnp.exp(self.log_prob(values))

    def mass(self) -> Float[Array, ""]:
        """The closed-form integral over all blocks: one up to rounding."""
        return jnp.exp(answer(self.model, Question(self.fixed)).log - self.log_mass)

    def probability(self, lower: ArrayLike | Mapping[str, Any], upper: ArrayLike | None = None) -> Float[Array, ...]:
        """P(lower < x < upper).

        Args:
            lower: Shape (..., D) over all coordinates in the order of `names`, infinite ends allowed; or a mapping
                from names to pairs (lower, upper) of shape (..., d_i), in which blocks that are not named are free.
            upper: Like lower; none with a mapping.
        """
        boxes, shape = self._boxes(lower, upper)
        if not boxes:
            return jnp.broadcast_to(self.mass(), shape)
        kept, belief = tuple(boxes), self.belief
        flat = tuple(end for i in kept for end in boxes[i])
        found = _in_blocks(lambda *rows: (_box(belief, kept, rows),), flat, self._at_once(kept))
        return found[0].reshape(shape) if flat[0].shape[0] else jnp.zeros(shape)

    def cdf(self, values: ArrayLike) -> Float[Array, ...]:
        """P(every coordinate at most its value), for an array (..., D)."""
        upper = checks.box_end(values, self.dim, "values")
        return self.probability(jnp.full_like(upper, -jnp.inf), upper)

    def _at_once(self, blocks: Iterable[int]) -> int:
        """How many rows to ask about at once, a power of two."""
        most = max(self.model.tables[i].size for i in blocks)
        return 1 << (max(1, min(_POINTS, _ENTRIES // most)).bit_length() - 1)

    def _boxes(self, lower: Any, upper: Any) -> tuple[dict[int, tuple[Array, Array]], tuple[int, ...]]:
        """Ends in model space, each of shape (Z, d_i), of the blocks that are bounded, and the shape of the answer."""
        structure = self.model.structure
        if isinstance(lower, Mapping):
            if upper is not None:
                raise ValueError("Expected a mapping from names to (lower, upper) alone, got a second argument.")
            ends = {i: _pair(structure.names[i], structure.dims[i], lower) for i in self._positions(lower)}
        else:
            low, high = checks.box(lower, upper, self.dim)
            cuts = np.cumsum([0, *self.dims.values()])
            where = zip(self.kept, cuts[:-1], cuts[1:], strict=True)
            ends = {i: (low[..., a:b], high[..., a:b]) for i, a, b in where}
        shape = np.broadcast_shapes(*(end.shape[:-1] for pair in ends.values() for end in pair))
        for i in ends:
            space = Space(self.model.kernels[i].psi, self.transforms[i])
            if not space.separate:
                space.refuse("box")
        return {i: tuple(self._model_end(i, end, shape) for end in pair) for i, pair in ends.items()}, shape  # type: ignore[return-value]

    def _model_end(self, block: int, end: Array, shape: tuple[int, ...]) -> Array:
        flat = jnp.broadcast_to(end, (*shape, end.shape[-1])).reshape(-1, end.shape[-1])
        return to_model(self.transforms[block], flat)[0]

    # --- moments ----------------------------------------------------------------------------------

    def mean(self) -> Float[Array, " D"]:
        """E[x] over all coordinates in the order of `names`."""
        matrix, offset = self._affine()
        return offset + matrix @ _mean(self.belief)

    def covariance(self) -> Float[Array, "D D"]:
        """E[x x^T] - E[x] E[x]^T over all coordinates in the order of `names`."""
        matrix, _ = self._affine()
        return matrix @ _covariance(self.belief) @ matrix.T

    def _affine(self) -> tuple[Float[Array, "D D"], Float[Array, " D"]]:
        """Matrix and offset from model to data space."""
        splits = [self.transforms[i].split() for i in self.kept]
        if any(split.inner is not None for split in splits):
            raise ValueError(
                "Expected affine transforms for moments in closed form, got others. Average draws instead."
            )
        matrix = jax.scipy.linalg.block_diag(*(split.matrix for split in splits))
        return matrix, jnp.concatenate([split.offset for split in splits])

    # --- other beliefs ----------------------------------------------------------------------------

    def marginal(self, names: str | Iterable[str]) -> NetworkBelief:
        """The density of some of the blocks, in the order given."""
        return NetworkBelief(self.model, self.transforms, self._positions(names), self.fixed, self.log_mass)

    def condition(self, values: Mapping[str, ArrayLike]) -> NetworkBelief:
        """The density of the other blocks given values of some, each of shape (d_i,) or a number where d_i = 1."""
        if not isinstance(values, Mapping) or not values:
            raise ValueError(f"Expected a mapping from names to values, such as {{'x': 0.3}}, got {values!r}.")
        where = self._positions(values)
        rest = tuple(i for i in self.kept if i not in where)
        if not rest:
            raise ValueError(f"Expected at least one of {list(self.names)} left free, got values for all of them.")
        fixed = dict(self.fixed)
        for i, value in zip(where, values.values(), strict=True):
            x = read_point(self.model.structure, i, value)
            if x.ndim != 1:
                raise ValueError(
                    f"Expected one value of {self.model.structure.names[i]!r}, shape ({x.shape[-1]},), got {x.shape}."
                )
            fixed[i] = self.transforms[i].forward(x)[0]
            if checks.is_concrete(fixed[i]) and not np.all(self.model.kernels[i].psi.inside(fixed[i])):
                raise ValueError(f"Expected values where the network has a density, got {dict(values)}: there is none.")
        found = answer(self.model, Question(fixed))
        if checks.is_concrete(found.lost) and np.any(found.lost):
            raise ValueError(
                f"Expected values whose density has digits left, got {dict(values)}, where its terms cancel to nothing."
                " Give the network a background share, or condition on values nearer to where it has been."
            )
        return NetworkBelief(self.model, self.transforms, rest, fixed, found.log)

    def sample(self, key: PRNGKeyArray, shape: int | Sequence[int] = ()) -> dict[str, Float[Array, "... _"]]:
        """Independent exact draws, by name, each of shape (*shape, d_i); see `draws.draw`."""
        shape = checks.shape(shape)
        found = draws.draw(self.model, key, math.prod(shape), self.kept, self.fixed)
        names = self.model.structure.names
        return {names[i]: to_data(self.transforms[i], y).reshape(*shape, y.shape[-1]) for i, y in found.items()}

    def _positions(self, names: str | Iterable[str]) -> tuple[int, ...]:
        found = self.model.structure.positions(names)
        gone = [self.model.structure.names[i] for i in found if i not in self.kept]
        if gone:
            raise ValueError(f"Expected blocks among those left, {list(self.names)}, got {gone}.")
        return found


class NetworkBelief(BlockDensity):
    """What a network says of some of its blocks, given values of others.

    Made by `BayesianNetwork.marginal` and `.condition`, or by the methods of the same names here.

    Attributes:
        model: The network's tensors, in model space.
        transforms: From data to model space, one a block.
        kept: Positions of the blocks this is a density of, in the order of `names`.
        fixed: Where blocks are fixed, in model space, by position.
        log_mass: Log of the density of the fixed values, in model space.
    """

    model: Model
    transforms: tuple[Transform, ...]
    kept: tuple[int, ...] = eqx.field(static=True)
    fixed: dict[int, Array]
    log_mass: Float[Array, ""]


def _pair(name: str, dim: int, boxes: Mapping[str, Any]) -> tuple[Array, Array]:
    try:
        lower, upper = boxes[name]
    except (TypeError, ValueError):
        raise ValueError(f"Expected a pair (lower, upper) for block {name!r}, got {boxes[name]!r}.") from None
    return checks.box(lower, upper, dim)


def _in_blocks(function: Callable[..., tuple[Array, ...]], rows: tuple[Array, ...], most: int) -> tuple[Array, ...]:
    """A function of arrays with a common leading axis, some rows at a time; few different lengths are compiled."""
    count = len(rows[0])
    if count == 0:
        return ()
    length = min(most, few_lengths(count))
    found = []
    for begin in range(0, count, length):
        # The last rows are filled up with copies of the very last.
        chosen = np.minimum(np.arange(begin, begin + length), count - 1)
        found.append(function(*(array[chosen] for array in rows)))
    return tuple(jnp.concatenate(parts)[:count] for parts in zip(*found, strict=True))


@eqx.filter_jit
def _log_prob(belief: NetworkBelief, x: tuple[Array, ...]) -> tuple[Array, Array]:
    """Log-densities of rows in data space, and whether cancellation ate them."""
    points, log_det, inside = dict(belief.fixed), jnp.zeros(len(x[0])), jnp.ones(len(x[0]), dtype=bool)
    for i, rows in zip(belief.kept, x, strict=True):
        y, log_det_i = to_model(belief.transforms[i], rows)
        psi = belief.model.kernels[i].psi
        within = psi.inside(y)
        # Outside, an interior point is evaluated and discarded, so that gradients stay finite.
        points[i] = jnp.where(within[:, None], y, psi.interior_point()[None])
        log_det, inside = log_det + log_det_i, inside & within
    found = contract(belief.model, Question(points))
    log_prob = found.log + log_det - belief.log_mass
    return jnp.where(inside, log_prob, -jnp.inf), jnp.broadcast_to(inside & found.lost, inside.shape)


@eqx.filter_jit
def _box(belief: NetworkBelief, blocks: tuple[int, ...], ends: tuple[Array, ...]) -> Array:
    """P(box) for rows of ends in model space: lower and upper of each block."""
    boxes = {i: (ends[2 * k], ends[2 * k + 1]) for k, i in enumerate(blocks)}
    return _expectation(belief, Question(belief.fixed, boxes))


def _expectation(belief: NetworkBelief, asked: Question) -> Array:
    found = contract(belief.model, asked)
    return found.value * jnp.exp(found.log_scale - belief.log_mass)


@eqx.filter_jit
def _mean(belief: NetworkBelief) -> Array:
    """In model space, shape (D,)."""
    tables = [(i, first_moments(belief.model.bases(i))) for i in belief.kept]
    return jnp.concatenate([_expectation(belief, Question(belief.fixed, tables={i: table})) for i, table in tables])


@eqx.filter_jit
def _covariance(belief: NetworkBelief) -> Array:
    """In model space, shape (D, D)."""
    model, kept = belief.model, belief.kept
    tables = {i: first_moments(model.bases(i)) for i in kept}
    seconds = {
        (i, i): _second_moment(model, i, _expectation(belief, Question(belief.fixed, opened=(i,)))) for i in kept
    }
    for place, i in enumerate(kept):
        for j in kept[place + 1 :]:
            both = _expectation(belief, Question(belief.fixed, tables={i: tables[i], j: tables[j]}))
            # The axes of the answer stand in topological order.
            seconds[i, j] = both if i < j else both.T
            seconds[j, i] = seconds[i, j].T
    mean = _mean(belief)
    rows = [jnp.concatenate([seconds[i, j] for j in kept], axis=1) for i in kept]
    return jnp.concatenate(rows) - mean[:, None] * mean[None]


def _second_moment(model: Model, block: int, E: Array) -> Float[Array, "d d"]:
    """E[y y^T] of one block from the coefficients of its density."""
    basis, left, right, shape = halves(model.bases(block))
    weights = E.reshape(shape[0], -1) if shape else unpack_coefficients(E, basis.size)
    one = np.eye(basis.dim, dtype=int)
    powers = (one[:, None] + one[None]).reshape(-1, basis.dim)
    return basis.contract_powers(Expansion(basis, left, right, weights), powers).reshape(basis.dim, basis.dim)
