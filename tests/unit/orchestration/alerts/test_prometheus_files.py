"""The files for Prometheus and Grafana: as written, with names that a driver serves, and rules that fire."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from jobs.streaming.driver.process.metrics import MetricsServer
from jobs.streaming.supervision.documents.measures import MEASURES
from orchestration.alerts.alarms import ALARMS
from orchestration.alerts.memory import CLEAR_SECONDS
from orchestration.alerts.prometheus_files import COMMAND, DASHBOARD, RULES, dashboard_text, main, rules_text
from tests.unit.orchestration.full_heartbeat import full_beat

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")


def rule_queries() -> list[str]:
    (group,) = yaml.safe_load(rules_text())["groups"]
    return [rule["expr"] for rule in group["rules"]]


def dashboard_queries() -> list[str]:
    return [target["expr"] for panel in json.loads(dashboard_text())["panels"] for target in panel.get("targets", [])]


def promtool(*arguments: str) -> str:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "text"), [(RULES, rules_text), (DASHBOARD, dashboard_text)], ids=["rules", "board"])
def test_the_files_are_as_the_generator_writes_them(name: str, text: Any, tmp_path: Path) -> None:
    assert (EXAMPLES / name).read_text(encoding="utf-8") == text(), f"run: {COMMAND}"
    assert main([str(tmp_path)]) == 0
    assert (tmp_path / name).read_text(encoding="utf-8") == text()


def test_every_name_in_a_query_is_served_by_a_driver(tmp_path: Path) -> None:
    beat = full_beat(tmp_path)
    with MetricsServer(lambda: (beat,)) as server, urllib.request.urlopen(server.url, timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    served = {sample.name for family in families for sample in family.samples}
    labels = {label for family in families for sample in family.samples for label in sample.labels}
    asked = [*rule_queries(), *dashboard_queries()]
    names = {name for query in asked for name in re.findall(r"\bfrazil_[a-z_]+", query)}
    assert names <= served
    assert {measure.sample for measure in MEASURES if measure.metric} <= served
    grouped = {
        label
        for query in asked
        for text in re.findall(r"(?:by|on) \(([a-z, ]+)\)", query)
        for label in text.split(", ")
    }
    assert grouped <= labels


def test_every_measure_has_a_panel_and_no_two_panels_overlap() -> None:
    panels = json.loads(dashboard_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    shown = {name for query in dashboard_queries() for name in re.findall(r"\bfrazil_[a-z_]+", query)}
    assert shown == {measure.sample for measure in MEASURES if measure.metric}
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_rules_have_the_ids_and_severities_of_alarms() -> None:
    (group,) = yaml.safe_load(rules_text())["groups"]
    rules = {rule["alert"]: rule for rule in group["rules"]}
    assert rules.keys() == {alarm.id for alarm in ALARMS if alarm.query}
    for alarm in ALARMS:
        if alarm.query:
            assert rules[alarm.id]["labels"] == {"severity": alarm.severity}
            assert "{stream}" not in str(rules[alarm.id])


@needs_promtool
def test_promtool_reads_rules_settings_and_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    promtool("check", "rules", str(EXAMPLES / RULES))
    promtool("check", "config", str(EXAMPLES / "prometheus" / "prometheus.yaml"))
    queries = [query.replace("$__rate_interval", "5m").replace("$stream", ".*") for query in dashboard_queries()]
    rules = [{"record": f"panel_{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(file))


# By alarm: series, a value every minute, and the minute at which it fires.
SERIES: dict[str, tuple[dict[str, str], int]] = {
    "stream_stopped": ({'frazil_driver_state{stream="s",state="paused"}': "1x60"}, 16),
    "driver_gone": ({'frazil_driver_start_timestamp_seconds{stream="s"}': "1x5 _x60"}, 20),
    "heartbeat_stale": ({'up{job="frazil",driver="s",instance="127.0.0.1:1"}': "1x3 0x60"}, 8),
    "driver_stalled": (
        {
            'frazil_last_commit_timestamp_seconds{stream="s"}': "0x60",
            'frazil_consumer_lag_records{stream="s",topic="t",partition="0"}': "5x60",
        },
        35,
    ),
    "driver_failing": (
        {
            f'frazil_driver_info{{stream="s",attempt="{number}",instance="127.0.0.1:{number}"}}': f"_x{number} 1 _x60"
            for number in range(1, 6)
        },
        8,
    ),
    "service_unavailable": ({'frazil_driver_state{stream="s",state="retrying"}': "1x60"}, 6),
    "table_suspended": ({'frazil_parked_since_timestamp_seconds{stream="s",table="a.b"}': "60x60"}, 1),
    "transaction_open": ({'frazil_undecided_since_timestamp_seconds{stream="s"}': "0x60"}, 20),
    "dead_letters_unpublished": ({'frazil_unpublished_letters{stream="s"}': "4x60"}, 30),
    "lag_above_slo": ({'frazil_valid_through_timestamp_seconds{stream="s"}': "0x60"}, 20),
    "dead_letters_above_limit": (
        {
            'frazil_records_dead_total{stream="s",reason="not_json"}': "0+10x60",
            'frazil_records_read_total{stream="s"}': "0+100x60",
        },
        10,
    ),
    "undeclared_fields": ({'frazil_unknown_fields_total{stream="s",path="$.x"}': "0+1x60"}, 10),
}
# The same series of a stream that is well.
WELL = {
    'frazil_driver_state{stream="w",state="running"}': "1x60",
    'frazil_driver_state{stream="w",state="paused"}': "0x60",
    'frazil_driver_state{stream="w",state="retrying"}': "0x60",
    'frazil_driver_start_timestamp_seconds{stream="w"}': "0x60",
    'frazil_driver_info{stream="w",attempt="1",instance="127.0.0.1:9"}': "1x60",
    'up{job="frazil",driver="w",instance="127.0.0.1:9"}': "1x60",
    'frazil_last_commit_timestamp_seconds{stream="w"}': "0+60x60",
    'frazil_valid_through_timestamp_seconds{stream="w"}': "0+60x60",
    'frazil_consumer_lag_records{stream="w",topic="t",partition="0"}': "5x60",
    'frazil_unpublished_letters{stream="w"}': "4 0 4 0 4 0 4 0 4 0x60",
    'frazil_records_dead_total{stream="w",reason="not_json"}': "0+1x60",
    'frazil_records_read_total{stream="w"}': "0+100x60",
    'frazil_unknown_fields_total{stream="w",path="$.x"}': "7x60",
}


# Labels of alerts beside stream and severity.
OTHER_LABELS = {
    "heartbeat_stale": {"driver": "s", "job": "frazil", "instance": "127.0.0.1:1"},
    "table_suspended": {"table": "a.b"},
}


@needs_promtool
def test_each_rule_fires_for_the_stream_that_needs_it_and_no_other(tmp_path: Path) -> None:
    assert SERIES.keys() == {alarm.id for alarm in ALARMS if alarm.query}
    assert CLEAR_SECONDS == 60
    tests: list[dict[str, Any]] = []
    for alarm, (series, minute) in SERIES.items():
        rule = next(rule for rule in yaml.safe_load(rules_text())["groups"][0]["rules"] if rule["alert"] == alarm)
        others = OTHER_LABELS.get(alarm, {})
        annotations = {name: text.replace("{{ $labels.stream }}", "s") for name, text in rule["annotations"].items()}
        expected = {"exp_labels": {**rule["labels"], **others, "stream": "s"}, "exp_annotations": annotations}
        checks = [{"eval_time": f"{minute}m", "alertname": alarm, "exp_alerts": [expected]}]
        checks += [{"eval_time": "0m", "alertname": alarm, "exp_alerts": []}] if alarm != "table_suspended" else []
        given = [{"series": name, "values": values} for name, values in {**WELL, **series}.items()]
        tests.append({"interval": "1m", "input_series": given, "alert_rule_test": checks})
    file = tmp_path / "tests.yaml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(EXAMPLES / RULES)], "evaluation_interval": "1m", "tests": tests})
    )
    assert "SUCCESS" in promtool("test", "rules", str(file))
