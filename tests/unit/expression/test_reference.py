"""Expressions drawn at random, evaluated on blocks and by a reference that takes one row at a time."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyiceberg import types as ice

from jobs.expression.expression import Expression, compile_expression
from jobs.expression.parser import parse
from jobs.expression.problem import ExpressionProblem
from jobs.expression.syntax import Syntax
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
