"""What a process says of itself, and its own sensor as the default of every verb that reads."""

import numpy as np

import sosmarkov as sm
from sosmarkov.cli.ask import _described
from sosmarkov.data.history import History, PhaseHistory
from sosmarkov.report import card
from tables import make_process


def trained(chosen) -> History:
    phase = PhaseHistory.begun("transitions", np.zeros(1), "steps").at(2.5, "steps")
    return History((phase,), chosen)


def with_sensor(sensor, history=None) -> sm.MarkovProcess:
    made = make_process("gaussian", "kraus", 1, seed=3)
    return sm.MarkovProcess(made.transition, made.initial, sensor=sensor, history=history)


def test_the_processs_own_sensor_is_the_default_of_update():
    sensor = sm.GaussianSensor(0, 0.7)
    process = with_sensor(sensor)
    belief = process.propagate(1)[1]
    found, expected = process.update(belief, [0.4]), process.update(belief, [0.4], sensor=sensor)
    np.testing.assert_array_equal(found.log_evidence, expected.log_evidence)
    np.testing.assert_array_equal(found.belief.mean(), expected.belief.mean())


def test_a_sensor_that_was_given_is_not_said_to_be_learned():
    given = with_sensor(sm.GaussianSensor(0, 0.7), trained({"sensor": "GaussianSensor"}))
    by_hand = with_sensor(sm.GaussianSensor(0, 0.7))
    learned = with_sensor(sm.LinearSensor([[1.0]], 0.7), trained({"sensor": "linear"}))
    for process, origin in (
        (given, "GaussianSensor, given"),
        (by_hand, "GaussianSensor, given"),
        (learned, "learned with the process"),
    ):
        assert _described(process)["sensor"] == origin
        assert dict(card.model(process))["sensor"] == origin
        assert origin in repr(process)


def test_a_process_describes_itself_in_five_lines():
    process = make_process("gaussian", "kraus", 2, seed=3).with_columns(["angle", "rate"])
    lines = repr(process).splitlines()
    assert len(lines) == 5
    assert "gaussian" in lines[0]
    assert "Kraus" in lines[0]
    assert "angle, rate" in lines[1]
    assert "5 functions" in lines[2]
    assert f"{process.parameter_count:,}" in lines[2]
    assert "built by hand" in lines[3]
    bound = float(lines[4].split("within ")[1].split()[0])
    assert process.check().normalisation_error < max(bound, 1e-13) < 1e-6
    named = with_sensor(None, trained({}))
    assert "transitions" in repr(named).splitlines()[3]
    assert "2.5 s" in repr(named).splitlines()[3]
