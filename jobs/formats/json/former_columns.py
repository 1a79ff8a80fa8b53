"""Former names of new JSON fields: the column that a record lacks where it has a field without one, and that is alike.

JSON says neither types nor positions, so of a record that has the field it is asked: which columns of the same struct
has it not, and would one of them take such a value under a similar name? It has to be the only one, and so has the
field.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from jobs.schema.declared import DeclaredType, ListType, MapType, Primitive, StructType
from jobs.schema.needs import Path
from jobs.schema.rename import similar

_NUMBERS = frozenset({"int", "long", "float", "double", "decimal"})
_MOST_FIELDS = 1_000


def former_column(declared: StructType, record: Any, path: Path) -> Path | None:
    """The column that a new field of a record may be under its former name; None if no single one is alike.

    Args:
        declared: The columns.
        record: As `parsed` gives it, under the names of columns.
        path: Where the column of the field would be.
    """
    name, fields, seen = path[-1], dict[str, DeclaredType](), dict[str, Any]()
    for struct, value in _structs(declared, record, path[:-1]):
        fields = {each.name: each.type for each in struct.fields}
        seen |= {key: inner for key, inner in value.items() if inner is not None or key not in seen}
    if name not in seen or len(seen) > _MOST_FIELDS:
        return None
    gone = {each: kind for each, kind in fields.items() if each not in seen}
    found = [each for each, kind in gone.items() if _alike(each, kind, name, seen[name])]
    if len(found) != 1:
        return None
    rivals = [each for each in seen if each not in fields and _alike(found[0], gone[found[0]], each, seen[each])]
    return (*path[:-1], found[0]) if rivals == [name] else None


def _structs(declared: DeclaredType, value: Any, path: Path) -> Iterator[tuple[StructType, dict[str, Any]]]:
    """Every object of a record that stands where a path leads to, with its declared fields."""
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
    """Whether a column is of the kind that a value of JSON is; one with a text form takes texts."""
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
