"""The options of `fit` and of all that trains: one list of their names, types, defaults and checks.

Everything else that speaks of options reads `dataclasses.fields` of these records: the signatures that `fit` shows and
that type checkers see, the command line, the estimator, `tune`, fingerprints of checkpoints. A new option is a field
here and the code that uses it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, TypeVar

import numpy as np

from sosmarkov.core import checks
from sosmarkov.core.checks import ArrayLike
from sosmarkov.factor.bases import Basis
from sosmarkov.factor.couplings import Features
from sosmarkov.sensors import Sensor
from sosmarkov.spaces.transforms import Transform

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

TRANSFORMS = ("standardize", "whiten", "gaussian_cdf")


def about(line: str, check: Callable[[Any, str], Any] | None = None, needs: str | None = None) -> dict[str, Any]:
    """What a field says of itself: one line, what its value has to be, and what it is an option of."""
    return {"help": line, "check": check, "needs": needs}


def _between(low: float, high: float) -> Callable[[Any, str], float]:
    def check(value: Any, name: str) -> float:
        if not low < value < high:
            raise ValueError(f"Expected {name} between {low} and {high}, got {value}.")
        return float(value)

    return check


def _share(value: Any, name: str) -> float:
    if not 0 <= value < 1:
        raise ValueError(f"Expected {name} as a share from 0 to below 1, got {value}.")
    return float(value)


def made(value: Any, kind: type[T]) -> T | None:
    """What was given where a name or None may stand too: the thing itself, or None."""
    return value if isinstance(value, kind) else None


def _transform(value: Any, name: str) -> Any:
    return made(value, Transform) or checks.one_of(value, TRANSFORMS, f"{name} (or a transform)")


_positive = _between(0.0, np.inf)
natural, _counted = partial(checks.count, least=1), partial(checks.count, least=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Checked:
    """Every value is looked at as it comes; None stands for open where it is the default."""

    def __post_init__(self):
        for each in dataclasses.fields(self):
            check, value = each.metadata.get("check"), getattr(self, each.name)
            if check is not None and not (value is None and each.default is None):
                object.__setattr__(self, each.name, check(value, each.name))

    def picked(self, *names: str) -> dict[str, Any]:
        """Some of the options, by name."""
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True, eq=False)
class Given(_Checked):
    """What the data are."""

    trajectories: ArrayLike | None = field(
        default=None, kw_only=False, metadata=about("Array (N, T, d), a list of (T_i, d), a frame, or a file's")
    )
    transitions: tuple[ArrayLike, ArrayLike] | None = field(default=None, metadata=about("Pairs (x, x_next)"))
    initial: ArrayLike | None = field(default=None, metadata=about("Initial states", needs="transitions"))
    weights: ArrayLike | None = field(default=None, metadata=about("One for each trajectory, or pair"))
    inputs: ArrayLike | Sequence[ArrayLike] | None = field(default=None, metadata=about("One for each step"))
    observations: ArrayLike | Sequence[ArrayLike] | None = field(
        default=None, metadata=about("What was read of states")
    )
    trajectory: str | None = field(
        default=None, metadata=about("Column that tells trajectories apart", needs="a data frame")
    )
    time: str | None = field(default=None, metadata=about("Column to sort by", needs="a data frame"))
    columns: Sequence[str] | None = field(default=None, metadata=about("Names of the coordinates"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Capacity(_Checked):
    """How much can be learned."""

    size: int | None = field(default=None, metadata=about("Functions in each basis", natural))
    rank: int | None = field(default=None, metadata=about("Squares in the sum", natural))
    background: float = field(default=1e-4, metadata=about("Share of a broad background", _share))


@dataclass(frozen=True, kw_only=True, eq=False)
class Model(Capacity):
    """What is learned."""

    form: str | None = field(default=None, metadata=about("Form of the process: lattice, gaussian or factor"))
    circular: Sequence[Any] | Mapping[Any, Any] | None = field(
        default=None, metadata=about("Coordinates that are angles")
    )
    bounds: Mapping[Any, Any] | None = field(default=None, metadata=about("Ends of coordinates that have some"))

    basis: str | Basis | None = field(default=None, metadata=about("Family of the functions, or a basis"))
    coupling: str = field(default="kraus", metadata=about("How functions of x and x' go together"))
    transform: str | Transform | None = field(default=None, metadata=about("From data to model space", _transform))
    features: str | Features | None = field(default=None, metadata=about("How inputs act", needs="inputs"))
    period: int | None = field(default=None, metadata=about("Steps after which the dynamics repeat", natural))
    sensor: str | Sensor | None = field(
        default=None, metadata=about("Kind of sensor to learn, or a known one", needs="observations")
    )
    sensor_size: int | None = field(
        default=None, metadata=about("Functions of a reading", natural, needs="observations")
    )
    dim: int | None = field(
        default=None, metadata=about("Coordinates of a state nobody saw", natural, needs="observations")
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Descent(_Checked):
    """How any loss is brought down."""

    steps: int | None = field(default=None, metadata=about("Most steps in all", natural))
    batch_size: int = field(default=512, metadata=about("Rows a step", natural))
    learning_rate: float = field(default=1e-2, metadata=about("At the start of the schedule", _positive))
    validation: float = field(default=0.1, metadata=about("Share held out to stop early", _between(0.0, 1.0)))
    patience: int = field(default=600, metadata=about("Steps without improvement that end a phase", natural))
    seed: int = field(default=0, metadata=about("For the split, the start and the batches", _counted))


@dataclass(frozen=True, kw_only=True, eq=False)
class Training(Descent):
    """How a process is learned."""

    objective: str | float | None = field(default=None, metadata=about("What likelihood is maximised"))
    horizon: int | None = field(default=None, metadata=about("Steps over which beliefs are trained", natural))
    surrogate: bool | None = field(default=None, metadata=about("Whether to learn from a surrogate"))
    members: int = field(default=1, metadata=about("How many to train at once", natural))


@dataclass(frozen=True, kw_only=True, eq=False)
class Watched(_Checked):
    """What is shown."""

    progress: bool = field(default=True, metadata=about("Show a bar on a terminal"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Run(Watched):
    """What is kept besides the result, and shown; none of it changes what is learned."""

    checkpoint: str | os.PathLike[str] | None = field(default=None, metadata=about("A file for the state of training"))
    resume: str | os.PathLike[str] | None = field(default=None, metadata=about("A checkpoint to go on from"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Options(Run, Training, Model, Given):
    """Everything that `fit` takes."""

    @property
    def known_sensor(self) -> Sensor | None:
        """The sensor, where it is known and not learned."""
        known = made(self.sensor, Sensor)
        return known if known is not None and known.of_state else None


def names(*records: type) -> list[str]:
    """Names of the options in these records, in order."""
    return [each.name for record in records for each in dataclasses.fields(record)]


def kinds(record: type) -> dict[str, tuple[Any, ...]]:
    """The types that each option of a record may have."""
    return {name: typing.get_args(hint) or (hint,) for name, hint in typing.get_type_hints(record).items()}


def takes(record: Callable[P, T]) -> Callable[[Callable[[T], R]], Callable[P, R]]:
    """A function of a record as one of its fields, by name; type checkers and `help` see the record's signature.

    A `TypedDict` to unpack would say the same to type checkers, but they want it written out: a second list.
    """

    def decorate(function: Callable[[T], R]) -> Callable[P, R]:
        signature = inspect.signature(record)

        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            for name in options:
                checks.one_of(name, list(signature.parameters), f"an option of {function.__name__},")
            return function(record(*args, **options))

        answer = inspect.signature(function).return_annotation
        call.__signature__ = signature.replace(return_annotation=answer)  # type: ignore[attr-defined]
        return call

    return decorate
