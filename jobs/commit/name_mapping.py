"""Name mapping of a table: which names in files without field ids are which columns, kept as columns come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import parse_mapping_from_json, update_mapping
from pyiceberg.types import NestedField

from jobs.schema.schema_change import SchemaChange, columns_of

PROPERTY = "schema.name-mapping.default"
_TOP = -1


def mapping_with_new_columns(
    properties: Mapping[str, str], changed: Schema, changes: Sequence[SchemaChange]
) -> dict[str, str]:
    """The property with the columns that come; nothing where the table has no such mapping, or none comes.

    Args:
        properties: The table's.
        changed: The schema with the changes made.
        changes: What is changed.
    """
    text, columns = properties.get(PROPERTY), dict(columns_of(changed))
    added: dict[int, list[NestedField]] = {}
    for each in changes:
        if each.change == "add":
            parent = columns[each.path[:-1]].field_id if each.path[1:] else _TOP
            added.setdefault(parent, []).append(columns[each.path])
    if text is None or not added:
        return {}
    return {PROPERTY: update_mapping(parse_mapping_from_json(text), {}, added).model_dump_json()}
