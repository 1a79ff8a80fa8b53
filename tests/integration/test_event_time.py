"""Event time through real streams: late records, a second run that decides the same, and a quiet stream's watermark."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jobs.catalog import connect_catalog
from jobs.commit.event_times import EventTimes
from jobs.commit.stamp_history import history, stamps_along_main
from jobs.stream.completeness import ObservedEnds
from jobs.stream.idle_watermark import IdleWatermark
from jobs.stream.opening import opened
from jobs.stream.progress import WorkLog
from jobs.verify.audit import audit
from jobs.verify.ledger_fill import fill_ledger
from tests.integration.faults import die
from tests.integration.pipeline import Coordinates, Pipeline
from tests.integration.topics import create_topic, idempotent_producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]
BASE = datetime(2026, 3, 1, 12, tzinfo=UTC)


def produce(one: Pipeline, minutes: Sequence[int | None], partition: int) -> None:
    """Payments of so many minutes after the test's noon; None: one that cannot be read."""
    producer = idempotent_producer(one.address, one.stream)
    for minute in minutes:
        one.numbers += 1
        at = (BASE + timedelta(minutes=minute or 0)).isoformat()
        record = {"id": f"p-{one.numbers}", "amount": 1, "created_at": at}
        value = b"{" if minute is None else json.dumps(record).encode()
        producer.produce(one.stream, key=b"k", value=value, partition=partition)
    assert producer.flush(30) == 0


def times(one: Pipeline) -> EventTimes:
    newest = history(one.table().metadata, one.stream).newest
    assert newest is not None
    assert newest.event_time is not None
    return newest.event_time


def ms(minutes: float) -> int:
    return round((BASE + timedelta(minutes=minutes)).timestamp() * 1000)


def test_late_records_and_a_second_run_that_decides_the_same(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline()
    one.write_spec(event_time={"column": "created_at", "grace": "10m", "late": "dead_letter"})
    produce(one, [0, 30, 20], 0)
    produce(one, [25, 5, None], 1)
    one.drain(spark)
    assert times(one).watermark_ms == ms(15)
    assert (times(one).batch.least_ms, times(one).batch.greatest_ms) == (ms(0), ms(30))

    # Late ones; with the table's commit done, and the dead letters' not, the driver dies, and its record is lost.
    produce(one, [14, 15, 90, 60], 0)
    produce(one, [3, 80], 1)
    die(one, spark, monkeypatch, "after_anchor_commit")
    assert times(one).watermark_ms == ms(70)
    shutil.rmtree(one.folder().root)
    # What comes until the second run is judged by the watermark of the first: it was in no batch before.
    produce(one, [20, 69, 95], 0)
    one.drain(spark)
    one.assert_exactly_once()
    letters = one.dead_table().scan(row_filter="error_class = 'late'").to_arrow().to_pylist()
    assert sorted(json.loads(letter["value"])["created_at"][11:16] for letter in letters) == [
        "12:03",
        "12:14",
        "12:20",
        "13:09",
    ]
    assert {letter["message"].rpartition(" ")[2] for letter in letters} == {
        "2026-03-01T12:15:00.000Z",
        "2026-03-01T13:10:00.000Z",
    }
    stamps = [stamp for _, stamp in stamps_along_main(one.table().metadata, one.stream) if stamp.kind == "batch"]
    assert sum(stamp.event_time.batch.dead for stamp in stamps if stamp.event_time) == 4
    # It never moves back, over claims and restarts.
    marks = [
        stamp.event_time.watermark_ms
        for _, stamp in stamps_along_main(one.table().metadata, one.stream)
        if stamp.event_time and stamp.event_time.watermark_ms is not None
    ]
    assert marks == sorted(marks, reverse=True)


def test_killed_at_the_commit_it_judges_by_the_same_watermark(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.write_spec(event_time={"column": "created_at", "grace": "10m", "late": "dead_letter"})
    produce(one, [60], 0)
    produce(one, [60], 1)
    one.drain(spark)
    produce(one, [10, 70, 49, 50], 0)
    one.run_and_die("after_anchor_commit")
    one.drain(spark)
    one.assert_exactly_once()
    assert len(one.dead()) == 2
    (batch, _) = (each for _, each in stamps_along_main(one.table().metadata, one.stream) if each.kind == "batch")
    assert batch.event_time is not None
    assert (batch.event_time.batch.late, batch.event_time.batch.dead) == ((1, 0, 1, 0, 0), 2)


def test_a_quiet_stream_s_watermark_moves_on_and_is_what_later_records_are_judged_by(
    pipeline: Make, spark: SparkSession
) -> None:
    one = pipeline()
    block = {"column": "created_at", "grace": "10m", "idle_after": "1s", "closes": "hour"}
    one.write_spec(event_time=block)
    produce(one, [0], 0)
    one.drain(spark)
    assert times(one).watermark_ms is None, "partition 1 never had an event, and was met just now"
    spec, settings, kafka = one.spec(), one.settings(), one.kafka()
    assert spec.event_time is not None
    with connect_catalog(settings) as catalog, opened(spec, settings, catalog, kafka) as stream:
        work = WorkLog(0.0)
        watch = IdleWatermark(stream, spec.event_time, kafka, work, pause_seconds=0.0)
        began = datetime.now(UTC)
        deadline = began + timedelta(seconds=30)
        while stream.watermark_ms is None and datetime.now(UTC) < deadline:
            watch.look()
        moved = stream.watermark_ms
        assert moved is not None
        wall = round(began.timestamp() * 1000)
        assert wall - 600_000 <= moved <= wall - 600_000 + 30_000
        assert work.work(0.0).watermark_ms == moved
        snapshots = len(one.table().snapshots())
        watch.look()
        assert len(one.table().snapshots()) == snapshots, "a moment later it is worth no snapshot"
        assert ObservedEnds(wall, kafka.ends(stream.begin.offsets).watermarks).reached(stream.begin.offsets)
    assert times(one).watermark_ms == moved
    produce(one, [5], 1)
    one.drain(spark)
    assert times(one).watermark_ms == moved
    assert times(one).batch.late_records == 1
    assert times(one).batch.periods == {ms(0): 1}
    one.assert_exactly_once()


def late_rows(one: Pipeline) -> Counter[Coordinates]:
    names = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
    scanned = one.catalog().load_table(f"{one.table_name}_late").scan(selected_fields=names).to_arrow()
    return Counter(zip(*(scanned.column(name).to_pylist() for name in names), strict=True))


def at(one: Pipeline, partition: int, offsets: Sequence[int]) -> Counter[Coordinates]:
    return Counter((one.stream, partition, offset) for offset in offsets)


def assert_audited(one: Pipeline) -> None:
    settings, catalog = one.settings(), one.catalog()
    fill_ledger(catalog, settings, [one.spec()])
    found = audit(one.spec(), settings, catalog, full=True)
    assert not found.problems and not found.pending, found.problems


def test_a_table_of_late_rows_that_is_completed_without_a_record(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline()
    one.write_spec(event_time={"column": "created_at", "grace": "10m", "late": {"partition_by": ["day(created_at)"]}})
    produce(one, [0, 30, 20], 0)
    produce(one, [25, 5, None], 1)
    one.drain(spark)
    assert times(one).watermark_ms == ms(15)

    # The table's commit is done, and that of its late rows is not; and what was about to be committed is lost.
    produce(one, [14, 15, 90, 60], 0)
    produce(one, [3, 80], 1)
    die(one, spark, monkeypatch, "after_anchor_commit")
    assert not late_rows(one)
    shutil.rmtree(one.folder().root)
    produce(one, [20, 69, 95], 0)
    one.drain(spark)
    # Offsets 7 and 8 were in no batch before: they are judged by the watermark behind it, the first two by the one
    # before.
    assert late_rows(one) == at(one, 0, [3, 7, 8]) + at(one, 1, [3])
    assert one.landed() == at(one, 0, [0, 1, 2, 4, 5, 6, 9]) + at(one, 1, [0, 1, 4])
    assert one.dead() == at(one, 1, [2])
    one.assert_contiguous()
    assert_audited(one)
    assert len(one.catalog().load_table(f"{one.table_name}_late").spec().fields) == 1
    stamps = [stamp for _, stamp in stamps_along_main(one.table().metadata, one.stream) if stamp.kind == "batch"]
    assert sum(stamp.event_time.batch.aside for stamp in stamps if stamp.event_time) == 4
    assert sum(part.elsewhere for stamp in stamps for part in stamp.parts.values()) == 4


def test_killed_between_the_table_and_its_late_rows_it_goes_on_from_the_record(
    pipeline: Make, spark: SparkSession
) -> None:
    one = pipeline()
    routed = {"by": "id", "tables": [{"match": ".*[02468]", "table": f"{one.table_name}_even"}]}
    block = {"column": "created_at", "grace": "10m", "late": "table"}
    one.write_spec(event_time=block, route=routed | {"unmatched": {"table": one.table_name}})
    produce(one, [60], 0)
    produce(one, [60], 1)
    one.drain(spark)
    produce(one, [10, 70, 49, 50, 80], 0)
    # Of the further tables one has the batch, and the late rows' has not.
    one.run_and_die("after_table_commit")
    assert one.folder().pending_records() and not late_rows(one)
    one.drain(spark)
    assert late_rows(one) == at(one, 0, [1, 3])
    assert not one.dead()
    even = one.catalog().load_table(f"{one.table_name}_even").scan().to_arrow().to_pylist()
    assert sorted((each["_kafka_partition"], each["_kafka_offset"]) for each in even) == [(0, 2), (0, 4), (1, 0)]
    assert one.landed() == at(one, 0, [0, 5])
    assert_audited(one)


def test_late_rows_of_topics_with_columns_of_their_own_have_a_table_each_though_drivers_are_killed(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline(topic=False)
    base, to = one.stream, f"tests.{one.stream}_"
    one.write_spec(
        source={"topics_pattern": rf"{re.escape(base)}\..*"},
        decode={"value": {"format": "json", "infer": {"times": True}}, "schema": "infer"},
        table={"name": one.table_name},
        route={"by": "regexp_replace(_topic, '^.*[.]', '')", "to": f"{to}{{value}}"},
        event_time={"column": "at", "grace": "10m", "late": "table"},
    )

    def produce_to(topic: str, *documents: dict[str, Any]) -> None:
        producer = idempotent_producer(one.address, f"{base}.{topic}")
        for each in documents:
            at = (BASE + timedelta(minutes=each["at"])).isoformat()
            producer.produce(f"{base}.{topic}", value=json.dumps(each | {"at": at}).encode(), partition=0)
        assert producer.flush(30) == 0

    def rows(table: str) -> list[int]:
        found = one.catalog().load_table(f"{to}{table}").scan(selected_fields=("_kafka_offset",)).to_arrow()
        return sorted(found.column("_kafka_offset").to_pylist())

    for topic, known in (("a", {"id": 1}), ("b", {"id": "x"})):
        create_topic(one.address, f"{base}.{topic}", 1)
        produce_to(topic, {**known, "at": 60})
    one.drain(spark)
    assert times(one).watermark_ms == ms(50)
    produce_to("a", {"id": 2, "at": 10, "more": 1}, {"id": 3, "at": 90})
    produce_to("b", {"id": "y", "at": 49}, {"id": "z", "at": 50, "more": "m"})
    # Tables of late rows are to follow, and then to be committed to; what was about to be is lost.
    die(one, spark, monkeypatch, "before_follower_change")
    die(one, spark, monkeypatch, "after_anchor_commit")
    one.lose_state()
    one.drain(spark)
    assert {name: rows(name) for name in ("a", "a_late", "b", "b_late")} == {
        "a": [0, 2],
        "a_late": [1],
        "b": [0, 2],
        "b_late": [1],
    }
    for name, kind in (("a", "long"), ("b", "string")):
        columns = [
            [(each.name, str(each.field_type)) for each in one.catalog().load_table(table).schema().fields]
            for table in (f"{to}{name}", f"{to}{name}_late")
        ]
        assert columns[0] == columns[1] and ("more", kind) in columns[0]
    assert not one.dead()
    assert_audited(one)
