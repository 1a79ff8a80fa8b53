"""Keys of a JSON record: those that are not declared, and those that come twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from jobs.formats.json.record_types import entries_of
from jobs.formats.problems import KEY_CASE, TOO_DEEP, ValueProblem, shown_key
from jobs.schema.declared import JSON_AS_SENT, DeclaredType, ListType, MapType, StructType
from jobs.schema.name_matching import StructNames

NO_FURTHER_NAMES: Mapping[str, StructNames] = MappingProxyType({})
MAX_DEPTH = 200
"""How deep a record may be nested in what it carries beside the declared fields."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NESTING = re.compile(rb"[\[{\]}]")

UnknownKey = tuple[str, str]
"""The JSON path of the struct, with `[]` for the elements of a list and `{}` for the values of a map, and the key."""

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


def check_depth(record: bytes) -> None:
    """Refuses a record nested deeper than MAX_DEPTH, whatever the depth of the caller's own stack.

    Raises:
        ValueProblem: too_deep.
    """
    if record.count(b"[") + record.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for mark in _NESTING.finditer(_STRING.sub(b"", record)):
        depth += 1 if mark.group() in b"[{" else -1
        if depth > MAX_DEPTH:
            raise ValueProblem(TOO_DEEP, f"needs JSON nested at most {MAX_DEPTH} deep, found more")


class KeyWalker:
    """Finds the keys that a declared record does not have, at every level, without looking into their values.

    Args:
        declared: The record.
        levels: Further names of the fields, of each struct that has any, by its JSON path.
    """

    def __init__(self, declared: StructType, levels: Mapping[str, StructNames] = NO_FURTHER_NAMES) -> None:
        self._declared = declared
        self._further: Mapping[str, StructNames] = levels
        self._levels: dict[int, tuple[dict[str, DeclaredType], dict[str, tuple[str, str]]]] = {}
        self._by_case: dict[str, dict[str, tuple[str, str]]] = {}
        self._entries: dict[int, ListType] = {}
        self._learn(declared, "$")

    def unknown(self, record: bytes) -> dict[UnknownKey, str]:
        """The unknown keys in order, each with the JSON path of the first one, `$.items[2].x`.

        Raises:
            ValueProblem: key_case, when a key differs only by case from a declared one that is not there.
            msgspec.DecodeError: The JSON is not valid.
        """
        found: dict[UnknownKey, str] = {}
        for level, place, key in self._walk(self._declared, record.lstrip(), "$", "$"):
            found.setdefault((level, key), f"{place}.{shown_key(key)}")
        return found

    def near_declared(self, key: UnknownKey) -> bool:
        """Whether a key that is not declared differs only by case from one that is."""
        level, name = key
        return name.casefold() in self._by_case.get(level, {})

    def _learn(self, declared: DeclaredType, path: str) -> bool:
        """Notes the structs; returns whether there is any."""
        match declared:
            case StructType(fields):
                nested = {one.name: one.type for one in fields if self._learn(one.type, f"{path}.{one.name}")}
                names = self._further.get(path) or StructNames([field.name for field in fields], {}, any_case=False)
                by_case = names.near
                self._levels[id(declared)] = (nested, by_case)
                self._by_case[path] = by_case
                return True
            case ListType(element):
                return self._learn(element, path + "[]")
            case MapType(carried="entries"):
                self._entries[id(declared)] = entries_of(declared)
                return self._learn(self._entries[id(declared)], path)
            case MapType(_, value):
                return self._learn(value, path + "{}")
            case _:
                return False

    def _walk(self, declared: DeclaredType, token: Any, path: str, place: str) -> Iterator[tuple[str, str, str]]:
        """Yields the struct's path for all of its kind, its own one, and the key.

        Where the JSON has another shape than declared there is nothing to say: the typed decoder says it.
        """
        initial = bytes(memoryview(token)[:1])
        match declared:
            case StructType() if initial == b"{":
                nested, by_case = self._levels[id(declared)]
                members = _object(token)
                for key in members:
                    name, known = by_case.get(key.casefold(), (None, None))
                    if name is None or (name != key and name in members):
                        yield path, place, key
                    elif name != key:
                        message = f"needs the key '{known}', found '{shown_key(key)}', which differs by case"
                        raise ValueProblem(KEY_CASE, message, f"{place}.{shown_key(key)}")
                for name, inner in nested.items():
                    if name in members:
                        yield from self._walk(inner, members[name], f"{path}.{name}", f"{place}.{name}")
            case ListType(element) if initial == b"[":
                for index, one in enumerate(_array(token)):
                    yield from self._walk(element, one, path + "[]", f"{place}[{index}]")
            case MapType(carried="entries"):
                yield from self._walk(self._entries[id(declared)], token, path, place)
            case MapType(_, value, carried="pairs") if initial == b"[":
                for index, pair in enumerate(_array(token)):
                    inside = _array(pair) if bytes(memoryview(pair)[:1]) == b"[" else ()
                    for one in inside[1:2]:
                        yield from self._walk(value, one, path + "{}", f"{place}[{index}][1]")
            case MapType(_, value, carried="object") if initial == b"{":
                # As in msgspec's own paths, the key is not shown.
                for one in _object(token).values():
                    yield from self._walk(value, one, path + "{}", place + "[...]")
            case _:
                return


class _Repeated(Exception):
    pass


def last_wins(record: bytes, declared: DeclaredType) -> bytes | None:
    """The record without the earlier ones of keys that come twice, at every level.

    The typed decoder checks every occurrence; only the last one counts. A value that is wanted as it was sent stays so.

    Returns:
        None if no key comes twice, or the JSON is not valid.
    """
    try:
        return without_repeated(record, declared)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None


def without_repeated(record: bytes, declared: DeclaredType | None = None) -> bytes | None:
    """As `last_wins`, for who has to know whether any key comes twice.

    Args:
        declared: What the record is, if any value of it is wanted as it was sent.

    Returns:
        None if no key comes twice.

    Raises:
        ValueError, msgspec.DecodeError: The JSON is not valid.
        RecursionError: It is nested too deep to be looked through.
    """
    try:
        json.loads(record.decode(), object_pairs_hook=_refuse_repeated, parse_float=str, parse_int=str)
    except _Repeated:
        return _rewritten(record, declared)
    return None


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        raise _Repeated


def _rewritten(token: Any, declared: DeclaredType | None) -> bytes:
    if declared == JSON_AS_SENT:
        return bytes(token)
    raw = bytes(token).strip()
    match raw[:1]:
        case b"{":
            inner = _declared_members(declared)
            members = (
                msgspec.json.encode(key) + b":" + _rewritten(value, inner(key)) for key, value in _object(raw).items()
            )
            return b"{" + b",".join(members) + b"}"
        case b"[":
            element = declared.element if isinstance(declared, ListType) else None
            return b"[" + b",".join(_rewritten(each, element) for each in _array(raw)) + b"]"
        case _:
            return raw


def _declared_members(declared: DeclaredType | None) -> Callable[[str], DeclaredType | None]:
    match declared:
        case StructType(fields):
            return {field.name: field.type for field in fields}.get
        case MapType(_, value, carried="object"):
            return lambda _: value
        case _:
            return lambda _: None
