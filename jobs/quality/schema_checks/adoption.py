"""Adoption of a table that others created: what it lacks for frazil's rows and their readers, with purposes.

Pure functions. Any table, such as of Kafka Connect's sink, takes rows once it has the columns of their coordinates.
Existing rows stay, with null in these columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import create_mapping_from_schema

from jobs.config.stream.models import StreamSpec
from jobs.config.values.partitioning import SortExpr, sort_column_problems
from jobs.records.schema.name_matching import NAME_MAPPING
from jobs.records.schema.schema_change import SchemaChange, changed_schema, kafka_column_changes
from jobs.tables.commit.schema.operations import HIVE_LIMIT
from jobs.tables.commit.stamp.stamps import PROPERTY_PREFIX
from jobs.tables.commit.stamp.table_properties import MIRROR_PROPERTY
from jobs.tables.dead_letter_table.table import ARROW_SCHEMA as DEAD_LETTERS
from jobs.tables.write.table_remaking import adopted_property, is_unknown_to_frazil, made_for, maker_of
from jobs.tables.write.table_sort_order import sort_order, sort_order_of, sort_order_text


@dataclass(frozen=True, slots=True)
class Adoption:
    """Additions to a table that let frazil land rows in it and prove them.

    Attributes:
        columns: Kafka's columns that it lacks.
        sort_by: New sort order; None: unchanged.
        mapping: Whether it gets a name mapping.
        stream: Stream that gets it as a dynamic table; None: the stream's file names it.
    """

    columns: tuple[SchemaChange, ...] = ()
    sort_by: tuple[SortExpr, ...] | None = None
    mapping: bool = False
    stream: str | None = None

    @property
    def sentences(self) -> list[str]:
        """Each change with its purpose."""
        sentences = [each.sentence for each in self.columns]
        if self.sort_by is not None:
            sentences.append(f"set sort order {', '.join(map(str, self.sort_by))}, which Spark's writes follow")
        if self.mapping:
            sentences.append("set a name mapping, by which records and files find a column under its former name")
        if self.stream is not None:
            sentences.append(f"become a table of stream {self.stream}, whose values name it")
        return sentences

    def added_to(self, schema: Schema, last_column_id: int, own: frozenset[str]) -> Schema:
        """A table's schema with the columns.

        Args:
            schema: Schema without them.
            last_column_id: Greatest field id ever used in the table.
            own: Names of all of Kafka's columns.
        """
        if not self.columns:
            return schema
        return changed_schema(schema, self.columns, max(last_column_id, schema.highest_field_id), own)

    def properties(self, schema: Schema) -> dict[str, str]:
        """Table properties that it sets.

        Args:
            schema: Schema of the table with the columns.
        """
        mapping = {NAME_MAPPING: create_mapping_from_schema(schema).model_dump_json()} if self.mapping else {}
        return mapping | (adopted_property(self.stream) if self.stream is not None else {})


NOTHING = Adoption()
MIRROR, LETTERS = "a mirror", "a dead-letter table"


def adoption(
    spec: StreamSpec, metadata: TableMetadata, schema: Schema, name: str | None = None, *, given: bool = False
) -> tuple[Adoption, tuple[str, ...]]:
    """What a stream's table lacks, whoever created it.

    Args:
        spec: The stream.
        metadata: Present metadata of the table.
        schema: Schema of the table with other changes.
        name: Name of the table; None for the main table.
        given: Whether an operator gives it to the stream as a dynamic table.

    Returns:
        The additions; and the remaining obstacles, as sentences without a full stop.
    """
    columns, refused = kafka_column_changes(schema, spec.kafka_columns)
    if columns and spec.changes is not None and has_rows(metadata):
        said = "its rows do not say what happened in the source, and a changelog's do: name another table in table.name"
        refused = (*refused, f"{said}, and this one as a mirror, which takes its rows for older than all changes")
    whose = other_owner(metadata, spec.stream)
    # The file may name another stream's table: two streams may write one.
    if whose is not None and (given or (columns and whose in (MIRROR, LETTERS))):
        refused = (*refused, f"it is {whose}")
    stream = spec.stream if given and not made_for(metadata, spec.stream) else None
    found = Adoption(columns, mapping=bool(columns) and _needs_mapping(metadata, schema), stream=stream)
    whole = found.added_to(schema, metadata.last_column_id, spec.kafka_columns.names)
    wanted = spec.table_settings(name or spec.table.name).sort_by
    wrong = [
        problem for _, problem in sort_column_problems([each.column for each in wanted], whole, spec.kafka_columns)
    ]
    if wrong:
        return found, (*refused, *(f"table.sort_by: {problem}" for problem in wrong))
    if wanted and sort_order_text(sort_order(wanted, whole), whole) != sort_order_text(sort_order_of(metadata), schema):
        found = Adoption(found.columns, wanted, found.mapping, found.stream)
    return found, refused


def has_rows(metadata: TableMetadata) -> bool:
    """Whether a table may have rows."""
    head = metadata.current_snapshot()
    return head is not None and (head.summary is None or head.summary["total-records"] != "0")


def other_owner(metadata: TableMetadata, stream: str) -> str | None:
    """Owner of a table of frazil's that is not the stream's, as the end of a sentence; None otherwise.

    If two streams wrote one dynamic table, their rows could not be separated by their routes.
    """
    properties: Mapping[str, str] = metadata.properties
    if MIRROR_PROPERTY in properties:
        return MIRROR
    if set(DEAD_LETTERS.names) <= set(metadata.schema().column_names):
        return LETTERS
    keys = (key.removeprefix(PROPERTY_PREFIX) for key in properties if key.startswith(PROPERTY_PREFIX))
    stamped = {each.partition("~")[0] for each in keys}
    others = sorted({each for each in (*stamped, maker_of(metadata)) if each is not None} - {stream})
    return f"written by stream {others[0]}" if others else None


def _needs_mapping(metadata: TableMetadata, schema: Schema) -> bool:
    """Whether a table that frazil has never touched lacks a name mapping; none is set that Hive could not store."""
    if not is_unknown_to_frazil(metadata) or NAME_MAPPING in metadata.properties:
        return False
    return len(create_mapping_from_schema(schema).model_dump_json()) <= HIVE_LIMIT // 2
