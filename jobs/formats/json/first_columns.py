"""First columns of a stream that infers them: what its first records say, without what says nothing yet."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from jobs.formats.json.inference import InferenceRules, apart, inferred
from jobs.formats.json.seen_values import SeenValues
from jobs.schema.declared import DeclaredType, Field, ListType, MapType, Primitive, StructType
from jobs.schema.parser import parse_schema

_SAY_NOTHING = frozenset({"always_null", "empty"})


def first_columns(seen: SeenValues, infer: Mapping[str, Any] | None = None) -> StructType | None:
    """The columns of a new table; None if no record has a value that needs one.

    A field that was always null, or an empty array or object, gets its column when a value comes.

    Args:
        seen: What records held.
        infer: The format's option of this name.
    """
    given = infer or {}
    fractions = parse_schema(f"n {given.get('fractions', 'double')}").fields[0].type
    decimal = fractions if isinstance(fractions, Primitive) and fractions.name == "decimal" else None
    found = inferred(seen, InferenceRules(decimal, given.get("times", False)))
    nothing = {column.path for column in found.columns if _SAY_NOTHING & set(column.doubts)}
    kept = _kept(found.schema, "$", nothing) if found.schema else None
    if not isinstance(kept, StructType) or not (fields := tuple(apart(kept.fields))):
        return None
    kept = StructType(fields)
    return _maps_for_structs(kept) if given.get("objects") == "map" else kept


def _kept(kind: DeclaredType, path: str, nothing: Container[str]) -> DeclaredType | None:
    if path in nothing:
        return None
    match kind:
        case StructType(fields):
            made = [(each, _kept(each.type, f"{path}.{each.name}", nothing)) for each in fields]
            kept = tuple(Field(each.name, inner, each.required) for each, inner in made if inner is not None)
            return StructType(kept) if kept else None
        case ListType(element, required):
            inner = _kept(element, f"{path}[]", nothing)
            return ListType(inner, required) if inner is not None else None
        case MapType(key, value, required):
            inner = _kept(value, f"{path}{{}}", nothing)
            return MapType(key, inner, required) if inner is not None else None
        case _:
            return kind


def _maps_for_structs(record: StructType) -> StructType:
    return StructType(tuple(Field(each.name, _as_map(each.type), each.required) for each in record.fields))


def _as_map(kind: DeclaredType) -> DeclaredType:
    """Maps in place of structs whose fields are all of one type."""
    match kind:
        case StructType(fields):
            types = [_as_map(each.type) for each in fields]
            if all(each == types[0] for each in types):
                return MapType(Primitive("string"), types[0])
            return StructType(tuple(Field(each.name, type_) for each, type_ in zip(fields, types, strict=True)))
        case ListType(element, required):
            return ListType(_as_map(element), required)
        case MapType(key, value, required):
            return MapType(key, _as_map(value), required)
        case _:
            return kind
