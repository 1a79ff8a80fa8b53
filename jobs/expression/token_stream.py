"""Token stream of a parser: what stands next in an expression, and what has to stand there."""

from __future__ import annotations

from jobs.expression.problem import ExpressionProblem
from jobs.expression.syntax import Span
from jobs.expression.tokens import Token, tokenize


class TokenStream:
    """The tokens of an expression, taken from the first to the last.

    Args:
        text: The whole expression.
    """

    def __init__(self, text: str) -> None:
        self._text: str = text
        self._tokens: list[Token] = tokenize(text)
        self._at: int = 0

    @property
    def next(self) -> Token:
        """The token that is not taken yet."""
        return self._tokens[self._at]

    @property
    def following(self) -> Token:
        """The token behind the next one."""
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    @property
    def position(self) -> int:
        """How many tokens are taken."""
        return self._at

    def back_to(self, position: int) -> None:
        """Put back what was taken since."""
        self._at = position

    def take(self) -> Token:
        """The next token, which is taken; the last one never is."""
        token = self.next
        self._at += token.kind != "end"
        return token

    def at_mark(self, *marks: str) -> bool:
        """Whether one of these marks stands here."""
        return self.next.kind == "mark" and self.next.text in marks

    def take_words(self, *words: str) -> bool:
        """Take these words if they stand here, one behind the other; whether they do."""
        following = self._tokens[self._at : self._at + len(words)]
        if len(following) < len(words) or not all(map(Token.is_word, following, words)):
            return False
        self._at += len(words)
        return True

    def problem(self, why: str, token: Token | None = None) -> ExpressionProblem:
        """A problem at a token; without one, at the next."""
        return ExpressionProblem(why, self._text, (token or self.next).start)

    def take_mark(self, mark: str) -> Token:
        """This mark, which has to stand here.

        Raises:
            ExpressionProblem: It does not.
        """
        if not self.at_mark(mark):
            raise self.problem(f"needs '{mark}' here, found {self.next}")
        return self.take()

    def take_word(self, word: str) -> None:
        """Take this word, which has to stand here.

        Raises:
            ExpressionProblem: It does not.
        """
        if not self.take_words(word):
            raise self.problem(f"needs {word.upper()} here, found {self.next}")

    def span(self, start: int) -> Span:
        """From a place to the end of the last token that was taken."""
        return Span(start, self._tokens[self._at - 1].stop if self._at else start)
