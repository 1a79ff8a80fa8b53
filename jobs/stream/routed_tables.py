"""Routed tables of a stream: made as its file says, and seen to hold its rows, before anything is read."""

from __future__ import annotations

import logging
from collections.abc import Collection

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.commit.branch import stream_table
from jobs.commit.errors import CommitDeniedError, SchemaChangeError
from jobs.commit.table_remake import remade_table
from jobs.errors import FrazilError
from jobs.spec.models import StreamSpec
from jobs.stream.follower_tables import ensure_follower
from jobs.stream.row_table import ensure_row_table
from jobs.write.partitioning import partition_spec
from jobs.write.table_creation import create_table_properties, ensure_table
from jobs.write.table_remaking import as_made_property, differs, is_as_made
from jobs.write.table_sort_order import sort_order

log = logging.getLogger(__name__)


def ensure_routed_tables(
    spec: StreamSpec, catalog: Catalog, without: Collection[str] = (), parkable: Collection[str] = ()
) -> None:
    """Create the tables of a stream's route that are not there, with the columns that its file declares for them.

    Those that follow the stream's own table get what they lack of its columns. Those that have columns of their own are
    there: they are made as their first records come.

    Args:
        spec: The stream.
        catalog: Where they are.
        without: Tables that are left as they are.
        parkable: Tables that are parked, with the next batch, where they refuse the columns that they are to follow.

    Raises:
        FrazilError: One cannot hold them; the message names each column.
    """
    for target in spec.targets:
        if target.role != "rows" or target.coordinator or target.name in without:
            continue
        if spec.own_columns:
            _ensure_lane(spec, catalog, target.name)
            continue
        try:
            ensure_routed_table(spec, catalog, target.name)
        except (SchemaChangeError, CommitDeniedError) as refused:
            if target.name not in parkable:
                raise
            log.warning("%s", refused.message)


def _ensure_lane(spec: StreamSpec, catalog: Catalog, name: str) -> None:
    try:
        ensure_row_table(spec.for_table(name), catalog, None)
    except FrazilError as problem:
        if type(problem) is not FrazilError or name in problem.message:
            raise
        # What the file says of columns is not so of this table.
        raise FrazilError(f"stream {spec.stream}: table {name}: {problem.message}", fix=problem.fix) from None


def ensure_routed_table(spec: StreamSpec, catalog: Catalog, name: str) -> Table:
    """Create one of them if it is not there; one that follows the stream's own table gets what it lacks.

    Raises:
        FrazilError: It cannot hold what the file declares, or what the own table has.
    """
    if spec.tables_follow:
        return ensure_follower(spec, catalog, stream_table(catalog, spec, spec.table.name).metadata, name)
    schema, settings = spec.table_schema_for(name), spec.table_settings(name)
    partitions = partition_spec(settings.partition_by, schema)
    table = ensure_table(
        catalog,
        name,
        schema,
        partitions,
        create_table_properties(settings.properties, schema) | as_made_property(spec.stream),
        location=settings.location,
        order=sort_order(settings.sort_by, schema),
    )
    if is_as_made(table.metadata, spec.stream) and differs(table.metadata, schema, partitions):
        table = remade_table(table, spec.stream, schema, partitions)
    if differences := spec.disagreements_with(table.schema(), name, properties=table.properties):
        raise FrazilError(
            f"stream {spec.stream}: its further table {name} cannot hold what the spec declares: "
            + "; ".join(differences),
            fix=f"`frazil schema apply {spec.stream}`, or correct decode.schema in streams/{spec.stream}.yaml",
        )
    return table
