"""Row table of a stream: created with the columns of its rows if it is not there, and else seen to hold them."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.commit.table_remake import remade_table
from jobs.errors import FrazilError
from jobs.formats.decoder_spec import undeclared_column
from jobs.spec.models import StreamSpec
from jobs.stream.followed_file import first_properties, shaped_schema, table_by_file
from jobs.stream.new_rows import NewColumns, refuse_misnamed
from jobs.write.partitioning import partition_spec
from jobs.write.table_creation import create_table_properties, ensure_table, refuse_format
from jobs.write.table_remaking import as_made_property, differs, is_as_made
from jobs.write.table_sort_order import sort_order


def ensure_row_table(spec: StreamSpec, catalog: Catalog, new: Callable[[], NewColumns] | None) -> Table:
    """The table of a stream's rows, created if it is not there.

    Args:
        spec: The stream; where each of its tables has columns of its own, as the rows of this one are made.
        catalog: Where the table is.
        new: Gives the columns of a new table, of a stream whose file does not declare them.

    Raises:
        FrazilError: It cannot be made so, or is there and cannot hold the rows.
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
    properties = create_table_properties(spec.table.properties, schema) | as_made_property(spec.stream) | kept
    partitions = partition_spec(spec.table.partition_by, schema)
    order = sort_order(spec.table.sort_by, schema)
    table = ensure_table(catalog, name, schema, partitions, properties, location=spec.table.location, order=order)
    if (
        (declared or spec.shapes)
        and is_as_made(table.metadata, spec.stream)
        and differs(table.metadata, schema, partitions)
    ):
        table = remade_table(table, spec.stream, schema, partitions)
    return table


def ensure_coordinator(spec: StreamSpec, catalog: Catalog) -> Table:
    """The stream's own table where no row goes to it: with Kafka's own columns alone, and without partitions."""
    name, settings = spec.table.name, spec.table
    if catalog.table_exists(name):
        table = catalog.load_table(name)
        refuse_format(table.metadata, name)
        return table
    schema = spec.kafka_columns.added_to(Schema())
    properties = create_table_properties(settings.properties, schema) | as_made_property(spec.stream)
    return ensure_table(catalog, name, schema, partition_spec((), schema), properties, location=settings.location)


def _refuse_unfilled(spec: StreamSpec, rows: Schema) -> None:
    """Refuse a table with a column that no value fills."""
    if spec.decode.format == "json" and (column := undeclared_column(rows)):
        raise FrazilError(
            f"stream {spec.stream}: table {spec.table.name} has a column that JSON does not fill: {column}.",
            fix=f"declare the stream's columns in decode.schema of streams/{spec.stream}.yaml; others stay null",
        )
