"""Every trap of a JSON record: exactly the value that was sent, or a failure that says why."""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from jobs.records.formats.interface.decoder import Decoded, Failure
from jobs.records.formats.json.block import JsonBlockDecoder
from jobs.records.formats.json.keys import MAX_DEPTH
from jobs.records.formats.json.reference import JsonReferenceDecoder, problem_of
from jobs.records.schema.arrow_schema import arrow_schema
from jobs.records.schema.parser import parse_schema


def decode(schema: str, *values: bytes | None, unknown: Any = "ignore") -> Decoded:
    decoder = JsonReferenceDecoder(parse_schema(schema), unknown_fields=unknown)
    decoded = decoder.decode(pa.array(list(values), pa.binary()))
    decoded.rows.validate(full=True)
    assert decoded.rows.schema.equals(arrow_schema(parse_schema(schema)))
    return decoded


def value_of(kind: str, token: str | bytes) -> Any:
    raw = token if isinstance(token, bytes) else token.encode()
    decoded = decode(f"v {kind}", b'{"v":' + raw + b"}")
    assert decoded.failures == []
    return decoded.rows.column(0)[0].as_py()


def failure_of(schema: str, value: bytes, unknown: Any = "ignore") -> Failure:
    decoded = decode(schema, value, unknown=unknown)
    assert decoded.rows.num_rows == 0 and len(decoded.failures) == 1
    failure = decoded.failures[0]
    assert failure.stage == "decode_value" and failure.row == 0 and failure.message
    return failure


GOOD = [
    ("int", "-0", 0),
    ("int", "2147483647", 2**31 - 1),
    ("int", "-2147483648", -(2**31)),
    ("int", "null", None),
    ("long", "9223372036854775807", 2**63 - 1),
    ("long", "-9223372036854775808", -(2**63)),
    ("boolean", "true", True),
    ("double", "1", 1.0),
    ("double", "0.1", 0.1),
    ("double", "1e-400", 0.0),
    ("double", "12345678901234567890123", 1.2345678901234568e22),
    ("double", "1.7976931348623157e308", 1.7976931348623157e308),
    ("float", "0.1", float(np.float32(0.1))),
    ("float", "3.4028235e38", float(np.finfo(np.float32).max)),
    ("string", r'"\u0000\ud83d\ude00é"', "\x00😀é"),
    ("string", '""', ""),
    ("decimal(12,2)", "1.50", Decimal("1.50")),
    ("decimal(12,2)", "1.500", Decimal("1.50")),
    ("decimal(12,2)", "1e2", Decimal("100.00")),
    ("decimal(12,2)", "100E-2", Decimal("1.00")),
    ("decimal(12,2)", "-0.0", Decimal("0.00")),
    ("decimal(12,2)", "0e999999999", Decimal("0.00")),
    ("decimal(12,2)", "-9999999999.99", Decimal("-9999999999.99")),
    ("decimal(12,2)", "1." + "0" * 41, Decimal("1.00")),
    ("decimal(12,2)", "1." + "0" * 5000, Decimal("1.00")),
    ("decimal(12,2)", "null", None),
    ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
    ("decimal(38,38)", "0." + "9" * 38, Decimal("0." + "9" * 38)),
    ("decimal(12,2) as text", '"-1.5e1"', Decimal("-15.00")),
    ("decimal(6,2) as unscaled", '"BNI="', Decimal("12.34")),
    ("decimal(6,2) as unscaled", '"/w=="', Decimal("-0.01")),
    ("decimal(6,2) as unscaled", "12.34", Decimal("12.34")),
    ("timestamp", '"2026-11-20T10:11:12"', datetime(2026, 11, 20, 10, 11, 12)),
    ("timestamp", '"2026-11-20 10:11:12.123456"', datetime(2026, 11, 20, 10, 11, 12, 123456)),
    ("timestamp", '"2026-11-20T10:11:12.123456000"', datetime(2026, 11, 20, 10, 11, 12, 123456)),
    ("timestamp", '"2024-02-29T10:11"', datetime(2024, 2, 29, 10, 11)),
    ("timestamptz", '"2026-11-20T10:11:12.5Z"', datetime(2026, 11, 20, 10, 11, 12, 500000, tzinfo=UTC)),
    ("timestamptz", '"2026-11-20T10:11:12+09:00"', datetime(2026, 11, 20, 1, 11, 12, tzinfo=UTC)),
    ("timestamptz", '"2026-11-20T10:11:12-0330"', datetime(2026, 11, 20, 13, 41, 12, tzinfo=UTC)),
    ("timestamptz", '"2024-02-29T10:11:12-03"', datetime(2024, 2, 29, 13, 11, 12, tzinfo=UTC)),
    ("timestamptz", '"0001-01-01T00:00:00Z"', datetime(1, 1, 1, tzinfo=UTC)),
    ("timestamptz", '"9999-12-31T23:59:59.999999Z"', datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("timestamp as epoch_s", "-1", datetime(1969, 12, 31, 23, 59, 59)),
    ("timestamptz as epoch_ms", "1795169472123", datetime(2026, 11, 20, 10, 11, 12, 123000, tzinfo=UTC)),
    ("timestamptz as epoch_us", "1795169472123456", datetime(2026, 11, 20, 10, 11, 12, 123456, tzinfo=UTC)),
    ("timestamptz as epoch_ns", "1795169472123456000", datetime(2026, 11, 20, 10, 11, 12, 123456, tzinfo=UTC)),
    ("timestamptz as epoch_ns", "-1000", datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ("date", '"2024-02-29"', date(2024, 2, 29)),
    ("date", '"0001-01-01"', date(1, 1, 1)),
    ("date as epoch_days", "-1", date(1969, 12, 31)),
    ("binary", '"AP8="', b"\x00\xff"),
    ("binary", '""', b""),
    ("binary as hex", '"00fF"', b"\x00\xff"),
    ("int as number", "517.0", 517),
    ("int as number", "5.17e2", 517),
    ("int as number", "-0.0", 0),
    ("int as number", "1." + "0" * 5000, 1),
    ("long as number", "9.223372036854775807e18", 2**63 - 1),
    ("int as text", '"-007"', -7),
    ("long as text", '"-9223372036854775808"', -(2**63)),
    ("double as text", '"1.5e3"', 1500.0),
    ("double as text", '"-Infinity"', float("-inf")),
    ("double as text", '"00.1"', 0.1),
    ("float as text", '"16777217.000000000000000000001"', 16777218.0),
    ("double as text", "null", None),
    ("json", ' {"b" : 1.0, "a":[ null ]} ', '{"a":[null],"b":1.0}'),
    ("json", '"x"', '"x"'),
    ("json", "null", None),
    ("json as sent", ' {"b" : 1.0, "b":2} ', '{"b" : 1.0, "b":2}'),
    ("list<json>", "[1, null , [ ]]", ["1", None, "[]"]),
    ("map<string, json as sent>", '{"a": {"x" : 1 }, "b":null}', [("a", '{"x" : 1 }'), ("b", None)]),
    ("time", '"23:59:59.999999"', time(23, 59, 59, 999_999)),
    ("time", '"00:00"', time(0)),
    ("time", '"12:00:00.5000000000"', time(12, 0, 0, 500_000)),
    ("time as millis_of_day", "86399999", time(23, 59, 59, 999_000)),
    ("time as micros_of_day", "0", time(0)),
    ("uuid", '"0F8fad5b-d9cb-469f-a165-70867728950e"', UUID("0f8fad5b-d9cb-469f-a165-70867728950e").bytes),
    ("fixed(2)", '"AP8="', b"\x00\xff"),
    ("fixed(2) as hex", '"00fF"', b"\x00\xff"),
    ("list<int>", "[1,null,2]", [1, None, 2]),
    ("list<list<decimal(3,1)>>", "[[1.5],[],null]", [[Decimal("1.5")], [], None]),
    ("map<string, long not null>", '{"a":1,"A":2,"":3}', [("a", 1), ("A", 2), ("", 3)]),
    ("map<string, decimal(3,1)>", '{"a":1.5,"b":null}', [("a", Decimal("1.5")), ("b", None)]),
    ("struct<a int, b string not null>", '{"b":"x"}', {"a": None, "b": "x"}),
    ("struct<a struct<b int not null>>", "null", None),
    ("struct<a struct<b int not null>>", '{"a":null}', {"a": None}),
]


@pytest.mark.parametrize("kind", ["double", "float", "double as text", "float as text", "list<double>"])
@pytest.mark.parametrize("token", ["-0", "-0.0", "-0.00", "-0e5", "0"])
def test_a_zero_keeps_its_sign(kind: str, token: str) -> None:
    written = f'"{token}"' if "text" in kind else f"[{token}]" if "list" in kind else token
    record = b'{"v":%s}' % written.encode()
    declared = parse_schema(f"v {kind}")
    blocks = [
        JsonReferenceDecoder(declared).decode(pa.array([record])),
        JsonBlockDecoder(declared, smallest=1).decode(pa.array([record] * 9)),
    ]
    for decoded in blocks:
        value = decoded.rows.column(0)[0].as_py()
        number = value[0] if isinstance(value, list) else value
        assert (number, math.copysign(1, number)) == (0, -1 if token[0] == "-" else 1)


def test_any_value_counts_into_the_depth_of_its_record() -> None:
    for kind in ("json", "json as sent"):
        assert value_of(kind, "[" * 199 + "]" * 199) == "[" * 199 + "]" * 199
        for depth in (200, 5000):
            failure = failure_of(f"v {kind}", b'{"v":' + b"[" * depth + b"]" * depth + b"}")
            assert (failure.error_class, failure.field) == ("too_deep", None)


def test_any_value_stays_as_sent_although_another_key_of_the_record_comes_twice() -> None:
    record = b'{"n":"x","n":1,"v":{"a" : 1, "a":2},"l":[ {"a" :1} ],"m":{"k":[1 ,2]}}'
    decoded = decode("n int, v json as sent, l list<json as sent>, m map<string, json as sent>", record)
    (row,) = decoded.rows.to_pylist()
    assert row == {"n": 1, "v": '{"a" : 1, "a":2}', "l": ['{"a" :1}'], "m": [("k", "[1 ,2]")]}


BAD = [
    ("int", "1.0", "wrong_type"),
    ("int as number", "517.5", "precision_loss"),
    ("int as number", "1e-1", "precision_loss"),
    ("int as number", '"517"', "wrong_type"),
    ("int as number", "2147483648.0", "out_of_range"),
    ("int as number", "1e400", "out_of_range"),
    ("long as number", "1e99999999999999", "out_of_range"),
    ("int as text", "517", "wrong_type"),
    ("int as text", '"517.0"', "wrong_type"),
    ("int as text", '"+1"', "wrong_type"),
    ("int as text", '""', "wrong_type"),
    ("int as text", '" 1"', "wrong_type"),
    ("int as text", '"\u0661"', "wrong_type"),
    ("int as text", '"2147483648"', "out_of_range"),
    ("long as text", '"' + "1" * 5000 + '"', "out_of_range"),
    ("double as text", '"nan"', "wrong_type"),
    ("double as text", '"1,5"', "wrong_type"),
    ("double as text", '"1e400"', "out_of_range"),
    ("float as text", '"1e39"', "out_of_range"),
    ("double as text", "1.5", "wrong_type"),
    ("json", '"\\ud800"', "malformed_json"),
    ("int", "1e2", "wrong_type"),
    ("int", "1.5", "wrong_type"),
    ("int", '"1"', "wrong_type"),
    ("int", "true", "wrong_type"),
    ("int", "2147483648", "out_of_range"),
    ("int", "-2147483649", "out_of_range"),
    ("long", "9223372036854775808", "out_of_range"),
    ("long", "1" * 5000, "out_of_range"),
    ("long", "[" * 100 + "]" * 100, "wrong_type"),
    ("boolean", "1", "wrong_type"),
    ("boolean", '"true"', "wrong_type"),
    ("double", '"1.5"', "wrong_type"),
    ("double", '"NaN"', "wrong_type"),
    ("double", "true", "wrong_type"),
    ("double", "1e400", "out_of_range"),
    ("double", "1" * 400, "out_of_range"),
    ("float", "1e39", "out_of_range"),
    ("float", "-3.4028236e38", "out_of_range"),
    ("string", "5", "wrong_type"),
    ("string", "{}", "wrong_type"),
    ("decimal(12,2)", '"1.50"', "wrong_type"),
    ("decimal(12,2)", "true", "wrong_type"),
    ("decimal(12,2)", "[1]", "wrong_type"),
    ("decimal(12,2)", '{"a":1}', "wrong_type"),
    ("decimal(12,2)", "1.005", "precision_loss"),
    ("decimal(12,2)", "1e-3", "precision_loss"),
    ("decimal(12,2)", "1e-99999999999999", "precision_loss"),
    ("decimal(12,2)", "10000000000", "out_of_range"),
    ("decimal(12,2)", "1e10", "out_of_range"),
    ("decimal(12,2)", "1e400", "out_of_range"),
    ("decimal(12,2)", "1e99999999999999", "out_of_range"),
    ("decimal(12,2)", "1" * 5000, "out_of_range"),
    ("decimal(12,2) as text", "1.5", "wrong_type"),
    ("decimal(12,2) as text", '""', "wrong_type"),
    ("decimal(12,2) as text", '"NaN"', "wrong_type"),
    ("decimal(6,2) as unscaled", '"BNI"', "bad_binary"),
    ("decimal(3,2) as unscaled", '"BNI="', "out_of_range"),
    ("decimal(6,2) as unscaled", "true", "wrong_type"),
    ("decimal(12,2) as text", '" 1.5"', "wrong_type"),
    ("decimal(12,2) as text", '"1.5\\n"', "wrong_type"),
    ("decimal(12,2) as text", '"\u0661"', "wrong_type"),
    ("time", '"24:00:00"', "bad_time"),
    ("time", '"12:00:60"', "bad_time"),
    ("time", '"1:00:00"', "bad_time"),
    ("time", '"12:00:00Z"', "bad_time"),
    ("time", '"12:00.5"', "bad_time"),
    ("time", '"12:00:00.1234567"', "precision_loss"),
    ("time", "1", "wrong_type"),
    ("time as millis_of_day", "86400000", "out_of_range"),
    ("time as millis_of_day", "-1", "out_of_range"),
    ("time as micros_of_day", '"0"', "wrong_type"),
    ("uuid", '"0f8fad5bd9cb469fa16570867728950e"', "bad_uuid"),
    ("uuid", '"{0f8fad5b-d9cb-469f-a165-70867728950e}"', "bad_uuid"),
    ("uuid", '"0f8fad5b-d9cb-469f-a165-70867728950e\\n"', "bad_uuid"),
    ("uuid", "1", "wrong_type"),
    ("fixed(2)", '"AP8A"', "wrong_length"),
    ("fixed(2)", '"AP8"', "bad_binary"),
    ("timestamp", '"2026-11-20"', "bad_timestamp"),
    ("timestamp", '"2026-11-20T10:11:12Z"', "bad_timestamp"),
    ("timestamp", '"2026-11-20T10:11:12\\n"', "bad_timestamp"),
    ("timestamp", '"2026-11-20T24:00:00"', "bad_timestamp"),
    ("timestamp", '"2026-02-29T00:00:00"', "bad_timestamp"),
    ("timestamp", '"0000-01-01T00:00:00"', "out_of_range"),
    ("timestamp", "1795169472", "wrong_type"),
    ("timestamptz", '"2026-11-20T10:11:12"', "bad_timestamp"),
    ("timestamptz", '"2026-11-20T10Z"', "bad_timestamp"),
    ("timestamptz", '"2016-12-31T23:59:60Z"', "bad_timestamp"),
    ("timestamptz", '"2026-11-20T10:11:12+24:00"', "bad_timestamp"),
    ("timestamptz", '"2026-11-20T10:11:12.1234567Z"', "precision_loss"),
    ("timestamptz", '"0001-01-01T00:00:00+09:00"', "out_of_range"),
    ("timestamptz", '"9999-12-31T23:59:59-09:00"', "out_of_range"),
    ("timestamptz as epoch_s", "1795169472123", "out_of_range"),
    ("timestamptz as epoch_s", "9223372036854775807", "out_of_range"),
    ("timestamptz as epoch_ms", "1.5", "wrong_type"),
    ("timestamptz as epoch_ms", '"2026-11-20T10:11:12Z"', "wrong_type"),
    ("timestamptz as epoch_us", "-9223372036854775808", "out_of_range"),
    ("timestamptz as epoch_ns", "1795169472123456001", "precision_loss"),
    ("date", '"2026-11-31"', "bad_date"),
    ("date", '"2026-1-1"', "bad_date"),
    ("date", '"2026-11-20T00:00:00"', "bad_date"),
    ("date", '"0000-01-01"', "out_of_range"),
    ("date as epoch_days", "2932897", "out_of_range"),
    ("binary", '"AP8"', "bad_binary"),
    ("binary", '"AP9="', "bad_binary"),
    ("binary", '"AP8=\\n"', "bad_binary"),
    ("binary", '"_-8="', "bad_binary"),
    ("binary", '"é"', "bad_binary"),
    ("binary as hex", '"0"', "bad_binary"),
    ("binary as hex", '"0g"', "bad_binary"),
    ("binary as hex", '"é0"', "bad_binary"),
    ("list<int>", "{}", "wrong_type"),
    ("map<string, int>", "[]", "wrong_type"),
    ("struct<a int>", "[]", "wrong_type"),
    ("int not null", "null", "null_in_required"),
    ("decimal(3,1) not null", "null", "null_in_required"),
    ("struct<a int> not null", "null", "null_in_required"),
    ("string", '"\\ud800"', "malformed_json"),
    ("string", '"\\udc00 and more text"', "malformed_json"),
    ("string", '"a\nb"', "malformed_json"),
    ("string", '"\\q"', "malformed_json"),
    ("int", "01", "malformed_json"),
    ("decimal(3,1)", "01", "malformed_json"),
    ("decimal(3,1)", "1.", "malformed_json"),
    ("double", "NaN", "malformed_json"),
]

WHOLE = [
    (b"", "empty_value"),
    (b" \t\r\n", "empty_value"),
    (b"null", "not_an_object"),
    (b"[]", "not_an_object"),
    (b"1", "not_an_object"),
    (b'"x"', "not_an_object"),
    (b'{"a":1}{"a":2}', "malformed_json"),
    (b'{"a":1}\n{"a":2}', "malformed_json"),
    (b'{"a":1} x', "malformed_json"),
    (b'{"a":1', "malformed_json"),
    (b'{"a":1,}', "malformed_json"),
    (b"{'a':1}", "malformed_json"),
    (b'\xef\xbb\xbf{"a":1}', "malformed_json"),
    (b'{"a":1} // x', "malformed_json"),
    (b"\x00", "malformed_json"),
    (b'{"a":1,"z":tru}', "malformed_json"),
    (b'{"a":1,"z":"\\ud800"}', "malformed_json"),
    (b'{"a":1,"z":01}', "malformed_json"),
    (b'{"a":1,"s":"\xff"}', "invalid_utf8"),
    (b'{"a":1,"z":"\xff"}', "invalid_utf8"),
    (b'{"a":1,"d":"\xff"}', "invalid_utf8"),
    (b'{"a":1,"\xed\xa0\x80":1}', "invalid_utf8"),
    (b'{"s":"x"}', "missing_field"),
    (b"{}", "missing_field"),
    (b'{"A":1}', "key_case"),
    (b'{"a":1,"S":"x"}', "key_case"),
    (b'{"a":1,"z":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too_deep"),
    (b'{"a":1,"z":' + b"[" * 100_000, "too_deep"),
    (b'{"a":1,"z":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", "too_deep"),
    (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too_deep"),
    (b'{"d":' + b"[" * 100_000 + b"]" * 100_000 + b',"a":1}', "too_deep"),
]


@pytest.mark.parametrize(("kind", "token", "expected"), GOOD)
def test_a_good_value_is_exactly_what_was_sent(kind: str, token: str, expected: Any) -> None:
    assert value_of(kind, token) == expected


@pytest.mark.parametrize(("kind", "token", "error_class"), BAD)
def test_a_bad_value_fails_its_record_and_no_other(kind: str, token: str, error_class: str) -> None:
    failure = failure_of(f"v {kind}", b'{"v":' + token.encode() + b"}")
    assert failure.error_class == error_class
    if error_class != "malformed_json":
        assert failure.field == "$.v"
    good = next((one for one in GOOD if one[0] == kind), None)
    if good is not None:
        records = [b'{"v":' + token.encode() + b"}", b'{"v":' + good[1].encode() + b"}"]
        decoded = decode(f"v {kind}", *records, *records)
        assert decoded.positions.tolist() == [1, 3] and [one.row for one in decoded.failures] == [0, 2]
        assert decoded.rows.column(0).to_pylist() == [good[2]] * 2


@pytest.mark.parametrize(("value", "error_class"), WHOLE)
def test_a_bad_record_fails(value: bytes, error_class: str) -> None:
    assert failure_of("a int not null, s string, d decimal(3,1)", value).error_class == error_class


def test_nested_paths_are_exact() -> None:
    schema = "o struct<l list<struct<d decimal(3,1), t timestamptz>>, m map<string, date>>"
    value = b'{"o":{"l":[{"d":1.5},null,{"d":1.55}]}}'
    assert failure_of(schema, value).field == "$.o.l[2].d"
    assert failure_of(schema, b'{"o":{"l":[{},{"t":5}]}}').field == "$.o.l[1].t"
    assert failure_of(schema, b'{"o":{"m":{"k":"2026"}}}').field == "$.o.m[...]"
    assert failure_of("o struct<n struct<x int not null>>", b'{"o":{"n":{}}}').field == "$.o.n.x"
    decoded = decode(schema, b'{"o":null}', b"{}", value, b'{"o":{"l":[null,{"d":1.25},{"d":true}]}}')
    assert [(one.row, one.field) for one in decoded.failures] == [(2, "$.o.l[2].d"), (3, "$.o.l[1].d")]


def test_a_message_names_what_was_found_and_what_is_needed() -> None:
    assert failure_of("v int", b'{"v":"x"}').message == "needs int, found a string"
    assert failure_of("v timestamptz as epoch_ms", b'{"v":"x"}').message == (
        "needs timestamptz as epoch_ms, found a string"
    )
    assert failure_of("v decimal(12,2)", b'{"v":"1"}').message == "needs decimal(12,2), found a string"
    assert failure_of("v list<struct<`a.b` int>>", b'{"v":[{"a.b":true}]}').message == "needs int, found a boolean"
    assert failure_of("v int not null", b"{}").message == "needs int, found no such key"
    long = failure_of("v date", b'{"v":"' + b"x" * 10_000 + b'"}').message
    assert "(10000 characters)" in long and len(long) < 200


def test_tombstones_failures_and_rows_partition_the_block() -> None:
    block = pa.array([b"junk", None, b'{"a":1}', b"", None, b'{"a":2}', b'{"a":"x"}'], pa.binary())
    decoded = JsonReferenceDecoder(parse_schema("a int")).decode(block[1:])
    assert decoded.tombstones.tolist() == [0, 3]
    assert decoded.positions.tolist() == [1, 4] and decoded.rows.column(0).to_pylist() == [1, 2]
    assert [(one.row, one.error_class) for one in decoded.failures] == [(2, "empty_value"), (5, "wrong_type")]


@pytest.mark.parametrize("values", [[], [None], [b"junk"]])
def test_a_block_without_a_good_row(values: list[bytes | None]) -> None:
    schema = "a int not null, d decimal(3,1), t timestamptz, l list<struct<x binary>>, m map<string, date>, f float"
    assert decode(schema, *values).rows.num_rows == 0


def test_unknown_keys_are_counted_by_path_once_per_landed_record() -> None:
    schema = "a int, n struct<x int>, items list<struct<x int>>, m map<string, struct<x int>>"
    one = b'{"a":1,"z":1e999,"n":{"y":[{"deep":1}]},"items":[{"y":1},{"y":2}],"m":{"k":{"y":1}}}'
    decoded = decode(schema, one, one, b'{"a":1}', b'{"a":"x","z":1}', b'{"z":1,"a":1,"w":' + b"1" * 5000 + b"}")
    assert decoded.unknown_fields == {"$.z": 3, "$.n.y": 2, "$.items[].y": 2, "$.m{}.y": 2, "$.w": 1}
    assert decoded.positions.tolist() == [0, 1, 2, 4]


def test_a_key_that_is_known_by_now_changes_nothing() -> None:
    schema = "a int not null, d decimal(3,1), items list<struct<x int>>, m map<string, struct<x int>>"
    decoder = JsonReferenceDecoder(parse_schema(schema))
    deep = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    values = [
        b'{"a":1,"z":1e999,"items":[{"y":1},{"y":null},null],"m":{"k":{"y\\u00e9":"t"}}}',
        b'{"a":1,"z":null,"z":[1],"items":[{"y":1,"y":2}]}',
        b'{"a":1,"d":1.55,"z":1}',
        b'{"a":1,"d":1.55,"z":' + deep + b"}",
        b'{"a":1,"z":' + deep + b"}",
        b'{"a":1,"z":"' + b"[" * 1000 + b'"}',
        b'{"z":1,"a":"x","A":2}',
        b'{"z":1,"a":"x","D":2}',
        b'{"z":1,"a":tru}',
        b'{"z":"\\ud800","a":1}',
        b'{"z":"\xff","a":1}',
        b'{"z":1,"a":1,"Z":1,"quo\\"ted":2}',
        b'{"Z":1}',
        None,
    ]
    block = pa.array(values, pa.binary())
    first, *later = [decoder.decode(block) for _ in range(3)]
    assert first.unknown_fields == {"$.z": 4, "$.items[].y": 2, "$.m{}.yé": 1, "$.Z": 1, '$.quo"ted': 1}
    for again in later:
        assert again.rows.equals(first.rows)
        assert again.failures == first.failures
        assert again.unknown_fields == first.unknown_fields
        assert again.positions.tolist() == first.positions.tolist() == [0, 1, 5, 11]


def test_unknown_paths_are_bounded() -> None:
    decoded = decode("a int", *[b'{"k%d":1}' % n for n in range(250)])
    assert len(decoded.unknown_fields) == 101 and decoded.unknown_fields["…"] == 150


def test_unknown_keys_fail_where_the_stream_says_so() -> None:
    schema = "a int, items list<struct<x int>>"
    failure = failure_of(schema, b'{"a":1,"items":[{"x":1},{"q":1}]}', unknown="fail")
    assert (failure.error_class, failure.field) == ("unknown_field", "$.items[1].q")
    assert failure_of(schema, b'{"A":1,"z":1}', unknown="fail").error_class == "key_case"
    assert decode(schema, b'{"a":1}', unknown="fail").failures == []


def test_a_key_that_differs_by_case_is_never_a_silent_null() -> None:
    failure = failure_of("n struct<Id int>", b'  {"n":{"id":7}}')
    assert (failure.error_class, failure.field) == ("key_case", "$.n.id")
    decoded = decode("Id int", b'{"Id":1,"ID":2}')
    assert decoded.rows.column(0).to_pylist() == [1] and decoded.unknown_fields == {"$.ID": 1}


def test_a_key_that_differs_by_case_stays_a_trap_when_it_has_come_often() -> None:
    decoder = JsonReferenceDecoder(parse_schema("Id int, items list<struct<Id int>>"))
    often = pa.array([b'{"Id":1,"ID":2,"items":[{"Id":1,"ID":2}]}'] * 3, pa.binary())
    assert decoder.decode(often).unknown_fields == {"$.ID": 3, "$.items[].ID": 3}
    later = decoder.decode(pa.array([b'{"ID":2}', b'{"items":[{"ID":2}]}'], pa.binary()))
    assert [(one.error_class, one.field) for one in later.failures] == [
        ("key_case", "$.ID"),
        ("key_case", "$.items[0].ID"),
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"a":1,"a":2}', {"a": 2, "d": None, "n": None}),
        (b'{"a":"x","a":2}', {"a": 2, "d": None, "n": None}),
        (b'{"a":1e5,"\\u0061":2, "z":{"q":1.50,"q":[1, "\\u00e9"]}}', {"a": 2, "d": None, "n": None}),
        (b'{"d":"x","d":1.50}', {"a": None, "d": Decimal("1.5"), "n": None}),
        (b'{"n":{"x":true},"n":{"x":1,"x":3}}', {"a": None, "d": None, "n": {"x": 3}}),
        (b'{"n":{"x":true},"n":null,"a":1}', {"a": 1, "d": None, "n": None}),
    ],
)
def test_of_a_key_that_comes_twice_the_last_one_counts(value: bytes, expected: dict[str, Any]) -> None:
    assert decode("a int, d decimal(3,1), n struct<x int not null>", value).rows.to_pylist() == [expected]


def test_of_a_key_that_comes_twice_the_last_one_can_be_bad() -> None:
    assert failure_of("a int", b'{"a":2,"a":"x"}').error_class == "wrong_type"
    assert failure_of("d decimal(3,1)", b'{"d":2,"d":"x"}').error_class == "wrong_type"


def test_an_overwritten_unknown_key_is_not_counted() -> None:
    decoded = decode("n struct<x int>", b'{"n":{"q":1},"n":{"x":1}}')
    assert decoded.rows.to_pylist() == [{"n": {"x": 1}}] and decoded.unknown_fields == {}


def test_a_record_of_ten_megabytes() -> None:
    text = b"x" * 10_000_000
    decoded = decode("s string, d decimal(3,1)", b'{"s":"' + text + b'"}', b'{"z":"' + text + b'"}', b'{"s":"' + text)
    assert decoded.rows.column(0).to_pylist() == [text.decode(), None]
    assert decoded.failures[0].error_class == "malformed_json"
    numbers = decode(
        "d decimal(12,2), l list<int>", b'{"d":1' + b"0" * 10_000_000 + b"}", b'{"l":[' + b"1," * 10**6 + b"1]}"
    )
    assert numbers.failures[0].error_class == "out_of_range"
    assert len(numbers.rows.column(1)[0]) == 10**6 + 1


def test_nesting_that_is_allowed_does_not_depend_on_the_callers_stack() -> None:
    value = b'{"a":1,"z":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"

    def deeper(frames: int) -> Decoded:
        return decode("a int", value) if frames == 0 else deeper(frames - 1)

    assert deeper(0).positions.tolist() == deeper(400).positions.tolist() == [0]


def test_brackets_in_a_text_are_not_nesting() -> None:
    assert decode("a int", b'{"z":"' + b'[\\"{' * 1000 + b'"}').positions.tolist() == [0]


def test_names_that_are_not_pythons() -> None:
    decoded = decode(
        "`order id` int, `class` string, `f0` int, `ключ` int", '{"order id":1,"class":"x","f0":2,"ключ":3}'.encode()
    )
    assert decoded.rows.to_pylist() == [{"order id": 1, "class": "x", "f0": 2, "ключ": 3}]


MSGSPEC_TEXTS = [
    (b'{"i":"x"}', "Expected `int | null`, got `str` - at `$.i`"),
    (b'{"i":1.5}', "Expected `int | null`, got `float` - at `$.i`"),
    (b'{"i":true}', "Expected `int | null`, got `bool` - at `$.i`"),
    (b'{"i":[]}', "Expected `int | null`, got `array` - at `$.i`"),
    (b'{"i":{}}', "Expected `int | null`, got `object` - at `$.i`"),
    (b'{"i":8}', "Expected `int` <= 7 - at `$.i`"),
    (b'{"i":-8}', "Expected `int` >= -7 - at `$.i`"),
    (b'{"i":' + b"9" * 5000 + b"}", "Integer value out of range - at `$.i`"),
    (b'{"f":1e999}', "Number out of range - at `$.f`"),
    (b'{"n":{}}', "Object missing required field `x` - at `$.n`"),
    (b'{"n":{"x":null}}', "Expected `int`, got `null` - at `$.n.x`"),
    (b'{"l":[1,"x"]}', "Expected `int`, got `str` - at `$.l[1]`"),
    (b'{"m":{"k":"x"}}', "Expected `int`, got `str` - at `$.m[...]`"),
    (b"[]", "Expected `object`, got `array`"),
    (b'{"i":1', "Input data was truncated"),
    (b'{"i":1}x', "JSON is malformed: trailing characters (byte 8)"),
]


@pytest.mark.parametrize(("value", "text"), MSGSPEC_TEXTS)
def test_the_texts_of_msgspec_that_are_relied_upon(value: bytes, text: str) -> None:
    bounded: Any = Annotated[int, msgspec.Meta(ge=-7, le=7)]
    inner = msgspec.defstruct("Inner", [("x", int)])
    outer = msgspec.defstruct(
        "Outer",
        [
            ("i", bounded | None, None),
            ("f", float | None, None),
            ("n", inner | None, None),
            ("l", list[int] | None, None),
            ("m", dict[str, int] | None, None),
        ],
        forbid_unknown_fields=True,
    )
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(value, type=outer)
    assert str(caught.value) == text


def test_a_text_of_msgspec_that_is_not_known_is_shown_as_it_is() -> None:
    problem = problem_of("Something new", parse_schema("a int"))
    assert problem.error_class == "malformed_json" and "Something new" in problem.message


def test_a_raw_token_of_msgspec_is_the_text_without_white_space_around() -> None:
    members = msgspec.json.decode(b'{ "a" : 1.50 , "b" : [1, 2] , "c":null}', type=dict[str, msgspec.Raw])
    assert [bytes(one) for one in members.values()] == [b"1.50", b"[1, 2]", b"null"]


LISTS = "items list<struct<a int, in list<struct<b int>>>>, m map<string, struct<a int>>"


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (b'{"items":[{"a":1},{"a":2},{"%s":1}]}', "$.items[2].%s"),
        (b'{"items":[{"a":1},{"a":2,"in":[{},{"b":1},{},{"x":{"%s":1}},{"%s":2}]},{"%s":1}]}', None),
        (b'{"m":{"k":{"a":1},"secret":{"%s":1}}}', "$.m[...].%s"),
    ],
)
@pytest.mark.parametrize(
    ("key", "unknown", "error_class"), [("q", "fail", "unknown_field"), ("A", "ignore", "key_case")]
)
def test_a_key_at_fault_is_told_with_its_place_in_lists(
    record: bytes, field: str | None, key: str, unknown: str, error_class: str
) -> None:
    if field is None:
        key = {"q": "q", "A": "B"}[key]
        field = "$.items[1].in[3].x" if unknown == "fail" else "$.items[1].in[4].%s"
    value = record.replace(b"%s", key.encode())
    failure = failure_of(LISTS, value, unknown=unknown)
    assert (failure.error_class, failure.field) == (error_class, field.replace("%s", key))


def test_a_long_key_is_cut_and_stays_another_one_than_others() -> None:
    keys = ["k" * 20_000, "k" * 19_999 + "l", "k" * 61, "k" * 60]
    values = [f'{{"a":{n},"{key}":1}}'.encode() for n, key in enumerate(keys)]
    for decoder in (JsonReferenceDecoder, JsonBlockDecoder):
        made = decoder(parse_schema("a int"))
        for _ in range(3):  # what comes often is read by a type that knows it
            decoded = made.decode(pa.array(values * 100, pa.binary()))
            assert sorted(decoded.unknown_fields.values()) == [100] * 4
            assert max(map(len, decoded.unknown_fields)) < 110
            assert f"$.{'k' * 60}" in decoded.unknown_fields
    failure = failure_of("a int", b'{"%s":1}' % (b"k" * 1_000_000), unknown="fail")
    assert failure.field == f"$.{'k' * 60}… (1000000 characters, {hashlib.sha256(b'k' * 1_000_000).hexdigest()[:8]})"
    assert len(failure.message) < 200
