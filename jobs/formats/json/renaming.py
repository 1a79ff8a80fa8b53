"""Renaming of a JSON record's keys to the columns that take them, where a column has other names than its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec

from jobs.formats.json.keys import entries_of
from jobs.formats.problems import AMBIGUOUS_FIELD, ValueProblem, ambiguous_field
from jobs.schema.declared import DeclaredType, ListType, MapType, StructType
from jobs.schema.name_matching import NameRule, StructNames
from jobs.schema.needs import Path

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode

Rename: TypeAlias = Callable[[bytes], bytes]
"""Gives a record with the names of columns in place of those that mean them."""


def as_sent(record: bytes) -> bytes:
    """A `Rename` that changes nothing."""
    return record


class Renaming:
    """Renames the keys of records, at every level.

    Of several keys for one column, which are the same as one that comes again and again, one may have a value: null is
    the same as no key.

    Args:
        declared: The columns.
        names: How keys are matched with them.

    Attributes:
        levels: Of each struct whose keys may have other names, which column takes which, by its JSON path such as
            `$.items[]`.
    """

    def __init__(self, declared: StructType, names: NameRule) -> None:
        self._names: NameRule = names
        self.levels: dict[str, StructNames] = {}
        self._top: _Level | None = self._learnt(declared, (), "$")

    def renamed(self, record: bytes) -> bytes:
        """The record with the columns' names; the very same bytes where it has no others.

        Raises:
            ValueProblem: ambiguous_field, of two keys with a value for one column.
            msgspec.DecodeError: The JSON is not valid.
        """
        if self._top is None:
            return record
        found = self._top.renamed(record.lstrip(b" \t\r\n"), "$")
        return record if found is None else found

    def or_as_sent(self, record: bytes) -> bytes:
        """The record with the columns' names, or as it is where it cannot be had with them."""
        try:
            return self.renamed(record)
        except (ValueProblem, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return record

    def _learnt(self, declared: DeclaredType, path: Path, place: str) -> _Level | None:
        """What renames within values of a type; None where nothing of it may have another name."""
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
    """Renames within one value, as JSON; gives None where nothing is renamed."""

    initial: bytes

    def renamed(self, token: Any, place: str) -> bytes | None:
        """The value with other names, if it has the shape in which there are any."""
        return self.within(token, place) if bytes(memoryview(token)[:1]) == self.initial else None

    @abstractmethod
    def within(self, token: Any, place: str) -> bytes | None:
        """The same, of a value that has this shape."""


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
                # The name of no column, so that of none that is found here either.
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
