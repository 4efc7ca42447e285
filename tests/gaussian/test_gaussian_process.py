"""The verbs of a linear-Gaussian process: against powers of matrices and the joint Gaussian of a trajectory."""

import jax
import numpy as np
import pytest
from kalman import covariance, joint, moments, stable
from scipy import linalg, stats

import oracles
import sosmarkov as sm

WEIGHTS = np.array([0.6, 0.4])


def plain(d=2, seed=0):
    rng = np.random.default_rng(seed)
    F, b, Q = stable(rng, d), rng.normal(size=d), covariance(rng, d, 0.5)
    start = sm.GaussianBelief(2 * rng.normal(size=(2, d)), [covariance(rng, d) for _ in range(2)], WEIGHTS)
    return sm.MarkovProcess(sm.GaussianTransition(F, b, Q), start)


def seasonal(d=2, period=3, seed=1):
    rng = np.random.default_rng(seed)
    F = np.array([stable(rng, d) for _ in range(period)])
    Q = np.array([covariance(rng, d) for _ in range(period)])
    return sm.MarkovProcess(sm.GaussianTransition(F, rng.normal(size=(period, d)), Q), plain(d).initial)


def driven(d=2, e=3, seed=2):
    process, B = plain(d, seed), np.random.default_rng(seed).normal(size=(d, e))
    t = process.transition
    return sm.MarkovProcess(sm.GaussianTransition(t.F, t.b, t.Q, B), process.initial)


def steps_of(process, count, inputs=None):
    """(F, b, Q) of each step."""
    t = process.transition
    if t.period is not None:
        times = range(count) if inputs is None else inputs[:, 0].astype(int)
        return [(t.F[k % t.period], t.b[k % t.period], t.Q[k % t.period]) for k in times]
    shift = np.zeros((count, t.dim)) if t.B is None else inputs @ t.B.T
    return [(t.F, t.b + one, t.Q) for one in shift]


def carried(process, steps):
    """Weights, means and covariances after these steps, member by member."""
    start = process.initial
    found = []
    for m, P in zip(start.means, start.covariances, strict=True):
        for F, b, Q in steps:
            m, P = F @ m + b, F @ P @ F.T + Q
        found.append((m, P))
    return start.weights, *(np.array(part) for part in zip(*found, strict=True))


INPUTS = np.random.default_rng(3).normal(size=(6, 3))
CASES = {"plain": (plain, None), "seasonal": (seasonal, None), "driven": (driven, INPUTS)}


@pytest.fixture(params=CASES)
def case(request):
    make, inputs = CASES[request.param]
    return make(), inputs


def test_beliefs_are_carried_member_by_member(case):
    process, inputs = case
    beliefs = process.propagate(6, inputs=inputs)
    for k in range(7):
        weights, means, P = carried(process, steps_of(process, k, None if inputs is None else inputs[:k]))
        mean, cov = moments(weights, means, P)
        np.testing.assert_allclose(beliefs[k].mean(), mean, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(beliefs.covariances()[k], cov, rtol=1e-12, atol=1e-13)
    assert type(beliefs.means()) is np.ndarray
    assert beliefs.quantiles([0.1, 0.5], "x1").shape == (7, 2, 1)
    np.testing.assert_allclose(beliefs.quantiles(0.1)[4], beliefs[4].quantile(0.1), rtol=1e-15)
    x = np.random.default_rng(0).normal(size=(5, 2))
    expected = sum(w * stats.multivariate_normal(m, C).pdf(x) for w, m, C in zip(weights, means, P, strict=True))
    np.testing.assert_allclose(beliefs[-1].prob(x), expected, rtol=1e-11)
    one = (
        process.predict(process.initial, u=None if inputs is None else inputs[0])
        if process.transition.period is None
        else None
    )
    if one is not None:
        np.testing.assert_allclose(one.mean(), beliefs.means()[1], rtol=1e-14)


@pytest.mark.parametrize("make", [plain, seasonal])
def test_a_far_belief_is_the_same_power_of_the_step(make):
    process = make()
    for k in (1, 2, 7, 100):
        weights, means, P = carried(process, steps_of(process, k))
        found = process.belief_at(k)
        np.testing.assert_allclose(found.means, means, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(found.covariances, P, rtol=1e-11, atol=1e-12)
    # By then the start is forgotten: one phase goes on where the last left off.
    a, b = process.belief_at(10**6), process.belief_at(10**6 + (process.transition.period or 1))
    np.testing.assert_allclose(a.means, b.means, rtol=1e-10)
    np.testing.assert_allclose(a.covariances, b.covariances, rtol=1e-10)


def test_a_random_walk_goes_on_for_a_million_steps():
    walk = sm.MarkovProcess(sm.GaussianTransition(np.eye(2), [0.1, 0.0], 0.25 * np.eye(2)), [1.0, 2.0])
    found = walk.belief_at(10**6)
    np.testing.assert_allclose(found.mean(), [1.0 + 1e5, 2.0], rtol=1e-12)
    np.testing.assert_allclose(found.covariance(), 0.25e6 * np.eye(2), rtol=1e-12)
    for question in (walk.stationary, walk.spectrum, lambda: walk.autocorrelation(0, 3), lambda: walk.mixing_time(0.1)):
        with pytest.raises(ValueError, match="comes to rest, got a linear step with an eigenvalue of size 1"):
            question()
    apart = sm.MarkovProcess(sm.GaussianTransition([[2.0]], [0.0], [[1.0]]), [1.0])
    with pytest.raises(ValueError, match="numbers can hold"):
        apart.belief_at(10**6)


def test_inputs_that_stay_and_phases_are_processes_of_their_own():
    process = driven()
    u = np.array([0.3, -1.0, 0.5])
    steady = process.under(u)
    np.testing.assert_allclose(
        steady.propagate(4).means(), process.propagate(4, inputs=np.tile(u, (4, 1))).means(), rtol=1e-13
    )
    with pytest.raises(ValueError, match=r"process.under\(u\)"):
        process.stationary()
    with pytest.raises(ValueError, match="inputs of shape"):
        process.belief_at(10)
    np.testing.assert_array_equal(seasonal().under(4.0).transition.F, seasonal().transition.F[1])
    with pytest.raises(ValueError, match="with inputs, got one that was built without"):
        plain().under(u)


def test_the_long_run_against_scipy():
    process = plain(3)
    t, found = process.transition, process.stationary()
    P = linalg.solve_discrete_lyapunov(t.F, t.Q)
    np.testing.assert_allclose(found.covariance(), P, rtol=1e-10)
    np.testing.assert_allclose(found.mean(), np.linalg.solve(np.eye(3) - t.F, t.b), rtol=1e-12)
    expected = [np.linalg.matrix_power(t.F, k)[1] @ P[:, 1] / P[1, 1] for k in range(6)]
    np.testing.assert_allclose(process.autocorrelation(1, 5), expected, rtol=1e-10, atol=1e-12)
    values = np.linalg.eigvals(t.F)
    grid = np.stack(np.meshgrid(*[np.arange(30)] * 3, indexing="ij"), -1).reshape(-1, 3)
    products = np.prod(values**grid, axis=1)
    sizes = np.sort(np.abs(products))[::-1][:100]
    np.testing.assert_allclose(np.abs(process.spectrum()[:100]), sizes, rtol=1e-10)
    np.testing.assert_allclose(process.timescales(3), -1 / np.log(sizes[1:4]), rtol=1e-9)
    assert process.check().ok


def test_decay_is_what_the_spectrum_says():
    # An autoregression of one coordinate: Hermite polynomials of degree n decay by phi^n.
    process = sm.MarkovProcess(sm.GaussianTransition([[0.8]], [0.0], [[1.0]]), [3.0])
    np.testing.assert_allclose(process.spectrum()[:6], 0.8 ** np.arange(6), rtol=1e-13)


def test_mixing_is_never_said_too_early():
    process = plain(1, seed=4)
    target, x = process.stationary(), np.linspace(-30, 30, 60_001)[:, None]
    dx = float(x[1, 0] - x[0, 0])
    for tolerance in (0.3, 0.01, 1e-4):
        k = process.mixing_time(tolerance)
        away = 0.5 * dx * np.sum(np.abs(process.belief_at(k).prob(x) - target.prob(x)))
        assert away <= tolerance
        # Nor many steps too late.
        assert (
            k == 1
            or 0.5 * dx * np.sum(np.abs(process.belief_at(max(1, k - 12)).prob(x) - target.prob(x))) > 0.2 * tolerance
        )


def test_densities_of_steps_and_their_draws(case):
    process, inputs = case
    t, rng = process.transition, np.random.default_rng(0)
    x, x_next = rng.normal(size=(5, 2)), rng.normal(size=(5, 2))
    u = None if t.features is None else (np.arange(5.0)[:, None] if t.period else inputs[:5])
    steps = steps_of(process, 5, u)
    expected = [
        stats.multivariate_normal(F @ a + b, Q).logpdf(c) for (F, b, Q), a, c in zip(steps, x, x_next, strict=True)
    ]
    np.testing.assert_allclose(t.log_prob(x_next, x, u), expected, rtol=1e-12)
    one = None if u is None else u[0]
    table = t.log_prob(x_next[None], x[:, None], one)
    np.testing.assert_allclose(
        table[2, 3], stats.multivariate_normal(steps[0][0] @ x[2] + steps[0][1], steps[0][2]).logpdf(x_next[3])
    )
    np.testing.assert_array_equal(t.mass(x, u), np.ones(5))
    drawn = t.sample(0, np.tile(x[0], (40_000, 1)), one)
    F, b, Q = steps[0]
    np.testing.assert_allclose(drawn.mean(0), F @ x[0] + b, atol=5 * np.sqrt(Q.max() / 40_000))
    np.testing.assert_allclose(np.cov(drawn.T), Q, atol=0.03)
    with pytest.raises(ValueError, match="input"):
        t.log_prob(x_next, x, INPUTS[0] if u is None else None)


def test_likelihoods_with_gaps_are_those_of_the_joint_gaussian(case):
    process, inputs = case
    rng = np.random.default_rng(8)
    paths, given = [], []
    for gaps in ((), (2, 3), (0, 4), (0, 1, 6), range(7)):
        path = rng.normal(size=(7, 2))
        path[list(gaps)] = np.nan
        paths.append(path)
        given.append(None if inputs is None else rng.normal(size=inputs.shape))
    found = process.log_likelihood(paths, inputs=None if inputs is None else given)
    assert type(found) is np.ndarray
    for path, u, value in zip(paths, given, found, strict=True):
        there = ~np.isnan(path).reshape(-1)
        start, expected = process.initial, -np.inf
        for w, m, P in zip(start.weights, start.means, start.covariances, strict=True):
            mean, cov = joint(steps_of(process, 6, u), m, P)
            if there.any():
                log = stats.multivariate_normal(mean[there], cov[np.ix_(there, there)]).logpdf(path.reshape(-1)[there])
                expected = np.logaddexp(expected, np.log(w) + log)
        # Given x_0 the rest does not depend on the member; where it is missing, the library and the joint differ not.
        if 0 not in np.flatnonzero(np.isnan(path[:, 0])):
            np.testing.assert_allclose(value, expected, rtol=1e-11)
        elif not there.any():
            assert value == 0.0
        else:
            np.testing.assert_allclose(value, expected, rtol=1e-11)


def test_trajectories_have_the_moments_of_the_joint_gaussian(case):
    process, inputs = case
    paths = process.sample(1, 30_000, 4, inputs=None if inputs is None else inputs[:4])
    assert type(paths) is np.ndarray
    assert paths.shape == (30_000, 5, 2)
    np.testing.assert_array_equal(paths, process.sample(1, 30_000, 4, inputs=None if inputs is None else inputs[:4]))
    start = process.initial
    parts = [
        joint(steps_of(process, 4, None if inputs is None else inputs[:4]), m, P)
        for m, P in zip(start.means, start.covariances, strict=True)
    ]
    mean, cov = moments(start.weights, *(np.array(part) for part in zip(*parts, strict=True)))
    flat = paths.reshape(len(paths), -1)
    assert np.all(np.abs(flat.mean(0) - mean) < 5 * np.sqrt(np.diag(cov) / len(flat)))
    np.testing.assert_allclose(np.cov(flat.T), cov, atol=0.12)
    assert process.sample(jax.random.key(0), 2, 3, inputs=None if inputs is None else inputs[:3]).shape == (2, 4, 2)


def test_chapman_kolmogorov_holds_for_its_own_draws():
    process = plain()
    found = process.ck_test(process.sample(0, 3000, 8), 4)
    away = np.abs(found.predicted - found.observed) / np.maximum(found.standard_error, 1e-3)
    assert np.max(away) < 6
    np.testing.assert_allclose(found.predicted.sum(-1), 1.0, atol=1e-12)


def test_boxes_over_time_where_they_are_closed():
    process = plain(1)
    t = process.transition
    x, w = oracles.gauss_legendre(-14, 14, 60, 16)
    p0 = w * process.initial.prob(x[:, None])
    inside = stats.norm.cdf(1.0, t.F[0] * x + t.b, np.sqrt(t.Q[0])) - stats.norm.cdf(
        -0.5, t.F[0] * x + t.b, np.sqrt(t.Q[0])
    )
    expected = p0 @ inside.reshape(-1)
    np.testing.assert_allclose(process.stay_probability(-0.5, 1.0, 1), [expected], rtol=1e-11)
    np.testing.assert_allclose(process.exit_probability(-0.5, 1.0, 1), [1 - expected], rtol=1e-11)
    np.testing.assert_allclose(process.reach_probability(-0.5, 1.0, 1), [expected], rtol=1e-11)
    both = process.reach_probability(-0.5, 1.0, 1, avoid=(0.5, 2.0))
    np.testing.assert_allclose(both, process.stay_probability(-0.5, 0.5, 1), rtol=1e-11)
    np.testing.assert_array_equal(process.stay_probability(-np.inf, np.inf, 4), np.ones(4))
    np.testing.assert_array_equal(process.reach_probability(-np.inf, np.inf, 4), np.ones(4))
    assert float(process.mean_first_passage(-np.inf, np.inf)) == 0.0
    for question in (
        lambda: process.stay_probability(-0.5, 1.0, 2),
        lambda: process.reach_probability(-0.5, 1.0, 2),
        lambda: process.mean_first_passage(-0.5, 1.0),
    ):
        with pytest.raises(ValueError, match="form='lattice' or form='factor', or count trajectories"):
            question()


def test_starts_of_every_kind():
    process = plain()
    t = process.transition
    state = process.propagate(3, initial={"x0": 0.5, "x1": -1.0})
    m, P = np.array([0.5, -1.0]), np.zeros((2, 2))
    for _ in range(3):
        m, P = t.F @ m + t.b, t.F @ P @ t.F.T + t.Q
    np.testing.assert_allclose(state[3].mean(), m, rtol=1e-13)
    np.testing.assert_allclose(state[3].covariance(), P, rtol=1e-13)
    mixed = sm.MixtureBelief([sm.KnownState([0.5, -1.0]), process.initial], [0.25, 0.75])
    a = process.propagate(3, initial=mixed)[3].mean()
    np.testing.assert_allclose(a, 0.25 * m + 0.75 * process.propagate(3)[3].mean(), rtol=1e-12)
    np.testing.assert_allclose(process.belief_at(3, initial=mixed).mean(), a, rtol=1e-12)
    assert process.sample(0, 3, 2, initial=mixed).shape == (3, 3, 2)
    np.testing.assert_allclose(process.transition.mean([0.5, -1.0]), t.F @ [0.5, -1.0] + t.b)
    assert "linear step with Gaussian noise" in repr(process)
    assert process.with_columns(["a", "b"]).propagate(1)[1].columns == ("a", "b")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([[1.0]], [0.0, 1.0], [[1.0]]), "Expected F, b and Q of shapes"),
        ((np.ones((2, 1, 1)), np.ones((3, 1)), [[1.0]]), "Expected F, b and Q of shapes"),
        (([[1.0]], [0.0], [[0.0]]), "Expected Q to be positive definite"),
        (([[1.0]], [0.0], [[1.0]], [[1.0], [2.0]]), r"Expected B of shape \(1, e\)"),
        ((np.ones((2, 1, 1)), [0.0], [[1.0]], [[1.0]]), "inputs \\(B\\) or a period, got both"),
        (([[np.inf]], [0.0], [[1.0]]), "finite"),
    ],
)
def test_what_is_no_step_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        sm.GaussianTransition(*arguments)
