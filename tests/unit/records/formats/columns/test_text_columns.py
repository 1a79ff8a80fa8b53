"""A text of a usual layout is read by the bulk cast as one by itself is, or refused; never as another time."""

from __future__ import annotations

import itertools
import math
import struct
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobs.records.formats.columns import text_values
from jobs.records.formats.columns.primitive_columns import convert_leaf, halfway
from jobs.records.formats.columns.text_columns import LAYOUTS, looks_like
from jobs.records.formats.columns.text_values import exact_unscaled
from jobs.records.formats.columns.unscaled import unscaled_decimals, unscaled_tokens
from jobs.records.formats.interface.problems import BAD_BINARY, OUT_OF_RANGE, ValueProblem
from jobs.records.formats.json.block import JsonBlockDecoder
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.schema.arrow_schema import arrow_type
from jobs.records.schema.declared import Primitive
from jobs.records.schema.parser import parse_schema
from tests.helpers.decoders import CountingReference
from tests.helpers.floats import nearest_float

DATES = [
    f"{year}-{month:02d}-{day:02d}"
    for year, month, day in itertools.product(
        ("0000", "0001", "1582", "1900", "1969", "2000", "2023", "2024", "9999"), range(20), (*range(34), 99)
    )
]
TIMES = [
    f"{h:02d}:{m:02d}:{s:02d}" for h, m, s in itertools.product((0, 9, 23, 24, 29, 99), (0, 59, 60), (0, 59, 60, 99))
]
MOMENTS = [f"{day}T12:34:56" for day in DATES[:700]] + [f"2026-11-20T{time}" for time in TIMES]
FRACTIONS = ["", ".1", ".12", ".123", ".1234", ".12345", ".123456"]
TYPES = [Primitive("timestamp", encoding="iso"), Primitive("timestamptz", encoding="iso")]


def expected(one: Callable[[str], int], text: str) -> int | None:
    """The number that the text stands for; None if it is no date or time."""
    try:
        return one(text)
    except ValueProblem as problem:
        # The year 0000, which the cast can read; the column's bounds are checked afterwards.
        return None if problem.error_class != OUT_OF_RANGE else -1


def agrees(kind: Primitive, texts: list[str], one: Callable[[str], int], storage: pa.DataType) -> None:
    meant = [expected(one, text) for text in texts]
    good = [(text, number) for text, number in zip(texts, meant, strict=True) if number not in (None, -1)]
    cast = pc.cast(pa.array([text for text, _ in good]), arrow_type(kind)).view(storage)
    assert cast.to_pylist() == [number for _, number in good]
    for text, number in zip(texts, meant, strict=True):
        if number is None:
            with pytest.raises(pa.ArrowInvalid):
                pc.cast(pa.array([text]), arrow_type(kind))


def test_dates() -> None:
    agrees(Primitive("date", encoding="iso"), DATES, text_values.exact_date, pa.int32())


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("fraction", FRACTIONS)
def test_timestamps(kind: Primitive, fraction: str) -> None:
    zoned = kind.name == "timestamptz"
    texts = [moment + fraction + ("Z" if zoned else "") for moment in MOMENTS]
    assert all(looks_like(pa.array([text]), LAYOUTS[kind.name][len(text)]) for text in texts[:3])
    agrees(kind, texts, lambda text: text_values.exact_timestamp(text, zoned=zoned), pa.int64())


@pytest.mark.parametrize("kind", [*TYPES, Primitive("date", encoding="iso")], ids=str)
def test_layouts_have_digits_and_separators_in_their_places(kind: Primitive) -> None:
    for size, layout in LAYOUTS[kind.name].items():
        assert len(layout) == size
        good = layout.replace("0", "7")
        assert looks_like(pa.array([good] * 3), layout)
        for at in range(size):
            for wrong in ("/", ":", " ", "a", "\x00") if layout[at] == "0" else ("0", " ", "\x7f"):
                if wrong != layout[at]:
                    assert not looks_like(pa.array([good, good[:at] + wrong + good[at + 1 :], good]), layout)


def test_a_column_with_a_few_other_texts() -> None:
    kind = Primitive("timestamptz", encoding="iso")
    moments = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(100)]
    texts = [moment.strftime("%Y-%m-%dT%H:%M:%S.000Z") for moment in moments]
    texts[7], texts[70], texts[99] = "2026-01-01T00:00:00+01:00", "yesterday", "2024-02-29T00:00:00Z"
    array, bad = convert_leaf(kind, pa.array(texts), required=False)
    assert [(one.index, one.error_class) for one in bad] == [(70, "bad_timestamp")]
    moments[7], moments[99] = datetime(2025, 12, 31, 23, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=UTC)
    assert array.to_pylist() == [None if n == 70 else moment for n, moment in enumerate(moments)]


def test_a_column_with_a_day_that_is_none_or_outside_the_calendar() -> None:
    texts = ["2026-01-01"] * 50 + ["2026-02-29", "2026-13-01", "0000-01-01", "2024-02-29"]
    array, bad = convert_leaf(Primitive("date", encoding="iso"), pa.array(texts), required=False)
    assert [(one.index, one.error_class) for one in bad] == [(50, "bad_date"), (51, "bad_date"), (52, "out_of_range")]
    assert array.to_pylist()[48:] == [date(2026, 1, 1)] * 2 + [None] * 3 + [date(2024, 2, 29)]


def text(number: int, length: int | None = None) -> str:
    return b64encode(number.to_bytes(length or number.bit_length() // 8 + 1, signed=True)).decode()


@pytest.mark.parametrize("number", [0, 1, -1, 127, 128, -128, -129, 2**47 - 1, -(2**47), 2**63, 10**38 - 1, 1 - 10**38])
def test_a_number_is_itself_however_many_bytes_it_is_written_with(number: int) -> None:
    for length in range(number.bit_length() // 8 + 1, 20):
        assert exact_unscaled(text(number, length), 38, 2) == number


@pytest.mark.parametrize(
    ("value", "error_class"),
    [
        ("", BAD_BINARY),
        ("12", BAD_BINARY),
        ("AQ==\n", BAD_BINARY),
        ("AQ", BAD_BINARY),
        ("AR==", BAD_BINARY),
        ("A===", BAD_BINARY),
        ("=AAA", BAD_BINARY),
        ("A=AA", BAD_BINARY),
        ("-_8=", BAD_BINARY),
        (text(1000), OUT_OF_RANGE),
        (text(-1000), OUT_OF_RANGE),
    ],
)
def test_what_is_no_such_number_is_refused(value: str, error_class: str) -> None:
    with pytest.raises(ValueProblem) as caught:
        exact_unscaled(value, 3, 2)
    assert caught.value.error_class == error_class
    column = pa.array([text(7)] * 40 + [value], pa.string())
    array, bad = unscaled_decimals(Primitive("decimal", 3, 2, "unscaled"), column)
    assert [(one.index, one.error_class, one.message) for one in bad] == [(40, error_class, caught.value.message)]
    assert array.to_pylist() == [Decimal("0.07")] * 40 + [None]


alphabet = st.sampled_from("ABCabc019+/=-_ ")


@settings(max_examples=60)
@given(
    st.integers(0, 2**32),
    st.lists(
        st.one_of(
            st.integers(-(2**70), 2**70).map(text),
            st.binary(max_size=12).map(lambda data: b64encode(data).decode()),
            st.text(alphabet, max_size=12),
        ),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([(3, 1), (14, 2), (15, 15), (38, 2)]),
)
def test_side_by_side_is_as_one_by_one(seed: int, odd: list[str], sizes: tuple[int, int]) -> None:
    declared = Primitive("decimal", *sizes, "unscaled")
    values = [*odd, *(text((seed * (n + 1)) % 997 - 400) for n in range(40))]
    array, bad = unscaled_decimals(declared, pa.array(["", *values], pa.string())[1:])
    expected, refused = unscaled_tokens(declared, [f'"{value}"'.encode() for value in values], required=True)
    array.validate(full=True)
    assert (array.to_pylist(), bad) == (expected.to_pylist(), refused)


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
