"""Learned Markov processes whose beliefs propagate exactly.

Importing this package switches JAX's 64-bit mode on (see `sosmarkov.core.precision`). Names are loaded
when first used, so that the command line answers `--help` without loading JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sosmarkov.core import precision as _precision

_precision.switch_on()

__version__ = "0.1.0"

# `as`: to type checkers the names are public.
if TYPE_CHECKING:
    from sosmarkov.adapters.episodes import episodes as episodes
    from sosmarkov.contracts.belief import Belief as Belief
    from sosmarkov.contracts.belief import Estimate as Estimate
    from sosmarkov.contracts.belief import EstimateWarning as EstimateWarning
    from sosmarkov.contracts.check import CheckReport as CheckReport
    from sosmarkov.contracts.known import KnownState as KnownState
    from sosmarkov.contracts.mixture import MixtureBelief as MixtureBelief
    from sosmarkov.core.saving import save as save
    from sosmarkov.data.history import History as History
    from sosmarkov.data.stream import open_trajectories as open_trajectories
    from sosmarkov.estimator import MarkovEstimator as MarkovEstimator
    from sosmarkov.factor.bases import Basis as Basis
    from sosmarkov.factor.bases import BetaBasis as BetaBasis
    from sosmarkov.factor.bases import ExponentialBasis as ExponentialBasis
    from sosmarkov.factor.bases import Family as Family
    from sosmarkov.factor.bases import FourierBasis as FourierBasis
    from sosmarkov.factor.bases import FullGaussianBasis as FullGaussianBasis
    from sosmarkov.factor.bases import GaussianBasis as GaussianBasis
    from sosmarkov.factor.bases import MonomialBasis as MonomialBasis
    from sosmarkov.factor.couplings import Bumps as Bumps
    from sosmarkov.factor.couplings import Coupling as Coupling
    from sosmarkov.factor.couplings import Driven as Driven
    from sosmarkov.factor.couplings import Features as Features
    from sosmarkov.factor.couplings import Kraus as Kraus
    from sosmarkov.factor.couplings import Linear as Linear
    from sosmarkov.factor.couplings import Network as Network
    from sosmarkov.factor.couplings import Paired as Paired
    from sosmarkov.factor.couplings import Phases as Phases
    from sosmarkov.factor.driven import DrivenTransition as DrivenTransition
    from sosmarkov.factor.forms import LinearForm as LinearForm
    from sosmarkov.factor.forms import SquaredForm as SquaredForm
    from sosmarkov.factor.plain import PlainConditional as PlainConditional
    from sosmarkov.factor.register import register as register
    from sosmarkov.factor.transition import NormalisationWarning as NormalisationWarning
    from sosmarkov.factor.transition import Transition as Transition
    from sosmarkov.gaussian.beliefs import GaussianBelief as GaussianBelief
    from sosmarkov.gaussian.transition import GaussianTransition as GaussianTransition
    from sosmarkov.inference.beliefs import Beliefs as Beliefs
    from sosmarkov.inference.beliefs import BeliefSequence as BeliefSequence
    from sosmarkov.inference.filter import FilterResult as FilterResult
    from sosmarkov.inference.smooth import SmoothResult as SmoothResult
    from sosmarkov.inference.trajectories import ChapmanKolmogorov as ChapmanKolmogorov
    from sosmarkov.io.model import load as load
    from sosmarkov.learning.dynamics import from_dynamics as from_dynamics
    from sosmarkov.learning.fit import fit as fit
    from sosmarkov.learning.lattice.fit import LatticeWarning as LatticeWarning
    from sosmarkov.learning.loop import TrainingError as TrainingError
    from sosmarkov.learning.tune import Tuned as Tuned
    from sosmarkov.learning.tune import tune as tune
    from sosmarkov.networks.belief import NetworkBelief as NetworkBelief
    from sosmarkov.networks.conditional import Conditional as Conditional
    from sosmarkov.networks.fit import fit_network as fit_network
    from sosmarkov.networks.network import BayesianNetwork as BayesianNetwork
    from sosmarkov.networks.network import NetworkReport as NetworkReport
    from sosmarkov.plots import plot_belief as plot_belief
    from sosmarkov.plots import plot_calibration as plot_calibration
    from sosmarkov.plots import plot_fan as plot_fan
    from sosmarkov.plots import plot_marginals_over_time as plot_marginals_over_time
    from sosmarkov.plots import plot_stationary as plot_stationary
    from sosmarkov.plots import plot_training as plot_training
    from sosmarkov.process.ensemble import Ensemble as Ensemble
    from sosmarkov.process.process import MarkovProcess as MarkovProcess
    from sosmarkov.sensors import FactorSensor as FactorSensor
    from sosmarkov.sensors import FunctionSensor as FunctionSensor
    from sosmarkov.sensors import GaussianSensor as GaussianSensor
    from sosmarkov.sensors import IntervalSensor as IntervalSensor
    from sosmarkov.sensors import LearnedSensor as LearnedSensor
    from sosmarkov.sensors import LinearSensor as LinearSensor
    from sosmarkov.sensors import MixtureSensor as MixtureSensor
    from sosmarkov.sensors import Sensor as Sensor
    from sosmarkov.spaces.transforms import Affine as Affine
    from sosmarkov.spaces.transforms import Chain as Chain
    from sosmarkov.spaces.transforms import GaussianCDF as GaussianCDF
    from sosmarkov.spaces.transforms import Identity as Identity
    from sosmarkov.spaces.transforms import Standardize as Standardize
    from sosmarkov.spaces.transforms import Transform as Transform

# Where each public name lives.
_ROOMS = {
    "adapters.episodes": "episodes",
    "contracts.belief": "Belief Estimate EstimateWarning",
    "contracts.check": "CheckReport",
    "contracts.known": "KnownState",
    "contracts.mixture": "MixtureBelief",
    "core.saving": "save",
    "data.history": "History",
    "data.stream": "open_trajectories",
    "estimator": "MarkovEstimator",
    "factor.bases": "Basis BetaBasis ExponentialBasis Family FourierBasis FullGaussianBasis GaussianBasis"
    " MonomialBasis",
    "factor.couplings": "Bumps Coupling Driven Features Kraus Linear Network Paired Phases",
    "factor.driven": "DrivenTransition",
    "factor.forms": "LinearForm SquaredForm",
    "factor.plain": "PlainConditional",
    "factor.register": "register",
    "factor.transition": "NormalisationWarning Transition",
    "gaussian.beliefs": "GaussianBelief",
    "gaussian.transition": "GaussianTransition",
    "inference.beliefs": "BeliefSequence Beliefs",
    "inference.filter": "FilterResult",
    "inference.smooth": "SmoothResult",
    "inference.trajectories": "ChapmanKolmogorov",
    "io.model": "load",
    "learning.dynamics": "from_dynamics",
    "learning.fit": "fit",
    "learning.lattice.fit": "LatticeWarning",
    "learning.loop": "TrainingError",
    "learning.tune": "Tuned tune",
    "networks.belief": "NetworkBelief",
    "networks.conditional": "Conditional",
    "networks.fit": "fit_network",
    "networks.network": "BayesianNetwork NetworkReport",
    "plots": "plot_belief plot_calibration plot_fan plot_marginals_over_time plot_stationary plot_training",
    "process.ensemble": "Ensemble",
    "process.process": "MarkovProcess",
    "sensors": "FactorSensor FunctionSensor GaussianSensor IntervalSensor LearnedSensor LinearSensor MixtureSensor"
    " Sensor",
    "spaces.transforms": "Affine Chain GaussianCDF Identity Standardize Transform",
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names.split()}

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
