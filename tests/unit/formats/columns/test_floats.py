"""A float is the one nearest to its text, in one rounding: against exact arithmetic, near every halfway point."""

from __future__ import annotations

import math
import struct
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.formats.columns.primitive_columns import halfway
from jobs.formats.json.block import JsonBlockDecoder
from jobs.formats.json.reference import JsonReferenceDecoder
from jobs.schema.parser import parse_schema
from tests.helpers.decoders import CountingReference
from tests.helpers.floats import nearest_float

SCHEMA = parse_schema("f float, n int")
MOST = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


def middle_after(bits: int) -> Decimal:
    """Halfway between the float of these bits and the next one, the greatest and infinity included."""
    low = struct.unpack("<f", struct.pack("<I", bits))[0]
    high = struct.unpack("<f", struct.pack("<I", bits + 1))[0]
    return (Decimal(low) + Decimal(2.0**128 if math.isinf(high) else high)) / 2


@st.composite
def near_the_middle(draw: st.DrawFn) -> str:
    """The text of a number halfway between two floats, or a hair's breadth off, plainly or with an exponent."""
    with localcontext(prec=400):
        middle = middle_after(draw(st.integers(0, 0x7F7FFFFF) | st.integers(0x4B000000, 0x4D000000)))
        hair = Decimal(draw(st.sampled_from([0, 0, 1, -1]))).scaleb(middle.adjusted() - draw(st.integers(8, 300)))
        number = middle + hair
    sign = draw(st.sampled_from(["", "-"]))
    return sign + (f"{number:f}" if draw(st.booleans()) else f"{number:E}")


texts = near_the_middle() | st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr)


def decoded(text: str) -> float | None:
    """None if it is refused."""
    found = JsonReferenceDecoder(SCHEMA).decode(pa.array([f'{{"f":{text}}}'.encode()], pa.binary()))
    if found.failures:
        assert found.failures[0].error_class == "out_of_range"
        return None
    return found.rows.column(0)[0].as_py()


def same(one: float | None, text: str) -> bool:
    wanted = nearest_float(text)
    if math.isinf(wanted):
        return one is None
    return one is not None and struct.pack("<f", one) == struct.pack("<f", wanted)


@settings(max_examples=600)
@given(texts)
@example("16777217.000000000000000000001")
@example("16777217")
@example("16777219")
@example("16777216.999999999999999999999")
@example("340282356779733661637539395458142568447")
@example("340282356779733661637539395458142568448")
@example("7.006492321624085354618e-46")
@example("7.006492321624085354619e-46")
@example("1e400")
def test_it_is_the_nearest(text: str) -> None:
    assert same(decoded(text), text)


@settings(max_examples=20)
@given(st.lists(texts, min_size=1, max_size=60), st.booleans())
def test_both_decoders_in_blocks(written: list[str], plain: bool) -> None:
    # Enough of them for a block, most of what the block decoder reads by itself.
    values = [text for text in written if not plain or "E" not in text.upper()] + [
        f"{16777217 + n}" for n in range(300)
    ]
    block = pa.array([f'{{"f":{text},"n":{n}}}'.encode() for n, text in enumerate(values)], pa.binary())
    for decoder in (JsonReferenceDecoder(SCHEMA), JsonBlockDecoder(SCHEMA)):
        found = decoder.decode(block)
        landed = dict(zip(found.positions.tolist(), found.rows.column(0).to_pylist(), strict=True))
        assert all(same(landed.get(row), text) for row, text in enumerate(values))


@given(st.integers(0, 0x7F7FFFFF))
def test_what_lies_halfway_is_known(bits: int) -> None:
    middle = float(middle_after(bits))
    exact = struct.unpack("<f", struct.pack("<I", bits))[0]
    around = [math.nextafter(middle, 0), math.nextafter(middle, math.inf), exact, -exact]
    assert halfway(np.array([middle, -middle])).all()
    assert not halfway(np.array(around)).any()


@pytest.mark.parametrize("text", ["16777217", "8388608.5", "16777219.00", "-33554434.0"])
def test_a_block_reads_exact_halves_by_itself(text: str) -> None:
    reference = CountingReference(SCHEMA)
    found = JsonBlockDecoder(SCHEMA, reference=reference).decode(
        pa.array([f'{{"f":{text},"n":1}}'.encode()] * 1000, pa.binary())
    )
    assert found.rows.column(0).to_pylist() == [nearest_float(text)] * 1000
    assert reference.records == 0
