"""Rename suggestions: a column that is gone and a field that is new may be one and the same under another name.

A suggestion is shown to a person and never applied by itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.schema.difference import Difference
from jobs.schema.needs import Path

_SIMILAR = 0.6


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
        return f"--rename {'.'.join(self.old)}={'.'.join(self.new)}"


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
        if columns.index(old_field.name) != _names(rows, within).index(new_field.name):
            continue
        if similar(old_field.name, new_field.name):
            yield RenameSuggestion(gone[0].path, new[0].path)


def similar(one: str, other: str) -> bool:
    """Whether two names are likely to mean the same: one within the other, or most letters alike."""
    one, other = _plain(one), _plain(other)
    if min(len(one), len(other)) >= 3 and (one in other or other in one):
        return True
    return difflib.SequenceMatcher(None, one, other).ratio() >= _SIMILAR


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
