"""Families of basis functions, closed under products and integrable in closed form."""

from sosmarkov.bases.base import Basis, Terms, require_compatible
from sosmarkov.bases.beta import BetaBasis
from sosmarkov.bases.exponential import ExponentialBasis
from sosmarkov.bases.fourier import FourierBasis
from sosmarkov.bases.gaussian import GaussianBasis
from sosmarkov.bases.gaussian_full import FullGaussianBasis
from sosmarkov.bases.monomial import MonomialBasis

__all__ = [
    "Basis",
    "BetaBasis",
    "ExponentialBasis",
    "FourierBasis",
    "FullGaussianBasis",
    "GaussianBasis",
    "MonomialBasis",
    "Terms",
    "require_compatible",
]
