import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.config.documents.validation import SpecError
from jobs.config.settings.loading import load_stream
from jobs.config.stream.event_time import EventTime
from jobs.config.stream.models import StreamSpec

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
        ({"column": "at", "late": "drop"}, "event_time.late: must be 'land', 'dead_letter' or 'table'"),
        ({"column": "at", "late": "drop"}, "or {table: namespace.name}; found 'drop'"),
        ({"column": "at", "late": 3}, "or {table: namespace.name}; found 3"),
        ({"column": "at", "late": {"tabel": "a.b"}}, "event_time.late.tabel: unknown key; did you mean 'table'?"),
        ({"column": "at", "late": {"table": "b"}}, "event_time.late.table: must be namespace.table"),
        ({"column": "at", "late": {"table": "orders.payments"}}, "late.table: is the stream's main table; write land"),
        ({"column": "at", "late": {"table": "orders.payments_dead"}}, "write dead_letter"),
        ({"column": "at", "late": {"table": "{table}"}}, "late.table: must have {table} once at most, and more than"),
        ({"column": "at", "late": {"table": "{table}.{table}"}}, "late.table: must have {table} once at most"),
        ({"column": "at", "late": {"table": "{value}_late"}}, "late.table: must be namespace.table"),
        ({"column": "at", "late": {"table": "{table}_dead"}}, "write dead_letter"),
        ({"column": "at", "late": {"partition_by": ["day(nn)"]}}, "event_time.late.partition_by[0]: "),
        ({"column": "at", "late": {"sort_by": ["nn"]}}, "event_time.late.sort_by[0]: "),
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


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"table": {"name": "orders.payments", "branch": "b"}}, "cannot be a table beside table.branch"),
        (
            {
                "publish": {"gate": "contract", "every": "5m"},
                "contract": {"expectations": [{"expect_column_values_to_not_be_null": {"column": "id"}}]},
            },
            "cannot be a table beside publish",
        ),
        (
            {"route": {"by": "id", "tables": [{"match": "a", "table": "orders.payments_late"}]}},
            "event_time.late.table: is a table of the route",
        ),
    ],
)
def test_what_does_not_go_with_a_table_of_late_rows_is_refused(tmp_path: Path, more: Any, said: str) -> None:
    event_time = {"column": "at", "late": "table"}
    assert any(said in each for each in refused(tmp_path, event_time, **more)), refused(tmp_path, event_time, **more)


def test_late_rows_may_have_a_table_which_is_a_target_like_another() -> None:
    table = {"name": "orders.payments", "partition_by": ["day(at)"], "properties": {"a": "1"}}
    spec = spec_with({"column": "at", "late": "table"}, table=table)
    own, letters, late = spec.targets
    assert (own.name, letters.name, late.name) == ("orders.payments", "orders.payments_dead", "orders.payments_late")
    assert spec.late_table == late.name
    assert late.role == "rows" and not late.coordinator and late.coordinates == own.coordinates
    assert late.partition_by == own.partition_by and dict(late.properties) == {"a": "1"}
    given = {"table": "orders.behind", "partition_by": ["bucket(4, id)"], "properties": {"b": 2}, "sort_by": ["at"]}
    other = spec_with({"column": "at", "late": given}, table=table)
    assert [str(each) for each in other.targets[-1].partition_by] == ["bucket(4, id)"]
    assert dict(other.targets[-1].properties) == {"a": "1", "b": "2"}
    assert list(map(str, other.table_settings("orders.behind").sort_by)) == ["at"]
    assert (
        spec_with({"column": "at"}).late_table is None is spec_with({"column": "at", "late": "dead_letter"}).late_table
    )
    routed = spec_with(
        {"column": "at", "late": "table"}, route={"by": "id", "tables": [{"match": "a", "table": "orders.a"}]}
    )
    assert routed.target_names[2:] == ("orders.a", "orders.payments_late")


def test_the_hash_is_of_which_table_late_rows_have() -> None:
    def hashed(late: Any) -> str:
        return spec_with({"column": "at", "late": late}).config_hash

    written = hashed({"table": "orders.payments_late"})
    assert hashed({"table": "{table}_late"}) == written
    assert hashed("table") == written == hashed({}) == hashed({"properties": {"a": "b"}, "sort_by": ["at"]})
    words = {hashed(each) for each in ("land", "dead_letter", {"table": "orders.b"}, {"partition_by": ["day(at)"]})}
    assert len(words) == 4 and written not in words
    # As they were hashed before there could be such a table.
    assert (hashed("land"), hashed("dead_letter")) == ("fe6a10d83879", "ec9e35483d31")


def test_a_contract_may_say_what_is_expected_of_late_rows() -> None:
    expected = [{"expect_column_values_to_not_be_null": {"column": "id"}}]
    contract = {"expectations": expected, "tables": {"orders.payments_late": expected}}
    spec = spec_with({"column": "at", "late": "table"}, contract=contract)
    assert spec.contract is not None
    assert [len(spec.contract.about(each)) for each in spec.targets] == [1, 0, 1]
    with pytest.raises(ValueError, match="no table of the stream"):
        spec_with({"column": "at", "late": "land"}, contract=contract)
