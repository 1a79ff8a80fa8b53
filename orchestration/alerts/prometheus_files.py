"""Generator of the files for Prometheus and Grafana: `python -m orchestration.alerts.prometheus_files` writes both.

The rules come from the table of alarms, the dashboard from the list of measures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from jobs.streaming.supervision.documents.measures import (
    EVENT_TIMES,
    FRESHNESS,
    LATENESS,
    OF_DRIVER,
    PROGRESS,
    Measure,
)
from orchestration.alerts.alarms import ALARMS, Alarm
from orchestration.alerts.memory import CLEAR_SECONDS

RULES, DASHBOARD = "prometheus/rules.yaml", "grafana/dashboard.json"
COMMAND = "python -m orchestration.alerts.prometheus_files"
_HEAD = f"""\
# Rules of frazil's alarms that metrics show, for Prometheus 2.42 or later. Written by `{COMMAND}`.
# Each rule has the id of its alarm. The sensor frazil_alerts reports all alarms, also those that no metric shows.
"""
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_OF_STREAM = '{stream=~"$stream"}'
_COLUMNS, _WIDTH, _HEIGHT = 24, 8, 7
_ROWS: tuple[tuple[str, tuple[Measure[Any], ...]], ...] = (
    ("Drivers", OF_DRIVER),
    ("How far streams have come", FRESHNESS),
    ("Records, batches and commits", PROGRESS),
    ("Event times and late records", EVENT_TIMES + LATENESS),
)


def rules_text() -> str:
    """The rules file."""
    rules = [_rule(alarm) for alarm in ALARMS if alarm.query]
    document = {"groups": [{"name": "frazil", "rules": rules}]}
    return _HEAD + yaml.safe_dump(document, sort_keys=False, width=120)


def _rule(alarm: Alarm) -> dict[str, Any]:
    waits = {"for": f"{alarm.seconds}s"} if alarm.seconds else {}
    return {
        "alert": alarm.id,
        "expr": alarm.query,
        **waits,
        "keep_firing_for": f"{CLEAR_SECONDS}s",
        "labels": {"severity": alarm.severity},
        "annotations": {
            "summary": f"{{{{ $labels.stream }}}}: {alarm.meaning}",
            "safe": alarm.safe,
            # The target of a group's driver has the group's name, and commands take streams.
            "next": "frazil status"
            if alarm.id == "heartbeat_stale"
            else alarm.next.format(stream="{{ $labels.stream }}"),
            "runbook": f"docs/runbooks/{alarm.runbook}.md",
        },
    }


def dashboard_text() -> str:
    """The dashboard, as Grafana imports it."""
    return json.dumps(_dashboard(), indent=2) + "\n"


def _dashboard() -> dict[str, Any]:
    panels: list[dict[str, Any]] = [_alarms_panel()]
    top = _HEIGHT
    for title, measures in _ROWS:
        shown = [measure for measure in measures if measure.metric]
        place = {"h": 1, "w": _COLUMNS, "x": 0, "y": top}
        panels.append({"type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []})
        top += 1
        for number, measure in enumerate(shown):
            row, column = divmod(number, _COLUMNS // _WIDTH)
            at = {"h": _HEIGHT, "w": _WIDTH, "x": column * _WIDTH, "y": top + row * _HEIGHT}
            panels.append(_measure_panel(measure, at))
        top += _HEIGHT * -(-len(shown) // (_COLUMNS // _WIDTH))
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    return {
        "title": "frazil",
        "uid": "frazil",
        "tags": ["frazil"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                {
                    "name": "stream",
                    "type": "query",
                    "label": "Stream",
                    "datasource": _SOURCE,
                    "query": "label_values(frazil_driver_start_timestamp_seconds, stream)",
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                },
            ]
        },
        "panels": panels,
    }


def _alarms_panel() -> dict[str, Any]:
    ids = "|".join(alarm.id for alarm in ALARMS if alarm.query)
    query = f'ALERTS{{alertstate="firing",alertname=~"{ids}"}}'
    place = {"h": _HEIGHT, "w": _COLUMNS, "x": 0, "y": 0}
    return {
        **_panel("table", "Alarms that fire", "The rules of examples/prometheus/rules.yaml.", place),
        "targets": [_target(query, "", instant=True)],
        "transformations": [
            {"id": "organize", "options": {"excludeByName": {"Time": True, "Value": True, "__name__": True}}}
        ],
    }


def _measure_panel(measure: Measure[Any], place: dict[str, int]) -> dict[str, Any]:
    title, unit = measure.metric.removeprefix("frazil_").replace("_", " "), "short"
    by, legend = _grouped(measure)
    selected = f"{measure.sample}{_OF_STREAM}"
    if measure.type == "info":
        panel = _panel("table", title, measure.help, place)
        return panel | {"targets": [_target(f"max {by} ({selected})", "", instant=True)]}
    if measure.type == "histogram":
        # Without a sum and a count, a quantile is what the buckets give.
        query, unit = f"histogram_quantile(0.99, sum {by} (rate({selected}[$__rate_interval])))", "s"
        title = f"{title}, 99th percentile"
    elif measure.type == "counter":
        query, unit = f"sum {by} (rate({selected}[$__rate_interval]))", "ops"
        if measure.unit == "seconds":
            title, unit = f"{title} per second", "short"
    elif measure.is_time:
        query, unit, title = f"time() - max {by} ({selected})", "s", f"{title.removesuffix(' timestamp seconds')} ago"
    else:
        query = f"{'sum' if measure.unit == 'records' else 'max'} {by} ({selected})"
        unit = "s" if measure.unit == "seconds" else "short"
    panel = _panel("timeseries", title, measure.help, place)
    return panel | {"targets": [_target(query, legend)], "fieldConfig": {"defaults": {"unit": unit}, "overrides": []}}


def _grouped(measure: Measure[Any]) -> tuple[str, str]:
    """The labels that a panel keeps, as a clause of a query and as a legend. Partitions are summed up by topic."""
    labels = ["stream", *(label for label in measure.labels if label != "partition" and label != "le")]
    clause = ["le", *labels] if measure.type == "histogram" else labels
    return f"by ({', '.join(clause)})", " ".join(f"{{{{{label}}}}}" for label in labels)


def _panel(kind: str, title: str, description: str, place: dict[str, int]) -> dict[str, Any]:
    return {"type": kind, "title": title, "description": description, "datasource": _SOURCE, "gridPos": place}


def _target(query: str, legend: str, *, instant: bool = False) -> dict[str, Any]:
    shown = {"instant": True, "format": "table"} if instant else {"legendFormat": legend}
    return {"refId": "A", "datasource": _SOURCE, "expr": query, **shown}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files; returns the exit status."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("examples"), help="where they go")
    folder = parser.parse_args(arguments).folder
    for name, text in ((RULES, rules_text()), (DASHBOARD, dashboard_text())):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
