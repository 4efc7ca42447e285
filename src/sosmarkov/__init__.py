"""Learned Markov processes whose beliefs propagate exactly.

Importing this package switches JAX's 64-bit mode on (see `sosmarkov.core.precision`). Names are loaded
when first used, so that the command line answers `--help` without loading JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sosmarkov.core import precision as _precision

_precision.switch_on()

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sosmarkov.adapters.episodes import episodes
    from sosmarkov.contracts.belief import Belief, Estimate, EstimateWarning
    from sosmarkov.contracts.check import CheckReport
    from sosmarkov.contracts.known import KnownState
    from sosmarkov.contracts.mixture import MixtureBelief
    from sosmarkov.core.saving import save
    from sosmarkov.data.history import History
    from sosmarkov.data.stream import open_trajectories
    from sosmarkov.estimator import MarkovEstimator
    from sosmarkov.factor.bases import (
        Basis,
        BetaBasis,
        ExponentialBasis,
        Family,
        FourierBasis,
        FullGaussianBasis,
        GaussianBasis,
        MonomialBasis,
    )
    from sosmarkov.factor.couplings import Bumps, Coupling, Driven, Features, Kraus, Linear, Network, Paired, Phases
    from sosmarkov.factor.driven import DrivenTransition
    from sosmarkov.factor.forms import LinearForm, SquaredForm
    from sosmarkov.factor.plain import PlainConditional
    from sosmarkov.factor.register import register
    from sosmarkov.factor.transition import NormalisationWarning, Transition
    from sosmarkov.gaussian.beliefs import GaussianBelief
    from sosmarkov.gaussian.transition import GaussianTransition
    from sosmarkov.inference.beliefs import Beliefs, BeliefSequence
    from sosmarkov.inference.filter import FilterResult
    from sosmarkov.inference.smooth import SmoothResult
    from sosmarkov.inference.trajectories import ChapmanKolmogorov
    from sosmarkov.io.model import load
    from sosmarkov.learning.fit import fit
    from sosmarkov.learning.loop import TrainingError
    from sosmarkov.learning.tune import Tuned, tune
    from sosmarkov.networks.belief import NetworkBelief
    from sosmarkov.networks.conditional import Conditional
    from sosmarkov.networks.fit import fit_network
    from sosmarkov.networks.network import BayesianNetwork, NetworkReport
    from sosmarkov.plots import (
        plot_belief,
        plot_calibration,
        plot_fan,
        plot_marginals_over_time,
        plot_stationary,
        plot_training,
    )
    from sosmarkov.process.ensemble import Ensemble
    from sosmarkov.process.process import MarkovProcess
    from sosmarkov.sensors import (
        FactorSensor,
        GaussianSensor,
        IntervalSensor,
        LearnedSensor,
        LinearSensor,
        MixtureSensor,
        Sensor,
    )
    from sosmarkov.spaces.transforms import Affine, Chain, GaussianCDF, Identity, Standardize, Transform

_ROOMS = {
    "adapters.episodes": ("episodes",),
    "factor.bases": (
        "Basis",
        "BetaBasis",
        "ExponentialBasis",
        "Family",
        "FourierBasis",
        "FullGaussianBasis",
        "GaussianBasis",
        "MonomialBasis",
    ),
    "contracts.belief": ("Belief", "Estimate", "EstimateWarning"),
    "contracts.known": ("KnownState",),
    "contracts.mixture": ("MixtureBelief",),
    "factor.couplings": ("Bumps", "Coupling", "Driven", "Features", "Kraus", "Linear", "Network", "Paired", "Phases"),
    "contracts.check": ("CheckReport",),
    "factor.driven": ("DrivenTransition",),
    "process.ensemble": ("Ensemble",),
    "estimator": ("MarkovEstimator",),
    "factor.forms": ("LinearForm", "SquaredForm"),
    "core.saving": ("save",),
    "io.model": ("load",),
    "learning.fit": ("fit",),
    "data.history": ("History",),
    "learning.loop": ("TrainingError",),
    "data.stream": ("open_trajectories",),
    "learning.tune": ("Tuned", "tune"),
    "gaussian.beliefs": ("GaussianBelief",),
    "gaussian.transition": ("GaussianTransition",),
    "inference.filter": ("FilterResult",),
    "inference.beliefs": ("BeliefSequence", "Beliefs"),
    "inference.smooth": ("SmoothResult",),
    "inference.trajectories": ("ChapmanKolmogorov",),
    "networks.belief": ("NetworkBelief",),
    "networks.conditional": ("Conditional",),
    "networks.fit": ("fit_network",),
    "networks.network": ("BayesianNetwork", "NetworkReport"),
    "plots": (
        "plot_belief",
        "plot_calibration",
        "plot_fan",
        "plot_marginals_over_time",
        "plot_stationary",
        "plot_training",
    ),
    "process.process": ("MarkovProcess",),
    "sensors": (
        "FactorSensor",
        "GaussianSensor",
        "IntervalSensor",
        "LearnedSensor",
        "LinearSensor",
        "MixtureSensor",
        "Sensor",
    ),
    "spaces.transforms": ("Affine", "Chain", "GaussianCDF", "Identity", "Standardize", "Transform"),
    "factor.plain": ("PlainConditional",),
    "factor.register": ("register",),
    "factor.transition": ("NormalisationWarning", "Transition"),
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
