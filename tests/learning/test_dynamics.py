"""Lattices of known dynamics against Kalman's recursion, quadrature and simulations."""

import numpy as np
import pytest

import sosmarkov as sm
from sosmarkov.learning.lattice.fit import LatticeWarning

F = np.array([[0.9, 0.1], [-0.1, 0.85]])
B = np.array([0.1, -0.2])
Q = np.array([[0.04, 0.01], [0.01, 0.05]])


def affine(x):
    return x @ F.T + B


def line(**how):
    """A one-dimensional process on few nodes."""
    how = {"initial": [0.5], "spacing": 0.25, "progress": False} | how
    return sm.from_dynamics(lambda x: 0.8 * x, [[0.09]], [-3], [3], **how)


def test_affine_dynamics_keep_means_and_covariances(tmp_path):
    mean, covariance = np.array([0.5, -0.3]), np.diag([0.1, 0.05])
    process = sm.from_dynamics(
        affine, Q, [-4.0, -4.0], [4.0, 4.0], initial=(mean, covariance), background=0.0, columns=["a", "b"]
    )
    for belief in process.propagate(50)[1:]:
        mean, covariance = affine(mean), F @ covariance @ F.T + Q
        np.testing.assert_allclose(belief.mean(), mean, atol=1e-10)
        np.testing.assert_allclose(belief.covariance(), covariance, atol=1e-10)
    assert process.history.chosen["narrow"] == 0.0
    process.save(tmp_path / "m.sosm")
    found = sm.load(tmp_path / "m.sosm")
    np.testing.assert_array_equal(found.propagate(3)[3].C, process.propagate(3)[3].C)
    assert found.columns == ("a", "b")
    np.testing.assert_array_equal(found.initial.log_prob([0.2, 0.1]), process.initial.log_prob([0.2, 0.1]))


def test_noise_of_several_parts_against_quadrature():
    # Chapman-Kolmogorov by the trapezium rule on a grid that knows nothing of splines.
    parts = [(0.3, [-0.6], [[0.04]]), (0.7, [0.3], [[0.09]])]
    process = sm.from_dynamics(
        lambda x: 1.2 * np.tanh(x), parts, [-3], [3], initial=([0.2], [[0.05]]), spacing=0.07, background=0.0
    )
    x = np.linspace(-4.0, 4.0, 3201)
    dx = x[1] - x[0]

    def normal(y, variance):
        return np.exp(-0.5 * y**2 / variance) / np.sqrt(2.0 * np.pi * variance)

    away = x[None] - 1.2 * np.tanh(x)[:, None]
    kernel = 0.3 * normal(away + 0.6, 0.04) + 0.7 * normal(away - 0.3, 0.09)
    density = normal(x - 0.2, 0.05)
    for belief in process.propagate(6)[1:]:
        density = dx * density @ kernel
        np.testing.assert_allclose(belief.mean()[0], dx * density @ x, atol=5e-4)
        assert dx * np.sum(np.abs(np.asarray(belief.prob(x[:, None])) - density)) < 5e-3


def pendulum(x):
    rate = x[:, 1] + 0.1 * (-9.81 * np.sin(x[:, 0]) - 0.3 * x[:, 1])
    return np.stack([np.mod(x[:, 0] + 0.1 * rate, 2.0 * np.pi), rate], axis=1)


DEVIATIONS = np.array([0.12, 0.4])


@pytest.fixture(scope="module")
def wrapped():
    return sm.from_dynamics(
        pendulum, np.diag(DEVIATIONS**2), [-np.pi, -10], [np.pi, 10], initial=[0.5, 0.0], circular=[0]
    )


def test_a_pendulum_that_goes_round(wrapped):
    assert wrapped.check().normalisation_error < 1e-12
    for state in ([0.0, 2.0], [1.5, -4.0], [2.0, 1.0]):
        after = wrapped.propagate(1, initial=state)[1]
        turned = np.angle(np.exp(1j * pendulum(np.array([state]))[0, 0]))
        np.testing.assert_allclose(np.sqrt(np.diag(after.covariance())), DEVIATIONS, rtol=0.1)
        np.testing.assert_allclose(after.mean()[0], turned, atol=0.02)
        assert float(after.mass()) == pytest.approx(1.0, abs=1e-12)
    # Ten steps, as simulations have them.
    rng, x = np.random.default_rng(0), np.tile([2.5, 0.0], (40_000, 1))
    for _ in range(10):
        x = pendulum(x) + DEVIATIONS * rng.standard_normal(x.shape)
    after = wrapped.propagate(10, initial=[2.5, 0.0])[10]
    for end in (-6.0, -2.0, 0.0, 3.0):
        assert float(after.probability([-np.pi, -np.inf], [np.pi, end])) == pytest.approx(
            np.mean(x[:, 1] < end), abs=0.015
        )


def test_only_places_that_beliefs_reach(wrapped):
    box = [-np.pi, -30.0], [np.pi, 30.0]
    found = sm.from_dynamics(pendulum, np.diag(DEVIATIONS**2), *box, initial=[0.5, 0.0], circular=[0], nodes=6000)
    places = np.prod([axis.count for axis in found.transition.nodes.axes])
    assert len(found.transition.nodes) < 6000 < places
    one, other = found.propagate(12)[12], wrapped.propagate(12)[12]
    np.testing.assert_allclose(one.covariance(), other.covariance(), rtol=2e-3)
    # The background's share, and hardly more.
    assert 0 < one.C[-1] < 2e-6


def test_a_start_across_the_cut_of_a_circle_wraps_round():
    process = sm.from_dynamics(
        lambda x: x + 0.1, [[0.09]], [-np.pi], [np.pi], initial=([3.0], [[0.16]]), circular=[0], background=0.0
    )
    x = np.linspace(-np.pi, np.pi, 2001)
    for k, belief in enumerate(process.propagate(2)):
        variance, away = 0.16 + 0.09 * k, x - 3.0 - 0.1 * k
        turns = [np.exp(-0.5 * (away + turn) ** 2 / variance) for turn in 2.0 * np.pi * np.arange(-2, 3)]
        np.testing.assert_allclose(
            belief.prob(x[:, None]), np.sum(turns, axis=0) / np.sqrt(2.0 * np.pi * variance), atol=0.02
        )


def test_noise_that_depends_on_the_state_and_a_bound():
    process = sm.from_dynamics(
        lambda x: 0.7 * x + 0.5,
        lambda x: (0.02 + 0.02 * np.minimum(np.abs(x), 3.0) ** 2)[:, :, None],
        [0.0],
        [6.0],
        initial=[2.0],
        bounds={0: (0, None)},
        spacing=0.1,
    )
    for state, variance in ((1.5, 0.065), (3.0, 0.2)):
        found = process.propagate(1, initial=[state])[1]
        assert float(found.covariance()[0, 0]) == pytest.approx(variance, rel=0.02)
        assert float(found.probability([-np.inf], [0.0])) == 0.0


def test_a_lattice_too_coarse_says_so():
    with pytest.warns(LatticeWarning, match=r"100\.0% of the lattice's rows are wider"):
        line(spacing=1.0)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"initial": None}, "Expected initial, where the process starts"),
        ({"initial": [9.0]}, "within lower and upper"),
        ({"initial": [0.0, 1.0]}, "over 1 coordinates, got 2"),
        ({"f": lambda x: x[:, 0]}, r"f\(x\) of shape"),
        ({"f": lambda x: np.where(x > 0, x, np.nan)}, r"finite f\(x\)"),
        ({"f": lambda x: x + 100.0}, "stay in the box"),
        ({"f": lambda x: -5.0 - x, "lower": [0.0], "bounds": {0: (0, None)}}, "stay in the box"),
        ({"noise": [[-1.0]]}, "positive definite"),
        ({"noise": lambda x: np.zeros((len(x), 1, 1))}, "positive definite"),
        ({"noise": lambda x: np.ones(len(x))}, r"noise\(x\) of shape"),
        ({"noise": np.eye(2)}, "Expected noise as"),
        ({"noise": [(0.5, [0.0], [[0.1]])]}, "sum of one"),
        ({"noise": [(1.0, [0.0, 1.0], [[0.1]])]}, "shifts of the noise"),
        ({"lower": [4.0]}, "lower < upper"),
        ({"lower": [0.0, 0.0]}, "a number for each coordinate"),
        ({"upper": [np.inf]}, "finite lower < upper"),
        ({"spacing": -1.0}, "spacing above zero"),
        ({"background": 1.0}, "background between 0 and 1"),
        (
            {"nodes": 12},
            r"at most 12 nodes, got a box of .* All places fit with spacing=\[.*\], where 100% of the rows",
        ),
        ({"lower": [-1e9], "upper": [1e9]}, "more than can be looked through"),
    ],
)
def test_what_cannot_be_is_refused(changed, said):
    given = {"f": lambda x: 0.8 * x, "noise": [[0.09]], "lower": [-3.0], "upper": [3.0], "initial": [0.5]} | changed
    how = {name: given.pop(name) for name in ("f", "noise", "lower", "upper")}
    with pytest.raises(ValueError, match=said):
        sm.from_dynamics(*how.values(), **given)
