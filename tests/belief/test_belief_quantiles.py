"""Quantiles of many shares, coordinates and beliefs: to rounding, and by one program for all of one structure."""

import logging

import jax
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import oracles
import sosmarkov as sm
from sosmarkov.contracts import line
from sosmarkov.core import programs
from tables import COVER, FAMILIES, TRANSFORMS, make_process

SHARES = np.array([0.02, 0.5, 0.97])


def quantile_by_quadrature(density, share, low, high):
    """The root of an integral of nothing but the density."""

    def away(end):
        nodes, weights = oracles.gauss_legendre(low, end, 24, 22)
        return weights @ density(nodes) - share

    return brentq(away, low + 1e-9, high, xtol=1e-13, rtol=1e-13)


def test_quantiles_of_one_gaussian_are_those_of_scipy():
    mean, std = np.array([0.7, -3.0]), np.array([0.2, 5.0])
    wide = sm.GaussianBasis(np.zeros((1, 2)), np.full((1, 2), 2e4))
    process = sm.MarkovProcess(
        sm.Transition(wide, wide, sm.Kraus(np.ones((1, 1, 1)))), sm.SquaredForm.gaussian(mean, std)
    )
    shares = np.array([[1e-6, 0.1, 0.5], [0.75, 0.999, 1 - 1e-6]])
    expected = norm.ppf(shares[..., None], mean, std)
    # The factor g is flat to (2e4 / 5)^-2.
    np.testing.assert_allclose(process.initial.quantile(shares), expected, rtol=1e-5)
    flat = process.initial.marginal(0)
    np.testing.assert_allclose(flat.cdf(flat.quantile(shares)[..., None]), shares, rtol=1e-12)


@pytest.mark.parametrize(("family", "coupling"), [("gaussian", "kraus"), ("fourier", "kraus-background")])
def test_quantiles_match_roots_of_quadrature(family, coupling):
    belief = make_process(family, coupling, 2, seed=2, n=4).propagate(2)[2]
    low, high = {"gaussian": (-14.0, 14.0), "fourier": (-1.0, 2.0)}[family]
    nodes, weights = oracles.gauss_legendre(low, high, 24, 22)

    def density(x):
        points = np.stack(np.meshgrid(x, nodes, indexing="ij"), axis=-1)
        return np.asarray(belief.prob(points)) @ weights

    found = np.asarray(belief.quantile(SHARES, 0))
    expected = [quantile_by_quadrature(density, share, low, high) for share in SHARES]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("family", "coupling", "transform"),
    [
        *((family, coupling, "identity") for family, coupling in COVER if family != "beta"),
        ("gaussian", "kraus", "affine"),
        ("beta", "paired", "gaussian_cdf"),
    ],
)
def test_every_belief_of_a_sequence_has_its_shares_below(family, coupling, transform):
    moved = TRANSFORMS[transform](np.random.default_rng(3), 2)
    beliefs = make_process(family, coupling, 2, seed=2, n=3, transform=moved).propagate(2)
    found = np.asarray(beliefs.quantiles(SHARES))
    assert found.shape == (3, 3, 2)
    for k, belief in enumerate(beliefs):
        for c in range(2):
            below = belief.marginal(c).cdf(found[k, :, c][:, None])
            np.testing.assert_allclose(below, SHARES, rtol=0, atol=2e-14)
    np.testing.assert_allclose(beliefs[2].quantile(SHARES[:2], [1, 0]), found[2, :2, ::-1], rtol=1e-11)


def test_shapes_follow_shares_and_coordinates():
    process = make_process("gaussian", "kraus", 2, seed=2, n=3).with_columns(["angle", "rate"])
    belief = process.propagate(1)[1]
    assert belief.quantile(0.5).shape == (2,)
    assert belief.quantile(0.5, "rate").shape == ()
    assert belief.quantile([[0.1, 0.2]], 1).shape == (1, 2)
    assert belief.quantile([[0.1, 0.2]], ["rate"]).shape == (1, 2, 1)
    assert belief.marginal("rate").quantile(0.3).shape == ()
    assert process.propagate(2).quantiles(0.5).shape == (3, 2)
    assert process.propagate(0).quantiles([0.5, 0.6], "rate").shape == (1, 2, 1)


def test_a_flat_stretch_and_a_narrow_peak_are_solved_by_the_closed_form():
    mean, std = np.array([[-40.0], [40.0]]), np.array([[0.01], [0.02]])
    peaks = [sm.SquaredForm.gaussian(m, s) for m, s in zip(mean, std, strict=True)]
    wide = sm.GaussianBasis(np.zeros((1, 1)), np.full((1, 1), 1e5))
    transition = sm.Transition(wide, wide, sm.Kraus(np.ones((1, 1, 1))))
    mixed = sm.MixtureBelief([sm.MarkovProcess(transition, peak).initial for peak in peaks], [0.25, 0.75])
    assert not np.any(line._by_pieces(mixed.line(0), jax.numpy.asarray(SHARES))[1])
    found = mixed.quantile([0.1, 0.2, 0.3, 0.9])
    expected = [norm.ppf(0.4, -40, 0.01), norm.ppf(0.8, -40, 0.01), *norm.ppf([0.05 / 0.75, 0.65 / 0.75], 40, 0.02)]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(mixed.cdf(found[:, None]), [0.1, 0.2, 0.3, 0.9], rtol=0, atol=1e-13)


def test_mixtures_with_known_states_and_readings_in_boxes():
    process = make_process("gaussian", "kraus", 1, seed=2, n=3)
    belief = process.initial
    jump = sm.MixtureBelief([belief, sm.KnownState([0.3])], [0.5, 0.5])
    np.testing.assert_allclose(jump.quantile(0.5 * float(belief.cdf([0.3])) + 0.2), 0.3, rtol=1e-12)
    np.testing.assert_array_equal(sm.KnownState([0.3, 1.0]).quantile([0.1, 0.9]), [[0.3, 1.0]] * 2)
    boxed = process.update(belief, [[-0.2, 0.4]], sensor=sm.IntervalSensor(0)).belief
    found = np.asarray(boxed.quantile(SHARES))
    inside = belief.probability(np.full((3, 1), -0.2), found[:, None]) / belief.probability([-0.2], [0.4])
    np.testing.assert_allclose(inside, SHARES, rtol=1e-11)


def test_quantiles_of_filtered_beliefs_are_those_of_each():
    process = make_process("gaussian", "kraus", 2, seed=2, n=3)
    beliefs = process.filter([[0.2], [np.nan], [-0.4]], sensor=sm.GaussianSensor(0, 0.3)).beliefs
    found = np.asarray(beliefs.quantiles(SHARES))
    for k, belief in enumerate(beliefs):
        for c in range(2):
            np.testing.assert_allclose(belief.marginal(c).cdf(found[k, :, c][:, None]), SHARES, rtol=0, atol=2e-14)


class Compilations(logging.Handler):
    """Names of what JAX compiles."""

    def __init__(self):
        super().__init__()
        self.names = []

    def emit(self, record):
        """One more, if it is one."""
        if "Finished XLA compilation" in record.getMessage():
            self.names.append(record.getMessage())


@pytest.fixture
def compiled():
    heard, logger = Compilations(), logging.getLogger("jax._src.dispatch")
    before = logger.level
    logger.addHandler(heard)
    logger.setLevel(logging.DEBUG)
    yield heard.names
    logger.removeHandler(heard)
    logger.setLevel(before)


@pytest.mark.parametrize(("family", "d"), [("gaussian", 2), ("gaussian", 4), ("gaussian-full", 2)])
def test_a_second_sequence_of_one_structure_compiles_nothing(family, d, compiled, monkeypatch):
    # What earlier tests compiled may fill the memory programs are granted just here.
    monkeypatch.setattr(programs.BOUND, "drop", lambda: None)

    def ask(seed):
        rng = np.random.default_rng(seed)
        process = make_process(family, "kraus", d, seed=seed, n=3)
        start = sm.SquaredForm(FAMILIES[family].make(rng, 3, d), np.eye(3))
        beliefs = sm.MarkovProcess(process.transition, start).propagate(12)
        del compiled[:]
        return beliefs.quantiles(SHARES)

    assert ask(2).shape == (13, 3, d)
    assert compiled
    ask(3)
    assert compiled == []


@pytest.mark.parametrize(("share", "message"), [(1.0, "strictly between"), ([], "at least one"), ("a", "numbers")])
def test_what_is_no_share_is_refused(share, message):
    with pytest.raises(ValueError, match=message):
        sm.KnownState([0.5]).quantile(share)


def test_families_without_marginals_say_so():
    moved = TRANSFORMS["affine"](np.random.default_rng(3), 2)
    belief = make_process("exponential", "linear", 2, seed=2, n=3, transform=moved).initial
    with pytest.raises(ValueError, match="coordinate-wise transform.*standardising"):
        belief.quantile(0.5)
