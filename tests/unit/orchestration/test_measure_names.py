"""Names of every figure of a stream: in the metrics, the heartbeat, `frazil status --json` and Dagster's metadata."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import msgspec
import pytest
from click.testing import CliRunner

from assets.materialization import _running_metadata
from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.driver.process.metrics import metrics_of_all
from jobs.streaming.supervision.documents.heartbeat import (
    LastError,
    Work,
    write_heartbeat,
)
from jobs.streaming.supervision.documents.measures import OF_DRIVER, OF_WORK
from jobs.tables.commit.stamp.lateness import LATENESS_NAMES
from orchestration.cli.main import main
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.drivers import end_all
from tests.unit.orchestration.full_heartbeat import BEAT, NOW, OFFSETS, WORK, full_beat
from tests.unit.orchestration.reconcile.sample_states import NOW as TICK
from tests.unit.orchestration.reconcile.supervised_deployment import World as Supervised
from tests.unit.orchestration.reconcile.supervised_deployment import told, values
from tests.unit.streaming.supervision.worlds import WHY, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    end_all(made)


@pytest.fixture
def orders(tmp_path: Path) -> Supervised:
    made = Supervised(tmp_path)
    made.write("orders")
    return made


def test_a_heartbeat_is_read_and_written_with_the_same_names(tmp_path: Path) -> None:
    beat = full_beat(tmp_path)
    store = LocalStore(tmp_path / "again")
    write_heartbeat(store, beat)
    assert json.loads(store.get("heartbeat.json") or b"") == BEAT
    write_heartbeat(store, full_beat(tmp_path, work={}))
    assert json.loads(store.get("heartbeat.json") or b"")["work"].keys() == WORK.keys()
    assert full_beat(tmp_path, work=WORK | {"of_a_later_release": 1}).work == beat.work


def test_metrics_have_their_names_types_and_labels(tmp_path: Path) -> None:
    found = {
        (metric.type, sample.name, *sorted(sample.labels))
        for metric in metrics_of_all([full_beat(tmp_path)])
        for sample in metric.samples
    }
    plain = {
        "counter": (
            "records_read", "records_landed", "tombstones", "filtered", "records_late", "batches", "batch_seconds",
            "commit_seconds", "commit_refusals",
        ),
        "gauge": (
            "last_batch_seconds", "last_commit_seconds", "last_commit_timestamp_seconds",
            "valid_through_timestamp_seconds", "watermark_timestamp_seconds", "lateness_greatest_seconds",
            "event_time_least_timestamp_seconds", "event_time_greatest_timestamp_seconds",
            "consumer_lag_timestamp_seconds", "undecided_records", "undecided_since_timestamp_seconds",
            "unpublished_letters", "driver_start_timestamp_seconds",
        ),
    }  # fmt: skip
    assert found == {
        *(("counter", f"frazil_{name}_total", "stream") for name in plain["counter"]),
        *(("gauge", f"frazil_{name}", "stream") for name in plain["gauge"]),
        ("counter", "frazil_records_dead_total", "reason", "stream"),
        ("counter", "frazil_rule_warnings_total", "rule", "stream"),
        ("counter", "frazil_parked_letters_total", "stream", "table"),
        ("gauge", "frazil_parked_since_timestamp_seconds", "stream", "table"),
        ("counter", "frazil_unknown_fields_total", "path", "stream"),
        ("gauge", "frazil_consumer_lag_records", "partition", "stream", "topic"),
        ("gauge", "frazil_position_offset", "partition", "stream", "topic"),
        ("gauge", "frazil_driver_state", "state", "stream"),
        ("histogram", "frazil_lateness_seconds_bucket", "le", "stream"),
        ("info", "frazil_driver_info", "attempt", "epoch", "generation", "stream"),
    }


def status_facts(world: World) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["--home", str(world.home), "status", "payments", "--json"])
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["streams"]
    return found


def nested_keys(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, dict) else None for name, value in facts.items()}


STATUS = {
    **dict.fromkeys(
        (
            "stream", "table", "dead_letter_table", "state", "next", "holder", "group", "generation",
            "wanted_generation", "attempt", "failures_in_a_row", "error", "file_problem", "supervisor", "epoch",
            "batch", "records_passed", "lag", "undecided_records", "undecided_since", "topics_without_id",
            "records_per_second", "rows", "tables", "landed", "dead", "branch", "unpublished_letters", "outbox_error",
            "last_commit", "complete_through", "watermark", "records_late", "late_by", "latest_late_seconds",
            "newest_event_times", "last_check",
        )
    ),
    "wish": ["state", "by", "reason"],
    "driver": [
        "pid", "host", "launcher", "handle", "since", "uptime_seconds", "beat_age_seconds", "log", "spark_ui",
        "metrics",
    ],
    "unknown_fields": ["since", "records_landed", "fields"],
    **{name: [] for name in ("position", "lag_by_partition", "parked", "dead_letters_by_reason", "last_checks")},
    "unknown": ["kafka"],
}  # fmt: skip


def test_status_has_its_names_for_a_stream_that_never_ran(world: World) -> None:
    world.write("payments")
    facts = status_facts(world)
    assert nested_keys(facts) == STATUS
    assert {name for name, value in facts.items() if value is not None} == {
        "stream", "table", "dead_letter_table", "state", "next", "wish", "wanted_generation", "failures_in_a_row",
        "driver", "position", "records_passed", "lag_by_partition", "parked", "dead_letters_by_reason",
        "unknown_fields", "last_checks", "unknown",
    }  # fmt: skip


FIGURES: dict[str, Any] = {
    "state": "running",
    "batch": 4,
    "position": OFFSETS,
    "records_passed": 100,
    "lag": 3,
    "lag_by_partition": {"payments.v1": {"0": 3, "1": 0}},
    "undecided_records": 7,
    "records_per_second": 10.0,
    "dead_letters_by_reason": {"not_json": 3, "missing": 5},
    "unpublished_letters": 13,
    "last_commit": "2023-11-14T22:13:16.000+00:00",
    "complete_through": "2023-11-14T22:13:11.000+00:00",
    "watermark": "2023-11-14T22:12:20.000+00:00",
    "records_late": 6,
    "late_by": {"1m": 3, "10m": 0, "1h": 2, "1d": 0, "more": 1},
    "latest_late_seconds": 90061.5,
    "newest_event_times": ["2023-11-14T22:13:20.000+00:00", "2023-11-14T23:13:20.000+00:00"],
}


def rounded(at: float) -> datetime:
    """As shown: to the millisecond."""
    return datetime.fromisoformat(datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"))


def test_status_tells_each_figure_of_a_driver_under_its_name(world: World) -> None:
    world.control().start(*WHY)
    os.kill(world.beat().pid, signal.SIGSTOP)
    now, beat = time.time(), world.beat()
    changes = {"lag_at": now, "undecided_since": now, "busy_since": now, "unanswered_since": None}
    work = msgspec.convert(WORK | changes, Work)
    store = LocalStore(world.folder())
    write_heartbeat(store, msgspec.structs.replace(beat, work=work, unpublished_letters=13))
    facts = status_facts(world)
    assert facts.keys() == STATUS.keys() >= {each.status for each in (*OF_WORK, *OF_DRIVER) if each.status}
    assert {name: facts[name] for name in FIGURES} == FIGURES
    assert datetime.fromisoformat(facts["undecided_since"]) == rounded(now)
    os.kill(beat.pid, signal.SIGKILL)
    wait_for(lambda: not world.living(), "the driver's end")
    error = LastError("refused", "away", NOW, "start it", "trace")
    write_heartbeat(store, msgspec.structs.replace(beat, work=work, state="failed", error=error, outbox_error=error))
    facts = status_facts(world)
    assert facts["error"] == {
        "message": "refused", "kind": "away", "at": "2023-11-14T22:13:20.000+00:00", "next": "start it",
        "trace": "trace",
    }  # fmt: skip
    assert facts["outbox_error"] == "refused"
    assert facts["dead_letters_by_reason"] == WORK["reasons"], "also of a driver that has ended"
    assert {name: facts[name] for name in ("records_per_second", "records_late", "late_by", "batch", "position")} == {
        "records_per_second": None, "records_late": None, "late_by": None, "batch": None, "position": {},
    }  # fmt: skip


def test_dagster_has_its_names(orders: Supervised, tmp_path: Path) -> None:
    offsets = {"orders.v1": {"0": 40}}
    changes = {"lag_at": TICK, "busy_since": None, "unanswered_since": None, "valid_through_ms": int(TICK) * 1000}
    changes |= {"position": offsets, "lag": offsets, "undecided": offsets, "parked": {}}
    orders.drive("orders", now=TICK, work=msgspec.convert(WORK | changes, Work))
    tick = orders.tick(TICK)
    (report,) = told(tick, dg.AssetKey(["frazil", "orders", "orders"]))
    state = {
        "state", "state_since", "as_of", "generation", "attempt", "epoch", "driver_pid", "driver_host", "driver_log",
        "driver_launcher", "driver_handle", "next",
    }  # fmt: skip
    assert report.metadata.keys() - state == {
        "offsets", "batch_duration_ms", "commit_ms", "records_per_second", "last_commit", "consumer_lag_records",
        "lag_as_of", "undecided_records", "complete_through", "watermark", "watermark_lag_s", "event_time_least",
        "event_time_greatest", "records_late", "latest_late_s", "late_by", "snapshot_id", "look_up", "behind_seconds",
        "dead_letter_ratio",
    }  # fmt: skip
    found = values(report)
    assert (found["offsets"], found["batch_duration_ms"], found["commit_ms"]) == (offsets, 2500, 50)
    assert (found["records_per_second"], found["last_commit"], found["latest_late_s"]) == (10.0, NOW - 4, 90061.5)
    assert (found["records_late"], found["event_time_least"]) == (6, 1_700_000_000)
    steps = zip(LATENESS_NAMES, WORK["late_by"], strict=True)
    assert [row.data for row in found["late_by"].records] == [{"late_by": name, "records": n} for name, n in steps]
    running = _running_metadata(orders.deployment.stream("orders"), "It runs.", full_beat(tmp_path), None)
    assert running.keys() >= {each.metadata for each in OF_WORK if each.metadata}
    assert running.keys() - state >= {
        "done", "spark_ui", "metrics", "offsets", "unknown_fields", "consumer_lag_records", "undecided_records",
        "complete_through", "watermark", "watermark_lag_s", "event_time_least", "event_time_greatest", "records_late",
        "latest_late_s", "late_by",
    }  # fmt: skip
