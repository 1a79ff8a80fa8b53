"""Report of the runs, as text, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from bench.versus.formats import PAYMENT_FORMATS, Format
from bench.versus.measurement import Run, Side, Spread, ratio_of, ratios

NAMES: dict[Side, str] = {"connect": "Connect sink", "connect-bare": "… without `_kafka` columns", "frazil": "frazil"}

_RATES = {
    "records_per_second": "records per second",
    "records_per_cpu_second": "records per CPU-second",
    "mb_per_second": "MB per second",
    "mb_per_cpu_second": "MB per CPU-second",
}
_COMPARED = ("records_per_second", "records_per_cpu_second")
_BOTH: tuple[Side, Side] = ("connect", "frazil")
_SHORT = {"whole": "whole run", "steady": "steady part"}
_COSTS = {
    "seconds": "seconds",
    "cpu_seconds": "CPU-seconds",
    "broker_cpu_seconds": "CPU-seconds of the broker",
}
_OTHERS = {
    "peak_memory_mb": "peak memory, MB",
    "commits": "commits",
    "seconds_between_commits": "seconds from commit to commit",
    "commit_seconds": "seconds in commits",
    "commit_share": "share of the time in commits",
    "files": "data files",
    "file_mb": "MB in data files",
}
_PARTS: dict[Literal["whole", "steady"], str] = {
    "whole": "Whole run: from the start of the process to the last commit",
    "steady": "Steady part: warm, and records flow",
}


def markdown(runs: Sequence[Run]) -> str:
    """Tables of all figures: the median of the rounds, the least and the most; the ratio is frazil's over theirs."""
    sides: list[Side] = [side for side in NAMES if any(run.side == side for run in runs)]
    compared = "frazil" in sides and "connect" in sides
    lines: list[str] = []
    for part, title in _PARTS.items():
        lines += ["", f"**{title}**", "", *_head(sides, ratio=compared)]
        for figure, name in {**_RATES, **_COSTS}.items():
            if cells := _cells(runs, sides, part, figure):
                ratio = ratios(runs, part, figure, "connect") if compared and figure in _RATES else None
                lines.append(_row(name, [*cells, *([f"{_ratio(ratio)}" if ratio else ""] if compared else [])]))
    lines += ["", "**All else**", "", *_head(sides, ratio=False)]
    lines += [_row(name, cells) for figure, name in _OTHERS.items() if (cells := _cells(runs, sides, "other", figure))]
    return "\n".join(lines[1:]) + "\n"


def by_format(runs: Sequence[Run]) -> dict[Format, list[Run]]:
    """The runs of each format, in the order of the formats."""
    found: dict[Format, list[Run]] = {
        format_: [run for run in runs if run.format == format_] for format_ in PAYMENT_FORMATS
    }
    return {format_: some for format_, some in found.items() if some}


def formats_text(runs: Sequence[Run]) -> str:
    """A table of the formats beside each other: each side with each, and what each ratio is; nothing for one format.

    A ratio is of the runs of one round: frazil's with a format over frazil's with JSON; and over the sink's with JSON,
    where the sink does not read the format.
    """
    formats = by_format(runs)
    if len(formats) < 2:
        return ""
    columns: list[tuple[Literal["whole", "steady"], str]] = [(part, rate) for part in _PARTS for rate in _COMPARED]
    heads = [f"{_SHORT[part]}, {_RATES[rate]}" for part, rate in columns]
    lines = ["**The formats**", "", _row("", heads), "|---|" + "---:|" * len(heads)]
    sides: dict[tuple[Side, Format], list[Run]] = {
        (side, format_): some for side in _BOTH for format_ in formats if (some := _of(formats[format_], side))
    }
    for (side, format_), some in sides.items():
        cells = [_cells(some, [side], part, rate) for part, rate in columns]
        lines.append(_row(f"{NAMES[side]}, {format_}", [each[0] if each else "" for each in cells]))
    for format_ in formats:
        if format_ == "json":
            continue
        for other in ("frazil", "connect") if ("connect", format_) not in sides else ("frazil",):
            ours, theirs = sides.get(("frazil", format_), []), sides.get((other, "json"), [])
            found = [ratio_of(ours, theirs, part, rate) for part, rate in columns]
            if any(found):
                name = f"frazil, {format_} : {NAMES[other]}, json"
                lines.append(_row(name, [_ratio(each) if each else "" for each in found]))
    return "\n".join(lines) + "\n"


def _of(runs: Sequence[Run], side: Side) -> list[Run]:
    return [run for run in runs if run.side == side]


def fastest(trials: Mapping[int, Run]) -> int:
    """The number of tasks with the most records per second, in the steady part where there is one."""
    return max(trials, key=lambda tasks: (trials[tasks].steady or trials[tasks].whole).figures["records_per_second"])


def trials_text(trials: Mapping[int, Run]) -> str:
    """A table of the sink with each number of tasks; nothing if none was tried."""
    if not trials:
        return ""
    lines = ["**The sink's tasks**, one run each; the most records per second in the steady part took part", ""]
    lines += [
        _row("", [f"{tasks} tasks" if tasks > 1 else "1 task" for tasks in trials]),
        "|---|" + "---:|" * len(trials),
    ]
    for part, name in _SHORT.items():
        for figure in _COMPARED:
            values = [(run.figures[part] or {}).get(figure) for run in trials.values()]
            cells = ["" if value is None else _number(value, figure) for value in values]
            lines.append(_row(f"{name}, {_RATES[figure]}", cells))
    return "\n".join(lines) + "\n"


def settings_text(settings: Mapping[str, Mapping[str, str]], favours: Mapping[str, Sequence[str]]) -> str:
    """Versions and settings, and what favours whom."""
    lines: list[str] = []
    for title, facts in settings.items():
        lines += [f"**{title}**", "", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    for whom, points in favours.items():
        lines += [f"**What favours {whom}**", "", *(f"- {point}" for point in points), ""]
    return "\n".join(lines)


def as_json(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Runs as JSON, with their commits, readings and figures."""
    return [{**asdict(run), "figures": run.figures} for run in runs]


def _head(sides: Sequence[Side], *, ratio: bool) -> list[str]:
    names = [NAMES[side] for side in sides] + (["ratio"] if ratio else [])
    return [_row("", names), "|---|" + "---:|" * len(names)]


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | " + " | ".join(cells) + " |"


def _cells(
    runs: Sequence[Run], sides: Sequence[Side], part: Literal["whole", "steady", "other"], figure: str
) -> list[str]:
    """A cell for each side; nothing at all if no side has the figure."""
    cells: list[str] = []
    for side in sides:
        values = [(run.figures[part] or {}).get(figure) for run in runs if run.side == side]
        told = [value for value in values if value is not None]
        cells.append(_spread(Spread.of(told), figure) if told else "not told")
    return [] if set(cells) == {"not told"} else cells


def _spread(spread: Spread, figure: str) -> str:
    least, median, most = (_number(value, figure) for value in (spread.least, spread.median, spread.most))
    return median if least == most else f"{median} ({least} – {most})"


def _ratio(spread: Spread) -> str:
    return f"**{spread.median:.2f} ×** ({spread.least:.2f} – {spread.most:.2f})"


def _number(value: float, figure: str) -> str:
    if figure == "commit_share":
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
