"""Where the training of a network starts: mixtures fitted to each block, and how often components go together."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.factor.bases import Basis
from sosmarkov.factor.bases.gaussian import local
from sosmarkov.factor.couplings.base import raw_triangle, triangle
from sosmarkov.factor.starts import BROAD, Mixture, density_at, padded
from sosmarkov.learning.factor.initialise import fit_mixture
from sosmarkov.learning.phases import in_parallel
from sosmarkov.networks.conditional import Conditional
from sosmarkov.networks.structure import Structure

_ROWS = 20_000


class Free(NamedTuple):
    """What is trained of one conditional, in model space; broad functions are added by `realise`.

    Attributes:
        psi: Basis in x.
        phi: Bases in the parents.
        K: With a background share, for one function more in each basis.
        raw_factors: Free numbers of the factors L_j.
    """

    psi: Basis
    phi: tuple[Basis, ...]
    K: Float[Array, "*n m r"]
    raw_factors: tuple[Float[Array, "_ _"], ...]


class Sizes(NamedTuple):
    """Functions without the broad ones of a background: in each block, in a parent; and the rank.

    Attributes:
        own: m_i.
        parent: n_ij, the same for all parents of a block.
        rank: R_i.
    """

    own: tuple[int, ...]
    parent: tuple[int, ...]
    rank: tuple[int, ...]


def realise(structure: Structure, free: tuple[Free, ...], background: float) -> tuple[Conditional, ...]:
    """The conditionals these parameters stand for, with honest tails where there is a background share."""
    found = []
    for one, parents in zip(free, structure.parents, strict=True):
        psi, phi = one.psi, one.phi
        if background > 0:
            psi, phi = psi.with_broad(BROAD), tuple(basis.with_broad(BROAD) for basis in phi)
        names = [structure.names[j] for j in parents]
        factors = dict(zip(names, (triangle(raw) for raw in one.raw_factors), strict=True))
        found.append(
            Conditional(psi, one.K, dict(zip(names, phi, strict=True)), factors=factors, background=background)
        )
    return tuple(found)


def start(
    structure: Structure, samples: list[np.ndarray], sizes: Sizes, background: float, seed: int
) -> tuple[Free, ...]:
    """Parameters to begin with, from samples of each block in model space, shape (N, d_i).

    Aims at f_i = p(x_i | parents) prod_j p(x_j) / G_i with each factor g near the density of the block it is in.
    """
    wanted = sorted({(i, sizes.own[i]) for i in range(len(samples))} | {
        (j, sizes.parent[i]) for i, parents in enumerate(structure.parents) for j in parents
    })  # fmt: skip
    fitted = in_parallel(lambda k: fit_mixture(samples[wanted[k][0]], wanted[k][1], False, seed), range(len(wanted)))
    mixtures = dict(zip(wanted, fitted, strict=True))
    rows = np.random.default_rng(seed).permutation(len(samples[0]))[:_ROWS]
    return tuple(
        _start_one(structure, i, [y[rows] for y in samples], mixtures, sizes, background, seed + i)
        for i in range(len(samples))
    )


def _start_one(
    structure: Structure,
    block: int,
    samples: list[np.ndarray],
    mixtures: dict[tuple[int, int], Mixture],
    sizes: Sizes,
    background: float,
    seed: int,
) -> Free:
    """K from the co-occurrence of responsibilities times random signs, under which cross terms cancel on average."""
    rng = np.random.default_rng(seed)
    own = mixtures[block, sizes.own[block]]
    parents = [mixtures[j, sizes.parent[block]] for j in structure.parents[block]]
    # w = L^T phi has squares near weight times density of the parents' components: K has the rest of f.
    squares = _conditional_shares(own, parents, samples, structure, block)
    for child, _ in structure.children(block):
        squares = squares / density_at(mixtures[block, sizes.parent[child]], own.means)
    shape = (*squares.shape, sizes.rank[block])
    signs = rng.choice([-1.0, 1.0], size=shape) * (1.0 + 0.1 * rng.normal(size=shape))
    K = np.sqrt(squares)[..., None] * signs
    factors = [np.diag(np.sqrt(parent.weights)) for parent in parents]
    if background > 0:
        K = np.pad(K, [(0, 1)] * (K.ndim - 1) + [(0, 0)])
        factors = [padded(factor) for factor in factors]
    # Weak random ties: for the broad functions, which have no others, and so that rows are independent.
    K = K + 0.01 * np.sqrt(np.mean(K**2)) * rng.normal(size=K.shape)
    raw = tuple(raw_triangle(factor, len(factor), "factor") for factor in factors)
    psi, *phi = (local(one.means, one.covariances, 2) for one in (own, *parents))
    return Free(psi, tuple(phi), jnp.asarray(K), raw)


def _conditional_shares(
    own: Mixture, parents: list[Mixture], samples: list[np.ndarray], structure: Structure, block: int
) -> np.ndarray:
    """P(component of x | components of the parents), shape (n_1, ..., n_P, m)."""
    joint = own.responsibilities(samples[block])
    count = 1.0
    for parent, j in zip(reversed(parents), reversed(structure.parents[block]), strict=True):
        shares = parent.responsibilities(samples[j])
        joint = shares.reshape(*shares.shape, *(1,) * (joint.ndim - 1)) * joint[:, None]
        count *= shares.shape[1]
    joint = joint.mean(axis=0)
    # Every combination keeps a little of the whole, and unseen ones have nothing else.
    whole = joint.reshape(-1, joint.shape[-1]).sum(axis=0)
    joint = joint + 0.02 / count * whole
    return joint / joint.sum(axis=-1, keepdims=True)
