"""Lattices from data: the parts against brute force, the whole against systems whose truth is known."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats

import sosmarkov as sm
from sosmarkov.data.dataset import Pairs
from sosmarkov.data.gather import gather, open_source
from sosmarkov.lattice.axis import Axis
from sosmarkov.lattice.broad import Broad
from sosmarkov.lattice.counts import Seen, learn_rows
from sosmarkov.lattice.nodes import Nodes
from sosmarkov.learning.forms import no_less_than_a_linear_step
from sosmarkov.learning.held_out import AHEAD, folds, successors
from sosmarkov.learning.lattice import place
from sosmarkov.learning.lattice.initial import learn_initial
from sosmarkov.learning.lattice.local import Neighbours, linear_step, local_means
from sosmarkov.learning.lattice.smooth import smooth
from sosmarkov.learning.lattice.surrogate import Ground, Rows, Surrogate, Way
from sosmarkov.learning.lattice.view import Room, View
from sosmarkov.learning.options import Options
from sosmarkov.learning.rooms import looks_like, rooms_of

RNG = np.random.default_rng(3)


def bend(x):
    """A noisy map with two wells, its noise N(0, 0.2^2)."""
    return x + 0.3 * np.sin(2.0 * x) - 0.05 * x**3


def walk(count, length, seed, step=bend, std=0.2):
    rng = np.random.default_rng(seed)
    x = [rng.normal(size=count)]
    for _ in range(length - 1):
        x.append(step(x[-1]) + std * rng.normal(size=count))
    return np.stack(x, axis=1)[..., None]


def pairs_of(x, owner=None):
    flat, after = x[:, :-1].reshape(-1, x.shape[2]), x[:, 1:].reshape(-1, x.shape[2])
    owner = np.repeat(np.arange(len(x)), x.shape[1] - 1) if owner is None else owner
    return Pairs(flat, after, np.ones(len(flat)), owner)


# --- the parts ------------------------------------------------------------------------------------


def test_a_linear_step_is_weighted_least_squares():
    x, weight = RNG.normal(size=(50, 2)), RNG.uniform(0.5, 2.0, 50)
    y = x @ np.array([[0.5, 0.2], [-0.1, 0.8]]) + 0.1 * RNG.normal(size=(50, 2)) + 1.0
    found = linear_step(x, y, weight)
    design = np.column_stack([np.ones(50), x])
    beta = np.linalg.solve(design.T @ (weight[:, None] * design), design.T @ (weight[:, None] * y))
    np.testing.assert_allclose(np.vstack([found.offset, found.slope.T]), beta, atol=1e-12)


def test_a_local_regression_is_a_weighted_ridge_regression_of_its_neighbours():
    z, left = RNG.normal(size=(200, 2)), RNG.normal(size=(200, 2))
    near, place = Neighbours(z, np.ones(200)), np.array([[0.1, -0.2]])
    values, slopes = local_means(near, left, place, 30, 2.0)
    away = (z - place) / z.std(axis=0)
    distance = np.linalg.norm(away, axis=1)
    chosen = np.argsort(distance)[:30]
    reach = distance[chosen[-1]] * 1.001
    weight = (1 - (distance[chosen] / reach) ** 3) ** 3
    design = np.column_stack([np.ones(30), away[chosen] / reach])
    rows = np.vstack([np.sqrt(weight)[:, None] * design, np.sqrt(2.0) * np.eye(3)])
    beta = np.linalg.lstsq(rows, np.vstack([np.sqrt(weight)[:, None] * left[chosen], np.zeros((3, 2))]), rcond=None)[0]
    np.testing.assert_allclose(values[0], beta[0], atol=1e-10)
    np.testing.assert_allclose(slopes[0], (beta[1:] / z.std(axis=0)[:, None] / reach).T, atol=1e-10)


def test_a_smooth_correction_is_the_mean_of_a_gaussian_process_on_its_kernels():
    z, left, noise = RNG.normal(size=(60, 1)), RNG.normal(size=(60, 1)), np.array([[0.3]])
    found = smooth(z, left, np.ones(60), noise, np.array([0.7]))
    K = np.exp(-0.5 * (z / 0.7 - found.centres.T) ** 2)
    own = np.exp(-0.5 * (found.centres - found.centres.T) ** 2)
    variance = np.mean(left**2)
    # The prior on the amounts is N(0, variance own^-1): the posterior mean by the other way round, over the data.
    prior = variance * np.linalg.pinv(own, rcond=1e-12)
    mean = prior @ K.T @ np.linalg.solve(K @ prior @ K.T + 0.3 * np.eye(60), left)
    at = np.linspace(-2, 2, 9)[:, None]
    expected = np.exp(-0.5 * (at / 0.7 - found.centres.T) ** 2) @ mean
    np.testing.assert_allclose(found.values(at), expected, atol=1e-4)
    step = 1e-6
    slope = (found.values(at + step) - found.values(at - step)) / (2 * step)
    np.testing.assert_allclose(found.slopes(at)[:, 0], slope, atol=1e-6)


def test_slopes_of_a_surrogate_are_derivatives_also_of_angles():
    turn = Room("wrapped", -np.pi, np.pi)
    x = np.column_stack([RNG.uniform(-np.pi, np.pi, 400), RNG.normal(size=400)])
    y = np.column_stack([x[:, 0] + 0.3 * x[:, 1], 0.9 * x[:, 1] - 0.4 * np.sin(x[:, 0])])
    y += 0.05 * RNG.normal(size=y.shape)
    y[:, 0] = (y[:, 0] + np.pi) % (2 * np.pi) - np.pi
    surrogate = Surrogate(Ground(Rows(x, y, np.ones(400)), View((turn, Room()))), Way(lengths=1.0))
    at, step = np.array([[3.1, 0.5], [-0.4, -1.0]]), 1e-5
    found = surrogate.steps(at)
    for c in range(2):
        ahead, behind = (surrogate.steps(at + sign * step * np.eye(2)[c]).mean for sign in (1, -1))
        np.testing.assert_allclose(found.slope[:, :, c], (ahead - behind) / (2 * step), atol=1e-6)
    # Close to the truth, across the cut as well.
    np.testing.assert_allclose(found.mean[0], [3.1 + 0.15, 0.45 - 0.4 * np.sin(3.1)], atol=0.05)


def lattice_1d():
    axis = Axis(-3.0, 0.4, 16)
    nodes = Nodes([axis], np.arange(16))
    return nodes, Broad((axis,), np.zeros(1), np.full(1, 3.0))


def test_counts_against_sums_over_everything_and_the_objective_never_falls():
    nodes, broad = lattice_1d()
    n = len(nodes)
    prior = RNG.dirichlet(np.full(n + 1, 0.5), size=n)
    x, weight = RNG.normal(size=(80, 1)), RNG.uniform(0.5, 2.0, 80)
    y = 0.8 * x + 0.5 * RNG.normal(size=(80, 1))
    seen = Seen(nodes, broad, sp.csr_array(prior), x, y)
    gates, densities = np.zeros((80, n)), np.zeros((80, n + 1))
    np.add.at(gates, (np.arange(80)[:, None], nodes.gates(x)[0]), nodes.gates(x)[1])
    np.add.at(densities, (np.arange(80)[:, None], nodes.densities(y)[0]), nodes.densities(y)[1])
    densities[:, -1] = scipy.stats.norm.pdf(y[:, 0], 0, 3)
    p = np.einsum("ni,ij,nj->n", gates, prior, densities)
    np.testing.assert_allclose(seen.likelihood(prior.ravel()), p, rtol=1e-12)
    counts = prior * np.einsum("n,ni,nj->ij", weight / p, gates, densities)
    np.testing.assert_allclose(seen.counts(prior.ravel(), weight).reshape(n, n + 1), counts, atol=1e-12)
    alpha, values = 2.0, []
    for passes in range(6):
        A = learn_rows(seen, weight, alpha, passes).rows.toarray()
        np.testing.assert_allclose(A.sum(axis=1), 1.0, atol=1e-12)
        likelihood = weight @ np.log(seen.likelihood(A.ravel()))
        values.append(likelihood + alpha * np.sum(prior * np.log(np.where(A > 0, A, 1.0))))
    assert np.all(np.diff(values) > -1e-9)


def test_where_a_process_starts_follows_the_initial_states():
    nodes, broad = lattice_1d()
    x = np.concatenate([RNG.normal(-1.5, 0.3, 500), RNG.normal(1.5, 0.3, 500)])[:, None]
    two = learn_initial(nodes, broad, x, np.ones(1000))
    fresh = np.concatenate([RNG.normal(-1.5, 0.3, 4000), RNG.normal(1.5, 0.3, 4000)])[:, None]
    truth = np.log(0.5 * sum(scipy.stats.norm.pdf(fresh[:, 0], m, 0.3) for m in (-1.5, 1.5))).mean()
    assert two.log_prob(fresh).mean() > truth - 0.08
    assert scipy.stats.norm.logpdf(fresh[:, 0], 0, fresh.std()).mean() < truth - 0.5


# --- what is held out -------------------------------------------------------------------------------


def test_successors_and_folds_against_a_walk_along_the_trajectories():
    x = RNG.normal(size=(30, 7, 1))
    pairs = pairs_of(x)
    expected = np.array([-1 if (i + 1) % 6 == 0 else i + 1 for i in range(180)])
    np.testing.assert_array_equal(successors(pairs), expected)
    for fold in folds(pairs):
        assert not np.intersect1d(pairs.owner[fold.training], pairs.owner[fold.held_out]).size
        for origin, later in zip(fold.origins, fold.later, strict=True):
            for k, found in zip(AHEAD, later, strict=True):
                row, column = divmod(origin, 6)
                inside = column + k <= 6
                assert (found >= 0) == inside
                if inside:
                    np.testing.assert_array_equal(pairs.x_next[found], x[row, column + k])
    assert len(folds(pairs)) == 5


def test_one_series_is_held_out_in_blocks_that_touch_nothing():
    x = np.cumsum(RNG.normal(size=(1, 3001, 1)), axis=1)
    pairs = pairs_of(x, np.arange(3000))
    (fold,) = folds(pairs)
    assert 0.15 < len(fold.held_out) / 3000 < 0.25
    assert np.min(np.abs(fold.held_out[:, None] - fold.training[None])) >= 2
    assert np.sum(np.diff(fold.held_out) > 1) < 10


# --- the whole ------------------------------------------------------------------------------------


def test_forecasts_reach_the_truth_where_a_linear_step_does_not():
    x = walk(200, 21, 0)
    process = sm.fit(x, progress=False)
    assert process.form == "lattice"
    later = walk(300, 15, 1)[:, 10:]
    one = scipy.stats.norm.logpdf(later[:, 1, 0], bend(later[:, 0, 0]), 0.2)
    gap = np.asarray(process.transition.log_prob(later[:, 1], later[:, 0])) - one
    assert gap.mean() > -0.02
    # Four steps: the truth by a fine grid.
    grid = np.linspace(-5, 5, 2001)
    kernel = scipy.stats.norm.pdf(grid[None], bend(grid[:, None]), 0.2) * (grid[1] - grid[0])
    p = scipy.stats.norm.pdf(grid[None], bend(later[:, :1, 0]), 0.2)
    for _ in range(3):
        p = p @ kernel
    truth = np.log([np.interp(at, grid, row) for at, row in zip(later[:, 4, 0], p, strict=True)])
    found = np.asarray(process.transition.log_prob_later(later[:, 4], later[:, 0], 4, None))
    assert (found - truth).mean() > -0.02
    tried = {one["form"]: one["score"] for one in process.history.chosen["tried"]}
    assert tried["lattice"] > tried["gaussian"] + 0.05
    assert "lattice" in str(process.history)


def test_a_linear_system_is_never_worse_than_its_linear_step():
    x = walk(60, 15, 2, step=lambda x: 0.9 * x)
    later = walk(400, 2, 3, step=lambda x: 0.9 * x)
    truth = scipy.stats.norm.logpdf(later[:, 1, 0], 0.9 * later[:, 0, 0], 0.2)
    for form in (None, "lattice", "gaussian"):
        process = sm.fit(x, form=form, progress=False)
        assert form in (None, process.form)
        assert (np.asarray(process.transition.log_prob(later[:, 1], later[:, 0])) - truth).mean() > -0.02


def test_noise_that_is_not_normal_comes_in_by_counts():
    rng = np.random.default_rng(5)
    jumps = np.where(rng.random(8000) < 0.5, -1.0, 1.0) + 0.15 * rng.normal(size=8000)
    x = np.zeros(8001)
    for k in range(8000):
        x[k + 1] = 0.5 * x[k] + jumps[k]
    process = sm.fit(x, progress=False)
    at = np.array([[-1.5], [0.0], [1.0]])
    for away in (-1.0, 0.0, 1.0):
        expected = 0.5 * sum(scipy.stats.norm.pdf(away, m, 0.15) for m in (-1.0, 1.0))
        found = np.exp(np.asarray(process.transition.log_prob(0.5 * at + away, at)))
        np.testing.assert_allclose(found, expected, atol=0.25)


def test_states_outside_the_data_fall_back_to_the_linear_step():
    x = walk(100, 11, 4)
    low, high = x.min(), x.max()
    lattice, gaussian = (sm.fit(x, form=form, progress=False) for form in ("lattice", "gaussian"))
    rng = np.random.default_rng(11)
    for start in (low - 0.05 * (high - low), high + 0.05 * (high - low)):
        before = np.full((500, 1), start)
        after = bend(before) + 0.2 * rng.normal(size=(500, 1))
        mine, theirs = (np.asarray(p.transition.log_prob(after, before)) for p in (lattice, gaussian))
        assert np.mean(mine - theirs) > -0.1
    # Far out there is the linear step with its own noise, and something wider.
    far = high + 0.25 * (high - low)
    belief = lattice.propagate(1, initial=[far])[1]
    linear = gaussian.transition.F[0, 0] * far + gaussian.transition.b[0]
    assert abs(float(belief.quantile(0.5)) - linear) < 0.3


def test_a_period_has_steps_of_its_own():
    rng = np.random.default_rng(6)
    x = np.zeros((150, 13, 1))
    x[:, 0] = rng.normal(size=(150, 1))
    for k in range(12):
        x[:, k + 1] = (0.9 if k % 3 else -0.5) * x[:, k] + 0.3 * rng.normal(size=(150, 1))
    process = sm.fit(x, period=3, form="lattice", progress=False)
    for phase, slope in enumerate((-0.5, 0.9, 0.9)):
        after = process.propagate(1, initial=[1.0], inputs=[[phase]])[1]
        assert abs(float(after.mean()[0]) - slope) < 0.15


def test_angles_wrap_and_bounded_numbers_stay_inside():
    rng = np.random.default_rng(7)
    angle = np.mod(np.cumsum(0.4 * rng.normal(size=2000) + 0.05) + np.pi, 2 * np.pi) - np.pi
    plain = sm.fit(angle, form="lattice", progress=False)
    assert "circular" in " ".join(plain.history.chosen["notes"])
    process = sm.fit(angle, circular=["x0"], progress=False)
    ahead = process.propagate(1, initial=[3.1])[1]
    np.testing.assert_allclose(float(ahead.probability(-np.pi, np.pi)), 1.0, atol=1e-12)
    # Half of the steps cross the cut.
    assert 0.3 < float(ahead.probability(-np.pi, 0.0)) < 0.7
    level = np.abs(np.cumsum(0.3 * rng.normal(size=2000)))
    bounded = sm.fit(level, bounds={0: (0, None)}, progress=False)
    low = bounded.propagate(3, initial=[0.05])
    np.testing.assert_allclose([float(b.probability(0, np.inf)) for b in low], 1.0, atol=1e-12)


def test_what_is_refused_says_what_to_do():
    x = walk(10, 12, 8)
    for options, text in (
        ({"form": "latice"}, "Did you mean 'lattice'"),
        ({"form": "lattice", "size": 3}, "form 'factor' with size"),
        ({"bounds": {0: (0, None)}}, "Expected values of 'x0' between"),
        ({"bounds": {0: (None, None)}}, "one finite bound"),
        ({"bounds": {0: 3.0}}, "as a pair"),
        ({"circular": ["x1"]}, "Expected coordinates among"),
        ({"circular": {0: -1.0}}, "positive turn"),
        ({"form": "gaussian", "circular": [0]}, "Leave them out"),
        ({"form": "lattice", "inputs": np.zeros((10, 11, 1))}, "no inputs"),
    ):
        with pytest.raises(ValueError, match=text):
            sm.fit(x, progress=False, **options)
    with pytest.raises(ValueError, match="at most 3 coordinates"):
        sm.fit(RNG.normal(size=(20, 10, 4)), form="lattice", progress=False)
    with pytest.raises(ValueError, match="at least 40 pairs"):
        sm.fit(x[:3], form="lattice", progress=False)


def test_a_lattice_too_coarse_for_the_noise_says_so(monkeypatch):
    monkeypatch.setattr(place, "_BUDGET", (12, 12, 12))
    with pytest.warns(sm.LatticeWarning, match="too far apart"):
        sm.fit(walk(30, 12, 9), form="lattice", progress=False)


def test_what_looks_like_an_angle_or_bounded():
    turning = np.mod(np.cumsum(np.full(500, 0.3)), 360.0 / 57.29577951308232) * 57.29577951308232
    rng = np.random.default_rng(10)
    share, steps = rng.beta(1, 1, 500), rng.exponential(size=500)
    x = np.column_stack([turning, share, steps, rng.normal(size=500)])
    notes = looks_like(x[:-1], x[1:], ["heading", "share", "wait", "other"], (Room(),) * 4)
    assert [note.split("'")[1] for note in notes] == ["heading", "share", "wait"]
    room = rooms_of(["heading"], None, x[:, :1], ["heading"])[0]
    assert (room.ends, room.lower, room.upper) == ("wrapped", 0.0, 360.0)


def test_a_trained_process_stays_only_where_it_forecasts_no_worse_than_a_linear_step():
    x = walk(60, 12, 12)
    given, data = Options(x), gather(open_source(x))
    sharp = sm.fit(x, form="lattice", progress=False)
    kept = no_less_than_a_linear_step(sharp, given, data)
    assert kept.transition is sharp.transition
    scores = {one["form"]: one["score"] for one in kept.history.chosen["tried"]}
    assert scores["factor"] > scores["gaussian"]
    wrong = sm.GaussianTransition([[-0.9]], [0.0], [[0.04]])
    found = no_less_than_a_linear_step(sm.MarkovProcess(wrong, [0.0], history=sharp.history), given, data)
    assert found.form == "gaussian"
    before, after = x[:, :-1].reshape(-1), x[:, 1:].reshape(-1)
    np.testing.assert_allclose(
        [found.transition.F[0, 0], found.transition.b[0]], np.polyfit(before, after, 1), rtol=1e-8
    )
