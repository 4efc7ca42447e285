"""Couplings f(x, x') >= 0, each normalised exactly: int g(x') f(x, x') dx' = g(x)."""

from sosmarkov.couplings.base import Coupling, Kernel
from sosmarkov.couplings.driven import Bumps, Driven, Features, Network, Phases
from sosmarkov.couplings.kraus import Kraus, KrausKernel
from sosmarkov.couplings.linear import Linear, LinearKernel
from sosmarkov.couplings.paired import Paired, PairedKernel

__all__ = [
    "Bumps",
    "Coupling",
    "Driven",
    "Features",
    "Kernel",
    "Kraus",
    "KrausKernel",
    "Linear",
    "LinearKernel",
    "Network",
    "Paired",
    "PairedKernel",
    "Phases",
]
