"""Renamed columns: a schema in which columns have other names and keep their ids, as somebody asked for by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.errors import FrazilError
from jobs.schema.needs import Path


@dataclass(frozen=True, slots=True)
class RenamedColumn:
    """A column that is called otherwise from now on.

    Attributes:
        old: Its path.
        new: Its path from now on, in the same struct.
    """

    old: Path
    new: Path

    def __str__(self) -> str:
        return f"rename column {'.'.join(self.old)} to {'.'.join(self.new)}"


def parse_rename(text: str) -> RenamedColumn:
    """Read `OLD=NEW`, each a dotted name; of NEW the last name is enough.

    Raises:
        FrazilError: It is none.
    """
    old, sign, new = (part.strip() for part in text.partition("="))
    path = tuple(old.split("."))
    if not sign or not new or not all(path):
        raise FrazilError(f"'{text}' renames nothing.", fix="write it as --rename OLD=NEW")
    to = tuple(new.split("."))
    to = (*path[:-1], *to) if len(to) == 1 else to
    if to[:-1] != path[:-1] or not to[-1] or to == path:
        raise FrazilError(
            f"column {old} cannot become {new}: a column stays in its struct.", fix="write it as --rename a.old=a.new"
        )
    return RenamedColumn(path, to)


def renamed_schema(schema: Schema, renames: Sequence[RenamedColumn]) -> Schema:
    """The schema with columns renamed, in this order.

    Raises:
        FrazilError: There is no such column, or another one has the name.
    """
    for rename in renames:
        fields = _renamed(schema.as_struct(), rename, 0)
        schema = Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)
    return schema


def _renamed(struct: ice.StructType, rename: RenamedColumn, depth: int) -> list[ice.NestedField]:
    name = rename.old[depth]
    if not any(field.name == name for field in struct.fields):
        raise FrazilError(f"the table has no column {'.'.join(rename.old[: depth + 1])}, so it cannot be renamed.")
    if depth < len(rename.old) - 1:
        return [
            field.model_copy(update={"field_type": _within(field.field_type, rename, depth + 1)})
            if field.name == name
            else field
            for field in struct.fields
        ]
    new = rename.new[-1]
    if taken := next((f.name for f in struct.fields if f.name != name and f.name.casefold() == new.casefold()), None):
        raise FrazilError(f"column {'.'.join(rename.old)} cannot become {new}: there is a column {taken} already.")
    return [field.model_copy(update={"name": new}) if field.name == name else field for field in struct.fields]


def _within(kind: ice.IcebergType, rename: RenamedColumn, depth: int) -> ice.IcebergType:
    last = depth == len(rename.old) - 1
    match kind:
        case ice.StructType():
            return ice.StructType(*_renamed(kind, rename, depth))
        case ice.ListType() if rename.old[depth] == "element" and not last:
            inner = _within(kind.element_type, rename, depth + 1)
            return ice.ListType(kind.element_id, inner, element_required=kind.element_required)
        case ice.MapType() if rename.old[depth] == "value" and not last:
            inner = _within(kind.value_type, rename, depth + 1)
            return ice.MapType(kind.key_id, kind.key_type, kind.value_id, inner, value_required=kind.value_required)
        case _:
            raise FrazilError(f"the table has no column {'.'.join(rename.old)}, so it cannot be renamed.")
