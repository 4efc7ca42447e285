"""An ensemble answers every verb of a process: the mixture of its members' answers, weighed by their evidence."""

import jax
import numpy as np
import pytest

import sosmarkov as sm
from sosmarkov.process.model import Model
from tables import make_process

SENSOR = sm.GaussianSensor(0, 0.7)
READINGS = np.array([0.4, np.nan, -0.6, 0.9])[:, None]
X = np.linspace(-4.0, 4.0, 41)[:, None]
BOX = ([-0.8], [1.1])


@pytest.fixture(scope="module")
def ensemble():
    return sm.Ensemble([make_process("gaussian", "kraus", 1, seed=seed) for seed in (3, 5)])


def mixed(weights, answers):
    weights = np.asarray(weights)
    return np.tensordot(weights / weights.sum(), np.stack([np.asarray(answer) for answer in answers]), axes=1)


def test_filters_are_weighed_by_their_evidence(ensemble):
    found = ensemble.smooth(READINGS, sensor=SENSOR)
    each = [member.smooth(READINGS, sensor=SENSOR) for member in ensemble]
    total = np.array([np.cumsum(np.asarray(one.filtered.log_evidences)) for one in each])
    # p(o_0, ..., o_k) of the mixture is the mean of the members' own.
    np.testing.assert_allclose(np.cumsum(found.filtered.log_evidences), np.log(np.exp(total).mean(axis=0)), rtol=1e-12)
    for k in range(4):
        after, before = np.exp(total[:, k]), np.exp(total[:, k - 1]) if k else np.ones(2)
        np.testing.assert_allclose(
            found.filtered.beliefs[k].prob(X),
            mixed(after, [one.filtered.beliefs[k].prob(X) for one in each]),
            rtol=1e-10,
        )
        np.testing.assert_allclose(
            found.filtered.predicted[k].mean(), mixed(before, [one.filtered.predicted[k].mean() for one in each])
        )
        expected = mixed(np.exp(total[:, -1]), [one.beliefs[k].prob(X) for one in each])
        np.testing.assert_allclose(found.beliefs[k].prob(X), expected, rtol=1e-10)
    np.testing.assert_allclose(found.beliefs.means()[2], found.beliefs[2].mean(), rtol=1e-10)
    drawn = np.asarray(found.sample(jax.random.key(0), 300))
    assert drawn.shape == (300, 4, 1)
    mean, std = float(found.beliefs[1].mean()[0]), float(found.beliefs[1].covariance()[0, 0]) ** 0.5
    assert abs(drawn[:, 1, 0].mean() - mean) < 4.5 * std / np.sqrt(300)


def test_streams_give_what_the_batch_gives(ensemble):
    whole = ensemble.filter(READINGS, sensor=SENSOR)
    belief, total = ensemble.update(ensemble.initial, READINGS[0], sensor=SENSOR)
    for k, reading in enumerate(READINGS[1:]):
        if k == 1:
            belief, found = ensemble.advance(belief, reading, sensor=SENSOR)
        else:
            belief, found = ensemble.update(ensemble.predict(belief), reading, sensor=SENSOR)
        total = total + found
    np.testing.assert_allclose(total, whole.log_evidence, rtol=1e-11)
    np.testing.assert_allclose(belief.prob(X), whole.beliefs[-1].prob(X), rtol=1e-9)


def test_beliefs_and_boxes_are_means_over_members(ensemble):
    half = [0.5, 0.5]
    for ask in (
        lambda m: m.propagate(2)[2].prob(X),
        lambda m: m.belief_at(7, initial=[0.2]).prob(X),
        lambda m: m.stationary().prob(X),
        lambda m: m.stay_probability(*BOX, 3, initial=[0.2]),
        lambda m: m.exit_probability(*BOX, 3),
        lambda m: m.reach_probability(*BOX, 3, avoid=([2.0], [3.0])),
        lambda m: m.mean_first_passage(*BOX, initial=[2.0]),
        lambda m: np.exp(m.log_likelihood([[[0.1], [np.nan], [0.3]]])),
    ):
        np.testing.assert_allclose(ask(ensemble), mixed(half, [ask(member) for member in ensemble]), rtol=1e-10)
    # What it believed is a start: weights and all.
    belief, _ = ensemble.update(ensemble.initial, [2.0], sensor=SENSOR)
    each = [m.propagate(2, initial=b)[2].prob(X) for m, b in zip(ensemble, belief.members, strict=True)]
    expected = mixed(belief.weights, each)
    np.testing.assert_allclose(ensemble.propagate(2, initial=belief)[2].prob(X), expected, rtol=1e-10)


def test_the_long_run_is_that_of_all_members(ensemble):
    values = np.abs(np.concatenate([member.spectrum()[1:] for member in ensemble]))
    np.testing.assert_allclose(ensemble.timescales(3), -1.0 / np.log(np.sort(values)[::-1][:3]), rtol=1e-9)
    assert ensemble.mixing_time(1e-2) == max(member.mixing_time(1e-2) for member in ensemble)
    # Moments of x_0 x_k under the mixture of the two chains, each started from its own long run.
    long_run = [member.stationary() for member in ensemble]
    means, seconds = ([float(b.moment([power])) for b in long_run] for power in (1, 2))
    own = [np.asarray(member.autocorrelation(0, 3)) for member in ensemble]
    both = mixed([1, 1], [c * (s - m**2) + m**2 for c, s, m in zip(own, seconds, means, strict=True)])
    expected = (both - np.mean(means) ** 2) / (np.mean(seconds) - np.mean(means) ** 2)
    np.testing.assert_allclose(ensemble.autocorrelation(0, 3), expected, rtol=1e-8)
    reports = [member.check() for member in ensemble]
    assert ensemble.check().amplification == max(report.amplification for report in reports)
    assert ensemble.check().smallest_log_density == min(report.smallest_log_density for report in reports)


def test_draws_come_from_all_members(ensemble):
    drawn = np.asarray(ensemble.sample(jax.random.key(1), 2000, 2))
    assert drawn.shape == (2000, 3, 1)
    belief = ensemble.propagate(2)[2]
    std = float(belief.covariance()[0, 0]) ** 0.5
    assert abs(drawn[:, 2, 0].mean() - float(belief.mean()[0])) < 4.5 * std / np.sqrt(2000)
    data = np.asarray(ensemble[0].sample(jax.random.key(0), 500, 2))
    found, each = ensemble.ck_test(data, 2), [member.ck_test(data, 2) for member in ensemble]
    np.testing.assert_allclose(found.predicted, np.mean([one.predicted for one in each], axis=0), rtol=1e-12)


def test_a_process_and_an_ensemble_answer_the_same_verbs(ensemble):
    verbs = [name for name in dir(Model) if not name.startswith("_") and callable(getattr(Model, name))]
    assert len(verbs) > 15
    for model in (ensemble, ensemble[0]):
        assert isinstance(model, Model)
        assert not getattr(type(model), "__abstractmethods__", ())
        assert model.members[0].dim == model.dim
        assert all(callable(getattr(model, verb)) for verb in verbs)
    assert "Ensemble of 2" in repr(ensemble)
