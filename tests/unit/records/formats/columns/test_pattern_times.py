"""Texts of dates and times in patterns: what they say, and columns of them read as one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.records.formats.columns.pattern_times import exact_time_text, pattern_times
from jobs.records.formats.columns.text_columns import one_by_one
from jobs.records.formats.interface.problems import ValueProblem
from jobs.records.schema.arrow_schema import arrow_type
from jobs.records.schema.declared import Primitive
from jobs.records.schema.parser import parse_schema

# Each with what Python's strftime calls it, where it has a name for it.
PATTERNS = {
    "date": {"dd.MM.yyyy": "%d.%m.%Y", "yyyyMMdd": "%Y%m%d", "d MMM uuuu": None, "M/d/yyyy": None},
    "timestamp": {
        "yyyy/MM/dd HH:mm:ss": "%Y/%m/%d %H:%M:%S",
        "yyyyMMddHHmmssSSSSSS": "%Y%m%d%H%M%S%f",
        "yyyy-MM-dd'T'HH:mm:ss.SSSSSSSSS": "%Y-%m-%dT%H:%M:%S.%f000",
        "'é'yyyyMMdd": "é%Y%m%d",
        "MMMM dd, yyyy hh:mm:ss a": "%B %d, %Y %I:%M:%S %p",
    },
    "time": {"HHmmss": "%H%M%S", "HH'h'mm": "%Hh%M", "h:mm a": None},
}
ZONES = ["UTC", "Asia/Tokyo", "Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Africa/Monrovia"]
# Near changes of clocks, also those of the days when zones had odd seconds, and anywhere.
CHANGES = [
    *(datetime(2026, 3, 29, 2), datetime(2026, 10, 25, 3), datetime(2026, 3, 8, 2), datetime(2026, 4, 5, 2)),
    *(
        datetime(1883, 11, 18, 12),
        datetime(1911, 3, 11),
        datetime(1972, 1, 7),
        datetime(3, 1, 1),
        datetime(9997, 12, 31),
    ),
]
moments = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999))
near = st.builds(
    lambda at, minutes, micros: (at + timedelta(minutes=minutes)).replace(microsecond=micros),
    st.sampled_from(CHANGES),
    st.integers(-200, 200),
    st.sampled_from([0, 0, 1, 999_999]),
)


def declared(kind: str) -> Primitive:
    (field,) = parse_schema(f"v {kind}").fields
    assert isinstance(field.type, Primitive)
    return field.type


def written(at: datetime, strftime: str) -> str:
    # strftime does not fill up years before 1000.
    return at.strftime(strftime.replace("%Y", f"{at.year:04d}"))


def outcome(kind: Primitive, text: str) -> Any:
    try:
        return exact_time_text(text, kind)
    except ValueProblem as problem:
        return problem.error_class


@settings(max_examples=60)
@given(st.data())
def test_a_column_is_its_texts_each_alone(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["date", "timestamp", "timestamptz", "time"]))
    known = PATTERNS["timestamp" if name == "timestamptz" else name]
    pattern, strftime = data.draw(st.sampled_from(list(known.items())))
    zone = data.draw(st.sampled_from(ZONES)) if name == "timestamptz" else None
    quoted = pattern.replace("'", "''")
    kind = declared(
        f"{name} as '{quoted}'" + data.draw(st.sampled_from(["", " or iso"])) + (f" in {zone}" if zone else "")
    )
    good = st.one_of(moments, near).map(lambda at: written(at, strftime or "%Y-%m-%d"))
    spoiled = st.builds(
        lambda text, at, by: text[:at] + by + text[at + 1 :], good, st.integers(0, 20), st.sampled_from("09:é ")
    )
    texts = data.draw(
        st.lists(st.one_of(good, good, spoiled, st.none(), st.just("2026-02-29")), min_size=1, max_size=20)
    )
    texts = texts * (40 // len(texts) + 1)
    array, bad = pattern_times(kind, pa.array(["x", *texts], pa.string()).slice(1))
    storage = pa.int32() if name == "date" else pa.int64()
    expected, refused = one_by_one(texts, arrow_type(kind), lambda text: exact_time_text(text, kind), storage)
    assert array.equals(expected)
    assert bad == refused


@settings(max_examples=150)
@given(st.one_of(moments, near), st.sampled_from(["date", "timestamp", "time"]), st.data())
def test_a_text_says_what_was_written(at: datetime, name: str, data: st.DataObject) -> None:
    pattern, strftime = data.draw(st.sampled_from([each for each in PATTERNS[name].items() if each[1]]))
    quoted = pattern.replace("'", "''")
    found = outcome(declared(f"{name} as '{quoted}'"), written(at, strftime or ""))
    kept = at if "SSSSSS" in pattern else at.replace(microsecond=0)
    match name:
        case "date":
            assert found == (at.date() - datetime(1970, 1, 1).date()).days
        case "time":
            kept = kept if "ss" in pattern else kept.replace(second=0)
            assert found == (kept - kept.replace(hour=0, minute=0, second=0, microsecond=0)) // timedelta(
                microseconds=1
            )
        case _:
            kept = kept if "HH" in pattern or "hh" in pattern else kept.replace(hour=0, minute=0, second=0)
            assert found == (kept - datetime(1970, 1, 1)) // timedelta(microseconds=1)


@settings(max_examples=150)
@given(st.one_of(near, moments.filter(lambda at: 2 < at.year < 9998)), st.sampled_from(ZONES))
def test_a_local_time_is_the_one_instant_that_has_it(at: datetime, name: str) -> None:
    at = at.replace(microsecond=0)
    zone = ZoneInfo(name)
    instants = set[datetime]()
    for fold in (0, 1):
        instant = at.replace(tzinfo=zone, fold=fold).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None) == at:
            instants.add(instant)
    found = outcome(declared(f"timestamptz as 'yyyy-MM-dd HH:mm:ss' in {name}"), written(at, "%Y-%m-%d %H:%M:%S"))
    if len(instants) != 1:
        assert found == "bad_timestamp"
    else:
        assert found == (instants.pop() - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


MICROS = 1_000_000
CASES = [
    ("date as 'd.M.yyyy'", "1.2.1970", 31),
    ("date as 'MM/dd/yyyy' or 'dd/MM/yyyy'", "13/02/1970", 43),
    ("date as 'MM/dd/yyyy' or 'dd/MM/yyyy'", "01/02/1970", 1),
    ("date as 'dd.MM.yyyy' or iso", "1970-01-02", 1),
    ("date as 'dd.MM.yyyy'", "1970-01-02", "bad_date"),
    ("date as 'dd.MM.yyyy'", "31.02.2026", "bad_date"),
    ("date as 'dd.MM.yyyy'", "1.2.2026", "bad_date"),
    ("date as 'dd.MM.yyyy'", "01.01.0000", "out_of_range"),
    ("date as 'dd.MM.yyyy'", "\u0661\u0661.01.2026", "bad_date"),
    ("date as 'dd MMM yyyy'", "01 jan 1970", "bad_date"),
    ("date as 'dd MMMM yyyy'", "01 February 1970", 31),
    ("time as 'hh:mm a'", "12:00 AM", 0),
    ("time as 'hh:mm a'", "12:30 PM", 45_000 * MICROS),
    ("time as 'hh:mm a'", "13:00 PM", "bad_time"),
    ("time as 'hh:mm a'", "00:30 AM", "bad_time"),
    ("time as 'HHmmss'", "240000", "bad_time"),
    ("time as 'HHmmss.SSSSSSS'", "000000.0000010", 1),
    ("time as 'HHmmss.SSSSSSS'", "000000.0000001", "precision_loss"),
    ("timestamp as 'yyyy-MM-dd'", "1970-01-02", 86_400 * MICROS),
    ("timestamptz as 'yyyy-MM-dd HH:mmXXX'", "1970-01-01 01:00+01:00", 0),
    ("timestamptz as 'yyyy-MM-dd HH:mmXXX'", "1970-01-01 00:00Z", 0),
    ("timestamptz as 'yyyy-MM-dd HH:mmxxx'", "1970-01-01 00:00Z", "bad_timestamp"),
    ("timestamptz as 'yyyy-MM-dd HH:mm Z'", "1970-01-01 00:00 -0030", 1_800 * MICROS),
    ("timestamptz as 'yyyy-MM-dd HH:mmX'", "1970-01-01 02:00+02", 0),
    ("timestamptz as 'yyyy-MM-dd HH:mmXX'", "1970-01-01 00:00+2400", "bad_timestamp"),
    ("timestamptz as 'yyyy-MM-dd HH:mm VV'", "1970-01-01 09:00 Asia/Tokyo", 0),
    ("timestamptz as 'yyyy-MM-dd HH:mm VV'", "1970-01-01 09:00 Asia/Tokio", "bad_timestamp"),
    ("timestamptz as 'yyyy-MM-dd HH:mm VV'", "1970-01-01 09:00 ../../etc/passwd", "bad_timestamp"),
    ("timestamptz as iso in Asia/Tokyo", "1970-01-01T09:00:00", 0),
    ("timestamptz as iso in Asia/Tokyo", "1970-01-01T09:00:00Z", 32_400 * MICROS),
    ("timestamptz as 'yyyy-MM-dd HH:mm' in Asia/Tokyo", "0001-01-01 00:00", "out_of_range"),
    ("timestamptz as 'yyyy-MM-dd HH:mm' in Europe/Paris", "2026-03-29 02:30", "bad_timestamp"),
    ("timestamptz as 'yyyy-MM-dd HH:mm' in Europe/Paris", "2026-10-25 02:30", "bad_timestamp"),
]


@pytest.mark.parametrize(("kind", "text", "expected"), CASES)
def test_a_text(kind: str, text: str, expected: Any) -> None:
    assert outcome(declared(kind), text) == expected
    array, bad = pattern_times(declared(kind), pa.array([text] * 40))
    told = [expected] * 40 if isinstance(expected, str) else []
    assert [each.error_class for each in bad] == told
    assert array.null_count == len(told)
