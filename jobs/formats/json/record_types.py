"""Record types: the Python types that msgspec decodes one JSON record into, generated from the declared schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec

from jobs.schema.declared import TEXTUAL, DeclaredType, Field, ListType, MapType, Primitive, StructType
from jobs.schema.time_patterns import TIME_TYPES

NULL_TOKEN = msgspec.Raw(b"null")
ABSENT_TOKEN = msgspec.Raw(b"")

ExtraKeys = Mapping[str, Sequence[str]]
"""For each struct, by its JSON path such as `$.items[]`, the keys that are not declared but known to come."""

_Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

_NARROW = {
    "int8": Annotated[int, msgspec.Meta(ge=-(2**7), le=2**7 - 1)],
    "int16": Annotated[int, msgspec.Meta(ge=-(2**15), le=2**15 - 1)],
}

_PYTHON: dict[str, Any] = {"boolean": bool, "int": _Int, "long": _Long, "string": str}


def attribute(index: int) -> str:
    """The attribute that holds the field at this index; JSON's own names need not be Python's."""
    return f"f{index}"


def getter(index: int) -> Callable[[Any], Any]:
    """Reads the field at this index from a decoded struct."""
    return attrgetter(attribute(index))


def extra_getter(index: int) -> Callable[[Any], Any]:
    """Reads the token of the extra key at this index: empty if the key was absent."""
    return attrgetter(f"x{index}")


def can_be_extra(key: str) -> bool:
    """Whether msgspec can match the key; it cannot where JSON must escape it."""
    return re.search(r'["\\\x00-\x1f\x7f]', key) is None


def struct_class(
    struct: StructType, *, forbid_unknown: bool, extras: ExtraKeys, path: str = "$"
) -> type[msgspec.Struct]:
    """The class of one struct: exact types, required fields without a default, extra keys as raw tokens.

    Numbers that become decimals, floats or doubles stay raw tokens, since msgspec takes the sign of -0; texts that
    become timestamps, dates or bytes stay texts: they are converted for a whole column at once
    (jobs.formats.columns.primitive_columns).
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
    # msgspec reads `Raw | None` as None only; a raw token says by itself that it is null.
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
    """The array of objects that carries a map of entries."""
    entry = StructType((Field("key", declared.key, True), Field("value", declared.value, declared.value_required)))
    return ListType(entry, element_required=True)
