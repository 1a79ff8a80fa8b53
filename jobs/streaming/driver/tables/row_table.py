"""Row table of a stream: created with the columns of its rows, or checked to hold them if it exists."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.config.steps.shaping import key_fields
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import first_decoded, misfit_fix
from jobs.config.stream.table import Table as TableSettings
from jobs.records.formats.interface.decoder_spec import undeclared_column
from jobs.records.schema.compatibility import kafka_disagreements
from jobs.records.schema.decoded_columns import DecodedColumns, decoded_properties, properties_in_parts
from jobs.streaming.driver.tables.new_rows import NewColumns, refuse_misnamed
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.protocol.table_remake import remade_table
from jobs.tables.commit.schema.opening_columns import OpeningColumns, opening_columns, opening_operation
from jobs.tables.commit.schema.operations import property_limit
from jobs.tables.commit.stamp.errors import CommitRefusedError
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.table_creation import create_table_properties, ensure_table, refuse_format
from jobs.tables.write.table_remaking import as_made_property, differs, is_as_made
from jobs.tables.write.table_sort_order import sort_order

log = logging.getLogger(__name__)


def ensure_table_of_rows(
    catalog: Catalog, name: str, settings: TableSettings, schema: Schema, properties: Mapping[str, str]
) -> tuple[Table, PartitionSpec]:
    """A table of rows, created if it does not exist, and the partition spec of a new one.

    Args:
        settings: Settings of the table in the stream's file.
        properties: Properties of a new table, beside those of its settings.
    """
    partitions = partition_spec(settings.partition_by, schema)
    properties = create_table_properties(settings.properties, schema) | dict(properties)
    order = sort_order(settings.sort_by, schema)
    table = ensure_table(catalog, name, schema, partitions, properties, location=settings.location, order=order)
    return table, partitions


def ensure_row_table(spec: StreamSpec, catalog: Catalog, new: Callable[[], NewColumns] | None) -> Table:
    """The table of a stream's rows, created if it does not exist.

    Args:
        spec: The stream; if each of its tables has its own columns, in the form for this table.
        new: Makes the columns of a new table, if the stream's file does not declare them.

    Raises:
        FrazilError: It cannot be created so, or exists and cannot hold the rows.
    """
    name, declared, declares_all = spec.table.name, spec.decode.declared, spec.decode.declares_all
    kept: dict[str, str] = {}
    if declares_all:
        schema = spec.table_schema
    elif catalog.table_exists(name):
        refuse_format(catalog.load_table(name).metadata, name)
        table = table_by_file(spec, catalog, new)
        if declared is None:
            _refuse_unfilled(spec, spec.resolved_for(table.schema(), table.properties).schema)
            if not (spec.shapes and is_as_made(table.metadata, spec.stream)):
                _refuse_unplaced(spec, table.schema())
                return table
            schema = shaped_schema(spec, table.metadata)
        else:
            schema = spec.table_schema_beside(table.schema(), table.properties)
    elif new is not None:
        made = new()
        refuse_misnamed(spec, spec.problems_of(made.rows, spec.record_columns.with_key_of(made.key)))
        schema = spec.table_schema_of(made.rows, made.key)
        kept = first_properties(spec, made, catalog)
    else:
        raise FrazilError(
            f"stream {spec.stream}: table {name} does not exist, and the stream's file does not declare its columns.",
            fix=f"frazil run {spec.stream}, which creates it",
        )
    kept |= as_made_property(spec.stream)
    table, partitions = ensure_table_of_rows(catalog, name, spec.table, schema, kept)
    if (
        (declared or spec.shapes)
        and is_as_made(table.metadata, spec.stream)
        and differs(table.metadata, schema, partitions)
    ):
        table = remade_table(table, spec.stream, schema, partitions)
    return table


def ensure_coordinator(spec: StreamSpec, catalog: Catalog) -> Table:
    """A main table that gets no rows: with Kafka's columns only, and unpartitioned."""
    name, settings = spec.table.name, spec.table
    if catalog.table_exists(name):
        table = catalog.load_table(name)
        refuse_format(table.metadata, name)
        return table
    schema = spec.kafka_columns.added_to(Schema())
    properties = create_table_properties(settings.properties, schema) | as_made_property(spec.stream)
    return ensure_table(catalog, name, schema, partition_spec((), schema), properties, location=settings.location)


def _refuse_unfilled(spec: StreamSpec, rows: Schema) -> None:
    """Raise if a column of the table gets no value."""
    if spec.decode.format == "json" and (column := undeclared_column(rows)):
        raise FrazilError(
            f"stream {spec.stream}: table {spec.table.name} has a column that JSON does not fill: {column}.",
            fix=f"declare the stream's columns in decode.schema of streams/{spec.stream}.yaml; others stay null",
        )


def _refuse_unplaced(spec: StreamSpec, table: Schema) -> None:
    """Raise if a table that others created cannot record the coordinates of its rows."""
    if problems := kafka_disagreements(table, spec.kafka_columns):
        raise FrazilError(
            f"stream {spec.stream}: table {spec.table.name} was not made by frazil: {' '.join(problems)}",
            fix=misfit_fix(spec, table),
        )


def table_by_file(spec: StreamSpec, catalog: Catalog, new: Callable[[], NewColumns] | None) -> Table:
    """The main table of a stream whose file does not declare all columns, altered as its steps and `evolve` require.

    An empty table as frazil created it keeps its columns here: it is rebuilt by `shaped_schema`.

    Args:
        new: Makes the columns of values and keys, for a stream that has not landed anything yet.

    Raises:
        FrazilError: The file's statements about columns do not hold, or the table does not follow by itself.
    """

    def attempt() -> Table:
        table = stream_table(catalog, spec, spec.table.name)
        metadata = table.metadata
        found = opening_columns(spec, metadata, new_decoded(spec, new))
        if spec.shapes and is_as_made(metadata, spec.stream):
            # The table is rebuilt if it differs.
            found = replace(found, changes=(), refused=())
        refuse_misnamed(spec, list(found.problems))
        if found.decoded and (found.refused or found.unasked(spec)):
            # The stored columns let `frazil schema apply` know what the steps would make.
            kept = opening_operation(spec, metadata, replace(found, changes=()))
            assert kept is not None
            commit_once(table, kept, summary={}, properties={})
        refuse_unfollowed(spec, found)
        operation = opening_operation(spec, metadata, found)
        if operation is not None:
            commit_once(table, operation, summary={}, properties={})
            step("after_opening_change")
            told = "; ".join(map(str, found.changes)) or "keeps the columns that are decoded"
            log.info("table %s follows streams/%s.yaml: %s", spec.table.name, spec.stream, told)
        return table

    return compare_and_swap(
        spec.table.name, attempt, lambda said: CommitRefusedError(f"stream {spec.stream}: {said}", fix="start it again")
    )


def shaped_schema(spec: StreamSpec, metadata: TableMetadata) -> Schema:
    """Columns of a new table that the steps make from the decoded columns stored in a table."""
    decoded = spec.decoded_for(metadata.schema(), metadata.properties)
    return spec.table_schema_of(decoded.rows, key_fields(decoded))


def first_properties(spec: StreamSpec, made: NewColumns, catalog: Catalog) -> dict[str, str]:
    """Properties of a new table that keep the decoded columns; empty if steps change no columns."""
    if not spec.shapes:
        return {}
    kept = decoded_properties({}, spec.stream, first_decoded(spec, made.rows, made.key), None)
    return properties_in_parts(kept, property_limit(catalog))


def new_decoded(spec: StreamSpec, new: Callable[[], NewColumns] | None) -> Callable[[], DecodedColumns] | None:
    """Function that makes the decoded columns of a new table; None without columns."""
    if new is None:
        return None

    def made() -> DecodedColumns:
        found = new()
        return first_decoded(spec, found.rows, found.key)

    return made


def refuse_unfollowed(spec: StreamSpec, found: OpeningColumns) -> None:
    """Raise if a table does not follow its stream's file by itself."""
    name = spec.table.name
    if found.refused:
        raise FrazilError(
            (
                f"stream {spec.stream}: table {name} cannot take the columns of the stream's steps: "
                f"{'; '.join(found.refused)}."
            ),
            fix=misfit_fix(spec, found.metadata.schema()),
        )
    if unasked := found.unasked(spec):
        said = "; ".join(map(str, unasked))
        kinds = " and ".join(sorted({f"evolve.{each.change}" for each in unasked}))
        raise FrazilError(
            f"stream {spec.stream}: table {name} lacks columns of the stream's steps, and {kinds} leaves it as it is: "
            f"{said}.",
            fix=f"frazil schema apply {spec.stream}",
        )
