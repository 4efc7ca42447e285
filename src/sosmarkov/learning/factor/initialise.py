"""Where training starts: what `fit` was asked for, with mixtures fitted to the data, handed to family and coupling."""

from __future__ import annotations

import numpy as np
from jax import Array

from sosmarkov.core.checks import one_of
from sosmarkov.factor.bases import FAMILIES, Basis
from sosmarkov.factor.bases.family import SPACES
from sosmarkov.factor.couplings import COUPLINGS, Coupling, Driven, Features
from sosmarkov.factor.starts import START_OF_ORDER, Wanted
from sosmarkov.learning.factor.mixtures import fit_halves, fit_mixture
from sosmarkov.learning.options import made


def model_space(basis: str | Basis) -> str:
    """The kind of transform a family of functions, or a basis, needs; see `Family.space`."""
    own = made(basis, Basis)
    if own is None:
        return FAMILIES[one_of(basis, FAMILIES, "basis")].space
    if np.all(np.isinf(own.lower)) and np.all(np.isinf(own.upper)):
        return "standardize"
    if np.all(own.lower == 0) and np.all(own.upper == 1):
        return "gaussian_cdf"
    raise ValueError(
        f"Expected a transform with a basis that lives neither on {' nor on '.join(SPACES.values())}, got none for one"
        f" from {own.lower} to {own.upper}. Give a transform to there."
    )


def wanted_start(
    basis: str | Basis, coupling: str, size: int, *, rank: int = 1, background: float = 0.0, seed: int = 0
) -> Wanted:
    """A start of this kind, or a ValueError where the coupling cannot join such functions."""
    asked = COUPLINGS[one_of(coupling, COUPLINGS, "coupling")]
    given = made(basis, Basis)
    family = FAMILIES[one_of(basis, FAMILIES, "basis")] if given is None else None
    functions = given if family is None else family.basis
    if asked.nonnegative and functions is not None and not functions.nonnegative:
        others = "' or '".join(one.name for one in COUPLINGS.values() if not one.nonnegative)
        raise ValueError(
            f"Expected a non-negative family for coupling '{coupling}', got {functions.family}, which takes both signs."
            f" Use coupling '{others}'."
        )
    return Wanted(family, given, size, rank, background, seed, fit_mixture, fit_halves)


def start_transition(
    y: np.ndarray,
    y_next: np.ndarray,
    wanted: Wanted,
    coupling: str = "kraus",
    features: Features | None = None,
    u: np.ndarray | None = None,
) -> tuple[Basis, Basis, Coupling | Driven]:
    """Bases phi and psi and the coupling to begin with, from pairs in model space.

    Args:
        y: States, shape (N, d), in the space `model_space` names.
        y_next: Their successors, shape (N, d).
        wanted: What of.
        coupling: By name.
        features: How inputs act, where there are any.
        u: The input of each pair, shape (N, e).
    """
    if features is not None and u is not None:
        return Driven.start(wanted, y, y_next, features, u)
    return COUPLINGS[coupling].start(wanted, y, y_next)


def start_initial(y: np.ndarray, wanted: Wanted, coupling: str = "kraus") -> tuple[Basis, Array]:
    """`Parameters.start_basis` and `start_factor`, from a mixture fitted to initial states of shape (N0, d)."""
    # The broad function has no part in what is trained.
    wanted = wanted._replace(size=max(1, min(wanted.size, len(y) // 20)), background=0.0)
    return START_OF_ORDER[COUPLINGS[coupling].order](wanted, y)
