"""Dependent tables of a stream: they have the columns of its main table, or of the table whose late rows they hold.

Pure functions. A change that a dependent table cannot take is refused before the followed table gets it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.config.documents.base import field_path
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import evolving_rules, evolving_schema, followed
from jobs.records.schema.compatibility import disagreements
from jobs.records.schema.evolution import (
    Evolution,
    Fitting,
    fitting,
    judged,
)
from jobs.records.schema.identifier_fields import identifier_problem, with_identifier_fields
from jobs.records.schema.needs import (
    Coordinates,
    EvolutionPolicy,
    Path,
    RecordNeed,
)
from jobs.records.schema.schema_change import RefusedChange, SchemaChange, changed_schema, kafka_column_changes
from jobs.records.transforms.columns import TransformProblem
from jobs.tables.commit.schema.opening_columns import columns_operation
from jobs.tables.commit.schema.operations import ChangeSchema
from jobs.tables.commit.schema.schema_operation import schema_operation, with_operation

_NOWHERE = Coordinates("", 0, 0)


def follower_names(spec: StreamSpec) -> tuple[str, ...]:
    """Tables of a stream that follow its main table; none if each has columns of its own."""
    if not spec.tables_follow:
        return ()
    return tuple(each.name for each in spec.targets if each.role == "rows" and not each.coordinator)


def leaders(spec: StreamSpec) -> tuple[str, ...]:
    """Tables of a stream that others follow: its main table, or each with its own columns and late rows."""
    if spec.tables_follow:
        return (spec.table.name,)
    if not spec.own_columns or (late := spec.late_tables) is None:
        return ()
    return tuple(timely for each in spec.targets if (timely := late.table_of(each.name)) is not None)


def follower_rows(spec: StreamSpec, own: TableMetadata, name: str) -> Schema:
    """Columns of the rows that a dependent table gets, without Kafka's columns.

    Raises:
        FrazilError: The main table has lost a column that the file chooses for the dependent table.
    """
    table, properties = own.schema(), own.properties
    decoded = spec.record_columns_for(table, properties).beside(spec.resolved_for(table, properties).schema)
    try:
        return spec.columns_in(name, spec.transformed(decoded))
    except TransformProblem as problem:
        raise FrazilError(
            f"stream {spec.stream}: the columns that route chooses for table {name} are not those of table "
            f"{spec.table.name}: {problem.message}.",
            fix=f"correct the columns of {name} in streams/{spec.stream}.yaml, or alter table {spec.table.name} back",
        ) from None


def new_follower_schema(spec: StreamSpec, own: TableMetadata, name: str) -> Schema:
    """Schema of a new dependent table: the rows' columns as in the main table, with the file's identifier fields."""
    schema = spec.kafka_columns.added_to(follower_rows(spec, own, name))
    paths = spec.table.identifiers
    if not paths or any(identifier_problem(path, schema) for path in paths):
        return schema
    return with_identifier_fields(schema, spec.table.identifier_names)


def following(
    spec: StreamSpec, own: TableMetadata, follower: TableMetadata, name: str, *, adopting: bool = False
) -> Fitting:
    """Changes that a dependent table needs to take the rows of its stream.

    Args:
        follower: Metadata of the dependent table.
        adopting: Whether a table that others created gets Kafka's columns as well; otherwise it is refused without
            them.

    Returns:
        The evolution, refused with the reason if Kafka's columns or others stand in the way.
    """
    rows, table = follower_rows(spec, own, name), follower.schema()
    kafka = spec.kafka_columns
    fit = fitting(rows, follower, own=kafka.names, relax_missing=False, maintained=spec.maintenance.enabled)
    if fit.refused:
        return fit
    if adopting:
        fit = replace(fit, changes=(*fit.changes, *kafka_column_changes(table, kafka)[0]))
    after = changed_schema(table, fit.changes, follower.last_column_id, kafka.names)
    return replace(fit, refused=tuple(disagreements(rows, after, kafka)))


def following_operation(
    spec: StreamSpec, follower: TableMetadata, changes: tuple[SchemaChange, ...], **whose: Any
) -> ChangeSchema:
    """Commit operation that makes these changes of a dependent table.

    Args:
        follower: Metadata of the dependent table for which `following` judged the changes.
        whose: Epoch and batch of a driver, or the author, for the table's history.
    """
    after = changed_schema(follower.schema(), changes, follower.last_column_id, spec.kafka_columns.names)
    return schema_operation(spec.stream, follower, after, changes, [str(each) for each in changes], **whose)


def followable(
    spec: StreamSpec, found: Evolution, own: TableMetadata, followers: Mapping[str, TableMetadata]
) -> Evolution:
    """Evolution of the main table in which changes are refused that a dependent table, or the route, cannot take.

    Args:
        spec: A stream whose tables follow its main table.
        own: Metadata of the main table, as it was judged.
    """

    def problem_of(changes: Iterable[SchemaChange]) -> str | None:
        after = with_operation(own, columns_operation(spec, own, tuple(changes)))
        return next(_problems(spec, after, followers), None)

    # All changes together first: some go only with others.
    if not found.changes or problem_of(found.changes) is None:
        return found
    made, refused = list[SchemaChange](), list[RefusedChange]()
    for each in found.changes:
        if why := problem_of([*made, each]):
            refused.append(RefusedChange(each.change, each.path, why, each.at or _NOWHERE))
        else:
            made.append(each)
    return replace(found, changes=tuple(made), refused=(*found.refused, *refused))


def _problems(spec: StreamSpec, own: TableMetadata, followers: Mapping[str, TableMetadata]) -> Iterator[str]:
    """Reasons why the main table may not be changed so, as ends of sentences."""
    for place, said in spec.problems_with(own.schema(), own.properties):
        yield f"{field_path(place)} in the stream's file would not go with it: {said}"
    for name, metadata in followers.items():
        if refused := following(spec, own, metadata, name).refused:
            yield f"table {name}, which has the same columns, cannot take it: {'; '.join(refused)}"


def needed_changes(
    spec: StreamSpec,
    needs: Iterable[RecordNeed],
    metadata: TableMetadata,
    *,
    policy: EvolutionPolicy | None = None,
    added_lately: int = 0,
    always: Container[Path] = (),
    followers: Mapping[str, TableMetadata] | None = None,
) -> Evolution:
    """Changes that the needed columns require of a table; for a stream with steps, of its decoded columns.

    Args:
        policy: Policy for each type of change; None for the stream's.
        added_lately: Number of columns added within the last hour.
        always: Columns that are added under any policy.
        followers: Metadata of the dependent tables, by name; None: they are not asked.
    """
    if spec.shapes:
        # The table has the columns after the steps, which name them.
        needs = [each._replace(former=None) for each in needs]
    found = judged(
        needs,
        evolving_schema(spec, metadata),
        policy or spec.evolution,
        added_lately=added_lately,
        json=spec.decode.format == "json",
        always=always,
        **evolving_rules(spec, metadata),
    )
    found = followed(spec, found, metadata)
    return found if followers is None else followable(spec, found, metadata, followers)
