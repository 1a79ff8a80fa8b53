"""Batch time: which expressions ask for it, by their text alone, before anything is known of columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from jobs.expression.parser import parse
from jobs.expression.problem import ExpressionProblem
from jobs.expression.syntax import Apply, CaseWhen, CastTo, Member, Syntax

_MAY = re.compile(r"\b(?:now|current_timestamp|current_date)\b", re.IGNORECASE)
_CALLS = frozenset({"now", "current_timestamp", "current_date"})


@lru_cache(maxsize=512)
def asks_batch_time(text: str) -> bool:
    """Whether an expression asks for now(), current_timestamp or current_date; False of what is no expression."""
    if not _MAY.search(text):
        return False
    try:
        return any(isinstance(each, Apply) and each.name.lower() in _CALLS for each in _parts(parse(text)))
    except (ExpressionProblem, RecursionError):
        return False


def _parts(syntax: Syntax) -> Iterator[Syntax]:
    """An expression and all within it."""
    yield syntax
    inner: list[Syntax] = []
    match syntax:
        case Apply(arguments=arguments):
            inner = list(arguments)
        case CaseWhen(branches=branches, otherwise=otherwise):
            inner = [each for branch in branches for each in branch]
            inner += [otherwise] if otherwise is not None else []
        case CastTo(of=of) | Member(of=of):
            inner = [of]
        case _:
            pass
    for each in inner:
        yield from _parts(each)
