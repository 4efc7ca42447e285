"""Couplings f(x, x') >= 0, each normalised exactly: int g(x') f(x, x') dx' = g(x).

`COUPLINGS` is the only list of those that can be asked for by name.
"""

from sosmarkov.factor.couplings.base import Coupling, Kernel
from sosmarkov.factor.couplings.driven import Driven
from sosmarkov.factor.couplings.features import Bumps, Features, Network, Phases
from sosmarkov.factor.couplings.kraus import Kraus, KrausKernel
from sosmarkov.factor.couplings.linear import Linear, LinearKernel
from sosmarkov.factor.couplings.paired import Paired, PairedKernel

COUPLINGS: dict[str, type[Coupling]] = {coupling.name: coupling for coupling in (Kraus, Paired, Linear)}
