import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.spec.event_time import EventTime
from jobs.spec.loading import load_stream
from jobs.spec.models import StreamSpec
from jobs.spec.validation import SpecError

BASE: dict[str, Any] = {
    "stream": "payments",
    "source": {"topics": ["payments"]},
    "decode": {
        "value": "json",
        "schema": "id string, at timestamptz as iso, local timestamp, day date, "
        "payload struct<at: timestamptz as iso, n: int>",
    },
    "table": {"name": "orders.payments"},
}


def spec_with(event_time: Any, **more: Any) -> StreamSpec:
    return StreamSpec.model_validate(copy.deepcopy(BASE) | {"event_time": event_time} | more)


def refused(tmp_path: Path, event_time: Any, **more: Any) -> tuple[str, ...]:
    path = tmp_path / "payments.yaml"
    path.write_text(yaml.safe_dump(BASE | {"event_time": event_time} | more, sort_keys=False))
    with pytest.raises(SpecError) as error:
        load_stream(path)
    assert all(f"{path}:" in each for each in error.value.problems)
    return error.value.problems


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize("column", ["at", "local", "day", "payload.at", "_kafka_timestamp"])
def test_a_time_of_the_rows_can_be_the_event_time(column: str) -> None:
    spec = spec_with({"column": column})
    assert spec.event_time is not None
    assert spec.event_time.type_in(spec.table_schema) is not None
    assert spec.event_time.is_date(spec.table_schema) == (column == "day")


@pytest.mark.parametrize(
    ("event_time", "said"),
    [
        ({"column": "att"}, "event_time.column: 'att' is no column of the rows; did you mean 'at'?"),
        ({"column": "zzz"}, "its times are at, local, day, payload.at, _kafka_timestamp"),
        ({"column": "id"}, "'id' is string; an event time is a timestamptz, a timestamp or a date"),
        ({"column": "payload.n"}, "'payload.n' is int"),
        ({"column": "at.x"}, "'at.x' is no column of the rows"),
        ({"column": "day", "closes": "hour"}, "event_time.closes: must be day: 'day' is a date"),
        ({"column": "day", "zone": "Asia/Tokyo"}, "event_time.zone: must be UTC: 'day' is a date"),
        ({"column": "at", "late": "table"}, "event_time.late: cannot be table yet"),
        ({"column": "at", "late": "drop"}, "must be 'land', 'dead_letter' or 'table'; found 'drop'"),
        (
            {"column": "at", "zone": "Asia/Tokio"},
            "is no time zone such as UTC or Asia/Tokyo; did you",
        ),
        ({"column": "at", "grace": "10"}, "must be a whole number with a unit"),
        ({"column": "at", "gracee": "10m"}, "unknown key; did you mean 'grace'?"),
        ({}, "event_time.column: is required and missing"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, event_time: Any, said: str) -> None:
    assert any(said in problem for problem in refused(tmp_path, event_time)), refused(tmp_path, event_time)


def test_it_is_told_also_while_other_parts_are_wrong(tmp_path: Path) -> None:
    problems = refused(tmp_path, {"column": "id"}, trigger="sometimes")
    assert any("'id' is string" in each for each in problems)
    assert any("trigger" in each for each in problems)


def test_a_freshness_by_event_time_needs_one_and_more_than_its_grace(tmp_path: Path) -> None:
    freshness = {"warn": "10m", "fail": "1h", "by": "event_time"}
    assert any(
        "longer than event_time.grace, 10m" in each for each in refused(tmp_path, {"column": "at"}, freshness=freshness)
    )
    path = tmp_path / "payments.yaml"
    path.write_text(yaml.safe_dump(BASE | {"freshness": freshness}))
    with pytest.raises(SpecError, match=r"freshness\.by: can be event_time only where"):
        load_stream(path)
    assert spec_with({"column": "at", "grace": "1m"}, freshness=freshness).freshness


def test_the_hash_is_of_what_changes_rows() -> None:
    without = StreamSpec.model_validate(BASE).config_hash
    plain = spec_with({"column": "at"}).config_hash
    assert plain != without
    for other in ({"column": "payload.at"}, {"column": "at", "grace": "1h"}, {"column": "at", "late": "dead_letter"}):
        assert spec_with(other).config_hash != plain
    watched = {"column": "at", "grace": "600s", "closes": "hour", "zone": "Asia/Tokyo", "idle_after": "1h"}
    assert spec_with(watched | {"since": "2026-01-01"}).config_hash == plain


@pytest.mark.parametrize(
    ("closes", "zone", "at", "start", "end"),
    [
        ("hour", "UTC", "2026-03-01T10:59:59.999Z", "2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z"),
        ("hour", "Asia/Kolkata", "2026-03-01T10:10:00Z", "2026-03-01T09:30:00Z", "2026-03-01T10:30:00Z"),
        ("day", "UTC", "2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z"),
        ("day", "Asia/Tokyo", "2026-03-01T14:59:00Z", "2026-02-28T15:00:00Z", "2026-03-01T15:00:00Z"),
        # A day of 23 hours, and one of 25.
        ("day", "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
        ("day", "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
        # The hour that comes twice is two hours.
        ("hour", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"),
        ("hour", "Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"),
    ],
)  # fmt: skip
def test_hours_and_days_are_those_of_the_zone(closes: Any, zone: str, at: str, start: str, end: str) -> None:
    event_time = EventTime(column="at", closes=closes, zone=zone)
    assert event_time.start_of(ms(at)) == ms(start)
    assert event_time.end_of(ms(start)) == ms(end)


def test_periods_follow_one_another_without_a_gap() -> None:
    event_time = EventTime(column="at", closes="day", zone="Europe/Berlin")
    found = list(event_time.periods(ms("2026-03-27T12:00:00Z"), ms("2026-04-01T00:00:00Z")))
    assert [datetime.fromtimestamp(start / 1000, UTC).isoformat().replace("+00:00", "Z") for start, _ in found] == [
        "2026-03-26T23:00:00Z",
        "2026-03-27T23:00:00Z",
        "2026-03-28T23:00:00Z",
        "2026-03-29T22:00:00Z",
        "2026-03-30T22:00:00Z",
    ]
    assert all(found[i][1] == found[i + 1][0] for i in range(len(found) - 1))
