"""What a model file may hold: an explicit list of classes, their stored fields, and what must be true of them.

A file names classes by the short names below; a name that is not listed is refused, so nothing is ever imported or
called because a file says so. Fields that follow from others (kernels, tables of integrals) are kept as plain arrays
beside them: their structure is derived anew from the constructor, without computing, and their values are the file's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sosmarkov.sensors as sensors
from sosmarkov.contracts.known import KnownState
from sosmarkov.contracts.mixture import MixtureBelief
from sosmarkov.core import checks
from sosmarkov.data.history import History, PhaseHistory
from sosmarkov.factor import bases, couplings
from sosmarkov.factor.bases import require_compatible
from sosmarkov.factor.bases.interval import interval_ends
from sosmarkov.factor.beliefs import ProductBelief
from sosmarkov.factor.couplings.base import require_rank, require_share
from sosmarkov.factor.driven import DrivenTransition
from sosmarkov.factor.forms import LinearForm, SquaredForm
from sosmarkov.factor.transition import Transition
from sosmarkov.networks.conditional import Conditional
from sosmarkov.networks.network import BayesianNetwork
from sosmarkov.process.ensemble import Ensemble
from sosmarkov.process.process import MarkovProcess
from sosmarkov.sensors.joint import LearnedSensor
from sosmarkov.spaces import transforms

Fields = dict[str, Any]


class Entry(NamedTuple):
    """How one class is stored.

    Attributes:
        kind: The class.
        fields: What is stored by name.
        derived: Fields that follow from those, stored as a list of arrays.
        make: The object from its stored fields. Where there are derived ones it is traced, not run, for their
            structure. None: the fields are set as they are.
        check: Refuses an object that its constructor would not have made.
        infinite: Whether numbers may be infinite or NaN.
    """

    kind: type
    fields: tuple[str, ...]
    derived: tuple[str, ...] = ()
    make: Callable[[Fields], Any] | None = None
    check: Callable[[Any], Any] | None = None
    infinite: bool = False


def require(fulfilled: Any, what: str) -> None:
    """A ValueError saying what was expected of a stored part."""
    if not fulfilled:
        raise ValueError(f"Expected {what}.")


# --- what must be true -----------------------------------------------------------------------------


def _interval(basis: Any) -> None:
    lower, upper = basis.ends
    dim = basis.dim
    require(len(lower) == len(upper) == dim, f"two ends for each of {dim} coordinates")
    interval_ends(lower, upper, dim)
    require(not isinstance(basis, bases.MonomialBasis) or min(lower) >= 0, "monomials on an interval from zero upward")


def _positive(*names: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        for name in names:
            checks.require_positive(getattr(value, name), name)

    return check


def _kraus(coupling: Any) -> None:
    require_share(coupling.background)
    *weights, n, m, rank = coupling.K.shape
    require_rank(n, m, rank)
    if weights:
        require(weights[0] == coupling.features.count, "as many K as features")


def _paired(coupling: couplings.Paired) -> None:
    require_share(coupling.background)
    checks.count(coupling.max_iterations, "max_iterations", 1)


def _form(form: Any) -> None:
    first = form.matrix if isinstance(form, SquaredForm) else form.weights
    require(len(first) == form.basis.size, "as many coefficients as functions in a form")
    if isinstance(form, LinearForm):
        LinearForm(form.basis, form.weights)


def _product(belief: ProductBelief) -> None:
    require_compatible(("g's basis", belief.g.basis), ("h's basis", belief.h.basis))
    require(type(belief.g) is type(belief.h), "two forms of one kind in a belief")
    require(belief.transform.dim == belief.basis.dim, "a transform of as many coordinates as the belief has")
    ends = [end for end in (belief.lower, belief.upper) if end is not None]
    require(len(ends) != 1, "both ends of a belief's box, or none")
    require(all(len(end) == belief.dim and not np.any(np.isnan(end)) for end in ends), "a box with an end a coordinate")
    for leaf in jax.tree.leaves((belief.g, belief.h, belief.transform)):
        checks.require_finite(leaf, "a belief")


def _mixture(belief: MixtureBelief) -> None:
    MixtureBelief(belief.members, belief.weights)
    require(abs(float(np.sum(belief.weights)) - 1.0) < 1e-9, "weights that sum to one in a mixture")


def _gaussian_sensor(sensor: sensors.GaussianSensor) -> None:
    sensors.GaussianSensor(sensor.coordinates, sensor.std, gain=sensor.gain, offset=sensor.offset)
    require(sensor.std.ndim == sensor.gain.ndim == sensor.offset.ndim == 1, "a number for each coordinate of a sensor")


def _linear_sensor(sensor: sensors.LinearSensor) -> None:
    rows = sensor.matrix.shape[0]
    require(sensor.matrix.ndim == 2, "a matrix in a linear sensor")
    require(sensor.log_std.shape == sensor.offset.shape == (rows,), "a number for each row of a linear sensor")


def _mixture_sensor(sensor: sensors.MixtureSensor) -> None:
    require(all(isinstance(part, sensors.Sensor) for part in sensor.sensors), "sensors in a mixture of them")
    sensors.MixtureSensor(sensor.sensors, sensor.weights)
    require(abs(float(np.sum(sensor.weights)) - 1.0) < 1e-9, "weights that sum to one in a mixture")


def _conditional(conditional: Conditional) -> None:
    require_share(conditional.background)
    sizes, shape = conditional.sizes, conditional.K.shape
    require(len(conditional.parents) == len(sizes), "one basis for each parent")
    require(shape[:-1] == (*sizes, conditional.psi.size), "a K that fits the bases of a conditional")
    require(shape[-2] * shape[-1] >= math.prod(sizes), "a rank with which a conditional can be normalised")
    factors = [factor.shape for factor in conditional.raw_factors]
    require(factors == [(n, n) for n in sizes], "one square factor for each parent")


def _phase(phase: PhaseHistory) -> None:
    rows, members = len(phase.steps), len(phase.best_step)
    found = [np.shape(a) for a in (phase.steps, phase.training, phase.held_out, phase.best_step)]
    require(found == [(rows,), (rows, members), (rows, members), (members,)], "curves of one length in a history")
    require(rows > 0 and members > 0, "curves that are not empty in a history")
    kinds = [a.dtype.kind for a in (phase.steps, phase.training, phase.held_out, phase.best_step)]
    require(kinds == ["i", "f", "f", "i"], "whole numbers for steps and real numbers for losses in a history")
    require(all(isinstance(name, str) for name in phase.devices), "devices by name in a history")


def _history(history: History) -> None:
    require(all(isinstance(value, float) for value in history.scores.values()), "scores as numbers in a history")


# --- how objects are made --------------------------------------------------------------------------


def _transition(fields: Fields) -> Transition:
    return Transition(**fields)


def _driven(fields: Fields) -> DrivenTransition:
    return DrivenTransition(**fields)


def _sensor(fields: Fields) -> LearnedSensor:
    return LearnedSensor(fields["zeta"], fields["transform"], background=require_share(fields["background"]))


def _interval_sensor(fields: Fields) -> sensors.IntervalSensor:
    return sensors.IntervalSensor(fields["coordinates"], width=fields["width"])


def _process(fields: Fields) -> MarkovProcess:
    _require_history(fields["history"])
    return MarkovProcess(**fields)


def _ensemble(fields: Fields) -> Ensemble:
    _require_history(fields["history"])
    return Ensemble(**fields)


def _network(fields: Fields) -> BayesianNetwork:
    _require_history(fields["history"])
    names = fields["names"]
    require(len(set(names)) == len(names), "different names for the blocks of a network")
    conditionals = dict(zip(names, fields["conditionals"], strict=True))
    return BayesianNetwork(conditionals, dict(zip(names, fields["transforms"], strict=True)))


def _require_history(history: Any) -> None:
    require(history is None or isinstance(history, History), "a history of training, or none")


def _features(fields: Fields) -> couplings.Network:
    """A network with one hidden layer: its structure from the constructor, its numbers from the file."""
    (first, first_bias), (last, last_bias) = fields["layers"]
    require(first.ndim == last.ndim == 2, "matrices for the layers of a network")
    (width, inputs), outputs = first.shape, last.shape[0]
    require(fields["location"].shape == fields["scale"].shape == (inputs,), "a location and a scale for each input")
    checks.require_positive(fields["scale"], "scale")
    empty = eqx.filter_eval_shape(
        lambda key: couplings.Network(np.zeros(inputs), np.ones(inputs), outputs + 1, width, key),
        jax.ShapeDtypeStruct((2,), jnp.uint32),
    )

    def numbers(features: couplings.Network) -> list:
        layers = [part for layer in features.net.layers for part in (layer.weight, layer.bias)]
        return [features.location, features.scale, *layers]

    given = [fields["location"], fields["scale"], first, first_bias, last, last_bias]
    require([a.shape for a in numbers(empty)] == [a.shape for a in given], "layers that fit together in a network")
    return eqx.tree_at(numbers, empty, given)


# --- the list --------------------------------------------------------------------------------------

_DYNAMICS = ("phi", "psi", "coupling", "transform")
_SHARE = ("background",)

ENTRIES: dict[str, Entry] = {
    "GaussianBasis": Entry(bases.GaussianBasis, ("mean", "log_std")),
    "FullGaussianBasis": Entry(bases.FullGaussianBasis, ("mean", "raw_factor")),
    "BetaBasis": Entry(bases.BetaBasis, ("raw_left", "raw_right")),
    "ExponentialBasis": Entry(bases.ExponentialBasis, ("rate", "ends"), check=_interval),
    "MonomialBasis": Entry(bases.MonomialBasis, ("raw_exponent", "ends"), check=_interval),
    "FourierBasis": Entry(bases.FourierBasis, ("frequency", "phase", "ends"), check=_interval),
    "Identity": Entry(transforms.Identity, ("length",), check=lambda t: checks.count(t.length, "length", 1)),
    "Standardize": Entry(transforms.Standardize, ("mean", "std"), check=_positive("std")),
    "Affine": Entry(transforms.Affine, ("mean", "matrix", "inverted", "log_det")),
    "GaussianCDF": Entry(transforms.GaussianCDF, ("mean", "std"), check=_positive("std")),
    "Chain": Entry(transforms.Chain, ("parts",), make=lambda fields: transforms.Chain(**fields)),
    "SquaredForm": Entry(SquaredForm, ("basis", "matrix", "factor"), check=_form),
    "LinearForm": Entry(LinearForm, ("basis", "weights"), check=_form),
    "Kraus": Entry(couplings.Kraus, ("K", "raw_factor", *_SHARE), check=_kraus),
    "Paired": Entry(couplings.Paired, ("raw_factor", "max_iterations", *_SHARE), check=_paired),
    "Linear": Entry(couplings.Linear, ("log_weights", *_SHARE), check=lambda c: require_share(c.background)),
    "Driven": Entry(couplings.Driven, ("features", "K", "raw_factor", *_SHARE), check=_kraus),
    "Bumps": Entry(couplings.Bumps, ("centres", "width"), check=_positive("width")),
    "Network": Entry(couplings.Network, ("location", "scale", "layers"), make=_features),
    "Phases": Entry(couplings.Phases, ("steps", "kernels"), check=lambda f: couplings.Phases(f.steps, f.kernels)),
    "Transition": Entry(Transition, _DYNAMICS, ("overlap", "kernel"), _transition),
    "DrivenTransition": Entry(DrivenTransition, _DYNAMICS, ("overlap", "shared", "some"), _driven),
    "KnownState": Entry(KnownState, ("state",)),
    "ProductBelief": Entry(
        ProductBelief, ("g", "h", "transform", "lower", "upper"), check=_product, infinite=True
    ),
    "MixtureBelief": Entry(MixtureBelief, ("members", "weights"), check=_mixture),
    "LearnedSensor": Entry(LearnedSensor, ("zeta", "transform", "background"), ("root",), _sensor),
    "GaussianSensor": Entry(sensors.GaussianSensor, ("coordinates", "std", "gain", "offset"), check=_gaussian_sensor),
    "LinearSensor": Entry(sensors.LinearSensor, ("matrix", "log_std", "offset"), check=_linear_sensor),
    "IntervalSensor": Entry(sensors.IntervalSensor, ("coordinates", "width"), make=_interval_sensor),
    "MixtureSensor": Entry(sensors.MixtureSensor, ("sensors", "weights"), check=_mixture_sensor),
    "PhaseHistory": Entry(
        PhaseHistory,
        ("name", "steps", "training", "held_out", "best_step", "seconds", "stopped", "devices"),
        check=_phase,
        infinite=True,
    ),
    "History": Entry(History, ("phases", "chosen", "scores"), check=_history),
    "MarkovProcess": Entry(
        MarkovProcess, ("initial", "transition", "history", "sensor", "columns"), make=_process
    ),
    "Ensemble": Entry(Ensemble, ("members", "history"), make=_ensemble),
    "Conditional": Entry(
        Conditional, ("psi", "phi", "K", "raw_factors", "parents", "background"), check=_conditional
    ),
    "BayesianNetwork": Entry(BayesianNetwork, ("names", "conditionals", "transforms", "history"), ("model",), _network),
}  # fmt: skip

NAMES = {entry.kind: name for name, entry in ENTRIES.items()}


def stored_fields(value: Any, entry: Entry) -> Fields:
    """What is stored of an object by name."""
    if isinstance(value, couplings.Network):
        layers = tuple((layer.weight, layer.bias) for layer in value.net.layers)
        return {"location": value.location, "scale": value.scale, "layers": layers}
    return {name: getattr(value, name) for name in entry.fields}
