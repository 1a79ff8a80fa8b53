"""Late rows of a real stream in a table of their own, completed by a second run that decides the same."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.tables.commit.history.stamp_history import history, stamps_along_main
from jobs.tables.commit.stamp.event_times import EventTimes
from tests.helpers.topics import idempotent_producer
from tests.integration.faults import die
from tests.integration.pipeline import Coordinates, Pipeline

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
    assert producer.flush(120) == 0


def times(one: Pipeline) -> EventTimes:
    newest = history(one.table().metadata, one.stream).newest
    assert newest is not None
    assert newest.event_time is not None
    return newest.event_time


def ms(minutes: float) -> int:
    return round((BASE + timedelta(minutes=minutes)).timestamp() * 1000)


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
