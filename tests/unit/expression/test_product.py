"""Every function and operator with arguments of every type: refused before any row, or it fails rows and no more."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.expression.calls import Function
from jobs.expression.expression import compile_expression
from jobs.expression.functions import FUNCTIONS
from jobs.expression.problem import ExpressionProblem
from jobs.schema.arrow_schema import rows_arrow_schema, rows_arrow_type

NINES = "9" * 38
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999)
COLUMNS: dict[str, tuple[ice.IcebergType, list[object]]] = {
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
SCHEMA = Schema(*(ice.NestedField(n, name, kind) for n, (name, (kind, _)) in enumerate(COLUMNS.items(), 1)))
COUNT = 6
"""Rows with values, behind which is one of nulls, and two in which every second column is null."""
BATCH = pa.RecordBatch.from_pylist(
    [
        {
            name: None if row == COUNT or (row > COUNT and (row + at) % 2) else values[row % len(values)]
            for at, (name, (_, values)) in enumerate(COLUMNS.items())
        }
        for row in range(COUNT + 3)
    ],
    schema=rows_arrow_schema(SCHEMA),
)
NOW = datetime(2026, 1, 31, tzinfo=UTC)
ANY = [*COLUMNS, "null", "0", "1.5", f"{NINES}", "'a'"]
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
TYPES = [
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


@pytest.mark.parametrize("form", [*OPERATORS, *(f"cast({{}} as {each})" for each in TYPES)])
def test_an_operator_is_refused_or_gives_every_row_a_value_or_a_failure(form: str) -> None:
    arguments = itertools.product(ANY, repeat=form.count("{}"))
    accepted = [each for each in arguments if evaluated(form.format(*each))]
    assert accepted
