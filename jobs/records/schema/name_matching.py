"""Name matching: which field of a record goes into which column of each struct.

A field goes into the column with exactly its name; else into the one that has the name as an alias in the table's name
mapping; else, if requested, into the one whose name or alias differs from it only by case. If two columns have equal
claim to a field, neither gets it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pydantic import ValidationError
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.base.errors import FrazilError
from jobs.base.spark_names import spark_name
from jobs.records.schema.needs import Path

if TYPE_CHECKING:
    from pyiceberg.table.name_mapping import MappedField

NAME_MAPPING = "schema.name-mapping.default"
"""Iceberg's property of a table: a list of `{field-id, names, fields}` as JSON."""

NAME_RULE = "names"
"""The option of decoders that is a `NameRule`; set only if the rule is not the default."""

Aliases = tuple[tuple[Path, tuple[str, ...]], ...]
"""Other names of columns, by their path in the table."""


@dataclass(frozen=True, slots=True)
class NameRule:
    """How fields of records are matched with columns. The rule is false if only exact names match.

    Attributes:
        aliases: Further names of columns.
        any_case: Whether names match that differ only by case.
    """

    aliases: Aliases = ()
    any_case: bool = False

    def __bool__(self) -> bool:
        return self.any_case or bool(self.aliases)

    def of_struct(self, path: Path, columns: Iterable[str]) -> StructNames:
        """Return the names of one struct's columns.

        Args:
            path: Path of the struct; empty for the record.
            columns: Columns of the struct.
        """
        names = list(columns)
        aliases = {each[-1]: known for each, known in self.aliases if each[:-1] == path and each[-1] in names}
        return StructNames(names, aliases, any_case=self.any_case)

    def spellings(self, path: Path, table: ice.StructType) -> list[Path]:
        """Return every spelling of a path of keys in records, also through lists and maps; the path itself first.

        Args:
            path: Names of columns, or of fields that have none.
            table: Columns of the table.
        """
        return [path, *(each for each in _spelt(self, path, table, ()) if each != path)]


EXACT_NAMES = NameRule()


class StructNames:
    """The columns of a struct by the names of fields.

    Args:
        columns: Names of the columns.
        aliases: Further names of the columns.
        any_case: Whether names match that differ only by case.

    Attributes:
        plain: Whether only fields with exactly their column's name match.
        near: The column of each name without case, and the name that matches it; without disputed names.
    """

    def __init__(self, columns: Iterable[str], aliases: Mapping[str, Iterable[str]], *, any_case: bool) -> None:
        own = {name: name for name in columns}
        claims = [(name, column) for column, names in aliases.items() for name in names if name not in own]
        self._exact: dict[str, str | None] = {**_undisputed(claims), **own}
        folded = _undisputed((name.casefold(), column) for name, column in claims)
        self._folded: dict[str, str | None] = {}
        if any_case:
            self._folded = folded | _undisputed((name.casefold(), name) for name in own)
        self.plain: bool = not claims and not any_case
        spelt = {name.casefold(): name for name, _ in claims}
        self.near: dict[str, tuple[str, str]] = {
            name: (column, spelt[name]) for name, column in folded.items() if column is not None
        }
        self.near |= {name.casefold(): (name, name) for name in own}

    def column(self, field: str) -> str | None:
        """Return the column that takes a field of this name; None if none does."""
        if field in self._exact:
            return self._exact[field]
        return self._folded.get(field.casefold()) if self._folded else None


def _undisputed(claims: Iterable[tuple[str, str]]) -> dict[str, str | None]:
    """Return the column of each name; None for a name that several columns claim."""
    found: dict[str, str | None] = {}
    for name, column in claims:
        found[name] = column if found.get(name, column) == column else None
    return found


def _spelt(rule: NameRule, path: Path, kind: ice.IcebergType, at: Path) -> Iterator[Path]:
    match kind:
        case _ if not path:
            yield ()
        case ice.ListType():
            yield from _spelt(rule, path, kind.element_type, (*at, "element"))
        case ice.MapType():
            yield from _spelt(rule, path, kind.value_type, (*at, "value"))
        case ice.StructType():
            names = rule.of_struct(at, [each.name for each in kind.fields])
            column = next((each for each in kind.fields if each.name == names.column(path[0])), None)
            if column is None:
                yield path
                return
            aliases = dict(rule.aliases).get((*at, column.name), ())
            for rest in _spelt(rule, path[1:], column.field_type, (*at, column.name)):
                yield from ((name, *rest) for name in dict.fromkeys((path[0], column.name, *aliases)))
        case _:
            yield path


def with_column_names(rows: Schema, columns: Schema, names: NameRule) -> Schema:
    """Return the fields of records under the names of their columns; of several for one column the first."""
    if not names:
        return rows
    named = _named(rows.as_struct(), columns.as_struct(), names, ())
    return Schema(*named.fields) if isinstance(named, ice.StructType) else rows


def _named(kind: ice.IcebergType, columns: ice.IcebergType, names: NameRule, at: Path) -> ice.IcebergType:
    match kind, columns:
        case ice.StructType(), ice.StructType():
            matching = names.of_struct(at, [each.name for each in columns.fields])
            types = {each.name: each.field_type for each in columns.fields}
            found: dict[str, ice.NestedField] = {}
            for each in kind.fields:
                name, inner = matching.column(each.name) or each.name, each.field_type
                if name in types:
                    inner = _named(inner, types[name], names, (*at, name))
                found.setdefault(name, each.model_copy(update={"name": name, "field_type": inner}))
            return ice.StructType(*found.values())
        case ice.ListType(), ice.ListType():
            element = _named(kind.element_type, columns.element_type, names, (*at, "element"))
            return ice.ListType(kind.element_id, element, element_required=kind.element_required)
        case ice.MapType(), ice.MapType():
            key = _named(kind.key_type, columns.key_type, names, (*at, "key"))
            value = _named(kind.value_type, columns.value_type, names, (*at, "value"))
            return ice.MapType(kind.key_id, key, kind.value_id, value, value_required=kind.value_required)
        case _:
            return kind


def alike_columns(rows: Schema) -> list[str]:
    """Return columns whose names differ from another one's only by case, as sentences; within the same struct."""
    return list(_alike(rows.as_struct(), ()))


def _alike(kind: ice.IcebergType, at: Path) -> Iterator[str]:
    match kind:
        case ice.StructType():
            seen: dict[str, str] = {}
            for each in kind.fields:
                if (other := seen.setdefault(each.name.casefold(), each.name)) != each.name:
                    yield f"columns {'.'.join((*at, other))} and {'.'.join((*at, each.name))} differ by case only"
                yield from _alike(each.field_type, (*at, each.name))
        case ice.ListType():
            yield from _alike(kind.element_type, (*at, "element"))
        case ice.MapType():
            yield from _alike(kind.key_type, (*at, "key"))
            yield from _alike(kind.value_type, (*at, "value"))
        case _:
            return


def aliases_of(table: Schema, properties: Mapping[str, str], name: str) -> Aliases:
    """Return the further names of columns in a table's name mapping, except those that are another column's own name.

    Raises:
        FrazilError: The property is no name mapping.
    """
    text = properties.get(NAME_MAPPING)
    if text is None:
        return ()
    try:
        names = _names_by_id(text)
    except ValidationError:
        raise FrazilError(
            f"the property {NAME_MAPPING} of table {name} is no name mapping as Iceberg has it, a list of field-id, "
            "names and fields, so nobody knows which columns a record's fields are.",
            fix=f"in Spark: ALTER TABLE {spark_name(name)} UNSET TBLPROPERTIES ('{NAME_MAPPING}'), or correct it",
        ) from None
    return tuple(_aliases(table.as_struct(), names, ())) if names else ()


def _aliases(
    kind: ice.IcebergType, names: Mapping[int, tuple[str, ...]], at: Path
) -> Iterator[tuple[Path, tuple[str, ...]]]:
    match kind:
        case ice.StructType():
            own = {each.name for each in kind.fields}
            for each in kind.fields:
                if further := tuple(name for name in names.get(each.field_id, ()) if name not in own):
                    yield (*at, each.name), further
                yield from _aliases(each.field_type, names, (*at, each.name))
        case ice.ListType():
            yield from _aliases(kind.element_type, names, (*at, "element"))
        case ice.MapType():
            yield from _aliases(kind.key_type, names, (*at, "key"))
            yield from _aliases(kind.value_type, names, (*at, "value"))
        case _:
            return


@lru_cache(maxsize=64)
def _names_by_id(text: str) -> Mapping[int, tuple[str, ...]]:
    # Imported here: it loads PyIceberg's table code, which a caller that only loads a file does not need.
    from pyiceberg.table.name_mapping import parse_mapping_from_json

    return dict(_by_id(parse_mapping_from_json(text).root))


def _by_id(fields: Iterable[MappedField]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for each in fields:
        if each.field_id is not None:
            yield each.field_id, tuple(dict.fromkeys(each.names))
        yield from _by_id(each.fields)
