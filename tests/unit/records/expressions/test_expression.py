"""What expressions give: by tables, for a row at the edges of its types, a usual one and one without values."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from jobs.records.expressions import text_functions
from jobs.records.expressions.expression import (
    FRAME_COLUMNS,
    FRAME_PARTS,
    compile_condition,
    compile_expression,
)
from jobs.records.expressions.sql_types import name_of
from jobs.records.expressions.values import Fault, Values, applied
from jobs.records.formats.interface.problems import without_value
from jobs.records.schema.arrow_schema import rows_arrow_type
from tests.helpers.expression_rows import BATCH, FAILS, NOW, SCHEMA, UUID_TEXT, values_of


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("l + 1", [FAILS, 8, None]),
        ("i + i", [FAILS, -4, None]),
        ("i + cast(1 as long)", [2**31, -1, None]),
        ("l * 2", [FAILS, 14, None]),
        ("l - -1", [FAILS, 8, None]),
        ("-l", [-(2**63) + 1, -7, None]),
        ("- - l", [2**63 - 1, 7, None]),
        ("abs(i)", [2**31 - 1, 2, None]),
        ("l / i", [Decimal("4294967298.000000"), Decimal("-3.500000"), None]),
        ("l / 0", [FAILS, FAILS, None]),
        ("f / 0", [FAILS, FAILS, None]),
        ("l % i", [1, 1, None]),
        ("i % 0", [FAILS, FAILS, None]),
        ("div(l, i)", [4294967298, -3, None]),
        ("2 / 3", [Decimal("0.666667")] * 3),
        ("-2 / 3", [Decimal("-0.666667")] * 3),
        ("1 / 2000000", [Decimal("0.000001")] * 3),
        ("d * 155", [Decimal("162.75"), Decimal("-387.50"), None]),
        ("d * d", [Decimal("1.1025"), Decimal("6.2500"), None]),
        ("d + 1.005", [Decimal("2.055"), Decimal("-1.495"), None]),
        ("d / 3", [Decimal("0.350000"), Decimal("-0.833333"), None]),
        ("w + w", [FAILS, Decimal("6.00"), None]),
        ("w * 10", [FAILS, Decimal("30.00"), None]),
        ("1.1 + 2.2", [Decimal("3.3")] * 3),
        ("0.1 + 0.2 = 0.3", [True] * 3),
        ("round(d, 1)", [Decimal("1.1"), Decimal("-2.5"), None]),
        ("round(d)", [Decimal(1), Decimal(-3), None]),
        ("round_even(d)", [Decimal(1), Decimal(-2), None]),
        ("round(w)", [Decimal(10) ** 36, Decimal(3), None]),
        ("floor(d)", [Decimal(1), Decimal(-3), None]),
        ("ceil(d)", [Decimal(2), Decimal(-2), None]),
        ("trunc(d, 1)", [Decimal("1.0"), Decimal("-2.5"), None]),
        ("sign(d)", [1, -1, None]),
        ("greatest(i, 5)", [2**31 - 1, 5, 5]),
        ("least(d, l)", [Decimal("1.05"), Decimal("-2.50"), None]),
        ("power(2, 10)", [1024.0] * 3),
        ("sqrt(i)", [math.sqrt(2**31 - 1), FAILS, None]),
        ("ln(i) > 0", [True, FAILS, None]),
    ],
)
def test_numbers_are_exact_or_their_row_fails(text: str, expected: list[object]) -> None:
    assert values_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f = f", [False, True, None]),
        ("f <> f", [True, False, None]),
        ("isnan(f)", [True, False, None]),
        ("f = 0", [False, True, None]),
        ("cast(f as string)", ["NaN", "-0", None]),
        ("greatest(f, 1)", [1.0, 1.0, 1.0]),
        ("f in (0, 1)", [False, True, None]),
        ("l > 1e0", [FAILS, True, None]),
        ("l = 9223372036854775806.0", [False, False, None]),
        ("l = 9223372036854775807.0", [True, False, None]),
        ("w > d", [True, True, None]),
        ("w > 3.0005", [True, False, None]),
        ("w = 3.0000000", [False, True, None]),
        ("w is distinct from 0.00000000000000000003", [True, True, True]),
        ("1e308 * 10", [math.inf] * 3),
    ],
)
def test_doubles_are_those_of_ieee_754_and_exact_numbers_are_compared_exactly(
    text: str, expected: list[object]
) -> None:
    assert values_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cast(s as int)", [FAILS, 12, None]),
        ("try_cast(s as int)", [None, 12, None]),
        ("try(l + 1)", [None, 8, None]),
        ("try_cast('x' as int)", [None] * 3),
        ("s::decimal(12,2)", [FAILS, Decimal("12.00"), None]),
        ("cast(d as int)", [FAILS, FAILS, None]),
        ("cast(round(d) as int)", [1, -3, None]),
        ("cast(d as decimal(12,1))", [FAILS, Decimal("-2.5"), None]),
        ("cast(w as decimal(12,2))", [FAILS, Decimal("3.00"), None]),
        ("cast(l as int)", [FAILS, 7, None]),
        ("cast(l as decimal(10,0))", [FAILS, Decimal(7), None]),
        ("cast(l as double)", [FAILS, 7.0, None]),
        ("cast(f as int)", [FAILS, 0, None]),
        ("cast(f as decimal(12,2))", [FAILS, Decimal("0.00"), None]),
        ("cast(1.005e0 as decimal(12,3))", [Decimal("1.005")] * 3),
        ("cast(g as decimal(12,2))", [Decimal("0.50"), Decimal("0.50"), None]),
        ("cast(f as float) = 0", [False, True, None]),
        ("cast(b as int)", [1, 0, None]),
        ("cast('TRUE' as boolean)", [True] * 3),
        ("cast(cast(-(g * 1e308 * 10) as string) as double)", [-math.inf, -math.inf, None]),
        ("cast(cast(f as string) as double) is distinct from f", [True, False, False]),
        ("cast(d / 1000000 as string)", ["0.000001", "-0.000003", None]),
        ("cast(cast(d - d as decimal(20,10)) as string)", ["0.0000000000", "0.0000000000", None]),
        ("d * 0.0000001 || ''", ["0.000000105", "-0.000000250", None]),
        ("cast(u as string)", [UUID_TEXT, UUID_TEXT, None]),
        (f"cast('{UUID_TEXT}' as uuid) = u", [True, True, None]),
        (f"u = '{UUID_TEXT}'", [True, True, None]),
        ("cast(upper(cast(u as string)) as uuid) = u", [True, True, None]),
        ("cast(bytes as string)", [FAILS, "x", None]),
        ("cast('x' as binary) = bytes", [False, True, None]),
        ("cast(t as string)", ["10:11:12.000000", "10:11:12.000000", None]),
        ("t > time '10:00:00'", [True, True, None]),
        ("cast(day as string)", ["2024-02-29", "2024-02-29", None]),
        ("cast(tz as string)", ["2026-03-08T02:30:00.000000Z", "2026-03-08T02:30:00.000000Z", None]),
        ("cast(cast(tz as string) as timestamptz) = tz", [True, True, None]),
        ("cast(at as date)", [date(2026, 3, 31), date(2026, 3, 31), date(1969, 12, 31)]),
        ("cast(null as decimal(5,2))", [None] * 3),
    ],
)
def test_casts_lose_nothing(text: str, expected: list[object]) -> None:
    assert values_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("case when i > 0 then l / (i - i) else 0 end", [FAILS, Decimal("0E-6"), Decimal("0E-6")]),
        ("case when i <= 0 then l / (i - i) else 0 end", [Decimal("0E-6"), FAILS, Decimal("0E-6")]),
        ("case i when -2 then 'two' when 5 then 'five' end", [None, "two", None]),
        ("i < 0 and l + 1 > 0", [False, True, None]),
        ("l + 1 > 0 and i < 0", [FAILS, True, None]),
        ("i > 0 or cast(s as int) > 0", [True, True, None]),
        ("b and null", [None, False, None]),
        ("b or null", [True, None, None]),
        ("not b", [False, True, None]),
        ("coalesce(s, cast(1 / (i - i) as string))", ["abc", "12", None]),
        ("coalesce(cast(s as int), 0)", [FAILS, 12, 0]),
        ("coalesce(try_cast(s as int), 0)", [0, 12, 0]),
        ("if(b, 1, 2.5)", [Decimal("1.0"), Decimal("2.5"), Decimal("2.5")]),
        ("nullif(i, -2)", [2**31 - 1, None, None]),
        ("b is not true", [False, True, True]),
        ("b is false", [False, True, False]),
        ("s is null", [False, False, True]),
        ("st is not null", [True, True, False]),
        ("s is distinct from 'abc'", [False, True, True]),
        ("s is not distinct from null", [False, False, True]),
        ("i between -5 and 5", [False, True, None]),
        ("i not between -5 and 5", [True, False, None]),
        ("s in ('abc', null)", [True, None, None]),
        ("s not in ('abc', 'x')", [False, True, None]),
        ("d in (1.05, 7)", [True, False, None]),
        ("i in (l, -2)", [False, True, None]),
        ("s like 'a_c'", [True, False, None]),
        ("s like 'A%'", [False, False, None]),
        ("s ilike 'A%'", [True, False, None]),
        ("'50%' like '50\\%'", [True] * 3),
    ],
)
def test_conditions_are_three_valued_and_fail_only_where_a_part_is_needed(text: str, expected: list[object]) -> None:
    assert values_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s || '-' || i", ["abc-2147483647", "12--2", None]),
        ("concat_ws('-', s, i, 'x')", ["abc-2147483647-x", "12--2-x", "x"]),
        ("concat_ws('-', s, null)", ["abc", "12", ""]),
        ("upper(s) || lower('ÄÖ')", ["ABCäö", "12äö", None]),
        ("length('日本語')", [3] * 3),
        ("octet_length('日本語')", [9] * 3),
        ("substr('日本語', 2, 1)", ["本"] * 3),
        ("substr(s, 9)", ["", "", None]),
        ("left(s, 2) || right(s, 1)", ["abc", "122", None]),
        ("right(s, 0)", ["", "", None]),
        ("lpad(s, 5, '0')", ["00abc", "00012", None]),
        ("rpad(s, 2)", ["abc", "12", None]),
        ("trim('  x ') || trim('xxy', 'x')", ["xy"] * 3),
        ("replace(s, 'b', 'bb')", ["abbc", "12", None]),
        ("split_part('a,b,c', ',', 2)", ["b"] * 3),
        ("split_part(s, 'b', 2)", ["c", None, None]),
        ("position('日本語', '語')", [3] * 3),
        ("position(s, 'z')", [0, 0, None]),
        ("starts_with(s, 'a')", [True, False, None]),
        ("contains(s, '.')", [False, False, None]),
        ("regexp_like(s, '^[0-9]+$')", [False, True, None]),
        ("regexp_extract(s, '[0-9]')", [None, "1", None]),
        ("regexp_extract(s, 'b(c)|(?P<n>2)')", ["bc", "2", None]),
        ("regexp_extract('a' || s || s, '([a-z])(c)?a')", ["aa", None, None]),
        ("position(s, '')", [1, 1, None]),
        ("regexp_replace(s, '(.)', '\\1\\1')", ["aabbcc", "1122", None]),
        ("'Z' < 'a'", [True] * 3),
        ("'é' > 'z'", [True] * 3),
        ("reverse(s)", ["cba", "21", None]),
        ("'it''s'", ["it's"] * 3),
    ],
)
def test_texts_are_counted_in_characters_and_compared_by_code_points(text: str, expected: list[object]) -> None:
    assert values_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now()", [NOW] * 3),
        ("date_trunc('hour', at)", [utc(2026, 3, 31, 23), utc(2026, 3, 31, 23), utc(1969, 12, 31, 23)]),
        ("date_trunc('day', ts)", [datetime(2026, 3, 8), datetime(2026, 11, 1), None]),
        ("date_trunc('year', at)", [utc(2026, 1, 1), utc(2026, 1, 1), utc(1969, 1, 1)]),
        ("current_date", [NOW.date()] * 3),
        ("date_trunc('month', now())", [utc(2026, 1, 1)] * 3),
        ("date_trunc('day', at, 'Asia/Tokyo')", [utc(2026, 3, 31, 15), utc(2026, 3, 31, 15), utc(1969, 12, 31, 15)]),
        ("date_trunc('week', day)", [date(2024, 2, 26), date(2024, 2, 26), None]),
        ("at + interval '1 month'",
         [utc(2026, 4, 30, 23, 59, 59, 999999), utc(2026, 4, 30, 23, 59, 59, 999999), utc(1970, 1, 31, 23, 59, 59)]),
        ("day + interval '1 year'", [date(2025, 2, 28), date(2025, 2, 28), None]),
        ("day - interval '3 days'", [date(2024, 2, 26), date(2024, 2, 26), None]),
        ("day - date '2024-01-01'", [59, 59, None]),
        ("date '9999-12-31' + interval '1 day' * 1", None),
        ("ts at time zone 'America/New_York'", [FAILS, FAILS, None]),
        ("ts at time zone 'UTC' = tz", [True, False, None]),
        ("tz at time zone 'Asia/Tokyo'", [datetime(2026, 3, 8, 11, 30)] * 2 + [None]),
        ("extract(year from at)", [2026, 2026, 1969]),
        ("date_part('dow', tz)", [0, 0, None]),
        ("to_epoch('s', at)", [1775001599, 1775001599, -1]),
        ("from_epoch('ms', 1500)", [utc(1970, 1, 1, 0, 0, 1, 500000)] * 3),
        ("from_epoch('s', l)", [FAILS, utc(1970, 1, 1, 0, 0, 7), None]),
        ("date_diff('minute', tz, at)", [34409, 34409, None]),
        ("parse_timestamp('2026/01/31 10', 'yyyy/MM/dd HH', 'Asia/Tokyo')", [utc(2026, 1, 31, 1)] * 3),
        ("parse_timestamp(s, 'yyyy')", None),
        ("tz >= '2026-03-08T11:30:00+09:00'", [True, True, None]),
        ("greatest(tz, at, null) = at", [True] * 3),
        ("least(at, tz)", [utc(2026, 3, 8, 2, 30), utc(2026, 3, 8, 2, 30), utc(1969, 12, 31, 23, 59, 59)]),
        ("day < '2024-03-01'", [True, True, None]),
        ("day = ts", [False, False, None]),
    ],
)  # fmt: skip
def test_times_are_instants_or_local_and_zones_are_named(text: str, expected: list[object] | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="the expression is wrong"):
            values_of(text)
    else:
        assert values_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("st.x", [1, 1, None]),
        ("ls[1] || ls[2]", ["ab", "ab", None]),
        ("ls[3]", [None] * 3),
        ("m['k'] + 1", [2, 2, None]),
        ("m['z']", [None] * 3),
        ("cardinality(ls) + cardinality(m)", [3, 3, None]),
        ("case when i > 0 then ls end", [["a", "b"], None, None]),
        ("coalesce(st, st).x", [1, 1, None]),
    ],
)
def test_parts_of_structs_lists_and_maps(text: str, expected: list[object]) -> None:
    assert values_of(text) == expected


@pytest.mark.parametrize("text", ["st.x", "ls[1]", "m['k']", "cardinality(ls)", "cast(u as string)", "l + 1", "ls"])
def test_a_slice_of_a_batch_gives_the_slice_of_its_values(text: str) -> None:
    assert values_of(text, BATCH.slice(1, 2)) == values_of(text)[1:]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("i + 1", "int"),
        ("i + l", "long"),
        ("i / 2", "decimal(16,6)"),
        ("d * 155", "decimal(16,2)"),
        ("d * f", "double"),
        ("g + g", "float"),
        ("d + w", "decimal(38,2)"),
        ("now()", "timestamptz"),
        ("cast(s as decimal(9,3))", "decimal(9,3)"),
        ("coalesce(i, l, 1.5)", "decimal(20,1)"),
        ("null", "string"),
        ("u", "uuid"),
        ("st", "struct<x int>"),
    ],
)
def test_the_type_of_an_expression_is_known_before_any_row(text: str, kind: str) -> None:
    assert name_of(compile_expression(text, SCHEMA.fields).type) == kind


def test_a_record_is_read_beside_its_row_by_the_names_of_its_parts() -> None:
    schema = pa.schema([pa.field(name, rows_arrow_type(each.field_type)) for name, each in FRAME_COLUMNS.items()])
    headers = [[("trace", b"1"), ("trace", b"2"), ("bad", b"\xff")], [], None]
    rows = [
        {
            "_topic": "orders",
            "_partition": 3,
            "_offset": 7,
            "_headers": None if each is None else [{"key": key, "value": value} for key, value in each],
        }
        for each in headers
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    assert values_of("_topic || _partition || ':' || _offset", batch) == ["orders3:7"] * 3
    assert values_of("header('trace')", batch) == ["2", None, None]
    assert values_of("header('trace')", batch.slice(1)) == [None, None]
    assert values_of("header('bad') is null", batch) == [FAILS, True, True]
    found = compile_expression("header('trace') = _topic", SCHEMA.fields)
    assert found.columns == ("_headers", "_topic")
    assert set(found.columns) <= set(FRAME_PARTS)


def test_an_expression_names_what_it_reads_and_travels() -> None:
    found = compile_expression("case when d > 1 then now() else at end", SCHEMA.fields)
    assert (found.columns, found.needs_batch_time, found.nullable) == (("d", "at"), True, False)
    sent = pickle.dumps(found)
    assert len(sent) < 5_000
    assert pickle.loads(sent).evaluate(BATCH, NOW).values == found.evaluate(BATCH, NOW).values


def test_now_is_the_same_whenever_a_batch_runs_and_nothing_else() -> None:
    found = compile_expression("now()", SCHEMA.fields)
    assert found.evaluate(BATCH, NOW).values.to_pylist() == [NOW] * 3
    with pytest.raises(ValueError, match="needs the batch's time"):
        found.evaluate(BATCH)


def test_a_failure_says_which_part_fails_and_why() -> None:
    found = compile_expression("coalesce(d, 0) > 0 and cast(s as int) / (i + 2) > 1", SCHEMA.fields).evaluate(BATCH)
    assert [tuple(each) for each in found.failures] == [
        (0, "the expression `cast(s as int)` fails: needs int as text, found the text 'abc'"),
    ]
    # What a dead letter may say where values are masked.
    assert without_value(found.failures[0].message) == "the expression `cast(s as int)` fails"
    assert found.true().to_pylist() == [False, False, False]


def test_a_kernel_that_drops_rows_has_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_functions, "_skipping", lambda separator, *texts: texts[0].drop_null())
    with pytest.raises(RuntimeError, match=r"`concat_ws\('-', s, 'x'\)` has 2 values for 3 rows"):
        values_of("concat_ws('-', s, 'x')")


def test_a_condition_is_met_only_where_it_is_true() -> None:
    condition = compile_condition("b", SCHEMA.fields)
    assert condition.evaluate(BATCH).true().to_pylist() == [True, False, False]
    assert compile_condition("null", SCHEMA.fields).evaluate(BATCH).true().to_pylist() == [False] * 3
    with pytest.raises(ValueError, match="needs a condition, which is true or false, found int"):
        compile_condition("i", SCHEMA.fields)


def test_a_batch_without_rows_gives_no_values() -> None:
    found = compile_expression("l / i", SCHEMA.fields).evaluate(BATCH.slice(0, 0))
    assert (len(found.values), str(found.values.type), found.failures) == (0, "decimal128(25, 6)", ())


@pytest.mark.parametrize("problem", [OverflowError(), pa.ArrowNotImplementedError(), KeyError()], ids=repr)
def test_whatever_a_kernel_raises_for_a_row_is_the_failure_of_that_row(problem: Exception) -> None:
    def kernel(numbers: pa.Array) -> pa.Array:
        if 7 in numbers.to_pylist():
            raise problem
        return numbers

    found = applied(kernel, [Values(pa.array([1, 7, None, 7, 2]))], Fault("x"))
    assert found.array.to_pylist() == [1, None, None, None, 2]
    assert found.failed == dict.fromkeys([1, 3], "the expression `x` fails: it has no value for this row")


def test_many_rows_at_fault_among_many_are_found() -> None:
    numbers = pa.array([2**63 - 1 if row % 7 == 0 else row for row in range(1_000)])
    batch = pa.RecordBatch.from_arrays([numbers], ["l"])
    found = compile_expression("l + 1", SCHEMA.fields).evaluate(batch)
    assert [each.row for each in found.failures] == list(range(0, 1_000, 7))
    assert found.values.to_pylist() == [None if row % 7 == 0 else row + 1 for row in range(1_000)]


def test_a_uuid_is_its_bytes() -> None:
    found = compile_expression(f"cast('{UUID_TEXT}' as uuid)", SCHEMA.fields).evaluate(BATCH)
    assert found.values[0].as_py() == UUID(UUID_TEXT).bytes
