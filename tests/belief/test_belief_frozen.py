"""Twenty densities whose answers mpmath found to 50 digits from the plain definition (see make_frozen.py)."""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

import sosmarkov as sm
from sosmarkov.factor.forms import product_mass
from sosmarkov.factor.step import initial_belief

CASES = json.loads(pathlib.Path(__file__).with_name("frozen.json").read_text())
BASES = {
    "gaussian": sm.GaussianBasis,
    "gaussian-full": sm.FullGaussianBasis,
    "beta": sm.BetaBasis,
    "monomial": sm.MonomialBasis,
    "exponential": sm.ExponentialBasis,
    "fourier": sm.FourierBasis,
}


def form_from(family, stored):
    arguments = {n: jnp.asarray(v) if isinstance(v, list) else v for n, v in stored["basis"].items()}
    basis = BASES[family](**arguments)
    if "weights" in stored:
        return sm.LinearForm(basis, jnp.asarray(stored["weights"]))
    return sm.SquaredForm(basis, matrix=jnp.asarray(stored["matrix"]))


def numbers(texts):
    return jnp.asarray([float(text) for text in texts])


def answer(belief, query):
    ask, c = query["ask"], query.get("coordinate")
    if ask == "log_prob":
        return belief.log_prob(numbers(query["x"]))
    if ask == "probability":
        return belief.probability(numbers(query["lower"]), numbers(query["upper"]))
    if ask == "cdf":
        return belief.cdf(numbers(query["upper"]))
    if ask == "moment":
        return belief.moment(query["powers"])
    if ask == "marginal":
        return belief.marginal([c]).prob(numbers(query["x"]))
    return belief.condition({c: float(query["value"])}).prob(numbers(query["x"]))


def test_there_are_twenty_cases_and_every_question_is_asked():
    assert len(CASES) == 20
    asked = {query["ask"] for case in CASES for query in case["queries"]}
    assert asked == {"mass", "log_prob", "probability", "cdf", "moment", "marginal", "condition"}
    assert {case["family"] for case in CASES} == set(BASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_answers_match_fifty_digits(case):
    g, h = form_from(case["family"], case["g"]), form_from(case["family"], case["h"])
    mass, query = case["queries"]
    np.testing.assert_allclose(product_mass(g, h), float(mass["answer"]), rtol=1e-11)
    belief = initial_belief(g, h, sm.Identity(case["dim"]))
    np.testing.assert_allclose(answer(belief, query), float(query["answer"]), rtol=1e-11)
