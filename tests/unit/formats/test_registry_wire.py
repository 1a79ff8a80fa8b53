"""Which writer schema a record names: in its first bytes, in a header, and with the indexes of a Protobuf message."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.formats.problems import ValueProblem
from jobs.formats.registry_wire import WrittenAs, group_by_schema, message_indexes
from jobs.formats.writer_schema import SchemaId

GUID = bytes(range(16))


def numbered(number: int, rest: bytes = b"") -> bytes:
    return b"\x00" + struct.pack(">I", number) + rest


def column(values: Sequence[bytes | None]) -> pa.BinaryArray:
    # A slice of a longer array: offsets do not begin at zero.
    return pa.array([b"before", *values], pa.binary()).slice(1)


def groups(
    values: Sequence[bytes | None], headers: Sequence[bytes | None] | None = None, *, messages: bool = False
) -> dict[WrittenAs, dict[int, bytes]]:
    grouped = group_by_schema(column(values), None if headers is None else column(headers), messages=messages)
    return {
        each.written: dict(zip(each.rows.tolist(), each.values.to_pylist(), strict=True)) for each in grouped.groups
    }


def refused(
    values: Sequence[bytes | None], headers: Sequence[bytes | None] | None = None, *, messages: bool = False
) -> list:
    grouped = group_by_schema(column(values), None if headers is None else column(headers), messages=messages)
    return [(each.row, each.error_class, each.message) for each in grouped.failures]


def test_records_are_taken_apart_by_number_and_guid() -> None:
    values = [numbered(7, b"a"), None, b"\x01" + GUID + b"b", numbered(7), numbered(2**32 - 1, b"c")]
    assert groups(values) == {
        WrittenAs(SchemaId(number=7)): {0: b"a", 3: b""},
        WrittenAs(SchemaId(guid=GUID.hex())): {2: b"b"},
        WrittenAs(SchemaId(number=2**32 - 1)): {4: b"c"},
    }
    assert refused(values) == []


def test_one_schema_is_one_group_of_all_records() -> None:
    assert groups([numbered(7, b"a"), numbered(7, b"b")]) == {WrittenAs(SchemaId(number=7)): {0: b"a", 1: b"b"}}
    assert groups([]) == {}
    assert groups([None, None]) == {}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"", "needs the byte 0x00 and the id of a schema in four bytes, found nothing"),
        (b"\x00\x00\x00\x07", "in four bytes, found 4 bytes in all"),
        (b"{}", "found 2 bytes in all"),
        (b'{"id": 1}', "needs the byte 0x00 or 0x01 before the id of a schema, found 0x7b"),
        (b"\x02" + GUID, "found 0x02"),
        (b"\x01" + GUID[:-1], "needs the byte 0x01 and a GUID in sixteen bytes, found 16 bytes in all"),
    ],
)
def test_a_value_without_an_id_fails(value: bytes, found: str) -> None:
    ((row, error_class, message),) = refused([numbered(7), value])
    assert (row, error_class) == (1, "no_schema_id")
    assert found in message
    assert groups([numbered(7), value]) == {WrittenAs(SchemaId(number=7)): {0: b""}}


def test_a_header_counts_before_the_value() -> None:
    # The bare value looks as if it named schema 9.
    values = [numbered(9, b"x"), numbered(9, b"y"), b"z", None]
    headers = [numbered(7), None, b"\x01" + GUID, numbered(7)]
    assert groups(values, headers) == {
        WrittenAs(SchemaId(number=7)): {0: numbered(9, b"x")},
        WrittenAs(SchemaId(number=9)): {1: b"y"},
        WrittenAs(SchemaId(guid=GUID.hex())): {2: b"z"},
    }
    ((row, error_class, message),) = refused([b"a", numbered(7)], [b"\x00\x07", None])
    assert (row, error_class) == (0, "no_schema_id")
    assert "in the schema's header, found 2 bytes" in message


def zigzag(number: int) -> bytes:
    value, made = (number << 1) ^ (number >> 63), b""
    while value >= 0x80:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def test_messages_follow_the_id() -> None:
    second = numbered(7, zigzag(2) + zigzag(1) + zigzag(300) + b"b")
    spelt_out = numbered(7, zigzag(1) + zigzag(0) + b"c")
    values = [numbered(7, b"\x00a"), second, spelt_out, numbered(7, b"\x00")]
    assert groups(values, messages=True) == {
        WrittenAs(SchemaId(number=7), (0,)): {0: b"a", 2: b"c", 3: b""},
        WrittenAs(SchemaId(number=7), (1, 300)): {1: b"b"},
    }
    headed = groups([b"\x00a", zigzag(1) + zigzag(4) + b"b"], [numbered(7), numbered(7)], messages=True)
    assert headed == {
        WrittenAs(SchemaId(number=7), (0,)): {0: b"a"},
        WrittenAs(SchemaId(number=7), (4,)): {1: b"b"},
    }


@pytest.mark.parametrize(
    ("rest", "found"),
    [
        (b"", "found nothing"),
        (b"\x80", "found bytes that are no numbers"),
        (zigzag(2) + zigzag(1), "found bytes that are no numbers"),
        (zigzag(-1), "found -1"),
        (zigzag(33) + b"\x02" * 33, "found 33"),
        (zigzag(1) + zigzag(-5), "found -5"),
        (b"\xff" * 10, "no numbers"),
    ],
)
def test_indexes_that_are_none_fail(rest: bytes, found: str) -> None:
    ((row, error_class, message),) = refused([numbered(7, rest)], messages=True)
    assert (row, error_class) == (0, "no_schema_id")
    assert found in message


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=32), st.binary(max_size=5))
def test_indexes_are_read_as_they_were_written(indexes: list[int], rest: bytes) -> None:
    written = zigzag(len(indexes)) + b"".join(map(zigzag, indexes))
    assert message_indexes(written + rest) == (tuple(indexes), len(written))
    for end in range(len(written)):
        with pytest.raises(ValueProblem):
            message_indexes(written[:end])
