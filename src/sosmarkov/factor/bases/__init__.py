"""Families of basis functions, closed under products and integrable in closed form.

`FAMILIES` is the only list of those that can be asked for by name.
"""

from sosmarkov.factor.bases import beta, exponential, fourier, gaussian, gaussian_full, monomial
from sosmarkov.factor.bases.base import Basis, Terms, require_compatible
from sosmarkov.factor.bases.beta import BetaBasis
from sosmarkov.factor.bases.exponential import ExponentialBasis
from sosmarkov.factor.bases.family import Family
from sosmarkov.factor.bases.fourier import FourierBasis
from sosmarkov.factor.bases.gaussian import GaussianBasis
from sosmarkov.factor.bases.gaussian_full import FullGaussianBasis
from sosmarkov.factor.bases.monomial import MonomialBasis

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY for module in (gaussian, gaussian_full, beta, exponential, monomial, fourier)
}
