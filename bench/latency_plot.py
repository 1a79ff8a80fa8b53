"""The picture of latency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from bench.latency import Load, Run

_COLOURS = {"frazil": "#1f6f8b", "connect": "#d9742b", "connect-default": "#999999"}
_LOADS: dict[Load, str] = {"steady": "Records as they come", "singles": "Single records,\notherwise nothing"}


def latency(runs: Sequence[Run], path: Path) -> None:
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
                    axes.step(seconds, 100 * shares, where="post", color=_COLOURS[run.side], label=run.side)
            axes.axvline(2 * every, color="#bbbbbb", linewidth=0.8, linestyle=(0, (4, 3)))
            axes.set_xlim(left=0)
            axes.grid(visible=True, color="#dddddd", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel(f"{label}\n% seen")
    for column, every in enumerate(intervals):
        panels[0][column].set_title(f"every {every} s", fontsize=10)
        panels[-1][column].set_xlabel("Seconds since the record was produced")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)
