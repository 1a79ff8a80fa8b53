"""Parser of expressions: the text of one SQL expression over a row to its syntax."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache

from jobs.records.expressions.problem import ExpressionProblem
from jobs.records.expressions.syntax import (
    Apply,
    CaseWhen,
    CastTo,
    Constant,
    Duration,
    Member,
    Name,
    Span,
    Syntax,
    TypeName,
)
from jobs.records.expressions.tokens import Token, TokenStream

_QUANTITY = re.compile(r"\s*([+-]?[0-9]{1,12})\s+([A-Za-z]+)")
_MONTHS = {"year": 12, "quarter": 3, "month": 1}
MICROS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
"""Units of a fixed length, in microseconds; a day has 24 hours."""
_LARGEST = 2**62


def number_of(text: str) -> int | Decimal | float:
    """Return a number as it is written: whole, with a point (exact), or with an exponent (a double)."""
    if "e" in text.lower():
        return float(text)
    return Decimal(text) if "." in text else int(text)


def duration_of(text: str) -> tuple[int, int]:
    """Return the months and microseconds of `1 day`, `3 hours 30 minutes`, `-1 month`.

    Raises:
        ValueError: With a sentence that says what is wrong.
    """
    months = micros = position = 0
    while match := _QUANTITY.match(text, position):
        count, unit = int(match[1]), match[2].lower().removesuffix("s")
        if unit in _MONTHS:
            months += count * _MONTHS[unit]
        elif unit in MICROS:
            micros += count * MICROS[unit]
        else:
            raise ValueError(f"'{match[2]}' is no unit; the units are {', '.join([*_MONTHS, *MICROS])}")
        position = match.end()
    if text[position:].strip() or not position:
        raise ValueError("needs an interval such as '3 hours' or '1 day 12 hours'")
    if abs(micros) > _LARGEST or abs(months) > 120_000:
        raise ValueError("the interval is too long")
    return months, micros


def type_name(tokens: TokenStream) -> TypeName:
    """Read the next type, such as `decimal(12,2)` or `timestamp with time zone`.

    Raises:
        ExpressionProblem: The next tokens are no type.
    """
    token = tokens.take()
    if token.kind != "word":
        raise tokens.problem(f"needs a type here, found {token}", token)
    name = token.text.lower()
    if name == "timestamp" and tokens.take_words("with", "time", "zone"):
        name = "timestamptz"
    elif name == "timestamp":
        tokens.take_words("without", "time", "zone")
    elif name == "double":
        tokens.take_words("precision")
    numbers: list[int] = []
    if tokens.at_mark("("):
        tokens.take()
        while not tokens.at_mark(")"):
            if numbers:
                tokens.take_mark(",")
            number = tokens.take()
            if not number.text.isdigit() or len(number.text) > 9:
                raise tokens.problem(f"needs a whole number here, found {number}", number)
            numbers.append(int(number.text))
        tokens.take_mark(")")
    return TypeName(tokens.span(token.start), name, tuple(numbers))


DEEPEST = 40
"""Limit of brackets, calls and the like within each other."""
LONGEST_CHAIN = 100
"""Limit of operators of one kind that follow each other."""

_RESERVED = frozenset(
    {
        *("and", "or", "not", "null", "true", "false", "case", "when", "then", "else", "end", "is", "in", "like"),
        *("ilike", "between", "from", "where", "group", "order", "union", "over", "exists", "any", "all", "distinct"),
    }
)
_QUERIES = frozenset(
    {
        *("select", "with", "insert", "update", "delete", "create", "drop", "copy", "attach", "set", "values"),
        *("table", "pragma"),
    }
)
_TYPED = frozenset(["date", "timestamp", "timestamptz", "time", "uuid"])
_COMPARISONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def is_reserved(word: str) -> bool:
    """Return whether a column of this name has to stand in quotes."""
    return word.lower() in _RESERVED


def parse(text: str) -> Syntax:
    """Return the syntax of an expression.

    Raises:
        ExpressionProblem: The text is no expression over one row.
    """
    return _Parser(text).whole()


class _Parser(TokenStream):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth: int = 0

    def whole(self) -> Syntax:
        if self.next.kind == "end":
            raise self.problem("the expression is empty")
        if self.next.is_word(*_QUERIES) and self.following.kind in ("word", "quoted", "number"):
            raise self.problem("a query or a statement is not known here; write one expression over one row")
        found = self._expression()
        if self.next.is_word("over"):
            raise self.problem("a window over other rows is not known here; an expression sees one row")
        if self.next.kind != "end":
            raise self.problem(f"needs an operator or the end here, found {self.next}")
        return found

    def _expression(self) -> Syntax:
        self._depth += 1
        if self._depth > DEEPEST:
            raise self.problem(f"an expression has at most {DEEPEST} levels")
        found = self._or()
        self._depth -= 1
        return found

    def _or(self) -> Syntax:
        start, parts = self.next.start, [self._and()]
        while self.take_words("or"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else Apply(self.span(start), "or", tuple(parts))

    def _and(self) -> Syntax:
        start, parts = self.next.start, [self._not()]
        while self.take_words("and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else Apply(self.span(start), "and", tuple(parts))

    def _not(self) -> Syntax:
        start = self.next.start
        if not self.take_words("not"):
            return self._predicate()
        negated = True
        while self.take_words("not"):
            negated = not negated
        # Two negations cancel each other; null stays null.
        return Apply(self.span(start), "not" if negated else "condition", (self._predicate(),))

    def _predicate(self) -> Syntax:
        start, left = self.next.start, self._concatenation()
        while True:
            if self.next.kind == "mark" and (operator := _COMPARISONS.get(self.next.text)) is not None:
                self.take()
                right = self._concatenation()
                if self.next.kind == "mark" and self.next.text in _COMPARISONS:
                    raise self.problem("comparisons are not chained; join them by AND")
                left = Apply(self.span(start), operator, (left, right))
            elif self.take_words("is"):
                left = self._is_what(left, start)
            elif (more := self._negatable(left, start)) is not None:
                left = more
            else:
                return left

    def _is_what(self, left: Syntax, start: int) -> Syntax:
        negated = self.take_words("not")
        if self.take_words("distinct", "from"):
            right = self._concatenation()
            made = Apply(self.span(start), "is distinct from", (left, right))
        elif self.next.is_word("null", "true", "false"):
            word = self.take().text.lower()
            made = Apply(self.span(start), f"is {word}", (left,))
        else:
            raise self.problem(f"needs NULL, TRUE, FALSE or DISTINCT FROM here, found {self.next}")
        return Apply(self.span(start), "not", (made,)) if negated else made

    def _negatable(self, left: Syntax, start: int) -> Syntax | None:
        """Parse a BETWEEN, IN or LIKE behind an operand, with or without NOT; None if none of these stands here."""
        begin = self.position
        negated = self.take_words("not")
        if self.take_words("between"):
            low = self._concatenation()
            self.take_word("and")
            made = Apply(self.span(start), "between", (left, low, self._concatenation()))
        elif self.take_words("in"):
            self.take_mark("(")
            if self.next.is_word("select", "with"):
                raise self.problem("a subquery is not known here; write the values themselves")
            items = self._list(")")
            if not items:
                raise self.problem("needs at least one value here")
            made = Apply(self.span(start), "in", (left, *items))
        elif self.next.is_word("like", "ilike"):
            word = self.take().text.lower()
            made = Apply(self.span(start), word, (left, self._concatenation()))
        else:
            self.back_to(begin)
            return None
        made = _respanned(made, self.span(start))
        return Apply(made.span, "not", (made,)) if negated else made

    def _concatenation(self) -> Syntax:
        return self._left_to_right(("||",), lambda: self._left_to_right(("+", "-"), self._product))

    def _product(self) -> Syntax:
        return self._left_to_right(("*", "/", "%"), self._unary)

    def _left_to_right(self, marks: tuple[str, ...], operand) -> Syntax:
        start, left = self.next.start, operand()
        count = 0
        while self.at_mark(*marks):
            count += 1
            if count > LONGEST_CHAIN:
                raise self.problem(f"at most {LONGEST_CHAIN} operators follow each other; use brackets or concat()")
            operator = self.take().text
            right = operand()
            left = Apply(self.span(start), operator, (left, right))
        return left

    def _unary(self) -> Syntax:
        token, signs = self.next, ""
        while self.at_mark("+", "-"):
            signs += self.take().text
        negative = signs.count("-") % 2 == 1
        if negative and self.next.kind == "number" and self.following.text != "::":
            number = self.take()
            found: Syntax = Constant(self.span(token.start), number_of("-" + number.text))
            return self._postfix(found, token.start)
        found = self._postfix(self._primary(), token.start)
        return Apply(self.span(token.start), "negate" if negative else "plus", (found,)) if signs else found

    def _postfix(self, found: Syntax, start: int) -> Syntax:
        for _ in range(DEEPEST):
            if self.at_mark("."):
                self.take()
                name = self.take()
                if name.kind not in ("word", "quoted"):
                    raise self.problem(f"needs the name of a field behind '.', found {name}", name)
                if self.at_mark("("):
                    raise self.problem("functions of another schema are not known here", name)
                found = Member(self.span(start), found, name.text)
            elif self.at_mark("["):
                self.take()
                index = self._expression()
                self.take_mark("]")
                found = Apply(self.span(start), "element", (found, index))
            elif self.at_mark("::"):
                self.take()
                kind = type_name(self)
                found = CastTo(self.span(start), found, kind, trying=False)
            elif self.take_words("at", "time", "zone"):
                zone = self._primary()
                found = Apply(self.span(start), "at time zone", (found, zone))
            else:
                return found
        raise self.problem(f"an expression has at most {DEEPEST} levels")

    def _primary(self) -> Syntax:
        token = self.take()
        match token.kind:
            case "number":
                return Constant(self.span(token.start), number_of(token.text))
            case "text":
                return Constant(self.span(token.start), token.text)
            case "bytes":
                try:
                    return Constant(self.span(token.start), bytes.fromhex(token.text))
                except ValueError:
                    raise self.problem("needs pairs of hexadecimal digits", token) from None
            case "quoted":
                return Name(self.span(token.start), token.text)
            case "mark" if token.text == "(":
                if self.next.is_word("select", "with"):
                    raise self.problem("a subquery is not known here; an expression sees one row")
                found = self._expression()
                self.take_mark(")")
                return found
            case "mark" if token.text == "*":
                raise self.problem("'*' stands between two values", token)
            case "word":
                return self._worded(token)
            case _:
                raise self.problem(f"needs a value here, found {token}", token)

    def _worded(self, token: Token) -> Syntax:
        word = token.text.lower()
        if word in ("true", "false", "null"):
            return Constant(self.span(token.start), {"true": True, "false": False, "null": None}[word])
        if word == "case":
            return self._case(token)
        if word == "interval" and self.next.kind in ("text", "number"):
            return self._interval(token)
        if word in _TYPED and self.next.kind == "text":
            value = self.take()
            written = Constant(Span(value.start, value.stop), value.text)
            return CastTo(self.span(token.start), written, TypeName(Span(token.start, token.stop), word, ()), False)
        if word in _RESERVED:
            raise self.problem(f"needs a value here, found {token}; a column of that name stands in quotes", token)
        if self.at_mark("("):
            return self._call(token)
        if word in ("current_timestamp", "current_date"):
            return Apply(self.span(token.start), word, ())
        return Name(self.span(token.start), token.text)

    def _call(self, token: Token) -> Syntax:
        self.take_mark("(")
        word = token.text.lower()
        if word in ("cast", "try_cast"):
            of = self._expression()
            self.take_word("as")
            kind = type_name(self)
            self.take_mark(")")
            return CastTo(self.span(token.start), of, kind, trying=word == "try_cast")
        if word == "extract":
            unit = self.take()
            self.take_word("from")
            of = self._expression()
            self.take_mark(")")
            part = Constant(Span(unit.start, unit.stop), unit.text)
            return Apply(self.span(token.start), "date_part", (part, of))
        if self.next.is_word("select", "with"):
            raise self.problem("a subquery is not known here; an expression sees one row")
        if self.next.is_word("distinct") or self.at_mark("*"):
            raise self.problem("aggregates over rows are not available; an expression sees one row", token)
        arguments = self._list(")")
        return Apply(self.span(token.start), word, arguments)

    def _list(self, closing: str) -> tuple[Syntax, ...]:
        items: list[Syntax] = []
        while not self.at_mark(closing):
            if items:
                self.take_mark(",")
            items.append(self._expression())
        self.take_mark(closing)
        return tuple(items)

    def _case(self, token: Token) -> Syntax:
        subject = None if self.next.is_word("when") else self._expression()
        branches: list[tuple[Syntax, Syntax]] = []
        while self.take_words("when"):
            condition = self._expression()
            if subject is not None:
                condition = Apply(condition.span, "=", (subject, condition))
            self.take_word("then")
            branches.append((condition, self._expression()))
        if not branches:
            raise self.problem(f"needs WHEN here, found {self.next}")
        otherwise = self._expression() if self.take_words("else") else None
        self.take_word("end")
        return CaseWhen(self.span(token.start), tuple(branches), otherwise)

    def _interval(self, token: Token) -> Duration:
        quantity = self.take()
        written = quantity.text if quantity.kind == "text" else f"{quantity.text} {self.take().text}"
        try:
            months, micros = duration_of(written)
        except ValueError as problem:
            raise self.problem(str(problem), quantity) from None
        return Duration(self.span(token.start), months, micros)


def _respanned(made: Apply, span: Span) -> Apply:
    return Apply(span, made.name, made.arguments)


_MAY = re.compile(r"\b(?:now|current_timestamp|current_date)\b", re.IGNORECASE)
_CALLS = frozenset({"now", "current_timestamp", "current_date"})


@lru_cache(maxsize=512)
def asks_batch_time(text: str) -> bool:
    """Return whether an expression asks for now(), current_timestamp or current_date; False for a text that is none."""
    if not _MAY.search(text):
        return False
    try:
        return any(isinstance(each, Apply) and each.name.lower() in _CALLS for each in _parts(parse(text)))
    except (ExpressionProblem, RecursionError):
        return False


def _parts(syntax: Syntax) -> Iterator[Syntax]:
    """Yield an expression and all expressions within it."""
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
