"""Figures draw the library's numbers on the Axes they are given, and refuse what they cannot draw."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest

import sosmarkov as sm
from sosmarkov.data.history import History, PhaseHistory
from sosmarkov.plots.numbers import densities_on

STEPS = 2


@pytest.fixture(scope="module")
def process():
    rng = np.random.default_rng(4)
    phi, psi = (sm.GaussianBasis(rng.normal(size=(2, 2)), rng.uniform(0.8, 1.3, size=(2, 2))) for _ in range(2))
    held_out = np.array([[2.0, 1.9], [1.0, 1.1]])
    phase = PhaseHistory("beliefs", np.array([0, 5]), held_out + 0.1, held_out, np.array([5, 5]), 0.1, "steps")
    transition = sm.Transition(phi, psi, sm.Kraus(rng.normal(size=(2, 2, 2))))
    return sm.MarkovProcess(transition, [0.2, -0.3], history=History((phase,)))


@pytest.fixture(scope="module")
def data():
    return 0.8 * np.random.default_rng(5).normal(size=(30, STEPS + 1, 2))


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_a_line_is_the_marginal_density(process):
    belief = process.belief_at(2)
    given = plt.figure().add_subplot()
    ax = sm.plot_belief(belief, 1, ax=given, names=["a", "b"])
    assert ax is given
    assert ax.get_xlabel() == "b"
    x, p = ax.lines[0].get_data()
    np.testing.assert_allclose(p, belief.marginal([1]).prob(x[:, None]), rtol=1e-12)
    assert 0.97 < np.sum(p) * (x[1] - x[0]) < 1.0


def test_contours_go_up_to_the_largest_density(process):
    ax = sm.plot_stationary(process, window=([-2.0, -2.0], [2.0, 2.0]))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x0", "x1")
    (contours,) = ax.collections
    line = -2.0 + 4.0 * (np.arange(96) + 0.5) / 96
    grid = np.stack(np.meshgrid(line, line), axis=-1)
    np.testing.assert_allclose(contours.levels[-1], np.max(process.stationary().prob(grid)), rtol=1e-9)


def test_marginals_over_time_stand_above_the_data(process, data):
    axes = sm.plot_marginals_over_time(process, data, steps=[1, 2])
    assert axes.shape == (2, 2)
    assert axes[0, 1].get_title() == "k = 2"
    counts = axes[1, 0].collections[0].get_array()
    (left, right), (low, high) = axes[1, 0].get_xlim(), axes[1, 0].get_ylim()
    x, y = data[:, 1].T
    assert counts.sum() == np.sum((x > left) & (x < right) & (y > low) & (y < high))
    assert axes[0, 0].get_xlim() == axes[1, 1].get_xlim()


def test_pairs_have_axes_of_their_own(process):
    axes = sm.plot_marginals_over_time(process, steps=[1, 2], pairs=[(0, 1), (1, 0)], cells=12)
    assert axes.shape == (2, 2)
    first, second = axes[0, 0], axes[1, 0]
    assert first.get_xlim() == second.get_ylim() != second.get_xlim()
    assert first.get_xlabel() == second.get_ylabel() != ""
    assert axes[0, 1].get_ylabel() == ""


def test_fans_are_the_quantiles(process, data):
    ax = sm.plot_fan(process, 1, data=data, paths=5, shares=[0.8])
    observed, median = ax.lines[-1].get_ydata(), ax.lines[0].get_ydata()
    assert len(ax.lines) == 1 + 5
    np.testing.assert_allclose(observed, data[-1, :, 1])
    assert median[0] == -0.3  # a known start
    exact = [process.belief_at(k).quantile([0.1, 0.5, 0.9], 1) for k in (1, 2)]
    np.testing.assert_allclose(median[1:], np.stack(exact)[:, 1], rtol=1e-9)
    found = process.propagate(STEPS).quantiles([0.1, 0.5, 0.9], 1)[1:, :, 0]
    np.testing.assert_allclose(found, exact, rtol=1e-9)


def test_training_has_one_axes_a_phase_and_a_line_a_member(process):
    (ax,) = sm.plot_training(process)
    assert ax.get_title() == "beliefs"
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [2.0, 1.0])
    assert len(ax.lines) == 2 * 3


def test_calibration_counts_what_lies_in_intervals(process, data):
    axes = sm.plot_calibration(process, data)
    nominal, share = axes[0].lines[1].get_data()
    inside = []
    for k in (1, 2):
        low, high = process.belief_at(k).quantile([0.25, 0.75], 0)
        inside.append((data[:, k, 0] > low) & (data[:, k, 0] < high))
    np.testing.assert_allclose(share[np.isclose(nominal, 0.5)], np.mean(inside))


def test_axes_say_the_names_of_columns(process, data):
    named = process.with_columns(["angle", "rate"])
    assert sm.plot_fan(named, "rate", steps=1).get_ylabel() == "rate"
    ax = sm.plot_belief(named.belief_at(2), ["rate", "angle"], cells=12)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("rate", "angle")
    assert sm.plot_belief(named.belief_at(2), "angle").get_xlabel() == "angle"
    axes = sm.plot_marginals_over_time(named, steps=[1], pairs=[("rate", "angle")], cells=12)
    assert axes[0, 0].get_xlabel() == "rate"
    assert sm.plot_calibration(named, data)[0].get_legend().get_texts()[1].get_text() == "rate"


def test_calibration_leaves_out_states_that_are_known_in_part(process, data):
    gaps = data.copy()
    gaps[3, 1, 0] = gaps[5, 2] = gaps[7, 0, 1] = np.nan
    whole = [np.where(np.isnan(path).any(axis=1, keepdims=True), np.nan, path) for path in gaps]
    found, expected = (sm.plot_calibration(process, given)[0].lines[1].get_data() for given in (gaps, whole))
    np.testing.assert_array_equal(found, expected)
    inside = []
    for k in (1, 2):
        low, high = process.belief_at(k).quantile([0.25, 0.75], 0)
        seen = ~np.isnan(gaps[:, k]).any(axis=1)
        inside.extend((gaps[seen, k, 0] > low) & (gaps[seen, k, 0] < high))
    np.testing.assert_allclose(found[1][np.isclose(found[0], 0.5)], np.mean(inside))


def test_beliefs_of_networks_are_drawn_by_name():
    rng = np.random.default_rng(6)
    basis = sm.GaussianBasis(rng.normal(size=(2, 1)), np.ones((2, 1)))
    network = sm.BayesianNetwork({"u": sm.Conditional(basis, rng.normal(size=(2, 2)), background=0.05)})
    ax = sm.plot_belief(network.marginal("u"))
    x, p = ax.lines[0].get_data()
    assert ax.get_xlabel() == "u"
    np.testing.assert_allclose(p, network.marginal("u").prob(x[:, None]), rtol=1e-12)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda process: sm.plot_belief(process), "Expected a belief"),
        (lambda process: sm.plot_belief(process.initial), "known state"),
        (lambda process: sm.plot_belief(process.belief_at(2), names=["a"]), "Expected 2 different names"),
        (lambda process: sm.plot_belief(process.belief_at(2), 5), "between 0 and 1"),
        (lambda process: sm.plot_marginals_over_time(process, steps=[0, 2]), "steps from 1 to 2"),
        (lambda process: sm.plot_marginals_over_time(process, steps=[2], pairs=[[0]]), "pairs of two"),
        (lambda process: sm.plot_fan([1, 2]), "Expected a process, beliefs"),
        (lambda process: sm.plot_fan(process, steps=2, shares=[1.2]), "strictly between 0 and 1"),
        (lambda process: sm.plot_training(sm.MarkovProcess(process.transition, [0.0, 0.0])), "was trained"),
        (lambda process: sm.plot_training(process, axes=[None, None]), "one a phase"),
    ],
)
def test_what_cannot_be_drawn_is_refused(process, draw, message):
    with pytest.raises(ValueError, match=message):
        draw(process)


def test_marginals_of_several_beliefs_at_once_are_integrals_of_their_densities():
    rng = np.random.default_rng(6)
    phi = sm.FullGaussianBasis(rng.normal(size=(2, 3)), np.tile(np.eye(3) + 0.2, (2, 1, 1)))
    start = sm.SquaredForm(sm.FullGaussianBasis(np.zeros((1, 3)), np.eye(3)[None]), np.eye(1))
    transform = sm.Standardize(np.ones(3), [1.0, 2.0, 0.5])
    process = sm.MarkovProcess(sm.Transition(phi, phi, sm.Kraus(rng.normal(size=(2, 2, 2))), transform), start)
    beliefs = list(process.propagate(2))  # the first stands on a basis of its own
    axes = [np.array([0.7, 1.4]), np.array([-0.5, 0.5, 1.5])]
    found = densities_on(beliefs, (2, 0), axes)
    line = np.linspace(-25.0, 27.0, 801)
    third, first, middle = np.meshgrid(*axes, line)
    points = np.stack([first, middle, third], axis=-1)
    expected = [np.asarray(belief.prob(points)).sum(axis=-1) * (line[1] - line[0]) for belief in beliefs]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("form", ["lattice", "gaussian"])
def test_figures_take_processes_of_other_forms(form, data):
    x = np.cumsum(0.3 * np.random.default_rng(0).normal(size=(60, 2)), axis=0) % 4.0
    process = sm.fit([x], form=form, progress=False)
    ax = sm.plot_belief(process.belief_at(2), 1)
    grid, p = ax.lines[0].get_data()
    np.testing.assert_allclose(p, process.belief_at(2).marginal([1]).prob(grid[:, None]), rtol=1e-9)
    assert sm.plot_stationary(process, cells=8).collections
    assert sm.plot_marginals_over_time(process, data, steps=[1, 2], cells=8).shape == (2, 2)
    line = sm.plot_fan(process, 0, steps=2).lines[0].get_ydata()
    np.testing.assert_allclose(line, [float(b.quantile(0.5, 0)) for b in process.propagate(2)], rtol=1e-9)
    assert len(sm.plot_training(process)) == 1
    assert len(sm.plot_calibration(process, data)) == 2
