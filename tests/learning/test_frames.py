"""Tables become trajectories by their labels and times."""

import numpy as np
import pytest

import sosmarkov as sm
from sosmarkov.data.frames import coordinates_of, is_frame, trajectories_from

pa = pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

ROWS = {
    "run": ["b", "b", "a", "a", "b"],
    "t": [0.2, 0.1, 5.0, 5.3, 0.3],
    "x": [2.0, 1.0, 7.0, 8.0, None],
    "n": [20, 10, 70, 80, 30],
    "note": ["p", "q", "r", "s", "t"],
}


@pytest.mark.parametrize("make", [pa.table, pandas.DataFrame, polars.DataFrame])
def test_rows_are_sorted_by_time_within_their_trajectory(make):
    frame = make(ROWS)
    assert is_frame(frame)
    first, second = trajectories_from(frame, trajectory="run", time="t")
    np.testing.assert_array_equal(first, [[1.0, 10.0], [2.0, 20.0], [np.nan, 30.0]])
    np.testing.assert_array_equal(second, [[7.0, 70.0], [np.nan, np.nan], [np.nan, np.nan], [8.0, 80.0]])


def test_without_labels_all_rows_are_one_trajectory():
    (only,) = trajectories_from(pa.table(ROWS), columns=["n"])
    np.testing.assert_array_equal(only, [[20.0], [10.0], [70.0], [80.0], [30.0]])


def test_coordinates_have_the_names_of_their_columns(tmp_path):
    assert coordinates_of(pa.table(ROWS), trajectory="run", time="t") == ["x", "n"]
    assert coordinates_of(pandas.DataFrame(ROWS), columns=["n", "t"]) == ["n", "t"]
    rows = pa.table({"run": [0, 0, 1], "t": [0.0, 1.0, 0.0], "x": [1.0, 2.0, 3.0]})
    pytest.importorskip("pyarrow.parquet").write_table(rows, tmp_path / "rows.parquet")
    assert sm.open_trajectories(tmp_path / "rows.parquet", trajectory="run", time="t").columns == ["x"]


def test_dates_are_times():
    days = np.array(["2020-01-01", "2020-01-03", "2020-01-02", "2020-01-06"], dtype="datetime64[ns]")
    (only,) = trajectories_from(pandas.DataFrame({"day": days, "x": [0.0, 2.0, 1.0, 5.0]}), time="day")
    np.testing.assert_array_equal(only, [[0.0], [1.0], [2.0], [np.nan], [np.nan], [5.0]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["y"]}, "got \\['y'\\]"),
        ({"trajectory": "who"}, "got \\['who'\\]"),
        ({"columns": ["note"]}, "numbers in column 'note'"),
        ({"trajectory": "x"}, "a trajectory in every row"),
        ({"time": "x"}, "a time in every row"),
        ({"time": "n", "trajectory": "note", "columns": ["t"]}, None),
        ({"time": "t"}, "whole number of steps"),
    ],
)
def test_tables_that_make_no_sense_are_refused(options, message):
    if message is None:
        assert len(trajectories_from(pa.table(ROWS), **options)) == 5
        return
    if options == {"time": "t"}:
        rows = pa.table({"t": [0.0, 1.0, 2.5], "x": [1.0, 2.0, 3.0]})
    else:
        rows = pa.table(ROWS)
    with pytest.raises(ValueError, match=message):
        trajectories_from(rows, **options)


def test_the_same_time_twice_is_refused():
    with pytest.raises(ValueError, match="the same one twice"):
        trajectories_from(pa.table({"t": [0.0, 0.0], "x": [1.0, 2.0]}), time="t")
