"""`fit_network`: from a table of samples and a graph to a trained network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.data.history import History, PhaseHistory, Scores
from sosmarkov.factor.background import require_share
from sosmarkov.learning.loop import Plan, evaluate, stack, train, unstack
from sosmarkov.learning.phases import Interruption
from sosmarkov.learning.progress import Progress
from sosmarkov.networks.model import normalise, require_fitting
from sosmarkov.networks.network import BayesianNetwork
from sosmarkov.networks.start import Free, Sizes, realise, start
from sosmarkov.networks.structure import Structure, make_structure
from sosmarkov.networks.table import Blocks, read_table
from sosmarkov.spaces.transforms import Standardize

_LEAST_ROWS = 20


def fit_network(
    table: ArrayLike,
    blocks: Blocks | None = None,
    parents: Mapping[str, str | Sequence[str]] | None = None,
    *,
    size: int | None = None,
    rank: int | None = None,
    steps: int = 1000,
    batch_size: int = 512,
    learning_rate: float = 1e-2,
    validation: float = 0.1,
    patience: int = 600,
    background: float = 1e-4,
    seed: int = 0,
    progress: bool = True,
) -> BayesianNetwork:
    """Learn every p(x_i | parents) of a Bayesian network by maximum likelihood, all conditionals together.

    Coordinates are standardised, functions are axis-aligned Gaussian kernels.

    Args:
        table: Independent samples of all blocks: an array (N, D) with columns in the order of the blocks, a mapping
            from names to arrays (N, d_i) or (N,), or a data frame.
        blocks: The blocks, parents before children: from names to numbers of coordinates, or to names of columns.
            None: every entry of the mapping, or numeric column of the frame, is a block of its own.
        parents: From names to the names of their parents; blocks that are absent have none.
        size: Functions in each block, and in the parent of a block that has one. With P parents a block has about
            (3 size)^(1/P), at least 3, in each of them. None: as many as the data can carry, at most 8.
        rank: Squares in each f_i; more where a block needs them to be normalised. None: chosen from the sizes.
        steps: At most so many.
        batch_size: Rows a step.
        learning_rate: At the start of the cosine schedule.
        validation: Share of the rows held out to stop early and keep the best.
        patience: Steps without a better held-out loss after which training stops.
        background: Share of a broad density in every conditional, so that outliers cost tens of nats, not hundreds.
        seed: For the split, the start and the batches; the same seed gives the same network.
        progress: Show a bar, on a terminal only. Interrupting (Ctrl-C) keeps the best so far.

    Returns:
        The network; `history` says what was chosen and what training did.
    """
    samples = read_table(table, blocks)
    structure = make_structure({name: values.shape[1] for name, values in samples.items()}, parents or {})
    count = len(next(iter(samples.values())))
    if count < _LEAST_ROWS:
        raise ValueError(f"Expected at least {_LEAST_ROWS} rows to learn a network from, got {count}.")
    if not 0.0 < validation < 1.0:
        raise ValueError(f"Expected validation between 0 and 1, got {validation}.")
    plan = Plan(
        "network",
        checks.count(steps, "steps", least=1),
        checks.count(batch_size, "batch_size", least=1),
        learning_rate,
        checks.count(patience, "patience", least=1),
        checks.count(seed, "seed"),
    )
    background = require_share(background)
    sizes = _sizes(structure, count, size, rank, background > 0)

    held_out = np.zeros(count, dtype=bool)
    held_out[np.random.default_rng(seed).permutation(count)[: max(1, round(validation * count))]] = True
    transforms = {name: Standardize.fit(values[~held_out]) for name, values in samples.items()}
    y = [_standardised(transforms[name], values) for name, values in samples.items()]
    begun = start(structure, [values[~held_out] for values in y], sizes, background, seed)
    require_fitting(structure, eqx.filter_eval_shape(realise, structure, begun, background))
    loss = NetworkLoss(structure, background)
    batches = [tuple(values[rows] for values in y) for rows in (~held_out, held_out)]
    free, history = _train(begun, loss, batches, plan, progress)

    log_det = -float(sum(np.sum(np.log(transform.std)) for transform in transforms.values()))
    score = log_det - float(evaluate(loss, stack([free]), batches[1])[0])
    conditionals = eqx.filter_jit(realise)(structure, free, background)
    chosen = {"size": sizes.own, "parent_size": sizes.parent, "rank": sizes.rank, "steps": steps}
    chosen |= {"background": background, "seed": seed}
    return BayesianNetwork(
        dict(zip(structure.names, conditionals, strict=True)),
        transforms,
        history=History((history,), chosen, Scores(joint=score)),
    )


class NetworkLoss(NamedTuple):
    """-log p of rows in model space, mean over them: -sum_i log f_i, since all factors cancel."""

    structure: Structure
    background: float

    def __call__(self, free: tuple[Free, ...], batch: tuple[Array, ...]) -> Float[Array, ""]:
        """The loss of a batch, one array (N, d_i) a block."""
        kernels = normalise(self.structure, realise(self.structure, free, self.background)).kernels
        total = jnp.zeros(())
        for kernel, parents, y in zip(kernels, self.structure.parents, batch, strict=True):
            total = total - jnp.mean(jax.vmap(kernel.log_value)(tuple(batch[j] for j in parents), y))
        return total


def _train(
    begun: tuple[Free, ...], loss: NetworkLoss, batches: list[tuple[np.ndarray, ...]], plan: Plan, progress: bool
) -> tuple[tuple[Free, ...], PhaseHistory]:
    bar = Progress(progress)
    training, held_out = batches
    try:
        with Interruption() as interruption:
            stacked, history = train(
                stack([begun]), loss, training, held_out, plan, progress=bar, stop=lambda: interruption.asked
            )
    finally:
        bar.close()
    return unstack(stacked, 1)[0], history


def _standardised(transform: Any, values: np.ndarray) -> np.ndarray:
    return (values - np.asarray(transform.mean)) / np.asarray(transform.std)


def _sizes(structure: Structure, count: int, size: int | None, rank: int | None, broad: bool) -> Sizes:
    """About a hundred rows a function; fewer functions in each of several parents, as they multiply."""
    size = int(np.clip(count // 100, 4, 8)) if size is None else checks.count(size, "size", least=1)
    own = (size,) * len(structure.names)
    parent, ranks = [], []
    for parents in structure.parents:
        several = max(3, round((3 * size) ** (1.0 / max(1, len(parents)))))
        parent.append(size if len(parents) <= 1 else min(size, several))
        rows, columns = (parent[-1] + broad) ** len(parents), size + broad
        least = -(-rows // columns)
        wanted = max(2, size // 2, 2 * least) if rank is None else max(least, checks.count(rank, "rank", least=1))
        ranks.append(wanted)
    return Sizes(own, tuple(parent), tuple(ranks))
