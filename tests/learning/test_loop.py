"""The training loop on problems whose answers are known: it finds them, keeps the best, stops, resumes, reports."""

from types import SimpleNamespace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from sosmarkov.learning.checkpoint import Checkpoint
from sosmarkov.learning.loop import CHUNK, Plan, TrainingError, evaluate, stack, train, unstack

PLAN = Plan("test", steps=200, batch_size=8, learning_rate=0.1, patience=10_000, seed=0)
DATA = np.random.default_rng(0).normal(3.0, 1.0, size=(64, 2))


def squares(parameters, batch):
    return jnp.mean((batch - parameters["x"][None]) ** 2)


def members(*starts):
    return {"x": jnp.asarray(starts, dtype=float)}


def test_a_mean_is_found_by_every_member_with_its_own_batches():
    found, history = train(members([0.0, 0.0], [6.0, 1.0]), squares, DATA, DATA, PLAN)
    np.testing.assert_allclose(found["x"], np.tile(DATA.mean(0), (2, 1)), atol=0.2)
    assert not np.array_equal(found["x"][0], found["x"][1])
    assert history.held_out.shape == (200 // CHUNK + 1, 2)
    np.testing.assert_array_equal(history.best, history.held_out.min(axis=0))
    np.testing.assert_allclose(evaluate(squares, found, DATA), history.best, rtol=1e-12)


def test_members_do_not_see_each_other():
    both, _ = train(members([0.0, 0.0], [6.0, 1.0]), squares, DATA, DATA, PLAN)
    alone, _ = train(members([0.0, 0.0]), squares, DATA, DATA, PLAN)
    np.testing.assert_allclose(both["x"][0], alone["x"][0], rtol=1e-12)


def test_the_best_is_kept_and_patience_ends_training():
    # Held-out data elsewhere: the start is best, and training only leads away from it.
    found, history = train(members([0.0, 0.0]), squares, DATA, -DATA, PLAN._replace(patience=100))
    np.testing.assert_array_equal(found["x"], [[0.0, 0.0]])
    assert (history.stopped, history.done, history.best_step[0]) == ("patience", 100, 0)


def test_streamed_blocks_are_asked_for_chunk_by_chunk():
    asked = []

    def block(done):
        asked.append(done)
        return DATA[:32]

    train(members([0.0, 0.0]), squares, block, DATA, PLAN)
    assert asked == [0, 50, 100, 150]


def test_an_interruption_keeps_the_best_so_far():
    asked = iter([False, True])
    found, history = train(members([0.0, 0.0]), squares, DATA, DATA, PLAN, stop=lambda: next(asked))
    assert (history.stopped, history.done) == ("interrupted", 100)
    np.testing.assert_allclose(evaluate(squares, found, DATA), history.held_out.min(axis=0))


def interrupted_at(done, keeper):
    """A keeper that has the run stopped after so many steps, like a kill between two writes."""

    def save(name, state, history, over):
        keeper.save(name, state, history, over)
        if history.done == done:
            raise SystemExit

    return SimpleNamespace(load=keeper.load, save=save)


def test_a_resumed_run_is_identical_to_an_unbroken_one(tmp_path):
    path = tmp_path / "run.ckpt"
    start = members([0.0, 0.0], [1.0, 1.0])
    whole, curve = train(start, squares, DATA, DATA, PLAN)
    with pytest.raises(SystemExit):
        train(start, squares, DATA, DATA, PLAN, keeper=interrupted_at(100, Checkpoint(path, "same", None)))
    again, resumed = train(start, squares, DATA, DATA, PLAN, keeper=Checkpoint(path, "same", path))
    np.testing.assert_array_equal(again["x"], whole["x"])
    np.testing.assert_array_equal(resumed.held_out, curve.held_out)
    np.testing.assert_array_equal(resumed.training[1:], curve.training[1:])
    assert resumed.devices == curve.devices == ("cpu (cpu)",)
    # A finished phase is not run again.
    _, finished = train(start, squares, None, DATA, PLAN, keeper=Checkpoint(path, "same", path))
    np.testing.assert_array_equal(finished.held_out, curve.held_out)


def test_a_checkpoint_of_something_else_or_damaged_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    train(members([0.0, 0.0]), squares, DATA, DATA, PLAN, keeper=Checkpoint(path, "one", None))
    with pytest.raises(ValueError, match="same data and settings"):
        Checkpoint(path, "another", path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        Checkpoint(path, "one", path)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="does not begin like one"):
        Checkpoint(path, "one", path)
    with pytest.raises(ValueError, match="readable checkpoint"):
        Checkpoint(path, "one", tmp_path / "nowhere")
    with pytest.raises(ValueError, match="existing folder"):
        train(members([0.0, 0.0]), squares, DATA, DATA, PLAN,
              keeper=Checkpoint(tmp_path / "no" / "x", "one", None))  # fmt: skip
    assert [file.name for file in tmp_path.iterdir()] == ["run.ckpt"]


def test_a_loss_that_is_not_a_number_is_reported_with_step_and_member():
    def loss(parameters, batch):
        return jnp.where(parameters["x"][0] > 1.5, jnp.nan, -parameters["x"][0]) + 0.0 * jnp.sum(batch)

    with pytest.raises(TrainingError, match="at step [0-9]+ of phase 'test' in member 1.*learning_rate"):
        train(members([-50.0, 0.0], [1.0, 0.0]), loss, DATA, DATA, PLAN)


def test_members_come_apart_as_they_were_put_together():
    class Thing(eqx.Module):
        a: object
        name: str

    things = [Thing(jnp.asarray([1.0, 2.0]), "n"), Thing(jnp.asarray([3.0, 4.0]), "n")]
    for one, other in zip(things, unstack(stack(things), 2), strict=True):
        np.testing.assert_array_equal(one.a, other.a)
        assert other.name == "n"
