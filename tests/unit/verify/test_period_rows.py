"""Rows of hours are counted as a scan of the whole table counts them, whatever its files, and its deletes, are."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from jobs.verify import closed_periods
from jobs.verify.closed_periods import LateRowsOfTables, rows_by_period
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
