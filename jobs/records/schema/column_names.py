"""Column names: the names that a table can take, beside its other columns and its partition fields. Pure.

The rule is the same for all that add columns: records, files, steps, registries and commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, make_compatible_name

from jobs.records.schema.name_matching import Aliases
from jobs.records.schema.needs import Path, column_name
from jobs.records.schema.parser import KAFKA_COLUMN_PREFIX, UNUSABLE
from jobs.records.schema.schema_change import columns_in, columns_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

# Java: org.apache.iceberg.MetadataColumns. The reserved names of metadata tables and changelog views do not hinder a
# table.
METADATA_COLUMNS = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
NO_PARTITIONS: Mapping[str, str] = MappingProxyType({})
_WAY_ON = "such records land with decode.unknown_fields: keep, which puts the field into _extra"


class ColumnNames:
    """Names of columns, and the reason if another one cannot stand beside them.

    Args:
        schema: The present columns.
        partitions: The source column of each partition field, by the field's name; None for decoded columns, which
            steps may rename before they become a table's.
        fold: Folds names to compare them with those of partition fields and metadata columns.
        aliases: Further names of the columns.
    """

    def __init__(
        self,
        schema: Schema | None = None,
        partitions: Mapping[str, str] | None = NO_PARTITIONS,
        fold: Callable[[str], str] = str.casefold,
        aliases: Aliases = (),
    ) -> None:
        self._fold: Callable[[str], str] = fold
        self._given: Mapping[str, str] | None = partitions
        self._partitions: dict[str, str] = {fold(name): source for name, source in (partitions or {}).items()}
        self._dotted: set[str] = set()
        self._folded: dict[tuple[Path, str], str] = {}
        self._in_files: dict[tuple[Path, str], str] = {}
        for path, _ in columns_of(schema) if schema else ():
            self.add(path)
        for path, names in aliases:
            for name in names:
                self._folded.setdefault((path[:-1], name.casefold()), name)

    def copy(self) -> ColumnNames:
        """Return a copy of the names."""
        made = self.alone()
        made._dotted, made._folded, made._in_files = set(self._dotted), dict(self._folded), dict(self._in_files)
        return made

    def alone(self) -> ColumnNames:
        """Return the same rule for the fields of a new struct."""
        return ColumnNames(None, self._given, self._fold)

    def add(self, path: Path) -> None:
        """Add a column, without the columns within it."""
        parent, name = path[:-1], path[-1]
        self._dotted.add(column_name(path))
        self._folded[parent, name.casefold()] = name
        self._in_files[parent, make_compatible_name(name)] = name

    def field_refusal(self, path: Path) -> str | None:
        """Return why a field of records cannot be a column, as the end of a sentence; None if it can."""
        parent, name = path[:-1], path[-1]
        if not name or UNUSABLE.search(name):
            return "no column can have such a name"
        if not parent and name.lower().startswith(KAFKA_COLUMN_PREFIX):
            return f"names that start with {KAFKA_COLUMN_PREFIX} are kept for frazil's own columns"
        if (other := self._folded.get((parent, name.casefold()), name)) != name:
            return f"the name differs from {column_name((*parent, other))} only by case"
        if column_name(path) in self._dotted:
            return "a nested column has the same name"
        return (why := self.table_refusal(path)) and f"{why}; {_WAY_ON}"

    def column_refusal(self, column: ice.NestedField, path: Path) -> str | None:
        """Return why a column with all columns within it cannot be added, as the end of a sentence; None if it can."""
        within = self.alone()
        for each, _ in columns_in(column, path):
            if column_name(each) in self._dotted or column_name(each) in within._dotted:
                return "a nested column has the same name"
            if why := self.table_refusal(each) or within.table_refusal(each):
                return why
            within.add(each)
        return None

    def table_refusal(self, path: Path) -> str | None:
        """Return why a table with these partitions cannot be read or written with one more column; None if it can."""
        if self._given is None:
            return None
        full, written = column_name(path), make_compatible_name(path[-1])
        if self._fold(full) in METADATA_COLUMNS:
            return f"{full} is a metadata column of Iceberg, and Spark reads no table with another one of that name"
        if self._partitions.get(self._fold(full), full) != full:
            return f"a partition field is called {full}, and Spark loads no table with a column of that name"
        if (other := self._in_files.get((path[:-1], written), path[-1])) != path[-1]:
            return f"data files call it {written}, and so they call column {column_name((*path[:-1], other))}"
        return None


def usable_columns(rows: Schema, names: ColumnNames) -> Schema:
    """Return the columns that a table can take; of two columns that exclude each other, the first.

    Args:
        rows: The columns to choose from.
        names: Names that the table's columns and partition fields have already.
    """
    kind = _usable(rows.as_struct(), (), names)
    return Schema(*kind.fields) if isinstance(kind, ice.StructType) else Schema()


def _usable(kind: ice.IcebergType, path: Path, names: ColumnNames) -> ice.IcebergType | None:
    match kind:
        case ice.StructType():
            fields: list[ice.NestedField] = []
            for each in kind.fields:
                here = (*path, each.name)
                if names.field_refusal(here) is None and (inner := _usable(each.field_type, here, names)) is not None:
                    names.add(here)
                    fields.append(each.model_copy(update={"field_type": inner}))
            return ice.StructType(*fields) if fields else None
        case ice.ListType():
            element = _usable(kind.element_type, (*path, "element"), names)
            return element and ice.ListType(kind.element_id, element, element_required=kind.element_required)
        case ice.MapType():
            value = _usable(kind.value_type, (*path, "value"), names)
            return value and ice.MapType(
                kind.key_id, kind.key_type, kind.value_id, value, value_required=kind.value_required
            )
        case _:
            return kind


def partition_names(schema: Schema, specs: Iterable[PartitionSpec]) -> dict[str, str]:
    """Return the source column of each partition field, by the field's name.

    Args:
        schema: The table's schema.
        specs: All partition specs of the table: engines bind former ones, too.
    """
    return {field.name: schema.find_column_name(field.source_id) or "" for spec in specs for field in spec.fields}


def unreadable_names(metadata: TableMetadata) -> Iterator[tuple[Path, str]]:
    """Yield each column whose name keeps engines from reading a table, or frazil from writing it, with the reason."""
    schema = metadata.schema()
    # Engines read a table unless names are exactly the same.
    return name_problems(schema, partition_names(schema, metadata.partition_specs), str)


def name_problems(
    schema: Schema, partitions: Mapping[str, str], fold: Callable[[str], str] = str.casefold
) -> Iterator[tuple[Path, str]]:
    """Yield each column whose name makes a table of these columns unreadable or unwritable, with the reason."""
    names = ColumnNames(None, partitions, fold)
    for path, _ in columns_of(schema):
        if why := names.table_refusal(path):
            yield path, why
        names.add(path)
