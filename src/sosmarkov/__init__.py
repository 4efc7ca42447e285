"""Learned Markov processes whose beliefs propagate exactly.

Importing this package switches JAX's 64-bit mode on (see `sosmarkov._precision`). Names are loaded
when first used, so that the command line answers `--help` without loading JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sosmarkov import _precision

_precision.switch_on()

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sosmarkov.adapters.episodes import episodes
    from sosmarkov.bases import (
        Basis,
        BetaBasis,
        ExponentialBasis,
        FourierBasis,
        FullGaussianBasis,
        GaussianBasis,
        MonomialBasis,
    )
    from sosmarkov.belief import Belief, Estimate, EstimateWarning, KnownState, MixtureBelief
    from sosmarkov.couplings import Bumps, Driven, Kraus, Linear, Network, Paired, Phases
    from sosmarkov.diagnostics import CheckReport
    from sosmarkov.driven import DrivenTransition
    from sosmarkov.emission import LearnedSensor
    from sosmarkov.ensemble import Ensemble
    from sosmarkov.estimator import MarkovEstimator
    from sosmarkov.forms import LinearForm, PlainConditional, SquaredForm
    from sosmarkov.inference.filter import FilterResult
    from sosmarkov.inference.propagate import Beliefs, BeliefSequence
    from sosmarkov.inference.smooth import SmoothResult
    from sosmarkov.inference.trajectories import ChapmanKolmogorov
    from sosmarkov.io.model import load, save
    from sosmarkov.learning.fit import fit
    from sosmarkov.learning.history import History
    from sosmarkov.learning.loop import TrainingError
    from sosmarkov.learning.stream import open_trajectories
    from sosmarkov.learning.tune import Tuned, tune
    from sosmarkov.network.belief import NetworkBelief
    from sosmarkov.network.conditional import Conditional
    from sosmarkov.network.fit import fit_network
    from sosmarkov.network.network import BayesianNetwork, NetworkReport
    from sosmarkov.plots import (
        plot_belief,
        plot_calibration,
        plot_fan,
        plot_marginals_over_time,
        plot_stationary,
        plot_training,
    )
    from sosmarkov.process import MarkovProcess
    from sosmarkov.sensors import FactorSensor, GaussianSensor, IntervalSensor, LinearSensor, MixtureSensor, Sensor
    from sosmarkov.transforms import Affine, Chain, GaussianCDF, Identity, Standardize, Transform
    from sosmarkov.transition import NormalisationWarning, Transition

_ROOMS = {
    "adapters.episodes": ("episodes",),
    "bases": (
        "Basis",
        "BetaBasis",
        "ExponentialBasis",
        "FourierBasis",
        "FullGaussianBasis",
        "GaussianBasis",
        "MonomialBasis",
    ),
    "belief": ("Belief", "Estimate", "EstimateWarning", "KnownState", "MixtureBelief"),
    "couplings": ("Bumps", "Driven", "Kraus", "Linear", "Network", "Paired", "Phases"),
    "diagnostics": ("CheckReport",),
    "driven": ("DrivenTransition",),
    "emission": ("LearnedSensor",),
    "ensemble": ("Ensemble",),
    "estimator": ("MarkovEstimator",),
    "forms": ("LinearForm", "PlainConditional", "SquaredForm"),
    "io.model": ("load", "save"),
    "learning.fit": ("fit",),
    "learning.history": ("History",),
    "learning.loop": ("TrainingError",),
    "learning.stream": ("open_trajectories",),
    "learning.tune": ("Tuned", "tune"),
    "inference.filter": ("FilterResult",),
    "inference.propagate": ("BeliefSequence", "Beliefs"),
    "inference.smooth": ("SmoothResult",),
    "inference.trajectories": ("ChapmanKolmogorov",),
    "network.belief": ("NetworkBelief",),
    "network.conditional": ("Conditional",),
    "network.fit": ("fit_network",),
    "network.network": ("BayesianNetwork", "NetworkReport"),
    "plots": (
        "plot_belief",
        "plot_calibration",
        "plot_fan",
        "plot_marginals_over_time",
        "plot_stationary",
        "plot_training",
    ),
    "process": ("MarkovProcess",),
    "sensors": ("FactorSensor", "GaussianSensor", "IntervalSensor", "LinearSensor", "MixtureSensor", "Sensor"),
    "transforms": ("Affine", "Chain", "GaussianCDF", "Identity", "Standardize", "Transform"),
    "transition": ("NormalisationWarning", "Transition"),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = sorted([*_HOME, "__version__"])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Load a public name from its room."""
    if name not in _HOME:
        raise AttributeError(f"module 'sosmarkov' has no attribute {name!r}")
    value = getattr(import_module(f"sosmarkov.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
