"""Small random networks, and the same networks on a quadrature grid in plain NumPy from their free parameters."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

import sosmarkov as sm
from oracles import gauss_legendre

STRUCTURES = {
    "pair": {"a": [], "b": ["a"]},
    "chain": {"a": [], "b": ["a"], "c": ["b"]},
    "fork": {"a": [], "b": ["a"], "c": ["a"]},
    "collider": {"a": [], "b": [], "c": ["a", "b"]},
    "diamond": {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]},
}
N, M = 2, 3
BACKGROUND = 0.03
NODES, WEIGHTS = gauss_legendre(-9.0, 9.0, 4)


class Raw(NamedTuple):
    """Free parameters of one conditional, one coordinate a block."""

    psi: tuple[np.ndarray, np.ndarray]
    phi: dict[str, tuple[np.ndarray, np.ndarray]]
    K: np.ndarray
    L: dict[str, np.ndarray]


def raw_conditional(rng, parents):
    def kernels(size):
        return rng.normal(scale=0.8, size=size), rng.uniform(0.7, 1.2, size=size)

    mean, std = kernels(M)
    std[-1] = 1.6  # what the background stands on
    phi = {name: kernels(N) for name in parents}
    L = {name: np.tril(rng.normal(size=(N, N)), -1) * 0.5 + np.diag(rng.uniform(0.5, 1.5, N)) for name in parents}
    return Raw((mean, std), phi, rng.normal(size=(*[N] * len(parents), M, 2)), L)


def build(raws):
    def basis(kernels):
        return sm.GaussianBasis(*(part[:, None] for part in kernels))

    return sm.BayesianNetwork({
        name: sm.Conditional(
            basis(raw.psi),
            raw.K,
            {parent: basis(kernels) for parent, kernels in raw.phi.items()},
            factors=raw.L,
            background=BACKGROUND,
        )
        for name, raw in raws.items()
    })  # fmt: skip


@functools.cache
def raw_case(structure):
    rng = np.random.default_rng(0)
    return {name: raw_conditional(rng, parents) for name, parents in STRUCTURES[structure].items()}


@functools.cache
def network_of(structure):
    """The library's network."""
    return build(raw_case(structure))


def functions(kernels, x):
    """Kernels of unit L2 norm, shape (len(x), n)."""
    mean, std = kernels
    return np.exp(-0.5 * ((x[:, None] - mean) / std) ** 2) / (math.pi * std**2) ** 0.25


def tables_of(structure, nodes=None):
    """Every p(x_i | parents) on a grid, parents' axes first; blocks may have nodes of their own."""
    raws = raw_case(structure)
    at = {name: (nodes or {}).get(name, NODES) for name in raws}
    return {name: conditional_on(raws, name, at) for name in raws}


def factor_of_children(raws, name, x):
    """G(x)."""
    G = np.ones(len(x))
    for other in raws.values():
        if name in other.phi:
            G = G * np.sum((functions(other.phi[name], x) @ other.L[name]) ** 2, axis=1)
    return G


def conditional_on(raws, name, at):
    """G f / prod g straight from the formulas: K whitened by a Cholesky factor of NumPy's, integrals by quadrature."""
    raw, psi = raws[name], functions(raws[name].psi, NODES)
    gram = psi.T @ ((WEIGHTS * factor_of_children(raws, name, NODES))[:, None] * psi)
    K = raw.K.reshape(-1, M, raw.K.shape[-1])
    T = np.einsum("imr,mk,jkr->ij", K, gram, K)
    K = np.einsum("ij,jmr->imr", np.linalg.inv(np.linalg.cholesky(T)), K)
    Phi = np.ones((1, 1))
    for parent, kernels in raw.phi.items():
        w = functions(kernels, at[parent]) @ raw.L[parent]
        Phi = (Phi[:, None, :, None] * w[None, :, None, :]).reshape(len(Phi) * len(w), -1)
    psi, G = functions(raw.psi, at[name]), factor_of_children(raws, name, at[name])
    f = sum((Phi @ K[:, :, r] @ psi.T) ** 2 for r in range(K.shape[-1]))
    own, background = G * f / np.sum(Phi**2, axis=1)[:, None], G * psi[:, -1] ** 2 / gram[-1, -1]
    shape = [len(at[parent]) for parent in raw.phi]
    return ((1.0 - BACKGROUND) * own + BACKGROUND * background).reshape(*shape, len(at[name]))


def integrate(structure, tables, kept, weights=None):
    """The density of the kept blocks on the grid, the others integrated, some by weights of their own."""
    letters, operands, names = {name: chr(97 + i) for i, name in enumerate(tables)}, [], []
    for name, table in tables.items():
        operands.append(table)
        names.append("".join(letters[parent] for parent in STRUCTURES[structure][name]) + letters[name])
        if name not in kept:
            operands.append((weights or {}).get(name, WEIGHTS))
            names.append(letters[name])
    equation = ",".join(names) + "->" + "".join(letters[name] for name in kept)
    return np.einsum(equation, *operands, optimize=True)
