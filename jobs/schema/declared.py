"""The columns a stream declares: what they are and how JSON carries them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from jobs.schema.words import (
    ENCODINGS,
    KNOWN_TYPES,
    PRIMITIVE_NAMES,
    TYPE_ALIASES,
    SchemaTextError,
    Word,
    end_of_field,
    unknown_type,
    words,
)

KAFKA_COLUMN_PREFIX = "_kafka"
MAX_NESTING = 32


@dataclass(frozen=True, slots=True)
class Primitive:
    """A column type without parts; `name` is Iceberg's, `encoding` is how JSON carries it (None: one way only)."""

    name: str
    precision: int | None = None
    scale: int | None = None
    encoding: str | None = None

    def __str__(self) -> str:
        sized = f"{self.name}({self.precision},{self.scale})" if self.name == "decimal" else self.name
        if self.encoding is None or self.encoding == ENCODINGS[self.name][0]:
            return sized
        return f"{sized} as {self.encoding}"


@dataclass(frozen=True, slots=True)
class Field:
    """A named column; `required` means that neither a missing key nor null is accepted."""

    name: str
    type: DeclaredType
    required: bool = False

    def __str__(self) -> str:
        return f"{quoted(self.name)} {self.type}{_not_null(self.required)}"


@dataclass(frozen=True, slots=True)
class StructType:
    """Fields in declared order; also the whole record."""

    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"struct<{self.text}>"

    @property
    def text(self) -> str:
        """The schema text that parses to these fields."""
        return ", ".join(str(field) for field in self.fields)


@dataclass(frozen=True, slots=True)
class ListType:
    """A JSON array of one type."""

    element: DeclaredType
    element_required: bool = False

    def __str__(self) -> str:
        return f"list<{self.element}{_not_null(self.element_required)}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """A JSON object with any keys; the key is always a string."""

    key: Primitive
    value: DeclaredType
    value_required: bool = False

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}{_not_null(self.value_required)}>"


DeclaredType = Primitive | StructType | ListType | MapType


def quoted(name: str) -> str:
    """The name as schema text writes it: in backticks where a plain word would not do."""
    plain = name.isascii() and name.isidentifier()
    return name if plain else "`" + name.replace("`", "``") + "`"


def column_paths(struct: StructType, prefix: str = "") -> Iterator[str]:
    """Every dotted column path, as Iceberg names nested columns (`list.element`, `map.key`, `map.value`)."""
    for field in struct.fields:
        yield from _paths(field.type, prefix + field.name)


def _paths(declared: DeclaredType, path: str) -> Iterator[str]:
    yield path
    match declared:
        case StructType():
            yield from column_paths(declared, path + ".")
        case ListType(element):
            yield from _paths(element, path + ".element")
        case MapType(key, value):
            yield from _paths(key, path + ".key")
            yield from _paths(value, path + ".value")
        case Primitive():
            pass


def _not_null(required: bool) -> str:
    return " not null" if required else ""


@lru_cache(maxsize=256)
def parse_schema(text: str) -> StructType:
    """Reads schema text such as `id string not null, at timestamptz as epoch_ms, items list<struct<sku string>>`.

    Args:
        text: `name type [as encoding] [not null], …`; line breaks are spaces.

    Returns:
        The record as a struct, its fields in the order of the text.

    Raises:
        SchemaTextError: Naming position, word and what is expected there; of the first place, with all others in it.
    """
    return _Parser(text).record()


# msgspec cannot match keys that JSON must write with an escape.
_UNUSABLE = re.compile(r'["\\\x00-\x1f\x7f]')


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.words = words(text)
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
        """The fields up to the end of their struct; of those that are wrong only the problems are kept."""
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

    def name(self, word: Word) -> str:
        if word.kind == "quoted" and (name := word.text[1:-1].replace("``", "`")):
            if _UNUSABLE.search(name):
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
                return self.encoded("decimal", *self.precision_and_scale())
            case _ if name in PRIMITIVE_NAMES:
                return self.encoded(name)
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

    def number(self, what: str, low: int, high: int) -> int:
        word = self.take()
        if not (word.text.isdigit() and len(word.text) < 4 and low <= int(word.text) <= high):
            raise self.error(f"the {what} of decimal is a number from {low} to {high}, not {word}.", word)
        return int(word.text)

    def encoded(self, name: str, precision: int | None = None, scale: int | None = None) -> Primitive:
        known = ENCODINGS.get(name, ())
        encoding = known[0] if known else None
        if self.next.text.lower() == "as":
            self.take()
            word = self.take()
            encoding = word.text.lower()
            if not known:
                raise self.error(f"JSON carries {name} in one way only; drop 'as {word.text}'.", word)
            if encoding not in known:
                raise self.error(f"{word} is not a way to carry {name}; the ways are {', '.join(known)}.", word)
        return Primitive(name, precision, scale, encoding)

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
    def next(self) -> Word:
        return self.words[self.at]

    def take(self) -> Word:
        word = self.words[self.at]
        self.at = min(self.at + 1, len(self.words) - 1)
        return word

    def expect(self, mark: str, *, after: str, example: str | None = None) -> None:
        word = self.take()
        if word.text != mark or word.kind != "mark":
            hint = f", as in {example}" if example else ""
            raise self.error(f"'{mark}' is expected after {after}{hint}, but {word} was found.", word)

    def error(self, problem: str, word: Word) -> SchemaTextError:
        return SchemaTextError(problem, text=self.text, position=word.position, word=word.text)
