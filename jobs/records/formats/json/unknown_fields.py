"""Renaming of a record's keys to their columns' names, and the keys that no column takes, with their values."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa

from jobs.base.errors import FrazilError
from jobs.records.formats.interface.decoder import OTHER_UNKNOWN_PATHS, UnknownField, shortened_path
from jobs.records.formats.interface.problems import AMBIGUOUS_FIELD, ValueProblem, ambiguous_field
from jobs.records.formats.json.keys import entries_of
from jobs.records.schema.declared import (
    DeclaredType,
    ListType,
    MapType,
    StructType,
    quoted,
)
from jobs.records.schema.name_matching import NameRule, StructNames
from jobs.records.schema.needs import Path
from jobs.records.schema.parser import parse_schema

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode

Rename: TypeAlias = Callable[[bytes], bytes]
"""Returns a record with the names of columns in place of other names for them."""


def as_sent(record: bytes) -> bytes:
    """Return the record unchanged: a `Rename` that changes nothing."""
    return record


class Renaming:
    """Rename the keys of records, at every level.

    At most one of several keys for one column may have a value; null is the same as no key.

    Args:
        declared: The columns.
        names: How keys are matched with the columns.

    Attributes:
        levels: The columns by key, for each struct whose keys may have other names, by its JSON path such as
            `$.items[]`.
    """

    def __init__(self, declared: StructType, names: NameRule) -> None:
        self._names: NameRule = names
        self.levels: dict[str, StructNames] = {}
        self._top: _Level | None = self._learnt(declared, (), "$")

    def renamed(self, record: bytes) -> bytes:
        """Return the record with the columns' names; the very same bytes if it has no other names.

        Raises:
            ValueProblem: ambiguous_field, if two keys for one column have a value.
            msgspec.DecodeError: The JSON is not valid.
        """
        if self._top is None:
            return record
        found = self._top.renamed(record.lstrip(b" \t\r\n"), "$")
        return record if found is None else found

    def or_as_sent(self, record: bytes) -> bytes:
        """Return the record with the columns' names, or unchanged if it cannot be renamed."""
        try:
            return self.renamed(record)
        except (ValueProblem, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return record

    def _learnt(self, declared: DeclaredType, path: Path, place: str) -> _Level | None:
        """Return the renaming within values of a type; None if no key within it may have another name."""
        match declared:
            case StructType(fields):
                names = self._names.of_struct(path, [each.name for each in fields])
                if not names.plain:
                    self.levels[place] = names
                inner = {
                    each.name: level
                    for each in fields
                    if (level := self._learnt(each.type, (*path, each.name), f"{place}.{each.name}"))
                }
                return _Struct(names, inner) if inner or not names.plain else None
            case ListType(element):
                level = self._learnt(element, (*path, "element"), f"{place}[]")
                return _Array(level) if level else None
            case MapType(carried="entries"):
                # `key` and `value` are the envelope's own names, not columns'.
                (_, value) = entries_of(declared).element.fields  # pyright: ignore[reportAttributeAccessIssue]
                level = self._learnt(value.type, (*path, "value"), f"{place}{{}}")
                plain = NameRule().of_struct((), ("key", "value"))
                return _Array(_Struct(plain, {"value": level})) if level else None
            case MapType(_, value, carried=carried):
                level = self._learnt(value, (*path, "value"), f"{place}{{}}")
                return (_Pairs(level) if carried == "pairs" else _Values(level)) if level else None
            case _:
                return None


class _Level(ABC):
    """The renaming within one JSON value; returns None if nothing is renamed."""

    initial: bytes

    def renamed(self, token: Any, place: str) -> bytes | None:
        """Return the renamed value, if it has the shape in which there are other names."""
        return self.within(token, place) if bytes(memoryview(token)[:1]) == self.initial else None

    @abstractmethod
    def within(self, token: Any, place: str) -> bytes | None:
        """Return the renamed value, which has this shape."""


class _Struct(_Level):
    initial: bytes = b"{"

    def __init__(self, names: StructNames, inner: dict[str, _Level]) -> None:
        self._names: StructNames = names
        self._inner: dict[str, _Level] = inner

    def within(self, token: Any, place: str) -> bytes | None:
        members: dict[str, Any] = _object(token)
        found: dict[str, Any] = {}
        keys: dict[str, str] = {}
        changed = False
        for key, value in members.items():
            column = self._names.column(key)
            if column is None:
                # No column has this name, so it cannot clash with a column found here.
                found[key] = value
                continue
            changed |= key != column
            if (other := keys.get(column)) is not None:
                if _is_null(value):
                    continue
                if not _is_null(found[column]):
                    raise ValueProblem(AMBIGUOUS_FIELD, ambiguous_field(column, (other, key)), f"{place}.{column}")
            keys[column], found[column] = key, value
        for name, level in self._inner.items():
            if name in found and (inner := level.renamed(found[name], f"{place}.{name}")) is not None:
                found[name], changed = inner, True
        return _joined_object(found) if changed else None


class _Array(_Level):
    initial: bytes = b"["

    def __init__(self, element: _Level) -> None:
        self._element: _Level = element

    def within(self, token: Any, place: str) -> bytes | None:
        values: list[Any] = _array(token)
        found = [self._element.renamed(value, f"{place}[{index}]") for index, value in enumerate(values)]
        return _joined_array(values, found)


class _Pairs(_Level):
    initial: bytes = b"["

    def __init__(self, value: _Level) -> None:
        self._value: _Level = value

    def within(self, token: Any, place: str) -> bytes | None:
        values: list[Any] = _array(token)
        return _joined_array(values, [self._pair(value, f"{place}[{index}]") for index, value in enumerate(values)])

    def _pair(self, token: Any, place: str) -> bytes | None:
        parts: list[Any] = _array(token) if bytes(memoryview(token)[:1]) == b"[" else []
        if len(parts) != 2 or (found := self._value.renamed(parts[1], f"{place}[1]")) is None:
            return None
        return b"[" + bytes(parts[0]) + b"," + found + b"]"


class _Values(_Level):
    initial: bytes = b"{"

    def __init__(self, value: _Level) -> None:
        self._value: _Level = value

    def within(self, token: Any, place: str) -> bytes | None:
        members: dict[str, Any] = _object(token)
        # The key is not shown.
        found = {key: self._value.renamed(value, f"{place}[...]") for key, value in members.items()}
        if all(value is None for value in found.values()):
            return None
        return _joined_object({key: members[key] if value is None else value for key, value in found.items()})


def _is_null(token: Any) -> bool:
    return bytes(memoryview(token)[:4]) == b"null"


def _joined_object(members: dict[str, Any]) -> bytes:
    return b"{" + b",".join(msgspec.json.encode(key) + b":" + bytes(value) for key, value in members.items()) + b"}"


def _joined_array(values: list[Any], found: list[bytes | None]) -> bytes | None:
    if all(value is None for value in found):
        return None
    parts: Iterator[bytes] = (bytes(value) if new is None else new for value, new in zip(values, found, strict=True))
    return b"[" + b",".join(parts) + b"]"


MOST_VALUES = 10
"""Limit of a key's values that are looked at before its type is guessed."""
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
    """Find unknown keys as `unknown_examples` does, each with its first record and a column that could take it."""
    return {
        path: UnknownField(found.row, shortened_path(found.within), column_for(found.name, found.values))
        for path, found in unknown_examples(declared, values, rows, paths, rename).items()
    }


def unknown_examples(
    declared: StructType, values: pa.BinaryArray, rows: Iterable[int], paths: Iterable[str], rename: Rename = as_sent
) -> dict[str, Examples]:
    """Return example records of unknown keys; a key whose name JSON writes in an unusual way may have none.

    Args:
        values: Values of the records of a block.
        rows: Records to look at, in this order.
        paths: Paths as decoders count them.
        rename: Returns a record with the names of columns.
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
    """Yield the unknown keys of a record, which are not declared; none if it is not JSON."""
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
    """Return a column that could take an unknown field's values, such as `note string`; None if its name is impossible.

    This is a guess: nothing shows whether a number with a fraction is an amount (`decimal`), or whether a text holds
        one.
    """
    column = f"{quoted(name)} {guessed_type(values)}"
    try:
        parse_schema(column)
    except FrazilError:
        return None
    return column


def guessed_type(values: Sequence[Any]) -> str:
    """Return the type that takes all values of an unknown field, as schema text; `string` if there is none."""
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
    # A type too long to read or write is left to a person.
    return guess if inner and len(guess) <= _LONGEST_TYPE else "struct<…>"
