"""Status by the stamps on the tables, where no driver tells it."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import LogEnds
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import Source
from jobs.streaming.supervision.documents.heartbeat import LastError, Work
from jobs.streaming.supervision.state.desired import StreamFiles
from jobs.streaming.supervision.state.observation import observe
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.event_times import EventCounts, EventTimes
from jobs.tables.commit.stamp.log_state import NO_ID
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp
from orchestration.cli.streams.status.collection import (
    _take_from_heartbeat,
    status_from_state,
)
from orchestration.cli.streams.status.output import print_table
from orchestration.cli.streams.status.stream_status import StreamStatus, status_facts
from orchestration.cli.streams.status.tables_and_topics import add_tables_and_topics
from tests.unit.orchestration.cli.status.test_output import BEAT
from tests.unit.orchestration.deployments import create_table

NO_BROKER = FrazilError("The local broker is not running.")


def commit(catalog: Catalog, spec: StreamSpec) -> None:
    at = TopicPartition("payments.v1", 0)
    target = Target(catalog, spec.table.name, spec.stream)
    target.claim(3, lambda newest: Stamp(spec.stream, "claim", -1, 3, spec.config_hash, {at: 0}, {at: 0}))
    stamp = Stamp(
        spec.stream,
        "batch",
        5,
        3,
        spec.config_hash,
        {at: 0},
        {at: 40},
        valid_through_ms=1_700_000_000_000,
        counts=Counts(40, 38, 1, 1),
        event_time=EventTimes("created_at", 1_699_999_000_000, batch=EventCounts(1_699_998_000_000, 1_699_999_600_000)),
        topics={"payments.v1": NO_ID},
    )
    target.land(stamp, (), seen=target.seen(), batch={at: OffsetRange(0, 40)}, position={at: 0})


def whole_status(spec: StreamSpec, settings: Settings, catalog: Catalog | FrazilError) -> StreamStatus:
    status = status_from_state(observe(spec.stream, StreamFiles({spec.stream: spec}), settings), spec)
    add_tables_and_topics(status, spec, catalog, NO_BROKER)
    return status


def test_status_reads_stamps_without_broker_and_jvm(settings: Settings, spec: StreamSpec) -> None:
    with connect_catalog(settings) as catalog:
        create_table(catalog, spec)
        commit(catalog, spec)
        status = whole_status(spec, settings, catalog)
    facts = status_facts(status)
    assert (facts["state"], facts["epoch"], facts["batch"]) == ("idle", 3, 5)
    assert facts["position"] == {"payments.v1": {"0": 40}}
    assert facts["records_passed"] == 40
    assert facts["topics_without_id"] == ["payments.v1"]
    assert facts["complete_through"] == "2023-11-14T22:13:20.000+00:00"
    assert facts["watermark"] == "2023-11-14T21:56:40.000+00:00"
    assert facts["newest_event_times"] == ["2023-11-14T21:40:00.000+00:00", "2023-11-14T22:06:40.000+00:00"]
    assert facts["late_by"] is None, "no driver tells"
    assert datetime.now(UTC) - datetime.fromisoformat(facts["last_commit"]) < timedelta(minutes=1)
    assert facts["lag"] is None
    assert facts["unknown"] == {"kafka": "The local broker is not running."}


class Log:
    """Stands in for Kafka, whose one partition ends there."""

    def __init__(self, end: int) -> None:
        self.end: int = end

    def topics(self, source: Source) -> dict[str, list[int]]:
        return {topic: [0] for topic in source.topics or ()}

    def earliest(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def ends(self, partitions: list[TopicPartition]) -> LogEnds:
        return LogEnds(ends := dict.fromkeys(partitions, self.end), ends, {})


@pytest.mark.parametrize(
    ("ran", "continuous", "end", "fix"),
    [
        (True, False, 40, None),
        (True, False, 41, "frazil run payments"),
        (True, True, 40, None),
        (True, True, 41, "frazil start payments"),
        (False, False, 0, None),
        (False, False, 1, "frazil run payments"),
        (False, True, 0, "frazil start payments"),
    ],
)
def test_a_stream_is_run_where_records_wait(
    settings: Settings, spec: StreamSpec, ran: bool, continuous: bool, end: int, fix: str | None
) -> None:
    spec = spec.model_copy(update={"trigger": "as_fast_as_possible" if continuous else "available_now"})
    log: Any = Log(end)
    with connect_catalog(settings) as catalog:
        if ran:
            create_table(catalog, spec)
            commit(catalog, spec)
        status = status_from_state(observe(spec.stream, StreamFiles({spec.stream: spec}), settings), spec)
        add_tables_and_topics(status, spec, catalog, log)
    assert (status.state, status.fix) == ("idle" if ran else "never ran", fix)


@pytest.mark.parametrize(("state", "fix"), [("idle", None), ("draining", None), ("failed", "frazil up")])
def test_the_next_command_of_an_old_error_is_not_that_of_an_idle_stream(state: str, fix: str | None) -> None:
    status = StreamStatus("payments", "orders.payments", "orders.payments_dead", state=state)
    error = LastError("Kafka is gone", "away", 1.0, "frazil up")
    _take_from_heartbeat(status, msgspec.structs.replace(BEAT, state="failed", error=error), 9.0, lives=False)
    assert (status.error, status.fix) == (error, fix)


@pytest.mark.parametrize("asked", [True, False])
def test_a_lag_that_the_driver_cannot_look_up_is_unknown_unless_kafka_answers(
    settings: Settings, spec: StreamSpec, asked: bool
) -> None:
    status = StreamStatus(spec.stream, spec.table.name, spec.dead_letter_table)
    work = Work(position={"payments.v1": {"0": 40}}, lag_at=1_700_000_000.0, lag_unknown_since=1_700_000_060.0)
    _take_from_heartbeat(status, msgspec.structs.replace(BEAT, work=work), 1.0, lives=True)
    assert status.unknown == {
        "kafka": "the driver of payments has not been able to look up its lag since 2023-11-14 22:14 UTC"
    }
    if asked:
        log: Any = Log(43)
        with connect_catalog(settings) as catalog:
            add_tables_and_topics(status, spec, catalog, log)
        assert (status.work.total_lag, status.unknown) == (3, {})
        return
    with redirect_stdout(io.StringIO()) as shown:
        print_table([status])
    header, row, reason = shown.getvalue().splitlines()
    assert row[header.index("lag") :].split()[0] == "?"
    assert reason == f"? kafka: {status.unknown['kafka']}"


def test_a_catalog_that_fails_costs_only_its_own_cells(settings: Settings, spec: StreamSpec) -> None:
    status = whole_status(spec, settings, FrazilError("catalog lake: no route"))
    assert status.state == "never ran"
    assert status.unknown == {"catalog": "catalog lake: no route", "kafka": "The local broker is not running."}
