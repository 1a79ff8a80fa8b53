"""Pictures for the docs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bench.month import Hour

_ROWS = {
    "snapshots": ("Snapshots", 1.0),
    "manifests": ("Manifests\nof the head", 1.0),
    "metadata_bytes": ("Metadata file\n(KiB)", 1 / 1024),
    "commit_ms": ("One commit\n(ms)", 1.0),
}
_COLOURS = {60: "#1f6f8b", 10: "#d9742b"}
_TRIGGERS = {60: "one commit a minute", 10: "one commit every 10 s"}
_DAY = 24


def month(hours: Sequence[Hour], path: Path) -> None:
    """Draws a row for each figure: the maintained tables over all days, and beside them the first day of all tables."""
    figure, panels = plt.subplots(
        len(_ROWS), 2, figsize=(10, 8.5), sharex="col", sharey="row", layout="constrained", width_ratios=[2, 1]
    )
    for (whole, first), (key, (label, factor)) in zip(panels, _ROWS.items(), strict=True):
        for trigger in _COLOURS:
            for maintained in (False, True):
                found = [each for each in hours if each.trigger == trigger and each.maintained is maintained]
                values = [getattr(each, key) * factor for each in found]
                if maintained:
                    _draw(whole, [each.hour / _DAY for each in found], values, trigger, maintained=True)
                _draw(first, [each.hour for each in found[:_DAY]], values[:_DAY], trigger, maintained=maintained)
        whole.set_ylabel(label)
        for axes in (whole, first):
            _dress(axes)
    panels[0][0].set_title("Maintained every hour", fontsize=10)
    panels[0][1].set_title("The first day, with and without", fontsize=10)
    panels[-1][0].set_xlabel("Days")
    panels[-1][1].set_xlabel("Hours")
    panels[-1][1].set_xticks(range(0, _DAY + 1, 6))
    handles, labels = panels[0][1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)


def _draw(axes: Axes, places: list[float], values: list[float], trigger: int, *, maintained: bool) -> None:
    axes.plot(
        places,
        values,
        color=_COLOURS[trigger],
        linewidth=1.1 if maintained else 1.8,
        linestyle="-" if maintained else (0, (1, 1)),
        label=f"{_TRIGGERS[trigger]}, {'maintained' if maintained else 'without maintenance'}",
    )


def _dress(axes: Axes) -> None:
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(left=0)
