"""The picture of the curves of growth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from bench.growth_points import CURVES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROWS = {
    "megabytes_per_second": ("MB per second", 1.0),
    "records_per_cpu_second": ("Thousand records\nper CPU-second", 1e-3),
    "commit_seconds": ("One commit\n(ms)", 1e3),
}
_COLOUR = "#1f6f8b"


def growth(points: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws a column for each curve and a row for each figure: the median, and the range of all rounds as bars."""
    names = list(dict.fromkeys(point["curve"] for point in points))
    figure, panels = plt.subplots(
        len(_ROWS), len(names), figsize=(3 * len(names), 7), sharex="col", squeeze=False, layout="constrained"
    )
    for column, name in enumerate(names):
        found = [point for point in points if point["curve"] == name]
        for row, (key, (label, factor)) in enumerate(_ROWS.items()):
            axes = panels[row][column]
            _draw(axes, found, key, factor)
            if column == 0:
                axes.set_ylabel(label)
        panels[-1][column].set_xlabel(CURVES[name].title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)


def _draw(axes: Axes, points: Sequence[dict[str, Any]], key: str, factor: float) -> None:
    known = [point for point in points if point[key] is not None]
    places = [point["value"] for point in known]
    low, middle, high = ([point[key][what] * factor for point in known] for what in ("min", "median", "max"))
    below = [m - each for m, each in zip(middle, low, strict=True)]
    above = [each - m for m, each in zip(middle, high, strict=True)]
    axes.errorbar(
        places, middle, yerr=[below, above], color=_COLOUR, marker="o", markersize=4, capsize=3, linewidth=1.2
    )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
