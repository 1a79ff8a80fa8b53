"""Unknown fields in example records: keys that a schema does not declare, and the column that could take each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from jobs.errors import FrazilError
from jobs.formats.decoder import OTHER_UNKNOWN_PATHS, UnknownField, shortened_path
from jobs.formats.json.keys import entries_of
from jobs.formats.json.renaming import Rename, as_sent
from jobs.schema.declared import DeclaredType, ListType, MapType, StructType, quoted
from jobs.schema.parser import parse_schema

MOST_VALUES = 10
"""So many values of a key are looked at before its type is guessed."""
_LONGEST_TYPE = 200
_MOST_ELEMENTS = 20
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


class UnknownKey(NamedTuple):
    """An unknown key of a record, which is not declared, and its value.

    Attributes:
        within: JSON path of the struct that has it, with `[]` for the elements of a list and `{}` for values of a map.
    """

    within: str
    name: str
    value: Any


@dataclass(slots=True)
class Examples:
    """Some records with one unknown key.

    Attributes:
        row: Index of the first of them.
    """

    row: int
    within: str
    name: str
    values: list[Any] = field(default_factory=list)


def unknown_fields(
    declared: StructType, values: pa.BinaryArray, rows: Iterable[int], paths: Iterable[str], rename: Rename = as_sent
) -> dict[str, UnknownField]:
    """As `unknown_examples`, each with the first record that was found and the column that could take the key."""
    return {
        path: UnknownField(found.row, shortened_path(found.within), column_for(found.name, found.values))
        for path, found in unknown_examples(declared, values, rows, paths, rename).items()
    }


def unknown_examples(
    declared: StructType, values: pa.BinaryArray, rows: Iterable[int], paths: Iterable[str], rename: Rename = as_sent
) -> dict[str, Examples]:
    """Example records of unknown keys; of a key whose name JSON writes in an unusual way there may be none.

    Args:
        values: Of the records of a block.
        rows: Which of them to look at, in this order.
        paths: As decoders count them.
        rename: Gives a record with the names of columns.
    """
    wanted = {path: path.rsplit(".", 1)[-1].encode() for path in paths if path != OTHER_UNKNOWN_PATHS}
    found: dict[str, Examples] = {}
    for row in rows:
        if not wanted:
            break
        value: bytes | None = values[row].as_py()
        if value is None or not any(name in value for name in wanted.values()):
            continue
        for key in unknown_keys(declared, rename(value)):
            path = f"{key.within}.{key.name}"
            if path in wanted:
                known = found.setdefault(path, Examples(int(row), key.within, key.name))
                known.values.append(key.value)
                if len(known.values) >= MOST_VALUES:
                    del wanted[path]
    return found


def unknown_keys(declared: StructType, record: bytes) -> Iterator[UnknownKey]:
    """The unknown keys of a record, which are not declared; none if it is not JSON."""
    try:
        yield from _keys(declared, msgspec.json.decode(record), "$")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return


def _keys(declared: DeclaredType, value: Any, path: str) -> Iterator[UnknownKey]:
    match declared:
        case StructType(fields) if isinstance(value, dict):
            types = {each.name: each.type for each in fields}
            for name, inner in value.items():
                if name in types:
                    yield from _keys(types[name], inner, f"{path}.{name}")
                else:
                    yield UnknownKey(path, name, inner)
        case ListType(element) if isinstance(value, list):
            for inner in value:
                yield from _keys(element, inner, path + "[]")
        case MapType(carried="entries"):
            yield from _keys(entries_of(declared), value, path)
        case MapType(_, inner_type, carried="pairs") if isinstance(value, list):
            for pair in value:
                if isinstance(pair, list) and len(pair) == 2:
                    yield from _keys(inner_type, pair[1], path + "{}")
        case MapType(_, inner_type, carried="object") if isinstance(value, dict):
            for inner in value.values():
                yield from _keys(inner_type, inner, path + "{}")
        case _:
            return


def column_for(name: str, values: Sequence[Any]) -> str | None:
    """A column that could take an unknown field's values, such as `note string`; None if no schema can have the name.

    It is a guess: of a number with a fraction nobody knows whether it is an amount (`decimal`), of a text whether it
    holds one.
    """
    column = f"{quoted(name)} {guessed_type(values)}"
    try:
        parse_schema(column)
    except FrazilError:
        return None
    return column


def guessed_type(values: Sequence[Any]) -> str:
    """The type that takes all values of an unknown field, in the language of schemas; `string` where there is none."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return "boolean"
    if kinds == {int}:
        return "long" if all(abs(value) < 2**63 for value in values if value is not None) else "decimal(38,0)"
    if kinds in ({float}, {int, float}):
        return "double"
    if kinds == {list}:
        elements = [element for value in values for element in (value or ())[:_MOST_ELEMENTS]]
        guess = f"list<{guessed_type(elements)}>"
        return guess if len(guess) <= _LONGEST_TYPE else "list<string>"
    if kinds == {dict}:
        return _struct([value for value in values if value])
    texts = [value for value in values if isinstance(value, str)]
    if texts and kinds == {str}:
        for pattern, kind in ((_INSTANT, "timestamptz"), (_DATE, "date")):
            if all(pattern.fullmatch(text) for text in texts):
                return kind
    return "string"


def _struct(values: Sequence[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for value in values for name in value))
    inner = ", ".join(f"{quoted(name)}: {guessed_type([value.get(name) for value in values])}" for name in names)
    guess = f"struct<{inner}>"
    # One that nobody can read, or write, is left to a person.
    return guess if inner and len(guess) <= _LONGEST_TYPE else "struct<…>"
