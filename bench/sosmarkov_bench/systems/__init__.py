"""The benchmark systems by name."""

from sosmarkov_bench.systems.base import AdditiveNoise, Dynamics, Gaussian, System, Wide
from sosmarkov_bench.systems.cart_pole import CART_POLE, CART_POLE_WIDE
from sosmarkov_bench.systems.dubins import DUBINS, DUBINS_FULL
from sosmarkov_bench.systems.quadcopter import QUADCOPTER
from sosmarkov_bench.systems.quadrotor import QUADROTOR
from sosmarkov_bench.systems.van_der_pol import VAN_DER_POL, VAN_DER_POL_WIDE, blown_up

__all__ = ["SYSTEMS", "AdditiveNoise", "Dynamics", "Gaussian", "System", "Wide", "blown_up", "get_system"]

SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        VAN_DER_POL,
        CART_POLE,
        QUADROTOR,
        DUBINS,
        DUBINS_FULL,
        QUADCOPTER,
        VAN_DER_POL_WIDE,
        CART_POLE_WIDE,
    )
}


def get_system(name: str) -> System:
    """The system of that name."""
    if name not in SYSTEMS:
        raise ValueError(f"Expected a system among {', '.join(sorted(SYSTEMS))}, got {name!r}.")
    return SYSTEMS[name]
