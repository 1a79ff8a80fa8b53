"""Table of a mirror: it is created with its changelog's columns and gets those that the changelog gets later."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from pyiceberg import types as ice
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids, index_by_id
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform

from jobs.base.errors import FrazilError
from jobs.config.stream.mirror import Mirror
from jobs.config.stream.models import StreamSpec
from jobs.mirrors.fold.row_filter import RowFilter
from jobs.mirrors.model.errors import KeylessChangelogError
from jobs.mirrors.model.merge_plan import DELETED_COLUMN, ORDER_COLUMN
from jobs.mirrors.model.mirror_stamp import mirror_id
from jobs.records.expressions.problem import ExpressionProblem
from jobs.records.schema.evolution import Fitting, fitting
from jobs.records.schema.iceberg_schema import unread_problem
from jobs.records.schema.identifier_fields import identifier_problem, optional_columns, with_identifier_fields
from jobs.records.schema.schema_change import SchemaChange, changed_schema
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap, conflicts_as_moved_head
from jobs.tables.commit.schema.operations import ChangeSchema
from jobs.tables.commit.schema.schema_history import new_record, with_record
from jobs.tables.commit.schema.schema_operation import changed_mapping
from jobs.tables.commit.stamp.errors import CommitRefusedError
from jobs.tables.commit.stamp.stamps import PROPERTY_PREFIX, property_key
from jobs.tables.commit.stamp.table_properties import MIRROR_PROPERTY
from jobs.tables.write.table_creation import create_table_properties, ensure_table, uuid_properties

CHANGE_PREFIX = "_change_"
KEY_COLUMN = "_change_key"
_OWN = (ORDER_COLUMN, DELETED_COLUMN)
MIRROR_PROPERTIES = {
    # A merge writes changed rows and deletes. Copy-on-write would rewrite every file that it touches.
    **{f"write.{what}.mode": "merge-on-read" for what in ("merge", "update", "delete")},
    # Nobody else adds rows, and the publication of a merge asserts the heads.
    **{f"write.{what}.isolation-level": "snapshot" for what in ("merge", "update", "delete")},
    # An untruncated bound shows that all new changes are later than the file's rows.
    f"write.metadata.metrics.column.{ORDER_COLUMN}": "full",
}
"""Properties that override frazil's defaults for new tables; the stream's file overrides them."""


def mirror_key(spec: StreamSpec, mirror: Mirror, changelog: Schema) -> tuple[str, ...]:
    """Return the mirror's key columns: those of the stream's file, or of the records' keys.

    Raises:
        KeylessChangelogError: Neither names a column.
        FrazilError: The changelog has no such column, or the two differ.
    """
    named = [
        each.name
        for field in changelog.fields
        if field.name == KEY_COLUMN and isinstance(field.field_type, ice.StructType)
        for each in field.field_type.fields
    ]
    key = mirror.key or tuple(named)
    place = f"streams/{spec.stream}.yaml"
    if not key:
        raise KeylessChangelogError(spec.stream, mirror.table, spec.table.name)
    rows = row_columns(spec, changelog)
    for name in key:
        if name not in rows:
            raise FrazilError(
                f"stream {spec.stream}: the key of mirror {mirror.table} names column {name}, and changelog "
                f"{spec.table.name} has none at its top; it has {', '.join(rows)}.",
                fix=f"correct mirrors: key in {place}",
            )
    if named and set(named) != set(key):
        # Records of one key are in one partition, and a change of the key is two records. For any other column
        # neither holds: a row that gets another value there would leave its former row behind.
        raise FrazilError(
            f"stream {spec.stream}: the key of mirror {mirror.table} is {', '.join(key)}, and the records of changelog "
            f"{spec.table.name} have the key {', '.join(named)} ({KEY_COLUMN}). A change of a column outside of the "
            "records' key does not say which row it had been, so that row would stay.",
            fix=f"take key out of mirrors in {place}; or let the connector give the records that key "
            "(message.key.columns), for a new changelog",
        )
    return key


def row_columns(spec: StreamSpec, changelog: Schema) -> tuple[str, ...]:
    """Return the columns of the source's rows, without Kafka's columns and those that describe a change."""
    kafka = spec.kafka_columns.names
    return tuple(
        each.name for each in changelog.fields if each.name not in kafka and not each.name.startswith(CHANGE_PREFIX)
    )


def mirror_schema(spec: StreamSpec, mirror: Mirror, changelog: Schema) -> Schema:
    """Return the mirror's schema: the row's columns, then the mirror's own; all but the key's are optional.

    Raises:
        FrazilError: Iceberg does not accept the key as identifier fields, or the condition does not fit the columns.
    """
    key, rows = mirror_key(spec, mirror, changelog), row_columns(spec, changelog)
    taken = [name for name in rows if name in _OWN]
    if taken:
        raise FrazilError(
            f"stream {spec.stream}: rows have a column {taken[0]}, which mirror {mirror.table} has for itself.",
            fix="give it another name by a step of the stream's transform",
        )
    fields = [each.model_copy(update={"required": each.name in key}) for each in changelog.fields if each.name in rows]
    after = changelog.highest_field_id + 1
    own = [ice.NestedField(after, ORDER_COLUMN, ice.StringType(), required=False)]
    if mirror.deletes == "soft":
        own.append(ice.NestedField(after + 1, DELETED_COLUMN, ice.BooleanType(), required=False))
    schema = optional_columns(Schema(*fields, *own), [(name,) for name in key])
    for name in key:
        if problem := identifier_problem((name,), schema):
            raise FrazilError(
                f"stream {spec.stream}: the key of mirror {mirror.table} cannot be {', '.join(key)}: {problem}.",
                fix=f"name other columns in mirrors: key of streams/{spec.stream}.yaml",
            )
    try:
        RowFilter.of(mirror.where, schema, rows)
    except ExpressionProblem as problem:
        raise FrazilError(
            f"stream {spec.stream}: the condition of mirror {mirror.table} is none over its rows: {problem}.",
            fix=f"correct mirrors: where in streams/{spec.stream}.yaml",
        ) from None
    return with_identifier_fields(assign_fresh_schema_ids(schema), key)


def ensure_mirror(spec: StreamSpec, mirror: Mirror, catalog: Catalog, changelog: Schema) -> Table:
    """Load the mirror's table, or create it; an existing table keeps its layout.

    Raises:
        FrazilError: The table cannot have the mirror's columns, or belongs to something else.
    """
    schema = mirror_schema(spec, mirror, changelog)
    bucket, key = BucketTransform(mirror.buckets), map(schema.find_field, mirror_key(spec, mirror, changelog))
    # Iceberg cannot bucket booleans. A key of booleans alone has few rows.
    first = [each for each in key if bucket.can_transform(each.field_type)][:1]
    taken = {each.name.casefold() for each in schema.fields}
    partitions = PartitionSpec(
        *(PartitionField(each.field_id, PARTITION_FIELD_ID_START, bucket, _unlike(taken, each.name)) for each in first)
    )
    properties = {**MIRROR_PROPERTIES, MIRROR_PROPERTY: _of(spec)}
    table = ensure_table(catalog, mirror.table, schema, partitions, create_table_properties(properties, schema))
    return table if refuse_table(spec, mirror, table, schema) else _adopted(spec, mirror, catalog, properties, schema)


def _unlike(taken: Collection[str], column: str) -> str:
    """Return a name for a column's bucket that no column has, in any case."""
    name = f"{column}_bucket"
    while name.casefold() in taken:
        name += "_"
    return name


def refuse_table(spec: StreamSpec, mirror: Mirror, table: Table, schema: Schema) -> bool:
    """Refuse an existing table that cannot be the mirror's; return whether it is the mirror's already.

    Args:
        schema: Result of `mirror_schema`.

    Raises:
        FrazilError: It is another mirror, a stream lands in it, or it cannot take the columns.
    """
    given = table.metadata.properties
    said = given.get(MIRROR_PROPERTY)
    if said is not None and said != _of(spec):
        raise FrazilError(
            f"stream {spec.stream}: table {mirror.table} is a mirror already, of {said}.",
            fix=f"name another table in mirrors of streams/{spec.stream}.yaml, or drop that one",
        )
    if said is None and any(key.startswith(PROPERTY_PREFIX) for key in given):
        raise FrazilError(
            f"stream {spec.stream}: table {mirror.table} cannot become a mirror: a stream lands in it.",
            fix=f"name another table in mirrors of streams/{spec.stream}.yaml",
        )
    if said is None:
        refuse_unfit(spec, mirror, mirror_fitting(schema, table.metadata), table.metadata)
    return said is not None


def _of(spec: StreamSpec) -> str:
    """Return the value of the table property that names a mirror's stream and changelog."""
    return json.dumps({"stream": spec.stream, "changelog": spec.table.name}, separators=(",", ":"))


def _adopted(
    spec: StreamSpec, mirror: Mirror, catalog: Catalog, properties: Mapping[str, str], schema: Schema
) -> Table:
    """Make an existing table a mirror; its rows count as older than every change."""

    def attempt() -> Table:
        table = catalog.load_table(mirror.table)
        refuse_table(spec, mirror, table, schema)
        lacking = {key: value for key, value in properties.items() if key not in table.metadata.properties}
        with conflicts_as_moved_head(), table.transaction() as change:
            change.set_properties(lacking)
        return table

    def given_up(said: str) -> CommitRefusedError:
        return CommitRefusedError(f"stream {spec.stream}: {said}", fix=f"frazil mirror run {spec.stream}")

    return compare_and_swap(mirror.table, attempt, given_up)


def mirror_fitting(wanted: Schema, metadata: TableMetadata) -> Fitting:
    """Compare the mirror's table with the columns that it should have.

    Args:
        wanted: Result of `mirror_schema`.
        metadata: Metadata of the table.
    """
    return fitting(wanted, metadata, own=(), relax_missing=True, maintained=True)


def refuse_unfit(spec: StreamSpec, mirror: Mirror, found: Fitting, metadata: TableMetadata) -> None:
    """Refuse a table that cannot take the changelog's rows.

    Args:
        found: Result of `mirror_fitting`.
        metadata: Metadata of the table.

    Raises:
        FrazilError: The table cannot take some columns, which the message names.
    """
    if found.refused:
        # A table without a stamp may be anybody's, and its name in the file mistyped.
        ours = property_key(mirror_id(spec.stream, mirror.table)) in metadata.properties
        fix = (
            f"alter table {mirror.table} so that it can; or drop it, and `frazil mirror run {spec.stream}` rebuilds "
            "it from the changelog"
            if ours
            else f"name another table in mirrors of streams/{spec.stream}.yaml, or alter this one so that it can"
        )
        raise FrazilError(
            f"stream {spec.stream}: mirror {mirror.table} cannot take the columns of changelog {spec.table.name}: "
            f"{'; '.join(each.rstrip('.') for each in found.refused)}.",
            fix=fix,
        )


def refuse_unread(stream: str, *tables: Table) -> None:
    """Refuse tables that Spark cannot read, because larger merges need Spark.

    Raises:
        FrazilError: A column has a type that Spark cannot read.
    """
    for table in tables:
        if problem := unread_problem(table.schema()):
            raise FrazilError(
                f"table {'.'.join(table.name())} has no part in a mirror. {problem}.",
                fix=f"cast the column in streams/{stream}.yaml",
            )


def mirror_columns_operation(
    spec: StreamSpec, metadata: TableMetadata, changes: Sequence[SchemaChange], epoch: int
) -> ChangeSchema:
    """Return the commit that gives a mirror the columns its changelog has got.

    Args:
        metadata: Metadata of the mirror that the changes were computed from.
        changes: At least one.
        epoch: Epoch of the merging session.
    """
    before, changed = metadata.schema(), tuple(changes)
    after = changed_schema(before, changed, metadata.last_column_id, frozenset(_OWN))
    head = metadata.current_snapshot()
    record = new_record(
        spec.stream,
        [str(each) for each in changed],
        schema_id=max(each.schema_id for each in metadata.schemas) + 1,
        snapshot_id=head.snapshot_id if head else None,
        added=len(index_by_id(after)) - len(index_by_id(before)),
        epoch=epoch,
        by=f"changelog {spec.table.name}",
    )
    properties = with_record(metadata.properties, record) | changed_mapping(metadata.properties, before, after, changed)
    return ChangeSchema(after, properties | uuid_properties(after, metadata.properties), record.id)
