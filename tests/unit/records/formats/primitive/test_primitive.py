"""Primitive formats: one text, some bytes or one number of fixed width, and what is refused as such."""

from __future__ import annotations

import math
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec, resolved
from jobs.records.formats.interface.problems import INVALID_UTF8, WRONG_LENGTH, WRONG_TYPE
from jobs.records.formats.known_formats import FORMATS
from jobs.records.formats.primitive.block import COLUMN_TYPES

WIDTHS = {"boolean": 1, "short": 2, "int": 4, "long": 8, "float": 4, "double": 8}


def made_by(kind: str) -> DecoderSpec:
    return DecoderSpec(kind, DeclaredSchema(f"value {COLUMN_TYPES[kind]}"))


def decoded(kind: str, values: list[bytes | None], *, reference: bool = False) -> Decoded:
    make = FORMATS[kind].reference if reference else FORMATS[kind].block
    return make(made_by(kind)).decode(pa.array(values, pa.binary()))


@pytest.mark.parametrize("reference", [True, False])
@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("string", b"", ""),
        ("string", "Größe 🙂".encode(), "Größe 🙂"),
        ("bytes", b"", b""),
        ("bytes", b"\xff\x00", b"\xff\x00"),
        ("boolean", b"\x00", False),
        ("boolean", b"\x01", True),
        ("short", b"\x80\x00", -(2**15)),
        ("int", b"\x7f\xff\xff\xff", 2**31 - 1),
        ("long", b"\x80" + bytes(7), -(2**63)),
        ("float", struct.pack(">f", 1.5), 1.5),
        ("float", struct.pack(">f", math.inf), math.inf),
        ("double", struct.pack(">d", -0.1), -0.1),
    ],
)
def test_a_value_is_what_kafkas_serializer_wrote(kind: str, value: bytes, expected: Any, *, reference: bool) -> None:
    made = decoded(kind, [None, value], reference=reference)
    assert made.rows.column("value").to_pylist() == [expected]
    assert (made.positions.tolist(), made.tombstones.tolist(), made.failures) == ([1], [0], [])
    assert (made.rows.schema.names, resolved(made_by(kind)).schema.column_names) == (["value"], ["value"])


@pytest.mark.parametrize("reference", [True, False])
@pytest.mark.parametrize(
    ("kind", "value", "error_class", "message"),
    [
        ("string", b"a\xff", INVALID_UTF8, "needs UTF-8, found 0xff at byte 1 (invalid start byte)"),
        ("string", b"\xed\xa0\x80", INVALID_UTF8, "needs UTF-8, found 0xed at byte 0 (invalid continuation byte)"),
        ("boolean", b"", WRONG_LENGTH, "needs 1 byte, found 0"),
        ("boolean", b"\x02", WRONG_TYPE, "needs the byte 0x00 or 0x01, found 0x02"),
        ("int", b"\x00" * 5, WRONG_LENGTH, "needs 4 bytes, found 5"),
        ("long", b"17", WRONG_LENGTH, "needs 8 bytes, found 2"),
    ],
)
def test_what_is_none_is_refused(kind: str, value: bytes, error_class: str, message: str, *, reference: bool) -> None:
    (failure,) = decoded(kind, [value], reference=reference).failures
    assert (failure.row, failure.stage, failure.error_class, failure.message, failure.field) == (
        (0, "decode_value", error_class, message, None)
    )


@st.composite
def blocks(draw: st.DrawFn) -> tuple[str, list[bytes | None]]:
    kind = draw(st.sampled_from(sorted(COLUMN_TYPES)))
    width = WIDTHS.get(kind)
    good = st.binary(min_size=width, max_size=width) if width else st.text().map(str.encode)
    return kind, draw(st.lists(st.one_of(good, good, st.binary(max_size=12), st.none()), max_size=20))


@given(blocks(), st.integers(0, 3))
def test_the_block_decoder_gives_what_the_reference_gives(block: tuple[str, list[bytes | None]], skipped: int) -> None:
    kind, values = block
    # A block may be a slice of a larger one.
    array = pa.array(values, pa.binary()).slice(min(skipped, len(values)))
    reference, fast = (
        FORMATS[kind].reference(made_by(kind)).decode(array),
        FORMATS[kind].block(made_by(kind)).decode(array),
    )
    assert fast.rows.schema == reference.rows.schema
    bits = [[repr(each) for each in one.rows.column(0).to_pylist()] for one in (fast, reference)]
    assert bits[0] == bits[1]
    assert fast.positions.tolist() == reference.positions.tolist()
    assert fast.tombstones.tolist() == reference.tombstones.tolist()
    assert fast.failures == reference.failures
    assert len(fast.positions) + len(fast.failures) + len(fast.tombstones) == len(array)
