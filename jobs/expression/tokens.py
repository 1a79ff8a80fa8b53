"""Tokens of an expression: names, numbers, texts and marks, each with its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from jobs.expression.problem import ExpressionProblem

LONGEST_TEXT = 10_000
"""Characters of an expression."""

_TOKEN = re.compile(
    r"""\s+|--[^\n]*
    |(?P<bytes>[xX]'[^']*')
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`)
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<word>[^\W0-9]\w*)
    |(?P<mark>::|<>|!=|<=|>=|\|\||[-+*/%<>=(),.\[\]])""",
    re.VERBOSE,
)
Kind = Literal["bytes", "text", "quoted", "number", "word", "mark", "end"]


@dataclass(frozen=True, slots=True)
class Token:
    """One word, mark or literal.

    Attributes:
        text: Of a literal or a quoted name, what stands in the quotes.
        start, stop: Where it stands.
    """

    kind: Kind
    text: str
    start: int
    stop: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else f"'{self.text}'"

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these words, in whatever case."""
        return self.kind == "word" and self.text.lower() in words


def tokenize(text: str) -> list[Token]:
    """Cut an expression into tokens; the last is of the kind `end`.

    Raises:
        ExpressionProblem: On a character that no expression contains, a quote that is never closed, a text too long.
    """
    if len(text) > LONGEST_TEXT:
        raise ExpressionProblem(f"an expression has at most {LONGEST_TEXT} characters", text, LONGEST_TEXT)
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ExpressionProblem(_unknown(text[position]), text, position)
        if (kind := match.lastgroup) is not None:
            found.append(Token(kind, _inside(kind, match.group()), position, match.end()))  # pyright: ignore[reportArgumentType]
        position = match.end()
    found.append(Token("end", "", len(text), len(text)))
    return found


def _inside(kind: str, text: str) -> str:
    match kind:
        case "bytes":
            return text[2:-1]
        case "text" | "quoted":
            return text[1:-1].replace(text[0] * 2, text[0])
        case _:
            return text


def _unknown(character: str) -> str:
    opened = {"'": "text", '"': "quoted name", "`": "quoted name"}.get(character)
    if opened is not None:
        return f"the {opened} that starts here is never closed"
    if character == ";":
        return "an expression is one expression over one row, without ';'"
    hint = "; a name with other characters than letters, digits and _ stands in double quotes"
    return f"{character!r} does not belong here{hint}"
