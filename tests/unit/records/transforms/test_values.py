"""Steps that change values: cast, set, mask, times, filter, key and headers."""

from __future__ import annotations

import hashlib
import hmac
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.records.transforms.cast import Cast
from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.conditional import Filter, HasHeader, TopicMatches
from jobs.records.transforms.mask import Mask, keyed_hash
from jobs.records.transforms.record_parts import DropHeaders, ToHeaders, ToKey
from jobs.records.transforms.set_columns import Set, SetColumn
from jobs.records.transforms.timestamps import FormatTimestamp, ParseTimestamp
from jobs.records.transforms.transform import Transform
from tests.unit.records.transforms.rows import (
    applied,
    left,
    refused,
    rows_of,
)

NAN, INF = float("nan"), float("inf")
BIG = 2**53


@pytest.mark.parametrize(
    ("source", "target", "value", "becomes"),
    [
        ("string", "long", "42", 42),
        ("string", "long", "-9223372036854775808", -(2**63)),
        ("string", "long", "9223372036854775808", "out_of_range"),
        ("string", "long", " 5", "wrong_type"),
        ("string", "long", "5.0", "wrong_type"),
        ("string", "long", "", "wrong_type"),
        ("string", "int", "2147483648", "out_of_range"),
        ("string", "double", "1e8", 1e8),
        ("string", "double", "0x1p3", "wrong_type"),
        ("string", "boolean", "true", True),
        ("string", "boolean", "false", False),
        ("string", "boolean", "yes", "wrong_type"),
        ("string", "boolean", "1", "wrong_type"),
        ("string", "boolean", "True", "wrong_type"),
        ("string", "decimal(12,2)", "566000.10", Decimal("566000.10")),
        ("string", "decimal(12,2)", "-566,000", "wrong_type"),
        ("string", "decimal(12,2)", "0.001", "precision_loss"),
        ("string", "date", "2024-02-29", date(2024, 2, 29)),
        ("string", "date", "2024-02-31", "bad_date"),
        ("string", "timestamptz", "2024-01-01T09:00:00+09:00", datetime(2024, 1, 1, tzinfo=UTC)),
        ("string", "uuid", "00000000-0000-0000-0000-00000000002a", uuid.UUID(int=42).bytes),
        ("uuid", "string", uuid.UUID(int=42).bytes, "00000000-0000-0000-0000-00000000002a"),
        ("long", "int", 300, 300),
        ("long", "int", 2**31, "out_of_range"),
        ("long", "int", -(2**31), -(2**31)),
        ("int", "long", -5, -5),
        ("long", "double", BIG, float(BIG)),
        ("long", "double", BIG + 1, "precision_loss"),
        ("long", "double", 2**63 - 1, "precision_loss"),
        ("long", "double", -(2**63), -(2.0**63)),
        ("int", "float", 2**24 + 1, "precision_loss"),
        ("double", "long", -1.9, "precision_loss"),
        ("double", "long", -2.0, -2),
        ("double", "long", NAN, "wrong_type"),
        ("double", "long", 1e20, "out_of_range"),
        ("double", "int", INF, "wrong_type"),
        ("double", "float", 0.5, 0.5),
        ("double", "float", 0.1, "precision_loss"),
        ("double", "float", 1e300, "precision_loss"),
        ("double", "decimal(9,2)", 0.1, Decimal("0.10")),
        ("double", "decimal(9,2)", NAN, "wrong_type"),
        ("double", "string", 1.5, "1.5"),
        ("double", "string", INF, "Infinity"),
        ("double", "string", NAN, "NaN"),
        ("decimal(9,2)", "string", Decimal("1.50"), "1.50"),
        ("decimal(20,10)", "string", Decimal("0E-10"), "0.0000000000"),
        ("decimal(38,38)", "string", Decimal("-7E-38"), f"-0.{'0' * 37}7"),
        ("decimal(38,10)", "string", Decimal("-1234567890.0123456789"), "-1234567890.0123456789"),
        ("decimal(9,2)", "decimal(9,1)", Decimal("1.50"), Decimal("1.5")),
        ("decimal(9,2)", "decimal(9,1)", Decimal("1.55"), "precision_loss"),
        ("decimal(9,2)", "decimal(3,2)", Decimal("10.00"), "out_of_range"),
        ("boolean", "int", True, 1),
        ("boolean", "string", False, "false"),
        ("int", "boolean", 0, False),
        ("long", "boolean", 2, "out_of_range"),
        ("date", "timestamp", date(2024, 2, 29), datetime(2024, 2, 29)),
        ("date", "string", date(2024, 2, 29), "2024-02-29"),
        ("timestamptz", "string", datetime(2024, 1, 1, tzinfo=UTC), "2024-01-01T00:00:00.000000Z"),
        ("long", "string", -(2**63), "-9223372036854775808"),
        ("string", "string", "x", "x"),
    ],
)
def test_a_cast_keeps_the_value_or_refuses_it(source: str, target: str, value: Any, becomes: Any) -> None:
    rows = rows_of(f"c {source}, s struct<l list<struct<c {source}>>>",
                   [{"c": None, "s": None}, {"c": value, "s": {"l": [None, {"c": value}]}}])  # fmt: skip
    step = Cast((("c", target), ("s.l.c", target)))
    classes = {"wrong_type", "out_of_range", "precision_loss", "bad_date"}
    if isinstance(becomes, str) and becomes in classes:
        assert [(row, path) for row, _, path in refused(step, rows)] == [(1, "$.c")]
        (bad,) = applied(step, rows).failures
        assert bad.error_class == becomes
        assert bad.message.startswith(f"needs {target}")
        return
    none, found = left(step, rows)
    assert none == {"c": None, "s": None}
    assert found == {"c": becomes, "s": {"l": [None, {"c": becomes}]}}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("long", "date"),
        ("timestamptz", "long"),
        ("struct<a int>", "string"),
        ("binary", "string"),
        ("string", "list<int>"),
    ],
)
def test_casts_that_mean_nothing_are_refused_by_type(source: str, target: str) -> None:
    with pytest.raises(TransformProblem, match=r"the column 'c' of type .* cannot be cast to"):
        Cast((("c", target),)).output(rows_of(f"c {source}", []).columns)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_long_casts_go_back_to_the_same_number(values: list[int | None]) -> None:
    rows = rows_of("c long", [{"c": each} for each in values])
    for target, back in (("string", int), ("int", int), ("double", int), ("decimal(19,0)", int)):
        made = applied(Cast((("c", target),)), rows)
        kept = range(rows.count) if made.kept is None else made.kept.tolist()
        found = [None if each is None else back(each) for each in made.rows.batch.column("c").to_pylist()]
        assert found == [values[at] for at in kept]
        bad = {each.row for each in made.failures}
        fits = {"int": lambda n: -(2**31) <= n < 2**31, "double": lambda n: int(float(n)) == n}.get(
            target, lambda n: True
        )
        assert bad == {at for at, each in enumerate(values) if each is not None and not fits(each)}


def test_set_adds_literals_and_what_kafka_keeps() -> None:
    rows = rows_of(
        "a int",
        [{"a": 1}, {"a": 2}],
        topic=["t", "u"],
        key=[b"k", None],
        headers=[[("h", b"1"), ("h", b"2")], [("x", b"")]],
        timestampType=[1, 0],
        timestamp=[1_000_000, 2_000_000],
    )
    step = Set(
        (
            SetColumn("s", "web"),
            SetColumn("n", 5, type="int"),
            SetColumn("z", None, type="date"),
            SetColumn("a", True, replace=True),
            SetColumn("topic", source="topic"),
            SetColumn("o", source="offset", type="string"),
            SetColumn("h", source="header:h", type="long"),
            SetColumn("k", source="key"),
            SetColumn("kb", source="key", type="binary"),
            SetColumn("tt", source="timestamp_type"),
            SetColumn("at", source="timestamp"),
        )
    )
    assert step.asks == {"headers", "key", "timestamp_type"}
    first, second = left(step, rows)
    assert first == {
        "a": True, "s": "web", "n": 5, "z": None, "topic": "t", "o": "0", "h": 2, "k": "k", "kb": b"k",
        "tt": "LogAppendTime", "at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    }  # fmt: skip
    assert (second["h"], second["k"], second["kb"], second["tt"]) == (None, None, None, "CreateTime")
    with pytest.raises(TransformProblem, match="replace: true"):
        Set((SetColumn("a", 1),)).output(rows.columns)
    with pytest.raises(TransformProblem, match="needs int as text, found"):
        Set((SetColumn("b", "x", type="int"),)).output(rows.columns)


def test_bytes_that_are_no_text_are_refused() -> None:
    rows = rows_of("a int", [{}, {}], key=[b"\xff", b"5"])
    assert refused(Set((SetColumn("k", source="key", type="long"),)), rows) == [(0, "invalid_utf8", "$.k")]


def test_parts_of_the_record_are_made_of_columns() -> None:
    rows = rows_of(
        "id long, s struct<b binary>",
        [{"id": 7, "s": {"b": b"\xff"}}, {"id": None, "s": None}],
        headers=[[("a", b"1"), ("b", None)], None],
    ).take(np.array([0, 1]))
    made = applied(ToHeaders((("i", "id"), ("b", "s.b"))), applied(ToKey("id"), rows).rows)
    assert made.rows.frame.part("key").to_pylist() == [b"7", None]
    assert made.rows.frame.part("headers").to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "b", "value": None},
         {"key": "i", "value": b"7"}, {"key": "b", "value": b"\xff"}],
        [{"key": "i", "value": None}, {"key": "b", "value": None}],
    ]  # fmt: skip
    dropped = applied(DropHeaders(("b", "z")), made.rows).rows
    assert [[each["key"] for each in row] for row in dropped.frame.part("headers").to_pylist()] == [["a", "i"], ["i"]]
    assert applied(Filter(HasHeader("a")), dropped).filtered.tolist() == [0]


class Key:
    def reveal(self) -> str:
        return "s" * 80


@given(st.lists(st.none() | st.text(max_size=90), max_size=8))
def test_a_keyed_hash_is_hmac_of_the_text(values: list[str | None]) -> None:
    rows = rows_of("c string, l list<struct<n long>>", [{"c": each, "l": [{"n": 5}, None]} for each in values])
    made = left(Mask(("c", "l.n"), key=Key()), rows)
    five = hmac.digest(b"s" * 80, b"5", hashlib.sha256).hex()
    assert made == [
        {
            "c": None if each is None else hmac.digest(b"s" * 80, each.encode(), hashlib.sha256).hex(),
            "l": [{"n": five}, None],
        }
        for each in values
    ]


@pytest.mark.parametrize(
    ("kind", "value", "zero"),
    [
        ("string", "x", ""), ("binary", b"x", b""), ("boolean", True, False), ("long", 5, 0), ("double", 1.5, 0.0),
        ("decimal(9,2)", Decimal("1.50"), Decimal("0.00")), ("date", date(2024, 1, 1), date(1970, 1, 1)),
        ("timestamptz", datetime(2024, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)),
        ("list<int>", [1], []), ("map<string, int>", [("a", 1)], []),
    ],
)  # fmt: skip
def test_a_mask_leaves_nulls_and_says_nothing_of_values(kind: str, value: Any, zero: Any) -> None:
    rows = rows_of(f"c {kind}", [{"c": value}, {"c": None}])
    assert left(Mask(("c",)), rows) == [{"c": zero}, {"c": None}]


def test_a_replacement_has_the_type_of_its_column() -> None:
    rows = rows_of("c string, n long, s struct<a int>", [{"c": "x", "n": 1}, {"c": None, "n": 2}])
    assert left(Mask(("c",), "***"), rows)[0]["c"] == "***"
    assert [row["n"] for row in left(Mask(("n",), "-1"), rows)] == [-1, -1]
    for step, says in (
        (Mask(("n",), "x"), "the replacement is none"),
        (Mask(("s",)), "name its fields"),
        (Mask(("s", "**.a")), "what is within it as well"),
        (Mask(("s",), key=Key()), "no hash is made"),
    ):
        with pytest.raises(TransformProblem, match=says):
            step.output(rows.columns)


_TOKYO = ParseTimestamp(("c",), ("yyyy/MM/dd HH:mm:ss",), zone="Asia/Tokyo")
_ISO = ParseTimestamp(("c",), ("iso",))
_NANOS = ParseTimestamp(("c",), ("yyyyMMddHHmmssSSSSSSSSS",), into="timestamp")


@pytest.mark.parametrize(
    ("step", "value", "becomes"),
    [
        (_TOKYO, "2024/01/01 09:00:00", datetime(2024, 1, 1, tzinfo=UTC)),
        (_TOKYO, "2024/02/31 09:00:00", "bad_timestamp"),
        (_TOKYO, "2024/01/01 09:00:00 x", "bad_timestamp"),
        (ParseTimestamp(("c",), ("iso", "dd.MM.yyyy"), into="date"), "29.02.2024", date(2024, 2, 29)),
        (_ISO, "2024-01-01T00:00:00.123456Z", datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)),
        (_NANOS, "20240101000000123456789", "precision_loss"),
    ],
)  # fmt: skip
def test_texts_are_times_as_their_pattern_says(step: Transform, value: str, becomes: Any) -> None:
    rows = rows_of("c string", [{"c": None}, {"c": value}])
    if isinstance(becomes, str):
        assert refused(step, rows) == [(1, becomes, "$.c")]
    else:
        assert left(step, rows) == [{"c": None}, {"c": becomes}]


@given(
    st.lists(st.none() | st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)),
    st.sampled_from(["s", "ms", "us"]),
)
def test_numbers_since_1970_come_back(micros: list[int | None], unit: str) -> None:
    per = {"s": 1_000_000, "ms": 1_000, "us": 1}[unit]
    rows = rows_of("c long", [{"c": None if each is None else each // per} for each in micros])
    parsed = applied(ParseTimestamp(("c",), unit=unit), rows)  # type: ignore[arg-type]
    assert not parsed.failures
    again = applied(FormatTimestamp(("c",), unit=unit), parsed.rows)  # type: ignore[arg-type]
    assert not again.failures
    assert again.rows.batch.column("c").to_pylist() == rows.batch.column("c").to_pylist()


def test_a_finer_part_than_the_unit_is_no_whole_number() -> None:
    rows = rows_of("c timestamptz", [{"c": datetime(1969, 12, 31, 23, 59, 58, 500_000, tzinfo=UTC)}])
    assert refused(FormatTimestamp(("c",), unit="s"), rows) == [(0, "precision_loss", "$.c")]
    assert left(FormatTimestamp(("c",), unit="ms"), rows) == [{"c": -1500}]


@given(st.lists(st.none() | st.datetimes(datetime(1000, 1, 2), datetime(9999, 12, 30)), max_size=5))
def test_times_are_written_as_python_writes_them(values: list[datetime | None]) -> None:
    from zoneinfo import ZoneInfo

    rows = rows_of("c timestamptz", [{"c": each and each.replace(tzinfo=UTC)} for each in values])
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    local = [each and each.replace(tzinfo=UTC).astimezone(ZoneInfo("Asia/Tokyo")) for each in values]

    def ahead(at: datetime) -> str:
        minutes = int(at.utcoffset().total_seconds()) // 60  # type: ignore[union-attr]
        return f"+{minutes // 60:02}{minutes % 60:02}"

    def written(pattern: str) -> list[Any]:
        return [row["c"] for row in left(FormatTimestamp(("c",), pattern, zone="Asia/Tokyo"), rows)]

    assert written("yyyy-MM-dd'T'HH:mm:ss.SSSSSSxx") == [
        at and f"{at.year:04}-{at:%m-%dT%H:%M:%S.%f}{ahead(at)}" for at in local
    ]
    assert written("MMM d, yyyy, h a mm ss S VV") == [
        at
        and f"{months[at.month - 1]} {at.day}, {at.year:04}, {at.hour % 12 or 12} {'AM' if at.hour < 12 else 'PM'} "
        f"{at:%M %S} {at.microsecond // 100_000} Asia/Tokyo"
        for at in local
    ]


def test_a_time_is_written_by_its_zones_rules_within_the_years_that_a_date_has() -> None:
    step = FormatTimestamp(("c",), "yyyy-MM-dd HH:mm XX", zone="Europe/Berlin")
    values = [datetime(2050, 6, 30, 22, tzinfo=UTC), datetime(2050, 12, 31, 22, tzinfo=UTC)]
    written = [{"c": "2050-07-01 00:00 +0200"}, {"c": "2050-12-31 23:00 +0100"}]
    assert left(step, rows_of("c timestamptz", [{"c": each} for each in values])) == written
    late = rows_of("c timestamptz", [{"c": datetime(9999, 12, 31, 23, 30, tzinfo=UTC)}])
    assert refused(step, late) == [(0, "out_of_range", "$.c")]


def test_a_filter_drops_or_keeps() -> None:
    rows = rows_of("a int", [{"a": each} for each in range(4)], topic=["x", "y", "x", "z"])
    assert applied(Filter(TopicMatches("x")), rows).filtered.tolist() == [0, 2]
    assert applied(Filter(TopicMatches("x"), drop=False), rows).filtered.tolist() == [1, 3]
    assert applied(Filter(), rows).rows.count == 0
    assert isinstance(rows.batch, pa.RecordBatch)


@pytest.mark.parametrize(
    "values",
    [
        [b"a", b"b"] * 1_500,
        [b"a", None, b"a", b""] * 700,
        [None] * 3,
        [b"%d" % n for n in range(1_000)] + [b"7"] * 3_000,
        [b"7"] * 1_000 + [b"%d" % n for n in range(3_000)],
        [b"one"],
        [],
    ],
)
def test_a_keyed_hash_of_values_that_repeat(values: list[bytes | None]) -> None:
    key = b"k" * 32
    expected = [None if each is None else hmac.new(key, each, "sha256").hexdigest() for each in values]
    assert keyed_hash(pa.array(values, pa.binary()), key).to_pylist() == expected
    assert keyed_hash(pa.array([b"x", *values], pa.binary())[1:], key).to_pylist() == expected
