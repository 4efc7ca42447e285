"""The linear step from data: against statsmodels, definitions and rows left out by hand."""

import numpy as np
import pytest
import statsmodels.api as statsmodels
from kalman import covariance, stable
from scipy import stats

import sosmarkov as sm
from sosmarkov.data.dataset import from_pairs, from_trajectories
from sosmarkov.gaussian.learn import linear_step, phase_steps
from sosmarkov.learning.gaussian import learn_gaussian

RNG = np.random.default_rng(21)


def simulated(d=2, e=0, n=400, seed=0):
    rng = np.random.default_rng(seed)
    F, b, Q, B = stable(rng, d), rng.normal(size=d), covariance(rng, d), rng.normal(size=(d, e))
    x, u = 5 + 100 * rng.normal(size=(n, d)), rng.normal(size=(n, e))
    x_next = x @ F.T + b + u @ B.T + rng.multivariate_normal(np.zeros(d), Q, n)
    return x, x_next, u, (F, b, Q, B)


@pytest.mark.parametrize("e", [0, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_least_squares_as_statsmodels_has_it(e, weighted):
    x, x_next, u, _ = simulated(e=e)
    weight = RNG.random(len(x)) + 0.1 if weighted else np.ones(len(x))
    found = linear_step(x, x_next, weight, u if e else None).transition
    Z = np.concatenate([x, u, np.ones((len(x), 1))], axis=1)
    for c in range(2):
        fit = statsmodels.WLS(x_next[:, c], Z, weights=weight).fit()
        np.testing.assert_allclose(found.F[c], fit.params[:2], rtol=1e-10)
        np.testing.assert_allclose(found.b[c], fit.params[-1], rtol=1e-8)
        if e:
            np.testing.assert_allclose(found.B[c], fit.params[2:-1], rtol=1e-9)
        if not weighted:
            np.testing.assert_allclose(found.Q[c, c], fit.mse_resid, rtol=1e-10)


def test_the_noise_is_unbiased_whatever_the_weights():
    x, _, _, (F, b, Q, _) = simulated(n=12)
    weight, rng = np.random.default_rng(3).random(12) ** 2, np.random.default_rng(1)
    found = [
        linear_step(x, x @ F.T + b + rng.multivariate_normal([0, 0], Q, 12), weight).transition.Q for _ in range(1500)
    ]
    error = np.std(found, axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(np.mean(found, axis=0) - Q) < 4.5 * error)


def test_weights_count_rows():
    x, x_next, _, _ = simulated(n=40)
    weight = np.where(np.arange(40) < 30, 1.0, 0.0)
    a, b = linear_step(x, x_next, weight), linear_step(x[:30], x_next[:30])
    np.testing.assert_allclose(a.transition.Q, b.transition.Q, rtol=1e-12)
    assert a.log_score == pytest.approx(b.log_score, rel=1e-12)


def test_the_score_is_that_of_rows_left_out():
    x, x_next, _, _ = simulated(n=15)
    found = linear_step(x, x_next)
    logs = []
    for i in range(15):
        kept = np.arange(15) != i
        one = linear_step(x[kept], x_next[kept]).transition
        logs.append(stats.multivariate_normal(one.F @ x[i] + one.b, found.transition.Q).logpdf(x_next[i]))
    assert found.log_score == pytest.approx(np.mean(logs), rel=1e-9)


def phases(n, period=3, seed=0):
    rng = np.random.default_rng(seed)
    F = np.array([stable(rng, 2) for _ in range(period)])
    phase, x = rng.integers(period, size=n), rng.normal(size=(n, 2))
    x_next = np.einsum("nij,nj->ni", F[phase], x) + phase[:, None] + 0.1 * rng.normal(size=(n, 2))
    return x, x_next, phase


def test_without_a_ridge_phases_are_steps_of_their_own():
    x, x_next, phase = phases(300)
    found = phase_steps(x, x_next, phase, 3, ridge=0.0).transition
    for k in range(3):
        own = linear_step(x[phase == k], x_next[phase == k]).transition
        np.testing.assert_allclose(found.F[k], own.F, rtol=1e-10)
        np.testing.assert_allclose(found.b[k], own.b, rtol=1e-9)
        np.testing.assert_allclose(found.Q[k], own.Q, rtol=1e-10)


def test_the_ridge_is_rows_of_the_pooled_step():
    x, x_next, phase = phases(90)
    pooled, strength = linear_step(x, x_next).transition, 7.0
    found = phase_steps(x, x_next, phase, 3, ridge=strength).transition
    Z = np.concatenate([x, np.ones((90, 1))], axis=1)
    target = x @ pooled.F.T + pooled.b
    for k in range(3):
        own = phase == k
        rows = np.concatenate([Z[own], Z * np.sqrt(strength / 90)])
        wanted = np.concatenate([x_next[own], target * np.sqrt(strength / 90)])
        beta = np.linalg.lstsq(rows, wanted, rcond=None)[0]
        np.testing.assert_allclose(found.F[k], beta[:2].T, rtol=1e-9)
        np.testing.assert_allclose(found.b[k], beta[2], rtol=1e-8, atol=1e-10)
    same = phase_steps(x, x_next, phase, 3, ridge=np.inf).transition
    np.testing.assert_allclose(same.F, np.repeat(pooled.F[None], 3, 0), rtol=1e-10)
    np.testing.assert_allclose(same.Q, np.repeat(pooled.Q[None], 3, 0), rtol=1e-10)


def test_the_ridge_follows_the_data():
    assert phase_steps(*phases(300), 3).ridge < 3
    x, x_next, _, _ = simulated(n=120)
    assert phase_steps(x, x_next, RNG.integers(12, size=120), 12).ridge >= 30
    with pytest.raises(ValueError, match="ridge above zero"):
        phase_steps(x[:20], x_next[:20], np.arange(20) % 10, 10, ridge=0.0)


def test_learning_from_trajectories():
    truth = sm.MarkovProcess(
        sm.GaussianTransition([[0.9, 0.2], [-0.1, 0.8]], [0.1, -0.2], [[0.3, 0.1], [0.1, 0.2]]),
        sm.GaussianBelief([[0.0, 0.0], [6.0, 1.0]], [0.5 * np.eye(2), np.eye(2)]),
    )
    paths = truth.sample(0, 200, 10)
    paths[3, 4] = np.nan
    data = from_trajectories(paths)
    found = learn_gaussian(data)
    np.testing.assert_allclose(found.initial.mean(), paths[:, 0].mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.initial.covariance(), np.cov(paths[:, 0].T), rtol=1e-12)
    np.testing.assert_allclose(found.transition.F, truth.transition.F, atol=0.05)
    assert found.history.chosen["form"] == "gaussian"
    assert found.history.scores["transitions"] == pytest.approx(
        float(np.mean(found.transition.log_prob(data.pairs.x_next, data.pairs.x))), abs=0.01
    )
    assert "least squares" in repr(found)
    two = learn_gaussian(data, components=None)
    assert len(two.initial.weights) == 2
    assert np.mean(two.initial.log_prob(paths[:, 0])) > np.mean(found.initial.log_prob(paths[:, 0])) + 0.5
    assert len(learn_gaussian(data, components=3).initial.weights) == 3
    times = np.tile(np.arange(10.0)[:, None], (200, 1, 1))
    seasonal = learn_gaussian(from_trajectories(paths, inputs=times), period=4)
    assert seasonal.transition.period == 4
    assert seasonal.belief_at(10**6).dim == 2


def test_starts_without_spread():
    x, x_next, _, _ = simulated(n=50)
    known = learn_gaussian(from_pairs(x, x_next, np.tile([1.0, 2.0], (5, 1))))
    assert isinstance(known.initial, sm.KnownState)
    flat = learn_gaussian(from_pairs(x, x_next, [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]))
    Q = flat.transition.Q
    np.testing.assert_allclose(flat.initial.covariance(), (np.diag([2.0, 0.0]) + Q) / 4, rtol=1e-12)
    with pytest.raises(ValueError, match="at least 12 initial states for 2 members, got 3"):
        learn_gaussian(from_pairs(x, x_next, [[1.0, 0.0], [2.0, 0.0], [3.0, 1.0]]), components=2)


def test_what_cannot_be_learned_from_is_named():
    x, x_next, u, _ = simulated(e=1, n=30)
    names = ["level", "flow"]
    with pytest.raises(ValueError, match=r"at least 5 pairs .* got 4"):
        linear_step(x[:4], x_next[:4])
    with pytest.raises(ValueError, match="constant ones: 'flow'"):
        linear_step(np.c_[x[:, 0], np.ones(30)], x_next, columns=names)
    with pytest.raises(ValueError, match="constant ones: 'input 0'"):
        linear_step(x, x_next, u=np.ones((30, 1)), columns=names)
    with pytest.raises(ValueError, match="'flow', a linear function of 'level'"):
        linear_step(np.c_[x[:, 0], 2 * x[:, 0] + 1], x_next, columns=names)
    with pytest.raises(ValueError, match="'input 0', a linear function of 'level'"):
        linear_step(x, x_next, u=x[:, :1] * 3, columns=names)
    with pytest.raises(ValueError, match="noise of their own, got 'flow'"):
        linear_step(x, np.c_[x_next[:, 0], x[:, 0] - x[:, 1]], columns=names)
    with pytest.raises(ValueError, match="time of each step"):
        learn_gaussian(from_pairs(x, x_next, x), period=3)
    with pytest.raises(ValueError, match="ridge with a period alone"):
        learn_gaussian(from_pairs(x, x_next, x), ridge=3.0)
