"""Beliefs: probability densities over states, and the questions they answer."""

from sosmarkov.belief.base import Belief, Estimate, EstimateWarning
from sosmarkov.belief.known import KnownState
from sosmarkov.belief.mixture import MixtureBelief
from sosmarkov.belief.product import DensityBelief, MarginalBelief, ProductBelief, initial_belief, normalised

__all__ = [
    "Belief",
    "DensityBelief",
    "Estimate",
    "EstimateWarning",
    "KnownState",
    "MarginalBelief",
    "MixtureBelief",
    "ProductBelief",
    "initial_belief",
    "normalised",
]
