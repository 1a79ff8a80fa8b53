"""Keys of a JSON record: the types to read records by, undeclared keys, and repeated keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from jobs.records.formats.interface.problems import (
    KEY_CASE,
    TOO_DEEP,
    ValueProblem,
    shown_key,
)
from jobs.records.schema.declared import (
    JSON_AS_SENT,
    TEXTUAL,
    DeclaredType,
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
)
from jobs.records.schema.name_matching import StructNames
from jobs.records.schema.time_patterns import TIME_TYPES

NULL_TOKEN = msgspec.Raw(b"null")
ABSENT_TOKEN = msgspec.Raw(b"")

ExtraKeys = Mapping[str, Sequence[str]]
"""For each struct, by its JSON path such as `$.items[]`, the keys that are not declared but are known to occur."""

_Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

_NARROW = {
    "int8": Annotated[int, msgspec.Meta(ge=-(2**7), le=2**7 - 1)],
    "int16": Annotated[int, msgspec.Meta(ge=-(2**15), le=2**15 - 1)],
}

_PYTHON: dict[str, Any] = {"boolean": bool, "int": _Int, "long": _Long, "string": str}


def attribute(index: int) -> str:
    """Return the attribute that holds the field at this index; JSON's own names need not be Python's."""
    return f"f{index}"


def getter(index: int) -> Callable[[Any], Any]:
    """Return a function that reads the field at this index from a decoded struct."""
    return attrgetter(attribute(index))


def extra_getter(index: int) -> Callable[[Any], Any]:
    """Return a function that reads the token of the extra key at this index: empty if the key was absent."""
    return attrgetter(f"x{index}")


def can_be_extra(key: str) -> bool:
    """Return whether msgspec can match the key; it cannot if JSON must escape it."""
    return re.search(r'["\\\x00-\x1f\x7f]', key) is None


def struct_class(
    struct: StructType, *, forbid_unknown: bool, extras: ExtraKeys, path: str = "$"
) -> type[msgspec.Struct]:
    """Return the class of one struct: exact types, required fields without a default, extra keys as raw tokens.

    Numbers that become decimals, floats or doubles stay raw tokens, since msgspec takes the sign of -0; texts that
    become timestamps, dates or bytes stay texts: they are converted for a whole column at once
    (jobs.records.formats.columns.primitive_columns).
    """
    fields: list[Any] = []
    names: dict[str, str] = {}
    for index, field in enumerate(struct.fields):
        name = attribute(index)
        names[name] = field.name
        kind = _python_type(field.type, field.required, forbid_unknown, extras, f"{path}.{field.name}")
        if field.required:
            fields.append((name, kind))
        else:
            fields.append((name, kind, NULL_TOKEN if kind is msgspec.Raw else None))
    for index, key in enumerate(extras.get(path, ())):
        names[f"x{index}"] = key
        fields.append((f"x{index}", msgspec.Raw, ABSENT_TOKEN))
    return msgspec.defstruct(
        "Record", fields, kw_only=True, gc=False, rename=names, forbid_unknown_fields=forbid_unknown
    )


def _python_type(declared: DeclaredType, required: bool, forbid: bool, extras: ExtraKeys, path: str) -> Any:
    kind = _required_type(declared, forbid, extras, path)
    # msgspec reads `Raw | None` as None only; a raw token shows by itself that it is null.
    return kind if required or kind is msgspec.Raw else kind | None


def _required_type(declared: DeclaredType, forbid: bool, extras: ExtraKeys, path: str) -> Any:
    match declared:
        case StructType():
            return struct_class(declared, forbid_unknown=forbid, extras=extras, path=path)
        case ListType(element, required):
            return list[_python_type(element, required, forbid, extras, path + "[]")]
        case MapType(key, value, required, "pairs"):
            item = _python_type(value, required, forbid, extras, path + "{}")
            return list[tuple[_python_type(key, True, forbid, extras, path), item]]
        case MapType(carried="entries"):
            return _required_type(entries_of(declared), forbid, extras, path)
        case MapType(_, value, required):
            return dict[str, _python_type(value, required, forbid, extras, path + "{}")]
        case Primitive("int" | "long" | "float" | "double", encoding="text"):
            return str
        case Primitive("decimal", encoding="number" | "unscaled") | Primitive("int" | "long", encoding="number"):
            return msgspec.Raw
        case Primitive("float" | "double" | "json"):
            return msgspec.Raw
        case Primitive(name, encoding=str() as way) if name in TIME_TYPES and way not in TEXTUAL:
            return _Long
        case Primitive("int", encoding="int8" | "int16" as encoding):
            return _NARROW[encoding]
        case Primitive(name):
            return _PYTHON.get(name, str)


def entries_of(declared: MapType) -> ListType:
    """Return the type of the array of objects that carries a map of entries."""
    entry = StructType((Field("key", declared.key, True), Field("value", declared.value, declared.value_required)))
    return ListType(entry, element_required=True)


NO_FURTHER_NAMES: Mapping[str, StructNames] = MappingProxyType({})
MAX_DEPTH = 200
"""Limit of the depth of a record, in the values that it has beside the declared fields."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NESTING = re.compile(rb"[\[{\]}]")

UnknownKey = tuple[str, str]
"""The JSON path of the struct, with `[]` for the elements of a list and `{}` for the values of a map, and the key."""

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


def check_depth(record: bytes) -> None:
    """Refuse a record nested deeper than MAX_DEPTH, whatever the depth of the caller's own stack.

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
    """Find the keys that a declared record does not have, at every level, without looking into their values.

    Args:
        declared: The record.
        levels: Further names of the fields, for each struct that has any, by its JSON path.
    """

    def __init__(self, declared: StructType, levels: Mapping[str, StructNames] = NO_FURTHER_NAMES) -> None:
        self._declared = declared
        self._further: Mapping[str, StructNames] = levels
        self._levels: dict[int, tuple[dict[str, DeclaredType], dict[str, tuple[str, str]]]] = {}
        self._by_case: dict[str, dict[str, tuple[str, str]]] = {}
        self._entries: dict[int, ListType] = {}
        self._learn(declared, "$")

    def unknown(self, record: bytes) -> dict[UnknownKey, str]:
        """Return the unknown keys in order, each with the JSON path of the first one, `$.items[2].x`.

        Raises:
            ValueProblem: key_case, if a key differs only by case from a declared key that is missing.
            msgspec.DecodeError: The JSON is not valid.
        """
        found: dict[UnknownKey, str] = {}
        for level, place, key in self._walk(self._declared, record.lstrip(), "$", "$"):
            found.setdefault((level, key), f"{place}.{shown_key(key)}")
        return found

    def near_declared(self, key: UnknownKey) -> bool:
        """Return whether a key that is not declared differs only by case from one that is."""
        level, name = key
        return name.casefold() in self._by_case.get(level, {})

    def _learn(self, declared: DeclaredType, path: str) -> bool:
        """Note the structs; return whether there is any."""
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
        """Yield the struct's path for all of its kind, its own path, and the key.

        JSON of another shape than declared yields nothing: the typed decoder reports it.
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
    """Return the record with only the last occurrence of each repeated key, at every level.

    The typed decoder checks every occurrence, but only the last one counts. A value to keep as it was sent stays so.

    Returns:
        None if no key comes twice, or the JSON is not valid.
    """
    try:
        return without_repeated(record, declared)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None


def without_repeated(record: bytes, declared: DeclaredType | None = None) -> bytes | None:
    """Do as `last_wins`, for callers that have to know whether any key comes twice.

    Args:
        declared: The record's type, if any of its values is to be kept as it was sent.

    Returns:
        None if no key comes twice.

    Raises:
        ValueError, msgspec.DecodeError: The JSON is not valid.
        RecursionError: The record is nested too deep.
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
