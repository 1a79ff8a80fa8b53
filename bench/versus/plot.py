"""The runs as a picture: how the tables filled, and what a CPU-second brought."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from bench.versus.measure import Run, Side, Spread
from bench.versus.report import NAMES

_COLOURS: dict[Side, str] = {"connect": "#d9742b", "connect-bare": "#e5b181", "frazil": "#1f6f8b"}
_BARS: dict[str, tuple[Literal["whole", "steady"], str]] = {
    "Whole run,\nper second": ("whole", "records_per_second"),
    "Whole run,\nper CPU-second": ("whole", "records_per_cpu_second"),
    "Steady,\nper second": ("steady", "records_per_second"),
    "Steady,\nper CPU-second": ("steady", "records_per_cpu_second"),
}


def draw(runs: Sequence[Run], title: str, path: Path) -> None:
    """Left, records in the table over time, a line for each run; right, the medians with the least and the most."""
    sides: list[Side] = [side for side in NAMES if any(run.side == side for run in runs)]
    figure, (filling, rates) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", width_ratios=[1, 1.2])
    for run in runs:
        times, totals = [0.0], [0.0]
        for commit in run.commits:
            times.append(commit.at - run.began)
            totals.append(totals[-1] + commit.records / 1e6)
        filling.step(times, totals, where="post", color=_COLOURS[run.side], linewidth=1.3, alpha=0.8)
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
        rates.bar(left, medians, width, yerr=whiskers, capsize=3, color=_COLOURS[side], label=NAMES[side].strip("… "))
    rates.set_xticks(range(len(_BARS)), list(_BARS), fontsize=8)
    rates.set_title("Thousands of records", fontsize=10)
    rates.legend(frameon=False, fontsize=9)
    for axes in (filling, rates):
        _dress(axes)
    figure.suptitle(title, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)


def _dress(axes: Axes) -> None:
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.grid(visible=True, axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
