"""Families of basis functions, closed under products and integrable in closed form."""

from sosmarkov.factor.bases.base import Basis, Terms, require_compatible
from sosmarkov.factor.bases.beta import BetaBasis
from sosmarkov.factor.bases.exponential import ExponentialBasis
from sosmarkov.factor.bases.fourier import FourierBasis
from sosmarkov.factor.bases.gaussian import GaussianBasis
from sosmarkov.factor.bases.gaussian_full import FullGaussianBasis
from sosmarkov.factor.bases.monomial import MonomialBasis

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
