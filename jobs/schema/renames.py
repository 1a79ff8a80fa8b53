"""Renames of columns: those that a person asks for, and those that a person may want.

A column that is renamed keeps its id. A suggestion is shown and never applied by itself: one missing column and one
new field, of the same type and at the same position, whose names are alike. It comes from two schemas, or from a record
of a writer schema beside its table.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.errors import FrazilError
from jobs.schema.difference import Difference, differences
from jobs.schema.name_matching import NameRule, with_column_names
from jobs.schema.needs import Need, Path, column_name
from jobs.schema.rescued_data import EXTRA_COLUMN

_SIMILAR = 0.6


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
        fields = _renamed_fields(schema.as_struct(), rename, 0)
        schema = Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)
    return schema


def _renamed_fields(struct: ice.StructType, rename: RenamedColumn, depth: int) -> list[ice.NestedField]:
    name = rename.old[depth]
    if not any(field.name == name for field in struct.fields):
        raise FrazilError(f"the table has no column {'.'.join(rename.old[: depth + 1])}, so it cannot be renamed.")
    if depth < len(rename.old) - 1:
        return [
            field.model_copy(update={"field_type": _renamed_within(field.field_type, rename, depth + 1)})
            if field.name == name
            else field
            for field in struct.fields
        ]
    new = rename.new[-1]
    if taken := next((f.name for f in struct.fields if f.name != name and f.name.casefold() == new.casefold()), None):
        raise FrazilError(f"column {'.'.join(rename.old)} cannot become {new}: there is a column {taken} already.")
    return [field.model_copy(update={"name": new}) if field.name == name else field for field in struct.fields]


def _renamed_within(kind: ice.IcebergType, rename: RenamedColumn, depth: int) -> ice.IcebergType:
    last = depth == len(rename.old) - 1
    match kind:
        case ice.StructType():
            return ice.StructType(*_renamed_fields(kind, rename, depth))
        case ice.ListType() if rename.old[depth] == "element" and not last:
            inner = _renamed_within(kind.element_type, rename, depth + 1)
            return ice.ListType(kind.element_id, inner, element_required=kind.element_required)
        case ice.MapType() if rename.old[depth] == "value" and not last:
            inner = _renamed_within(kind.value_type, rename, depth + 1)
            return ice.MapType(kind.key_id, kind.key_type, kind.value_id, inner, value_required=kind.value_required)
        case _:
            raise FrazilError(f"the table has no column {'.'.join(rename.old)}, so it cannot be renamed.")


@dataclass(frozen=True, slots=True)
class RenameSuggestion:
    """A column of the table that may be called otherwise in the rows.

    Attributes:
        old: Path of the column.
        new: Path of the field; the two differ in the last name only.
    """

    old: Path
    new: Path

    @property
    def option(self) -> str:
        """The option of `frazil schema apply` that renames it."""
        return rename_option(self.old, self.new)

    @property
    def facts(self) -> dict[str, str]:
        """The two names as JSON has them."""
        return {"old": column_name(self.old), "new": column_name(self.new)}

    def __str__(self) -> str:
        return f"column {column_name(self.old)} may be called {column_name(self.new)} now"


def rename_option(old: Path, new: Path) -> str:
    """The option of `frazil schema apply` that gives a column another name."""
    return f"--rename {column_name(old)}={column_name(new)}"


def rename_suggestions(
    found: Sequence[Difference], rows: Schema, table: Schema, *, own: Collection[str] = ()
) -> list[RenameSuggestion]:
    """Columns that may have been renamed: in one struct exactly one is gone and one is new, at the same position, of
    the same type, and the names are alike.

    Args:
        found: What `differences` gives for the same schemas.
        own: Columns of the table that frazil fills itself.
    """
    return list(_suggestions(found, rows, table, own))


def _suggestions(
    found: Sequence[Difference], rows: Schema, table: Schema, own: Collection[str]
) -> Iterator[RenameSuggestion]:
    for within in dict.fromkeys(each.path[:-1] for each in found):
        gone = [each for each in found if each.kind == "gone" and each.path[:-1] == within]
        new = [each for each in found if each.kind == "added" and each.path[:-1] == within]
        if len(gone) != 1 or len(new) != 1:
            continue
        old_field, new_field = gone[0].table, new[0].rows
        if old_field is None or new_field is None or not _same_type(old_field.field_type, new_field.field_type):
            continue
        columns = [name for name in _names(table, within) if within or name not in own]
        if not _same_position(columns, old_field.name, _names(rows, within), new_field.name):
            continue
        if similar(old_field.name, new_field.name):
            yield RenameSuggestion(gone[0].path, new[0].path)


def with_former_column(needs: Sequence[Need], rows: Schema, columns: Schema, names: NameRule) -> tuple[Need, ...]:
    """The needs of rows, those of new columns with the column that may be the same under its former name.

    Args:
        needs: What rows of a writer schema need of their table.
        rows: The fields of the writer schema.
        columns: The stream's.
        names: How the two are matched.
    """
    if all(need.change != "add" for need in needs):
        return tuple(needs)
    fields, own = with_column_names(rows, columns, names), {EXTRA_COLUMN}
    found = rename_suggestions(differences(fields, columns, own=own), fields, columns, own=own)
    former = {each.new: each.old for each in found}
    return tuple(replace(each, former=former.get(each.path)) if each.change == "add" else each for each in needs)


def similar(one: str, other: str) -> bool:
    """Whether two names are likely to mean the same: one within the other, or most letters alike."""
    one, other = _plain(one), _plain(other)
    if min(len(one), len(other)) >= 3 and (one in other or other in one):
        return True
    return difflib.SequenceMatcher(None, one, other).ratio() >= _SIMILAR


def _same_position(columns: Sequence[str], column: str, fields: Sequence[str], field: str) -> bool:
    """Whether a column stands where a field does: as many before it, or the same neighbour before or behind it."""
    at, place = columns.index(column), fields.index(field)
    if at == place:
        return True
    before = at > 0 and place > 0 and columns[at - 1] == fields[place - 1]
    behind = at + 1 < len(columns) and place + 1 < len(fields) and columns[at + 1] == fields[place + 1]
    return before or behind


def _plain(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum())


def _names(schema: Schema, within: Path) -> list[str]:
    kind: ice.IcebergType = schema.find_type(".".join(within)) if within else schema.as_struct()
    return [field.name for field in kind.fields] if isinstance(kind, ice.StructType) else []


def _same_type(one: ice.IcebergType, other: ice.IcebergType) -> bool:
    """Whether two types are the same but for the ids of fields within."""
    match one, other:
        case ice.StructType(), ice.StructType():
            return [(f.name, f.required) for f in one.fields] == [(f.name, f.required) for f in other.fields] and all(
                _same_type(a.field_type, b.field_type) for a, b in zip(one.fields, other.fields, strict=True)
            )
        case ice.ListType(), ice.ListType():
            return _same_type(one.element_type, other.element_type)
        case ice.MapType(), ice.MapType():
            return _same_type(one.key_type, other.key_type) and _same_type(one.value_type, other.value_type)
        case _:
            return one == other
