"""Tokens of a schema text, and the names of types and encodings that may stand in one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from jobs.base.errors import FrazilError

_TOKEN = re.compile(
    r"\s+|(?P<quoted>`(?:[^`]|``)*`)|(?P<text>'(?:[^']|'')*'|\"[^\"]*\")"
    r"|(?P<word>[A-Za-z0-9_]+(?:/[A-Za-z0-9_+-]+)*)|(?P<mark>[<>(),:])"
)


class SchemaTextError(FrazilError):
    """A schema text cannot be parsed.

    Safe: Nothing was changed.
    Next: correct the part of the text that the message names; then `frazil validate`

    Args:
        problem: What is wrong, naming the word and what is expected.
        text: The whole schema text.
        position: Offset in the text, in characters.
        word: The offending word; empty at the end of the text.

    Attributes:
        problem: What is wrong, without the place.
        further: Later mistakes in the same text.
    """

    def __init__(self, problem: str, *, text: str, position: int, word: str, fix: str | None = None) -> None:
        line = text.count("\n", 0, position) + 1
        column = position - (text.rfind("\n", 0, position) + 1) + 1
        place = f"column {column}" if line == 1 else f"line {line}, column {column}"
        super().__init__(f"The schema text is wrong at {place}: {problem}", fix=fix)
        self.problem: str = problem
        self.position: int = position
        self.word: str = word
        self.further: tuple[SchemaTextError, ...] = ()


@dataclass(frozen=True, slots=True)
class Token:
    """One word or mark; `kind` is word, quoted (a name), text (a pattern), mark or end."""

    kind: str
    text: str
    position: int

    def __str__(self) -> str:
        return "the end of the text" if self.kind == "end" else f"'{self.text}'"


def tokenize(text: str) -> list[Token]:
    """Cut a schema text into words; the last one is always of kind `end`.

    Raises:
        SchemaTextError: A character belongs to no schema text, or a backtick is never closed.
    """
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            character = text[position]
            opened = {"`": "name that starts with a backtick", "'": "pattern that starts", '"': "pattern that starts"}
            problem = (
                f"the {opened[character]} here is never closed."
                if character in opened
                else f"'{character}' does not belong here; a name with other characters than letters, digits and _"
                " is written in backticks."
            )
            raise SchemaTextError(problem, text=text, position=position, word=character)
        if match.lastgroup is not None:
            found.append(Token(match.lastgroup, match.group(), position))
        position = match.end()
    found.append(Token("end", "", len(text)))
    return found


def end_of_field(found: Sequence[Token], begin: int, *, nested: bool) -> int:
    """Return the end of a wrong field: a comma, its struct's bracket, or the end, as far as brackets show.

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


PRIMITIVE_NAMES = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "decimal",
    "date",
    "timestamp",
    "timestamptz",
    "time",
    "string",
    "uuid",
    "binary",
    "fixed",
    "json",
)

TYPE_ALIASES = {"bigint": "long", "array": "list"}

OTHER_TYPE_NAMES = {
    "bool": "boolean",
    "integer": "int",
    "int32": "int",
    "smallint": "int",
    "tinyint": "int",
    "int64": "long",
    "real": "float",
    "float64": "double",
    "number": "decimal(P,S)",
    "numeric": "decimal(P,S)",
    "varchar": "string",
    "char": "string",
    "text": "string",
    "str": "string",
    "guid": "uuid",
    "datetime": "timestamp",
    "timestamp_ntz": "timestamp",
    "timestamp_ltz": "timestamptz",
    "bytes": "binary",
    "row": "struct",
    "record": "struct",
    "object": "struct",
}
"""Types by their names in other systems, for the suggestion in an error."""

VERSION_3_NAMES = ("variant", "timestamp_ns", "timestamptz_ns", "unknown", "geometry", "geography")
"""Types of Iceberg's format version 3."""

_EPOCHS = ("epoch_s", "epoch_ms", "epoch_us", "epoch_ns")

ENCODINGS: dict[str, tuple[str, ...]] = {
    "timestamp": ("iso", *_EPOCHS),
    "timestamptz": ("iso", *_EPOCHS),
    "date": ("iso", "epoch_days"),
    "time": ("iso", "millis_of_day", "micros_of_day", "nanos_of_day"),
    "decimal": ("number", "text", "unscaled"),
    "binary": ("base64", "hex"),
    "fixed": ("base64", "hex"),
    "json": ("canonical", "sent"),
}
"""JSON encodings of each type; the first is the default.

`unscaled` is base64 of the number without its point, big-endian in two's complement, or a JSON number.
"""

FURTHER_ENCODINGS: dict[str, tuple[str, ...]] = {
    "int": ("number", "text"),
    "long": ("number", "text"),
    "float": ("text",),
    "double": ("text",),
}
"""Further encodings of types whose default has no name: numbers, and whole ones without point and exponent."""

KNOWN_TYPES = (
    ", ".join(PRIMITIVE_NAMES).replace("decimal", "decimal(P,S)").replace("fixed", "fixed(L)")
    + ", struct<…>, list<…> and map<string, …>"
)


def default_encoding(name: str) -> str | None:
    """Return the JSON encoding of a type that a schema text gives none for; None if the default has no name."""
    return ENCODINGS[name][0] if name in ENCODINGS else None


def unknown_type(word: str) -> str:
    """Return a sentence that a word is not a type, with the nearest one that is."""
    if word.lower() in VERSION_3_NAMES:
        return (
            f"'{word}' is a type of Iceberg's format version 3 only; frazil writes version 2, "
            "as PyIceberg cannot write the manifests of version 3 yet."
        )
    names = [*PRIMITIVE_NAMES, "struct", "list", "map", *TYPE_ALIASES]
    meant = OTHER_TYPE_NAMES.get(word.lower()) or next(iter(get_close_matches(word.lower(), names, n=1)), None)
    hint = f"did you mean '{meant}'?" if meant else f"the types are {KNOWN_TYPES}."
    return f"'{word}' is not a type; {hint}"
