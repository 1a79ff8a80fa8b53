"""Routed tables of a stream: created by its file and checked to hold its rows, before anything is read."""

from __future__ import annotations

import logging
from collections.abc import Collection

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchPropertyException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.tables.follower_tables import ensure_follower
from jobs.streaming.driver.tables.row_table import ensure_row_table, ensure_table_of_rows
from jobs.tables.commit.history.branch import existing_table, stream_table
from jobs.tables.commit.protocol.table_remake import remade_table
from jobs.tables.commit.stamp.errors import CommitDeniedError, SchemaChangeError
from jobs.tables.write.table_remaking import (
    as_made_property,
    differs,
    is_as_made,
    late_rows_property,
    made_for,
    made_for_late_rows,
)

log = logging.getLogger(__name__)


def ensure_routed_tables(
    spec: StreamSpec, catalog: Catalog, without: Collection[str] = (), parkable: Collection[str] = ()
) -> None:
    """Create missing tables of a stream's route; dependent ones get what they lack of the followed table.

    Tables with their own columns are left out: their first records create them.

    Args:
        parkable: Tables that are suspended with the next batch if they refuse the columns of the followed table.

    Raises:
        FrazilError: A table cannot hold its rows; the message names each column.
    """
    for target in spec.targets:
        if target.role != "rows" or target.coordinator or target.name in without:
            continue
        if spec.own_columns:
            if (timely := spec.late_rows_of(target.name)) is None:
                _ensure_lane(spec, catalog, target.name)
            elif timely not in without:
                # Tables of late rows come last.
                ensure_late_lane(spec, catalog, timely)
            elif not catalog.table_exists(target.name):
                raise FrazilError(
                    f"stream {spec.stream}: table {target.name} is to have the late rows of {timely}, and cannot be "
                    "created while that is suspended.",
                    fix=f"put back event_time.late as it was in streams/{spec.stream}.yaml until {timely} is resumed",
                )
            continue
        try:
            ensure_routed_table(spec, catalog, target.name)
        except (SchemaChangeError, CommitDeniedError) as refused:
            if target.name not in parkable:
                raise
            log.warning("%s", refused.message)


def ensure_late_lane(spec: StreamSpec, catalog: Catalog, timely: str) -> Table:
    """Create the table of late rows for a table with its own columns, or add the columns that it lacks.

    Args:
        spec: A stream whose tables each have their own columns.

    Raises:
        FrazilError: It cannot be created, or cannot take the columns; or a table of that name was created for other
            rows.
    """
    of_table = spec.for_table(timely)
    if (name := of_table.late_table) is None:
        raise TypeError("no late rows of this table have a table")
    own = stream_table(catalog, spec, timely).metadata
    try:
        if (there := existing_table(catalog, name)) is not None:
            refuse_other_rows(spec, there, timely)
        return ensure_follower(of_table, catalog, own, name)
    except (NoSuchPropertyException, NoSuchTableError, TableAlreadyExistsError):
        # It is a view, or a table of another format.
        raise _other_table(spec, name, timely, "it exists and is no Iceberg table") from None


def refuse_other_rows(spec: StreamSpec, there: Table, timely: str) -> None:
    """Raise if a table for late rows of another one has other rows.

    If a topic names the table, its table of late rows has to be created for that. If the file names it, it may be any
    table, except one that the stream created for other rows.

    Args:
        there: The existing table of that name.
        timely: Table with the timely rows.
    """
    if spec.route is None or made_for_late_rows(there.metadata, spec.stream, timely):
        return
    if timely in spec.route.table_names and not made_for(there.metadata, spec.stream):
        return
    raise _other_table(spec, ".".join(there.name()), timely, "it exists and was not created for them")


def _other_table(spec: StreamSpec, name: str, timely: str, what: str) -> FrazilError:
    return FrazilError(
        f"stream {spec.stream}: table {name} would have the late rows of {timely}, and {what}.",
        fix=f"write event_time.late: {{table: …}} with another name around {{table}} in streams/{spec.stream}.yaml",
    )


def _ensure_lane(spec: StreamSpec, catalog: Catalog, name: str) -> None:
    try:
        ensure_row_table(spec.for_table(name), catalog, None)
    except FrazilError as problem:
        if type(problem) is not FrazilError or name in problem.message:
            raise
        # The file's statement about columns does not hold for this table.
        raise FrazilError(f"stream {spec.stream}: table {name}: {problem.message}", fix=problem.fix) from None


def ensure_routed_table(spec: StreamSpec, catalog: Catalog, name: str) -> Table:
    """Create one of the routed tables if it does not exist; a dependent one gets what it lacks of the main table.

    Raises:
        FrazilError: It cannot hold what the file declares, or what the main table has.
    """
    if spec.tables_follow:
        return ensure_follower(spec, catalog, stream_table(catalog, spec, spec.table.name).metadata, name)
    schema = spec.table_schema_for(name)
    late = late_rows_property(spec.stream, spec.table.name) if spec.has_late_rows(name) else {}
    table, partitions = ensure_table_of_rows(
        catalog, name, spec.table_settings(name), schema, as_made_property(spec.stream) | late
    )
    if is_as_made(table.metadata, spec.stream) and differs(table.metadata, schema, partitions):
        table = remade_table(table, spec.stream, schema, partitions)
    if differences := spec.disagreements_with(table.schema(), name, properties=table.properties):
        raise FrazilError(
            f"stream {spec.stream}: its dependent table {name} cannot hold what the file declares: "
            + "; ".join(differences),
            fix=f"`frazil schema apply {spec.stream}`, or correct decode.schema in streams/{spec.stream}.yaml",
        )
    return table
