"""`fit_network`: from a table of samples and a graph to a trained network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from sosmarkov.core.checks import ArrayLike
from sosmarkov.data.history import History
from sosmarkov.learning.loop import evaluate
from sosmarkov.learning.options import Capacity, Descent, Watched, about, natural, takes
from sosmarkov.learning.phases import Phase, Task, plan_of, run
from sosmarkov.networks.model import normalise, require_fitting
from sosmarkov.networks.network import BayesianNetwork
from sosmarkov.networks.start import Free, Sizes, realise, start
from sosmarkov.networks.structure import Structure, make_structure
from sosmarkov.networks.table import Blocks, read_table
from sosmarkov.spaces.transforms import Standardize

_LEAST_ROWS = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkOptions(Watched, Descent, Capacity):
    """Everything that `fit_network` takes."""

    table: ArrayLike = field(kw_only=False, metadata=about("Samples of all blocks"))
    blocks: Blocks | None = field(
        default=None, kw_only=False, metadata=about("Names, and numbers of coordinates or columns")
    )
    parents: Mapping[str, str | Sequence[str]] | None = field(
        default=None, kw_only=False, metadata=about("Names, and those of their parents")
    )
    steps: int = field(default=1000, metadata=about("Most steps", natural))


@takes(NetworkOptions)
def fit_network(given: NetworkOptions) -> BayesianNetwork:  # noqa: D417 - the fields of the record
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
    samples = read_table(given.table, given.blocks)
    structure = make_structure({name: values.shape[1] for name, values in samples.items()}, given.parents or {})
    plan = plan_of(given, given.steps)
    return run(lambda _: _Joint(structure, samples, given), plan, 1, progress=given.progress)[0]


class _Joint(Task[BayesianNetwork]):
    """All conditionals of a network together."""

    def __init__(self, structure: Structure, samples: dict[str, np.ndarray], given: NetworkOptions):
        count = len(next(iter(samples.values())))
        if count < _LEAST_ROWS:
            raise ValueError(f"Expected at least {_LEAST_ROWS} rows to learn a network from, got {count}.")
        self._structure, self._background = structure, given.background
        self._sizes = _sizes(structure, count, given.size, given.rank, given.background > 0)
        self.chosen = {"size": self._sizes.own, "parent_size": self._sizes.parent, "rank": self._sizes.rank}
        self.chosen |= {"steps": given.steps, "background": given.background, "seed": given.seed}
        held_out = np.zeros(count, dtype=bool)
        order = np.random.default_rng(given.seed).permutation(count)
        held_out[order[: max(1, round(given.validation * count))]] = True
        self._transforms = {name: Standardize.fit(values[~held_out]) for name, values in samples.items()}
        y = [_standardised(self._transforms[name], values) for name, values in samples.items()]
        self._batches = [tuple(values[rows] for values in y) for rows in (~held_out, held_out)]
        self._loss = NetworkLoss(structure, given.background)

    def start(self, seed: int) -> tuple[Free, ...]:
        """From mixtures fitted to each block."""
        begun = start(self._structure, list(self._batches[0]), self._sizes, self._background, seed)
        require_fitting(self._structure, eqx.filter_eval_shape(realise, self._structure, begun, self._background))
        return begun

    def phases(self) -> list[Phase]:
        """One."""
        training, held_out = self._batches
        return [Phase("network", self._loss, training, held_out)]

    def scores(self, parameters: Any) -> dict[str, float]:
        """Of rows of all blocks."""
        log_det = -float(sum(np.sum(np.log(transform.std)) for transform in self._transforms.values()))
        return {"joint": log_det - float(evaluate(self._loss, parameters, self._batches[1])[0])}

    def realise(self, parameters: tuple[Free, ...], history: History) -> BayesianNetwork:
        """In data space."""
        conditionals = eqx.filter_jit(realise)(self._structure, parameters, self._background)
        named = dict(zip(self._structure.names, conditionals, strict=True))
        return BayesianNetwork(named, self._transforms, history=history)


class NetworkLoss(NamedTuple):
    """-log p of rows in model space, mean over them: -sum_i log f_i, since all factors cancel."""

    structure: Structure
    background: float

    def __call__(self, free: tuple[Free, ...], batch: tuple[Array, ...]) -> Float[Array, ""]:
        """The loss of a batch, one array (N, d_i) a block."""
        kernels, *_ = normalise(self.structure, realise(self.structure, free, self.background))
        total = jnp.zeros(())
        for kernel, parents, y in zip(kernels, self.structure.parents, batch, strict=True):
            total = total - jnp.mean(jax.vmap(kernel.log_value)(tuple(batch[j] for j in parents), y))
        return total


def _standardised(transform: Any, values: np.ndarray) -> np.ndarray:
    return (values - np.asarray(transform.mean)) / np.asarray(transform.std)


def _sizes(structure: Structure, count: int, size: int | None, rank: int | None, broad: bool) -> Sizes:
    """About a hundred rows a function; fewer functions in each of several parents, as they multiply."""
    size = int(np.clip(count // 100, 4, 8)) if size is None else size
    own = (size,) * len(structure.names)
    parent, ranks = [], []
    for parents in structure.parents:
        several = max(3, round((3 * size) ** (1.0 / max(1, len(parents)))))
        parent.append(size if len(parents) <= 1 else min(size, several))
        rows, columns = (parent[-1] + broad) ** len(parents), size + broad
        least = -(-rows // columns)
        wanted = max(2, size // 2, 2 * least) if rank is None else max(least, rank)
        ranks.append(wanted)
    return Sizes(own, tuple(parent), tuple(ranks))
