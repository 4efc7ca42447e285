"""The estimator keeps scikit-learn's contract, and answers what the process does."""

import jax
import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import sosmarkov as sm
import tables
from sosmarkov.contracts.transition import AbstractTransition
from sosmarkov.inference.means import mean_after

# As small as a process can be: the checks ask about the contract, not about what is learned.
TINY = {"size": 1, "rank": 1, "steps": 1, "basis": "gaussian", "objective": "transitions", "background": 0.0}

# Checks that fit to data of a shape no other has, and so compile training for it: five seconds each, or
# share it with one that does: a minute in all.
# They pass as the others do (SOSMARKOV_EXHAUSTIVE=1); none is left out there.
DEAR = {
    "check_fit_score_takes_y",
    "check_estimators_overwrite_params",
    "check_dont_overwrite_parameters",
    "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit",
    "check_estimators_dtypes",
    "check_dtype_object",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit_idempotent",
    "check_fit_check_is_fitted",
    "check_pipeline_consistency",
    "check_f_contiguous_array_estimator",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_dict_unchanged",
    "check_n_features_in",
    "check_fit2d_predict1d",
}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([sm.MarkovEstimator(**TINY)])
def test_scikit_learn_finds_nothing_to_object_to(estimator, check):
    if check.func.__name__ in DEAR and not tables.EXHAUSTIVE:
        pytest.skip("compiles for a shape of its own: with SOSMARKOV_EXHAUSTIVE=1")
    check(estimator)


@pytest.mark.parametrize(
    ("family", "coupling", "transform"), [("gaussian", "kraus", "affine"), ("beta", "linear", "gaussian_cdf")]
)
def test_means_one_step_ahead_are_those_of_a_quadrature(family, coupling, transform):
    rng = np.random.default_rng(0)
    transition = tables.make_transition(family, coupling, 1, 0, n=3, transform=tables.TRANSFORMS[transform](rng, 1))
    grid = np.linspace(-15.0, 15.0, 30_001)
    for state in (-0.5, 1.0):
        density = np.exp(transition.log_prob(grid[:, None], [[state]]))
        expected = np.trapezoid(grid * density, grid)
        np.testing.assert_allclose(mean_after(transition, [[state]])[0, 0], expected, rtol=1e-6)


@pytest.fixture(scope="module")
def fitted():
    """One trained on three trajectories of two coordinates."""
    return sm.MarkovEstimator(**TINY).fit(trajectories(0))


def trajectories(seed):
    rng, x = np.random.default_rng(seed), np.zeros((3, 12, 2))
    for k in range(11):
        x[:, k + 1] = 0.7 * x[:, k] + rng.normal(size=(3, 2))
    return x


def test_the_score_is_the_mean_over_pairs_within_trajectories(fitted):
    X = trajectories(1)
    values = np.asarray(fitted.process_.transition.log_prob(X[:, 1:], X[:, :-1]))
    rows, labels = X.reshape(-1, 2), np.repeat(["b", "c", "a"], 12)
    np.testing.assert_allclose(fitted.score(X), values.mean(), rtol=1e-12)
    np.testing.assert_allclose(fitted.score(list(X)), values.mean(), rtol=1e-12)
    np.testing.assert_allclose(fitted.score(rows, groups=labels), values.mean(), rtol=1e-12)
    mixed = np.argsort(np.tile(np.arange(12), 3), kind="stable")
    np.testing.assert_allclose(fitted.score(rows[mixed], groups=labels[mixed]), values.mean(), rtol=1e-12)
    gap = X.copy()
    gap[1, 5, 0] = np.nan
    left = np.delete(values.reshape(-1), [11 + 4, 11 + 5])
    np.testing.assert_allclose(fitted.score(gap), left.mean(), rtol=1e-12)


def test_predictions_have_the_shape_of_what_was_given(fitted):
    X = trajectories(1)
    found = fitted.predict(X)
    assert found.shape == X.shape
    np.testing.assert_array_equal(fitted.predict(X[0]), found[0])
    np.testing.assert_array_equal(fitted.predict([X[0], X[1, :4]]), np.concatenate([found[0], found[1, :4]]))
    expected = fitted.process_.predict(X[2, 3]).mean()
    np.testing.assert_allclose(found[2, 3], expected, rtol=1e-10)
    gap = X[0].copy()
    gap[4] = np.nan
    np.testing.assert_array_equal(np.isnan(fitted.predict(gap)).all(axis=1), np.arange(12) == 4)


def test_samples_are_the_process_s_own(fitted):
    found = fitted.sample(4, 3, seed=2)
    assert found.shape == (4, 4, 2)
    np.testing.assert_array_equal(found, fitted.process_.sample(jax.random.key(2), 4, 3))


def test_names_of_a_frame_s_columns_are_kept():
    pandas = pytest.importorskip("pandas")
    rows = trajectories(0).reshape(-1, 2)
    frame = pandas.DataFrame({"speed": rows[:, 0], "height": rows[:, 1]})
    found = sm.MarkovEstimator(**TINY).fit(frame, groups=np.repeat([0, 1, 2], 12))
    assert found.process_.columns == ("speed", "height")
    assert list(found.feature_names_in_) == ["speed", "height"]
    with pytest.raises(ValueError, match="feature names"):
        found.predict(frame.rename(columns={"speed": "pace"}))


def test_what_cannot_be_trajectories_is_refused(fitted):
    X = trajectories(0)
    with pytest.raises(ValueError, match="groups only for rows"):
        fitted.score(X, groups=np.zeros(3))
    with pytest.raises(ValueError, match="shape \\(T, d\\) with one d"):
        fitted.score([X[0], X[1, :, :1]])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted.score(X[0], groups=np.zeros(3))
    with pytest.raises(ValueError, match="at least one pair"):
        fitted.score(X[0], groups=np.arange(12))


@pytest.mark.parametrize("form", ["lattice", "gaussian"])
def test_other_forms_predict_the_mean_of_their_own_belief(form):
    X = np.concatenate([trajectories(seed) for seed in range(3)])
    options = {"circular": {0: 20.0}, "bounds": {1: (-9.0, None)}} if form == "lattice" else {}
    found = sm.MarkovEstimator(form=form, **options).fit(X)
    assert found.process_.form == form
    asked = found.predict(X[0])
    for state, mean in zip(X[0, :3], asked, strict=False):
        np.testing.assert_allclose(mean, found.process_.propagate(1, initial=state).means()[1], rtol=1e-9)
    values = found.process_.transition.log_prob(X[:, 1:], X[:, :-1])
    np.testing.assert_allclose(found.score(X), np.mean(values), rtol=1e-12)
    assert found.sample(2, 3).shape == (2, 4, 2)
    generic = AbstractTransition.mean_after(found.process_.transition, X[0, :3])
    np.testing.assert_allclose(asked[:3], generic, rtol=1e-9)
