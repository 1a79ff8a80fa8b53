"""Parser of schema texts, in which a stream declares its columns."""

from __future__ import annotations

import re
from functools import lru_cache

from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
    column_paths,
)
from jobs.records.schema.time_patterns import (
    TimePattern,
    TimeTexts,
    parse_pattern,
    zone_problem,
)
from jobs.records.schema.tokens import (
    ENCODINGS,
    FURTHER_ENCODINGS,
    KNOWN_TYPES,
    PRIMITIVE_NAMES,
    TYPE_ALIASES,
    SchemaTextError,
    Token,
    default_encoding,
    end_of_field,
    tokenize,
    unknown_type,
)

KAFKA_COLUMN_PREFIX = "_kafka"


MAX_NESTING = 32
MAX_LENGTH = 1 << 20
"""Limit of a fixed's length, in bytes."""


@lru_cache(maxsize=256)
def parse_schema(text: str) -> StructType:
    """Read schema text such as `id string not null, at timestamptz as epoch_ms, items list<struct<sku string>>`.

    Args:
        text: `name type [as encoding] [not null], …`; line breaks are spaces.

    Returns:
        The record as a struct, its fields in the order of the text.

    Raises:
        SchemaTextError: The text is wrong; names position, word and expectation of the first mistake, and lists the
            others.
    """
    return _Parser(text).record()


def readable_columns(text: str) -> StructType | None:
    """Return the correct columns of a schema text with mistakes; None if the text has none of either."""
    try:
        parser = _Parser(text)
        columns = StructType(parser.fields(depth=0))
    except SchemaTextError:
        return None
    return columns if parser.problems and columns.fields else None


# msgspec cannot match keys that JSON must write with an escape.
UNUSABLE = re.compile(r'["\\\x00-\x1f\x7f]')


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.words = tokenize(text)
        self.at = 0
        self.problems: list[SchemaTextError] = []

    def record(self) -> StructType:
        if self.next.kind == "end":
            raise self.error("it declares no column; write 'name type', for example 'id string not null'.", self.next)
        struct = StructType(self.fields(depth=0))
        seen: set[str] = set()
        for path in column_paths(struct) if not self.problems else ():
            if path in seen:
                raise self.error(f"two columns have the path '{path}'; rename one of them.", self.words[0])
            seen.add(path)
        if self.problems:
            first, *further = sorted(self.problems, key=lambda problem: problem.position)
            first.further = tuple(further)
            raise first
        return struct

    def fields(self, depth: int) -> tuple[Field, ...]:
        """Return the fields up to the end of their struct; wrong fields leave only their problems."""
        fields: list[Field] = []
        seen: dict[str, str] = {}
        while True:
            begin = self.at
            try:
                fields.append(self.field(depth, seen))
                if depth == 0 and self.next.kind != "end" and self.next.text != ",":
                    raise self.error(
                        f"{self.next} follows a complete column; a comma or the end is expected.", self.next
                    )
            except SchemaTextError as problem:
                self.problems.append(problem)
                self.at = end_of_field(self.words, begin, nested=depth > 0)
            if self.next.text != ",":
                return tuple(fields)
            self.take()

    def field(self, depth: int, seen: dict[str, str]) -> Field:
        word = self.take()
        name = self.name(word)
        if depth == 0 and name.lower().startswith(KAFKA_COLUMN_PREFIX):
            problem = f"the column name '{name}' starts with {KAFKA_COLUMN_PREFIX}, which is kept for frazil's own."
            raise self.error(problem, word)
        if (earlier := seen.get(name.casefold())) is not None:
            how = "is declared twice" if earlier == name else f"differs from '{earlier}' only by case"
            raise self.error(f"the name '{name}' {how}; rename one of them.", word)
        seen[name.casefold()] = name
        if self.next.text == ":":
            self.take()
        declared = self.type(depth + 1)
        return Field(name, declared, self.not_null())

    def name(self, word: Token) -> str:
        if word.kind == "quoted" and (name := word.text[1:-1].replace("``", "`")):
            if UNUSABLE.search(name):
                problem = f"the column name {word} has a quotation mark, a backslash or a control character in it."
                raise self.error(problem, word)
            return name
        if word.kind == "word" and not word.text[0].isdigit():
            return word.text
        raise self.error(f"a column name is expected, but {word} was found.", word)

    def type(self, depth: int) -> DeclaredType:
        if depth > MAX_NESTING:
            raise self.error(f"types are nested more than {MAX_NESTING} deep.", self.next)
        word = self.take()
        name = TYPE_ALIASES.get(word.text.lower(), word.text.lower())
        if word.kind != "word":
            raise self.error(f"a type is expected, but {word} was found; the types are {KNOWN_TYPES}.", word)
        match name:
            case "struct":
                self.expect("<", after="struct")
                fields = self.fields(depth)
                self.expect(">", after="the fields of a struct")
                return StructType(fields)
            case "list":
                self.expect("<", after=word.text)
                element = self.type(depth + 1)
                required = self.not_null()
                self.expect(">", after=f"the element type of {word.text}")
                return ListType(element, required)
            case "map":
                return self.map(depth)
            case "decimal":
                precision, scale = self.precision_and_scale()
                return Primitive("decimal", precision, scale, self.encoding("decimal"))
            case "date" | "time" | "timestamp" | "timestamptz":
                return self.texts(name) or Primitive(name, encoding=self.encoding(name))
            case "fixed":
                length = self.length()
                return Primitive("fixed", encoding=self.encoding("fixed"), length=length)
            case _ if name in PRIMITIVE_NAMES:
                return Primitive(name, encoding=self.encoding(name))
            case _:
                raise self.error(unknown_type(word.text), word)

    def map(self, depth: int) -> MapType:
        self.expect("<", after="map")
        word = self.next
        key = self.type(depth + 1)
        if key != Primitive("string"):
            raise self.error(f"the keys of a JSON object are strings, so a map's key cannot be {word}.", word)
        self.expect(",", after="the key type of map")
        value = self.type(depth + 1)
        required = self.not_null()
        self.expect(">", after="the value type of map")
        return MapType(Primitive("string"), value, required)

    def precision_and_scale(self) -> tuple[int, int]:
        self.expect("(", after="decimal", example="decimal(12,2)")
        precision = self.number("precision", 1, 38)
        self.expect(",", after="the precision of decimal", example="decimal(12,2)")
        scale = self.number("scale", 0, precision)
        self.expect(")", after="the scale of decimal", example="decimal(12,2)")
        return precision, scale

    def length(self) -> int:
        self.expect("(", after="fixed", example="fixed(16)")
        length = self.number("length", 1, MAX_LENGTH, of="fixed")
        self.expect(")", after="the length of fixed", example="fixed(16)")
        return length

    def number(self, what: str, low: int, high: int, of: str = "decimal") -> int:
        word = self.take()
        if not (word.text.isdecimal() and len(word.text) < 10 and low <= int(word.text) <= high):
            raise self.error(f"the {what} of {of} is a number from {low} to {high}, not {word}.", word)
        return int(word.text)

    def encoding(self, name: str) -> str | None:
        """Return the JSON encoding of a type, from the next words or by default."""
        known = ENCODINGS.get(name, FURTHER_ENCODINGS.get(name, ()))
        encoding = default_encoding(name)
        if self.next.text.lower() == "as":
            self.take()
            word = self.take()
            encoding = word.text.lower()
            if not known:
                raise self.error(f"JSON carries {name} in one way only; drop 'as {word.text}'.", word)
            if encoding not in known:
                raise self.error(f"{word} is not a way to carry {name}; the ways are {', '.join(known)}.", word)
        return encoding

    def texts(self, name: str) -> Primitive | None:
        """Return a date or time in patterns, such as `as 'dd.MM.yyyy' or iso in Asia/Tokyo`; None if it has none."""
        words = self.words[self.at : self.at + 3]
        if words[0].text.lower() != "as" or not (words[1].kind == "text" or _begins(words[1:], "iso", "or", "in")):
            return None
        first = self.take()
        forms = [self.form(name)]
        while self.next.text.lower() == "or":
            self.take()
            forms.append(self.form(name))
        zone = None
        if self.next.text.lower() == "in":
            self.take()
            first = self.take()
            if first.kind not in ("word", "text"):
                raise self.error(
                    f"a time zone such as Asia/Tokyo is expected after 'in', but {first} was found.", first
                )
            zone = first.text.strip("'\"")
        texts = TimeTexts(tuple(forms), zone)
        if problem := zone_problem(texts, name):
            raise self.error(f"{problem}.", first)
        return Primitive(name, encoding="pattern", texts=texts)

    def form(self, name: str) -> TimePattern | None:
        word = self.take()
        if word.kind == "word" and word.text.lower() == "iso":
            return None
        if word.kind != "text":
            raise self.error(f"a pattern such as 'yyyy-MM-dd', or iso, is expected, but {word} was found.", word)
        inside = word.text[1:-1]
        try:
            return parse_pattern(inside.replace("''", "'") if word.text[0] == "'" else inside, name)
        except ValueError as problem:
            raise self.error(f"{problem}.", word) from None

    def not_null(self) -> bool:
        if self.next.text.lower() != "not":
            return False
        self.take()
        word = self.take()
        if word.text.lower() != "null":
            raise self.error(f"'not' is followed by 'null', but {word} was found.", word)
        if self.next.text.lower() == "as":
            raise self.error("'as' comes before 'not null'.", self.next)
        return True

    @property
    def next(self) -> Token:
        return self.words[self.at]

    def take(self) -> Token:
        word = self.words[self.at]
        self.at = min(self.at + 1, len(self.words) - 1)
        return word

    def expect(self, mark: str, *, after: str, example: str | None = None) -> None:
        word = self.take()
        if word.text != mark or word.kind != "mark":
            hint = f", as in {example}" if example else ""
            raise self.error(f"'{mark}' is expected after {after}{hint}, but {word} was found.", word)

    def error(self, problem: str, word: Token) -> SchemaTextError:
        return SchemaTextError(problem, text=self.text, position=word.position, word=word.text)


def _begins(words: list[Token], first: str, *then: str) -> bool:
    """Return whether words begin with the first one and any of the others."""
    return len(words) > 1 and words[0].text.lower() == first and words[1].text.lower() in then
