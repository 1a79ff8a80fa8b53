"""Differences of two schemas by path, and renames of columns: requested ones, and suggestions."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.base.errors import FrazilError
from jobs.records.schema.compatibility import holds, widened_type
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.schema.name_matching import NameRule, with_column_names
from jobs.records.schema.needs import Need, Path, column_name
from jobs.records.schema.rescued_data import EXTRA_COLUMN

DifferenceKind: TypeAlias = Literal[
    "added", "gone", "widened", "narrowed", "other_type", "now_required", "now_optional", "case"
]
"""The difference of a field of the rows: the table has no such column; the rows lack a column; its type is wider,
narrower, another; it is required while the column accepts null, or the other way round; the table's name differs only
by case.
"""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference, at one path. A field may have two: in its type, and in whether it is required.

    Attributes:
        kind: What differs.
        path: Path of the field in the rows, or of the column that they lack; all below it is added or missing with it.
        rows: The rows' field; None if the rows lack it.
        table: The table's column; None if the table lacks it.
        needs: The change of the table that ends the difference; None if none is needed, or none is possible.
        fits: Whether the present table takes every value of the rows without loss.
    """

    kind: DifferenceKind
    path: Path
    rows: ice.NestedField | None
    table: ice.NestedField | None
    needs: Need | None = None
    fits: bool = True

    @property
    def column(self) -> str:
        """Return the path as Iceberg writes it: `payer.name`, `items.element.sku`."""
        return ".".join(self.path)

    def __str__(self) -> str:
        return f"{self.column}: {_sentence(self)}"


def differences(rows: Schema, table: Schema, *, own: Collection[str] = ()) -> list[Difference]:
    """Return the differences between the rows of a stream and its table.

    Args:
        rows: Columns of the records.
        table: Columns of the table.
        own: Columns of the table that frazil fills itself, such as `_kafka_offset`, which no record has.

    Returns:
        Differences in the order of the rows' fields, each struct's missing columns behind them; empty if there are
        none. The order of columns, their ids and their docs are ignored.
    """
    columns = [column for column in table.fields if column.name not in own]
    return list(_of_structs(rows.fields, columns, ()))


def _of_structs(
    fields: Collection[ice.NestedField], columns: Collection[ice.NestedField], at: Path
) -> Iterator[Difference]:
    by_name = {column.name: column for column in columns}
    by_case = {column.name.casefold(): column for column in columns}
    for field in fields:
        path = (*at, field.name)
        if (column := by_name.get(field.name)) is not None:
            yield from _of_fields(field, column, path)
        elif (other := by_case.get(field.name.casefold())) is not None:
            yield Difference("case", path, field, other, None, fits=False)
        else:
            yield Difference("added", path, field, None, Need("add", path, field.field_type), fits=False)
    given = {field.name.casefold() for field in fields}
    for column in columns:
        if column.name.casefold() not in given:
            path = (*at, column.name)
            relax = Need("relax", path) if column.required else None
            yield Difference("gone", path, None, column, relax, fits=not column.required)


def _of_fields(field: ice.NestedField, column: ice.NestedField, path: Path) -> Iterator[Difference]:
    if field.required and not column.required:
        yield Difference("now_required", path, field, column)
    elif column.required and not field.required:
        # The policy also covers a map's key, and a column under a partition.
        yield Difference("now_optional", path, field, column, Need("relax", path), fits=False)
    match field.field_type, column.field_type:
        case ice.StructType() as inner, ice.StructType() as outer:
            yield from _of_structs(inner.fields, outer.fields, path)
        case ice.ListType() as inner, ice.ListType() as outer:
            yield from _of_fields(inner.element_field, outer.element_field, (*path, "element"))
        case ice.MapType() as inner, ice.MapType() as outer:
            yield from _of_fields(inner.key_field, outer.key_field, (*path, "key"))
            yield from _of_fields(inner.value_field, outer.value_field, (*path, "value"))
        case inner, outer if inner != outer:
            yield _of_types(field, column, path)
        case _:
            return


def _of_types(field: ice.NestedField, column: ice.NestedField, path: Path) -> Difference:
    if not (field.field_type.is_primitive and column.field_type.is_primitive):
        return Difference("other_type", path, field, column, None, fits=False)
    if holds(field.field_type, column.field_type):
        return Difference("narrowed", path, field, column)
    wider = widened_type(field.field_type, column.field_type)
    # Iceberg compares the keys of a map by their written form.
    if wider is None or path[-1:] == ("key",):
        return Difference("other_type", path, field, column, None, fits=False)
    return Difference("widened", path, field, column, Need("widen", path, wider), fits=False)


def _sentence(difference: Difference) -> str:
    rows, table = difference.rows, difference.table
    said: Mapping[DifferenceKind, str] = {
        "added": f"{_type(rows)} is not in the table",
        "gone": f"{_type(table)} of the table is not among the fields",
        "widened": f"{_type(rows)} is wider than the table's {_type(table)}",
        "narrowed": f"{_type(rows)} fits in the table's {_type(table)}",
        "other_type": f"{_type(rows)} is another type than the table's {_type(table)}",
        "now_required": "is always there; the table accepts null",
        "now_optional": "may be null or missing; the table requires it",
        "case": f"the table calls it {table.name if table else ''}: names differ by case only",
    }
    return said[difference.kind]


def _type(field: ice.NestedField | None) -> str:
    return schema_text(field.field_type) if field else ""


_SIMILAR = 0.6


@dataclass(frozen=True, slots=True)
class RenamedColumn:
    """A new name for a column.

    Attributes:
        old: Its present path.
        new: Its new path, in the same struct.
    """

    old: Path
    new: Path

    def __str__(self) -> str:
        return f"rename column {'.'.join(self.old)} to {'.'.join(self.new)}"


def parse_rename(text: str) -> RenamedColumn:
    """Read `OLD=NEW`, each a dotted name; NEW may be only the last name.

    Raises:
        FrazilError: The text is no rename.
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
    """Return the schema with columns renamed, in this order.

    Raises:
        FrazilError: The column does not exist, or another one has the name.
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
    """A column of the table that may have another name in the rows.

    Attributes:
        old: Path of the column.
        new: Path of the field; the two differ only in the last name.
    """

    old: Path
    new: Path

    @property
    def option(self) -> str:
        """Return the option of `frazil schema apply` that renames it."""
        return rename_option(self.old, self.new)

    @property
    def facts(self) -> dict[str, str]:
        """Return the two names as JSON has them."""
        return {"old": column_name(self.old), "new": column_name(self.new)}

    def __str__(self) -> str:
        return f"column {column_name(self.old)} may be called {column_name(self.new)} now"


def rename_option(old: Path, new: Path) -> str:
    """Return the option of `frazil schema apply` that renames a column."""
    return f"--rename {column_name(old)}={column_name(new)}"


def rename_suggestions(
    found: Sequence[Difference], rows: Schema, table: Schema, *, own: Collection[str] = ()
) -> list[RenameSuggestion]:
    """Return columns that may have been renamed.

    In such a struct exactly one column is missing and one is new, at the same position, of the same type, with similar
    names.

    Args:
        found: Result of `differences` for the same schemas.
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
    """Return the needs of rows; a new column with the column that may be the same under its former name.

    Args:
        needs: Needs of rows of a writer schema.
        rows: The fields of the writer schema.
        columns: The stream's columns.
        names: How fields and columns are matched.
    """
    if all(need.change != "add" for need in needs):
        return tuple(needs)
    fields, own = with_column_names(rows, columns, names), {EXTRA_COLUMN}
    found = rename_suggestions(differences(fields, columns, own=own), fields, columns, own=own)
    former = {each.new: each.old for each in found}
    return tuple(replace(each, former=former.get(each.path)) if each.change == "add" else each for each in needs)


def similar(one: str, other: str) -> bool:
    """Return whether two names are likely to mean the same: one contains the other, or most letters are alike."""
    one, other = _plain(one), _plain(other)
    if min(len(one), len(other)) >= 3 and (one in other or other in one):
        return True
    return difflib.SequenceMatcher(None, one, other).ratio() >= _SIMILAR


def _same_position(columns: Sequence[str], column: str, fields: Sequence[str], field: str) -> bool:
    """Return whether a column stands where a field does: at the same index, or beside the same neighbour."""
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
    """Return whether two types are the same except for the ids of fields within."""
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
