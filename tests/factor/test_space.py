"""What a space says of its closed forms is held against what happens when each is asked for."""

import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import sosmarkov as sm
from sosmarkov.contracts.belief import Belief, Estimate
from sosmarkov.factor.beliefs import ProductBelief
from sosmarkov.factor.boxes import Box
from sosmarkov.factor.space import QUERIES, Space
from tables import FAMILIES, TRANSFORMS

SPACES = [(family, name) for family in FAMILIES for name in ("identity", "standardize", "affine")]
SPACES += [("beta", "gaussian_cdf")]
SLAB, BOX = {0: (0.2, 0.3)}, {0: (0.2, 0.3), 1: (0.1, 0.4)}


def make(family, name, d=2):
    rng = np.random.default_rng(3)
    basis = FAMILIES[family].make(rng, 2, d)
    form = sm.SquaredForm(basis, np.ones((2, 1)))
    return ProductBelief(g=form, h=form, transform=TRANSFORMS[name](rng, d))


def read(sensor, shape):
    return lambda b: sensor.reading(0.3 + jnp.broadcast_to(jnp.arange(shape[-1]), shape), b.basis, b.transform)


ASKED = {
    "moments": [lambda b: b.mean(), lambda b: b.moment({0: 1, 1: 2})],
    "marginal": [
        lambda b: b.marginal([1]).mean(),
        lambda b: b.condition({0: 0.3}).mean(),
        lambda b: b.quantile(0.3, 1),
        lambda b: b.quantile([0.3, 0.4]),
    ],
    "slab": [lambda b: b.probability(SLAB)],
    "box": [lambda b: b.probability(BOX), lambda b: b.cdf([0.3, 0.4])],
    "overlap": [lambda b: b.overlap(b)],
    "gaussian reading": [read(sm.GaussianSensor(0, 0.5), (1,)), read(sm.GaussianSensor([1, 0], 0.5), (2,))],
    "linear reading": [read(sm.LinearSensor([[1.0, 2.0]], 0.5), (1,))],
    "interval reading": [read(sm.IntervalSensor(1), (1, 2))],
}


def over_time(bounds):
    """The table of what stays in a box, which every question about boxes over time begins with."""
    low, high = np.full(2, -np.inf), np.full(2, np.inf)
    for c, ends in bounds.items():
        low[c], high[c] = ends
    box = Box(low, high, 2)
    return lambda b: box.table(b.g, b.h, b.transform)


def answers(belief, ask, traced):
    """Whether a query is answered, without a warning that it is an estimate."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            # What refuses does so before anything is computed.
            eqx.filter_eval_shape(ask, belief) if traced else ask(belief)
        except ValueError as error:
            return not str(error).startswith("Expected ")
    return not any(issubclass(one.category, sm.EstimateWarning) for one in heard)


def test_every_query_is_tried():
    assert set(ASKED) == set(QUERIES) == set(make("gaussian", "identity").space.exact)


@pytest.mark.parametrize(("family", "name"), SPACES)
def test_what_is_said_to_be_closed_form_is(family, name, monkeypatch):
    monkeypatch.setattr(Belief, "estimate_probability", lambda *given: Estimate(np.float64(0.5), np.float64(0.0)))
    belief = make(family, name)
    exact = belief.space.exact
    for query, asked in ASKED.items():
        # Where boxes are looked at first, their ends have to be numbers.
        traced = query not in ("slab", "box") or belief.space.separate
        expected = exact[query] in (True, "quadrature")
        assert [answers(belief, ask, traced) for ask in asked] == [expected] * len(asked), query
    for query, bounds in (("slab", SLAB), ("box", BOX)):
        assert answers(belief, over_time(bounds), True) == (exact[query] is True), query


def test_moments_by_quadrature_say_so():
    assert make("beta", "gaussian_cdf").space.exact["moments"] == "quadrature"
    assert make("beta", "identity").space.exact["moments"] is True


@pytest.mark.parametrize(
    ("family", "name", "exact"),
    [("gaussian-full", "affine", True), ("beta", "affine", False), ("beta", "identity", True)],
)
def test_one_coordinate_has_closed_forms_of_its_own(family, name, exact):
    belief = make(family, name, 1)
    assert (belief.space.exact["box"] is True) == exact
    if exact:
        low, high = (0.2, 0.7) if family == "beta" else (-0.5, 0.6)
        nodes, weights = np.polynomial.legendre.leggauss(60)
        half, middle = 0.5 * (high - low), 0.5 * (high + low)
        expected = half * weights @ np.asarray(belief.prob((middle + half * nodes)[:, None]))
        np.testing.assert_allclose(belief.probability([low], [high]), expected, rtol=1e-10)


def test_a_refusal_has_one_text():
    space = make("beta", "affine").space
    for query in ("marginal", "gaussian reading", "interval reading", "box"):
        with pytest.raises(ValueError, match="^Expected .*, got family beta under Affine. Use "):
            space.require(query)
    assert isinstance(space, Space)
