"""Every option of `fit` and `fit_network` in every mode: it changes what training is given, or it is refused.

Nothing is trained: what reaches the training loop, the scores and the result is written down instead, and compared
with what reaches them without the option.
"""

import inspect

import jax
import numpy as np
import pandas
import pytest

import sosmarkov as sm
from sosmarkov.core import checks
from sosmarkov.data import stream
from sosmarkov.data.history import PhaseHistory
from sosmarkov.learning import fit as fitting
from sosmarkov.learning import forms, phases
from sosmarkov.learning.checkpoint import fingerprint
from sosmarkov.learning.factor import plain, readings, rolled, sensed
from sosmarkov.learning.lattice.fit import rows_of
from sosmarkov.learning.options import Model, Options, Run, Training, names
from sosmarkov.networks import fit as network_fitting
from sosmarkov.networks.fit import NetworkOptions

RNG = np.random.default_rng(0)
COUNT, LENGTH = 30, 6
X = RNG.normal(size=(COUNT, LENGTH, 1)).cumsum(axis=1)
READINGS = X + 0.3 * RNG.normal(size=X.shape)
U = RNG.normal(size=(COUNT, LENGTH - 1, 1))
PAIRS = X[:, :-1].reshape(-1, 1), X[:, 1:].reshape(-1, 1)
START = {"transitions": PAIRS, "initial": X[:, 0]}
READ = {"trajectories": X, "observations": READINGS}
FRAME = pandas.DataFrame({"a": X.reshape(-1), "b": np.sin(3 * X).reshape(-1)})
FRAME["run"], FRAME["k"] = np.repeat(np.arange(COUNT), LENGTH), np.tile(np.arange(LENGTH)[::-1], COUNT)
FRAME["pair"] = FRAME["run"] // 2
SENSOR = sm.GaussianSensor(coordinates=[0], std=[0.3])
MANY = np.concatenate([X + 0.1 * RNG.normal(size=X.shape) for _ in range(8)])

MODES = {
    "plain": {"trajectories": X, "form": "factor"},
    "transitions": {"trajectories": X, "objective": "transitions"},
    "pairs": START | {"form": "factor"},
    "pairs' transitions": START | {"objective": "transitions"},
    "series": {"trajectories": X.reshape(-1), "form": "factor"},
    "inputs": {"trajectories": X, "inputs": U},
    "period": {"trajectories": X, "period": 2, "form": "factor"},
    "read": READ | {"sensor": "linear", "surrogate": True},
    "read transitions": READ | {"sensor": "linear", "objective": "transitions"},
    "joint": READ | {"sensor": "joint"},
    "known": READ | {"sensor": SENSOR, "surrogate": True},
    "latent": {"observations": READINGS, "dim": 1},
    "linear": {"trajectories": X, "coupling": "linear"},
    "paired": {"trajectories": X, "coupling": "paired"},
    "barrier": {"trajectories": X, "coupling": "paired", "objective": "barrier"},
    "basis": {"trajectories": X, "basis": sm.GaussianBasis([[0.0], [1.0]], [[1.0], [1.0]])},
    "stream": {"trajectories": stream.StoredArray(MANY)},
    "frame": {"trajectories": FRAME, "trajectory": "run", "columns": ["a", "b"], "form": "factor"},
    "by evidence": {"trajectories": X},
    "lattice": {"trajectories": X, "form": "lattice"},
    "lattice of pairs": START | {"form": "lattice"},
    "lattice of a series": {"trajectories": X.reshape(-1), "form": "lattice"},
    "lattice with a period": {"trajectories": X, "period": 2, "form": "lattice"},
    "gaussian": {"trajectories": X, "form": "gaussian"},
    "network": {"table": {"a": X[:, 0], "b": X[:, 1]}, "parents": {"b": "a"}},
}

# Values that no mode has, nor chooses by itself; with the modes for which another one does that.
OTHERS = {
    "trajectories": {"": X + np.sin(X), "stream": stream.StoredArray(MANY + np.sin(MANY)),
                     "frame": FRAME.assign(b=FRAME["a"] ** 2)},
    "transitions": {"": tuple(2.0 * part for part in PAIRS)},
    "initial": {"": X[:, 1]},
    "weights": {"": np.linspace(0.5, 1.5, COUNT), "pairs": np.linspace(0.5, 1.5, len(PAIRS[0])), "series": [2.0]},
    "inputs": {"": U + 1.0, "pairs": U.reshape(-1, 1)},
    "observations": {"": READINGS + np.sin(X)},
    "trajectory": {"": "pair"},
    "time": {"": "k"},
    "columns": {"": ["b"]},
    "size": {"": 3},
    "rank": {"": 5},
    "background": {"": 1e-2},
    "form": {"": "gaussian", "gaussian": "lattice", "by evidence": "lattice"},
    "circular": {"": [0]},
    "bounds": {"": {0: (-100.0, None)}},
    "basis": {"": "gaussian-full", "read": "gaussian", "known": "gaussian", "latent": "gaussian", "frame": "gaussian"},
    "coupling": {"": "paired", "paired": "linear", "barrier": "linear"},
    "transform": {"": sm.Standardize([0.5], [2.0]), "frame": sm.Standardize([0.5, 0.5], [2.0, 1.0])},
    "features": {"": "network"},
    "period": {"": 3},
    "sensor": {"": sm.GaussianSensor(coordinates=[0], std=[0.5])},
    "sensor_size": {"": 3},
    "dim": {"": 2},
    "steps": {"": 70},
    "batch_size": {"": 7},
    "learning_rate": {"": 2e-2},
    "validation": {"": 0.3},
    "patience": {"": 60},
    "seed": {"": 1},
    "objective": {"": 0.5},
    "horizon": {"": 2},
    # None may have found either: one of them is another.
    "surrogate": {"": True, "plain": False, "linear": False, "paired": False, "basis": False, "inputs": False,
                  "frame": False, "pairs": False, "pairs' transitions": True, "series": False, "read": False,
                  "read transitions": True, "known": False},
    "members": {"": 2},
    "progress": {"": False},
    "checkpoint": {"": "there"},
    "resume": {"": "there"},
    "table": {"": {"a": X[:, 1], "b": X[:, 2]}},
    "blocks": {"": {"b": 1, "a": 1}},
    "parents": {"": {}},
}  # fmt: skip


def value_of(option, mode):
    values = OTHERS[option]
    return values.get(mode, values.get(mode.split("'")[0].split(" ")[0], values[""]))


class Reached(Exception):
    """Training is over."""


@pytest.fixture
def reached(monkeypatch):
    """What a call would train, score and name, as a fingerprint; training leaves everything as it is."""
    written = []

    def write(*things):
        written.extend((str(jax.tree.structure(thing)), jax.tree.leaves(thing)) for thing in things)

    def train(parameters, loss, training, held_out, plan, **_):
        write(plan, str(loss), parameters, training(0) if callable(training) else training, held_out)
        return parameters, PhaseHistory.begun(plan.name, np.zeros(jax.tree.leaves(parameters)[0].shape[0]), "steps")

    def evaluate(loss, parameters, batch):
        write(str(loss), parameters, batch)
        return np.zeros(jax.tree.leaves(parameters)[0].shape[0])

    def realise(self, parameters, history):
        raise Reached

    class Named:
        @staticmethod
        def columns(given, dim):
            written.append(checks.columns(given, dim))
            return written[-1]

        one_of = staticmethod(checks.one_of)

    def checkpoint(path, identity, resume):
        written.append((path, resume))

    class Shown(phases.Progress):
        def __init__(self, wanted):
            written.append(wanted)
            super().__init__(False)

    monkeypatch.setattr(stream, "RESIDENT", 64)
    monkeypatch.setattr(rolled, "_COUNT", 50)
    monkeypatch.setattr(rolled, "_COUNT_EACH", 1)
    monkeypatch.setattr(phases, "train", train)
    monkeypatch.setattr(phases, "Progress", Shown)
    monkeypatch.setattr(fitting, "Checkpoint", checkpoint)
    monkeypatch.setattr(fitting, "checks", Named)

    def chosen(rows, folds, view):
        write(rows, list(folds), view)
        raise Reached

    def rows(data):
        write(data.starts)
        return rows_of(data)

    def least_squares(data, **options):
        write(data.pairs, data.starts, options)
        raise Reached

    monkeypatch.setattr(forms, "checks", Named)
    monkeypatch.setattr(forms, "Progress", Shown)
    monkeypatch.setattr(forms, "choose", chosen)
    monkeypatch.setattr(forms, "rows_of", rows)
    monkeypatch.setattr(forms, "learn_gaussian", least_squares)
    tasks = plain.Plain, readings.Read, sensed.Joint, network_fitting._Joint
    for module in (plain, readings, network_fitting):
        monkeypatch.setattr(module, "evaluate", evaluate)
    for task in tasks:
        monkeypatch.setattr(task, "realise", realise)

    def run(mode, options):
        written.clear()
        with pytest.raises(Reached):
            (sm.fit_network if mode == "network" else sm.fit)(**options)
        return fingerprint(written)

    return run


@pytest.mark.parametrize("mode", MODES)
def test_every_option_changes_something_or_is_refused(mode, reached):
    given = MODES[mode]
    before = reached(mode, given)
    ignored, refusals = [], []
    for option in names(NetworkOptions if mode == "network" else Options):
        try:
            after = reached(mode, given | {option: value_of(option, mode)})
        except ValueError as error:
            refusals.append(str(error))
            continue
        if after == before:
            ignored.append(option)
    assert ignored == []
    assert [text for text in refusals if not text.startswith("Expected ")] == []


def test_the_table_knows_every_option():
    assert set(OTHERS) == set(names(Options)) | set(names(NetworkOptions))


def test_signatures_are_the_records():
    for function, record in ((sm.fit, Options), (sm.fit_network, NetworkOptions)):
        assert sorted(inspect.signature(function).parameters) == sorted(names(record))
    others = set(names(Model, Training, Run)) - set(inspect.signature(sm.MarkovEstimator).parameters)
    assert others == {
        "transform", "features", "period", "sensor", "sensor_size", "dim", "members", "checkpoint", "resume"
    }  # fmt: skip


def test_every_option_says_what_it_is():
    for record in (Options, NetworkOptions):
        assert all(field.metadata["help"] for field in record.__dataclass_fields__.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"siize": 3}, "an option of fit, one of .*got 'siize'. Did you mean 'size'\\?"),
        ({"basis": "gausian"}, "basis one of .*got 'gausian'. Did you mean 'gaussian'\\?"),
        ({"coupling": "krauss"}, "coupling one of .*got 'krauss'. Did you mean 'kraus'\\?"),
        ({"objective": "belief"}, "Did you mean 'beliefs'\\?"),
        ({"dim": 2}, "Expected observations with dim"),
        ({"trajectory": "a"}, "Expected a data frame with trajectory"),
        ({"time": "a"}, "Expected a data frame with time"),
        ({"rank": 3, "coupling": "linear"}, "rank only with a coupling that has one"),
        ({"surrogate": True, "objective": "transitions"}, "surrogate=True only with objective 'beliefs'"),
    ],
)
def test_what_was_likely_meant_is_said(options, message):
    with pytest.raises(ValueError, match=message):
        sm.fit(X, **options, progress=False)


def test_misspelt_options_of_networks_and_estimators_are_told():
    with pytest.raises(ValueError, match="got 'sized'. Did you mean 'size'"):
        sm.fit_network(MODES["network"]["table"], sized=3)
    with pytest.raises(ValueError, match="got 'sized'. Did you mean 'size'"):
        sm.MarkovEstimator(sized=3)


def test_fingerprints_are_by_value():
    """Equal things that were made twice count as the same; things of one shape and other numbers do not."""

    def transform(scale):
        return sm.Standardize([0.0], [scale])

    def sensor(gain):
        return sm.FactorSensor(lambda o: gain * o, 1)

    for make in (transform, sensor, lambda value: {"a": [value, "b"]}, lambda value: np.full(3, value)):
        assert fingerprint(make(1.0)) == fingerprint(make(1.0))
        assert fingerprint(make(1.0)) != fingerprint(make(2.0))
    assert str(transform(1.0)) == str(transform(2.0))
    assert fingerprint("ab", "c") != fingerprint("a", "bc")
    assert fingerprint(lambda o: o + 1) != fingerprint(lambda o: o + 2)


def test_a_checkpoint_of_another_transform_is_refused(tmp_path):
    options = {"size": 2, "steps": 1, "objective": "transitions", "progress": False}
    path = tmp_path / "fit.ckpt"
    sm.fit(X, transform=sm.Standardize([0.0], [1.0]), checkpoint=path, **options)
    with pytest.raises(ValueError, match="same data and settings"):
        sm.fit(X, transform=sm.Standardize([0.0], [2.0]), resume=path, **options)
    assert sm.fit(X, transform=sm.Standardize([0.0], [1.0]), resume=path, **options).history.phases
