"""Dependent tables of a stream: created and altered like the table whose columns, or late rows, they have.

An opening aligns each with that table, and so does each batch before its tasks run, whoever has altered it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.config.stream.models import StreamSpec
from jobs.records.schema.decoded_columns import decoded_digest
from jobs.records.schema.evolution import Fitting
from jobs.records.schema.schema_change import SchemaChange
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.tables.new_rows import refuse_misnamed
from jobs.streaming.driver.tables.parked_tables import parked_where_refused
from jobs.streaming.driver.tables.row_table import ensure_table_of_rows
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap
from jobs.tables.commit.protocol.parked_target import ParkedTarget
from jobs.tables.commit.protocol.proposals import Proposal
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.protocol.table_remake import remade_table
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.followers import (
    follower_names,
    following,
    following_operation,
    leaders,
    new_follower_schema,
)
from jobs.tables.commit.stamp.errors import CommitDeniedError, CommitRefusedError, SchemaChangeError
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.write.table_creation import refuse_format
from jobs.tables.write.table_remaking import as_made_property, is_as_made, late_rows_property

log = logging.getLogger(__name__)


def ensure_follower(
    spec: StreamSpec, catalog: Catalog, own: TableMetadata, name: str, *, adopting: bool = False
) -> Table:
    """Create a dependent table, or add what it lacks of the followed table's columns, in one commit.

    An empty table as frazil created it is rebuilt if it is partitioned otherwise or cannot be altered.

    Args:
        spec: The stream; if each table has its own columns, in the form for the followed table.
        own: Metadata of the followed table.
        adopting: Whether a table that others created gets Kafka's columns as well.

    Raises:
        SchemaChangeError: The table cannot take the columns; the message names each.
    """
    schema = new_follower_schema(spec, own, name)
    late = late_rows_property(spec.stream, spec.table.name) if spec.has_late_rows(name) else {}
    table, partitions = ensure_table_of_rows(
        catalog, name, spec.table_settings(name), schema, as_made_property(spec.stream) | late
    )
    refuse_format(table.metadata, name)
    if is_as_made(table.metadata, spec.stream) and (
        _partition_fields(table.spec(), table.schema()) != _partition_fields(partitions, schema)
        or following(spec, own, table.metadata, name).refused
    ):
        remade_table(table, spec.stream, schema, partitions)

    def attempt() -> Table:
        found = stream_table(catalog, spec, name)
        fit = following(spec, own, found.metadata, name, adopting=adopting)
        _refuse(spec, name, fit, lacks=spec.kafka_columns.names - {*found.schema().column_names})
        if fit.changes:
            operation = following_operation(spec, found.metadata, fit.changes, by=f"table {spec.table.name}")
            step("before_follower_change")
            commit_once(found, operation, summary={}, properties={})
            step("after_follower_change")
            _tell(spec, name, fit.changes)
        return found

    return compare_and_swap(
        name, attempt, lambda said: CommitRefusedError(f"stream {spec.stream}: {said}", fix="start it again")
    )


def refuse_bare(spec: StreamSpec, own: Schema) -> None:
    """Raise if the main table of a stream whose topics decide has no columns, as rows without values do not exist."""
    if not {each.name for each in own.fields} - spec.kafka_columns.names:
        raise FrazilError(
            f"stream {spec.stream}: table {spec.table.name} has no column but Kafka's own, and the columns of all "
            "other tables of rows are those that it has.",
            fix=f"add them to table {spec.table.name}, or give table.name in streams/{spec.stream}.yaml another name",
        )


def _partition_fields(partitions: PartitionSpec, schema: Schema) -> list[tuple[str, str, str | None]]:
    return [(each.name, str(each.transform), schema.find_column_name(each.source_id)) for each in partitions.fields]


class FollowerTables:
    """Adds missing columns of the main table to the dependent tables of an open stream, one commit for each."""

    def __init__(self, stream: OpenStream) -> None:
        self._stream: OpenStream = stream
        # Version of the main table, and of each dependent table, when they last agreed.
        self._checked: tuple[int, str | None] | None = None
        self._agreed: dict[str, tuple[object, ...]] = {}

    def follow(self, batch: int) -> None:
        """Check before tasks run that every dependent table takes the main table's rows, and alter those that do not.

        Raises:
            SchemaChangeError, CommitDeniedError: A table cannot take the columns or refuses them; the message names it.
        """
        stream, spec = self._stream, self._stream.spec
        if spec.tables_follow:
            own = stream.rows_table.metadata
            now = own.current_schema_id, decoded_digest(own.properties, spec.stream)
            if now != self._checked:
                refuse_misnamed(spec, spec.problems_with(own.schema(), own.properties))
                refuse_bare(spec, own.schema())
                self._checked = now
        for name in self._leaders:
            self._follow_all(name, stream.targets[name].table.metadata, batch)

    def follow_as_decided(self, decided: Callable[[str], TableMetadata], batch: int) -> None:
        """Check likewise for a batch that has landed in part, by the columns of that time.

        Args:
            decided: Returns the metadata of a table with columns, as the batch was decided on.
        """
        for name in self._leaders:
            self._follow_all(name, decided(name), batch, " as they were for a batch that other tables have")

    @property
    def _leaders(self) -> list[str]:
        """Tables that others follow, without suspended ones, whose dependent tables get no row."""
        targets = self._stream.targets
        return [name for name in leaders(self._stream.spec) if not isinstance(targets[name], ParkedTarget)]

    def _follow_all(self, leader: str, own: TableMetadata, batch: int, said: str = "") -> None:
        stream, spec = self._stream, self._stream.spec.for_table(leader)
        now = own.current_schema_id, decoded_digest(own.properties, spec.stream)
        with parked_where_refused(stream, (CommitDeniedError, SchemaChangeError)) as on:
            for name in follower_names(spec):
                target = stream.targets[name]
                if not isinstance(target, ParkedTarget) and self._agreed.get(name) != (now, *_version(target)):
                    with on(name):
                        self._follow(spec, target, own, batch, said)
                        self._agreed[name] = (now, *_version(target))

    def _follow(self, spec: StreamSpec, target: Target, own: TableMetadata, batch: int, said: str) -> None:
        stream, name = self._stream, target.name
        known = following(spec, own, target.table.metadata, name)
        if not known.changes and not known.refused:
            return

        def propose(newest: Stamp | None, metadata: TableMetadata) -> Proposal[tuple[SchemaChange, ...]]:
            fit = following(spec, own, metadata, name)
            _refuse(spec, name, fit, said)
            if not fit.changes:
                return Proposal(())
            whose = {"epoch": stream.epoch, "batch": batch}
            return Proposal(fit.changes, following_operation(spec, metadata, fit.changes, **whose))

        step("before_follower_change")
        changes = target.swap(propose, epoch=stream.epoch, check=stream.refuse_taken_over)
        if changes:
            _tell(spec, name, changes)
            step("after_follower_change")


def _version(target: Target) -> tuple[object, ...]:
    """Version of a target's columns."""
    return target.uuid, target.table.metadata.current_schema_id


def _tell(spec: StreamSpec, name: str, changes: tuple[SchemaChange, ...]) -> None:
    log.info("table %s follows table %s: %s", name, spec.table.name, "; ".join(map(str, changes)))


def _refuse(spec: StreamSpec, name: str, fit: Fitting, said: str = "", lacks: Collection[str] = ()) -> None:
    if fit.refused and lacks:
        raise SchemaChangeError(
            f"stream {spec.stream}: its dependent table {name} was not made by frazil: {' '.join(fit.refused)}",
            fix=f"{spec.apply_command}, which adds the columns",
        )
    if fit.refused:
        raise SchemaChangeError(
            f"stream {spec.stream}: its dependent table {name} cannot take the columns of table "
            f"{spec.table.name}{said}: {'; '.join(each.rstrip('.') for each in fit.refused)}.",
            fix=f"alter table {name} so that it can, or {_other_way(spec, name)} in streams/{spec.stream}.yaml; then "
            f"frazil run {spec.stream}",
        )


def _other_way(spec: StreamSpec, name: str) -> str:
    """What else the file may declare; a table that a value has named has no entry there."""
    if spec.route is not None and name not in spec.route.table_names:
        return "give route.to another pattern, so that values name other tables, or table.name another name"
    return "name another one"
