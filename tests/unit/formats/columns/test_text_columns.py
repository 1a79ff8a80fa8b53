"""A text of a usual layout is read by the bulk cast as one by itself is, or refused; never as another time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from jobs.formats.columns import text_values
from jobs.formats.columns.primitive_columns import convert_leaf
from jobs.formats.columns.text_columns import LAYOUTS, looks_like
from jobs.formats.problems import OUT_OF_RANGE, ValueProblem
from jobs.schema.arrow_schema import arrow_type
from jobs.schema.declared import Primitive

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
