"""The block decoder gives what the reference decoder gives, in every field, whatever it has met before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.json.block import JsonBlockDecoder
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.schema.arrow_schema import arrow_schema
from jobs.records.schema.declared import StructType
from jobs.records.schema.parser import parse_schema
from tests.helpers.alike_records import alike_blocks
from tests.helpers.decoders import CountingReference
from tests.helpers.json_records import blocks

SCHEMA = (
    "id string not null, n long, at timestamptz, v decimal(9,2), tags list<string>, o struct<x int not null, y double>"
)


def record(number: int, **changes: Any) -> bytes:
    members: dict[str, Any] = {
        "id": f"id-{number:08d}",
        "n": number * 7919,
        "at": f"2026-01-{number % 28 + 1:02d}T10:11:{number % 60:02d}.345Z",
        "v": number / 4,
        "tags": ["a", "long one"][: number % 3],
        "o": {"x": number, "y": 0.5},
    }
    members |= changes
    return json.dumps({key: one for key, one in members.items() if one != "absent"}, separators=(",", ":")).encode()


def check(schema: StructType, each: Sequence[Sequence[bytes | None]], unknown: Any = "ignore") -> JsonBlockDecoder:
    reference = JsonReferenceDecoder(schema, unknown_fields=unknown)
    decoder = JsonBlockDecoder(schema, unknown_fields=unknown, smallest=1)
    for values in each:
        block = pa.array([b"cut off", *values], pa.binary())[1:]
        same(decoder.decode(block), reference.decode(block), schema)
    return decoder


def same(decoded: Decoded, expected: Decoded, schema: StructType) -> None:
    decoded.rows.validate(full=True)
    assert decoded.rows.schema.equals(arrow_schema(schema))
    assert decoded.failures == expected.failures
    assert decoded.positions.tolist() == expected.positions.tolist()
    assert decoded.tombstones.tolist() == expected.tombstones.tolist()
    # As texts, since -0.0 == 0.0.
    assert repr(decoded.rows.to_pylist()) == repr(expected.rows.to_pylist())
    assert decoded.unknown_fields == expected.unknown_fields


@settings(max_examples=150)
@given(st.integers(0, 2**64), st.sampled_from(["ignore", "ignore", "fail"]))
def test_blocks_of_records_that_look_alike(seed: int, unknown: Any) -> None:
    schema, each = alike_blocks(seed)
    check(schema, each, unknown)


@settings(max_examples=60)
@given(blocks, st.sampled_from(["ignore", "fail"]))
def test_blocks_of_hostile_records(block: tuple[StructType, list[bytes | None]], unknown: Any) -> None:
    schema, values = block
    check(schema, [values, values[::-1], values + values], unknown)


GOOD = [record(number) for number in range(40)]
ODD = {
    "two records in one value": record(1) + record(2),
    "two records, lines of their own": record(1) + b"\n" + record(2),
    "begins in one value": b'{"id":"a","tags":["',
    "ends in the next one": b'"]}',
    "a text that goes on in the next value": b'{"id":"}',
    "a text that came from the last value": b'{"}',
    "a closing quotation mark where the guess expects it": b'{"id":"a","n":1"}',
    "keys in another order": json.dumps(dict(reversed(json.loads(record(3)).items())), separators=(",", ":")).encode(),
    "white space": json.dumps(json.loads(record(3)), indent=1).encode(),
    "other punctuation": json.dumps(json.loads(record(3))).encode(),
    "an escape": record(3, id='quo"ted'),
    "an escaped key": record(3).replace(b'"id"', b'"\\u0069d"'),
    "a key twice": record(3)[:-1] + b',"n":5}',
    "a key that is not declared": record(3, other=[1, {"deep": None}]),
    "a key that differs by case": record(3, n="absent", N=5),
    "not UTF-8": record(3).replace(b"id-0", b"id\xff0"),
    "a surrogate": record(3).replace(b"id-0", b"id\xed\xa0\x80"),
    "a byte order mark": b"\xef\xbb\xbf" + record(3),
    "a NUL": record(3).replace(b"id-0", b"id\x000"),
    "a NUL behind it": record(3) + b"\x00}",
    "null behind it": record(3) + b"null{}",
    "a shorter text than all others": record(3, id=""),
    "a text with what looks like JSON": record(3, id=',n:1}]"'.strip('"')),
    "a long text": record(3, id="x" * 5000),
    "a long list": record(3, tags=["t"] * 3000),
    "nested deep": record(3)[:-1] + b',"z":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "a decimal as text": record(3, v="1.25"),
    "a decimal with zeros": record(3).replace(b'"v":0.75', b'"v":0.7500000'),
    "a decimal with an exponent": record(3).replace(b'"v":0.75', b'"v":75e-2'),
    "too many digits": record(3, v=1.234),
    "a number too large": record(3).replace(b'"n":23757', b'"n":18446744073709551617'),
    "a whole number with a point": record(3, n=1.0),
    "a leading zero": record(3).replace(b'"n":23757', b'"n":023757'),
    "only a sign": record(3).replace(b'"n":23757', b'"n":-'),
    "not a number": record(3).replace(b'"y":0.5', b'"y":NaN'),
    "minus zero": record(3).replace(b'"y":0.5', b'"y":-0.0'),
    "a double of many digits": record(3, o={"x": 1, "y": 0.12345678901234567}),
    "a required key is missing": record(3, id="absent"),
    "a required key is null": record(3, o={"x": None}),
    "a date that is none": record(3, at="2026-02-30T10:11:12.345Z"),
    "an hour that is none": record(3, at="2026-01-30T24:11:12.345Z"),
    "another zone": record(3, at="2026-01-30T10:11:12+02:00"),
    "null instead of a text": record(3, at=None),
    "null instead of an object": record(3, o=None),
    "null instead of a list": record(3, tags=None),
    "null in a list": record(3, tags=["a", None]),
    "cut off": record(3)[:-9],
    "cut off behind an object": record(3)[:-2] + b"}",
    "nothing": b"",
    "white space only": b"  ",
    "an empty object": b"{}",
    "a tombstone": None,
}


@pytest.mark.parametrize("odd", ODD)
def test_one_odd_record_among_others(odd: str) -> None:
    schema = parse_schema(SCHEMA)
    value = ODD[odd]
    check(schema, [GOOD, [*GOOD[:9], value, *GOOD[9:]], [value] * 3, [*GOOD[:3], value], [value, *GOOD[:3]]])
    check(schema, [[value, None, value], GOOD[:3]])


@pytest.mark.parametrize("unknown", ["ignore", "fail"])
def test_all_odd_records_among_others(unknown: Any) -> None:
    mixed = [one for pair in zip(ODD.values(), GOOD + GOOD, strict=False) for one in pair]
    check(parse_schema(SCHEMA), [mixed, GOOD, list(ODD.values()), mixed[::-1]], unknown)


def test_neighbours_that_would_be_one_record_together() -> None:
    schema = parse_schema("a list<struct<x int>>, s string")
    whole = b'{"a":[{"x":1},{"x":2}],"s":"}{"}'
    parts = [[whole[:at], whole[at:]] for at in range(1, len(whole))]
    check(schema, [[whole] * 5, *([whole, *part, whole] for part in parts), [one for part in parts for one in part]])


def test_long_texts_and_lists() -> None:
    long = [record(n, id="x" * (n * 250), tags=["t" * n] * n) for n in range(60)]
    check(parse_schema(SCHEMA), [long, long, [*long, *GOOD], [record(n, id="x" * 20_000) for n in range(60)]])


def test_a_text_that_is_not_closed_before_one_that_is_not_utf8() -> None:
    open_text = record(3).replace(b'.345Z","v":0.75,"tags":[],"o":{"x":3,"y":0.5}}', b"}")
    check(parse_schema(SCHEMA), [GOOD, [*GOOD, open_text, b'{\xff"id":"a","n":1}', *GOOD]])


def test_records_that_look_alike_need_no_reference() -> None:
    schema = parse_schema(SCHEMA)
    reference = CountingReference(schema)
    decoder = JsonBlockDecoder(schema, smallest=1, reference=reference)
    decoder.decode(pa.array(GOOD, pa.binary()))
    block = pa.array([record(number, extra=5) for number in range(3)] + GOOD, pa.binary())
    same(decoder.decode(block), JsonReferenceDecoder(schema).decode(block), schema)
    before = reference.records
    again = decoder.decode(block)
    assert reference.records == before
    assert again.rows.num_rows == 43 and again.unknown_fields == {"$.extra": 3}


def test_a_stream_whose_records_differ_is_left_to_the_reference_for_a_while() -> None:
    schema = parse_schema(SCHEMA)
    whole = json.loads(record(5))
    differing = [
        json.dumps({key: whole[key] for key in sorted(whole, key=lambda key: (key * n)[::-1])}) for n in range(9)
    ]
    values = [text.replace("id-", f"\\u0069{'d' * n}").encode() for n, text in enumerate(differing)]
    decoder = check(schema, [values] * 30)
    same(decoder.decode(pa.array(GOOD, pa.binary())), JsonReferenceDecoder(schema).decode(pa.array(GOOD)), schema)


def test_keys_that_come_no_more_are_forgotten() -> None:
    schema = parse_schema(SCHEMA)
    each: list[list[bytes | None]] = [[record(1, **{f"key{n}": n}), *GOOD] for n in range(150)]
    check(schema, [*each, *([GOOD] * 70), [record(2, late=1), *GOOD], [record(2, late=1), *GOOD]])


@pytest.mark.parametrize("values", [[], [None], [None, None], [b"junk"], [b"{}"]])
def test_blocks_of_next_to_nothing(values: list[bytes | None]) -> None:
    check(parse_schema("a int, m struct<x int not null>, l list<int>"), [values, values])


def test_a_schema_with_a_map_is_the_references() -> None:
    check(parse_schema("a int, m map<string, int>"), [[b'{"a":1,"m":{"k":1}}', b'{"m":{"k":"x"}}']] * 2)
