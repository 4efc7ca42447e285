"""One small process of three coordinates, built by hand, with a history and data that have a gap."""

import numpy as np

import sosmarkov as sm
from sosmarkov.data.history import History, PhaseHistory

STEPS = 3


def make_process() -> sm.MarkovProcess:
    rng = np.random.default_rng(2)
    phi, psi = (sm.GaussianBasis(rng.normal(size=(2, 3)), rng.uniform(0.8, 1.3, size=(2, 3))) for _ in range(2))
    held_out = np.array([[2.0], [1.0], [1.2]])
    phase = PhaseHistory(
        "beliefs", np.array([0, 5, 10]), held_out + 0.1, held_out, np.array([5]), 0.1, "steps", ("cpu (cpu)",)
    )
    return sm.MarkovProcess(
        sm.Transition(phi, psi, sm.Kraus(rng.normal(size=(2, 2, 2)))),
        # Known: beliefs of one kind only, half as much to compile.
        [0.2, 0.0, -0.3],
        history=History((phase,), {"size": 2, "objective": "beliefs"}, {"beliefs": -3.5}),
    )


def make_data() -> np.ndarray:
    rng = np.random.default_rng(3)
    data = 0.8 * rng.normal(size=(30, STEPS + 1, 3))
    data[4, 2] = np.nan
    return data
