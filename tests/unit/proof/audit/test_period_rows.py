"""Rows of hours and days, and those that came behind the watermark."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.proof.audit import closed_periods
from jobs.proof.audit import closed_periods as module
from jobs.proof.audit.closed_periods import LateRowsOfTables, late_rows, rows_by_period
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.ledger.ledger_row import WHOLE_TABLE, LedgerRow
from resources.deployment import Deployment
from tests.helpers.event_stream import EventStream, hour, ms, write_file


@pytest.fixture(params=["", "day(at)", "hour(at)"])
def stream(tmp_path: Path, request: pytest.FixtureRequest) -> EventStream:
    write_file(tmp_path, "closes: hour", request.param)
    deployment = Deployment.at(tmp_path)
    return EventStream(deployment.prepared_settings(), deployment.stream("payments"))


def scanned(stream: EventStream) -> Counter[int]:
    times: list[datetime | None] = stream.table.scan().to_arrow()["at"].to_pylist()
    return Counter(ms(at.replace(minute=0, second=0, microsecond=0)) for at in times if at is not None)


def test_rows_of_hours_are_those_of_the_table(stream: EventStream) -> None:
    event_time = stream.spec.event_time
    assert event_time is not None
    for batch in range(4):
        at = [hour(10, 37 * n + 11 * batch) for n in range(8)]
        stream.land([*at, None, hour(10 + batch), hour(9, 59.999)], hour(9))
    stream.table.delete("id = 3")
    periods = list(event_time.periods(ms(hour(9)), ms(hour(16))))
    assert rows_by_period(stream.table, event_time, periods) == {start: scanned(stream)[start] for start, _ in periods}
    assert rows_by_period(stream.table, event_time, periods[2:4]) == {
        start: scanned(stream)[start] for start, _ in periods[2:4]
    }
    assert rows_by_period(stream.table, event_time, []) == {}


def test_too_many_files_are_not_read(stream: EventStream, monkeypatch: pytest.MonkeyPatch) -> None:
    event_time = stream.spec.event_time
    assert event_time is not None
    monkeypatch.setattr(closed_periods, "MOST_READ", 2)
    for _ in range(3):
        stream.land([hour(10, 30), hour(11, 30)], hour(9))
    counted = rows_by_period(stream.table, event_time, list(event_time.periods(ms(hour(10)), ms(hour(12)))))
    # In a table by hours each file is within one, and nothing has to be read.
    by_hour = bool(stream.table.spec().fields) and "hour" in str(stream.table.spec().fields[0].transform)
    assert counted == ({ms(hour(10)): 3, ms(hour(11)): 3} if by_hour else None)


def test_rows_of_others_count_from_where_the_hours_are_closed(stream: EventStream) -> None:
    event_time = stream.spec.event_time
    assert event_time is not None
    stream.land([hour(10), hour(12)], hour(12))
    stream.append_by_another([hour(11, 59), hour(12), hour(10, 1), hour(10, 2)])
    late = LateRowsOfTables()
    for _ in range(2):
        (found,) = late.since(stream.table, "payments", event_time, 0)
        assert (found.rows, found.by_stream) == ({ms(hour(10)): 2, ms(hour(11)): 1}, False)
    # What is before the first day that is reported was never closed.
    stream.land([hour(-24 * 500)], hour(12), late={hour(-24 * 500): 1})
    stream.append_by_another([hour(-24 * 500)])
    assert len(late.since(stream.table, "payments", event_time, 0)) == 1
    # Compaction, and what a delete rewrites, brings no row.
    stream.table.delete("id = -1")
    assert len(late.since(stream.table, "payments", event_time, 0)) == 1
    after = ms(datetime.now(hour(0).tzinfo) + timedelta(hours=1))
    assert late.since(stream.table, "payments", event_time, after) == []


HOUR_MS = 3_600_000
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
PERIODS = [(at, at + HOUR_MS) for at in range(0, 4 * HOUR_MS, HOUR_MS)]
LATE = st.dictionaries(st.sampled_from([start for start, _ in PERIODS] + [99 * HOUR_MS]), st.integers(1, 5))
ROW = LedgerRow(
    "s", "t", "uuid", True, "batch", WHOLE_TABLE, OffsetRange(0, 1), 1, 1, 1, 1, BEGIN, "config",
)  # fmt: skip


def snapshot(sequence: int, late: dict[int, int]) -> tuple[Any, Any]:
    times = SimpleNamespace(batch=SimpleNamespace(periods=late))
    kept = SimpleNamespace(sequence_number=sequence, timestamp_ms=(50 + sequence) * HOUR_MS)
    return kept, SimpleNamespace(event_time=times)


def rows(sequence: int, late: dict[int, int]) -> list[LedgerRow]:
    """A commit of two partitions: its first row tells."""
    first = replace(ROW, sequence=sequence, partition=TopicPartition("t", 0), late=late or None)
    return [first, replace(first, partition=TopicPartition("t", 1), late=None)]


@given(batches=st.lists(LATE, min_size=1, max_size=8), data=st.data())
def test_expiry_changes_nothing(batches: list[dict[int, int]], data: st.DataObject) -> None:
    removed = data.draw(st.integers(0, len(batches) - 1), "from which batch on somebody took rows out")
    kept = data.draw(st.integers(0, len(batches) - removed), "how many stamps are kept") if not removed else 0
    numbered = list(enumerate(batches, start=1))
    told = [row for sequence, late in numbered for row in rows(sequence, late)]
    standing = numbered
    if removed:
        told.append(replace(ROW, kind="removed", sequence=100, since=removed))
        standing = numbered[:removed]
    stamps = [snapshot(sequence, late) for sequence, late in numbered[len(numbered) - kept :]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "stamped_snapshots", lambda metadata, stream: iter(stamps))
        found = late_rows(object(), "s", PERIODS, lambda since: told)  # pyright: ignore[reportArgumentType]
    assert found == {start: sum(late.get(start, 0) for _, late in standing) for start, _ in PERIODS}


@pytest.mark.parametrize(("first_kept_hours", "asked"), [(-49, []), (-47, [timedelta(days=-2)])])
def test_the_ledger_is_asked_only_where_stamps_of_the_hour_may_have_expired(
    monkeypatch: pytest.MonkeyPatch, first_kept_hours: int, asked: list[timedelta]
) -> None:
    begin = round(BEGIN.timestamp() * 1000)
    kept = SimpleNamespace(sequence_number=7, timestamp_ms=begin + first_kept_hours * HOUR_MS)
    monkeypatch.setattr(
        module, "stamped_snapshots", lambda metadata, stream: iter([(kept, SimpleNamespace(event_time=None))])
    )
    since: list[datetime] = []

    def ledger(at: datetime) -> list[LedgerRow]:
        since.append(at)
        return []

    assert late_rows(object(), "s", [(begin, begin + HOUR_MS)], ledger) == {begin: 0}  # pyright: ignore[reportArgumentType]
    assert [at - BEGIN for at in since] == asked
