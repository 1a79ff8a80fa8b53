"""Row filters of PyIceberg that a person writes: problems of a filter, in words without its grammar."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyiceberg.expressions import And, BooleanExpression, Not, Or, UnboundPredicate
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.types import StructType


def filter_advice(example: str, columns: Iterable[str]) -> str:
    """Return how a filter is written, as the next step of an error: one sentence for all options that take one.

    Args:
        example: A filter of these rows.
    """
    return (
        f"write Iceberg's row filter, which is not the SQL of a stream's file: columns compared with values, such as "
        f"\"{example}\"; known are and, or, not, in, between, like 'x%', is null; the columns are {', '.join(columns)}"
    )


def filter_problem(text: str, schema: Schema) -> str | None:
    """Return why a filter does not fit rows of a schema; None if no problem is known."""
    try:
        found = parse(text)
    except Exception as problem:
        at = getattr(problem, "loc", None)
        if at is None:
            # The problem is a value, not the grammar.
            return None
        rest = text[at:].lstrip()
        if not rest:
            return f"something is missing at its end, behind character {len(text.rstrip())}"
        return f"it cannot be read from character {len(text) - len(rest) + 1} on: {rest.rstrip()}"
    return next((why for each in _predicates(found) if (why := _unbound_problem(each, schema))), None)


def _predicates(expression: BooleanExpression) -> Iterator[UnboundPredicate]:
    if isinstance(expression, (And, Or)):
        yield from _predicates(expression.left)
        yield from _predicates(expression.right)
    elif isinstance(expression, Not):
        yield from _predicates(expression.child)
    elif isinstance(expression, UnboundPredicate):
        yield expression


def _unbound_problem(predicate: UnboundPredicate, schema: Schema) -> str | None:
    name = getattr(predicate.term, "name", "")
    try:
        kind = schema.find_type(name)
    except ValueError:
        return f"there is no column {name}"
    if isinstance(kind, StructType):
        return f"column {name} is a struct; name a column within it"
    try:
        bind(schema, predicate, case_sensitive=True)
    except Exception:
        # The literal may have another type than the column, and the two decide which exception is raised.
        literal, literals = getattr(predicate, "literal", None), getattr(predicate, "literals", ())
        values = [each.value for each in ((literal,) if literal is not None else literals)]
        said = " or ".join(sorted(repr(each) for each in values)) or "what it is compared with"
        return f"column {name} is a {kind}, and {said} {'are' if len(values) > 1 else 'is'} none"
    return None
