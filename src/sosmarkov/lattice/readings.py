"""Any sensor of the state alone, prepared for a lattice: readings of states, then the step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from scipy.special import logsumexp

from sosmarkov.contracts.belief import Belief
from sosmarkov.contracts.known import KnownState
from sosmarkov.contracts.mixture import MixtureBelief
from sosmarkov.contracts.reader import Passed, Reader, Sensor, Updated, require_possible
from sosmarkov.core import checks, draws
from sosmarkov.lattice.beliefs import LatticeBelief
from sosmarkov.lattice.cells import Behind
from sosmarkov.lattice.likelihoods import NOTHING, Likelihood, fit, likelihood, report, weigher
from sosmarkov.lattice.message import Met
from sosmarkov.lattice.panels import drawn_within, nodes_of

# Numbers held at once while drawing.
_BLOCK = 20_000_000


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class LatticeReader(Reader):
    """A sensor whose likelihood is integrated on the lattice: in tables where it is a product, else on cells.

    Args:
        transition: Of the states that are read.
        sensor: Reads them.

    Attributes:
        reached: To what integrals on cells stood still, as shares of themselves, for each reading that needed them:
            what a filter's evidences are good to.
    """

    transition: Any
    sensor: Sensor
    reached: list[float] = field(default_factory=list)
    # What was predicted before each reading: the way back integrates where the way there found mass.
    _predicted: list[np.ndarray] = field(default_factory=list)

    def given(self, observation: Any) -> Likelihood | None:
        """The likelihood of one reading; None where it says nothing."""
        if not checks.is_concrete(observation):
            raise ValueError(
                "Expected readings with values for a process in the lattice form, which is computed by NumPy, got ones"
                " that are being traced by JAX. Filter sequences one by one."
            )
        values = np.asarray(observation, dtype=float)
        return (
            None if bool(self.sensor.missing(values)) else likelihood(self.sensor, values, self.transition.nodes.axes)
        )

    def first(self, initial: Belief, observation: Any) -> Met:
        """The start, given what is read of it."""
        self._predicted.clear()
        self.reached.clear()
        return self.transition.enter(initial, Read(self, observation))

    def ahead(self) -> Callable[[Met, Any, Any], tuple[Met, Passed]]:
        """The step, then what gates see under the reading."""
        transition = self.transition

        def step(message: Met, observation: Any, u: Any) -> tuple[Met, Passed]:
            C, given = transition.push(message, u), self.given(observation)
            self._predicted.append(C)
            if given is None:
                return transition.message(C), Passed(C, C, np.ones(()), np.zeros(()))
            found = self._weigher(C, given)
            P = found.seen()
            mass = np.sum(P)
            if not mass > 0:
                require_possible(np.array(-np.inf))
            return Met(P / mass, 0.0), Passed(C, C, np.asarray(mass), np.asarray(found.log_scale))

        return step

    def _weigher(self, C: np.ndarray, given: Likelihood) -> Any:
        found = weigher(self.transition.nodes, self.transition.belief(C), given)
        if found.error > 0:
            self.reached.append(found.error)
            report(found.error, self.transition.dim)
        return found

    def back(self) -> Callable[[Any, Any, Any, Any], Float[np.ndarray, " n"]]:
        """b = A (int E_j l beta), divided by the evidence, so that none grows or vanishes."""
        transition, known = self.transition, list(self._predicted)

        def step(b: Any, observation: Any, log_evidence: Any, u: Any) -> np.ndarray:
            given = self.given(observation)
            C = known.pop() if known else transition.anywhere()
            found = weigher(transition.nodes, transition.belief(C), NOTHING if given is None else given)
            M = found.worth(np.asarray(b))
            return transition.pull(M, u) * np.exp(found.log_scale - float(log_evidence))

        return step

    def log_evidences(self, observations: Any, passed: Passed) -> Float[np.ndarray, " t"]:
        """The logs of how likely readings were; zero where nothing was read."""
        missing = np.array([bool(self.sensor.missing(np.asarray(one))) for one in observations])
        return np.where(missing, 0.0, np.log(np.asarray(passed.mass)) + np.asarray(passed.log_scale))

    def posterior(self, belief: Belief, observation: Any, backward: Any = None) -> Belief:
        """Bayes' rule for the reading and for all that lies behind."""
        given = None if observation is None else self.given(observation)
        if given is None and backward is None:
            return belief
        return self._after(belief, NOTHING if given is None else given, backward)[0]

    def update(self, belief: Belief, observation: Any) -> Updated:
        """Bayes' rule for one reading."""
        given = self.given(observation)
        if given is None:
            return Updated(belief, np.zeros(()))
        return Updated(*self._after(belief, given, None))

    def _after(self, belief: Belief, given: Likelihood, backward: Any) -> tuple[Belief, Any]:
        """Each part of a belief under the reading, weighed by how likely it held it."""
        b = None if backward is None else np.asarray(backward)
        weights, members = [], []
        for log_weight, part in belief.parts():
            if isinstance(part, KnownState):
                x = np.asarray(part.state)[None]
                found, log_mass = part, given.log(x)[0]
                log_mass = log_mass if b is None else log_mass + Behind(self.transition.nodes, b)(x)[0]
            else:
                own = self.transition.cells(part)
                found = own.times(given, b)
                log_mass = found.log_mass - (own.log_mass if own.behind is not None or own.readings.logs else 0.0)
            weights.append(float(log_weight) + log_mass)
            members.append(found)
        total = logsumexp(weights)
        require_possible(np.asarray(total))
        after = members[0] if len(members) == 1 else MixtureBelief(members, np.exp(np.array(weights) - total))
        return after.with_columns(None if belief.names is None else belief.columns), np.asarray(total)

    # --- draws ------------------------------------------------------------------------------------

    def draw(self, key: Any, x: Any, observation: Any, backward: Any, u: Any) -> Float[Any, "n d"]:
        """From p(x' | x) l(o | x') beta(x'), for each x."""
        transition, generator, x = self.transition, draws.generator(key), np.asarray(x)
        given, b = self.given(observation), np.asarray(backward)
        if given is None and np.all(b == b[0]):
            return transition.sample(generator, x, u)
        rows = transition.chain.numbers_from(x, u)
        mean = np.asarray(rows.mean(axis=0)).reshape(-1)
        prior = transition.belief(mean / np.sum(mean))
        behind, given = Behind(transition.nodes, b), NOTHING if given is None else given
        log_mass, panels = fit(transition.nodes, prior, lambda x: given.log(x) + behind(x), given.breaks)
        require_possible(np.asarray(log_mass))
        report(panels.error, transition.dim)
        points, w = nodes_of(panels.lower, panels.upper, panels.order)
        # What is left of the density where that of all states together is divided out.
        factor = panels.values.reshape(-1) / prior.prob(points)
        at, D, broad = *transition.nodes.densities(points), np.exp(transition.broad.log_prob(points))
        E = _matrix(at, D, broad, len(transition.nodes))
        box = np.repeat(np.arange(len(panels.lower)), len(points) // len(panels.lower))
        gathered = sp.coo_array((factor * w, (box, np.arange(len(points)))), (len(panels.lower), len(points))).tocsr()
        masses = (rows @ (gathered @ E).T).toarray()
        # The largest of logarithms with Gumbel noise is drawn by the weights.
        with np.errstate(divide="ignore"):
            chosen = np.argmax(np.log(np.maximum(masses, 0.0)) + generator.gumbel(size=masses.shape), axis=1)
        each = len(points) // len(panels.lower)
        own = chosen[:, None] * each + np.arange(each)
        values = np.empty(own.shape)
        wide = max(1, _BLOCK // max(rows.shape[1], each * D.shape[1]))
        for part in (slice(i, i + wide) for i in range(0, len(x), wide)):
            held, q = rows[part].toarray(), own[part]
            near = np.einsum("nqk,nqk->nq", held[np.arange(len(held))[:, None, None], at[q]], D[q])
            values[part] = factor[q] * (near + held[:, -1:] * broad[q])
        values = values.reshape(len(x), *panels.values.shape[1:])
        return drawn_within(generator, panels.lower[chosen], panels.upper[chosen], values)


def _matrix(at: np.ndarray, D: np.ndarray, broad: np.ndarray, n: int) -> sp.csr_array:
    """E_j at points, shape (q, n + 1)."""
    columns = np.concatenate([at, np.full((len(at), 1), n)], axis=1).reshape(-1)
    rows = np.repeat(np.arange(len(at)), at.shape[1] + 1)
    data = np.concatenate([D, broad[:, None]], axis=1).reshape(-1)
    return sp.coo_array((data, (rows, columns)), (len(at), n + 1)).tocsr()


@dataclass(frozen=True)
class Read:
    """One reading, as a start enters under it."""

    reader: LatticeReader
    observation: Any

    def enter(self, belief: Any) -> Met:
        """Of mass one; the evidence is its scale."""
        given = self.reader.given(self.observation)
        if given is None:
            return self.reader.transition.enter(belief)
        if isinstance(belief, LatticeBelief) and belief.nodes == self.reader.transition.nodes:
            found = weigher(belief.nodes, belief, given)
            if found.error > 0:
                self.reader.reached.append(found.error)
                report(found.error, belief.dim)
            P, log_scale = found.seen(), found.log_scale
            mass = np.sum(P)
            require_possible(np.log(mass) if mass > 0 else np.array(-np.inf))
            return Met(P / mass, np.asarray(np.log(mass) + log_scale))
        after, log_evidence = self.reader._after(belief, given, None)
        return Met(after.seen(), log_evidence)  # type: ignore[attr-defined]

    def log_prob(self, state: Any) -> Any:
        """Of the reading at a known state."""
        given = self.reader.given(self.observation)
        return np.zeros(()) if given is None else np.asarray(given.log(np.asarray(state)[None])[0])
