"""Plots for the docs and the README: growth, latency, a month of maintenance, and frazil beside the sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from bench.versus.measurement import Run, Side, Spread
from bench.versus.report import NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bench import latency
    from bench.month import Hour

_BLUE, _ORANGE = "#1f6f8b", "#d9742b"
_SIDES = {"frazil": _BLUE, "connect": _ORANGE, "connect-default": "#999999", "connect-bare": "#e5b181"}

_GROWTH = {
    "megabytes_per_second": ("MB per second", 1.0),
    "records_per_cpu_second": ("Thousand records\nper CPU-second", 1e-3),
    "commit_seconds": ("One commit\n(ms)", 1e3),
}
_LOADS: dict[latency.Load, str] = {
    "steady": "Records as they come",
    "singles": "Single records,\notherwise nothing",
}
_MONTH = {
    "snapshots": ("Snapshots", 1.0),
    "manifests": ("Manifests\nof the head", 1.0),
    "metadata_bytes": ("Metadata file\n(KiB)", 1 / 1024),
    "commit_ms": ("One commit\n(ms)", 1.0),
}
_TRIGGERS = {60: ("one commit a minute", _BLUE), 10: ("one commit every 10 s", _ORANGE)}
_DAY = 24
_BARS: dict[str, tuple[Literal["whole", "steady"], str]] = {
    "Whole run,\nper second": ("whole", "records_per_second"),
    "Whole run,\nper CPU-second": ("whole", "records_per_cpu_second"),
    "Steady,\nper second": ("steady", "records_per_second"),
    "Steady,\nper CPU-second": ("steady", "records_per_cpu_second"),
}


def plot_growth(points: Sequence[dict[str, Any]], titles: Mapping[str, str], path: Path) -> None:
    """Draws a column for each curve and a row for each figure: the median, and the range of all rounds as bars.

    Args:
        titles: Titles of the curves' axes.
    """
    names = list(dict.fromkeys(point["curve"] for point in points))
    figure, panels = plt.subplots(
        len(_GROWTH), len(names), figsize=(3 * len(names), 7), sharex="col", squeeze=False, layout="constrained"
    )
    for column, name in enumerate(names):
        found = [point for point in points if point["curve"] == name]
        for row, (key, (label, factor)) in enumerate(_GROWTH.items()):
            axes = panels[row][column]
            _draw_curve(axes, found, key, factor)
            if column == 0:
                axes.set_ylabel(label)
        panels[-1][column].set_xlabel(titles[name])
    _save(figure, path)


def _draw_curve(axes: Axes, points: Sequence[dict[str, Any]], key: str, factor: float) -> None:
    known = [point for point in points if point[key] is not None]
    places = [point["value"] for point in known]
    low, middle, high = ([point[key][what] * factor for point in known] for what in ("min", "median", "max"))
    below = [m - each for m, each in zip(middle, low, strict=True)]
    above = [each - m for m, each in zip(middle, high, strict=True)]
    axes.errorbar(places, middle, yerr=[below, above], color=_BLUE, marker="o", markersize=4, capsize=3, linewidth=1.2)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _dress(axes, ",.4g")


def plot_latency(runs: Sequence[latency.Run], path: Path) -> None:
    """Draws a column for each interval and a row for each load: which share of the records was seen after how long."""
    intervals = sorted({run.every for run in runs})
    figure, panels = plt.subplots(
        len(_LOADS),
        len(intervals),
        figsize=(3.4 * len(intervals), 5.5),
        sharex="col",
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for row, (load, label) in zip(panels, _LOADS.items(), strict=True):
        for axes, every in zip(row, intervals, strict=True):
            for run in runs:
                if run.every == every and load in run.values:
                    seconds = np.sort(np.asarray(run.values[load]))
                    shares = np.arange(1, len(seconds) + 1) / len(seconds)
                    axes.step(seconds, 100 * shares, where="post", color=_SIDES[run.side], label=run.side)
            axes.axvline(2 * every, color="#bbbbbb", linewidth=0.8, linestyle=(0, (4, 3)))
            axes.set_xlim(left=0)
            _dress(axes)
        row[0].set_ylabel(f"{label}\n% seen")
    for column, every in enumerate(intervals):
        panels[0][column].set_title(f"every {every} s", fontsize=10)
        panels[-1][column].set_xlabel("Seconds since the record was produced")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    _save(figure, path)


def plot_month(hours: Sequence[Hour], path: Path) -> None:
    """Draws a row for each figure: the maintained tables over all days, and beside them the first day of all tables."""
    figure, panels = plt.subplots(
        len(_MONTH), 2, figsize=(10, 8.5), sharex="col", sharey="row", layout="constrained", width_ratios=[2, 1]
    )
    for (whole, first), (key, (label, factor)) in zip(panels, _MONTH.items(), strict=True):
        for trigger in _TRIGGERS:
            for maintained in (False, True):
                found = [each for each in hours if each.trigger == trigger and each.maintained is maintained]
                values = [getattr(each, key) * factor for each in found]
                if maintained:
                    _draw_hours(whole, [each.hour / _DAY for each in found], values, trigger, maintained=True)
                _draw_hours(first, [each.hour for each in found[:_DAY]], values[:_DAY], trigger, maintained=maintained)
        whole.set_ylabel(label)
        for axes in (whole, first):
            _dress(axes, ",.0f")
            axes.set_xlim(left=0)
    panels[0][0].set_title("Maintained every hour", fontsize=10)
    panels[0][1].set_title("The first day, with and without", fontsize=10)
    panels[-1][0].set_xlabel("Days")
    panels[-1][1].set_xlabel("Hours")
    panels[-1][1].set_xticks(range(0, _DAY + 1, 6))
    handles, labels = panels[0][1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    _save(figure, path)


def _draw_hours(axes: Axes, places: list[float], values: list[float], trigger: int, *, maintained: bool) -> None:
    label, colour = _TRIGGERS[trigger]
    axes.plot(
        places,
        values,
        color=colour,
        linewidth=1.1 if maintained else 1.8,
        linestyle="-" if maintained else (0, (1, 1)),
        label=f"{label}, {'maintained' if maintained else 'without maintenance'}",
    )


def plot_versus(runs: Sequence[Run], title: str, path: Path) -> None:
    """Left, records in the table over time, a line for each run; right, the medians with the least and the most."""
    sides: list[Side] = [side for side in NAMES if any(run.side == side for run in runs)]
    figure, (filling, rates) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", width_ratios=[1, 1.2])
    for run in runs:
        times, totals = [0.0], [0.0]
        for commit in run.commits:
            times.append(commit.at - run.began)
            totals.append(totals[-1] + commit.records / 1e6)
        filling.step(times, totals, where="post", color=_SIDES[run.side], linewidth=1.3, alpha=0.8)
    filling.set_title("Records in the table (millions)", fontsize=10)
    filling.set_xlabel("Seconds since the start of the process")
    width = 0.8 / len(sides)
    for place, side in enumerate(sides):
        spreads = [
            Spread.of([(run.figures[part] or {}).get(name, 0.0) / 1000 for run in runs if run.side == side])
            for part, name in _BARS.values()
        ]
        medians = [spread.median for spread in spreads]
        whiskers = [
            [spread.median - spread.least for spread in spreads],
            [spread.most - spread.median for spread in spreads],
        ]
        left = [n + (place - (len(sides) - 1) / 2) * width for n in range(len(_BARS))]
        rates.bar(left, medians, width, yerr=whiskers, capsize=3, color=_SIDES[side], label=NAMES[side].strip("… "))
    rates.set_xticks(range(len(_BARS)), list(_BARS), fontsize=8)
    rates.set_title("Thousands of records", fontsize=10)
    rates.legend(frameon=False, fontsize=9)
    for axes in (filling, rates):
        _dress(axes, ",g", axis="y")
    figure.suptitle(title, fontsize=11)
    _save(figure, path)


def _dress(axes: Axes, numbers: str | None = None, axis: Literal["both", "y"] = "both") -> None:
    """Give a panel its grid; with a format of numbers, also a vertical axis from zero with such numbers."""
    if numbers is not None:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format(value, numbers)))
    axes.grid(visible=True, axis=axis, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)
