"""New fields of JSON records: the type of a missing column, from a value.

Null, an empty array and an empty object need no column: nothing is guessed from them. A whole number is a `long`, one
with a fraction a `double` unless a decimal is requested, a text a `string` unless times are requested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from pyiceberg import types as ice

from jobs.records.formats.interface.problems import shown_key
from jobs.records.formats.json.block_nodes import UndeclaredKind
from jobs.records.formats.json.seen_values import text_form
from jobs.records.schema.declared import (
    DeclaredType,
    ListType,
    MapType,
    Primitive,
    StructType,
)
from jobs.records.schema.difference import similar
from jobs.records.schema.needs import Path
from jobs.records.schema.parser import parse_schema

_INT64 = 2**63
_MOST_DIGITS = 38
_DEEPEST = 32
_NUMBERS = frozenset({"int", "long", "float", "double", "decimal"})
_MOST_FIELDS = 1_000
_FORMS: dict[str, ice.IcebergType] = {
    "timestamptz": ice.TimestamptzType(),
    "timestamp": ice.TimestampType(),
    "date": ice.DateType(),
}


@dataclass(frozen=True, slots=True)
class NewFieldTypes:
    """Types of new fields, where JSON does not say.

    Attributes:
        decimal: Digits before and behind the point of numbers with a fraction, and digits behind it; None for doubles.
        times: Whether texts that look like times, or days, become timestamps, or dates.
        objects: The type of objects.
    """

    decimal: tuple[int, int] | None = None
    times: bool = False
    objects: Literal["struct", "map"] = "struct"


def new_field_types(infer: Mapping[str, Any] | None) -> NewFieldTypes:
    """Return the types of new fields from the format's option `infer`."""
    given = infer or {}
    fractions = parse_schema(f"n {given.get('fractions', 'double')}").fields[0].type
    decimal = None
    if isinstance(fractions, Primitive) and fractions.precision is not None and fractions.scale is not None:
        decimal = (fractions.precision, fractions.scale)
    return NewFieldTypes(decimal, given.get("times", False), given.get("objects", "struct"))


class NewField(NamedTuple):
    """A field of one record that the columns lack.

    Attributes:
        path: Path that its column would have.
        place: Its JSON path, with `[]` for elements and `{}` for values of a map.
        value: The value as `parsed` returns it.
    """

    path: Path
    place: str
    value: Any


class NewFields:
    """Find the fields of records that have no column, at every level.

    Args:
        declared: The columns.
    """

    def __init__(self, declared: StructType) -> None:
        self._declared: StructType = declared
        # By the struct's identity: its names, and those of its fields that have fields themselves.
        self._known: dict[int, tuple[frozenset[str], dict[str, DeclaredType]]] = {}
        self._learn(declared)

    def of(self, record: Any) -> Iterator[NewField]:
        """Yield the new fields of one record, as `parsed` returns it."""
        return self._within(self._declared, record, (), "$")

    def _learn(self, kind: DeclaredType) -> bool:
        """Note the structs; return whether there is any."""
        match kind:
            case StructType(fields):
                nested = {each.name: each.type for each in fields if self._learn(each.type)}
                self._known[id(kind)] = (frozenset(each.name for each in fields), nested)
                return True
            case ListType(element):
                return self._learn(element)
            case MapType(_, value):
                return self._learn(value)
            case _:
                return False

    def _within(self, declared: DeclaredType, value: Any, path: Path, place: str) -> Iterator[NewField]:
        match declared:
            case StructType() if isinstance(value, dict):
                names, nested = self._known[id(declared)]
                for name, inner in value.items():
                    if name not in names:
                        yield NewField((*path, name), f"{place}.{shown_key(name)}", inner)
                    elif name in nested:
                        yield from self._within(nested[name], inner, (*path, name), f"{place}.{name}")
            case ListType(element) if isinstance(value, list):
                for inner in value:
                    yield from self._within(element, inner, (*path, "element"), f"{place}[]")
            case MapType(_, inner_type) if isinstance(value, dict):
                for inner in value.values():
                    yield from self._within(inner_type, inner, (*path, "value"), f"{place}{{}}")
            case _:
                return


def inner_places(place: str, kind: ice.IcebergType) -> Iterator[str]:
    """Yield the JSON paths of the fields within a new field, as `field_place` writes those of a missing column.

    Args:
        place: JSON path of the new field.
        kind: One type of its value, see `value_types`.
    """
    while not kind.is_primitive:
        match kind:
            case ice.StructType(fields=(inner,)):
                place, kind = f"{place}.{shown_key(inner.name)}", inner.field_type
            case ice.ListType():
                place, kind = f"{place}.element", kind.element_type
            case ice.MapType():
                place, kind = f"{place}.value", kind.value_type
            case _:
                return
        yield place


def simple_kind(value: Any, rules: NewFieldTypes) -> object:
    """Return the kind of a value without parts: values of one kind have one type. None for other values."""
    match value:
        case bool():
            return bool
        case int():
            return int if -_INT64 <= value < _INT64 else None
        case Decimal():
            return Decimal
        case str() if not rules.times:
            return str
        case _:
            return None


def value_types(value: Any, rules: NewFieldTypes, depth: int = 0) -> Iterator[ice.IcebergType | None]:
    """Yield the types that a value needs of its column, one for each value without parts: `struct<a: struct<b: long>>`.

    None stands for a number of more than 38 digits, which no column holds.
    """
    match value:
        case None:
            return
        case bool():
            yield ice.BooleanType()
        case int():
            digits = len(str(abs(value)))
            if -_INT64 <= value < _INT64:
                yield ice.LongType()
            else:
                yield ice.DecimalType(_MOST_DIGITS, 0) if digits <= _MOST_DIGITS else None
        case Decimal():
            yield _fraction(rules)
        case str():
            form = text_form(value) if rules.times else None
            yield _FORMS[form] if form else ice.StringType()
        case _ if depth >= _DEEPEST:
            yield None
        case list():
            for inner in value:
                for kind in value_types(inner, rules, depth + 1):
                    yield kind and list_of(kind)
        case _:
            for name, inner in value.items():
                for kind in value_types(inner, rules, depth + 1):
                    yield kind and object_of(name, kind, rules)


def value_type(kind: UndeclaredKind, rules: NewFieldTypes) -> ice.IcebergType | None:
    """Return the type for all values of one kind, as `value_types` does; None if they have to be looked at."""
    match kind:
        case "boolean":
            return ice.BooleanType()
        case "integer":
            return ice.LongType()
        case "fraction":
            return _fraction(rules)
        case "text" if not rules.times:
            return ice.StringType()
        case _:
            return None


def list_of(kind: ice.IcebergType) -> ice.IcebergType:
    """Return the type of an array with an element of the type."""
    return ice.ListType(0, kind, element_required=False)


def object_of(name: str, kind: ice.IcebergType, rules: NewFieldTypes) -> ice.IcebergType:
    """Return the type of an object with a field of the type."""
    if rules.objects == "map":
        return ice.MapType(0, ice.StringType(), 0, kind, value_required=False)
    return ice.StructType(ice.NestedField(0, name, kind, required=False))


def _fraction(rules: NewFieldTypes) -> ice.IcebergType:
    return ice.DecimalType(*rules.decimal) if rules.decimal else ice.DoubleType()


def former_column(declared: StructType, record: Any, path: Path) -> Path | None:
    """Return the column that a new field may be under its former name; None if not exactly one is alike.

    Args:
        declared: The columns.
        record: The record as `parsed` returns it, under the names of columns.
        path: Path that the column of the field would have.
    """
    name, fields, seen = path[-1], dict[str, DeclaredType](), dict[str, Any]()
    for struct, value in _structs(declared, record, path[:-1]):
        fields = {each.name: each.type for each in struct.fields}
        seen |= {key: inner for key, inner in value.items() if inner is not None or key not in seen}
    if name not in seen or len(seen) > _MOST_FIELDS:
        return None
    gone = {column: column_type for column, column_type in fields.items() if column not in seen}
    found = [column for column, column_type in gone.items() if _alike(column, column_type, name, seen[name])]
    if len(found) != 1:
        return None
    rivals = [each for each in seen if each not in fields and _alike(found[0], gone[found[0]], each, seen[each])]
    return (*path[:-1], found[0]) if rivals == [name] else None


def _structs(declared: DeclaredType, value: Any, path: Path) -> Iterator[tuple[StructType, dict[str, Any]]]:
    """Yield every object of a record at a path, with its declared fields."""
    match declared:
        case StructType(fields) if isinstance(value, dict):
            if not path:
                yield declared, value
                return
            inner = next((each.type for each in fields if each.name == path[0]), None)
            if inner is not None:
                yield from _structs(inner, value.get(path[0]), path[1:])
        case ListType(element) if isinstance(value, list) and path[:1] == ("element",):
            for each in value:
                yield from _structs(element, each, path[1:])
        case MapType(_, inner) if isinstance(value, dict) and path[:1] == ("value",):
            for each in value.values():
                yield from _structs(inner, each, path[1:])
        case _:
            return


def _alike(column: str, kind: DeclaredType, field: str, value: Any) -> bool:
    return _takes(kind, value) and similar(column, field)


def _takes(kind: DeclaredType, value: Any) -> bool:
    """Return whether a column is of the kind of a JSON value; one with a text form takes texts."""
    match value:
        case bool():
            return isinstance(kind, Primitive) and kind.name == "boolean"
        case int() | Decimal() | float():
            return isinstance(kind, Primitive) and kind.name in _NUMBERS
        case str():
            return isinstance(kind, Primitive) and kind.name not in _NUMBERS and kind.name != "boolean"
        case list():
            return isinstance(kind, ListType)
        case dict():
            return isinstance(kind, StructType | MapType)
        case _:
            return False
