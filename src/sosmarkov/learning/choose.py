"""What `fit` makes of its options: what was left open is chosen from the data, what would change nothing is refused."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from sosmarkov.core import checks
from sosmarkov.data.dataset import Dataset
from sosmarkov.factor.bases import FAMILIES, Basis
from sosmarkov.factor.couplings import COUPLINGS, Features
from sosmarkov.learning.options import Model, Options, Training, made, names

OBJECTIVES = ("transitions", "beliefs", "barrier")
FEATURES = ("bumps", "network")
# Trajectories longer than this are learned by their transitions, and by their beliefs up to here.
_LONGEST = 50
# Up to so many coordinates a laptop trains a process in a minute or two.
_FEW = 4
# Steps ahead that beliefs are trained for where pairs do not say how long trajectories are.
_AHEAD = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Settings(Training, Model):
    """What steers training, with nothing left open; the options not named here are as they were given."""

    basis: str | Basis = "gaussian"
    size: int = 1
    rank: int = 1
    objective: str = "transitions"
    horizon: int = 1
    steps: int = 1
    # Of the transition likelihood beside the beliefs'.
    transition_weight: float = 0.0

    @property
    def phase_steps(self) -> int:
        """Most steps of one phase: half where there are transitions and beliefs to train."""
        return max(1, self.steps // 2) if self.objective == "beliefs" else self.steps

    @property
    def may_roll(self) -> bool:
        """Whether a surrogate may be rolled for more data: not where inputs are times, which a network cannot use."""
        return self.objective == "beliefs" and self.surrogate is not False and self.period is None

    @property
    def initial_steps(self) -> int:
        """Most steps on p_0 alone: fewer where the beliefs train it further."""
        return min(self.phase_steps, 200 if self.objective == "beliefs" else 500)

    @property
    def chosen(self) -> dict[str, Any]:
        """What a reader of the history wants to know."""
        told = ["basis", "coupling", "size", "objective", "steps", "background", "seed"]
        told += ["rank"] if COUPLINGS[self.coupling].ranked else []
        told += ["transition_weight", "horizon"] if self.objective == "beliefs" else []
        told += ["members"] if self.members > 1 else []
        chosen = self.picked(*told)
        features = self.features if self.period is None else self.period
        chosen |= {} if features is None else {"features": features}
        basis = made(self.basis, Basis)
        return chosen if basis is None else chosen | {"basis": f"{basis.family}, as given"}


def choose(given: Options, data: Dataset) -> Settings:
    """The options with nothing left open, from dimension and data."""
    objective, weight = _objective(given.objective)
    checks.one_of(given.coupling, COUPLINGS, "coupling")
    basis, size = _basis(given, data)
    # Under inputs there is a K for each feature: the rank need not be as high.
    usual = max(2, size // (2 if data.pairs.u is None else 4))
    bare = objective == "barrier" or made(basis, Basis) is not None
    _refuse_ignored(given, objective, bare, data.whole)
    return Settings(
        **given.picked(*names(Training, Model))
        | {
            "basis": basis,
            "size": size,
            "rank": usual if given.rank is None else given.rank,
            "objective": objective,
            "transition_weight": weight,
            "horizon": _horizon(given.horizon, data),
            "steps": given.steps or (2000 if data.dim <= _FEW else 4000),
            # The paper's training has no background, and a basis someone made is left as it is.
            "background": 0.0 if bare else given.background,
            "features": _features(given, data),
        }
    )


def refuse_without(given: Options, present: dict[str, bool]) -> None:
    """Refuse options of something that was not given; `present` says what was."""
    for each in dataclasses.fields(given):
        needs = each.metadata.get("needs")
        if needs is not None and getattr(given, each.name) is not None and not present[needs]:
            raise ValueError(
                f"Expected {needs} with {each.name}, got none: it would change nothing. Give {needs}, or leave"
                f" {each.name} out."
            )


def refuse_streamed(given: Options) -> None:
    """Refuse options that blocks of a stream bring nothing for."""
    for name in ("weights", "inputs", "period", "observations", "surrogate"):
        value = getattr(given, name)
        if value is not None and value is not False:
            raise ValueError(
                f"Expected no {name} with trajectories so many that they are streamed, got some. Leave it out, or give"
                " an array of fewer."
            )


def _refuse_ignored(given: Options, objective: str, bare: bool, whole: bool) -> None:
    """Refuse options that this coupling, objective or kind of data has no use for."""
    ignored = [
        ("rank", given.rank is not None and not COUPLINGS[given.coupling].ranked, "with a coupling that has one"),
        ("background", bare and given.background not in (0.0, Options.background), "with a family's name as basis, and"
         " without objective 'barrier': otherwise there is none"),
        ("surrogate=True", bool(given.surrogate) and objective != "beliefs", "with objective 'beliefs', whose"
         " trajectories it makes"),
        ("horizon", given.horizon is not None and not whole and objective != "beliefs", "with trajectories, or with"
         " objective 'beliefs'"),
    ]  # fmt: skip
    for name, bad, where in ignored:
        if bad:
            raise ValueError(f"Expected {name} only {where}; here it would change nothing. Leave it out.")
    if objective == "barrier" and given.coupling != "paired":
        raise ValueError(f"Expected coupling 'paired' for objective 'barrier' (the paper's), got {given.coupling!r}.")
    if objective == "beliefs" and not whole and given.surrogate is False:
        raise ValueError(
            "Expected trajectories for objective 'beliefs' without a surrogate, got pairs. Use 'transitions', or let"
            " surrogate be None."
        )


def _horizon(asked: int | None, data: Dataset) -> int:
    if not data.whole:
        return asked or _AHEAD
    if asked is not None and asked > data.horizon:
        raise ValueError(f"Expected a horizon of at most {data.horizon}, the longest trajectory's, got {asked}.")
    return asked or min(data.horizon, _LONGEST)


def _basis(given: Options, data: Dataset) -> tuple[str | Basis, int]:
    """The family, or the basis that was given, and how many functions it has."""
    basis, own = given.basis, made(given.basis, Basis)
    if own is not None:
        if own.dim != data.dim:
            raise ValueError(f"Expected a basis of {data.dim} coordinates, like the data, got one of {own.dim}.")
        if given.size not in (None, own.size):
            raise ValueError(f"Expected no size beside a basis, or its own, {own.size}, got {given.size}.")
        return own, own.size
    if basis is None:
        cdf = given.transform == "gaussian_cdf"
        basis = "beta" if cdf else "gaussian" if data.dim == 1 else "gaussian-full"
    basis = checks.one_of(basis, FAMILIES, "basis")
    return basis, given.size or _size(data, basis, given)


def _size(data: Dataset, basis: str, given: Options) -> int:
    """As many functions as the data can carry: about forty pairs each, and no more than ever helped."""
    most = COUPLINGS[given.coupling].most or FAMILIES[basis].most(data.dim, len(data.pairs.x))
    # Kernels are made for every trajectory and step.
    most = most if data.pairs.u is None and given.sensor_size is None else min(most, 20)
    return int(np.clip(len(data.pairs.x) // 40, 4, most))


def _objective(objective: str | float | None) -> tuple[str, float]:
    """What is trained, and the weight of the transitions beside the beliefs."""
    if objective is None:
        return "beliefs", 0.0
    if isinstance(objective, (int, float)) and not isinstance(objective, bool):
        if not 0 <= objective < np.inf:
            raise ValueError(f"Expected a finite weight >= 0 as objective, got {objective}.")
        return "beliefs", float(objective)
    return checks.one_of(objective, OBJECTIVES, "objective (or a weight >= 0)"), 0.0


def _features(given: Options, data: Dataset) -> str | Features | None:
    """A kind, or the features themselves, checked; None without inputs, and with a period."""
    if given.period is not None:
        if data.pairs.u is None:
            raise ValueError("Expected times as inputs with a period and pairs, or trajectories, got none.")
        if given.features is not None:
            raise ValueError("Expected features or a period, got both. Give the phase as one of the inputs instead.")
        if data.pairs.u.shape[1] != 1 or np.any(data.pairs.u != np.round(data.pairs.u)):
            raise ValueError("Expected times as inputs of a process with a period, one whole number each, got others.")
    if data.pairs.u is None:
        return None
    if not COUPLINGS[given.coupling].takes_inputs:
        able = "' or '".join(one.name for one in COUPLINGS.values() if one.takes_inputs)
        raise ValueError(f"Expected coupling '{able}' with inputs or a period, got {given.coupling!r}.")
    if given.period is not None:
        if given.surrogate:
            raise ValueError("Expected surrogate None or False with a period: there is none for times, got True.")
        return None
    own, dim = made(given.features, Features), data.pairs.u.shape[1]
    if own is not None and own.dim != dim:
        raise ValueError(f"Expected features of {dim} inputs, like the data, got {own.dim}.")
    return own or checks.one_of(given.features or "bumps", FEATURES, "features (or an object)")
