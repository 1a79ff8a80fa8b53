"""Binder of expressions: it resolves columns, functions and types of a syntax tree, and returns typed nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.expressions import (
    nested_functions,
    operators,
    text_functions,
    time_functions,
)
from jobs.records.expressions.calls import call, literal
from jobs.records.expressions.casts import cast, coerced
from jobs.records.expressions.functions import (
    AGGREGATES,
    CONDITIONALS,
    FUNCTIONS,
    MEANT,
    OUTSIDE,
    VOLATILE,
)
from jobs.records.expressions.nodes import (
    NULL_TYPE,
    BatchTime,
    Case,
    Coalesce,
    Column,
    Literal,
    Logic,
    Node,
    Try,
)
from jobs.records.expressions.problem import ExpressionProblem, Mismatch
from jobs.records.expressions.sql_types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LONG,
    MOST_DIGITS,
    STRING,
    common_type,
    is_number,
    name_of,
    named_type,
)
from jobs.records.expressions.syntax import (
    Apply,
    CaseWhen,
    CastTo,
    Constant,
    Duration,
    Member,
    Name,
    Syntax,
)

HEADERS = "_headers"
"""Column with a record's headers, which header() reads."""


class Binder:
    """Gives every part of one expression its type.

    Args:
        text: The whole expression.
        columns: Columns of the row by name.
        hidden: Further columns that expressions may name, but that are no columns of the row: Kafka's.
    """

    def __init__(self, text: str, columns: Mapping[str, Column], hidden: Mapping[str, Column]) -> None:
        self._text: str = text
        self._columns: Mapping[str, Column] = columns
        self._hidden: Mapping[str, Column] = hidden

    def bind(self, syntax: Syntax) -> Node:
        """Return the node of a part.

        Raises:
            ExpressionProblem: A column, a function or a type in the part is wrong.
        """
        try:
            return self._bound(syntax)
        except Mismatch as problem:
            raise ExpressionProblem(problem.why, self._text, syntax.span.start) from None

    def written(self, syntax: Syntax) -> str:
        """Return the text of a part on one line, for messages."""
        text = " ".join(self._text[syntax.span.start : syntax.span.stop].split())
        return text if len(text) <= 100 else text[:100] + "…"

    def _bound(self, syntax: Syntax) -> Node:
        match syntax:
            case Name(_, name):
                return self._column(name)
            case Constant(_, value):
                return _literal(value)
            case Member(_, of, name):
                return nested_functions.member(self.bind(of), name, self.written(syntax))
            case CastTo():
                return self._cast(syntax)
            case CaseWhen():
                return self._case(syntax)
            case Duration():
                raise Mismatch("an interval is added to a date or a timestamp: time + INTERVAL '1 day'")
            case Apply(_, name, arguments):
                written = self.written(syntax)
                if name in ("+", "-") and any(isinstance(each, Duration) for each in arguments):
                    return self._shifted(name, arguments[0], arguments[1], written)
                if (operator := _OPERATORS.get(name)) is not None:
                    return operator([self.bind(each) for each in arguments], written)
                return self._function(name, syntax, written)

    def _column(self, name: str) -> Node:
        found = self._columns.get(name) or self._hidden.get(name)
        if found is None:
            known = [*self._columns, *(self._hidden if name.startswith("_") else ())]
            raise Mismatch(nested_functions.unknown(name, known, "column"))
        return found

    def _cast(self, syntax: CastTo) -> Node:
        try:
            kind = named_type(syntax.type.name, syntax.type.numbers)
        except Mismatch as problem:
            raise ExpressionProblem(problem.why, self._text, syntax.type.span.start) from None
        of = self.bind(syntax.of)
        if not syntax.trying:
            return cast(of, kind, self.written(syntax))
        try:
            return _tried(cast(of, kind, self.written(syntax)))
        except Mismatch:
            if not isinstance(of, Literal):
                raise
            return Literal(pa.scalar(None, literal(None, kind).value.type), kind)

    def _case(self, syntax: CaseWhen) -> Node:
        conditions = [self._condition(condition) for condition, _ in syntax.branches]
        values = [self.bind(value) for _, value in syntax.branches]
        last = Literal(pa.scalar(None), NULL_TYPE) if syntax.otherwise is None else self.bind(syntax.otherwise)
        return _case(conditions, values, last, self.written(syntax))

    def _condition(self, syntax: Syntax) -> Node:
        node = self.bind(syntax)
        try:
            return coerced(node, BOOLEAN, self.written(syntax))
        except Mismatch:
            why = f"needs a condition, found {name_of(node.type)}"
            raise ExpressionProblem(why, self._text, syntax.span.start) from None

    def _shifted(self, operator: str, left: Syntax, right: Syntax, written: str) -> Node:
        if isinstance(left, Duration):
            if operator == "-" or isinstance(right, Duration):
                raise Mismatch("an interval stands behind the date or timestamp")
            left, right = right, left
        if not isinstance(right, Duration):
            raise Mismatch("an interval is added to a date or a timestamp")
        sign = -1 if operator == "-" else 1
        return time_functions.shifted(self.bind(left), sign * right.months, sign * right.micros, written)

    def _function(self, name: str, syntax: Apply, written: str) -> Node:
        arguments = syntax.arguments
        match name, len(arguments):
            case (("now" | "current_timestamp"), 0):
                return BatchTime()
            case "current_date", 0:
                return cast(BatchTime(), DATE, written)
            case "coalesce", count if count:
                parts = [self.bind(each) for each in arguments]
                kind = common_type(parts)
                parts = [coerced(each, kind, written) for each in parts]
                return Coalesce(tuple(parts), kind, all(each.nullable for each in parts))
            case "nullif", 2:
                value, other = (self.bind(each) for each in arguments)
                equal = operators.compared("=", value, other, written)
                return _case([equal], [Literal(pa.scalar(None), NULL_TYPE)], value, written)
            case "if", (2 | 3):
                values = [self.bind(each) for each in arguments[1:]]
                last = values[1] if len(values) > 1 else Literal(pa.scalar(None), NULL_TYPE)
                return _case([self._condition(arguments[0])], values[:1], last, written)
            case "try", 1:
                return _tried(self.bind(arguments[0]))
            case "header", 1:
                if HEADERS not in self._hidden:
                    raise Mismatch("there are no headers here")
                return nested_functions.header(self._hidden[HEADERS], self.bind(arguments[0]), written)
        if (found := FUNCTIONS.get(name)) is None:
            raise Mismatch(_unknown_function(name))
        if len(arguments) < found.least or (found.most is not None and len(arguments) > found.most):
            raise Mismatch(f"it is written as {found.form}")
        return found.bind([self.bind(each) for each in arguments], written)


def _tried(node: Node) -> Node:
    return node if isinstance(node, (Literal, Column)) else Try(node, node.type)


def _literal(value: object) -> Node:
    match value:
        case None:
            return Literal(pa.scalar(None), NULL_TYPE)
        case bool():
            return literal(value, BOOLEAN)
        case int() if -(2**31) <= value < 2**31:
            return literal(value, INT)
        case int() if -(2**63) <= value < 2**63:
            return literal(value, LONG)
        case int() | Decimal():
            return _decimal(Decimal(value))
        case float():
            return literal(value, DOUBLE)
        case bytes():
            return literal(value, BINARY)
        case _:
            return literal(value, STRING)


def _decimal(value: Decimal) -> Node:
    _, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    precision = max(len(digits), scale, 1)
    if precision > MOST_DIGITS:
        raise Mismatch(f"a number has at most {MOST_DIGITS} digits")
    return literal(value, ice.DecimalType(precision, scale))


def _case(conditions: list[Node], values: list[Node], last: Node, written: str) -> Node:
    kind = common_type([*values, last])
    values, last = [coerced(each, kind, written) for each in values], coerced(last, kind, written)
    nullable = any(each.nullable for each in (*values, last))
    return Case(tuple(zip(conditions, values, strict=True)), last, kind, nullable)


def _unknown_function(name: str) -> str:
    if name in AGGREGATES:
        return f"{name}() is about many rows; an expression sees one"
    if name in VOLATILE:
        return f"{name}() gives another value each time, so a batch that runs again would give other rows"
    if name in OUTSIDE:
        return f"{name}() reaches out of the row, which no expression may"
    if (meant := MEANT.get(name)) is not None:
        return f"there is no function '{name}'; did you mean {meant}?"
    known = [*FUNCTIONS, *(each.partition("(")[0] for each in CONDITIONALS)]
    return nested_functions.unknown(name, known, "function") if name not in known else f"it is written as {_form(name)}"


def _form(name: str) -> str:
    return next((each for each in CONDITIONALS if each.startswith(f"{name}(")), f"{name}()")


def _logic(word: str, arguments: list[Node], written: str) -> Node:
    for each in arguments:
        if not isinstance(each.type, (ice.BooleanType, ice.UnknownType)):
            raise Mismatch(f"{word.upper()} needs conditions, found {name_of(each.type)}")
    parts = tuple(coerced(each, BOOLEAN, written) for each in arguments)
    if len(parts) == 1:
        return parts[0]
    return Logic(word, parts, any(each.nullable for each in parts))


def _not(arguments: list[Node], written: str) -> Node:
    node = arguments[0]
    if not isinstance(node.type, (ice.BooleanType, ice.UnknownType)):
        raise Mismatch(f"NOT needs a condition, found {name_of(node.type)}")
    return call(pc.invert, [coerced(node, BOOLEAN, written)], BOOLEAN, written)


def _plus_or_minus(operator: str, arguments: list[Node], written: str) -> Node:
    left, right = arguments
    if isinstance(left.type, ice.DateType) and isinstance(right.type, ice.DateType) and operator == "-":
        return time_functions.days_between(left, right, written)
    if any(isinstance(each.type, (ice.DateType, ice.TimestampType, ice.TimestamptzType)) for each in arguments):
        hint = (
            "date_diff('second', from, to)"
            if not any(is_number(each.type) for each in arguments)
            else "INTERVAL '1 day'"
        )
        raise Mismatch(f"'{operator}' is not for {name_of(left.type)} and {name_of(right.type)}; use {hint}")
    return operators.arithmetic(operator, left, right, written)


def _between(arguments: list[Node], written: str) -> Node:
    value, low, high = arguments
    parts = (operators.compared(">=", value, low, written), operators.compared("<=", value, high, written))
    return Logic("and", parts, any(each.nullable for each in parts))


_Operator = Callable[[list[Node], str], Node]
_OPERATORS: Mapping[str, _Operator] = {
    "and": lambda arguments, written: _logic("and", arguments, written),
    "or": lambda arguments, written: _logic("or", arguments, written),
    "not": _not,
    "condition": lambda arguments, written: _logic("not", arguments, written),
    "plus": lambda arguments, written: operators.signed(arguments[0]),
    "negate": lambda arguments, written: operators.negated(arguments[0], written),
    "||": text_functions.joined,
    "element": lambda arguments, written: nested_functions.element(arguments[0], arguments[1], written),
    "at time zone": lambda arguments, written: time_functions.at_zone(arguments[0], arguments[1], written),
    "between": _between,
    "in": lambda arguments, written: operators.among(arguments[0], arguments[1:], written),
    "like": lambda arguments, written: operators.like(arguments[0], arguments[1], written, ignore_case=False),
    "ilike": lambda arguments, written: operators.like(arguments[0], arguments[1], written, ignore_case=True),
    "is null": lambda arguments, written: operators.null_test(arguments[0], written),
    "is true": lambda arguments, written: operators.truth_test(arguments[0], True, written),
    "is false": lambda arguments, written: operators.truth_test(arguments[0], False, written),
    "is distinct from": lambda arguments, written: operators.distinct(arguments[0], arguments[1], written),
    **{each: lambda arguments, written, each=each: _plus_or_minus(each, arguments, written) for each in "+-"},
    **{
        each: lambda arguments, written, each=each: operators.arithmetic(each, arguments[0], arguments[1], written)
        for each in "*/%"
    },
    **{
        each: lambda arguments, written, each=each: operators.compared(each, arguments[0], arguments[1], written)
        for each in operators.COMPARISONS
    },
}
