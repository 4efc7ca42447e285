"""Tables become trajectories by their labels and times."""

import numpy as np
import pytest

import sosmarkov as sm
from sosmarkov.cli import main
from sosmarkov.data.frames import coordinates_of, is_frame, read_frame

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
    first, second = read_frame(frame, trajectory="run", time="t").trajectories
    np.testing.assert_array_equal(first, [[1.0, 10.0], [2.0, 20.0], [np.nan, 30.0]])
    np.testing.assert_array_equal(second, [[7.0, 70.0], [np.nan, np.nan], [np.nan, np.nan], [8.0, 80.0]])


def test_without_labels_all_rows_are_one_trajectory():
    (only,) = read_frame(pa.table(ROWS), columns=["n"]).trajectories
    np.testing.assert_array_equal(only, [[20.0], [10.0], [70.0], [80.0], [30.0]])


def test_coordinates_have_the_names_of_their_columns(tmp_path):
    assert coordinates_of(pa.table(ROWS), trajectory="run", time="t") == ["x", "n"]
    assert coordinates_of(pandas.DataFrame(ROWS), columns=["n", "t"]) == ["n", "t"]
    rows = pa.table({"run": [0, 0, 1], "t": [0.0, 1.0, 0.0], "x": [1.0, 2.0, 3.0]})
    pytest.importorskip("pyarrow.parquet").write_table(rows, tmp_path / "rows.parquet")
    assert sm.open_trajectories(tmp_path / "rows.parquet", trajectory="run", time="t").columns == ["x"]


def test_dates_are_times():
    days = np.array(["2020-01-01", "2020-01-03", "2020-01-02", "2020-01-06"], dtype="datetime64[ns]")
    (only,) = read_frame(pandas.DataFrame({"day": days, "x": [0.0, 2.0, 1.0, 5.0]}), time="day").trajectories
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
        assert len(read_frame(pa.table(ROWS), **options).trajectories) == 5
        return
    if options == {"time": "t"}:
        rows = pa.table({"t": [0.0, 1.0, 2.5], "x": [1.0, 2.0, 3.0]})
    else:
        rows = pa.table(ROWS)
    with pytest.raises(ValueError, match=message):
        read_frame(rows, **options)


def test_the_same_time_twice_is_refused():
    with pytest.raises(ValueError, match="the same one twice"):
        read_frame(pa.table({"t": [0.0, 0.0], "x": [1.0, 2.0]}), time="t")


def series(length=240, seed=0):
    rng = np.random.default_rng(seed)
    x = [0.0]
    for _ in range(length - 1):
        x.append(0.8 * x[-1] + rng.normal())
    return np.array(x)


DAYS = np.arange("2020-01-01", "2020-08-28", dtype="datetime64[D]")
ONE = {
    "Series": lambda x: pandas.Series(x, name="x"),
    "Series with dates": lambda x: pandas.Series(x, index=pandas.DatetimeIndex(DAYS), name="x"),
    "frame with dates": lambda x: pandas.DataFrame({"x": x}, index=pandas.DatetimeIndex(DAYS, name="day")),
    "frame with periods": lambda x: pandas.DataFrame(
        {"x": x}, index=pandas.period_range("2001-01", periods=240, freq="M")
    ),
    "frame with business days": lambda x: pandas.DataFrame(
        {"x": x}, index=pandas.bdate_range("2020-01-01", periods=240)
    ),
    "polars": lambda x: polars.Series("x", x),
    "Arrow": lambda x: pa.table({"x": x}),
}


@pytest.mark.parametrize("kind", ONE)
def test_one_column_is_a_series(kind):
    x = series()
    found = read_frame(ONE[kind](x))
    assert found.columns == ("x",)
    (only,) = found.trajectories
    np.testing.assert_array_equal(only[:, 0], x)


def test_columns_without_a_name_are_called_like_coordinates():
    assert read_frame(pandas.Series([1.0, 2.0])).columns == ("x0",)
    assert read_frame(polars.Series([1.0, 2.0])).columns == ("x0",)


@pytest.mark.parametrize("times", [pandas.DatetimeIndex, lambda days: pandas.PeriodIndex(days, freq="D")])
def test_rows_that_an_index_leaves_out_are_gaps(times):
    frame = pandas.DataFrame({"x": [0.0, 1.0, 4.0]}, index=times(DAYS[[0, 1, 4]]))
    found = read_frame(frame)
    np.testing.assert_array_equal(found.trajectories[0][:, 0], [0.0, 1.0, np.nan, np.nan, 4.0])
    assert found.clock is not None
    assert len(found.clock.start) == 1
    dated = read_frame(frame.reset_index(drop=True).assign(day=DAYS[[0, 1, 4]].astype("datetime64[ns]")), time="day")
    np.testing.assert_array_equal(dated.trajectories[0], found.trajectories[0])
    assert dated.clock.step == np.timedelta64(1, "D")
    assert dated.clock.start[0] == DAYS[0]


@pytest.mark.parametrize(
    ("days", "message"),
    [
        ([0, 2, 1], "an index of times that increase"),
        ([0, 1, 1], "in the index, got the same one twice"),
        ([0, 31, 60], "in the index a whole number of steps"),
    ],
)
def test_an_index_that_is_no_clock_is_refused(days, message):
    with pytest.raises(ValueError, match=message):
        read_frame(pandas.DataFrame({"x": [0.0, 1.0, 2.0]}, index=pandas.DatetimeIndex(DAYS[days])))


def test_an_index_is_no_clock_where_trajectories_are_named():
    frame = pandas.DataFrame({"run": [0, 0, 1], "x": [0.0, 1.0, 2.0]}, index=pandas.DatetimeIndex(DAYS[[0, 5, 0]]))
    assert [len(part) for part in read_frame(frame, trajectory="run").trajectories] == [2, 1]


def test_every_kind_of_series_gives_the_process_of_its_file(tmp_path):
    x = series()
    x[50:53] = np.nan
    np.savetxt(tmp_path / "x.csv", x, header="x", comments="")
    words = ["--set", "size=4", "--set", "steps=5", "--set", "objective=transitions", "--quiet"]
    assert main(["fit", str(tmp_path / "x.csv"), "-o", str(tmp_path / "x.sosm"), *words]) == 0
    at = np.linspace(-2.0, 2.0, 7)[:, None]
    expected = sm.load(tmp_path / "x.sosm").transition.log_prob(at, at)
    for given in (x, pandas.Series(x, index=pandas.DatetimeIndex(DAYS), name="x"), polars.Series("x", x)):
        found = sm.fit(given, size=4, steps=5, objective="transitions", progress=False)
        np.testing.assert_array_equal(found.transition.log_prob(at, at), expected)


def test_what_is_no_table_is_refused():
    with pytest.raises(ValueError, match="Expected a table with columns"):
        sm.fit(pa.chunked_array([[1.0, 2.0]]), progress=False)
