"""A lattice from data: the way to say one step, the nodes, the rows, and how far counts may change them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

from sosmarkov.lattice.broad import Broad
from sosmarkov.lattice.nodes import Nodes
from sosmarkov.lattice.rows import compile_rows
from sosmarkov.learning.held_out import AHEAD, Fold, mean_score
from sosmarkov.learning.lattice.em import Seen, learn_rows
from sosmarkov.learning.lattice.place import Room, place, spacing_for
from sosmarkov.learning.lattice.surrogate import Ground, Rows, Surrogate, Way, best_way

# Pairs that the choice among ways looks at, and those it is judged by.
_LOOK, _HELD_OUT = 5000, 3000
# What counts may weigh against: rows of data behind each row of the chain; None leaves the rows as compiled.
STRENGTHS = (None, 160.0, 40.0, 10.0, 3.0)
# Entries of rows below this share of the largest are cut: what lies out there is the broad part's and the counts'.
_CUT = 1e-5
# Share of the broad part in every row.
BROAD = 1e-3
_WIDE = 3.0


class Recipe(NamedTuple):
    """What is chosen by held-out forecasts.

    Attributes:
        way: How one step is said.
        strength: What counts weigh against; None where there are none.
        fineness: The spacing, in the widest that leaves rows their noise.
    """

    way: Way
    strength: float | None = None
    fineness: float = 1.0


class Chain(NamedTuple):
    """Nodes, rows with the broad part's column behind them, and the broad part."""

    nodes: Nodes
    rows: sp.csr_array
    broad: Broad
    narrow: float
    left: float


def compiled(surrogate: Surrogate, states: Float[np.ndarray, "n d"], rooms: list[Room], fineness: float) -> Chain:
    """The chain of a surrogate, without counts."""
    x = surrogate.ground.rows.z[:, : surrogate.ground.dim]
    nodes = place(surrogate, states, fineness * spacing_for(surrogate, x), rooms)
    step = surrogate.steps(nodes.points)
    found = compile_rows(nodes, step.mean, step.slope, step.noise, _CUT)
    broad = Broad(nodes.axes, np.mean(states, axis=0), _WIDE * np.std(states, axis=0))
    last = sp.coo_array(
        (np.full(len(nodes), BROAD), (np.arange(len(nodes)), np.full(len(nodes), len(nodes)))), found.matrix.shape
    )
    return Chain(nodes, sp.csr_array((1.0 - BROAD) * found.matrix + last), broad, found.narrow, found.left)


def carried(
    chain: Chain, x: Float[np.ndarray, "m d"], later: Float[np.ndarray, "m k d"], ahead: tuple[int, ...]
) -> np.ndarray:
    """log p(x_k | x_0 = x) of later states, shape (m, k): many known states carried together."""
    nodes, count = chain.nodes, len(x)
    i, gates = nodes.gates(x)
    P = sp.coo_array(
        (gates.ravel(), (i.ravel(), np.repeat(np.arange(count), gates.shape[1]))), (len(nodes), count)
    ).toarray()
    bands, tau, back = nodes.meet(), chain.broad.met(nodes), chain.rows.T.tocsr()
    found = np.full((count, len(ahead)), np.nan)
    for k in range(1, max(ahead) + 1):
        C = back @ P
        if k in ahead:
            at = later[:, ahead.index(k)]
            there = ~np.any(np.isnan(at), axis=1)
            j, density = nodes.densities(at[there])
            p = np.sum(density * C[j, np.flatnonzero(there)[:, None]], axis=1)
            found[there, ahead.index(k)] = np.log(p + C[-1, there] * np.exp(chain.broad.log_prob(at[there])))
        P = C[:-1]
        for band in bands:
            P = band @ P
        P = P + np.outer(tau, C[-1])
    return found


class Judged(NamedTuple):
    """What one fold says.

    Attributes:
        way: The best way to say one step.
        strengths: Mean log-density of held-out steps for each of `STRENGTHS`.
        scores: Log-densities of held-out forecasts of the best of these, shape (origins, numbers of steps).
    """

    way: Way
    strengths: Float[np.ndarray, " s"]
    scores: Float[np.ndarray, "o k"]


def judged(rows: Rows, fold: Fold, rooms: list[Room]) -> Judged:
    """The choices of one fold, and how good its forecasts are."""
    d = rows.x_next.shape[1]
    training, held_out = _some(rows.at(fold.training), 10**9), _some(rows.at(fold.held_out), _HELD_OUT)
    way, _ = best_way(Ground(_some(training, _LOOK)), held_out)
    states = np.concatenate([training.z[:, :d], training.x_next])
    chain = compiled(Surrogate(Ground(training), way), states, rooms, 1.0)
    seen, unseen = (
        Seen(chain.nodes, chain.broad, chain.rows, part.z[:, :d], part.x_next) for part in (training, held_out)
    )
    tried, found = [], []
    for strength in STRENGTHS:
        tried.append(chain.rows if strength is None else learn_rows(seen, training.weight, strength))
        found.append(np.average(np.log(unseen.likelihood(tried[-1].data)), weights=held_out.weight))
    later = np.where(fold.later[..., None] >= 0, rows.x_next[fold.later], np.nan)
    best = chain._replace(rows=tried[int(np.argmax(found))])
    return Judged(way, np.array(found), carried(best, rows.z[fold.origins, :d], later, AHEAD))


def _some(rows: Rows, most: int) -> Rows:
    """Every so many of the rows."""
    return rows.at(np.arange(0, len(rows.z), max(1, len(rows.z) // most)))


def learned(rows: Rows, recipe: Recipe, rooms: list[Room]) -> Chain:
    """The chain of a recipe from all rows."""
    d = rows.x_next.shape[1]
    states = np.concatenate([rows.z[:, :d], rows.x_next])
    chain = compiled(Surrogate(Ground(rows), recipe.way), states, rooms, recipe.fineness)
    if recipe.strength is None:
        return chain
    seen = Seen(chain.nodes, chain.broad, chain.rows, rows.z[:, :d], rows.x_next)
    return chain._replace(rows=learn_rows(seen, rows.weight, recipe.strength))


def choose(rows: Rows, folds: list[Fold], rooms: list[Room]) -> tuple[Recipe, float]:
    """The recipe with the best held-out forecasts, and their score; ways may differ between folds, strengths are pooled."""
    found = [judged(rows, fold, rooms) for fold in folds]
    best = int(np.argmax(np.mean([one.strengths for one in found], axis=0)))
    names = [one.way for one in found]
    score = mean_score(np.concatenate([one.scores for one in found]))
    return Recipe(max(set(names), key=names.count), STRENGTHS[best]), score
