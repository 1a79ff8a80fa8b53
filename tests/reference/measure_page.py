"""Page of the measures: docs/reference/measures.md, from the list of measures."""

from __future__ import annotations

from typing import Any

from jobs.streaming.supervision.documents.measures import OF_DRIVER, OF_WORK, Measure

_HEAD = """\
# Measures

A driver serves these figures as OpenMetrics; `frazil status --json` and Dagster show some of them under other names. An
empty cell is a place that does not show the figure. Every metric has the label `stream` besides those in the table.
`python -m tests.reference` writes this page from `jobs/streaming/supervision/documents/measures.py`.
"""


def measure_page() -> str:
    """The page docs/reference/measures.md."""
    lines = [_HEAD]
    for title, measures in (("Work of a stream", OF_WORK), ("The driver", OF_DRIVER)):
        lines += [f"## {title}", "", "| metric | type | unit | `status --json` | Dagster | labels | meaning |"]
        lines += ["|---|---|---|---|---|---|---|", *(_row(measure) for measure in measures), ""]
    return "\n".join(lines).rstrip() + "\n"


def _row(measure: Measure[Any]) -> str:
    labels = ", ".join(f"`{label}`" for label in measure.labels)
    unit = "seconds since 1970" if measure.is_time else measure.unit
    cells = (
        _code(_sample(measure)), measure.type if measure.metric else "", unit,
        _code(measure.status), _code(measure.metadata), labels, measure.help,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _sample(measure: Measure[Any]) -> str:
    """Name of the samples: a counter's ends in `_total`, that of facts in `_info`."""
    endings = {"counter": "_total", "info": "_info"}
    return measure.metric + endings.get(measure.type, "") if measure.metric else ""


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
