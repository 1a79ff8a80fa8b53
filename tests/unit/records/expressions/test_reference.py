"""Expressions drawn at random, evaluated on blocks and by a reference that takes one row at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.expressions.calls import Function
from jobs.records.expressions.expression import Expression, compile_expression
from jobs.records.expressions.functions import FUNCTIONS
from jobs.records.expressions.parser import parse
from jobs.records.expressions.problem import ExpressionProblem
from jobs.records.expressions.syntax import Syntax
from jobs.records.schema.arrow_schema import rows_arrow_schema, rows_arrow_type
from tests.helpers.expression_reference import Fails, Typed, reference
from tests.helpers.expression_rows import FAILS

COLUMNS = [
    ice.NestedField(1, "i", ice.IntegerType()),
    ice.NestedField(2, "l", ice.LongType()),
    ice.NestedField(3, "d", ice.DecimalType(12, 2)),
    ice.NestedField(4, "b", ice.BooleanType()),
]
TYPES = {"i": "int", "l": "long", "d": (12, 2), "b": "boolean"}
ARROW = pa.schema({"i": pa.int32(), "l": pa.int64(), "d": pa.decimal128(12, 2), "b": pa.bool_()})
INTS = st.sampled_from([0, 1, -1, 2, 7, -(2**31), 2**31 - 1])
LONGS = INTS | st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1, 10**18])
DECIMALS = st.sampled_from(["0.00", "0.01", "-0.01", "1.05", "2.50", "-9999999999.99", "9999999999.99"]).map(Decimal)


def maybe(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | values


ROWS = st.lists(
    st.fixed_dictionaries({"i": maybe(INTS), "l": maybe(LONGS), "d": maybe(DECIMALS), "b": maybe(st.booleans())}),
    min_size=1,
    max_size=12,
)
NUMBER_LEAVES = st.sampled_from(["i", "l", "d", "0", "1", "3", "-2", "0.5", "100", "9223372036854775807", "1.005"])
CONDITION_LEAVES = st.sampled_from(["b", "true", "false", "null", "i > 0", "d is null", "l <> 1"])


def deeper(inner: tuple[st.SearchStrategy[str], st.SearchStrategy[str]]) -> tuple[st.SearchStrategy[str], ...]:
    number, condition = inner
    numbers = st.one_of(
        NUMBER_LEAVES,
        st.tuples(number, st.sampled_from("+-*/"), number).map(lambda each: f"({' '.join(each)})"),
        number.map(lambda each: f"(- {each})"),
        st.tuples(condition, number, number).map(lambda each: "case when {} then {} else {} end".format(*each)),
        st.tuples(number, number).map(lambda each: "coalesce({}, {})".format(*each)),
        st.tuples(st.sampled_from("il"), st.sampled_from(["l", "3", "-1", "i"])).map(
            lambda each: f"({' % '.join(each)})"
        ),
    )
    conditions = st.one_of(
        CONDITION_LEAVES,
        st.tuples(number, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), number).map(" ".join),
        st.tuples(condition, st.sampled_from(["and", "or"]), condition).map(lambda each: f"({' '.join(each)})"),
        condition.map(lambda each: f"(not ({each}))"),
        condition.map(lambda each: f"(({each}) is true)"),
        number.map(lambda each: f"({each} is null)"),
        st.tuples(number, number).map(lambda each: "({} is distinct from {})".format(*each)),
        st.tuples(st.sampled_from(["i", "l", "d"]), number).map(lambda each: "{} in (1, {}, null)".format(*each)),
    )
    return numbers, conditions


LEVELS: tuple[st.SearchStrategy[str], ...] = (NUMBER_LEAVES, CONDITION_LEAVES)
for _ in range(3):
    LEVELS = deeper((LEVELS[0], LEVELS[1]))
EXPRESSIONS = st.one_of(*LEVELS)


def compiled(text: str) -> Expression | None:
    """None of a literal that is divided by zero, and of types that no decimal holds: there is nothing to compare."""
    try:
        return compile_expression(text, COLUMNS)
    except ExpressionProblem as problem:
        if any(each in problem.why for each in ("whatever the row", "38 digits", "fewer digits")):
            return None
        raise


@given(text=EXPRESSIONS, rows=ROWS)
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
def test_a_block_gives_what_the_reference_gives_for_each_row(text: str, rows: list[dict[str, object]]) -> None:
    expression = compiled(text)
    assume(expression is not None)
    assert expression is not None
    found = expression.evaluate(pa.RecordBatch.from_pylist(rows, schema=ARROW))
    failed = {each.row for each in found.failures}
    syntax = parse(text)

    def kind(part: Syntax) -> str | tuple[int, int]:
        found = compile_expression(text[part.span.start : part.span.stop], COLUMNS).type
        return (found.precision, found.scale) if isinstance(found, ice.DecimalType) else str(found)

    for row, values in enumerate(rows):
        typed = {name: Typed(value, TYPES[name]) for name, value in values.items()}  # pyright: ignore[reportArgumentType]
        try:
            expected = reference(syntax, typed, kind).value
        except Fails:
            expected = FAILS
        assert (FAILS if row in failed else found.values[row].as_py()) == expected, (text, values)


NINES = "9" * 38
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999)
PRODUCT_COLUMNS: dict[str, tuple[ice.IcebergType, list[object]]] = {
    "b": (ice.BooleanType(), [True, False]),
    "i": (ice.IntegerType(), [-(2**31), 2**31 - 1, 0]),
    "l": (ice.LongType(), [-(2**63), 2**63 - 1, 0, 7]),
    "f": (ice.FloatType(), [float("nan"), float("-inf"), -0.0, 3.4e38]),
    "g": (ice.DoubleType(), [float("nan"), float("inf"), -0.0, 1.7e308, 5e-324]),
    "d": (ice.DecimalType(12, 2), [Decimal("9999999999.99"), Decimal("-0.01"), Decimal("0.00")]),
    "w": (ice.DecimalType(38, 0), [Decimal(NINES), Decimal(f"-{NINES}"), Decimal(0)]),
    "x": (ice.DecimalType(38, 38), [Decimal(f"0.{NINES}"), Decimal(f"-0.{NINES}"), Decimal("0E-38")]),
    "s": (ice.StringType(), ["", "abab,12", "\U0010ffff ß", "2026-01-31", "inf"]),
    "y": (ice.BinaryType(), [b"", b"\xff\x00", b"ab"]),
    "u": (ice.UUIDType(), [b"\x00" * 16, b"\xff" * 16]),
    "day": (ice.DateType(), [date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29)]),
    "t": (ice.TimeType(), [time(0), time(23, 59, 59, 999_999)]),
    "ts": (ice.TimestampType(), [datetime(1, 1, 1), LAST, datetime(2026, 3, 29, 2, 30)]),
    "tz": (
        ice.TimestamptzType(),
        [each.replace(tzinfo=UTC) for each in (datetime(1, 1, 1), LAST, datetime(2026, 10, 25, 0, 30))],
    ),
    "fixed": (ice.FixedType(2), [b"\x00\xff"]),
    "st": (ice.StructType(ice.NestedField(100, "a", ice.IntegerType())), [{"a": 1}, {"a": None}]),
    "ls": (ice.ListType(101, ice.StringType(), False), [[], ["a", None]]),
    "m": (ice.MapType(102, ice.StringType(), 103, ice.LongType(), False), [[], [("k", 1)]]),
}
SCHEMA = Schema(*(ice.NestedField(n, name, kind) for n, (name, (kind, _)) in enumerate(PRODUCT_COLUMNS.items(), 1)))
COUNT = 6
"""Rows with values, behind which is one of nulls, and two in which every second column is null."""
BATCH = pa.RecordBatch.from_pylist(
    [
        {
            name: None if row == COUNT or (row > COUNT and (row + at) % 2) else values[row % len(values)]
            for at, (name, (_, values)) in enumerate(PRODUCT_COLUMNS.items())
        }
        for row in range(COUNT + 3)
    ],
    schema=rows_arrow_schema(SCHEMA),
)
NOW = datetime(2026, 1, 31, tzinfo=UTC)
ANY = [*PRODUCT_COLUMNS, "null", "0", "1.5", f"{NINES}", "'a'"]
WRITTEN: dict[str, Sequence[str]] = {
    "unit": ["'month'", "'week'", "'day'", "'hour'", "'second'", "'s'", "'us'", "'epoch'", "'dow'"],
    "zone": ["'Europe/Berlin'", "'UTC'"],
    "pattern": ["'a'", "'(a)(b)'", "'(?P<found>a)|'", "'yyyy-MM-dd'", "'yyyy-MM-dd XXX'"],
    "places": ["0", "2", "38"],
    "separator": ["','", "'-'"],
    "to": ["day", "ts", "tz", "i", "null"],
    **dict.fromkeys(["start", "length", "count", "width"], ("1", "3")),
    **dict.fromkeys(["wanted", "other", "character", "characters", "beginning", "end", "part"], ("'a'", "''")),
}
"""What is written for parameters that not every column stands for."""
OPERATORS = [
    *(f"{{}} {each} {{}}" for each in ("+", "-", "*", "/", "%", "||", "=", "<>", "<", ">=", "is distinct from")),
    *("{} and {}", "{} or {}", "{} in ({}, null)", "{} between {} and 1", "nullif({}, {})", "coalesce({}, {})"),
    *("if(b, {}, {})", "case {} when {} then 1 end", "-{}", "not {}", "{} is null", "{} is true", "try({})"),
    *("{} like 'a%'", "{}[1]", "{}['k']", "{}.a", "{} + interval '1 month'", "{} - interval '1 microsecond'"),
    *("{} at time zone 'Europe/Berlin'", "{} at time zone 'Asia/Tokyo'"),
]
PRODUCT_TYPES = [
    *("int", "long", "float", "double", "decimal(5,2)", "decimal(38,38)", "boolean", "string", "binary", "uuid"),
    *("date", "time", "timestamp", "timestamptz"),
]


def calls(of: Function) -> Iterator[str]:
    """A function with arguments of all kinds in every place."""
    names = [each.strip(" []…") for each in of.form.partition("(")[2].rstrip(")").split(",") if each.strip(" []…")]
    most = len(names) + 1 if of.most is None else of.most
    names += names[-1:] * (most - len(names))
    for count in range(max(of.least, 1), most + 1):
        places = [WRITTEN.get(name, [*ANY, "1"] if name == "number" else ANY) for name in names[:count]]
        yield from (f"{of.name}({', '.join(each)})" for each in itertools.product(*places))


def evaluated(text: str) -> bool:
    """Whether an expression is none that is refused; then no row of it does anything but have a value or fail."""
    try:
        expression = compile_expression(text, SCHEMA.fields)
    except ExpressionProblem:
        return False
    found = expression.evaluate(BATCH, NOW)
    failed = [each.row for each in found.failures]
    assert (found.values.type, len(found.values)) == (rows_arrow_type(expression.type), BATCH.num_rows), text
    found.values.validate(full=True)
    values = found.values.to_pylist()
    assert not any(values[row] is not None for row in failed), text
    assert expression.nullable or None not in [each for row, each in enumerate(values) if row not in failed], text
    return True


@pytest.mark.parametrize("of", FUNCTIONS.values(), ids=lambda each: each.name)
def test_a_function_is_refused_or_gives_every_row_a_value_or_a_failure(of: Function) -> None:
    accepted = [text for text in calls(of) if evaluated(text)]
    assert accepted


@pytest.mark.parametrize("form", [*OPERATORS, *(f"cast({{}} as {each})" for each in PRODUCT_TYPES)])
def test_an_operator_is_refused_or_gives_every_row_a_value_or_a_failure(form: str) -> None:
    arguments = itertools.product(ANY, repeat=form.count("{}"))
    accepted = [each for each in arguments if evaluated(form.format(*each))]
    assert accepted
