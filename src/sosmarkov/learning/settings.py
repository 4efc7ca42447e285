"""What `fit` was asked for, with sensible values for what was left open."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sosmarkov.core import checks
from sosmarkov.core.checks import one_of
from sosmarkov.data.dataset import Dataset
from sosmarkov.factor.bases import FAMILIES, Basis
from sosmarkov.factor.couplings import COUPLINGS, Features
from sosmarkov.learning.factor.inputs import settle_features

OBJECTIVES = ("transitions", "beliefs", "barrier")
# Trajectories longer than this are learned by their transitions, and by their beliefs up to here.
_LONGEST = 50
# Up to so many coordinates a laptop trains a process in a minute or two.
_FEW = 4
# Steps ahead that beliefs are trained for where pairs do not say how long trajectories are.
_AHEAD = 10


class Settings(NamedTuple):
    """Everything that steers training, complete and checked; the fields are those of `fit`."""

    basis: str | Basis
    coupling: str
    size: int
    rank: int
    objective: str
    transition_weight: float
    horizon: int
    surrogate: bool | None
    steps: int
    batch_size: int
    learning_rate: float
    validation: float
    patience: int
    background: float
    seed: int
    members: int
    features: str | Features | int | None = None

    @property
    def phase_steps(self) -> int:
        """Most steps of one phase: half where there are transitions and beliefs to train."""
        return max(1, self.steps // 2) if self.objective == "beliefs" else self.steps

    @property
    def initial_steps(self) -> int:
        """Most steps on p_0 alone: fewer where the beliefs train it further."""
        return min(self.phase_steps, 200 if self.objective == "beliefs" else 500)

    @property
    def chosen(self) -> dict[str, Any]:
        """What a reader of the history wants to know."""
        names = ["basis", "coupling", "size", "objective", "steps", "background", "seed"]
        names += ["rank"] if COUPLINGS[self.coupling].ranked else []
        names += ["transition_weight", "horizon"] if self.objective == "beliefs" else []
        names += ["members"] if self.members > 1 else []
        names += ["features"] if self.features is not None else []
        chosen = {name: getattr(self, name) for name in names}
        return chosen if isinstance(self.basis, str) else chosen | {"basis": f"{self.basis.family}, as given"}


def settle(data: Dataset, given: dict[str, Any]) -> Settings:
    """Choose what is None from dimension and data, and refuse what makes no sense."""
    whole = data.whole
    basis, coupling = given["basis"], given["coupling"]
    if basis is None:
        basis = "beta" if given["transform"] == "gaussian_cdf" else "gaussian" if data.dim == 1 else "gaussian-full"
    one_of(coupling, COUPLINGS, "coupling")
    if isinstance(basis, Basis):
        size = _given_size(basis, data, given["size"])
    else:
        one_of(basis, FAMILIES, "basis")
        size = given["size"] if given["size"] is not None else _size(data, basis, coupling, given["sensor_size"])
    size = checks.count(size, "size", least=1)
    # Under inputs there is a K for each feature: the rank need not be as high.
    usual = max(2, size // (2 if data.pairs.u is None else 4))
    rank = checks.count(usual if given["rank"] is None else given["rank"], "rank", least=1)
    objective, weight = _objective(given["objective"])
    horizon = given["horizon"]
    if horizon is None:
        horizon = min(data.horizon, _LONGEST) if whole else _AHEAD
    horizon = checks.count(horizon, "horizon", least=1)
    if whole and horizon > data.horizon:
        raise ValueError(f"Expected a horizon of at most {data.horizon}, the longest trajectory's, got {horizon}.")
    surrogate, features = given["surrogate"], settle_features(data, given["features"], given["period"], coupling)
    if isinstance(features, int) and surrogate:
        raise ValueError("Expected surrogate None or False with a period: there is none for times, got True.")
    if objective == "barrier" and coupling != "paired":
        raise ValueError(f"Expected coupling 'paired' for objective 'barrier' (the paper's), got {coupling!r}.")
    if objective == "beliefs" and not whole and surrogate is False:
        raise ValueError(
            "Expected trajectories for objective 'beliefs' without a surrogate, got pairs. Use 'transitions', or let"
            " surrogate be None."
        )
    return Settings(
        basis, coupling, size, rank, objective, weight, horizon, surrogate,
        steps=checks.count(_steps(data) if given["steps"] is None else given["steps"], "steps", least=1),
        batch_size=checks.count(given["batch_size"], "batch_size", least=1),
        learning_rate=_between(given["learning_rate"], "learning_rate", 0.0, np.inf),
        validation=_between(given["validation"], "validation", 0.0, 1.0),
        patience=checks.count(given["patience"], "patience", least=1),
        # The paper's training has no background, and a basis someone made is left as it is.
        background=0.0 if objective == "barrier" or isinstance(basis, Basis) else _background(given["background"]),
        seed=checks.count(given["seed"], "seed"),
        members=checks.count(given["members"], "members", least=1),
        features=features,
    )  # fmt: skip


def _size(data: Dataset, basis: str, coupling: str, sensor_size: int | None) -> int:
    """As many functions as the data can carry: about forty pairs each, and no more than ever helped."""
    most = COUPLINGS[coupling].most or FAMILIES[basis].most(data.dim, len(data.pairs.x))
    # Kernels are made for every trajectory and step.
    most = most if data.pairs.u is None and sensor_size is None else min(most, 20)
    return int(np.clip(len(data.pairs.x) // 40, 4, most))


def _given_size(basis: Basis, data: Dataset, size: int | None) -> int:
    if basis.dim != data.dim:
        raise ValueError(f"Expected a basis of {data.dim} coordinates, like the data, got one of {basis.dim}.")
    if size not in (None, basis.size):
        raise ValueError(f"Expected no size beside a basis, or its own, {basis.size}, got {size}.")
    return basis.size


def _steps(data: Dataset) -> int:
    return 2000 if data.dim <= _FEW else 4000


def _objective(objective: str | float | None) -> tuple[str, float]:
    if objective is None:
        return "beliefs", 0.0
    if isinstance(objective, (int, float)) and not isinstance(objective, bool):
        if not 0 <= objective < np.inf:
            raise ValueError(f"Expected a finite weight >= 0 as objective, got {objective}.")
        return "beliefs", float(objective)
    return one_of(objective, OBJECTIVES, "objective (or a weight >= 0)"), 0.0


def _background(share: float) -> float:
    if not 0 <= share < 1:
        raise ValueError(f"Expected background as a share from 0 to below 1, got {share}.")
    return float(share)


def _between(value: float, name: str, low: float, high: float) -> float:
    if not low < value < high:
        raise ValueError(f"Expected {name} between {low} and {high}, got {value}.")
    return float(value)
