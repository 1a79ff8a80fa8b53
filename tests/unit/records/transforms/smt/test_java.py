"""How Java reads and writes: patterns, numbers and dates, apart from the tables of Connect."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, time, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice

from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.smt.cast import cast_values
from jobs.records.transforms.smt.java import (
    Replacement,
    decimal_texts,
    float_texts,
    java_pattern,
    parsed_double,
)
from jobs.records.transforms.smt.known import Properties
from jobs.records.transforms.smt.simple_date_format import simple_date_format
from jobs.records.transforms.smt.timestamp_converter import TIMESTAMP_CONVERTER, converter
from tests.unit.records.transforms.rows import (
    applied,
    columns_of,
    left,
    rows_of,
)


@pytest.mark.parametrize(
    ("pattern", "replacement", "text", "made"),
    [
        ("(.*)", "p-$1", "x", "p-x"),
        ("(a)(b)?", "$2$1", "a", "a"),
        ("(a)b", "$11", "ab", "a1"),
        ("(?<first>a)(b)", "${first}-$2", "ab", "a-b"),
        ("(a)", r"\$1", "a", "$1"),
    ],
)
def test_a_replacement_takes_groups_as_java_does(pattern: str, replacement: str, text: str, made: str) -> None:
    compiled = java_pattern(pattern, "regex")
    match = compiled.fullmatch(text)
    assert match is not None
    assert Replacement(replacement, compiled, "replacement").of(match) == made


@pytest.mark.parametrize(
    ("pattern", "replacement", "says"),
    [
        ("(a)", "$2", "names the group 2, and the pattern has 1"),
        ("(a)", "${x}", "names the group 'x', and the pattern has none"),
        ("(a)", "a$", "needs a group behind it"),
        ("(", "x", "is no regular expression"),
        (r"\p{L}", "x", "is known to Java alone"),
        ("[a[b]]", "x", "is known to Java alone"),
    ],
)
def test_what_java_has_alone_or_the_pattern_lacks_is_refused(pattern: str, replacement: str, says: str) -> None:
    with pytest.raises(TransformProblem, match=re.escape(says)):
        Replacement(replacement, java_pattern(pattern, "regex"), "replacement")


@given(st.floats())
def test_a_float_comes_back_from_its_text(number: float) -> None:
    text = float_texts(pa.array([number], pa.float64(), from_pandas=False))[0].as_py()
    back = parsed_double(text)
    assert back is not None
    assert back == number or (math.isnan(back) and math.isnan(number))
    assert re.fullmatch(r"NaN|-?Infinity|-?\d+\.\d+|-?\d\.\d+E-?\d+", text)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0, "0.0"), (-0.0, "-0.0"), (1e7, "1.0E7"), (9999999.5, "9999999.5"), (1e-3, "0.001"), (9.5e-4, "9.5E-4"),
     (123456789012.0, "1.23456789012E11")],
)  # fmt: skip
def test_floats_have_the_texts_of_java(number: float, text: str) -> None:
    assert float_texts(pa.array([number, None]))[0].as_py() == text


def test_decimals_have_an_exponent_behind_six_zeros() -> None:
    kind = pa.decimal128(20, 8)
    values = pa.array(["0.00000001", "1.50000000", None]).cast(kind)
    assert decimal_texts(values).to_pylist() == ["1E-8", "1.50000000", None]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))), st.sampled_from([8, 16, 32, 64]))
def test_longs_wrap_as_in_java_or_are_refused(numbers: list[int | None], bits: int) -> None:
    array = pa.array(numbers, pa.int64())
    wrapped, none = cast_values(array, f"int{bits}", lenient=True)
    half = 2 ** (bits - 1)
    assert none == []
    assert wrapped.to_pylist() == [None if n is None else (n + half) % (2 * half) - half for n in numbers]
    refused = {each.index for each in cast_values(array, f"int{bits}", lenient=False)[1]}
    assert refused == {at for at, n in enumerate(numbers) if n is not None and not -half <= n < half}


@given(st.lists(st.floats()), st.sampled_from([8, 16, 32, 64]))
def test_doubles_are_cut_off_as_in_java_or_refused(numbers: list[float], bits: int) -> None:
    made, _ = cast_values(pa.array(numbers, pa.float64(), from_pandas=False), f"int{bits}", lenient=True)
    expected = []
    for n in numbers:
        ends = 2 ** (63 if bits == 64 else 31)
        whole = 0 if math.isnan(n) else max(-ends, min(ends - 1, int(max(-1e30, min(1e30, n)))))
        expected.append((whole + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1))
    assert made.to_pylist() == expected
    strict, bad = cast_values(pa.array(numbers, pa.float64(), from_pandas=False), f"int{bits}", lenient=False)
    kept = set(range(len(numbers))) - {each.index for each in bad}
    assert all(strict[at].as_py() == numbers[at] for at in kept)


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_a_time_comes_back_from_its_text(at: datetime) -> None:
    format_ = simple_date_format("yyyy-MM-dd'T'HH:mm:ss.SSS", "format")
    at = at.replace(microsecond=at.microsecond // 1000 * 1000, tzinfo=UTC)
    ms = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert format_.parsed(format_.written(pa.array([ms]))[0].as_py()) == (ms, True)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("yyyyMMdd", "20240231", (1709337600000, False)),
        ("yyyyMMdd", "2024023", (1706918400000, False)),
        ("d MMM yyyy", "3 march 1970", (5184000000 + 172800000 - 86400000, True)),
        ("d MMM yyyy", "3 jan 1970", (172800000, True)),
        ("yyyy-MM-dd hh:mm a", "1970-01-01 12:30 AM", (1800000, True)),
        ("yyyy-MM-dd hh:mm a", "1970-01-01 13:30 AM", (48600000, False)),
        ("yyyy-MM-dd'T'HHX", "1970-01-01T05+05", (0, True)),
        ("yyyy-MM-dd", " 1970-01-01", (0, False)),
        ("yyyy-MM-dd", "24-01-01", (-61409836800000, False)),
        ("yyyy-MM-dd", "x", None),
    ],
)
def test_texts_are_read_as_leniently_as_java_does(pattern: str, text: str, found: tuple[int, bool] | None) -> None:
    assert simple_date_format(pattern, "format").parsed(text) == found


@pytest.mark.parametrize("pattern", ["yy-MM-dd", "EEE", "yyyy u", "yyyy-MM-dd D"])
def test_no_texts_are_read_by_patterns_that_leave_the_day_open(pattern: str) -> None:
    given = {"target.type": "Date", "format": pattern}
    step = converter(Properties(given, "TimestampConverter", TIMESTAMP_CONVERTER.properties), "at", lenient=True)
    with pytest.raises(TransformProblem, match="no text is read by the pattern"):
        step.output(columns_of("at string"))
    assert step.output(columns_of("at long")).fields[0].field_type == ice.DateType()


@pytest.mark.parametrize("pattern", ["YYYY", "ww", "yyyy'", "b", "'at'", "XXXX"])
def test_patterns_that_cannot_be_taken_are_refused(pattern: str) -> None:
    with pytest.raises(TransformProblem):
        simple_date_format(pattern, "format")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("unix", [-2, -1, 0, 1, None]),
        ("Date", [date(1969, 12, 31), date(1969, 12, 31), date(1970, 1, 1), date(1970, 1, 1), None]),
        ("Time", [time(23, 59, 59, 998_000), time(23, 59, 59, 999_000), time(0), time(0, 0, 0, 1_000), None]),
    ],
)
def test_finer_parts_are_cut_off_towards_the_past_as_an_instant_of_java_does(target: str, expected: list) -> None:
    """Also before 1970, where a quotient that is cut off towards zero would be a millisecond late."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    instants = [None if each is None else epoch + timedelta(microseconds=each) for each in (-1_500, -1, 0, 1_500, None)]
    rows = rows_of("at timestamptz", [{"at": each} for each in instants])
    step = converter(
        Properties({"target.type": target}, "TimestampConverter", TIMESTAMP_CONVERTER.properties), "at", lenient=True
    )
    assert applied(step, rows).rows.batch.column(0).to_pylist() == expected
    strict = converter(
        Properties({"target.type": target}, "TimestampConverter", TIMESTAMP_CONVERTER.properties), "at", lenient=False
    )
    assert [failure.row for failure in strict.apply(rows).failures] == [0, 1, 3]


@pytest.mark.parametrize(("target", "lenient"), [("string", False), ("Timestamp", True), ("Date", True)])
def test_a_time_beyond_the_year_9999_is_no_time(target: str, lenient: bool) -> None:
    given = {"target.type": target, "format": "yyyy-MM-dd", "unix.precision": "seconds"}
    step = converter(Properties(given, "TimestampConverter", TIMESTAMP_CONVERTER.properties), "at", lenient=lenient)
    times = [1731508712, 1731508712229, -62135596801, 253402300799, None]
    found = applied(step, rows_of("at long", [{"at": each} for each in times]))
    assert [(each.row, each.error_class) for each in found.failures] == [(1, "out_of_range"), (2, "out_of_range")]
    assert [str(each)[:10] for each in found.rows.batch.column(0)] == ["2024-11-13", "9999-12-31", "None"]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (1731508712229000, "56839-04-30 02:17:09.000 AD 39 Sat 120"),
        (2**63 - 1, "292278994-08-17 07:12:55.807 AD 94 Sun 229"),
        (-62135596800001, "0001-12-31 23:59:59.999 BC 01 Sun 366"),
        (-1731508712229000, "52901-09-03 21:42:51.000 BC 01 Mon 246"),
    ],
)
def test_any_year_is_written_as_java_writes_it(ms: int, text: str) -> None:
    """What a GregorianCalendar without Julian days gives; its zone is UTC."""
    given = {"target.type": "string", "format": "yyyy-MM-dd HH:mm:ss.SSS G yy E D"}
    step = converter(Properties(given, "TimestampConverter", TIMESTAMP_CONVERTER.properties), "at", lenient=True)
    assert left(step, rows_of("at long", [{"at": ms}])) == [{"at": text}]
