"""Type names of an expression, as CAST writes them."""

from __future__ import annotations

from jobs.expression.syntax import TypeName
from jobs.expression.token_stream import TokenStream


def type_name(tokens: TokenStream) -> TypeName:
    """The type that stands next, such as `decimal(12,2)` or `timestamp with time zone`.

    Raises:
        ExpressionProblem: None does.
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
