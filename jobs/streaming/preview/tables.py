"""Tables of a preview: existing ones, or those that a driver would create and change; nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata

from jobs.base.system.typed_json import decode_json
from jobs.clients.catalog.catalog import find_table
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import changed_columns, evolving_schema, first_decoded
from jobs.config.values.targets import TargetSpec, named_table
from jobs.records.formats.interface.decoder_spec import ResolvedSchema
from jobs.records.schema.decoded_columns import decoded_properties, decoded_property
from jobs.records.schema.evolution import Evolution
from jobs.records.schema.needs import Change, Path, RecordNeed
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.records.schema.schema_change import RefusedChange, SchemaChange
from jobs.streaming.driver.context.column_refusals import ColumnRefusals
from jobs.streaming.driver.tables.new_rows import NewColumns, refuse_misnamed
from jobs.streaming.driver.tables.row_table import new_decoded, refuse_unfollowed, shaped_schema
from jobs.streaming.driver.tables.schema_evolution import CHANGES_LEFT, ROUNDS
from jobs.streaming.pipeline.route_naming import is_full
from jobs.streaming.preview.record import TableChanges, TableState
from jobs.streaming.task.needs import UnnamedTable, merged_tables
from jobs.streaming.task.run import TaskResult
from jobs.tables.commit.schema.followers import (
    following,
    following_operation,
    needed_changes,
    new_follower_schema,
)
from jobs.tables.commit.schema.opening_columns import (
    columns_operation,
    opening_columns,
    opening_operation,
)
from jobs.tables.commit.schema.schema_history import added_within_hour
from jobs.tables.commit.schema.schema_operation import with_operation
from jobs.tables.dead_letter_table.table import DEAD_LETTER_PARTITIONS, DEAD_LETTER_SCHEMA
from jobs.tables.write.partitioning import partition_spec
from jobs.tables.write.table_creation import create_table_properties, refuse_format, refuse_names
from jobs.tables.write.table_remaking import differs, is_as_made
from jobs.tables.write.table_sort_order import sort_order

_NOWHERE = "memory://preview"


@dataclass(frozen=True, slots=True)
class TableAsWritten:
    """A table of a stream, as a batch would write it.

    Attributes:
        problem: If it `differs`, the reason why a driver with this file would not start.
    """

    target: TargetSpec
    state: TableState
    metadata: TableMetadata
    problem: str | None = None


def tables_as_written(
    spec: StreamSpec, catalog: Catalog | None, new: Callable[[], NewColumns]
) -> tuple[TableAsWritten, ...]:
    """Tables of a stream, in the order of its targets.

    A table that cannot hold what the file declares is replaced by a new one, with the reason.

    Args:
        catalog: Catalog of the tables; None if there is none yet.
        new: Makes the columns of a new table, if the stream's file does not declare them.

    Raises:
        FrazilError: Its columns are unknown, it could not be created, or the catalog does not answer.
    """
    made: list[TableAsWritten] = []
    for target in spec.targets:
        if target.role == "dead_letters":
            made.append(_letters(spec, target, catalog))
        elif spec.tables_follow and not target.coordinator:
            made.append(_follower(spec, target, catalog, made[0].metadata))
        else:
            made.append(_of_rows(spec, target, catalog, new))
    return tuple(made)


def new_named_tables(spec: StreamSpec, results: Sequence[TaskResult], own: TableMetadata) -> list[TableAsWritten]:
    """Dynamic tables that a task lacks, in the form in which they would be created.

    Existing tables of the same names are not looked up.

    Args:
        spec: The stream with its dynamic tables.
        own: Metadata of the main table in the task.
    """
    route = spec.route
    if route is None or route.to is None:
        return []
    told = [decode_json(each.payload, UnnamedTable) for each in results if each.kind == "table"]
    made: list[TableAsWritten] = []
    for each in merged_tables(told):
        name = named_table(route.to, each.value)
        if is_full(spec) or name.lower() in {known.lower() for known in spec.target_names}:
            continue
        spec = spec.with_named_tables([name])
        schema = new_follower_schema(spec, own, name) if spec.tables_follow else spec.table_schema_for(name)
        partitions = partition_spec(spec.table_settings(name).partition_by, schema)
        target = next(target for target in spec.targets if target.name == name)
        made.append(TableAsWritten(target, "new", _made(spec, name, schema, partitions)))
    return made


def _letters(spec: StreamSpec, target: TargetSpec, catalog: Catalog | None) -> TableAsWritten:
    there = _found(spec, target, catalog) is not None
    partitions = partition_spec(DEAD_LETTER_PARTITIONS, DEAD_LETTER_SCHEMA)
    # A table of an earlier release gets its missing columns when the stream starts.
    made = new_table_metadata(
        DEAD_LETTER_SCHEMA, partitions, sort_order((), DEAD_LETTER_SCHEMA), _NOWHERE, create_table_properties({})
    )
    return TableAsWritten(target, "there" if there else "new", made)


def _of_rows(
    spec: StreamSpec, target: TargetSpec, catalog: Catalog | None, new: Callable[[], NewColumns]
) -> TableAsWritten:
    table = _found(spec, target, catalog)
    if table is not None:
        refuse_format(table.metadata, target.name)
    schema, kept = _columns(spec, target.name, table, new)
    if schema is None:
        assert table is not None
        return TableAsWritten(target, "there", _followed(spec, table.metadata, new))
    partitions = partition_spec(spec.table_settings(target.name).partition_by, schema)
    made = _made(spec, target.name, schema, partitions, kept)
    if table is None or _is_remade(spec, table, schema, partitions):
        refuse_names(target.name, schema, partitions)
        return TableAsWritten(target, "new" if table is None else "there", made)
    kept_by = {**table.properties, **kept}
    if found := spec.disagreements_with(table.schema(), target.name, properties=kept_by):
        problem = f"table {target.name} cannot hold what the file declares: {'; '.join(found)}"
        return TableAsWritten(target, "differs", made, problem)
    return TableAsWritten(target, "there", table.metadata.model_copy(update={"properties": kept_by}))


def _follower(spec: StreamSpec, target: TargetSpec, catalog: Catalog | None, own: TableMetadata) -> TableAsWritten:
    """A table that has the main table's columns."""
    table, schema = _found(spec, target, catalog), new_follower_schema(spec, own, target.name)
    made = _made(spec, target.name, schema, partition_spec(spec.table_settings(target.name).partition_by, schema))
    if table is None:
        return TableAsWritten(target, "new", made)
    refuse_format(table.metadata, target.name)
    fit = following(spec, own, table.metadata, target.name)
    if not fit.refused:
        return TableAsWritten(target, "there", followed_metadata(spec, own, table.metadata, target.name))
    if is_as_made(table.metadata, spec.stream):
        return TableAsWritten(target, "there", made)
    problem = f"table {target.name} cannot take the columns of table {spec.table.name}: {'; '.join(fit.refused)}"
    return TableAsWritten(target, "differs", made, problem)


def followed_metadata(spec: StreamSpec, own: TableMetadata, follower: TableMetadata, name: str) -> TableMetadata:
    """Metadata of a dependent table once it has what it lacks of the main table.

    Args:
        follower: Metadata of the dependent table, which can take the columns.
    """
    changes = following(spec, own, follower, name).changes
    return with_operation(follower, following_operation(spec, follower, changes)) if changes else follower


def _followed(spec: StreamSpec, metadata: TableMetadata, new: Callable[[], NewColumns]) -> TableMetadata:
    """Metadata of a table after the next start has applied the stream's steps."""
    found = opening_columns(spec, metadata, new_decoded(spec, new))
    refuse_misnamed(spec, list(found.problems))
    refuse_unfollowed(spec, found)
    operation = opening_operation(spec, metadata, found)
    return metadata if operation is None else with_operation(metadata, operation)


def _found(spec: StreamSpec, target: TargetSpec, catalog: Catalog | None) -> Table | None:
    return None if catalog is None else find_table(catalog, target.name, spec.branch_of(target.name))


def _columns(
    spec: StreamSpec, name: str, table: Table | None, new: Callable[[], NewColumns]
) -> tuple[Schema | None, dict[str, str]]:
    """Columns of a new table, None if the file leaves them to the table; and the property with decoded ones."""
    if spec.decode.declares_all:
        return spec.table_schema_for(name), {}
    if table is not None:
        found = opening_columns(spec, table.metadata, new_decoded(spec, new))
        if spec.decode.declared is None:
            if not (spec.shapes and is_as_made(table.metadata, spec.stream)):
                return None, {}
            refuse_misnamed(spec, list(found.problems))
            return shaped_schema(spec, found.metadata), _kept(spec, found.metadata.properties)
        refuse_misnamed(spec, list(found.problems))
        properties = found.metadata.properties
        return spec.table_schema_beside(table.schema(), properties), _kept(spec, properties)
    made = new()
    refuse_misnamed(spec, spec.problems_of(made.rows, spec.record_columns.with_key_of(made.key)))
    own = decoded_properties({}, spec.stream, first_decoded(spec, made.rows, made.key), None) if spec.shapes else {}
    return spec.table_schema_of(made.rows, made.key, name=name), own


def _kept(spec: StreamSpec, properties: Mapping[str, str]) -> dict[str, str]:
    name = decoded_property(spec.stream)
    return {each: text for each, text in properties.items() if each.endswith(name)} if spec.shapes else {}


def _made(
    spec: StreamSpec,
    name: str,
    schema: Schema,
    partitions: PartitionSpec,
    kept: Mapping[str, str] = MappingProxyType({}),
) -> TableMetadata:
    settings = spec.table_settings(name)
    properties = {**create_table_properties(settings.properties, schema), **kept}
    return new_table_metadata(schema, partitions, sort_order(settings.sort_by, schema), _NOWHERE, properties)


def _is_remade(spec: StreamSpec, table: Table, schema: Schema, partitions: PartitionSpec) -> bool:
    """Whether the next start rebuilds the table by the present file: it is empty, and frazil created it."""
    return is_as_made(table.metadata, spec.stream) and differs(table.metadata, schema, partitions)


class EvolvingTable:
    """The main table while a sample runs: records' needs are judged as in a driver.

    Args:
        metadata: Metadata of the table that exists, or would be created.
        followers: Metadata of its dependent tables, by name.

    Attributes:
        metadata: Metadata with the changes so far.
    """

    def __init__(
        self, spec: StreamSpec, metadata: TableMetadata, followers: Mapping[str, TableMetadata] = MappingProxyType({})
    ) -> None:
        self._spec: StreamSpec = spec
        self._followers: Mapping[str, TableMetadata] = followers
        self.metadata: TableMetadata = metadata
        self._made: list[str] = []
        self._proposed: list[SchemaChange] = []
        self._failed: list[SchemaChange] = []
        self._refused: list[RefusedChange] = []
        self._settled: set[tuple[Change, Path]] = set()
        self._refusals: ColumnRefusals = ColumnRefusals()
        self._rounds: int = 0

    @property
    def changes(self) -> TableChanges:
        """Changes that the records of the sample lead to."""
        return TableChanges(
            tuple(self._made),
            tuple(map(str, self._proposed)),
            tuple(map(str, self._refused)),
            tuple(map(str, self._failed)),
        )

    @property
    def resolved(self) -> ResolvedSchema:
        """Columns of values, and their decoder, by the changed table."""
        found = self._spec.resolved_for(self.metadata.schema(), self.metadata.properties, evolving=True)
        return self._refusals.known_to(found)

    def decide(self, needs: Iterable[RecordNeed]) -> bool:
        """Judge the records' needs; returns whether they have to run again, because the table changed."""
        own = self._spec.columns_from_elsewhere
        new = [each for each in needs if (each.change, each.path) not in self._settled and each.path[0] not in own]
        if not new or self._failed:
            return False
        found = self._judged(new)
        if self._rounds < ROUNDS:
            schema = evolving_schema(self._spec, self.metadata)
            found = self._refusals.without_columns_of_failing(found, schema, found.refused)
        else:
            found = found.refusing_changes(CHANGES_LEFT)
        self._failed += found.failed
        if found.failed:
            return False
        self._proposed += found.proposed
        self._settled |= {(each.change, each.path) for each in (*found.proposed, *found.refused)}
        again = self._refuse(found.refused)
        if found.changes:
            self._change(found.changes)
        return again or bool(found.changes)

    def _judged(self, needs: list[RecordNeed]) -> Evolution:
        spec = self._spec
        return needed_changes(
            spec,
            needs,
            self.metadata,
            added_lately=added_within_hour(self.metadata.properties),
            always={(EXTRA_COLUMN,)} if spec.decode.unknown_fields == "keep" else (),
            followers=self._followers if spec.tables_follow else None,
        )

    def _change(self, changes: tuple[SchemaChange, ...]) -> None:
        made = changed_columns(self._spec, self.metadata, changes)
        self.metadata = with_operation(self.metadata, columns_operation(self._spec, self.metadata, changes))
        self._made += made.sentences
        self._rounds += 1

    def _refuse(self, refused: Iterable[RefusedChange]) -> bool:
        """Note refusals; returns whether the decoders need them."""
        schema, changes = evolving_schema(self._spec, self.metadata), list(refused)
        self._refused += changes
        additions = [each for each in changes if each.change == "add"]
        for each in additions:
            self._refusals.refuse_field(schema, each.path, each.why)
        return self._refusals.refuse_changes(changes, self._spec.evolution) or bool(additions)
