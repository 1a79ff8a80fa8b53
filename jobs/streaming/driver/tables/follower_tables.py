"""Dependent tables of a stream: made and altered as the table is whose columns they have, or whose late rows.

An opening brings each to what that one has, and so does each batch before its tasks run, whatever has altered it.
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
    """Create a dependent table, or give it what it lacks of the columns of the table that it follows, in one commit.

    One without rows, as frazil made it, is made anew where it is partitioned otherwise, or cannot be altered.

    Args:
        spec: The stream; where each table has columns of its own, as the rows of the one that is followed are made.
        own: Metadata of the table that is followed.
        adopting: Whether a table that others made gets Kafka's own columns as well.

    Raises:
        SchemaChangeError: It cannot take the columns; the message names each.
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
    """Refuse an own table that says no columns, as that of a stream whose topics decided: rows without one are none."""
    if not {each.name for each in own.fields} - spec.kafka_columns.names:
        raise FrazilError(
            f"stream {spec.stream}: table {spec.table.name} has no column but Kafka's own, and the columns of all "
            "other tables of rows are those that it has.",
            fix=f"add them to table {spec.table.name}, or give table.name in streams/{spec.stream}.yaml another name",
        )


def _partition_fields(partitions: PartitionSpec, schema: Schema) -> list[tuple[str, str, str | None]]:
    return [(each.name, str(each.transform), schema.find_column_name(each.source_id)) for each in partitions.fields]


class FollowerTables:
    """Gives the followers of an open stream what they lack of its own table's columns, one commit each."""

    def __init__(self, stream: OpenStream) -> None:
        self._stream: OpenStream = stream
        # By what the own table and each follower were known when they were seen to agree.
        self._checked: tuple[int, str | None] | None = None
        self._agreed: dict[str, tuple[object, ...]] = {}

    def follow(self, batch: int) -> None:
        """See, before tasks run, that every follower takes the rows of the own table as it is, and alter those.

        Raises:
            SchemaChangeError, CommitDeniedError: One cannot take them, or refuses them; the message names it.
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
        """See likewise that they take the rows of a batch that has landed in part, by the columns that it had then.

        Args:
            decided: Gives the metadata of a table that says columns, as the batch was decided on.
        """
        for name in self._leaders:
            self._follow_all(name, decided(name), batch, " as they were for a batch that other tables have")

    @property
    def _leaders(self) -> list[str]:
        """The tables that others follow, without those that are parked: what follows one of them gets no row."""
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
    """By what a table's columns are known to be others."""
    return target.uuid, target.table.metadata.current_schema_id


def _tell(spec: StreamSpec, name: str, changes: tuple[SchemaChange, ...]) -> None:
    log.info("table %s follows table %s: %s", name, spec.table.name, "; ".join(map(str, changes)))


def _refuse(spec: StreamSpec, name: str, fit: Fitting, said: str = "", lacks: Collection[str] = ()) -> None:
    if fit.refused and lacks:
        raise SchemaChangeError(
            f"stream {spec.stream}: its further table {name} was not made by frazil: {' '.join(fit.refused)}",
            fix=f"{spec.apply_command}, which adds the columns",
        )
    if fit.refused:
        raise SchemaChangeError(
            f"stream {spec.stream}: its further table {name} cannot take the columns of table {spec.table.name}{said}: "
            f"{'; '.join(each.rstrip('.') for each in fit.refused)}.",
            fix=f"alter table {name} so that it can, or {_other_way(spec, name)} in streams/{spec.stream}.yaml; then "
            f"frazil run {spec.stream}",
        )


def _other_way(spec: StreamSpec, name: str) -> str:
    """What else the file may say; it has no entry for a table that a value has named."""
    if spec.route is not None and name not in spec.route.table_names:
        return "give route.to another pattern, so that values name other tables, or table.name another name"
    return "name another one"
