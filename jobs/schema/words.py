"""The words of a schema text, each with its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.errors import FrazilError

_TOKEN = re.compile(r"\s+|(?P<quoted>`(?:[^`]|``)*`)|(?P<word>[A-Za-z0-9_]+)|(?P<mark>[<>(),:])")


class SchemaTextError(FrazilError):
    """A schema text that cannot be understood.

    Args:
        problem: What is wrong, naming the word and what is expected.
        text: The whole schema text.
        position: Where in the text, in characters from its beginning.
        word: The offending word; empty at the end of the text.

    Attributes:
        further: What else is wrong with the same text, behind this.
    """

    def __init__(self, problem: str, *, text: str, position: int, word: str, fix: str | None = None) -> None:
        line = text.count("\n", 0, position) + 1
        column = position - (text.rfind("\n", 0, position) + 1) + 1
        place = f"column {column}" if line == 1 else f"line {line}, column {column}"
        super().__init__(f"The schema text is wrong at {place}: {problem}", fix=fix)
        self.position: int = position
        self.word: str = word
        self.further: tuple[SchemaTextError, ...] = ()


@dataclass(frozen=True, slots=True)
class Word:
    """One word or mark; `kind` is word, quoted, mark or end."""

    kind: str
    text: str
    position: int

    def __str__(self) -> str:
        return "the end of the text" if self.kind == "end" else f"'{self.text}'"


def words(text: str) -> list[Word]:
    """Cuts a schema text into words; the last one is always of kind `end`.

    Raises:
        SchemaTextError: On a character that no schema text contains, or a backtick that is never closed.
    """
    found: list[Word] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            character = text[position]
            problem = (
                "the name that starts with a backtick here is never closed."
                if character == "`"
                else f"'{character}' does not belong here; a name with other characters than letters, digits and _"
                " is written in backticks."
            )
            raise SchemaTextError(problem, text=text, position=position, word=character)
        if match.lastgroup is not None:
            found.append(Word(match.lastgroup, match.group(), position))
        position = match.end()
    found.append(Word("end", "", len(text)))
    return found


def end_of_field(found: Sequence[Word], begin: int, *, nested: bool) -> int:
    """Where a field that is wrong ends: at a comma, its struct's bracket, or the end, as far as brackets tell.

    Args:
        begin: The field's first word.
        nested: Whether it stands in a struct.
    """
    inside = 0
    for at in range(begin, len(found)):
        mark = found[at].text if found[at].kind == "mark" else ""
        if mark in ("<", "("):
            inside += 1
        elif mark in (">", ")") and inside:
            inside -= 1
        elif (mark == "," and not inside) or (mark == ">" and nested):
            return at
    return len(found) - 1
