"""Field ids of a schema that is put together from parts: numbered anew, as a catalog would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyiceberg import types as ice
from pyiceberg.schema import Schema, assign_fresh_schema_ids


def fresh_schema(fields: Iterable[ice.NestedField]) -> Schema:
    """The schema of fields whose ids mean nothing, with fresh ids."""
    return assign_fresh_schema_ids(Schema(*numbered(fields)))


def numbered(fields: Iterable[ice.NestedField]) -> Iterator[ice.NestedField]:
    """The fields under other ids, which have to differ until a catalog numbers them."""
    ids = iter(range(1, 1_000_000))
    for field in fields:
        kind = _renumbered(field.field_type, ids)
        yield ice.NestedField(next(ids), field.name, kind, required=field.required, doc=field.doc)


def _renumbered(kind: ice.IcebergType, ids: Iterator[int]) -> ice.IcebergType:
    match kind:
        case ice.StructType():
            return ice.StructType(
                *(
                    ice.NestedField(next(ids), each.name, _renumbered(each.field_type, ids), each.required, each.doc)
                    for each in kind.fields
                )
            )
        case ice.ListType():
            element = _renumbered(kind.element_type, ids)
            return ice.ListType(next(ids), element, element_required=kind.element_required)
        case ice.MapType():
            key, value = _renumbered(kind.key_type, ids), _renumbered(kind.value_type, ids)
            return ice.MapType(next(ids), key, next(ids), value, value_required=kind.value_required)
        case _:
            return kind
