"""Tokens of an expression, and the stream that the parser reads them from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from jobs.records.expressions.problem import ExpressionProblem
from jobs.records.expressions.syntax import Span

LONGEST_TEXT = 10_000
"""Limit of characters in an expression."""

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
        text: Text of the token; for a literal or a quoted name the text within the quotes.
        start, stop: Place in the expression.
    """

    kind: Kind
    text: str
    start: int
    stop: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else f"'{self.text}'"

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these words, ignoring case."""
        return self.kind == "word" and self.text.lower() in words


def tokenize(text: str) -> list[Token]:
    """Split an expression into tokens; the last has the kind `end`.

    Raises:
        ExpressionProblem: The text has an invalid character or an unclosed quote, or is too long.
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


class TokenStream:
    """Stream of an expression's tokens.

    Args:
        text: The whole expression.
    """

    def __init__(self, text: str) -> None:
        self._text: str = text
        self._tokens: list[Token] = tokenize(text)
        self._at: int = 0

    @property
    def next(self) -> Token:
        """Return the next token without taking it."""
        return self._tokens[self._at]

    @property
    def following(self) -> Token:
        """Return the token after the next one."""
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    @property
    def position(self) -> int:
        """Number of tokens taken."""
        return self._at

    def back_to(self, position: int) -> None:
        """Put back the tokens taken since a position."""
        self._at = position

    def take(self) -> Token:
        """Take the next token and return it; the last token is never taken."""
        token = self.next
        self._at += token.kind != "end"
        return token

    def at_mark(self, *marks: str) -> bool:
        """Whether the next token is one of these marks."""
        return self.next.kind == "mark" and self.next.text in marks

    def take_words(self, *words: str) -> bool:
        """Take these words if they come next, in this order; return whether they do."""
        following = self._tokens[self._at : self._at + len(words)]
        if len(following) < len(words) or not all(map(Token.is_word, following, words)):
            return False
        self._at += len(words)
        return True

    def problem(self, why: str, token: Token | None = None) -> ExpressionProblem:
        """Return a problem at a token, by default at the next one."""
        return ExpressionProblem(why, self._text, (token or self.next).start)

    def take_mark(self, mark: str) -> Token:
        """Take this mark, which has to come next.

        Raises:
            ExpressionProblem: Another token comes next.
        """
        if not self.at_mark(mark):
            raise self.problem(f"needs '{mark}' here, found {self.next}")
        return self.take()

    def take_word(self, word: str) -> None:
        """Take this word, which has to come next.

        Raises:
            ExpressionProblem: Another token comes next.
        """
        if not self.take_words(word):
            raise self.problem(f"needs {word.upper()} here, found {self.next}")

    def span(self, start: int) -> Span:
        """Return the span from a place to the end of the last taken token."""
        return Span(start, self._tokens[self._at - 1].stop if self._at else start)
