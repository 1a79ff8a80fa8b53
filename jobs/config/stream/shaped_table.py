"""Table whose columns a stream's steps make from decoded ones: the kept decoded columns, and changes of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, StructType

from jobs.config.documents.base import field_path
from jobs.config.steps.shaping import added_by
from jobs.config.steps.steps import rules_of
from jobs.records.schema.column_names import partition_names
from jobs.records.schema.compatibility import holds, promotes
from jobs.records.schema.decoded_columns import DecodedColumns
from jobs.records.schema.evolution import (
    Evolution,
    Fitting,
    fitting,
    protected_columns,
)
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.schema.identifier_fields import optional_columns
from jobs.records.schema.name_matching import aliases_of
from jobs.records.schema.needs import Coordinates
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.records.schema.schema_change import RefusedChange, SchemaChange, changed_schema
from jobs.records.transforms.columns import (
    Columns,
    TransformProblem,
    optional,
    same,
)
from jobs.records.transforms.transform import StepProblem

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from jobs.config.stream.models import StreamSpec


_NOWHERE = Coordinates("", 0, 0)


@dataclass(frozen=True, slots=True)
class ChangedColumns:
    """Effect of schema changes on a table.

    Attributes:
        schema: New schema of the table; unchanged columns keep their ids.
        changes: Changes of the table.
        sentences: Sentences, one for each change.
        decoded: New columns before the steps, if the table keeps them; otherwise None.
    """

    schema: Schema
    changes: tuple[SchemaChange, ...]
    sentences: tuple[str, ...]
    decoded: DecodedColumns | None = None


class _BrokenError(Exception):
    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why: str = why


def first_decoded(spec: StreamSpec, rows: Schema, key: Iterable[NestedField] | None) -> DecodedColumns:
    """Return the decoded columns of a new table.

    Args:
        spec: The stream.
        rows: Columns of values.
        key: Columns in the struct of a key; empty if records have no keys, None if the file declares them or no key.
    """
    columns, struct, fields = spec.record_columns.key, None, None if key is None else tuple(key)
    if fields and columns is not None and columns.into is not None:
        struct = Schema(NestedField(1_000_000, columns.into, StructType(*fields), required=columns.required))
    if spec.table.force_optional and not spec.table.identifiers and spec.decode.declared is None:
        rows = optional_columns(rows, ())
    if spec.changes is not None and spec.decode.declared is None:
        # Records other than events, such as heartbeats, have other fields.
        rows = Schema(*map(optional, rows.fields))
    return DecodedColumns(spec.decode.with_extra_column(rows), struct, keyless=fields == ())


def evolving_schema(spec: StreamSpec, metadata: TableMetadata) -> Schema:
    """Return the columns that evolve with records: those before the steps if the table keeps them, else the table's."""
    table = metadata.schema()
    return spec.decoded_for(table, metadata.properties).rows if spec.shapes else table


def evolving_rules(spec: StreamSpec, metadata: TableMetadata) -> dict[str, Any]:
    """Return the arguments of `judged` for these columns: a table's columns may be protected, decoded ones are not."""
    schema, specs = metadata.schema(), metadata.partition_specs
    if spec.shapes:
        aliases = spec.decoded_for(schema, metadata.properties).aliases
        return {"maintained": False, "partitions": None, "aliases": aliases}
    return {
        "protected": protected_columns(schema, specs, metadata.sort_order_by_id(metadata.default_sort_order_id)),
        "maintained": spec.maintenance.enabled,
        "partitions": partition_names(schema, specs),
        "aliases": aliases_of(schema, metadata.properties, spec.table.name),
    }


def changed_columns(spec: StreamSpec, metadata: TableMetadata, changes: tuple[SchemaChange, ...]) -> ChangedColumns:
    """Return the effect of accepted changes on a table."""
    if not spec.shapes:
        made = _altered(spec, metadata, changes)
        return ChangedColumns(made, changes, tuple(each.sentence for each in changes))
    decoded = changed_decoded(spec, metadata, changes)
    fit = fitting_table(spec, metadata, decoded)
    sentences = (*(str(each) for each in fit.changes), *(f"decoded columns: {each.sentence}" for each in changes))
    return ChangedColumns(_altered(spec, metadata, fit.changes), fit.changes, sentences, decoded)


def changed_decoded(spec: StreamSpec, metadata: TableMetadata, changes: Iterable[SchemaChange]) -> DecodedColumns:
    """Return the columns before the steps after some changes."""
    before = spec.decoded_for(metadata.schema(), metadata.properties)
    return replace(before, rows=changed_schema(before.rows, tuple(changes), before.rows.highest_field_id, ()))


def fitting_table(
    spec: StreamSpec, metadata: TableMetadata, decoded: DecodedColumns, *, relax_missing: bool = False
) -> Fitting:
    """Return the changes that a table needs for the columns that the steps make from decoded ones.

    Args:
        spec: The stream.
        metadata: Metadata of the table.
        decoded: Columns before the steps.
        relax_missing: See `fitting`.

    Returns:
        The changes; refused, with the reason, if a step or a rule cannot be applied to the columns.
    """
    columns = spec.record_columns_of(decoded, metadata.schema()).beside(decoded.rows)
    try:
        behind = spec.chain.output(Columns.of(columns))
        rules_of(spec.rules).output(behind)
    except (StepProblem, TransformProblem) as problem:
        return Fitting((), (f"a step or a rule of the stream could not be taken: {problem.message}",))
    if problem := _lost_problem(spec, decoded.rows, behind):
        return Fitting((), (problem,))
    lane = spec.lane_columns
    if lane is not None and (wrong := lane.problem_with(behind.schema)) is not None:
        return Fitting((), (f"{field_path(wrong[0])} {wrong[1]}",))
    return fitting(
        behind.schema if lane is None else lane.left_of(behind.schema),
        metadata,
        own=spec.kafka_columns.names,
        relax_missing=relax_missing,
        maintained=spec.maintenance.enabled,
    )


def can_be_taken(spec: StreamSpec, metadata: TableMetadata, decoded: DecodedColumns) -> bool:
    """Whether all steps and rules of a stream can be applied to decoded columns, whatever its table is."""
    columns = spec.record_columns_of(decoded, metadata.schema()).beside(decoded.rows)
    try:
        rules_of(spec.rules).output(spec.chain.output(Columns.of(columns)))
    except (StepProblem, TransformProblem):
        return False
    return True


def shaped(spec: StreamSpec, found: Evolution, metadata: TableMetadata) -> Evolution:
    """Refuse those changes of decoded columns that the steps, or the table after them, cannot take.

    Args:
        spec: A stream whose steps change columns that no file declares.
        found: Evolution of its decoded columns.
        metadata: Metadata of the table for which the evolution was decided.
    """

    def problem_of(changes: Iterable[SchemaChange]) -> str | None:
        refused = fitting_table(spec, metadata, changed_decoded(spec, metadata, changes)).refused
        return "; ".join(refused) if refused else None

    # All together first, because some changes need others.
    if not found.changes or problem_of(found.changes) is None:
        return found
    made, refused = list[SchemaChange](), list[RefusedChange]()
    for each in found.changes:
        if why := problem_of([*made, each]):
            refused.append(RefusedChange(each.change, each.path, why, each.at or _NOWHERE))
        else:
            made.append(each)
    return replace(found, changes=tuple(made), refused=(*found.refused, *refused))


def _lost_problem(spec: StreamSpec, rows: Schema, behind: Columns) -> str | None:
    """Return the problem if steps lose fields without a column although the stream keeps them; else None."""
    if EXTRA_COLUMN not in {each.name for each in rows.fields} or spec.decode.unknown_fields != "keep":
        return None
    if any(each.name == EXTRA_COLUMN and isinstance(each.field_type, StringType) for each in behind):
        return None
    return f"behind the steps there is no text column {EXTRA_COLUMN}, for the kept values"


def _altered(spec: StreamSpec, metadata: TableMetadata, changes: tuple[SchemaChange, ...]) -> Schema:
    return changed_schema(metadata.schema(), changes, metadata.last_column_id, spec.kafka_columns.names)


def misfit_fix(spec: StreamSpec, table: Schema) -> str:
    """Return the next step if a table cannot take the rows that the stream's file makes of records.

    Args:
        table: Schema of the table.
    """
    if spec.kafka_columns.names - {*table.column_names}:
        return (
            f"`{spec.apply_command}`, which adds the columns; or write kafka_columns: false below table in "
            f"streams/{spec.stream}.yaml, which gives up audits by row, replays without doubles, and changes"
        )
    if spec.decode.declared is None:
        if spec.chain or spec.shapes:
            return f"{spec.apply_command}, or correct streams/{spec.stream}.yaml"
        return f"alter table {spec.table.name} so that it has the column, or correct streams/{spec.stream}.yaml"
    return f"{spec.apply_command}, or correct decode.schema in streams/{spec.stream}.yaml"


def followed(spec: StreamSpec, found: Evolution, metadata: TableMetadata) -> Evolution:
    """Add the changes of columns that steps add, and refuse changes that break a step or a rule.

    Args:
        spec: The stream.
        found: Evolution of the decoded columns.
        metadata: Metadata of the table for which the evolution was decided.
    """
    if not found.changes or spec.decode.declared is not None or not (spec.chain or spec.rules or spec.shapes):
        return found
    if spec.shapes:
        return shaped(spec, found, metadata)
    table = metadata.schema()
    protected = protected_columns(
        table, metadata.partition_specs, metadata.sort_order_by_id(metadata.default_sort_order_id)
    )
    added = added_by(spec.chain)

    def altered(changes: Iterable[SchemaChange]) -> Schema:
        return changed_schema(table, tuple(changes), metadata.last_column_id, spec.kafka_columns.names)

    made, more, refused = list[SchemaChange](), list[SchemaChange](), list[RefusedChange]()
    for each in found.changes:
        try:
            after = altered([*made, each])
            more = list(_following(spec, after, added, protected, each))
        except _BrokenError as broken:
            refused.append(RefusedChange(each.change, each.path, broken.why, each.at or _NOWHERE))
        else:
            made += [each, *more]
    return replace(found, changes=tuple(made), refused=(*found.refused, *refused))


def _following(
    spec: StreamSpec, after: Schema, added: frozenset[str], protected: Mapping[int, str], change: SchemaChange
) -> Iterator[SchemaChange]:
    """Yield the changes that columns added by steps need after a table was altered."""
    columns = {each.name: each for each in after.fields}
    for name, field in _rows(spec, after).items():
        if name not in added or (column := columns.get(name)) is None:
            continue
        yield from _fitted(field, column, after, protected.get, change)


def _rows(spec: StreamSpec, table: Schema) -> dict[str, NestedField]:
    decoded = Columns.of(spec.record_columns_for(table).beside(spec.resolved_for(table).schema))
    try:
        behind = spec.chain.output(decoded)
        rules_of(spec.rules).output(behind)
    except (StepProblem, TransformProblem) as problem:
        raise _BrokenError(f"a step or a rule of the stream could not be taken any more: {problem.message}") from None
    return {each.name: each for each in behind}


def _fitted(
    field: NestedField, column: NestedField, table: Schema, kept: Callable[[int], str | None], change: SchemaChange
) -> Iterator[SchemaChange]:
    new, old = field.field_type, column.field_type
    fits = holds(new, old) if new.is_primitive and old.is_primitive else same(new, old)
    if not fits:
        problem = f"the column {column.name}, which the steps make, would have to be {schema_text(new)}"
        if not (new.is_primitive and old.is_primitive and promotes(old, new)):
            raise _BrokenError(f"{problem}, and Iceberg does not widen {schema_text(old)} to that")
        if why := kept(column.field_id):
            raise _BrokenError(f"{problem}, and {why}")
        yield SchemaChange("widen", (column.name,), new, change.at)
    if column.required and not field.required:
        if column.field_id in table.identifier_field_ids:
            problem = f"the column {column.name}, which the steps make, would be null"
            raise _BrokenError(f"{problem}, and it is an identifier field of the table")
        yield SchemaChange("relax", (column.name,), None, change.at)
