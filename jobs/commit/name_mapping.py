"""Name mapping of a table: which names in records, and in files without field ids, are which columns.

It is kept as columns come and are renamed: a column's former name stays one of its names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import (
    MappedField,
    NameMapping,
    create_mapping_from_schema,
    parse_mapping_from_json,
    update_mapping,
)
from pyiceberg.types import NestedField

from jobs.schema.difference import RenamedColumn, renamed_schema
from jobs.schema.name_matching import NAME_MAPPING
from jobs.schema.schema_change import SchemaChange, columns_of

_TOP = -1


def changed_mapping(
    properties: Mapping[str, str],
    before: Schema,
    after: Schema,
    changes: Sequence[SchemaChange],
    renames: Sequence[RenamedColumn] = (),
) -> dict[str, str]:
    """The property as a change of the schema makes it; nothing where it stays as it is.

    A table without a mapping gets one when a column is renamed, so that records with its former name still land.

    Args:
        properties: The table's.
        before: The schema before.
        after: The schema with the renames and changes made.
        changes: What is changed, after the renames.
        renames: Columns that are called otherwise, in this order.
    """
    text, columns = properties.get(NAME_MAPPING), dict(columns_of(after))
    added: dict[int, list[NestedField]] = {}
    for each in changes:
        if each.change == "add":
            parent = columns[each.path[:-1]].field_id if each.path[1:] else _TOP
            added.setdefault(parent, []).append(columns[each.path])
    if not renames and (text is None or not added):
        return {}
    mapping = create_mapping_from_schema(before) if text is None else parse_mapping_from_json(text)
    for rename in renames:
        known = dict(columns_of(before))
        chain = [known[rename.old[: depth + 1]] for depth in range(len(rename.old))]
        mapping = NameMapping(_with_entry(mapping.root, chain))
        before = renamed_schema(before, [rename])
        column = before.find_field(chain[-1].field_id)
        mapping = update_mapping(mapping, {column.field_id: column}, {})
    return {NAME_MAPPING: update_mapping(mapping, {}, added).model_dump_json()}


def _with_entry(fields: Sequence[MappedField], chain: Sequence[NestedField]) -> list[MappedField]:
    """The entries with one for each column of a chain from the top, which has the column's name among its names."""
    column, *rest = chain
    entry = next((each for each in fields if each.field_id == column.field_id), None)
    names = [] if entry is None else entry.names
    inner = [] if entry is None else entry.fields
    # PyIceberg's model has an alias, of which a type checker sees the keyword only.
    made = MappedField.model_validate(
        {
            "field-id": column.field_id,
            "names": names if column.name in names else [*names, column.name],
            "fields": _with_entry(inner, rest) if rest else inner,
        }
    )
    if entry is None:
        return [*fields, made]
    return [made if each is entry else each for each in fields]
