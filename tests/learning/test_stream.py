"""Trajectories on disk: read in blocks, never twice the same by accident, always the same by seed."""

import numpy as np
import pytest

import sosmarkov as sm
from sosmarkov.data import stream as streaming

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402


def table(trajectories, group):
    count, length, _ = trajectories.shape
    columns = {
        "run": np.repeat(np.arange(count), length),
        "t": np.tile(np.arange(length), count),
        "a": trajectories[..., 0].reshape(-1),
        "b": trajectories[..., 1].reshape(-1),
    }
    return pa.table(columns), group


@pytest.fixture
def stored(tmp_path):
    data = np.random.default_rng(0).normal(size=(37, 4, 2))
    rows, group = table(data, 10)
    pq.write_table(rows, tmp_path / "x.parquet", row_group_size=group)
    np.save(tmp_path / "x.npy", data)
    return data, tmp_path


@pytest.mark.parametrize("span", [(0, 37), (0, 1), (5, 9), (36, 37)])
def test_parquet_and_npy_give_the_trajectories_asked_for(stored, span):
    data, folder = stored
    for found in (
        sm.open_trajectories(folder / "x.npy"),
        sm.open_trajectories(folder / "x.parquet", trajectory="run", time="t"),
    ):
        assert len(found) == 37
        np.testing.assert_array_equal(np.stack(found.take(*span)), data[slice(*span)])


def test_columns_are_chosen_and_named_errors(stored):
    data, folder = stored
    found = sm.open_trajectories(folder / "x.parquet", trajectory="run", columns=["b"])
    np.testing.assert_array_equal(np.stack(found.take(3, 5)), data[3:5, :, 1:])
    with pytest.raises(ValueError, match="column 'who'"):
        sm.open_trajectories(folder / "x.parquet", trajectory="who")
    with pytest.raises(ValueError, match="trajectory="):
        sm.open_trajectories(folder / "x.parquet")
    with pytest.raises(ValueError, match=r"\.npy or \.parquet"):
        sm.open_trajectories(folder / "x.txt")
    pq.write_table(pa.table({"run": [0, 1, 0], "a": [0.0, 1.0, 2.0]}), folder / "mixed.parquet")
    with pytest.raises(ValueError, match="Sort the file by trajectory"):
        sm.open_trajectories(folder / "mixed.parquet", trajectory="run")


def test_blocks_repeat_with_their_seed_and_leave_the_resident_sample_alone(stored, monkeypatch):
    data, folder = stored
    monkeypatch.setattr(streaming, "RESIDENT", 8)
    monkeypatch.setattr(streaming, "_WINDOW", 4)
    monkeypatch.setattr(streaming, "_BLOCK", 8)
    one, other = (streaming.Stream(sm.open_trajectories(folder / "x.npy"), seed=3) for _ in range(2))
    resident = {part.tobytes() for part in one.resident()}
    assert len(resident) in (5, 8)  # one window is not full
    for done in (0, 50, 100):
        block = one.block(done)
        np.testing.assert_array_equal(np.concatenate(block), np.concatenate(other.block(done)))
        assert not resident & {part.tobytes() for part in block}
    assert not np.array_equal(np.concatenate(one.block(0))[:8], np.concatenate(one.block(50))[:8])


def test_a_streamed_fit_sees_trajectories_beyond_the_resident_ones(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x = [rng.normal(1.0, 0.5, 400)]
    for _ in range(3):
        x.append(0.8 * x[-1] + 0.6 * rng.normal(size=400))
    np.save(tmp_path / "x.npy", np.stack(x, axis=1)[:, :, None])
    for name, value in (("RESIDENT", 100), ("_WINDOW", 10), ("_BLOCK", 100)):
        monkeypatch.setattr(streaming, name, value)
    asked = []
    taken = streaming.Stream.block
    monkeypatch.setattr(streaming.Stream, "block", lambda self, done: asked.append(done) or taken(self, done))
    data = sm.open_trajectories(tmp_path / "x.npy")
    found = sm.fit(data, size=4, steps=50, objective="transitions", progress=False)
    assert asked == [0]
    assert not found.history.chosen["surrogate"]
    assert found.history.phases[0].best[0] < found.history.phases[0].held_out[0, 0]
