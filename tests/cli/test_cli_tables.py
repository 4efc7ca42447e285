"""The same trajectories from every kind of file; what looks alike and is not is refused."""

import gzip
import sys

import numpy as np
import pytest

from sosmarkov.cli import options
from sosmarkov.data import tables

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS = {
    "run": ["b", "b", "a", "a", "b"],
    "t": [0.2, 0.1, 5.0, 5.3, 0.3],
    "x": [2.0, 1.0, 7.0, 8.0, np.nan],
    "y": [20.0, 10.0, 70.0, 80.0, 30.0],
}
EXPECTED = [
    [[1.0, 10.0], [2.0, 20.0], [np.nan, 30.0]],
    [[7.0, 70.0], [np.nan, np.nan], [np.nan, np.nan], [8.0, 80.0]],
]
LONG = {"trajectory": "run", "time": "t"}


def lines(separator=",", point="."):
    cells = [[str(v).replace("nan", "").replace(".", point) for v in row] for row in zip(*ROWS.values(), strict=True)]
    return "\n".join(separator.join(row) for row in [list(ROWS), *cells]) + "\n"


def write(path):
    kind = path.name.partition(".")[2]
    if kind == "npz":
        np.savez(path, **{name: np.array(column) for name, column in ROWS.items()})
    elif kind == "parquet":
        parquet.write_table(pa.table(ROWS), path)
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(lines().encode()))
    else:
        path.write_text({"csv": lines(), "tsv": lines("\t"), "txt": lines(";", ",")}[kind])
    return path


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "txt", "parquet", "npz"])
def test_every_kind_of_file_gives_the_same_trajectories(tmp_path, kind):
    found = tables.read(write(tmp_path / f"rows.{kind}"), **LONG)
    assert (found.columns, found.labels, found.rows, found.gaps) == (("x", "y"), ["b", "a"], 4, 3)
    for part, expected in zip(found.trajectories, EXPECTED, strict=True):
        np.testing.assert_array_equal(part, expected)
    np.testing.assert_allclose(found.times[1], [5.0, 5.1, 5.2, 5.3])


def test_wide_rows_end_where_nothing_follows(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("who,x_0,x_1,x_2,u_0,u_1,kg\nann,1,2,3,7,8,60\nbob,4,,6,9,9,70\ncy,5,6,,1,,80\n")
    found = tables.read(path, columns=["x"], trajectory="who", inputs=["u"], wide=True)
    assert (found.labels, found.left_out) == (["ann", "bob", "cy"], ("kg",))
    assert [part[:, 0].tolist() for part in found.trajectories][::2] == [[1.0, 2.0, 3.0], [5.0, 6.0]]
    assert np.isnan(found.trajectories[1][1, 0])
    assert [u[:, 0].tolist() for u in found.inputs] == [[7.0, 8.0], [9.0, 9.0], [1.0]]


def test_arrays_bring_their_names_and_inputs(tmp_path):
    x, u = np.arange(24.0).reshape(3, 4, 2), np.arange(12.0).reshape(3, 4, 1)
    np.savez(tmp_path / "a.npz", trajectories=x, columns=np.array(["p", "q"]), u=u)
    found = tables.read(tmp_path / "a.npz", inputs=["u"])
    assert found.columns == ("p", "q")
    np.testing.assert_array_equal(found.trajectories, x)
    np.testing.assert_array_equal(found.inputs, u[:, :-1])
    np.save(tmp_path / "a.npy", x)
    np.testing.assert_array_equal(tables.read(tmp_path / "a.npy").trajectories, x)


def test_inputs_belong_to_the_step_after_them(tmp_path):
    path = tmp_path / "driven.csv"
    path.write_text("t,heat,x\n1,0.5,10\n0,0.1,20\n2,0.9,30\n")
    found = tables.read(path, time="t", inputs=["heat"])
    assert found.columns == ("x",)
    assert found.trajectories[0][:, 0].tolist() == [20.0, 10.0, 30.0]
    assert found.inputs[0][:, 0].tolist() == [0.1, 0.5]


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("1,2\n3,4\n", {}, "names in the first line"),
        ("day,x\n01.02.2024,1\n02.02.2024,2\n", {"time": "day"}, "Write dates like"),
        ("day,x\n2024-01-31,1\n2024-02-29,2\n2024-03-31,3\n", {"time": "day"}, "steps of 29 days apart, got 31 days"),
        ("t,x\n0,1\n1e-9,2\n1e9,3\n", {"time": "t"}, "Look for wrong times"),
        ("x,y\n1,2\n3,oops\n", {"columns": ["x", "y"]}, "'oops' in row 2"),
        ("x,x\n1,2\n", {}, "more than once"),
    ],
)
def test_tables_are_refused_with_what_to_do(tmp_path, text, words, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        tables.read(path, **words)


def test_numpy_files_are_read_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    np.savez(tmp_path / "rows.npz", **{name: np.array(column) for name, column in ROWS.items()})
    assert len(tables.read(tmp_path / "rows.npz", **LONG).trajectories) == 2
    (tmp_path / "rows.csv").write_text(lines())
    with pytest.raises(ImportError, match="sosmarkov\\[data\\]"):
        tables.read(tmp_path / "rows.csv")
    with pytest.raises(ImportError, match="sosmarkov\\[data\\]"):
        tables.check_writable(tmp_path / "beliefs.parquet")


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_what_is_written_is_read_again(tmp_path, kind):
    path = tmp_path / f"table.{kind}"
    when = np.array(["2024-01-01", "2024-01-02T12:00"], dtype="datetime64[ns]")
    tables.write(path, {"when": when, "mean": np.array([0.1, -1e-17]), "who": np.array(["a", "b, c"])})
    again = tables.read(path, columns=["mean"], time="when", trajectory="who")
    assert [part.tolist() for part in again.trajectories] == [[[0.1]], [[-1e-17]]]
    assert again.labels == ["a", "b, c"]
    assert [times[0] for times in again.times] == list(when)


def test_settings_are_of_the_kind_that_fit_takes():
    found = options.settings(["size=3", "learning-rate=1e-3", "surrogate=false", "objective=0.5", "basis=none"])
    assert found == {"size": 3, "learning_rate": 1e-3, "surrogate": False, "objective": 0.5, "basis": None}
    assert options.box("y=:2", ["x", "y"]) == ([-np.inf, -np.inf], [np.inf, 2.0])
    assert options.sensor("x=gps~0.1,y~2", ["x", "y"]) == [("x", "gps", 0.1), ("y", "y", 2.0)]
